//! Malformed frames: frames that are not forwarded are unchanged, and those that are forwarded leave as the host's
//! build of the packet core says.

use crate::rig::{EPOCH, Pair, Rig, bridged, pairs, with_rig, with_verifying_rig};
use fastrand::Rng;
use shunt_bpf::{
    DriverRing, Entry, Key, LoadedXdp, XdpForm,
    abi::{
        CONTROL_VERIFY_LONG, CONTROL_VERIFY_TC, CONTROL_VERIFY_XDP, Control, FLOW_BRIDGED, FLOW_STATIC,
        FLOW_UNTRACKED, FLOW_XDP, Plain,
    },
    attach::Hook,
    core,
};
use shunt_traffic::testrun::{TC_NEXT, TC_REDIRECT, TestRun, XDP_PASS, XDP_REDIRECT};
use shunt_wire::{Checksum, Packet, Sum, Tag};
use std::{
    collections::HashMap,
    io::ErrorKind,
    os::fd::AsFd,
    time::{Duration, Instant},
};

const FRAMES: u32 = 1_000_000;
/// Time limit for runs in the kernel; the host's build gets all frames.
const KERNEL_TIME: Duration = Duration::from_secs(40);
const TCP_FLAGS: usize = 8;
/// The longest L4 header plus payload that counts as short.
const SHORT: usize = 127;

struct Known {
    pair: Pair,
    entry: Entry,
}

/// The flows, by the bytes of their keys.
type Table = HashMap<Vec<u8>, Known>;

fn bytes_of(key: &Key) -> Vec<u8> {
    match key {
        Key::V4(key) => key.bytes().to_vec(),
        Key::V6(key) => key.bytes().to_vec(),
    }
}

/// Learned and static flows of all kinds, with and without tags.
fn table(rig: &Rig<'_>) -> Table {
    let tags = [vec![], vec![Tag::vlan(5)], vec![Tag::service(6), Tag { priority: 3, ..Tag::vlan(7) }]];
    let mut table = Table::new();
    for pair in pairs() {
        for (n, (from, to)) in tags.iter().flat_map(|from| tags.iter().map(move |to| (from, to))).enumerate()
        {
            let mut before = pair.before.clone().with_tags(from).payload(vec![n as u8; 37 * n]);
            let mut after = pair.after.clone().with_tags(to).payload(vec![n as u8; 37 * n]);
            let (mut here, mut there) = (before.source().unwrap(), after.source().unwrap());
            here.set_port(here.port() + n as u16);
            there.set_port(there.port() + n as u16);
            (before, after) = (before.with_source(here), after.with_source(there));
            let pair = Pair { before, after };
            let pair = if n % 4 == 2 { bridged(&pair) } else { pair };
            let (key, mut entry) = rig.learned(&pair);
            if n % 3 == 1 {
                entry.flow.flags |= FLOW_STATIC;
            }
            if entry.flow.flags & FLOW_BRIDGED != 0 && n % 3 != 0 {
                entry.flow.flags |= FLOW_UNTRACKED;
            }
            rig.plane.put_flow(&key, &entry).unwrap();
            table.insert(bytes_of(&key), Known { pair, entry });
        }
    }
    table
}

/// The packet core's answer for a frame that arrives at a hook: the flow to use, and the frame that leaves.
fn forwarded<'t>(hook: Hook, frame: &[u8], ifindex: u32, table: &'t Table) -> Option<(&'t Known, Vec<u8>)> {
    let (packet, key) = core::parse(frame, ifindex).ok()?;
    let known = table.get(&bytes_of(&key))?;
    let flow = &known.entry.flow;
    let now = flow.reprove_at_ticks.wrapping_sub(1);
    let control =
        Control { epoch: EPOCH, heartbeat_ticks: now.into(), heartbeat_max_ticks: 100, ..Control::default() };
    let macs = frame[..12].try_into().unwrap();
    let l2_bytes = usize::from(packet.l2_bytes);
    let fits = frame.len() >= l2_bytes + usize::from(packet.l3_bytes);
    let good_header =
        packet.family == 6 || Sum::new().bytes(&frame[l2_bytes..l2_bytes + 20]).folded() == 0xffff;
    let may = core::admit(&packet) == 0
        && core::decide(flow, &packet, macs, &control, now.into()) == 0
        && (hook != Hook::Xdp || flow.flags & FLOW_XDP != 0);
    (may && good_header && fits).then(|| (known, core::rewrite(frame, &packet, &known.entry, false)))
}

