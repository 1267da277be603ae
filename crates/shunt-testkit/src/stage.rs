//! Packets of one flow, sent by one host and captured at others: when the flow becomes fast, and how soon a change of
//! the router takes effect on it.

use crate::{Frame, Host, Shuntd, Tap, Topology, silent_router, wait_for};
use shunt_wire::{Packet, Transport};
use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// How long after a change the router may still handle a flow as before it. Generous, for machines that run other
/// tests.
pub const REACTION: Duration = Duration::from_secs(1);
/// A flow is re-proved every two seconds, and a proof may take half a second.
const NEXT_PROOF: Duration = Duration::from_millis(2500);
/// How long a flow may take to become fast. After a refusal, the daemon leaves a flow alone for a second.
const LEARNING: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of consecutive packets that must be handled as expected.
const ENOUGH: u32 = 40;
const ICMP: u8 = 1;

/// A sender, and the exits at which its packets are captured.
#[derive(Debug)]
pub struct Stage {
    /// The interface of the sending host.
    pub from: Tap,
    exits: Vec<Tap>,
    echo: Packet,
    number: Cell<u16>,
}

impl Stage {
    /// A stage that sends from one host and captures at others. Packets leave through the first exit before anything
    /// changes.
    ///
    /// # Panics
    /// If an interface cannot be opened.
    #[track_caller]
    pub fn new(from: &Host, exits: &[&Host]) -> Self {
        let echo = Packet::between(from.v4.into(), from.gateway_v4.into(), Transport::Other(ICMP));
        Self {
            from: from.tap(),
            exits: exits.iter().map(|host| host.tap()).collect(),
            echo: echo.macs(from.mac, from.gateway_mac),
            number: Cell::new(0),
        }
    }

    /// A router with this ruleset between two silent hosts, a stage from the LAN to the WAN, and a packet of its flow.
    ///
    /// # Panics
    /// If the network cannot be set up.
    #[track_caller]
    pub fn with_router(ruleset: &str) -> (Topology, Self, Packet) {
        let lab = silent_router(ruleset);
        let (stage, packet) = Self::from_lan(&lab);
        (lab, stage, packet)
    }

    /// A stage from the LAN to the WAN, and a packet of its flow.
    ///
    /// # Panics
    /// If an interface cannot be opened.
    #[track_caller]
    pub fn from_lan(lab: &Topology) -> (Self, Packet) {
        let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan");
        (Self::new(lab.lan(), &[lab.wan()]), packet)
    }

    /// A copy of `packet` with a payload and an identification that no other packet of this stage has.
    fn next(&self, packet: &Packet) -> Packet {
        self.number.set(self.number.get().wrapping_add(1));
        let mut payload = packet.payload.clone();
        payload.truncate(payload.len().saturating_sub(8));
        payload.extend(format!("{:08}", self.number.get()).bytes());
        packet.clone().payload(payload).with_id(self.number.get())
    }

    /// Sends a packet; returns the frames that leave, by exit. An echo request to the router marks the end of the wait.
    ///
    /// # Panics
    /// If the router does not answer the echo request.
    #[track_caller]
    pub fn send(&self, packet: &Packet) -> Vec<Vec<Frame>> {
        let sent = self.next(packet);
        self.from.send(&sent);
        self.wait_for_router();
        let is_copy = |frame: &Frame| frame.packet().is_some_and(|seen| seen.payload == sent.payload);
        let drain = |tap: &Tap| {
            let frames = std::iter::from_fn(|| tap.next(Duration::ZERO));
            frames.filter(is_copy).collect()
        };
        self.exits.iter().map(drain).collect()
    }

    /// Sends a packet that must leave through the first exit; returns the packet that left.
    ///
    /// # Panics
    /// If no packet leaves within five seconds.
    #[track_caller]
    pub fn pass(&self, packet: &Packet) -> Packet {
        self.try_pass(packet).unwrap_or_else(|| panic!("the packet does not leave: {packet:?}"))
    }

    /// Sends a packet; returns the packet that leaves through the first exit within five seconds.
    #[track_caller]
    pub fn try_pass(&self, packet: &Packet) -> Option<Packet> {
        let sent = self.next(packet);
        self.from.send(&sent);
        self.exits[0].capture_packet(PATIENCE, |seen| seen.payload == sent.payload)
    }

    /// Sends a packet through a router that other traffic floods; returns the exit and the packet.
    #[track_caller]
    pub fn leaves(&self, packet: &Packet) -> (usize, Packet) {
        let sent = self.next(packet);
        self.from.send(&sent);
        let is_copy = |seen: &Packet| seen.payload == sent.payload;
        let seen = wait_for(PATIENCE, || {
            let mut seen = self.exits.iter().map(|tap| tap.capture_packet(Duration::ZERO, is_copy));
            seen.by_ref().enumerate().find_map(|(exit, seen)| Some((exit, seen?)))
        });
        seen.unwrap_or_else(|| panic!("the packet does not leave: {sent:?}"))
    }

    /// Whether exactly one copy of a packet leaves through the first exit.
    pub fn passes(&self, packet: &Packet) -> bool {
        self.send(packet)[0].len() == 1
    }

