//! Packets in sessions of PPPoE: XDP adds and removes their headers, and leaves every other frame to Linux.

use crate::rig::{REPROVE, Rig, pairs, with_rig};
use shunt_bpf::{
    Entry, Key,
    abi::{self, Session, SessionKey},
};
use shunt_traffic::testrun::{XDP_PASS, XDP_REDIRECT};
use shunt_wire::{Ethernet, Mac, Packet, Tag, encap};
use std::time::Duration;

const NUMBER: u16 = 0x1234;
const VLAN: Tag = Tag::vlan(7);
const PEER: Mac = Mac([2, 0, 0, 0, 0xc, 1]);
const OURS: Mac = Mac([2, 0, 0, 0, 0xc, 2]);
/// Where the header of PPPoE begins.
const PPPOE_AT: usize = encap::header_bytes(0);

/// A ppp port, whose packets leave by an Ethernet port in a session.
#[derive(Clone, Copy)]
struct Ppp {
    ifindex: u32,
    below: u32,
    tag: Option<Tag>,
}

impl Ppp {
    /// A session that was seen just now.
    fn on(rig: &mut Rig<'_>, name: &str, below: u32, tag: Option<Tag>) -> Self {
        rig.ns.run(&format!("ip link add {name} type veth peer name {name}-peer"));
        let ifindex = rig.ns.ifindex(name);
        rig.plane.attach(ifindex, abi::PORT_NO_L2 | abi::PORT_XDP_OUT, true).unwrap();
        let ppp = Self { ifindex, below, tag };
        ppp.see(rig, NUMBER, Duration::ZERO);
        ppp
    }

    /// Writes what egress notes of a session.
    fn see(&self, rig: &Rig<'_>, number: u16, ago: Duration) {
        let ethernet = self.ethernet(PEER, OURS);
        let known = &encap::session_header(&ethernet, number, &[0x45]).unwrap()[..];
        let known = &known[..known.len() - 4];
        let mut header = [0; 22];
        header[..known.len()].copy_from_slice(known);
        let tags = self.tag.iter().count() as u8;
        let session = Session { header, tags, below: self.below, ..Session::default() };
        let tag = self.tag.map_or(0, |tag| tag.key_bits());
        let key = SessionKey { below: self.below, tag, session_be: number.to_be_bytes() };
        rig.plane.put_session(self.ifindex, session, &key, ago).unwrap();
    }

    fn ethernet(&self, destination: Mac, source: Mac) -> Ethernet {
        Ethernet { destination, source, tags: self.tag.into_iter().collect() }
    }

    /// The frame of the session with this packet, which comes in or leaves.
    fn frame(&self, packet: &Packet, is_in: bool) -> Vec<u8> {
        let l3 = l3_of(packet);
        let (to, from) = if is_in { (OURS, PEER) } else { (PEER, OURS) };
        [encap::session_header(&self.ethernet(to, from), NUMBER, &l3).unwrap(), l3].concat()
    }

    /// Turns a flow into one of packets that come in by the port.
    fn comes_in(&self, rig: &Rig<'_>, flow: (Key, Entry)) -> (Key, Entry) {
        let ifindex = self.ifindex;
        let (key, mut entry) = flow;
        entry.flow.in_slot = rig.plane.slot(ifindex).unwrap();
        entry.flow.in_dmac = [0; 6];
        let key = match key {
            Key::V4(key) => Key::V4(abi::Key4 { ifindex, ..key }),
            Key::V6(key) => Key::V6(abi::Key6 { ifindex, ..key }),
        };
        (key, entry)
    }

    /// Turns a flow into one of packets that leave by the port.
    fn leaves(&self, rig: &Rig<'_>, flow: (Key, Entry)) -> (Key, Entry) {
        let (key, mut entry) = flow;
        entry.flow.out_slot = rig.plane.slot(self.ifindex).unwrap();
        entry.flow.out_tags = abi::NO_L2 as u8;
        entry.flow.l2 = [0; 22];
        (key, entry)
    }
}

fn l3_of(packet: &Packet) -> Vec<u8> {
    packet.to_bytes().split_off(encap::header_bytes(packet.ethernet.tags.len()))
}

fn put(rig: &Rig<'_>, (key, entry): &(Key, Entry)) {
    rig.plane.put_flow(key, entry).unwrap();
}

#[track_caller]
fn assert_forwarded(rig: &Rig<'_>, frame: &[u8], expected: &[u8]) {
    let outcome = rig.xdp(frame);
    assert_eq!((outcome.verdict, &outcome.frame[..]), (XDP_REDIRECT, expected));
}

#[track_caller]
fn assert_left_to_linux(rig: &Rig<'_>, frame: &[u8], why: &str) {
    let outcome = rig.xdp(frame);
    assert_eq!((outcome.verdict, &outcome.frame[..]), (XDP_PASS, frame), "{why}");
}

