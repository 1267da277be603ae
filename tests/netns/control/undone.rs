//! What a daemon holds in the kernel, and that all of it goes.

use crate::{Stage, silent};
use shunt_api::Status;
use shunt_testkit::{NetNs, Shunt, Topology, require_root, rulesets, wait_for};
use std::{collections::BTreeSet, fs, process::Command, time::Duration};

/// Programs, maps and links by kind and id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held(BTreeSet<(&'static str, u32)>);

impl Held {
    /// What a process has open.
    #[track_caller]
    pub(crate) fn by(pid: u32) -> Self {
        let mut held = Self::default();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
            // One that was closed meanwhile is not held.
            let said = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            for line in said.lines() {
                for (field, kind) in [("prog_id:", "prog"), ("map_id:", "map"), ("link_id:", "link")] {
                    if let Some(id) = line.strip_prefix(field) {
                        held.0.insert((kind, id.trim().parse().unwrap()));
                    }
                }
            }
        }
        for kind in ["prog", "map"] {
            assert!(held.0.iter().any(|(k, _)| *k == kind), "a daemon without a {kind}: {held:?}");
        }
        held
    }

    /// Whether it holds links.
    pub(crate) fn has_links(&self) -> bool {
        self.0.iter().any(|(kind, _)| *kind == "link")
    }

    /// Waits until the kernel has let go of all of it; what is left otherwise.
    pub(crate) fn left(&self) -> Option<Self> {
        let mut left = self.clone();
        let gone = wait_for(Duration::from_secs(5), || {
            left.0.retain(|(kind, id)| {
                let shown =
                    Command::new("bpftool").args([kind, "show", "id", &id.to_string()]).output().unwrap();
                shown.status.success()
            });
            left.0.is_empty().then_some(())
        });
        gone.is_none().then_some(left)
    }

    fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// Everything else that Shunt might leave different.
#[derive(Debug, PartialEq, Eq)]
struct World {
    qdiscs: String,
    links: String,
    sysctls: String,
    pins: String,
}

impl World {
    #[track_caller]
    fn of(netns: &NetNs) -> Self {
        // Counts of what is there now are no settings.
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
fn fifty_times_up_and_down_leave_everything_as_it_was() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
    let (stage, packet) = Stage::from_lan(&lab);
    let shunt = Shunt::on(lab.router());
    stage.pass(&packet);
    let before = World::of(lab.router());
    let mut held = Held::default();
    for round in 0..50 {
        let engine = ["auto", "tc", "xdp"][round % 3];
        let said = shunt.done(&format!("up --engine {engine} --json"));
        let status: Status = serde_json::from_str(&said).unwrap();
        held.join(Held::by(status.pid));
        for _ in 0..4 {
            stage.pass(&packet);
        }
        shunt.done("down");
    }
    assert!(held.has_links());
    assert_eq!(held.left(), None);
    assert_eq!(World::of(lab.router()), before);
    let files: Vec<_> = fs::read_dir(shunt.directory()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(files, [format!("{}.log", shunt.instance()).as_str()], "nothing but what it said");
}