    /// Sends packets until one is fast; returns how long that took.
    ///
    /// # Panics
    /// If none is fast within thirty seconds.
    #[track_caller]
    pub fn teach(&self, shuntd: &Shuntd, packet: &Packet) -> Duration {
        self.teach_via(shuntd, packet, 0)
    }

    /// Like [`Stage::teach`], for packets that leave through another exit.
    ///
    /// # Panics
    /// If none is fast within thirty seconds.
    #[track_caller]
    pub fn teach_via(&self, shuntd: &Shuntd, packet: &Packet, exit: usize) -> Duration {
        let since = Instant::now();
        let fast = wait_for(LEARNING, || {
            let before = shuntd.status().packets.fast;
            let left = self.send(packet)[exit].len();
            (shuntd.status().packets.fast > before && left == 1).then_some(())
        });
        assert!(
            fast.is_some(),
            "the flow never becomes fast: {packet:?}: {:#?} {:#?}",
            shuntd.status(),
            shuntd.flows()
        );
        since.elapsed()
    }

    /// Asserts that a change, made just before, takes effect within [`REACTION`]: sends packets until 40 in a row leave
    /// as `expected` says, and prints when the last one left otherwise.
    ///
    /// # Panics
    /// If a packet that is sent later leaves otherwise.
    #[track_caller]
    pub fn react(&self, change: &str, packet: &Packet, expected: impl Fn(&[Vec<Frame>]) -> bool) {
        self.react_within(REACTION, change, packet, expected);
    }

    /// Like [`Stage::react`], for a change that the kernel does not announce, so that it takes effect at the next
    /// proof.
    ///
    /// # Panics
    /// If a packet that is sent later leaves otherwise.
    #[track_caller]
    pub fn react_by_proof(&self, change: &str, packet: &Packet, expected: impl Fn(&[Vec<Frame>]) -> bool) {
        self.react_within(NEXT_PROOF + REACTION, change, packet, expected);
    }

    /// Like [`Stage::react`] without a claim about the time: the change must have taken effect after thirty seconds.
    ///
    /// # Panics
    /// If a packet that is sent later leaves otherwise.
    #[track_caller]
    pub fn settle(&self, change: &str, packet: &Packet, expected: impl Fn(&[Vec<Frame>]) -> bool) {
        self.react_within(LEARNING, change, packet, expected);
    }

    #[track_caller]
    fn react_within(
        &self,
        bound: Duration,
        change: &str,
        packet: &Packet,
        expected: impl Fn(&[Vec<Frame>]) -> bool,
    ) {
        let since = Instant::now();
        let mut wrong_until = Duration::ZERO;
        let (mut good, mut wrong) = (0, 0);
        while good < ENOUGH {
            let left = self.send(packet);
            if expected(&left) {
                good += 1;
            } else {
                (good, wrong) = (0, wrong + 1);
                wrong_until = since.elapsed();
                assert!(wrong_until < bound, "{wrong_until:?} after {change}, a packet leaves as {left:#?}");
            }
        }
        eprintln!("reaction to {change}: {wrong} packets, {wrong_until:?}");
    }

    /// Sends 40 packets, all of which must take the slow path and leave as `expected` says.
    ///
    /// # Panics
    /// If one leaves otherwise, or if one is fast.
    #[track_caller]
    pub fn never_fast(&self, shuntd: &Shuntd, packet: &Packet, expected: impl Fn(&[Vec<Frame>]) -> bool) {
        let before = shuntd.status().packets.fast;
        for _ in 0..ENOUGH {
            let left = self.send(packet);
            assert!(expected(&left), "{left:#?}");
        }
        assert_eq!(shuntd.status().packets.fast, before, "{:#?}", shuntd.flows());
    }

    /// Sends an echo request to the router and waits for the reply, which comes after everything sent before.
    #[track_caller]
    fn wait_for_router(&self) {
        self.number.set(self.number.get().wrapping_add(1));
        let number = self.number.get().to_be_bytes();
        let mut echo = [&[8, 0, 0, 0][..], &number, b"barrier"].concat();
        let sum = !shunt_wire::ones_complement_sum(&echo);
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        self.from.send(&self.echo.clone().payload(echo));
        let answer = self.from.capture_packet(PATIENCE, |seen| {
            seen.protocol() == Some(ICMP) && seen.payload.first() == Some(&0) && seen.payload[4..6] == number
        });
        assert!(answer.is_some(), "the router does not answer an echo request");
    }
}

/// Whether nothing leaves.
#[must_use]
pub fn nothing_leaves(left: &[Vec<Frame>]) -> bool {
    left.iter().all(Vec::is_empty)
}

/// Checks that one frame leaves through this exit, that `expected` holds for its packet, and that no frame leaves
/// through another exit.
pub fn leaves_as(exit: usize, expected: impl Fn(&Packet) -> bool) -> impl Fn(&[Vec<Frame>]) -> bool {
    move |left| {
        left.iter().enumerate().all(|(n, frames)| match &frames[..] {
            [] => n != exit,
            [frame] => n == exit && frame.packet().is_some_and(|packet| expected(&packet)),
            _ => false,
        })
    }
}

/// Checks that one frame leaves through this exit, and none by another.
pub fn leaves_by(exit: usize) -> impl Fn(&[Vec<Frame>]) -> bool {
    leaves_as(exit, |_| true)
}