/// The frame that shunt-wire builds, if shunt-wire can represent all of it.
fn rebuilt(frame: &[u8], known: &Known) -> Option<Vec<u8>> {
    let packet = Packet::parse(frame).ok().filter(|packet| packet.to_bytes() == frame)?;
    let good = matches!(packet.l4_checksum()?, Checksum::Good) || frame_has_no_sum(&packet);
    let model = &known.pair.after;
    let mut after = packet
        .clone()
        .with_source(model.source()?)
        .with_destination(model.destination()?)
        .with_hop_limit(packet.hop_limit()? - (known.pair.before.hop_limit()? - model.hop_limit()?))
        .with_header_checksum(Checksum::Good);
    after.ethernet = model.ethernet.clone();
    if known.entry.flow.flags & FLOW_UNTRACKED == 0 {
        after.trailer.clear();
    }
    good.then(|| after.to_bytes())
}

fn frame_has_no_sum(packet: &Packet) -> bool {
    packet.udp().is_some_and(|udp| udp.checksum == Checksum::Zero)
}

/// Whether tc leaves the outer tag in the metadata.
fn as_tc_shows(before: &[u8], after: Vec<u8>) -> Vec<u8> {
    let tags = |frame: &[u8]| -> Vec<[u8; 4]> {
        let is_tag = |tag: &&[u8]| matches!(tag[..2], [0x81, 0x00] | [0x88, 0xa8]);
        let words = frame[12..].chunks_exact(4).take_while(is_tag);
        words.map(|tag| tag.try_into().unwrap()).collect()
    };
    if tags(before) == tags(&after) || tags(&after).is_empty() {
        return after;
    }
    [&after[..12], &after[16..]].concat()
}

