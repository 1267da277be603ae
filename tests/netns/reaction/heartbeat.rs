//! How soon all traffic is on the slow path when the daemon hangs or is killed.

use nix::sys::signal::Signal;
use shunt_api::Engine;
use shunt_testkit::{ENGINES, KernelObjects, Stage, Topology, daemon, require_root, rulesets};
use shunt_wire::Packet;
use std::time::{Duration, Instant};

/// Counts the packets of the flow that Linux forwards.
const COUNTED: &str = r"
table inet seen {
	counter slow { }
	chain forward {
		type filter hook forward priority mangle; policy accept;
		udp dport 5000 counter name slow
	}
}
";

fn start() -> (Topology, Stage, Packet) {
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    lab.router().nft(COUNTED);
    (lab, stage, packet)
}

/// Number of packets of the flow that Linux forwarded.
fn slow(lab: &Topology) -> u64 {
    let output = lab.router().run("nft list counter inet seen slow");
    let words: Vec<&str> = output.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "packets").unwrap();
    words[at + 1].parse().unwrap()
}

/// Sends ten packets, none of which may be lost; returns whether Linux forwarded all of them.
#[track_caller]
fn all_slow(lab: &Topology, stage: &Stage, packet: &Packet) -> bool {
    let before = slow(lab);
    for _ in 0..10 {
        stage.pass(packet);
    }
    slow(lab) == before + 10
}

#[test]
fn all_traffic_is_slow_three_seconds_after_the_daemon_hangs() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = start();
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
        // Except for the few proofs, all fast packets came before the slow ones.
        let fast = sent.len() - (slow(&lab) - slow_before - 10) as usize;
        let last = sent[..fast].last();
        eprintln!("last of {fast} fast packets after the daemon hung: {last:?}");
        assert!(last.is_some_and(|after| *after < Duration::from_secs(3)), "last fast packet: {last:?}");
        shuntd.signal(Signal::SIGCONT);
        eprintln!("fast again after the daemon continued: {:?}", stage.teach(&shuntd, &packet));
        let status = shuntd.status();
        assert!(status.reasons.get("no-daemon").is_some_and(|n| *n >= 10), "{status:#?}");
        shuntd.stop();
    }
}

#[test]
fn the_programs_of_a_killed_daemon_are_gone_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = start();
        let mut shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        let held = KernelObjects::held_by(shuntd.pid());
        assert!(!held.links().is_empty());
        assert_eq!(lab.router().run("ip -d link show r0").contains("prog/xdp"), engine == Engine::Xdp);
        shuntd.kill();
        let since = Instant::now();
        stage.pass(&packet);
        assert_eq!(held.not_freed(), None);
        eprintln!("programs detached after SIGKILL: {:?}", since.elapsed());
        assert!(!lab.router().run("ip -d link").contains("prog/xdp"));
        assert!(all_slow(&lab, &stage, &packet));
        let output = shuntd.cleanup();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(shuntd.left_behind(), None);
    }
}
