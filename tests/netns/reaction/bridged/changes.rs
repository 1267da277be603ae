//! How soon changes of a bridge take effect on bridged flows, and which bridged traffic stays slow.

use super::{
    SELDOM_PROVED, Stations, announce, bridged, call_iptables, calls_iptables, stations, switch, udp,
};
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, ENGINES, Frame, Host, Stage, daemon, daemon_with, epoch_moves, require_root, skip,
    stage::REACTION, stage::leaves_as, stage::leaves_by, stage::nothing_leaves, wait_until,
};
use shunt_wire::{Mac, Packet};
use std::time::{Duration, Instant};

/// How long to wait for a packet that should not come.
const A_MOMENT: Duration = Duration::from_millis(50);
/// Mutes the kernel of a station, which would send a packet now and then.
const MUTE: &str = r#"
table netdev mute {
	chain egress {
		type filter hook egress device "lan0" priority 0; policy drop;
	}
}
"#;

/// A rule that applies to bridged packets only with br_netfilter.
const NO_SUCH_UDP: &str =
    "table inet guard { chain forward { type filter hook forward priority 0; udp dport 5000 drop; }; }";

fn udp6(from: &Host, to: &Host) -> Packet {
    bridged(from.udp_to(4000, to.at6(5000)), from, to).payload("between two stations")
}

impl Stations {
    /// Runs a command on the router, after which packets must leave as expected within the reaction time.
    #[track_caller]
    fn react(&self, command: &str, packet: &Packet, required: impl Fn(&[Vec<Frame>]) -> bool) {
        self.lab.router().run(command);
        self.stage.react(command, packet, required);
    }

    /// Runs a command after which not even the router is reachable: within a second, nothing leaves any more.
    #[track_caller]
    fn cut_off(&self, command: &str, packet: &Packet) {
        let way = Crossing::between(self.lab.lan(), self.lab.host("lan2"));
        self.lab.router().run(command);
        let mut left = 0;
        let since = Instant::now();
        while since.elapsed() < REACTION + 5 * A_MOMENT {
            way.from.send(packet);
            let seen = way.to.capture_packet(A_MOMENT, |seen| seen.payload == packet.payload);
            assert!(seen.is_none() || since.elapsed() < REACTION, "{command}: packets still leave");
            left += u32::from(seen.is_some());
        }
        eprintln!("reaction to {command}: {left} packets");
    }
}

fn flooded(left: &[Vec<Frame>]) -> bool {
    left.iter().all(|at| at.len() == 1)
}

#[test]
fn packets_of_another_sender_or_class_with_the_same_tuple_go_to_linux() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let Stations { lab, shuntd, stage } = stations(engine);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        let packet = udp(a, b);
        stage.teach(&shuntd, &packet);
        let before = shuntd.status();
        stage.pass(&packet.clone().with_class(0xb8));
        let after = shuntd.status();
        assert_eq!(after.reasons.get("class"), Some(&(before.reasons.get("class").unwrap_or(&0) + 1)));

        // Another station takes over the address on the same port, and the bridge learns its MAC.
        let other = Mac([2, 0, 0, 0, 1, 0x99]);
        stage.teach(&shuntd, &packet);
        let taken_over = packet.clone().macs(other, b.mac);
        assert!(leaves_as(0, |seen| seen.ethernet.source == other)(&stage.send(&taken_over)));
        let known = lab.router().run("bridge fdb show br br0");
        assert!(known.contains(&format!("{other} dev r0")), "{known}");
        stage.teach(&shuntd, &taken_over);
        stage.react("nothing", &taken_over, leaves_as(0, |seen| seen.ethernet.source == other));
        shuntd.stop();
    }
}

#[test]
fn flows_follow_a_station_that_roams_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        for family in [udp, udp6] {
            let Stations { lab, shuntd, stage } = stations(engine);
            let (a, b, c) = (lab.lan(), lab.host("lan2"), lab.host("lan3"));
            let packet = family(a, b);
            stage.teach(&shuntd, &packet);
            let before = epoch_moves(&shuntd.status(), "fdb");
            b.ns.nft(MUTE);
            c.tap().send(&c.udp_to(1, a.at(1)).macs(b.mac, a.mac));
            stage.react("a station that roams", &packet, leaves_by(1));
            assert!(epoch_moves(&shuntd.status(), "fdb") > before, "{:#?}", shuntd.status());
            stage.teach_via(&shuntd, &packet, 1);
            shuntd.stop();
        }
    }
}

