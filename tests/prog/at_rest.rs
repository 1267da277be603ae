//! The program on ingress of a data plane that rests: without flows, it does what the usual one does.

use crate::rig::{Rig, pairs, with_rig};
use shunt_bpf::abi::{self, Counters};
use shunt_traffic::testrun::TC_NEXT;
use shunt_wire::{Extension, Mac, Network, Packet, Tag, Tcp, Transport};

/// Packets of one tuple: usual ones, and those that only shunt_ingress_general() handles.
fn variants(packet: &Packet) -> Vec<Vec<u8>> {
    let mut packets = vec![
        packet.clone(),
        packet.clone().with_hop_limit(1),
        packet.clone().macs(packet.ethernet.source, Mac([0xff; 6])),
        packet.clone().tagged(Tag::vlan(7)),
    ];
    let mut with_options = packet.clone();
    match &mut with_options.network {
        Network::V4(ip) => ip.options = vec![1, 1, 1, 0],
        Network::V6(ip) => ip.extensions.push(Extension { kind: 60, body: vec![0, 1, 4, 0, 0, 0, 0] }),
        Network::Other(_) => {}
    }
    packets.push(with_options);
    if let Transport::Tcp(_) = packet.transport {
        for flags in [Tcp::SYN, Tcp::FIN | Tcp::ACK, Tcp::RST, 0] {
            let mut segment = packet.clone();
            if let Transport::Tcp(tcp) = &mut segment.transport {
                tcp.flags = flags;
            }
            packets.push(segment);
        }
    }
    let mut frames: Vec<Vec<u8>> = packets.iter().map(Packet::to_bytes).collect();
    let whole = packet.to_bytes();
    frames.push(whole[..whole.len() - 30].to_vec());
    frames
}

/// How a packet changes the count of its tuple.
#[derive(Debug, PartialEq, Eq)]
enum Count {
    Same,
    OneMore,
    Restarted,
}

/// What the program does with a frame: the counters, and the count of the tuple, which is not 0 before.
#[track_caller]
fn done(rig: &Rig<'_>, packet: &Packet, frame: &[u8]) -> (Counters, Count) {
    let (_, key) = shunt_bpf::core::parse(&packet.to_bytes(), rig.port).unwrap();
    let seen = || rig.plane.sighting(&key).unwrap().pkts;
    let before = seen();
    let (outcome, counted) = rig.counted(|| rig.tc(frame));
    assert_eq!((outcome.verdict, &outcome.frame[..]), (TC_NEXT, frame));
    let count = match seen() {
        0 => Count::Restarted,
        after if after == before => Count::Same,
        after if after == before + 1 => Count::OneMore,
        after => panic!("{before} became {after}: {packet:?}"),
    };
    (counted, count)
}

#[test]
fn without_flows_it_counts_what_the_usual_program_counts() {
    with_rig(|rig| {
        rig.plane.control().set_learning(1_000_000, 1_000_000, abi::CONTROL_LEARN);
        for pair in pairs() {
            let mut counts = Vec::new();
            for frame in variants(&pair.before) {
                let [usual, at_rest] = [false, true].map(|at_rest| {
                    rig.rest(at_rest);
                    rig.tc(&pair.before.to_bytes());
                    done(rig, &pair.before, &frame)
                });
                assert_eq!(usual, at_rest, "{:?}: {frame:?}", pair.before);
                assert_eq!(usual.0.slow_pkts, 1, "{frame:?}");
                counts.push(usual.1);
            }
            assert!(counts.contains(&Count::OneMore) && counts.contains(&Count::Same), "{counts:?}");
        }
    });
}
