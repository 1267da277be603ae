//! More new connections and more changes than the daemon and the kernel's queues can take.

use shunt_testkit::{
    ENGINES, Host, Segment, Shuntd, Stage, Topology, backlog, daemon_with, epoch_moves, require_root,
    rulesets, silent, stage::REACTION,
};
use shunt_traffic::Generator;
use shunt_wire::{Mac, Packet};
use std::{
    fmt::Write,
    fs,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

/// Destination ports of the new connections, one for each second, in turn. The entry of an idle flow is free after
/// three sweeps, about five seconds later.
const PORTS: Range<u16> = 6000..6008;
/// The least number of seconds.
const STORM: usize = 4;
/// New connections per second.
const CONNECTIONS: u64 = 10_000;
/// Packets of each connection: a nearly full table learns a tuple only after four times the usual two packets.
const PACKETS: u32 = 9;
/// Time limit for filling the table: on a busy machine, few connections are learned per second.
const PATIENCE: Duration = Duration::from_secs(60);
const OTHER: Mac = Mac([2, 0, 0, 0, 2, 9]);
/// Uplink of the storm alone.
const THIRD_WAN: Segment =
    Segment { label: "wan3", port: "r3", subnet: 4, v4: [198, 18, 2], ..Segment::SECOND_WAN };

/// Packets that full queues dropped before the router got them: the CPUs' backlogs, and the ring between the LAN and
/// r0, which the watched flow shares with the storm.
fn dropped_before_the_router(lab: &Topology) -> u64 {
    let lan = lab.lan();
    let ring = lan.ns.run(&format!("cat /sys/class/net/{}/statistics/tx_dropped", lan.nic));
    backlog::dropped() + ring.trim().parse::<u64>().unwrap()
}

fn rss_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sends [`PACKETS`] packets of each of [`CONNECTIONS`] new connections per second, for [`STORM`] seconds and until
/// `enough` is true. The storm has another egress than the watched flow, whose tap it would
/// overflow.
fn rage(lab: &Topology, far: &Host, enough: impl Fn() -> bool) {
    let lan = lab.lan();
    lan.ns.enter();
    let storm = Instant::now();
    for (second, port) in PORTS.cycle().enumerate() {
        if second >= STORM && (enough() || storm.elapsed() > PATIENCE) {
            break;
        }
        let begun = Instant::now();
        let flows = lan.flows_to(far.at(port), 1000, u16::try_from(CONNECTIONS / 1000).unwrap());
        let mut generator = Generator::new(&flows.traffic().unwrap(), lan.ns.ifindex(lan.nic)).unwrap();
        // The rounds follow each other closely, so that the connections are learned before their entries expire.
        (0..PACKETS).for_each(|_| generator.run(CONNECTIONS).unwrap());
        thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    }
}

#[test]
fn a_storm_of_short_connections_disturbs_no_other_flow_and_no_memory_grows() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
        // Conntrack deletes a connection after a second of silence, and announces each.
        lab.router().sysctl("netfilter/nf_conntrack_udp_timeout", 1);
        let config = "max_flows = 1024\nidle = \"1s\"";
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(config).start();
        let (stage, packet) = Stage::from_lan(&lab);
        stage.teach(&shuntd, &packet);
        let before = (rss_kb(shuntd.pid()), shuntd.status());
        let full = || {
            let now = shuntd.status();
            now.learned - before.1.learned > 1024 && now.refusals.contains_key("source-share")
        };
        let (dropped_before, mut lost) = (dropped_before_the_router(&lab), 0);
        thread::scope(|scope| {
            let storm = scope.spawn(|| rage(&lab, lab.host("wan2"), full));
            let mut rounds = 0;
            while !storm.is_finished() {
                lost += u64::from(stage.try_pass(&packet).is_none());
                rounds += 1;
                if rounds % 50 == 0 {
                    // The daemon must notice each of these changes during the storm.
                    lab.router()
                        .run("ip rule add pref 99 from 203.0.113.9 lookup main && ip rule del pref 99");
                }
            }
            eprintln!("{rounds} packets of the watched flow during the storm, {lost} lost");
            storm.join().unwrap();
        });
        let dropped = dropped_before_the_router(&lab) - dropped_before;
        assert!(lost <= dropped, "{lost} packets were lost; the queues dropped at most {dropped} of them");
        let now = (rss_kb(shuntd.pid()), shuntd.status());
        let (fast, learned) = (now.1.packets.fast - before.1.packets.fast, now.1.learned - before.1.learned);
        eprintln!("{engine}: {} kB before, {} kB after, {learned} learned, {fast} fast", before.0, now.0);
        assert!(learned > 1024, "too few connections were learned: {:#?}", now.1);
        // The storm fills its share, and leaves room for others.
        assert!(now.1.refusals.get("source-share").is_some_and(|n| *n > 0), "{:#?}", now.1);
        let flows = now.1.flows;
        assert!(flows.active + flows.pending + flows.retired <= 1024, "{flows:?}");
        assert!(now.0 < before.0 + 4096, "memory: {} kB before, {} kB after", before.0, now.0);
        assert!(now.1.epoch > before.1.epoch, "{:#?}", now.1);
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

/// Adds and removes routes and rules that concern no flow, faster than any program can read the kernel's messages.
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

/// Replaces the neighbours on r1, the next hop among them, by entries with a wrong MAC.
fn crowd(lab: &Topology, mac: Mac) {
    let line = |n| format!("neigh replace 198.18.0.{n} lladdr {mac} dev r1 nud permanent\n");
    let lines: String = (2..250).map(line).collect();
    lab.router().run(&format!("ip -batch - <<'END'\n{lines}END"));
}

/// After a change: no packet is lost, and those sent after the reaction time leave through this exit to this next hop.
#[track_caller]
fn all_as_now(stage: &Stage, packet: &Packet, exit: usize, mac: Mac) {
    let since = Instant::now();
    let mut right = 0;
    while right < 20 {
        let begun = since.elapsed();
        let (left_by, seen) = stage.leaves(packet);
        let as_now = left_by == exit && seen.ethernet.destination == mac;
        assert!(
            as_now || begun < REACTION,
            "sent {begun:?} after the change, it leaves through {left_by}: {seen:?}"
        );
        right = if as_now { right + 1 } else { 0 };
    }
}

const BETWEEN_ROUNDS: Duration = Duration::from_millis(1500);

/// The kernel's message queue is tiny, so much of a burst is lost, and with it changes that concern the flow.
#[test]
fn no_stale_action_is_used_when_netlink_messages_are_lost() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(
            Topology::new(&[Segment::LAN, Segment::WAN, Segment::SECOND_WAN, THIRD_WAN]),
            rulesets::OPEN,
        );
        lab.router().sysctl("netfilter/nf_conntrack_udp_timeout", 1);
        lab.router().run("ip route add 203.0.113.0/24 via 198.18.0.2");
        let shuntd = daemon_with(&lab, engine, "max_flows = 4096\nidle = \"1s\"\nnetlink_buffer = 4096");
        let stage = Stage::new(lab.lan(), &[lab.wan(), lab.host("wan2")]);
        let packet = lab.lan().udp_to(4000, "203.0.113.9:5000".parse().unwrap()).payload("from the lan");
        stage.teach(&shuntd, &packet);
        thread::scope(|scope| {
            let storm = scope.spawn(|| rage(&lab, lab.host("wan3"), || shuntd.status().learned > 1000));
            while !storm.is_finished() {
                let begun = Instant::now();
                burst(&lab);
                for exit in [1, 0] {
                    lab.router().run(&format!("ip route replace 203.0.113.0/24 via 198.18.{exit}.2"));
                    all_as_now(&stage, &packet, exit, lab.host(["wan", "wan2"][exit]).mac);
                }
                crowd(&lab, OTHER);
                all_as_now(&stage, &packet, 0, OTHER);
                stage.teach(&shuntd, &packet);
                // Among the messages of all deleted entries, that of the next hop is lost. Linux resolves the next hop
                // again.
                lab.router().run("ip neigh flush dev r1 nud permanent");
                all_as_now(&stage, &packet, 0, lab.wan().mac);
                // More often, the next hop would be unstable.
                thread::sleep(BETWEEN_ROUNDS.saturating_sub(begun.elapsed()));
            }
            storm.join().unwrap();
        });
        let status = shuntd.status();
        eprintln!("{engine}: {:?}, {} learned", status.epoch_moves, status.learned);
        assert!(status.learned > 1000, "too few connections were learned: {status:#?}");
        assert!(epoch_moves(&status, "overrun") > 0, "nothing was lost: {:#?}", status.epoch_moves);
        // The daemon knows the changes whose messages were lost, and hears of the next one.
        lab.router().run("ip link set r1 mtu 1400");
        shuntd.wait_until("the daemon knows the MTU", |s| s.ports.iter().any(|port| port.mtu == 1400));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}
