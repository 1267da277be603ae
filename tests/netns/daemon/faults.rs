//! A daemon that crashed, ports that come, go and change their names, and a full flow table.

use nix::sys::signal::Signal;
use shunt_api::Status;
use shunt_testkit::{
    ENGINES, Shunt, Shuntd, Stage, Topology, offer_xdp_frames, require_root, rulesets, silent, wait_for,
};
use std::{path::PathBuf, time::Duration};

/// A daemon with these ports, or with all that forward.
fn start_daemon(lab: &Topology, ports: &[&str]) -> Shuntd {
    let auto = Shuntd::on(lab.router()).engine("auto");
    ports.iter().fold(auto, |builder, port| builder.port(port)).start()
}

fn names(status: &Status) -> Vec<&str> {
    status.ports.iter().map(|port| port.name.as_str()).collect()
}

#[test]
fn after_a_crash_down_cleans_up_and_up_works_again() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    for leave_the_socket in [true, false] {
        shunt.done("up --engine xdp");
        let status = shunt.status();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(status.pid).unwrap());
        nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
        // The dead daemon's socket may exist for a moment.
        let code = wait_for(Duration::from_secs(5), || shunt.run("status").code.filter(|code| *code == 21));
        assert_eq!(code, Some(21));
        stage.pass(&packet);
        if !leave_the_socket {
            let output = shunt.done("down");
            assert_eq!(output, "not running, nothing left in the kernel\n");
            let files: Vec<_> =
                std::fs::read_dir(shunt.directory()).unwrap().map(|f| f.unwrap().path()).collect();
            let kept = ["log", "history", "savings", "usage"];
            let is_kept = |file: &PathBuf| file.extension().is_some_and(|e| kept.iter().any(|k| e == *k));
            assert!(files.iter().all(is_kept), "{files:?}");
        }
    }
    shunt.done("up --engine tc");
    assert_eq!(shunt.done("down"), "stopped, nothing left in the kernel\n");
}

/// Gives a WAN host whose link was deleted a new one.
fn wire_again(lab: &Topology) {
    let (wan, router) = (lab.wan(), lab.router());
    router.run(&format!(
        "ip link add r1 address {} type veth peer name wan0 address {} netns {}",
        wan.gateway_mac,
        wan.mac,
        wan.ns.name()
    ));
    wan.ns.run("ip link set wan0 up; ethtool -K wan0 gro on; ip address add 198.18.0.2/24 dev wan0");
    router.run("ip link set r1 up; ethtool -K r1 gro on; ip address add 198.18.0.1/24 dev r1");
    let (ip, mac) = (wan.v4, wan.mac);
    router.run(&format!("ip neigh replace {ip} lladdr {mac} dev r1 nud permanent"));
}

#[test]
fn a_port_that_is_removed_and_comes_back_is_a_port_again() {
    if !require_root() {
        return;
    }
    for ports in [&[][..], &["r0", "r1"]] {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let shuntd = start_daemon(&lab, ports);
        stage.teach(&shuntd, &packet);
        lab.router().run("ip link del r1");
        shuntd.wait_until("r1 is not a port", |s| names(s) == ["r0"]);
        wire_again(&lab);
        shuntd.wait_until("r1 is a port again", |s| names(s) == ["r0", "r1"]);
        offer_xdp_frames(&lab, &shuntd, "r1");
        // Taps on the old device receive nothing any more.
        let stage = Stage::new(lab.lan(), &[lab.wan()]);
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_renamed_port_stays_a_port() {
    if !require_root() {
        return;
    }
    for ports in [&[][..], &["r0", "r1"]] {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let shuntd = start_daemon(&lab, ports);
        stage.teach(&shuntd, &packet);
        lab.router()
            .run("ip link set r1 name uplink || { ip link set r1 down && ip link set r1 name uplink; }");
        lab.router().run("ip link set uplink up");
        lab.router().run(&format!(
            "ip neigh replace {} lladdr {} dev uplink nud permanent",
            lab.wan().v4,
            lab.wan().mac
        ));
        shuntd.wait_until("the port has the new name", |s| names(s) == ["r0", "uplink"]);
        stage.teach(&shuntd, &packet);
        assert_eq!(shuntd.flows()[0].directions[0].out_port, "uplink");
        shuntd.stop();
    }
}

/// Number of entries in use in the flow table.
fn used(shuntd: &Shuntd) -> u64 {
    let flows = shuntd.status().flows;
    flows.active + flows.pending + flows.retired
}

#[test]
fn one_host_cannot_fill_the_flow_table() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
        let config = "max_flows = 64\nidle = \"600s\"";
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(config).start();
        let (flooder, victim) = (lab.host("wan2"), lab.lan());
        let flood = Stage::new(flooder, &[victim]);
        for port in 10_000..10_120 {
            let packet = flooder.udp_to(port, victim.at(5000)).payload("one of many, seen often");
            (0..10).for_each(|_| drop(flood.pass(&packet)));
        }
        // A source may use four times as many entries as are free.
        assert!((51..=52).contains(&used(&shuntd)), "{:#?}", shuntd.status());
        assert!(
            shuntd.status().refusals.get("source-share").is_some_and(|n| *n > 50),
            "{:#?}",
            shuntd.status()
        );

        // Few entries are free, so a flow of a few packets does not get one, unless it shares its counter of packets,
        // by the hash of its tuple, with a flow of the flood.
        let stage = Stage::new(victim, &[lab.wan()]);
        let before = used(&shuntd);
        for port in 20_000..20_020 {
            let packet = victim.udp_to(port, lab.wan().at(5000)).payload("seen four times");
            (0..4).for_each(|_| drop(stage.pass(&packet)));
        }
        assert!(used(&shuntd) <= before + 3, "{} before, {:#?}", before, shuntd.status());
        for port in 30_000..30_003 {
            stage.teach(&shuntd, &victim.udp_to(port, lab.wan().at(5000)).payload("a flow of its own"));
        }
        shuntd.stop();
    }
}

#[test]
fn flows_that_find_the_table_full_stay_slow() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let config = "max_flows = 64\nidle = \"1s\"";
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(config).start();
        for port in 10_000..10_250 {
            let packet = lab.lan().udp_to(port, lab.wan().at(5000)).payload("one of many");
            for _ in 0..9 {
                stage.pass(&packet);
            }
        }
        let status = shuntd.status();
        assert!(status.refusals.get("source-share").is_some_and(|n| *n > 100), "{status:#?}");
        let flows = status.flows;
        assert!(flows.active + flows.pending + flows.retired <= 64, "{flows:?}");
        assert!(status.packets.fast > 0);
        // Idle entries are freed.
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}
