//! One flow through a router, packet by packet, and how soon it is as Linux now wants it.

use shunt_testkit::{Frame, Host, Shuntd, Tap, Topology, silent, wait_for};
use shunt_wire::{Packet, Transport};
use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// How long an action from before a change may still be used. Generous: the machine may be busy with other tests.
pub(crate) const BOUND: Duration = Duration::from_secs(1);
/// A flow is proved every two seconds, and a proof may take half a second.
const NEXT_PROOF: Duration = Duration::from_millis(2500);
/// How long a flow may take to be fast again: refused tuples are left in peace for a second.
const AGAIN: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(5);
/// So many packets in a row must be as wanted.
const ENOUGH: u32 = 40;
const ICMP: u8 = 1;

/// A router with this ruleset and nobody who says anything by himself, and a flow from the LAN to the WAN.
#[track_caller]
pub(crate) fn start(ruleset: &str) -> (Topology, Stage, Packet) {
    let lab = silent(Topology::two_hosts_and_a_router(), ruleset);
    let (stage, packet) = Stage::from_lan(&lab);
    (lab, stage, packet)
}

/// Packets go in at one host, and are seen where they leave.
pub(crate) struct Stage {
    pub(crate) from: Tap,
    exits: Vec<Tap>,
    echo: Packet,
    number: Cell<u16>,
}

impl Stage {
    /// From one host to these others. The first is where packets leave before anything changes.
    #[track_caller]
    pub(crate) fn new(from: &Host, exits: &[&Host]) -> Self {
        let echo = Packet::between(from.v4.into(), from.gateway_v4.into(), Transport::Other(ICMP));
        Self {
            from: from.tap(),
            exits: exits.iter().map(|host| host.tap()).collect(),
            echo: echo.macs(from.mac, from.gateway_mac),
            number: Cell::new(0),
        }
    }

    /// From the LAN to the WAN, and a packet of a flow that goes there.
    #[track_caller]
    pub(crate) fn from_lan(lab: &Topology) -> (Self, Packet) {
        let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan");
        (Self::new(lab.lan(), &[lab.wan()]), packet)
    }

    /// A packet of the flow that no other is like.
    fn next(&self, packet: &Packet) -> Packet {
        self.number.set(self.number.get().wrapping_add(1));
        let mut payload = packet.payload.clone();
        payload.truncate(payload.len().saturating_sub(8));
        payload.extend(format!("{:08}", self.number.get()).bytes());
        packet.clone().payload(payload).with_id(self.number.get())
    }

    /// Sends a packet of the flow; what leaves, by exit. An echo of the router itself tells when it has dealt with it.
    #[track_caller]
    pub(crate) fn send(&self, packet: &Packet) -> Vec<Vec<Frame>> {
        let sent = self.next(packet);
        self.from.send(&sent);
        self.wait_for_router();
        let is_it = |frame: &Frame| frame.packet().is_some_and(|seen| seen.payload == sent.payload);
        let drain = |tap: &Tap| {
            let frames = std::iter::from_fn(|| tap.next(Duration::ZERO));
            frames.filter(is_it).collect()
        };
        self.exits.iter().map(drain).collect()
    }

    /// Sends a packet that must leave by the first exit; the frame.
    #[track_caller]
    pub(crate) fn pass(&self, packet: &Packet) -> Packet {
        let sent = self.next(packet);
        self.from.send(&sent);
        let seen = self.exits[0].capture_packet(PATIENCE, |seen| seen.payload == sent.payload);
        seen.unwrap_or_else(|| panic!("it does not leave: {sent:?}"))
    }

    /// Sends a packet that must leave, however long that takes on a router that is flooded; by which exit, and the packet.
    #[track_caller]
    pub(crate) fn leaves(&self, packet: &Packet) -> (usize, Packet) {
        let sent = self.next(packet);
        self.from.send(&sent);
        let is_it = |seen: &Packet| seen.payload == sent.payload;
        let seen = wait_for(PATIENCE, || {
            let mut seen = self.exits.iter().map(|tap| tap.capture_packet(Duration::ZERO, is_it));
            seen.by_ref().enumerate().find_map(|(exit, seen)| Some((exit, seen?)))
        });
        seen.unwrap_or_else(|| panic!("it does not leave: {sent:?}"))
    }

