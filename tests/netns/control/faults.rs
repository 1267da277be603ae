//! A daemon that hangs or is killed, and ports that come, go and change their names.

use crate::{ENGINES, OPEN, Stage, daemon, engine_of, silent, undone::Held};
use nix::sys::signal::Signal;
use shunt_api::{Engine, Status};
use shunt_testkit::{Shunt, Shuntd, Topology, require_root, wait_for};
use shunt_wire::Packet;
use std::time::{Duration, Instant};

/// Counts the packets of the tests' flow that Linux forwards.
const COUNTED: &str = r"
table inet seen {
	counter slow { }
	chain forward {
		type filter hook forward priority mangle; policy accept;
		udp dport 5000 counter name slow
	}
}
";

/// With these ports; without any, with those that forwarding uses.
fn daemon_of(lab: &Topology, ports: &[&str]) -> Shuntd {
    let auto = Shuntd::on(lab.router()).engine("auto");
    ports.iter().fold(auto, |builder, port| builder.port(port)).start()
}

fn start(topology: Topology) -> (Topology, Stage, Packet) {
    let lab = silent(topology, OPEN);
    lab.router().nft(COUNTED);
    let (stage, packet) = Stage::from_lan(&lab);
    (lab, stage, packet)
}

/// How many packets of the flow Linux has forwarded.
fn slow(lab: &Topology) -> u64 {
    let said = lab.router().run("nft list counter inet seen slow");
    let words: Vec<&str> = said.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "packets").unwrap();
    words[at + 1].parse().unwrap()
}

/// Sends packets, none of which may be lost; whether Linux has forwarded all of them.
#[track_caller]
fn all_slow(lab: &Topology, stage: &Stage, packet: &Packet) -> bool {
    let before = slow(lab);
    for _ in 0..10 {
        stage.pass(packet);
    }
    slow(lab) == before + 10
}

fn names(status: &Status) -> Vec<&str> {
    status.ports.iter().map(|port| port.name.as_str()).collect()
}

#[test]
fn a_daemon_that_hangs_leaves_everything_to_linux_within_three_seconds() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = start(Topology::two_hosts_and_a_router());
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        assert!(!all_slow(&lab, &stage, &packet));
        let slow_before = slow(&lab);
        shuntd.signal(Signal::SIGSTOP);
        let since = Instant::now();
        let mut sent = Vec::new();
        while since.elapsed() < Duration::from_millis(3500) {
            sent.push(since.elapsed());
            stage.pass(&packet);
        }
        assert!(all_slow(&lab, &stage, &packet));
        // Those that were fast came first, but for proofs, which are few.
        let fast = sent.len() - (slow(&lab) - slow_before - 10) as usize;
        let last = sent[..fast].last();
        eprintln!("the last of {fast} fast packets after a hang: {last:?}");
        assert!(last.is_some_and(|after| *after < Duration::from_secs(3)), "{last:?}");
        shuntd.signal(Signal::SIGCONT);
        eprintln!("fast again after a hang: {:?}", stage.teach(&shuntd, &packet));
        let status = shuntd.status();
        assert!(status.reasons.get("no-daemon").is_some_and(|n| *n >= 10), "{status:#?}");
        shuntd.stop();
    }
}

#[test]
fn a_daemon_that_is_killed_takes_its_programs_along() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = start(Topology::two_hosts_and_a_router());
        let mut shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        let held = Held::by(shuntd.pid());
        assert!(held.has_links());
        assert_eq!(lab.router().run("ip -d link show r0").contains("prog/xdp"), engine == Engine::Xdp);
        shuntd.kill();
        let since = Instant::now();
        stage.pass(&packet);
        assert_eq!(held.left(), None);
        eprintln!("programs gone after SIGKILL: {:?}", since.elapsed());
        assert!(!lab.router().run("ip -d link").contains("prog/xdp"));
        assert!(all_slow(&lab, &stage, &packet));
        let said = shuntd.cleanup();
        assert!(said.status.success(), "{said:?}");
        assert_eq!(shuntd.left_behind(), None);
    }
}

#[test]
fn after_a_crash_down_says_so_and_up_works_again() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = start(Topology::two_hosts_and_a_router());
    let shunt = Shunt::on(lab.router());
    for leave_the_socket in [true, false] {
        shunt.done("up --engine xdp");
        let status: Status = serde_json::from_str(&shunt.done("status --json")).unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(status.pid).unwrap());
        nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
        // Its socket may take a moment to be a dead one.
        let code = wait_for(Duration::from_secs(5), || shunt.run("status").code.filter(|code| *code == 21));
        assert_eq!(code, Some(21));
        stage.pass(&packet);
        if !leave_the_socket {
            let said = shunt.done("down");
            assert_eq!(said, "not running, nothing left behind\n");
            let files: Vec<_> =
                std::fs::read_dir(shunt.directory()).unwrap().map(|f| f.unwrap().path()).collect();
            assert!(files.iter().all(|file| file.extension().is_some_and(|e| e == "log")), "{files:?}");
        }
    }
    shunt.done("up --engine tc");
    assert_eq!(shunt.done("down"), "stopped, nothing left behind\n");
}

/// Wires a WAN host that has lost its port, as at first.
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
fn a_port_that_is_unplugged_and_comes_back_is_a_port_again() {
    if !require_root() {
        return;
    }
    for ports in [&[][..], &["r0", "r1"]] {
        let (lab, stage, packet) = start(Topology::two_hosts_and_a_router());
        let shuntd = daemon_of(&lab, ports);
        stage.teach(&shuntd, &packet);
        lab.router().run("ip link del r1");
        shuntd.wait_until("r1 is no port", |s| names(s) == ["r0"]);
        wire_again(&lab);
        shuntd.wait_until("r1 is a port again", |s| {
            names(s) == ["r0", "r1"] && engine_of(s, "r1") == Engine::Xdp
        });
        // Those that watched the old device see nothing more.
        let stage = Stage::new(lab.lan(), &[lab.wan()]);
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_port_under_another_name_stays_a_port() {
    if !require_root() {
        return;
    }
    for ports in [&[][..], &["r0", "r1"]] {
        let (lab, stage, packet) = start(Topology::two_hosts_and_a_router());
        let shuntd = daemon_of(&lab, ports);
        stage.teach(&shuntd, &packet);
        lab.router()
            .run("ip link set r1 name uplink || { ip link set r1 down && ip link set r1 name uplink; }");
        lab.router().run("ip link set uplink up");
        lab.router().run(&format!(
            "ip neigh replace {} lladdr {} dev uplink nud permanent",
            lab.wan().v4,
            lab.wan().mac
        ));
        shuntd.wait_until("it has the new name", |s| names(s) == ["r0", "uplink"]);
        stage.teach(&shuntd, &packet);
        assert_eq!(shuntd.flows()[0].directions[0].out_port, "uplink");
        shuntd.stop();
    }
}

#[test]
fn what_finds_the_table_full_goes_by_linux() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = start(Topology::two_hosts_and_a_router());
        let config = "max_flows = 64\nidle = \"1s\"";
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(config).start();
        for port in 10_000..10_500 {
            let packet = lab.lan().udp_to(port, lab.wan().at(5000)).payload("one of many");
            for _ in 0..4 {
                stage.pass(&packet);
            }
        }
        let status = shuntd.status();
        assert!(status.refusals.get("table-full").is_some_and(|n| *n > 100), "{status:#?}");
        let flows = status.flows;
        assert!(flows.active + flows.pending + flows.retired <= 64, "{flows:?}");
        assert!(status.packets.fast > 0);
        // What is idle makes room.
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}
