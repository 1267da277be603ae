//! More connections than there is room or time for, and more changes than can be told.

use crate::{
    ENGINES, OPEN, Stage, daemon_with, moves, silent,
    stage::{BOUND, by},
};
use shunt_bpf::traffic::Generator;
use shunt_testkit::{Host, Segment, Shuntd, Topology, require_root};
use shunt_wire::{Mac, Packet};
use std::{
    fmt::Write,
    fs,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

/// The ports that connections go to, those of one second to each. An idle flow's entry is free three sweeps later, after
/// some five seconds.
const STORM: Range<u16> = 6000..6008;
/// In a second.
const CONNECTIONS: u64 = 20_000;
const OTHER: Mac = Mac([2, 0, 0, 0, 2, 9]);
/// Where nothing but the storm goes.
const THIRD_WAN: Segment =
    Segment { label: "wan3", port: "r3", subnet: 4, v4: [198, 18, 2], ..Segment::SECOND_WAN };

fn rss_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Two packets each of connections that were never seen before, other ones in every second. They go to another exit than
/// the flow that is watched: a tap there would overflow.
fn rage(lab: &Topology, far: &Host) {
    let lan = lab.lan();
    lan.ns.enter();
    for port in STORM {
        let begun = Instant::now();
        let flows = lan.flows_to(far.at(port), 1000, u16::try_from(CONNECTIONS / 1000).unwrap());
        let mut generator = Generator::new(&flows.traffic().unwrap(), lan.ns.ifindex(lan.nic)).unwrap();
        // The second round is on the heels of the first, so that they are learned.
        (0..2).for_each(|_| generator.run(CONNECTIONS).unwrap());
        thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    }
}

#[test]
fn a_storm_of_short_connections_leaves_the_others_right_and_the_daemon_small() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_uplinks(), OPEN);
        // A connection is forgotten as soon as it is silent, and each of them is told.
        lab.router().sysctl("netfilter/nf_conntrack_udp_timeout", 1);
        let config = "max_flows = 4096\nidle = \"1s\"";
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(config).start();
        let (stage, packet) = Stage::from_lan(&lab);
        stage.teach(&shuntd, &packet);
        let before = (rss_kb(shuntd.pid()), shuntd.status());
        thread::scope(|scope| {
            let storm = scope.spawn(|| rage(&lab, lab.host("wan2")));
            let mut rounds = 0;
            while !storm.is_finished() {
                let left = stage.send(&packet);
                assert!(by(0)(&left), "{left:#?}");
                rounds += 1;
                if rounds % 50 == 0 {
                    // Each is a change that must be heard in the midst of it.
                    lab.router().run("ip route replace 203.0.113.0/24 via 198.18.0.2");
                }
            }
            eprintln!("{rounds} packets of the watched flow in the storm");
            storm.join().unwrap();
        });
        let now = (rss_kb(shuntd.pid()), shuntd.status());
        let (fast, learned) = (now.1.packets.fast - before.1.packets.fast, now.1.learned - before.1.learned);
        eprintln!("{engine}: {} to {} kB, {learned} learned, {fast} fast", before.0, now.0);
        assert!(learned > 4096, "it was no storm: {:#?}", now.1);
        assert!(now.1.refusals.get("table-full").is_some_and(|n| *n > 0), "{:#?}", now.1);
        let flows = now.1.flows;
        assert!(flows.active + flows.pending + flows.retired <= 4096, "{flows:?}");
        assert!(now.0 < before.0 + 4096, "from {} to {} kB", before.0, now.0);
        assert!(now.1.epoch > before.1.epoch, "{:#?}", now.1);
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

/// Routes and rules that concern no flow. The routes go many in a system call, and nobody can read what the kernel tells of
/// them as fast as that.
fn burst(lab: &Topology) {
    let mut lines = String::new();
    for n in 10..250 {
        for subnet in 0..4 {
            writeln!(lines, "route add 10.9.{subnet}.{n}/32 via 198.18.1.2 proto 99").unwrap();
        }
    }
    for n in 10..50 {
        writeln!(lines, "rule add from 10.8.0.{n} lookup main").unwrap();
        writeln!(lines, "rule del from 10.8.0.{n} lookup main").unwrap();
    }
    lab.router().run(&format!("ip -batch - <<'END'\n{lines}route flush proto 99\nEND"));
}

/// Neighbours of the first exit, the next hop among them, under a wrong MAC.
fn crowd(lab: &Topology, mac: Mac) {
    let line = |n| format!("neigh replace 198.18.0.{n} lladdr {mac} dev r1 nud permanent\n");
    let lines: String = (2..250).map(line).collect();
    lab.router().run(&format!("ip -batch - <<'END'\n{lines}END"));
}

/// After a change: packets leave by this exit and to this next hop, those of the reaction time aside, and none is lost.
#[track_caller]
fn all_as_now(stage: &Stage, packet: &Packet, exit: usize, mac: Mac) {
    let since = Instant::now();
    let mut right = 0;
    while right < 20 {
        let begun = since.elapsed();
        let (left_by, seen) = stage.leaves(packet);
        let as_now = left_by == exit && seen.ethernet.destination == mac;
        assert!(as_now || begun < BOUND, "sent {begun:?} after the change, it leaves by {left_by}: {seen:?}");
        right = if as_now { right + 1 } else { 0 };
    }
}

/// The kernel has room for a handful of messages, so much of a burst is lost, and with it any change that matters.
#[test]
fn nothing_stale_is_used_when_the_kernel_cannot_tell_of_changes() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::of(&[Segment::LAN, Segment::WAN, Segment::SECOND_WAN, THIRD_WAN]), OPEN);
        lab.router().sysctl("netfilter/nf_conntrack_udp_timeout", 1);
        lab.router().run("ip route add 203.0.113.0/24 via 198.18.0.2");
        let shuntd = daemon_with(&lab, engine, "max_flows = 4096\nidle = \"1s\"\nnetlink_buffer = 4096");
        let stage = Stage::new(lab.lan(), &[lab.wan(), lab.host("wan2")]);
        let packet = lab.lan().udp_to(4000, "203.0.113.9:5000".parse().unwrap()).payload("from the lan");
        stage.teach(&shuntd, &packet);
        thread::scope(|scope| {
            let storm = scope.spawn(|| rage(&lab, lab.host("wan3")));
            while !storm.is_finished() {
                burst(&lab);
                for exit in [1, 0] {
                    lab.router().run(&format!("ip route replace 203.0.113.0/24 via 198.18.{exit}.2"));
                    all_as_now(&stage, &packet, exit, lab.host(["wan", "wan2"][exit]).mac);
                }
                crowd(&lab, OTHER);
                all_as_now(&stage, &packet, 0, OTHER);
                stage.teach(&shuntd, &packet);
                // All go at once, and what is told of the one that matters is lost among the others. Linux asks for it anew.
                lab.router().run("ip neigh flush dev r1 nud permanent");
                all_as_now(&stage, &packet, 0, lab.wan().mac);
            }
            storm.join().unwrap();
        });
        let status = shuntd.status();
        eprintln!("{engine}: {:?}, {} learned", status.epoch_moves, status.learned);
        assert!(status.learned > 1000, "it was no storm: {status:#?}");
        assert!(moves(&status, "overrun") > 0, "nothing was lost: {:#?}", status.epoch_moves);
        // What was missed is known, and what comes now is heard.
        lab.router().run("ip link set r1 mtu 1400");
        shuntd.wait_until("the MTU is known", |s| s.ports.iter().any(|port| port.mtu == 1400));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}
