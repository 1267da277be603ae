//! A router with two ports and a tunnel.

use super::status;
use shunt_api::{Attach, DeviceReport, DryRun, Engine, PlannedPort, Probe, ProbeAnswer, ProbeReport};

fn port(name: &str, ifindex: u32, engine: Engine, reason: &str) -> PlannedPort {
    PlannedPort {
        name: name.to_owned(),
        ifindex,
        engine,
        engine_reason: reason.to_owned(),
        attach: Attach::Tcx,
        xdp_attached: engine == Engine::Xdp,
        captured: false,
        filters: Vec::new(),
    }
}

fn ports() -> [PlannedPort; 2] {
    [
        port("eth0", 3, Engine::Xdp, "native XDP, and no qdisc that shapes or classifies"),
        port("enp1s0f1", 4, Engine::Tc, "its qdisc cake is in use, which XDP would bypass"),
    ]
}

pub(crate) fn dry_run() -> DryRun {
    let status = status();
    DryRun {
        version: status.version,
        instance: status.instance,
        ports: ports().into(),
        slow_causes: status.slow_causes,
        ruleset: status.ruleset,
        kernel: status.kernel,
    }
}

pub(crate) fn probe_report() -> ProbeReport {
    let DryRun { version, slow_causes, ruleset, kernel, .. } = dry_run();
    let probe =
        |name: &str, answer, detail: &str| Probe { name: name.to_owned(), answer, detail: detail.to_owned() };
    let device = |name: &str, ifindex, kind: Option<&str>, xdp, qdiscs: &[&str]| DeviceReport {
        name: name.to_owned(),
        ifindex,
        kind: kind.map(str::to_owned),
        up: true,
        xdp_native: xdp,
        xdp_target: xdp.map(|_| false),
        qdiscs: qdiscs.iter().map(|kind| (*kind).to_owned()).collect(),
        port: ports().into_iter().find(|port| port.name == name),
        no_port: kind.map(|_| "not an Ethernet device".to_owned()),
    };
    ProbeReport {
        version,
        kernel_release: "6.6.3".to_owned(),
        obstacles: Vec::new(),
        kernel,
        router: vec![
            probe("IPv4 forwarding", ProbeAnswer::Yes, ""),
            probe("IPv6 forwarding", ProbeAnswer::No, "sysctl net.ipv6.conf.all.forwarding=1 turns it on"),
        ],
        devices: vec![
            device("eth0", 3, None, Some(true), &["fq_codel", "mq"]),
            device("enp1s0f1", 4, None, None, &["cake"]),
            device("tun0", 5, Some("tun"), Some(false), &[]),
        ],
        slow_causes,
        ruleset,
        gain: vec!["packets that leave through eth0 cost less".to_owned()],
    }
}
