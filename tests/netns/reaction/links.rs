//! How soon changes of links, addresses and the forwarding sysctls take effect.

use shunt_api::Engine;
use shunt_testkit::{
    ENGINES, Shuntd, Stage, Topology, daemon, daemon_with, epoch_moves, require_root, rulesets, silent,
    silent_router, skip, stage::leaves_by, stage::nothing_leaves, wait_for,
};
use shunt_wire::{Network, Packet};
use std::time::Duration;

fn start(engine: Engine) -> (Topology, Shuntd, Stage, Packet) {
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = daemon(&lab, engine);
    let (stage, packet) = Stage::from_lan(&lab);
    stage.teach(&shuntd, &packet);
    (lab, shuntd, stage, packet)
}

#[test]
fn deleting_an_address_stops_flows_over_its_routes() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().run("ip address del 198.18.0.1/24 dev r1");
        stage.react("an address that goes", &packet, nothing_leaves);
        assert!(epoch_moves(&shuntd.status(), "address") > 0, "{:#?}", shuntd.status());
        lab.router().run("ip address add 198.18.0.1/24 dev r1");
        lab.pin_neighbours();
        stage.react("the address again", &packet, leaves_by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_port_that_goes_down_stops_its_flows_until_it_is_up() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().run("ip link set r1 down");
        stage.react("an egress that goes down", &packet, nothing_leaves);
        let status = shuntd.wait_until("r1 is down", |s| s.ports.iter().any(|p| p.name == "r1" && !p.up));
        assert!(epoch_moves(&status, "link") > 0, "{status:#?}");
        lab.router().run("ip link set r1 up");
        shuntd.wait_until("r1 is up", |s| s.ports.iter().any(|p| p.name == "r1" && p.up));
        lab.pin_neighbours();
        assert!(wait_for(Duration::from_secs(5), || stage.passes(&packet).then_some(())).is_some());
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_lowered_mtu_stops_large_packets_only() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        let mut large = packet.clone().payload(vec![b'x'; 1200]);
        if let Network::V4(ipv4) = &mut large.network {
            ipv4.dont_fragment = true;
        }
        stage.teach(&shuntd, &large);
        lab.router().sysctl("ipv4/icmp_ratelimit", 0);
        lab.router().run("ip link set r1 mtu 1000");
        stage.react("a lowered MTU", &large, nothing_leaves);
        let answer = {
            stage.from.send(&large);
            // ICMP destination unreachable, fragmentation needed, with the MTU.
            stage.from.capture_packet(Duration::from_secs(5), |seen| {
                seen.protocol() == Some(1) && seen.payload.starts_with(&[3, 4])
            })
        };
        assert_eq!(&answer.unwrap().payload[6..8], &1000_u16.to_be_bytes());
        stage.teach(&shuntd, &packet);
        stage.never_fast(&shuntd, &large, nothing_leaves);
        let status = shuntd.wait_until("the daemon knows the MTU", |s| s.ports.iter().any(|p| p.mtu == 1000));
        assert!(epoch_moves(&status, "link") > 0, "{status:#?}");
        shuntd.stop();
    }
}

#[test]
fn nothing_is_forwarded_once_forwarding_is_off() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        for sysctl in ["ipv4/ip_forward", "ipv4/conf/r0/forwarding"] {
            let before = epoch_moves(&shuntd.status(), "netconf");
            lab.router().sysctl(sysctl, 0);
            stage.react(&format!("{sysctl} = 0"), &packet, nothing_leaves);
            assert!(epoch_moves(&shuntd.status(), "netconf") > before, "{:#?}", shuntd.status());
            lab.router().sysctl(sysctl, 1);
            stage.react(&format!("{sysctl} = 1"), &packet, leaves_by(0));
            stage.teach(&shuntd, &packet);
        }
        shuntd.stop();
    }
}

#[test]
fn a_device_group_takes_effect_at_once_on_rules_that_match_it() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(
            Topology::two_hosts_and_a_router(),
            &rulesets::OPEN.replace("policy drop;", "policy drop; iifgroup 5 drop"),
        );
        // So rarely that no proof stops the flow before the change does.
        let shuntd = daemon_with(&lab, engine, "reprove = \"30s\"");
        let (stage, packet) = Stage::from_lan(&lab);
        stage.teach(&shuntd, &packet);
        lab.router().run("ip link set r0 group 5");
        stage.react("a group", &packet, nothing_leaves);
        let status = shuntd.status();
        assert!(epoch_moves(&status, "link") > 0, "{status:#?}");
        lab.router().run("ip link set r0 group default");
        stage.react("the default group", &packet, leaves_by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

/// Accepts only packets from `r0` to `r1`, by name.
const BY_NAME: &str = r#"
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established,new iifname "r0" oifname "r1" accept
	}
}
"#;

#[test]
fn ports_that_swap_names_stay_ports_and_rules_match_the_new_names() {
    if !require_root() {
        return;
    }
    for ports in [&[][..], &["r0", "r1"]] {
        let lab = silent_router(BY_NAME);
        // So rarely that no proof stops the flow before the change does.
        let start = Shuntd::on(lab.router()).engine("xdp").config("reprove = \"30s\"");
        let shuntd = ports.iter().fold(start, |start, port| start.port(port)).start();
        let (stage, packet) = Stage::from_lan(&lab);
        stage.teach(&shuntd, &packet);
        let first = lab.router().ifindex("r0");
        let swap = "ip link set r0 name swap && ip link set r1 name r0 && ip link set swap name r1";
        if lab.router().try_run(swap).is_err() {
            return skip("this kernel cannot rename a device that is up");
        }
        stage.react("swapped names", &packet, nothing_leaves);
        let named = |status: &shunt_api::Status| {
            let mut names: Vec<_> = status.ports.iter().map(|port| port.name.clone()).collect();
            names.sort_unstable();
            names == ["r0", "r1"]
        };
        let status = shuntd.wait_until("both devices are ports under their new names", named);
        assert!(epoch_moves(&status, "link") > 0, "{status:#?}");
        assert_eq!(lab.router().ifindex("r1"), first);
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        lab.router().run(swap);
        stage.react("names as before", &packet, leaves_by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}
