//! Flows end with their connections, and their counts are kept until then.

use crate::rig::{EPOCH, Pair, Rig, pairs, reason, with_rig};
use shunt_bpf::{
    Key,
    abi::{EPOCH_RETIRED, FLOW_STATIC, Tuple},
};
use shunt_wire::{Packet, Tag, Transport};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Arguments of conntrack(8) for the connection of a packet and its translation.
fn connection(pair: &Pair) -> (String, String) {
    let (before, after) = (&pair.before, &pair.after);
    let proto = if matches!(before.transport, Transport::Tcp(_)) { "tcp" } else { "udp" };
    let (src, dst) = (before.source().unwrap(), before.destination().unwrap());
    let translated = after.source().unwrap();
    let named =
        format!("-p {proto} -s {} -d {} --sport {} --dport {}", src.ip(), dst.ip(), src.port(), dst.port());
    let state = if proto == "tcp" { "--state ESTABLISHED" } else { "" };
    let reply = format!(
        "-r {} -q {} --reply-port-src {} --reply-port-dst {} -t 100 -u SEEN_REPLY,ASSURED {state}",
        dst.ip(),
        translated.ip(),
        dst.port(),
        translated.port()
    );
    (named, reply)
}

/// Adds a flow for the reply direction of a pair.
fn learn_back(rig: &Rig<'_>, pair: &Pair) -> Key {
    let turned = |packet: &Packet| {
        let (src, dst) = (packet.source().unwrap(), packet.destination().unwrap());
        packet.clone().with_source(dst).with_destination(src)
    };
    let back = Pair { before: turned(&pair.after), after: turned(&pair.before) };
    let (mut key, entry) = rig.learned(&back);
    match &mut key {
        Key::V4(key) => key.ifindex = rig.out,
        Key::V6(key) => key.ifindex = rig.out,
    }
    rig.plane.put_flow(&key, &entry).unwrap();
    key
}

fn insert(rig: &Rig<'_>, pair: &Pair) {
    let (named, reply) = connection(pair);
    rig.ns.run(&format!("conntrack -I {named} {reply}"));
}

fn delete(rig: &Rig<'_>, pair: &Pair) {
    rig.ns.run(&format!("conntrack -D {}", connection(pair).0));
}

fn tuple(packet: &Packet) -> Tuple {
    let (src, dst) = (packet.source().unwrap(), packet.destination().unwrap());
    let bytes = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        std::net::IpAddr::V6(v6) => v6.octets(),
    };
    Tuple {
        src_be: bytes(src.ip()),
        dst_be: bytes(dst.ip()),
        sport_be: src.port().to_be_bytes(),
        dport_be: dst.port().to_be_bytes(),
        family: if src.is_ipv4() { 4 } else { 6 },
        l4_proto: packet.protocol().unwrap(),
        _pad: [0; 2],
    }
}

fn past(rig: &Rig<'_>) -> Vec<(Tuple, [u64; 2])> {
    let mut all = Vec::new();
    rig.plane.for_each_expired(|tuple, past| all.push((tuple, [past.pkts, past.bytes]))).unwrap();
    all
}

/// Whether a flow is in use, and otherwise the reason.
fn standing(rig: &Rig<'_>, key: &Key) -> (bool, usize) {
    let flow = rig.flow(key);
    (flow.epoch == EPOCH, usize::from(flow.retired_why().unwrap_or(0)))
}

#[test]
fn both_directions_of_a_connection_that_conntrack_deletes_end() {
    with_rig(|rig| {
        rig.plane.attach_conntrack_filter().unwrap();
        let flows = pairs().map(|pair| (rig.learn(&pair), learn_back(rig, &pair), pair));
        flows.iter().for_each(|(_, _, pair)| insert(rig, pair));
        for (n, (there, back, pair)) in flows.iter().enumerate() {
            assert_eq!((standing(rig, there), standing(rig, back)), ((true, 0), (true, 0)), "{n}");
            delete(rig, pair);
            let gone = (false, reason("conntrack-gone"));
            assert_eq!((standing(rig, there), standing(rig, back)), (gone, gone), "{n}");
            assert_eq!(rig.flow(there).epoch, EPOCH_RETIRED);
        }
    });
}

#[test]
fn all_flows_of_a_tuple_end_with_any_tags_except_static_ones() {
    with_rig(|rig| {
        rig.plane.attach_conntrack_filter().unwrap();
        let [pair, ..] = pairs();
        let tagged = pair.map(|packet| packet.tagged(Tag::vlan(7)));
        let by_hand = pair.map(|packet| packet.tagged(Tag::vlan(8)));
        let keys = [rig.learn(&pair), rig.learn(&tagged)];
        let by_hand = rig.learn_as(&by_hand, |entry| entry.flow.flags |= FLOW_STATIC);
        insert(rig, &pair);
        delete(rig, &pair);
        assert!(keys.iter().all(|key| !standing(rig, key).0));
        assert!(standing(rig, &by_hand).0);
    });
}

#[test]
fn the_counts_of_a_retired_flow_are_kept_until_its_connection_ends() {
    with_rig(|rig| {
        rig.plane.attach_conntrack_filter().unwrap();
        for pair in pairs() {
            insert(rig, &pair);
            for round in 1..=2 {
                let key = rig.learn_as(&pair, |entry| {
                    entry.flow.retire(rig.ago(LONG));
                    (entry.flow.pkts, entry.flow.bytes) = (3, 300);
                    (entry.cold.remote_pkts, entry.cold.remote_bytes) = (0, 0);
                });
                rig.plane.sweep(LONG, false).unwrap();
                assert!(rig.plane.flow(&key).unwrap().is_none());
                let kept = (tuple(&pair.before), [3 * round, 300 * round]);
                assert_eq!(past(rig), [kept]);
            }
            delete(rig, &pair);
            assert_eq!(past(rig), []);
        }
    });
}

#[test]
fn static_flows_and_ended_connections_leave_no_counts() {
    with_rig(|rig| {
        let [ended, by_hand, ..] = pairs();
        for (pair, flags, why) in [(ended, 0, "conntrack-gone"), (by_hand, FLOW_STATIC, "idle")] {
            rig.learn_as(&pair, |entry| {
                entry.flow.retire(rig.ago(LONG));
                (entry.flow.pkts, entry.flow.bytes) = (3, 300);
                entry.flow.group = u16::from_ne_bytes([u8::try_from(reason(why)).unwrap(), 0]);
                entry.flow.flags |= flags;
            });
        }
        rig.plane.sweep(LONG, false).unwrap();
        assert_eq!(past(rig), []);
    });
}
