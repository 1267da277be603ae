//! Objects of a daemon in a namespace.

use shunt_bpf::attach::{Hook, tcx_programs};
use std::{fs::File, path::Path, process::Command, thread};

/// The objects that a daemon could leave behind.
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
    pub(super) fn find(netns: &str) -> Self {
        let output_of = |line: &str| {
            let output = Command::new("sh").args(["-c", &format!("ip netns exec {netns} {line}")]).output();
            output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
        };
        let links = output_of("ip -o link");
        let xdp = links.lines().filter(|line| line.contains(" xdp")).map(str::to_owned).collect();
        let clsact = output_of("tc qdisc show")
            .lines()
            .filter(|line| line.contains("clsact"))
            .collect::<Vec<_>>()
            .join("\n");
        Self { programs: programs(netns), xdp, clsact }
    }
}

/// Shunt's programs on the TCX hooks of a namespace.
fn programs(netns: &str) -> Vec<String> {
    let path = Path::new("/run/netns").join(netns);
    let find = || {
        // A namespace that was deleted has no programs.
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
    thread::scope(|scope| scope.spawn(find).join()).ok().flatten().unwrap_or_default()
}
