use super::*;
use shunt_bpf::{abi, core, wire::flow_between};
use shunt_wire::{Packet, Tag, Tcp};
use std::net::SocketAddr;

const IFINDEX: u32 = 7;
const OUT: u16 = 3;
const NOW: u64 = 100_000;

type Change = fn(&mut Entry);

fn tables(max_flows: u32) -> Tables {
    let mut tables = Tables::new(Size { max_flows, seed: 1 });
    tables.change_control(|control| {
        (control.epoch, control.heartbeat_ticks, control.heartbeat_max_ticks) = (7, NOW, 1000);
        (control.reprove_ticks, control.prove_ticks) = (100, 200);
    });
    tables
}

fn address(host: u32, port: u16) -> SocketAddr {
    SocketAddr::from((std::net::Ipv4Addr::from(0xc0a8_0000 | host), port))
}

/// The packet of a flow as it arrives, and as it leaves.
fn pair(number: u32) -> (Packet, Packet) {
    let to: SocketAddr = ([198, 18, 0, 2], 443).into();
    let before = match number % 2 {
        0 => Packet::udp_between(address(number, 5001), to),
        _ => Packet::tcp_between(address(number, 5001), to, Tcp::ACK),
    };
    let before = before.payload(*b"enough to need no padding on any of the links");
    let after = before.clone().with_source(([198, 18, 0, 1], 61001).into()).with_hop_limit(63);
    (before, after)
}

fn learned(before: &Packet, after: &Packet) -> (Key, Entry) {
    let (key, mut entry) = flow_between(before, after, IFINDEX).unwrap();
    entry.flow.flags &= !abi::FLOW_STATIC;
    entry.flow.epoch = 7;
    entry.flow.reprove_at_ticks = NOW as u32 + 100;
    entry.flow.prove_by_ticks = NOW as u32 + 200;
    entry.flow.out_slot = OUT;
    (key, entry)
}

fn outcome(tables: &mut Tables, frame: &[u8]) -> Outcome {
    tables.forward(&[frame], IFINDEX, 1 << OUT, NOW).remove(0)
}

