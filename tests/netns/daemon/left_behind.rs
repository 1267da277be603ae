//! `shunt up` and `shunt down` leave programs, maps, qdiscs, links, sysctls and files as they were.

use shunt_api::Status;
use shunt_testkit::{KernelObjects, NetNs, Shunt, Stage, require_root, rulesets, silent_router};
use std::fs;

/// The settings of a namespace that Shunt could leave changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    qdiscs: String,
    links: String,
    sysctls: String,
    pins: String,
}

impl Settings {
    #[track_caller]
    pub(crate) fn read(netns: &NetNs) -> Self {
        // Leave out counters, which are no settings.
        let sysctls = "sysctl -a -r '^net' 2>/dev/null | grep -vE '_count |nf_conntrack_buckets|nf_log'";
        Self {
            qdiscs: netns.run("tc qdisc show; for d in $(ls /sys/class/net); do tc filter show dev $d; done"),
            links: netns.run("ip -d -o link"),
            sysctls: netns.run(sysctls),
            pins: netns
                .run("find /sys/fs/bpf -iname '*shunt*'; find /run -maxdepth 2 -path '*shunt/c[0-9]*'"),
        }
    }
}

#[test]
fn up_and_down_leave_everything_as_it_was() {
    if require_root() {
        up_and_down(9);
    }
}

#[test]
#[ignore = "takes a minute; the short form runs the same code"]
fn fifty_times_up_and_down_leave_everything_as_it_was() {
    if require_root() {
        up_and_down(50);
    }
}

#[track_caller]
fn up_and_down(times: usize) {
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let (stage, packet) = Stage::from_lan(&lab);
    let shunt = Shunt::on(lab.router());
    stage.pass(&packet);
    let before = Settings::read(lab.router());
    let mut held = KernelObjects::default();
    for round in 0..times {
        let engine = ["auto", "tc", "xdp"][round % 3];
        let output = shunt.done(&format!("up --engine {engine} --json"));
        let status: Status = serde_json::from_str(&output).unwrap();
        held.extend(KernelObjects::held_by(status.pid));
        for _ in 0..4 {
            stage.pass(&packet);
        }
        shunt.done("down");
    }
    assert!(!held.links().is_empty());
    assert_eq!(held.not_freed(), None);
    assert_eq!(Settings::read(lab.router()), before);
    let mut files: Vec<_> = fs::read_dir(shunt.directory())
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    // The directory of state is the same in tests.
    let kept = ["history", "log", "savings", "usage"].map(|end| format!("{}.{end}", shunt.instance()));
    assert_eq!(files, kept, "only the log and what is kept for the next start are left");
}