/// Any host on a bridge can make it report new stations with every frame. Stations without flows must not affect the
/// flows of others, and a station with flows must still be followed.
#[test]
fn new_stations_leave_the_flows_of_other_stations_fast() {
    if !require_root() {
        return;
    }
    const STRANGERS: u32 = 2000;
    for engine in ENGINES {
        let Stations { lab, shuntd, stage } = stations(engine);
        let (a, b, c) = (lab.lan(), lab.host("lan2"), lab.host("lan3"));
        let packet = udp(a, b);
        stage.teach(&shuntd, &packet);
        let stranger = |n: u32| Mac([2, 0x77, 0, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
        let (tap, before) = (c.tap(), shuntd.status());
        for n in 0..STRANGERS {
            tap.send(&c.udp_to(1, a.at(1)).macs(stranger(n), c.gateway_mac));
            if n % 10 == 0 {
                stage.pass(&packet);
            }
        }
        let known = lab.router().run("bridge fdb show br br0");
        assert!(known.contains(&stranger(STRANGERS - 1).to_string()), "{known}");
        let after = shuntd.status();
        assert_eq!(
            (after.epoch, epoch_moves(&after, "fdb")),
            (before.epoch, epoch_moves(&before, "fdb")),
            "{after:#?}"
        );
        let fast = after.packets.fast - before.packets.fast;
        // One packet may be a proof.
        assert!(fast >= u64::from(STRANGERS / 10) * 9 / 10, "{fast} {after:#?}");

        b.ns.nft(MUTE);
        tap.send(&c.udp_to(1, a.at(1)).macs(b.mac, a.mac));
        stage.react("a station that roams among strangers", &packet, leaves_by(1));
        shuntd.stop();
    }
}

/// The sender's packets arrive on another port, and the replies must follow.
#[test]
fn replies_follow_a_sender_that_roams_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        let shuntd = daemon(&lab, engine);
        let (a, b, c) = (lab.lan(), lab.host("lan2"), lab.host("lan3"));
        announce(&[a, b]);
        let packet = udp(a, b);
        Stage::new(a, &[b]).teach(&shuntd, &packet);
        let answers = Stage::new(b, &[a, c]);
        let answer = bridged(b.udp_to(5000, a.at(4000)), b, a).payload("an answer");
        answers.teach(&shuntd, &answer);
        a.ns.nft(MUTE);
        c.tap().send(&packet);
        answers.react("a sender that roams", &answer, leaves_by(1));
        answers.teach_via(&shuntd, &answer, 1);
        shuntd.stop();
    }
}

#[test]
fn the_state_of_a_port_takes_effect_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let stations = stations(engine);
        let (packet, router) = (stations.packet(), stations.lab.router());
        // 0 is disabled, 1 listening, 2 learning, 3 forwarding. State 4, blocking, does not last without a spanning
        // tree.
        for state in [0, 1, 2] {
            stations.settle(&packet);
            stations.react(&format!("bridge link set dev r2 state {state}"), &packet, nothing_leaves);
            router.run("bridge link set dev r2 state 3");
        }
        stations.settle(&packet);
        stations.cut_off("bridge link set dev r0 state 1", &packet);
        router.run("bridge link set dev r0 state 3");
        stations.settle(&packet);
        stations.cut_off("ip link set br0 down", &packet);
        router.run("ip link set br0 up");
        // A bridge forgets the stations of a removed port, and floods packets to them to the other ports.
        for (gone, back) in [
            ("ip link set r2 nomaster", "ip link set r2 master br0"),
            ("ip link set r2 down", "ip link set r2 up"),
        ] {
            stations.settle(&packet);
            stations.react(gone, &packet, leaves_by(1));
            router.run(back);
        }
        stations.settle(&packet);
        stations.lab.host("lan2").ns.nft(MUTE);
        stations.react("ip link set br0 type bridge fdb_flush", &packet, flooded);
        stations.stage.never_fast(&stations.shuntd, &packet, flooded);
        stations.shuntd.stop();
    }
}

#[test]
fn port_isolation_and_locking_take_effect_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let stations = stations(engine);
        let (packet, router) = (stations.packet(), stations.lab.router());
        router.run("bridge link set dev r0 isolated on");
        stations.settle(&packet);
        stations.react("bridge link set dev r2 isolated on", &packet, nothing_leaves);
        router.run("bridge link set dev r2 isolated off");
        stations.settle(&packet);
        // A locked port admits only known stations, and this one is deleted.
        let forget = format!("bridge fdb del {} dev r0 master", stations.lab.lan().mac);
        stations.cut_off(&format!("bridge link set dev r0 locked on learning off; {forget}"), &packet);
        router.run("bridge link set dev r0 locked off learning on");
        stations.settle(&packet);
        for setting in ["learning off", "flood off", "hairpin on", "guard on", "mcast_flood off", "locked on"]
        {
            let before = stations.shuntd.status().epoch;
            router.run(&format!("bridge link set dev r3 {setting}"));
            assert!(stations.shuntd.status().epoch > before, "{setting}");
        }
        stations.shuntd.stop();
    }
}

