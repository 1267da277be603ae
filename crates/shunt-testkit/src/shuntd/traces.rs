//! What a daemon leaves in a namespace.

use shunt_bpf::attach::{Hook, tcx_programs};
use std::{fs::File, path::Path, process::Command, thread};

/// What is there of a daemon.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Traces {
    /// `shunt_*` programs on the TCX hooks, by device.
    programs: Vec<String>,
    /// Devices with an XDP program.
    xdp: Vec<String>,
    /// clsact qdiscs and their filters.
    clsact: String,
}

impl Traces {
    pub(super) fn of(netns: &str) -> Self {
        let say = |line: &str| {
            let output = Command::new("sh").args(["-c", &format!("ip netns exec {netns} {line}")]).output();
            output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
        };
        let links = say("ip -o link");
        let xdp = links.lines().filter(|line| line.contains(" xdp")).map(str::to_owned).collect();
        let clsact = say("tc qdisc show")
            .lines()
            .filter(|line| line.contains("clsact"))
            .collect::<Vec<_>>()
            .join("\n");
        Self { programs: programs(netns), xdp, clsact }
    }
}

/// Our programs on TCX hooks of a namespace.
fn programs(netns: &str) -> Vec<String> {
    let path = Path::new("/run/netns").join(netns);
    let look = || {
        // A namespace that is gone holds nothing.
        let file = File::open(&path).ok()?;
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).ok()?;
        let mut found = Vec::new();
        for link in nix::net::if_::if_nameindex().ok()?.iter() {
            for hook in [Hook::Ingress, Hook::Egress] {
                let ours =
                    tcx_programs(link.index(), hook).into_iter().filter(|name| name.starts_with("shunt_"));
                found.extend(ours.map(|name| format!("{:?}: {name}", link.name())));
            }
        }
        Some(found)
    };
    thread::scope(|scope| scope.spawn(look).join()).ok().flatten().unwrap_or_default()
}