#[test]
fn the_kernel_and_the_host_agree_on_a_million_mutated_frames() {
    let seed = std::env::var("SHUNT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5348_554e);
    println!("SHUNT_SEED={seed}");
    with_rig(|rig| {
        let mut rng = Rng::with_seed(seed);
        let table = table(rig);
        let corpus: Vec<Vec<u8>> = {
            let mut all: Vec<_> = table.values().map(|known| known.pair.before.to_bytes()).collect();
            all.sort();
            all
        };
        let forms = [XdpForm::General, XdpForm::LookingAhead(DriverRing::Veth)];
        let forms = forms.map(|form| rig.plane.xdp_source(form).unwrap().load().unwrap());
        let hints = rig.plane.hints().unwrap();
        assert!(hints.iter().filter(|hint| **hint != 0).count() > 4, "flows without tags have hints");
        let deadline = Instant::now() + KERNEL_TIME;
        let (mut ran, mut fast, mut compared) = (0u32, 0u32, 0u32);
        for _ in 0..FRAMES {
            let frame = mutated(&mut rng, &corpus);
            let expected = forwarded(Hook::Xdp, &frame, rig.port, &table);
            if let Some((known, after)) = &expected {
                fast += 1;
                if let Some(built) = rebuilt(&frame, known) {
                    compared += 1;
                    assert_eq!(*after, built, "{frame:02x?}");
                }
            }
            if frame.len() >= 14 && Instant::now() < deadline {
                if ran % 1000 == 0 {
                    rig.plane.set_hints(&wrong_hints(&mut rng, &hints)).unwrap();
                }
                ran += 1;
                check_xdp(rig, &forms, &frame, expected.map(|(_, after)| after));
                check_tc(rig, &frame, &table);
            }
        }
        println!(
            "{FRAMES} frames on the host: {fast} forwarded, {compared} of them compared with shunt-wire; {ran} in the kernel"
        );
        assert!(fast > FRAMES / 20 && compared > fast / 4 && ran > 10_000);
        let c = rig.plane.counters(rig.port).unwrap();
        assert_eq!(c.slow_pkts, c.reasons.iter().sum::<u64>());
        assert_eq!(c.dropped_pkts, 0);
    });
}

/// Whether the L4 checksum of a forwarded frame is right or absent, and the length of L4.
fn l4_checksum(frame: &[u8]) -> (bool, usize) {
    let mut l3 = 14;
    while matches!(frame[l3 - 2..l3], [0x81, 0x00] | [0x88, 0xa8]) {
        l3 += 4;
    }
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (protocol, addresses, l4, bytes) = if frame[l3] >> 4 == 4 {
        (frame[l3 + 9], &frame[l3 + 12..l3 + 20], l3 + 20, usize::from(word(l3 + 2)) - 20)
    } else {
        (frame[l3 + 6], &frame[l3 + 8..l3 + 40], l3 + 40, usize::from(word(l3 + 4)))
    };
    let sum = Sum::new().bytes(addresses).word(protocol.into()).word(bytes as u16);
    let sum = sum.bytes(&frame[l4..l4 + bytes]).folded();
    (sum == 0xffff || protocol == 17 && word(l4 + 6) == 0, bytes)
}

#[test]
fn mutated_frames_with_wrong_checksums_are_not_forwarded_if_verified() {
    let seed = std::env::var("SHUNT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5348_554e);
    println!("SHUNT_SEED={seed}");
    with_verifying_rig(|rig| {
        let mut rng = Rng::with_seed(seed);
        let table = table(rig);
        let mut corpus: Vec<Vec<u8>> = table.values().map(|known| known.pair.before.to_bytes()).collect();
        corpus.sort();
        let run = |hook, verification, frame: &[u8]| {
            rig.plane.control().set_verification(verification);
            let verdict = match TestRun::new(&rig.plane, hook, rig.port).unwrap().run(frame) {
                Ok(outcome) => outcome.verdict,
                Err(e) if e.kind() == ErrorKind::InvalidInput && frame.len() < 14 + 40 => return false,
                Err(e) => panic!("{e}: {frame:02x?}"),
            };
            bring_back(rig, frame, &table);
            verdict == if hook == Hook::Xdp { XDP_REDIRECT } else { TC_REDIRECT }
        };
        let (mut right, mut wrong) = (0, 0);
        for _ in 0..20_000 {
            let frame = mutated(&mut rng, &corpus);
            if frame.len() < 14 {
                continue;
            }
            for (hook, auto) in [(Hook::Ingress, CONTROL_VERIFY_TC), (Hook::Xdp, CONTROL_VERIFY_XDP)] {
                let always = auto | CONTROL_VERIFY_LONG;
                if !run(hook, 0, &frame) {
                    assert!(!run(hook, always, &frame), "{hook:?}: {frame:02x?}");
                    continue;
                }
                let (_, key) = core::parse(&frame, rig.port).unwrap();
                let flags = table[&bytes_of(&key)].entry.flow.flags;
                let (good, bytes) = l4_checksum(&frame);
                let good = good || flags & FLOW_UNTRACKED != 0;
                assert_eq!(run(hook, always, &frame), good, "always, {hook:?}: {frame:02x?}");
                let expected = good || bytes > SHORT;
                assert_eq!(run(hook, auto, &frame), expected, "short ones, {hook:?}: {frame:02x?}");
                *if good { &mut right } else { &mut wrong } += 1;
            }
        }
        println!("{right} right ones, {wrong} wrong ones");
        assert!(right > 1000 && wrong > 300);
    });
}

/// Some of the hints as they are, some without a flow, and some with that of another one.
fn wrong_hints(rng: &mut Rng, hints: &[u32]) -> Vec<u32> {
    const ENTRY: u32 = 0xff_ffff;
    let entries: Vec<u32> = hints.iter().map(|hint| hint & ENTRY).filter(|entry| *entry != 0).collect();
    let wrong = |hint: &u32| match rng.u8(..4) {
        0 => 0,
        1 => hint & !ENTRY | entries[rng.usize(..entries.len())],
        _ => *hint,
    };
    hints.iter().map(wrong).collect()
}

/// Checks every form of the XDP program.
fn check_xdp(rig: &Rig<'_>, forms: &[LoadedXdp], frame: &[u8], expected: Option<Vec<u8>>) {
    let (verdict, bytes) = match expected {
        Some(after) => (XDP_REDIRECT, after),
        None => (XDP_PASS, frame.to_vec()),
    };
    let first = rig.plane.program_fd(Hook::Xdp).unwrap();
    for program in std::iter::once(first).chain(forms.iter().map(AsFd::as_fd)) {
        let outcome = TestRun::of(program, Hook::Xdp, rig.port).run(frame).unwrap();
        assert_eq!((outcome.verdict, &outcome.frame), (verdict, &bytes), "XDP: {frame:02x?}");
    }
}

fn check_tc(rig: &Rig<'_>, frame: &[u8], table: &Table) {
    let expected = forwarded(Hook::Ingress, frame, rig.port, table).filter(|_| frame[0] & 1 == 0);
    let outcome = match TestRun::new(&rig.plane, Hook::Ingress, rig.port).unwrap().run(frame) {
        Ok(outcome) => outcome,
        // The kernel makes no skb of a frame that is shorter than its IP header requires.
        Err(e) if e.kind() == ErrorKind::InvalidInput && frame.len() < 14 + 40 => return,
        Err(e) => panic!("{e}: {frame:02x?}"),
    };
    let (verdict, bytes) = match expected {
        Some((_, after)) => (TC_REDIRECT, as_tc_shows(frame, after)),
        None => (TC_NEXT, frame.to_vec()),
    };
    assert_eq!((outcome.verdict, outcome.frame), (verdict, bytes), "tc: {frame:02x?}");
    bring_back(rig, frame, table);
}

/// Activates flows again that a SYN, FIN or RST has retired.
fn bring_back(rig: &Rig<'_>, frame: &[u8], table: &Table) {
    if let Ok((packet, key)) = core::parse(frame, rig.port)
        && let Some(known) = table.get(&bytes_of(&key)).filter(|_| core::admit(&packet) == TCP_FLAGS)
    {
        rig.plane.put_flow(&key, &known.entry).unwrap();
    }
}

/// A valid frame with random changes.
fn mutated(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    if rng.u8(..) == 0 {
        let length = rng.usize(..128);
        return (0..length).map(|_| rng.u8(..)).collect();
    }
    let mut frame = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.u8(..4) {
        mutate(rng, &mut frame, corpus);
    }
    if rng.bool() {
        fix_sums(&mut frame);
    }
    frame
}

fn mutate(rng: &mut Rng, frame: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    if frame.len() < 16 {
        return;
    }
    let at = rng.usize(..frame.len().min(80));
    match rng.u8(..10) {
        0 => frame[at] ^= 1 << rng.u8(..8),
        1 => frame[at] = rng.u8(..),
        2 => frame[at] = [0, 0xff, 0x7f, 0x80, 1][rng.usize(..5)],
        3 => frame.truncate(rng.usize(..frame.len())),
        4 => frame.extend((0..rng.u8(..60)).map(|n| n ^ at as u8)),
        5 => {
            frame.splice(12..12, [0x81, 0x00, at as u8 & 0x3f, at as u8]);
        }
        6 => {
            frame.drain(12..16);
        }
        7 => {
            let other = &corpus[rng.usize(..corpus.len())];
            let keep = at.min(other.len());
            frame.splice(..keep, other[..keep].iter().copied());
        }
        // Change a byte of the payload, which affects only the checksum.
        _ => {
            let last = frame.len() - 1;
            frame[last] = rng.u8(..);
        }
    }
}

/// Writes a right IPv4 header checksum, which would otherwise hide other faults.
fn fix_sums(frame: &mut [u8]) {
    let mut l3 = 14;
    while l3 < 22 && frame.len() > l3 && matches!(frame[l3 - 2..l3], [0x81, 0x00] | [0x88, 0xa8]) {
        l3 += 4;
    }
    if frame.len() >= l3 + 20 && frame[l3 - 2..l3] == [0x08, 0x00] {
        frame[l3 + 10..l3 + 12].fill(0);
        let sum = Sum::new().bytes(&frame[l3..l3 + 20]).finished();
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
}
