//! Effects of FIN and RST on flows, by their sequence numbers.

use crate::rig::{EPOCH, Pair, REPROVE, Rig, pairs, with_rig};
use shunt_bpf::{
    Key,
    abi::{EPOCH_RETIRED, Expired},
    attach::Hook,
    core::tcp_position,
};
use shunt_testkit::wait_until;
use shunt_traffic::testrun::{TC_NEXT, TC_REDIRECT, TestRun, XDP_PASS, XDP_REDIRECT};
use shunt_wire::{Packet, Tcp, Transport};
use std::time::Duration;

const MIB: u32 = 1 << 20;
/// The number that each end has acknowledged; the next packet crosses 2^32.
const CLIENT: u32 = u32::MAX;
const SERVER: u32 = 0x7fff_ffff;

fn tcp_pairs() -> impl Iterator<Item = Pair> {
    pairs().into_iter().filter(|pair| pair.before.tcp().is_some())
}

fn frame(packet: &Packet, flags: u8, sequence: u32, acknowledgement: u32) -> Vec<u8> {
    let mut packet = packet.clone();
    if let Transport::Tcp(tcp) = &mut packet.transport {
        (tcp.flags, tcp.sequence, tcp.acknowledgement) = (flags, sequence, acknowledgement);
    }
    packet.to_bytes()
}

/// Both directions of a connection whose ends have acknowledged everything.
fn connection(rig: &Rig<'_>, pair: &Pair) -> (Key, Key) {
    let there = rig.learn_as(pair, |entry| {
        entry.flow.tcp_position = tcp_position(CLIENT, SERVER);
        entry.flow.pkts = 1;
    });
    let (back, mut entry) = rig.back(pair);
    entry.flow.tcp_position = tcp_position(SERVER, CLIENT);
    entry.flow.pkts = 1;
    rig.plane.put_flow(&back, &entry).unwrap();
    (there, back)
}

fn epochs(rig: &Rig<'_>, connection: &(Key, Key)) -> [u32; 2] {
    [rig.flow(&connection.0).epoch, rig.flow(&connection.1).epoch]
}

#[test]
fn a_fin_or_rst_ends_both_directions_unless_it_is_blind() {
    with_rig(|rig| {
        for pair in tcp_pairs() {
            for (flags, ahead, ends) in [
                (Tcp::RST, 0, true),
                (Tcp::RST, MIB, true),
                (Tcp::RST, MIB + 1, false),
                (Tcp::RST, 3 << 30, false),
                (Tcp::RST, 1_u32.wrapping_neg(), false),
                (Tcp::FIN | Tcp::ACK, 0, true),
                (Tcp::FIN | Tcp::ACK, 1_u32.wrapping_neg(), true),
                (Tcp::FIN | Tcp::ACK, 2 * MIB, false),
                // Conntrack checks the sequence number of a SYN itself.
                (Tcp::SYN, 3 << 30, true),
            ] {
                let connection = connection(rig, &pair);
                let packet = frame(&pair.before, flags, CLIENT.wrapping_add(ahead), SERVER);
                assert_eq!(rig.xdp(&packet).verdict, XDP_PASS);
                let outcome = rig.tc(&packet);
                assert_eq!((outcome.verdict, &outcome.frame), (TC_NEXT, &packet));
                let epoch = if ends { EPOCH_RETIRED } else { EPOCH };
                assert_eq!(epochs(rig, &connection), [epoch; 2], "{flags} {ahead:x}");
                let next = rig.tc(&frame(&pair.before, Tcp::ACK, CLIENT, SERVER));
                assert_eq!(next.verdict, if ends { TC_NEXT } else { TC_REDIRECT });
            }
        }
    });
}

#[test]
fn each_packet_of_a_flow_records_its_sequence_numbers() {
    with_rig(|rig| {
        for pair in tcp_pairs() {
            let key = rig.learn(&pair);
            let data = pair.before.payload.len() as u32;
            assert_eq!(rig.xdp(&frame(&pair.before, Tcp::ACK, 1, 2)).verdict, XDP_REDIRECT);
            assert_eq!(rig.flow(&key).tcp_position, tcp_position(1 + data, 2));
            assert_eq!(rig.tc(&frame(&pair.before, Tcp::ACK, 3, 4)).verdict, TC_REDIRECT);
            assert_eq!(rig.flow(&key).tcp_position, tcp_position(3 + data, 4));
            // A packet that Linux gets, too.
            rig.plane.control().move_epoch();
            assert_eq!(rig.tc(&frame(&pair.before, Tcp::ACK, 5, 6)).verdict, TC_NEXT);
            assert_eq!(rig.flow(&key).tcp_position, tcp_position(5 + data, 6));
            rig.plane.control().set_epoch(EPOCH);
        }
    });
}

fn past(rig: &Rig<'_>) -> Vec<Expired> {
    let mut all = Vec::new();
    rig.plane.for_each_expired(|_, past| all.push(past)).unwrap();
    all
}

#[test]
fn sequence_numbers_are_kept_until_a_packet_passes_without_a_flow() {
    with_rig(|rig| {
        for (n, pair) in tcp_pairs().enumerate() {
            connection(rig, &pair);
            wait_until("both flows have left the table", || {
                rig.plane.sweep(Duration::ZERO, false).unwrap();
                past(rig).len() == 2 * (n + 1)
            });
            let known = || past(rig).iter().filter(|past| past.tcp_position != 0).count();
            assert_eq!(known(), 2);
            rig.tc(&frame(&pair.before, Tcp::RST, CLIENT.wrapping_add(2 * MIB), SERVER));
            assert_eq!(known(), 2, "a blind RST must not change the recorded numbers");
            rig.tc(&frame(&pair.before, Tcp::ACK, CLIENT, SERVER));
            assert_eq!(known(), 1);
            let back = TestRun::new(&rig.plane, Hook::Ingress, rig.out).unwrap();
            back.run(&frame(&pair.reply().before, Tcp::ACK, SERVER, CLIENT)).unwrap();
            assert_eq!(known(), 0);
        }
    });
}

#[test]
fn sequence_numbers_of_an_ended_connection_are_not_kept() {
    with_rig(|rig| {
        for (n, pair) in tcp_pairs().enumerate() {
            connection(rig, &pair);
            rig.tc(&frame(&pair.before, Tcp::RST, CLIENT, SERVER));
            wait_until("both flows have left the table", || {
                rig.plane.sweep(REPROVE, false).unwrap();
                past(rig).len() == 2 * (n + 1)
            });
            assert!(past(rig).iter().all(|past| past.tcp_position == 0));
        }
    });
}

#[test]
fn packets_are_counted_beyond_32_bits() {
    with_rig(|rig| {
        let cpus = std::thread::available_parallelism().unwrap().get();
        for pair in pairs() {
            for home_cpu in 0..cpus as u8 {
                let key = rig.learn_as(&pair, |entry| {
                    (entry.flow.pkts, entry.flow.home_cpu) = (u32::MAX, home_cpu);
                });
                assert_eq!(rig.xdp(&pair.before.to_bytes()).verdict, XDP_REDIRECT);
                assert_eq!(rig.tc(&pair.before.to_bytes()).verdict, TC_REDIRECT);
                let entry = rig.plane.flow(&key).unwrap().unwrap();
                assert_eq!(entry.pkts(), (1 << 32) + 1);
                rig.plane.remove_flow(&key).unwrap();
            }
        }
    });
}
