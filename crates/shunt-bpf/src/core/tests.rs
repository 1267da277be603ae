//! Tests the packet core against shunt-wire, which was written from the RFCs and shares no code with the core.

mod checksum;
mod decide;
mod ends;
mod parse;
mod rewrite;

use super::*;
use crate::abi::Reason;
use shunt_wire::{Packet as Frame, Tag, Tcp};
use std::net::SocketAddr;

const IFINDEX: u32 = 7;

/// A port is reported once in a while. A report of long ago must not look like one of a moment ago when the clock has
/// wrapped.
#[test]
fn a_time_long_past_is_not_taken_for_a_recent_one() {
    for now in [5_u32, 1000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
        let ago = |ticks: u32| now.wrapping_sub(ticks);
        for (then, recent) in
            [(0, true), (99, true), (100, false), (1 << 31, false), ((1 << 31) + 1, false), (u32::MAX, false)]
        {
            assert_eq!(is_within(ago(then), now, 100), recent, "{then} ticks before {now}");
        }
    }
}

fn reason(number: usize) -> &'static str {
    Reason::numbered(number).map_or("ok", |reason| reason.name)
}

/// `ok` if a frame can be parsed, or else the name of the reason.
fn parsed(frame: &[u8]) -> &'static str {
    parse(frame, IFINDEX).map_or_else(reason, |_| "ok")
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// UDP and TCP over both families, untagged.
fn plain() -> [Frame; 4] {
    let v4 = (addr("192.168.1.2:5001"), addr("198.18.0.2:443"));
    let v6 = (addr("[fd00:1::2]:5001"), addr("[fd00:2::2]:443"));
    [
        Frame::udp_between(v4.0, v4.1),
        Frame::tcp_between(v4.0, v4.1, Tcp::ACK),
        Frame::udp_between(v6.0, v6.1),
        Frame::tcp_between(v6.0, v6.1, Tcp::ACK),
    ]
    .map(|frame| frame.payload(*b"some payload of odd length"))
}

/// No tag, one and two tags of each kind, priority tags, and tags with all bits in use.
fn taggings() -> Vec<Vec<Tag>> {
    let one = |tag| vec![tag];
    vec![
        vec![],
        one(Tag::vlan(10)),
        one(Tag::service(4095)),
        one(Tag { priority: 5, drop_eligible: true, ..Tag::vlan(10) }),
        one(Tag { priority: 7, ..Tag::vlan(0) }),
        vec![Tag::vlan(10), Tag::vlan(20)],
        vec![
            Tag { priority: 3, ..Tag::service(10) },
            Tag { priority: 6, drop_eligible: true, ..Tag::vlan(20) },
        ],
        vec![Tag::vlan(10), Tag::service(20)],
        vec![Tag::service(10), Tag { priority: 1, ..Tag::service(0) }],
    ]
}