/// With two ports, the bridge floods a packet to an unknown station to one port only.
#[test]
fn a_flow_flooded_to_one_port_follows_its_station_once_it_is_known() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        lab.router().run("ip link set r3 nomaster");
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        let stage = Stage::new(a, &[b, lab.host("lan3")]);
        announce(&[a, b]);
        let unknown = Mac([2, 0, 0, 0, 1, 0x77]);
        let packet = udp(a, b).macs(a.mac, unknown);
        stage.teach(&shuntd, &packet);
        // The station turns out to be behind the port where the packets come in, so they are not forwarded.
        a.tap().send(&a.udp_to(1, b.at(1)).macs(unknown, a.gateway_mac));
        stage.react("a station that is heard of", &packet, nothing_leaves);
        shuntd.stop();
    }
}

#[test]
fn a_rule_of_the_bridge_family_takes_effect_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let stations = stations(engine);
        let packet = stations.packet();
        stations.settle(&packet);
        stations.lab.router().nft(
            "table bridge guard { chain forward { type filter hook forward priority 0; udp dport 5000 drop; }; }",
        );
        stations.stage.react("a rule of the bridge", &packet, nothing_leaves);
        stations.react("nft delete table bridge guard", &packet, leaves_by(0));
        stations.settle(&packet);
        stations.shuntd.stop();
    }
}

#[test]
fn br_netfilter_takes_effect_within_a_second() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let stations = stations(engine);
        if !calls_iptables(&stations.lab) {
            return skip("this kernel has no br_netfilter");
        }
        let packet = stations.packet();
        stations.lab.router().nft(NO_SUCH_UDP);
        stations.settle(&packet);
        call_iptables(&stations.lab, 1);
        stations.stage.react("bridge-nf-call-iptables", &packet, nothing_leaves);
        call_iptables(&stations.lab, 0);
        stations.settle(&packet);
        stations.react("ip link set br0 type bridge nf_call_iptables 1", &packet, nothing_leaves);
        stations.shuntd.stop();
    }
}

/// Linux learns where a station is from its packets, but does not see fast ones.
#[test]
fn the_bridge_remembers_a_station_that_only_sends() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        lab.router().run("ip link set br0 type bridge ageing_time 200");
        let shuntd = daemon(&lab, engine);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        announce(&[a, b]);
        let way = Crossing::between(a, b);
        let packet = udp(a, b);
        way.teach(&shuntd, &packet);
        let knows = || lab.router().run("bridge fdb show br br0").contains(&format!("{} dev r0", a.mac));
        let (since, before, mut sent) = (Instant::now(), shuntd.status().packets.fast, 0);
        while since.elapsed() < Duration::from_secs(5) {
            // Several packets per round, since the programs that run in between take long on a busy machine.
            for _ in 0..5 {
                way.pass(&packet);
                sent += 1;
            }
            announce(&[b]);
            assert!(knows(), "the bridge forgot the station after {:?}", since.elapsed());
        }
        let fast = shuntd.status().packets.fast - before;
        assert!(fast > sent / 2, "{fast} of {sent} {:#?}", shuntd.status());
        wait_until("the bridge has forgotten the station", || !knows());
        shuntd.stop();
    }
}

#[test]
fn a_bridge_with_an_ageing_time_below_a_second_is_left_to_linux() {
    if !require_root() {
        return;
    }
    let stations = stations(Engine::Tc);
    let packet = stations.packet();
    stations.settle(&packet);
    stations.lab.router().run("ip link set br0 type bridge ageing_time 90");
    let sent = |left: &[Vec<Frame>]| left[0].len() == 1;
    stations.stage.react("an ageing time", &packet, sent);
    stations.stage.never_fast(&stations.shuntd, &packet, sent);
    assert!(stations.shuntd.status().refusals.contains_key("not-routed"));
    stations.shuntd.stop();
}

/// A device on top of the bridge gets packets that leave through no port, where Shunt would see them.
#[test]
fn a_device_that_listens_on_the_bridge_keeps_bridged_traffic_slow() {
    if !require_root() {
        return;
    }
    let stations = stations(Engine::Tc);
    let packet = stations.packet();
    stations.settle(&packet);
    for (come, go) in [
        ("ip link set br0 promisc on", "ip link set br0 promisc off"),
        ("ip link add link br0 name top0 type macvlan mode bridge", "ip link del top0"),
        ("ip link add dum0 type dummy; ip link set dum0 master br0", "ip link del dum0"),
    ] {
        if stations.lab.router().try_run(come).is_err() {
            eprintln!("skipped, since it fails on this kernel: {come}");
            continue;
        }
        stations.stage.react(come, &packet, leaves_by(0));
        stations.stage.never_fast(&stations.shuntd, &packet, leaves_by(0));
        stations.lab.router().run(go);
        stations.settle(&packet);
    }
    stations.shuntd.stop();
}
