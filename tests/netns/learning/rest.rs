//! Without flows, ports keep only the hooks that look for something to learn. All come back for the first connection.

use shunt_api::{Engine, Status};
use shunt_bpf::attach::{Hook, tcx_programs};
use shunt_testkit::{
    ENGINES, SELDOM_PROVED, Shunt, Shuntd, Stage, Topology, daemon_with, require_root, rulesets, wait_until,
};

/// Holds learning of all traffic, because the rule must see every packet.
const LIMITED: &str = r"
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy accept;
		limit rate over 1000000/second drop
	}
}
";

fn start(lab: &Topology, engine: Engine, more: &str) -> Shuntd {
    daemon_with(lab, engine, &format!("{SELDOM_PROVED}\nrest_after = \"1s\"\n{more}"))
}

fn rests(status: &Status) -> bool {
    status.ports.len() == 2 && status.ports.iter().all(|port| port.rests && !port.xdp_attached)
}

/// The tc programs of the ports, on ingress and egress.
fn programs(lab: &Topology) -> [[Vec<String>; 2]; 2] {
    let router = lab.router();
    ["r0", "r1"].map(|port| {
        let ifindex = router.ifindex(port);
        router.within(|| [Hook::Ingress, Hook::Egress].map(|hook| tcx_programs(ifindex, hook)))
    })
}

fn names(ingress: &str, egress: &[&str]) -> [[Vec<String>; 2]; 2] {
    let port = || [vec![ingress.to_owned()], egress.iter().map(|name| (*name).to_owned()).collect()];
    [port(), port()]
}

/// Each packet that came in by r0, but for those to groups: the hosts report theirs (MLD) when they like.
fn counted(status: &Status) -> u64 {
    let port = status.ports.iter().find(|port| port.name == "r0").unwrap();
    port.packets.all() - port.reasons.get("not-ours").unwrap_or(&0)
}

#[test]
fn hooks_go_without_flows_and_come_back_with_the_first_connection() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::HOME_GATEWAY);
        let shuntd = start(&lab, engine, "idle = \"1s\"");
        let (usual, at_rest) = (names("shunt_in", &["shunt_out"]), names("shunt_in_rest", &[]));
        let has_xdp = |status: &Status| status.ports.iter().all(|port| port.xdp_attached);
        assert_eq!(programs(&lab), usual);
        let mut sent = 0;
        for round in 0..3 {
            shuntd.wait_until("it rests", rests);
            assert_eq!(programs(&lab), at_rest, "{engine}");
            // A tuple of its own for each round: an earlier one has been counted already.
            let packet = packet.clone().with_source(lab.lan().at(4100 + round));
            stage.pass(&packet);
            sent += 1;
            assert!(rests(&shuntd.status()), "{engine}: one packet teaches nothing");
            let fast = shuntd.status().packets.fast;
            wait_until("a packet is fast", || {
                let seen = stage.pass(&packet);
                assert_eq!(seen.hop_limit(), Some(63));
                sent += 1;
                shuntd.status().packets.fast > fast
            });
            assert_eq!(programs(&lab), usual, "{engine}");
            shuntd.wait_until("the engine has its program", |status| {
                (engine == Engine::Xdp) == has_xdp(status)
            });
            let status = shuntd.status();
            assert_eq!(counted(&status), sent, "{engine}: each packet is counted once: {:#?}", status.ports);
        }
        shuntd.stop();
    }
}

#[test]
fn traffic_that_no_flow_may_carry_ends_no_rest() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(LIMITED);
        let shuntd = start(&lab, engine, "");
        shuntd.wait_until("it rests", rests);
        stage.never_fast(&shuntd, &packet, |left| left[0].len() == 1);
        let status = shuntd.status();
        assert!(rests(&status), "{engine}: {status:#?}");
        assert!(status.reasons.get("ruleset").is_some_and(|packets| *packets > 30), "{status:#?}");
        // The rule goes, and the next packet wakes the data plane.
        lab.router().nft(&format!("delete table inet filter\n{}", rulesets::OPEN));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_daemon_at_rest_hands_over() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let shunt = Shunt::on(lab.router());
        shunt.file("shunt.toml", "rest_after = \"1s\"\n");
        let config = shunt.directory().join("shunt.toml");
        shunt.done(&format!("up --engine {engine} --config {}", config.display()));
        let status = || shunt.status();
        for _ in 0..2 {
            wait_until("it rests", || rests(&status()));
            let text = shunt.done("restart");
            assert!(text.contains("flows were handed over") || text.contains("taken over"), "{text}");
            let fast = status().packets.fast;
            wait_until("a packet is fast", || {
                stage.pass(&packet);
                status().packets.fast > fast
            });
            assert_eq!(programs(&lab), names("shunt_in", &["shunt_out"]), "{engine}");
            shunt.done("flush");
        }
        shunt.done("down");
    }
}
