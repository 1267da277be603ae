//! The state of a router with two ports. Each number occurs once, so that a test can find it in the text.

use crate::commands::flows::sample::mac;
use shunt_api::{
    Attach, ByteTotals, Engine, Family, FilterHook, FlowCounts, LongestStep, PacketTotals, PortFilter,
    PortPackets, PortStatus, Probe, ProbeAnswer, RuleNote, RulesetStatus, SlowCause, Status, TopReason,
    UnstableStation,
};
use shunt_wire::Mac;
use std::collections::BTreeMap;

fn counts(named: &[(&str, u64)]) -> BTreeMap<String, u64> {
    named.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn filter(device: &str, hook: FilterHook, kind: &str, program: Option<&str>) -> PortFilter {
    let [device, kind] = [device, kind].map(str::to_owned);
    PortFilter { device, hook, kind, program: program.map(str::to_owned) }
}

fn note([family, table, chain]: [&str; 3], handle: u64, statement: &str, rules: u64) -> RuleNote {
    let [family, table, chain, statement] = [family, table, chain, statement].map(str::to_owned);
    RuleNote { family, table, chain, handle, statement, rules, ..RuleNote::default() }
}

pub(crate) fn status() -> Status {
    let lan = PortStatus {
        name: "eth0".to_owned(),
        ifindex: 3,
        engine: Engine::Xdp,
        engine_reason: "the driver redirects natively and no qdisc shapes here".to_owned(),
        af_xdp_mode: None,
        attach: Attach::Tcx,
        captured: false,
        filters: vec![
            filter("br0", FilterHook::Ingress, "flower", None),
            filter("eth0", FilterHook::Egress, "tcx", Some("pacer")),
            filter("br0", FilterHook::Qdisc, "cake", None),
        ],
        xdp_attached: true,
        up: true,
        mtu: 1500,
        mac: mac(0x10),
        packets: PortPackets { xdp: 1_000_001, tc: 1002, external: 0, slow: 1003, dropped: 14 },
        bytes: ByteTotals { fast: 100_000_005, slow: 100_006, fast_share: 0.999 },
        reasons: counts(&[("miss", 1007), ("reprove", 1008)]),
        refusals: counts(&[("unconfirmed", 1009)]),
        drops: BTreeMap::new(),
    };
    let wan = PortStatus {
        name: "enp1s0f1".to_owned(),
        ifindex: 4,
        engine: Engine::Tc,
        engine_reason: "its root qdisc is cake, which shapes".to_owned(),
        af_xdp_mode: None,
        attach: Attach::Clsact,
        captured: true,
        filters: Vec::new(),
        xdp_attached: false,
        up: false,
        mtu: 9000,
        mac: mac(0x11),
        packets: PortPackets { xdp: 0, tc: 2_000_002, external: 0, slow: 2003, dropped: 24 },
        bytes: ByteTotals { fast: 200_000_005, slow: 200_006, fast_share: 0.999 },
        reasons: counts(&[("ttl", 2007)]),
        refusals: BTreeMap::new(),
        drops: BTreeMap::new(),
    };
    let probe =
        |name: &str, answer, detail: &str| Probe { name: name.to_owned(), answer, detail: detail.to_owned() };
    let top = |reason: &str, packets, meaning: &str| TopReason {
        reason: reason.to_owned(),
        packets,
        meaning: meaning.to_owned(),
        remedy: "nothing to do".to_owned(),
    };
    Status {
        version: "0.1.0".to_owned(),
        api: 1,
        instance: "default".to_owned(),
        pid: 4242,
        uptime_s: 93_784,
        epoch: 77,
        epoch_moves: counts(&[("link", 12), ("ruleset", 65)]),
        ports: vec![lan, wan],
        packets: PacketTotals { fast: 3_001_005, slow: 3006, dropped: 38, fast_share: 0.999 },
        bytes: ByteTotals { fast: 300_000_010, slow: 300_012, fast_share: 0.998 },
        flows: FlowCounts { active: 501, pending: 52, retired: 53, static_: 54, max: 65_536 },
        learned: 5501,
        proved: 5502,
        retired: 5503,
        counts_lost: 12,
        log_lines_lost: 0,
        reasons: counts(&[("miss", 1007), ("reprove", 1008), ("ttl", 2007)]),
        refusals: counts(&[("unconfirmed", 1009)]),
        drops: BTreeMap::new(),
        slow_causes: vec![SlowCause {
            what: "tun0 is a tun device, which cannot be a port: packets that enter or leave through it stay slow"
                .to_owned(),
            remedy: "nothing to do: traffic between the ports can be fast".to_owned(),
        }],
        top_reasons: vec![
            top("ttl", 2007, "its packets arrive with a TTL of 1"),
            top("reprove", 1008, "one packet is to prove the action again"),
        ],
        ruleset: RulesetStatus {
            held: vec![Family::V4],
            unread: None,
            stops: vec![
                note(["ip", "fw", "forward"], 12, "queue", 1),
                RuleNote { legacy: true, ..note(["ip", "mangle", "FORWARD"], 2, "NFQUEUE", 1) },
            ],
            bypassed: vec![
                note(["inet", "fw", "forward"], 13, "counter", 211),
                note(["inet", "fw", "forward"], 14, "limit", 2),
                note(["inet", "fw", "mangle"], 15, "quota", 1),
                RuleNote { legacy: true, ..note(["ip", "filter", "FORWARD"], 16, "hashlimit", 1) },
                note(["ip6", "filter", "FORWARD"], 17, "LOG", 1),
            ],
            ..RulesetStatus::default()
        },
        kernel: vec![
            probe("tcx", ProbeAnswer::Yes, ""),
            probe("conntrack-lookup", ProbeAnswer::No, "CONFIG_NF_CONNTRACK is not set"),
            probe("xdp-frags", ProbeAnswer::Unknown, "eth0: EPERM"),
        ],
        unstable_stations: vec![UnstableStation {
            mac: Mac([2, 0, 0, 0, 1, 0x99]),
            addresses: vec!["192.168.1.7".parse().unwrap()],
            changes: 3,
        }],
        longest_step: Some(LongestStep { name: "tick".to_owned(), seconds: 0.0123, cpu_seconds: 0.001 }),
    }
}