fn reason(name: &str) -> Outcome {
    Outcome::Slow(abi::Reason::named(name).unwrap().number)
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn every_packet_of_a_large_table_leaves_rewritten_and_counted_in_batches_of_any_order() {
    const FLOWS: u32 = 4000;
    let mut tables = tables(5000);
    let pairs: Vec<_> = (0..FLOWS).map(pair).collect();
    for (before, after) in &pairs {
        let (key, entry) = learned(before, after);
        tables.put(&key, &entry).unwrap();
    }
    let mut order: Vec<usize> = (0..pairs.len()).chain(0..pairs.len()).collect();
    fastrand::Rng::with_seed(5).shuffle(&mut order);
    let frames: Vec<_> = order.iter().map(|number| pairs[*number].0.to_bytes()).collect();
    let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
    for (number, outcome) in order.iter().zip(tables.forward(&frames, IFINDEX, 1 << OUT, NOW)) {
        assert_eq!(outcome, Outcome::Forwarded(OUT, pairs[*number].1.to_bytes()), "{:?}", pairs[*number]);
    }
    for (before, after) in &pairs {
        let flow = tables.flow(&learned(before, after).0).unwrap();
        let l3_bytes = before.to_bytes().len() as u64 - 14;
        assert_eq!((flow.pkts, flow.bytes), (2, 2 * l3_bytes));
        assert_eq!(flow.tcp_position != 0, before.tcp().is_some());
    }
    let mut more = (FLOWS..=5000).map(pair).map(|(before, after)| learned(&before, &after));
    assert!(more.any(|(key, entry)| tables.put(&key, &entry) == Err(Error::Full)));
    assert_eq!(outcome(&mut tables, &pair(5001).0.to_bytes()), reason("miss"));
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn tags_are_added_and_removed_before_the_packet() {
    let mut tables = tables(64);
    let taggings = [vec![], vec![Tag::vlan(10)], vec![Tag::service(20), Tag::vlan(30)]];
    for (number, from) in taggings.iter().enumerate() {
        for (other, to) in taggings.iter().enumerate() {
            let (before, after) = pair((number * 3 + other) as u32);
            let (before, after) = (before.with_tags(from), after.with_tags(to));
            let (key, entry) = learned(&before, &after);
            tables.put(&key, &entry).unwrap();
            let expected = Outcome::Forwarded(OUT, after.to_bytes());
            assert_eq!(outcome(&mut tables, &before.to_bytes()), expected, "{from:?} {to:?}");
        }
    }
}

#[test]
fn a_packet_that_no_action_may_carry_goes_to_linux_with_the_cores_reason() {
    let mut tables = tables(64);
    let (before, after) = pair(1);
    let (key, good) = learned(&before, &after);
    let cases: [(&str, Change); 8] = [
        ("stale", |entry| entry.flow.epoch = 6),
        ("stale", |entry| entry.flow.prove_by_ticks = NOW as u32),
        ("reprove", |entry| (entry.flow.reprove_at_ticks, entry.flow.max_l3_bytes) = (NOW as u32, 20)),
        ("class", |entry| entry.flow.class_bits = 0xb8),
        ("not-ours", |entry| entry.flow.in_dmac[5] ^= 1),
        ("mtu", |entry| entry.flow.max_l3_bytes = 60),
        ("port", |entry| entry.flow.out_slot += abi::EXTERNAL_PORTS_MAX as u16),
        ("pending", |entry| entry.flow.state = abi::FLOW_PENDING),
    ];
    let frame = before.to_bytes();
    for (name, change) in cases {
        let mut entry = good;
        change(&mut entry);
        tables.put(&key, &entry).unwrap();
        assert_eq!(outcome(&mut tables, &frame), reason(name), "{name}");
    }
    tables.put(&key, &good).unwrap();
    assert_eq!(outcome(&mut tables, &frame), Outcome::Forwarded(OUT, after.to_bytes()));
    assert_eq!(tables.forward(&[&frame], IFINDEX, 1, NOW), [reason("port")]);
    assert_eq!(tables.forward(&[&frame], IFINDEX + 1, 1 << OUT, NOW), [reason("miss")]);
    assert_eq!(tables.forward(&[&frame], IFINDEX, 1 << OUT, NOW + 1000), [reason("no-daemon")]);
    assert_eq!(tables.forward(&[&frame[..60]], IFINDEX, 1 << OUT, NOW), [reason("bad-header")]);
    let syn = Packet::tcp_between(address(1, 5001), ([198, 18, 0, 2], 443).into(), Tcp::SYN);
    assert_eq!(outcome(&mut tables, &syn.to_bytes()), reason("tcp-flags"));
    let expiring = before.clone().with_hop_limit(1);
    assert_eq!(outcome(&mut tables, &expiring.to_bytes()), reason("ttl"));
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn one_packet_of_a_burst_is_punted_for_a_proof() {
    let mut tables = tables(64);
    let (before, after) = pair(1);
    let (key, mut entry) = learned(&before, &after);
    entry.flow.max_l3_bytes = before.to_bytes().len() as u16 - 14;
    entry.flow.reprove_at_ticks = NOW as u32;
    tables.put(&key, &entry).unwrap();
    let frame = before.to_bytes();
    let outcomes = tables.forward(&[frame.as_slice(); 200], IFINDEX, 1 << OUT, NOW);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == reason("reprove")).count(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Forwarded(..))).count(), 199);
}

#[test]
fn checksums_are_verified_if_the_control_block_says_so() {
    let mut tables = tables(64);
    let (before, after) = pair(1);
    for payload in [5, 1001] {
        let (before, after) =
            (before.clone().payload(vec![7; payload]), after.clone().payload(vec![7; payload]));
        let (key, entry) = learned(&before, &after);
        tables.put(&key, &entry).unwrap();
        let good = before.to_bytes();
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        tables.change_control(|control| control.flags = 0);
        assert!(matches!(outcome(&mut tables, &bad), Outcome::Forwarded(..)));
        let flags = abi::CONTROL_VERIFY_XDP | abi::CONTROL_VERIFY_LONG;
        tables.change_control(|control| control.flags = flags);
        assert_eq!(outcome(&mut tables, &bad), reason("bad-checksum"));
        assert_eq!(outcome(&mut tables, &good), Outcome::Forwarded(OUT, after.to_bytes()));
    }
}

/// A flow of each family and protocol, with no, one or two tags before and after.
fn shapes() -> Vec<(Packet, Packet)> {
    let [v4, v6] = [
        ["192.168.0.9:5001", "198.18.0.2:443", "198.18.0.1:61001"],
        ["[fd00:1::9]:5001", "[2001:db8::2]:443", "[2001:db8::1]:61001"],
    ]
    .map(|addresses| addresses.map(|text| text.parse::<SocketAddr>().unwrap()));
    let tags = [
        vec![],
        vec![Tag::vlan(9)],
        vec![Tag { tpid: 0x88a8, ..Tag::vlan(9) }],
        vec![Tag { tpid: 0x88a8, ..Tag::vlan(9) }, Tag::vlan(5)],
    ];
    let mut shapes = Vec::new();
    for [from, to, translated] in [v4, v6] {
        for packet in [Packet::udp_between(from, to), Packet::tcp_between(from, to, Tcp::ACK)] {
            for before in &tags {
                for after in &tags {
                    let mut source = from;
                    source.set_port(5001 + shapes.len() as u16);
                    let before = packet.clone().with_source(source).with_tags(before);
                    let before = before.payload(*b"enough to need no padding on any of the links");
                    let after = before.clone().with_source(translated).with_hop_limit(63).with_tags(after);
                    shapes.push((before, after));
                }
            }
        }
    }
    shapes
}