#[test]
fn headers_are_removed_and_added() {
    for tag in [None, Some(VLAN)] {
        with_rig(|rig| {
            let ppp = Ppp::on(rig, "p0", rig.port, tag);
            let out = Ppp::on(rig, "p1", rig.out, tag);
            for (number, pair) in pairs().iter().enumerate() {
                let pair = |step: usize, from: &[Tag]| pair.retagged(number + 10 * step, from, &[]);
                let removed = pair(0, &[]);
                put(rig, &ppp.comes_in(rig, rig.learned(&removed)));
                assert_forwarded(rig, &ppp.frame(&removed.before, true), &removed.after.to_bytes());
                let passed_on = pair(1, &[]);
                put(rig, &out.leaves(rig, ppp.comes_in(rig, rig.learned(&passed_on))));
                assert_forwarded(
                    rig,
                    &ppp.frame(&passed_on.before, true),
                    &out.frame(&passed_on.after, false),
                );
                for added in [pair(2, &[]), pair(3, &[VLAN])] {
                    put(rig, &out.leaves(rig, rig.learned(&added)));
                    assert_forwarded(rig, &added.before.to_bytes(), &out.frame(&added.after, false));
                }
            }
        });
    }
}

/// A flow from a session to the port `o0`, with its frame and what leaves.
struct Arriving {
    ppp: Ppp,
    frame: Vec<u8>,
    left: Vec<u8>,
}

impl Arriving {
    fn on(rig: &mut Rig<'_>) -> Self {
        let ppp = Ppp::on(rig, "p0", rig.port, None);
        let [pair, ..] = pairs();
        put(rig, &ppp.comes_in(rig, rig.learned(&pair)));
        let frame = ppp.frame(&pair.before, true);
        assert_forwarded(rig, &frame, &pair.after.to_bytes());
        Self { ppp, frame, left: pair.after.to_bytes() }
    }
}

#[test]
fn padding_behind_a_packet_is_removed() {
    with_rig(|rig| {
        let Arriving { frame, left, .. } = Arriving::on(rig);
        assert_forwarded(rig, &[&frame[..], &[0; 9]].concat(), &left);
    });
}

#[test]
fn frames_that_are_not_of_the_session_are_left_to_linux() {
    with_rig(|rig| {
        let Arriving { frame, left, .. } = Arriving::on(rig);
        let header = PPPOE_AT + encap::PPPOE_BYTES;
        for at in 0..header {
            for bit in 0..8 {
                let mut wrong = frame.clone();
                wrong[at] ^= 1 << bit;
                assert_left_to_linux(rig, &wrong, &format!("byte {at}, bit {bit}"));
            }
        }
        // Shorter frames than these are none.
        for bytes in PPPOE_AT..frame.len() {
            assert_left_to_linux(rig, &frame[..bytes], &format!("{bytes} bytes"));
        }
        let tagged = [&frame[..12], &[0x81, 0, 0, 7][..], &frame[12..]].concat();
        assert_left_to_linux(rig, &tagged, "in a VLAN");
        let twice = [&frame[..12], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 7][..], &frame[12..]].concat();
        assert_left_to_linux(rig, &twice, "with two tags");
        assert_forwarded(rig, &frame, &left);
    });
}

#[test]
fn a_session_is_not_used_once_it_ends_or_changes() {
    with_rig(|rig| {
        let Arriving { ppp, frame, left } = Arriving::on(rig);
        ppp.see(rig, NUMBER, 3 * REPROVE);
        assert_left_to_linux(rig, &frame, "no packet was seen for long");
        ppp.see(rig, NUMBER, Duration::ZERO);
        assert_forwarded(rig, &frame, &left);
        ppp.see(rig, NUMBER + 1, Duration::ZERO);
        assert_left_to_linux(rig, &frame, "the session has another number");
        ppp.see(rig, NUMBER, Duration::ZERO);
        rig.plane.set_flags(ppp.ifindex, abi::PORT_NO_L2).unwrap();
        assert_left_to_linux(rig, &frame, "XDP may not send to the ppp port");
        rig.plane.set_flags(ppp.ifindex, abi::PORT_NO_L2 | abi::PORT_XDP_OUT).unwrap();
        assert_forwarded(rig, &frame, &left);
        rig.plane.detach(ppp.ifindex).unwrap();
        assert_left_to_linux(rig, &frame, "the ppp port is gone");
    });
}

#[test]
fn packets_that_do_not_fit_or_have_no_way_out_are_left_to_linux() {
    with_rig(|rig| {
        let out = Ppp::on(rig, "p1", rig.out, None);
        let [pair, ..] = pairs();
        put(rig, &out.leaves(rig, rig.learned(&pair)));
        let frame = pair.before.to_bytes();
        let expected = out.frame(&pair.after, false);
        assert_forwarded(rig, &frame, &expected);
        rig.plane.set_flags(rig.out, 0).unwrap();
        assert_left_to_linux(rig, &frame, "XDP may not send to the Ethernet port");
        rig.plane.set_flags(rig.out, abi::PORT_XDP_OUT).unwrap();
        let longest = l3_of(&pair.before).len() + encap::PPPOE_BYTES;
        rig.ns.run(&format!("ip link set o0 mtu {}", longest - 1));
        assert_left_to_linux(rig, &frame, "the frame is longer than the MTU");
        rig.ns.run(&format!("ip link set o0 mtu {longest}"));
        assert_forwarded(rig, &frame, &expected);
        rig.plane.detach(rig.out).unwrap();
        assert_left_to_linux(rig, &frame, "the Ethernet port is gone");
    });
}