    /// Whether a packet passes by the first exit.
    pub(crate) fn passes(&self, packet: &Packet) -> bool {
        self.send(packet)[0].len() == 1
    }

    /// Sends packets until they are fast; how long that took.
    #[track_caller]
    pub(crate) fn teach(&self, shuntd: &Shuntd, packet: &Packet) -> Duration {
        self.teach_via(shuntd, packet, 0)
    }

    /// The same for packets that leave by another exit. One of them was fast and left once.
    #[track_caller]
    pub(crate) fn teach_via(&self, shuntd: &Shuntd, packet: &Packet, exit: usize) -> Duration {
        let since = Instant::now();
        let fast = wait_for(AGAIN, || {
            let before = shuntd.status().packets.fast;
            let left = self.send(packet)[exit].len();
            (shuntd.status().packets.fast > before && left == 1).then_some(())
        });
        assert!(fast.is_some(), "it is never fast: {packet:?}: {:#?} {:#?}", shuntd.status(), shuntd.flows());
        since.elapsed()
    }

    /// After a change has been made: sends packets until they leave as `wanted` says, and some more.
    ///
    /// Prints after how long the last one left otherwise.
    #[track_caller]
    pub(crate) fn react(&self, change: &str, packet: &Packet, wanted: impl Fn(&[Vec<Frame>]) -> bool) {
        self.react_within(BOUND, change, packet, wanted);
    }

    /// The same for a change that nobody tells us of.
    #[track_caller]
    pub(crate) fn react_by_proof(
        &self,
        change: &str,
        packet: &Packet,
        wanted: impl Fn(&[Vec<Frame>]) -> bool,
    ) {
        self.react_within(NEXT_PROOF + BOUND, change, packet, wanted);
    }

    #[track_caller]
    fn react_within(
        &self,
        bound: Duration,
        change: &str,
        packet: &Packet,
        wanted: impl Fn(&[Vec<Frame>]) -> bool,
    ) {
        let since = Instant::now();
        let mut wrong_until = Duration::ZERO;
        let (mut good, mut wrong) = (0, 0);
        while good < ENOUGH {
            let left = self.send(packet);
            if wanted(&left) {
                good += 1;
            } else {
                (good, wrong) = (0, wrong + 1);
                wrong_until = since.elapsed();
                assert!(wrong_until < bound, "{change}: after {wrong_until:?} there still leaves {left:#?}");
            }
        }
        eprintln!("reaction to {change}: {wrong} packets, {wrong_until:?}");
    }

    /// Sends packets that all leave as `wanted` says, and by Linux.
    #[track_caller]
    pub(crate) fn never_fast(
        &self,
        shuntd: &Shuntd,
        packet: &Packet,
        wanted: impl Fn(&[Vec<Frame>]) -> bool,
    ) {
        let before = shuntd.status().packets.fast;
        for _ in 0..ENOUGH {
            let left = self.send(packet);
            assert!(wanted(&left), "{left:#?}");
        }
        assert_eq!(shuntd.status().packets.fast, before, "{:#?}", shuntd.flows());
    }

    /// Asks the router itself for an echo, and waits for it.
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
        assert!(answer.is_some(), "the router does not answer");
    }
}

/// Nothing leaves.
pub(crate) fn nothing(left: &[Vec<Frame>]) -> bool {
    left.iter().all(Vec::is_empty)
}

/// One frame leaves by this exit, for which `wanted` holds, and none by another.
pub(crate) fn one(exit: usize, wanted: impl Fn(&Packet) -> bool) -> impl Fn(&[Vec<Frame>]) -> bool {
    move |left| {
        left.iter().enumerate().all(|(n, frames)| match &frames[..] {
            [] => n != exit,
            [frame] => n == exit && frame.packet().is_some_and(|packet| wanted(&packet)),
            _ => false,
        })
    }
}

/// One frame leaves by this exit.
pub(crate) fn by(exit: usize) -> impl Fn(&[Vec<Frame>]) -> bool {
    one(exit, |_| true)
}
