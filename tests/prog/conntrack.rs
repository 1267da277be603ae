//! Flows end with their connections, and what they had counted stays for as long as these live.

use crate::rig::{EPOCH, Pair, Rig, pairs, reason, with_rig};
use shunt_bpf::{
    Key,
    abi::{EPOCH_RETIRED, FLOW_STATIC, Past, Tuple},
};
use shunt_wire::{Packet, Tag, Transport};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// What `conntrack` calls the connection that a packet and its translation begin.
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

/// Puts in a flow for the way back of a pair.
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
        pad: [0; 2],
    }
}

fn past(rig: &Rig<'_>) -> Vec<(Tuple, Past)> {
    let mut all = Vec::new();
    rig.plane.each_past(|tuple, past| all.push((tuple, past))).unwrap();
    all
}

/// Whether a flow is in use, and why not.
fn standing(rig: &Rig<'_>, key: &Key) -> (bool, usize) {
    let flow = rig.flow(key);
    (flow.epoch == EPOCH, usize::from(flow.retired_why))
}

#[test]
fn both_directions_end_when_conntrack_deletes_the_connection_and_no_other_does() {
    with_rig(|rig| {
        rig.plane.end_with_conntrack().unwrap();
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
fn all_flows_of_a_tuple_end_whatever_their_tags_but_static_ones() {
    with_rig(|rig| {
        rig.plane.end_with_conntrack().unwrap();
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
fn what_a_flow_had_counted_is_kept_until_its_connection_ends() {
    with_rig(|rig| {
        rig.plane.end_with_conntrack().unwrap();
        for pair in pairs() {
            insert(rig, &pair);
            for round in 1..=2 {
                let key = rig.learn_as(&pair, |entry| {
                    (entry.flow.epoch, entry.flow.retired_ticks) = (EPOCH_RETIRED, rig.ago(LONG));
                    (entry.flow.pkts, entry.flow.bytes) = (3, 300);
                    (entry.cold.away_pkts, entry.cold.away_bytes) = (0, 0);
                });
                rig.plane.sweep(LONG, false).unwrap();
                assert!(rig.plane.flow(&key).unwrap().is_none());
                let kept = (tuple(&pair.before), Past { pkts: 3 * round, bytes: 300 * round });
                assert_eq!(past(rig), [kept]);
            }
            delete(rig, &pair);
            assert_eq!(past(rig), []);
        }
    });
}

#[test]
fn what_ended_with_its_connection_and_what_was_put_in_by_hand_leaves_no_counts() {
    with_rig(|rig| {
        let [ended, by_hand, ..] = pairs();
        for (pair, flags, why) in [(ended, 0, "conntrack-gone"), (by_hand, FLOW_STATIC, "idle")] {
            rig.learn_as(&pair, |entry| {
                (entry.flow.epoch, entry.flow.retired_ticks) = (EPOCH_RETIRED, rig.ago(LONG));
                (entry.flow.pkts, entry.flow.bytes) = (3, 300);
                entry.flow.retired_why = u8::try_from(reason(why)).unwrap();
                entry.flow.flags |= flags;
            });
        }
        rig.plane.sweep(LONG, false).unwrap();
        assert_eq!(past(rig), []);
    });
}