/// A frame in which one bit is wrong, and which may be a byte too short, or padded.
fn mutated(packet: &Packet, rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut frame = packet.to_bytes();
    let at = rng.usize(..frame.len());
    frame[at] ^= 1 << rng.u8(..8);
    frame.truncate(frame.len() - rng.usize(..2));
    if rng.bool() {
        frame.extend_from_slice(&[0; 9]);
    }
    frame
}

/// What the core's own functions make of a frame of this flow; None if they do not forward it.
fn by_the_core(tables: &Tables, frame: &[u8], key: &Key, entry: &Entry) -> Option<Vec<u8>> {
    let flow = tables.flow(key).unwrap();
    let (packet, found) = core::parse(frame, IFINDEX).ok()?;
    let l2_bytes = usize::from(packet.l2_bytes);
    let sum = |header: &[u8]| -> u32 {
        header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
    };
    let forwards = found == *key
        && core::admit(&packet) == 0
        && core::decide(&flow, &packet, frame[..12].try_into().unwrap(), &tables.control(), NOW) == 0
        && l2_bytes + usize::from(packet.l3_bytes) <= frame.len()
        && (matches!(key, Key::V6(_)) || sum(&frame[l2_bytes..][..20]).is_multiple_of(0xffff));
    forwards.then(|| core::rewrite(frame, &packet, entry, false))
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn mutated_frames_are_rewritten_as_the_core_rewrites_them() {
    let mut rng = fastrand::Rng::with_seed(11);
    for (before, after) in shapes() {
        let mut tables = tables(64);
        let (key, entry) = learned(&before, &after);
        tables.put(&key, &entry).unwrap();
        let mut forwarded = 0;
        for _ in 0..1000 {
            let frame = mutated(&before, &mut rng);
            let expected = by_the_core(&tables, &frame, &key, &entry);
            match (outcome(&mut tables, &frame), expected) {
                (Outcome::Forwarded(_, sent), Some(expected)) => {
                    forwarded += 1;
                    assert_eq!(sent, expected, "{frame:?}");
                }
                (Outcome::Slow(_), None) => {}
                (outcome, expected) => panic!("{outcome:?}, but the core says {expected:?}: {frame:?}"),
            }
        }
        assert!(forwarded > 100, "only {forwarded} frames of {before:?} were forwarded");
    }
}

/// Steps of a batch interleave; no packet may see what another one left.
#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn a_mixed_batch_is_treated_as_its_frames_are_one_by_one() {
    let mut rng = fastrand::Rng::with_seed(12);
    let shapes = shapes();
    // Few free slots, so that many keys are in their second bucket.
    let mut tables = tables(shapes.len() as u32 + 4);
    let put = |tables: &mut Tables, (before, after): &(Packet, Packet)| {
        let (key, entry) = learned(before, after);
        tables.put(&key, &entry).is_ok()
    };
    let known = shapes.iter().filter(|shape| put(&mut tables, shape)).count();
    assert!(known > shapes.len() / 2, "only {known} flows fit the table");
    let mut forwarded = 0;
    for _ in 0..500 {
        let frames: Vec<Vec<u8>> = (0..rng.usize(1..=2 * BATCH))
            .map(|_| {
                let packet = &shapes[rng.usize(..shapes.len())].0;
                if rng.bool() { packet.to_bytes() } else { mutated(packet, &mut rng) }
            })
            .collect();
        let together =
            tables.forward(&frames.iter().map(Vec::as_slice).collect::<Vec<_>>(), IFINDEX, 1 << OUT, NOW);
        let alone: Vec<Outcome> = frames.iter().map(|frame| outcome(&mut tables, frame)).collect();
        forwarded += alone.iter().filter(|outcome| matches!(outcome, Outcome::Forwarded(..))).count();
        assert_eq!(together, alone);
    }
    assert!(forwarded > 10_000, "only {forwarded} frames were forwarded");
}
