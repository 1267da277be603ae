//! Packets that a test run cannot show: tags in metadata, and aggregates. Frames come in at `i1` and leave at `o1`.

use crate::{
    forwarded::retaggings,
    rig::{Pair, Rig, pairs, with_rig},
};
use shunt_bpf::abi::FLOW_XDP;
use shunt_testkit::Tap;
use shunt_wire::{Checksum, Packet, Transport};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// Brings the links up and opens both outer ends.
fn taps(rig: &Rig<'_>) -> (Tap, Tap) {
    for link in ["i0", "i1", "o0", "o1"] {
        rig.ns.run(&format!("ip link set {link} up"));
    }
    (Tap::open(rig.ns, "i1"), Tap::open(rig.ns, "o1"))
}

#[test]
fn tags_are_kept_added_removed_and_changed_by_tc() {
    with_rig(|rig| {
        let (near, far) = taps(rig);
        for pair in pairs() {
            for (number, (from, to)) in retaggings().into_iter().enumerate() {
                let pair = pair.retagged(number, &from, &to);
                rig.learn_as(&pair, |entry| entry.flow.flags &= !FLOW_XDP);
                near.send(&pair.before);
                let frame = far.next(PATIENCE).unwrap();
                assert_eq!(frame.bytes, pair.after.to_bytes(), "{from:?} to {to:?}");
            }
        }
    });
}

/// Three consecutive segments of one sender.
fn segments(pair: &Pair) -> Vec<Pair> {
    let segment = |n: u32| {
        pair.map(|packet| {
            let mut packet = packet.payload(vec![0x5a; 1000]).with_id(n as u16);
            if let Transport::Tcp(tcp) = &mut packet.transport {
                tcp.sequence = 1000 * n;
            }
            packet
        })
    };
    (0..3).map(segment).collect()
}

#[test]
fn a_gro_aggregate_keeps_a_right_checksum_on_a_port_whose_frames_are_finished() {
    with_rig(|rig| {
        // GRO holds segments back to merge them, unless the sender segments in hardware.
        rig.ns.run("ethtool -K i1 tso off gso off");
        rig.ns.run("ethtool -K i0 gro on");
        rig.ns.run("echo 50000000 > /sys/class/net/i0/gro_flush_timeout");
        rig.ns.run("ethtool -K o0 tso on");
        let (near, far) = taps(rig);
        for pair in pairs().into_iter().filter(|pair| pair.before.tcp().is_some()) {
            rig.learn_as(&pair, |entry| entry.flow.flags &= !FLOW_XDP);
            let segments = segments(&pair);
            for segment in &segments {
                near.send(&segment.before);
            }
            let frame = far.next(PATIENCE).unwrap();
            assert!(frame.unfinished, "GRO did not merge the segments");
            let packet = frame.packet().unwrap();
            let whole = segments[0].after.clone().payload(vec![0x5a; packet.payload.len()]);
            assert!(packet.payload.len() > 1000);
            assert_eq!(frame.bytes, unfinished(&whole).to_bytes());
            far.drain();
        }
    });
}

/// The packet with the sum of the pseudo header in place of its checksum.
pub(crate) fn unfinished(packet: &Packet) -> Packet {
    let frame = packet.to_bytes();
    let l3 = 14 + 4 * packet.ethernet.tags.len();
    let (addresses, l4) = match packet.ipv4() {
        Some(_) => (l3 + 12..l3 + 20, l3 + 20),
        None => (l3 + 8..l3 + 40, l3 + 40),
    };
    let sum = shunt_wire::Sum::new()
        .bytes(&frame[addresses])
        .word((frame.len() - l4) as u16)
        .word(packet.protocol().unwrap().into());
    packet.clone().with_l4_checksum(Checksum::Value(sum.folded()))
}
