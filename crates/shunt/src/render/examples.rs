//! Fixed values for tests of rendering. Each number occurs once, so that a test can identify it in the text.

mod benches;
mod campaign;
mod compare;
mod generate;
pub(crate) mod goodput;
mod inspect;
mod latency;
mod preview;
mod report;
mod top;

use super::HostTotal;
pub(crate) use benches::{concurrent, sizes, sweep};
pub(crate) use campaign::campaign;
pub(crate) use compare::comparison;
pub(crate) use generate::traffic;
pub(crate) use inspect::{checks, diagnoses, link, register, traced};
pub(crate) use latency::latency;
pub(crate) use preview::{dry_run, probe_report};
pub(crate) use report::{report, result_file};
use shunt_api::{
    Attach, Because, ByteTotals, Connection, Direction, DirectionName, Engine, Explained, Explanation,
    Family, FilterHook, FlowCounts, FlowEvent, FlowState, LongestStep, PacketTotals, PortFilter, PortPackets,
    PortStatus, Probe, ProbeAnswer, Proto, RuleNote, RulesetStatus, SlowCause, StaticTable, Status,
    TopReason, Tuple, UnstableStation, WatchEvent, Why,
};
use shunt_lab::{
    Conditions, Doubt,
    load::{Calibration, CpuLoad, Load, SelfTest, SelfTestStep, StatShares},
};
use shunt_wire::Mac;
use std::collections::BTreeMap;
pub(crate) use top::top;

const fn mac(last: u8) -> Mac {
    Mac([0x02, 0, 0, 0, 0, last])
}

fn tuple(src: &str, dst: &str) -> Tuple {
    Tuple::new(src.parse().unwrap(), dst.parse().unwrap())
}

fn counts(named: &[(&str, u64)]) -> BTreeMap<String, u64> {
    named.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// A masqueraded TCP connection from a VLAN, with both directions on the fast path by different engines.
pub(crate) fn tcp() -> Connection {
    let orig = Direction {
        dir: DirectionName::Orig,
        in_port: "eth0".to_owned(),
        in_vlans: vec![5],
        tuple: tuple("192.168.1.2:40000", "198.18.0.2:443"),
        out_port: "eth1".to_owned(),
        out_vlans: Vec::new(),
        new: tuple("203.0.113.1:40001", "198.18.0.2:443"),
        in_dmac: mac(0x10),
        out_smac: mac(0x11),
        out_dmac: mac(0x21),
        mark: 0x2a,
        priority: 0x1_0010,
        max_l3_bytes: 1500,
        state: FlowState::Active,
        engine: Engine::Xdp,
        packets: 1001,
        bytes: 1_002_003,
        rate_bps: 9_500_000,
        rate_pps: 812,
        age_s: 3725,
        idle_s: 0,
    };
    let reply = Direction {
        dir: DirectionName::Reply,
        in_port: "eth1".to_owned(),
        in_vlans: Vec::new(),
        tuple: tuple("198.18.0.2:443", "203.0.113.1:40001"),
        out_port: "eth0".to_owned(),
        out_vlans: vec![5],
        new: tuple("198.18.0.2:443", "192.168.1.2:40000"),
        in_dmac: mac(0x11),
        out_smac: mac(0x10),
        out_dmac: mac(0x20),
        mark: 0,
        priority: 0,
        max_l3_bytes: 1492,
        state: FlowState::Stale,
        engine: Engine::Tc,
        packets: 2003,
        bytes: 2_004_005,
        rate_bps: 941_000_000,
        rate_pps: 81_234,
        age_s: 3724,
        idle_s: 1,
    };
    Connection {
        family: Family::V4,
        proto: Proto::Tcp,
        orig: orig.tuple,
        reply: reply.tuple,
        state: FlowState::Active,
        engine: Engine::Xdp,
        packets: 3004,
        bytes: 3_006_008,
        rate_bps: 950_500_000,
        rate_pps: 82_046,
        age_s: 3726,
        idle_s: 2,
        directions: vec![orig, reply],
    }
}

/// An untranslated UDP connection that leaves with QinQ tags. Only one direction has a flow, and it is not yet in use.
pub(crate) fn udp6() -> Connection {
    let orig = Direction {
        dir: DirectionName::Orig,
        in_port: "eth0".to_owned(),
        in_vlans: Vec::new(),
        tuple: tuple("[2001:db8:1::2]:5000", "[2001:db8:2::9]:5004"),
        out_port: "eth1".to_owned(),
        out_vlans: vec![100, 7],
        new: tuple("[2001:db8:1::2]:5000", "[2001:db8:2::9]:5004"),
        in_dmac: mac(0x10),
        out_smac: mac(0x11),
        out_dmac: mac(0x22),
        mark: 0,
        priority: 6,
        max_l3_bytes: 1280,
        state: FlowState::Pending,
        engine: Engine::Tc,
        packets: 17,
        bytes: 4711,
        rate_bps: 0,
        rate_pps: 0,
        age_s: 3,
        idle_s: 4,
    };
    let Direction { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s, .. } = orig;
    Connection {
        family: Family::V6,
        proto: Proto::Udp,
        orig: orig.tuple,
        reply: tuple("[2001:db8:2::9]:5004", "[2001:db8:1::2]:5000"),
        state,
        engine,
        packets,
        bytes,
        rate_bps,
        rate_pps,
        age_s,
        idle_s,
        directions: vec![orig],
    }
}

/// A host with a name, and one without.
pub(crate) fn hosts() -> Vec<HostTotal> {
    let host =
        |addr: &str, name: Option<&str>| HostTotal::new(addr.parse().unwrap(), name.map(str::to_owned));
    let laptop = HostTotal {
        connections: 21,
        packets: 30_041,
        sent_bytes: 10_020_031,
        received_bytes: 20_040_051,
        rate_pps: 82_047,
        sent_bps: 9_510_000,
        received_bps: 942_000_000,
        age_s: 3727,
        idle_s: 3,
        ..host("192.168.1.2", Some("laptop"))
    };
    let other = HostTotal {
        connections: 22,
        packets: 18,
        sent_bytes: 4712,
        received_bytes: 5813,
        rate_pps: 814,
        sent_bps: 61_000,
        received_bps: 0,
        age_s: 5,
        idle_s: 1,
        ..host("2001:db8:1::2", None)
    };
    vec![laptop, other]
}

pub(crate) fn connections() -> Vec<Connection> {
    vec![tcp(), udp6()]
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

pub(crate) fn statics() -> StaticTable {
    StaticTable::parse(
        r#"
        [[route]]
        name = "wan"
        out_port = "eth1"
        dmac = "02:00:00:00:00:21"
        vlans = [100, 7]
        [[flow]]
        in_port = "eth0"
        in_vlans = [5]
        proto = "udp"
        src = "192.0.2.1"
        sport = 5000
        dst = "198.51.100.1"
        dport = 53
        dmac = "02:00:00:00:00:10"
        snat = "203.0.113.1:6000"
        route = "wan"
        mark = 42
        priority = 65552
        mtu = 1400
        [[flow]]
        in_port = "eth1"
        proto = "tcp"
        src = "2001:db8::1"
        sport = 80
        dst = "2001:db8::2"
        dport = 40000
        dnat = "[2001:db8:1::2]:40001"
        route = { out_port = "eth0", dmac = "02:00:00:00:00:20", smac = "02:00:00:00:00:11" }
        "#,
    )
    .unwrap()
}

pub(crate) fn events() -> Vec<WatchEvent> {
    let flow = |at_us, reason: Option<&str>| FlowEvent {
        at_us,
        proto: Proto::Tcp,
        tuple: tcp().orig,
        port: "eth0".to_owned(),
        vlans: vec![5],
        reason: reason.map(str::to_owned),
    };
    vec![
        WatchEvent::Learn(flow(1_700_000_000_000_001, None)),
        WatchEvent::Activate(flow(1_700_000_000_000_002, None)),
        WatchEvent::Punt(flow(1_700_000_000_100_003, Some("reprove"))),
        WatchEvent::Refuse(flow(1_700_000_001_000_004, Some("not-proved"))),
        WatchEvent::Retire(flow(1_700_000_060_000_005, Some("tcp-flags"))),
        WatchEvent::Epoch { at_us: 1_700_003_600_000_006, epoch: 78, cause: "route".to_owned() },
        WatchEvent::Lost { count: 79 },
    ]
}

pub(crate) fn explanation() -> Explanation {
    let [orig, reply] = <[Direction; 2]>::try_from(tcp().directions).unwrap();
    let fast = Why {
        dir: orig.dir,
        tuple: orig.tuple,
        fast: true,
        since_s: Some(3725),
        engine: Some(Engine::Xdp),
        in_port: Some(orig.in_port),
        out_port: Some(orig.out_port),
        because: None,
    };
    let because = Because {
        reason: "not-proved".to_owned(),
        meaning: "Linux changes its packets".to_owned(),
        detail: "it was fast until 9 s ago: idle".to_owned(),
        remedy: "see which rule it is".to_owned(),
    };
    let slow = Why {
        dir: reply.dir,
        tuple: reply.tuple,
        fast: false,
        since_s: None,
        engine: None,
        in_port: None,
        out_port: None,
        because: Some(because),
    };
    let state = Some("ESTABLISHED".to_owned());
    let known = Explained { protocol: 6, tracked: true, state, directions: vec![fast, slow.clone()] };
    let unknown = Explained { protocol: 17, tracked: false, state: None, directions: vec![slow] };
    Explanation { connections: vec![known, unknown], more: 7 }
}

/// The load of a forwarding CPU, whose softirqs /proc/stat underestimates, and of another CPU.
pub(crate) fn load() -> Load {
    let cpu = |cpu, load_percent, stat: [f64; 6]| CpuLoad {
        cpu,
        load_percent,
        error_points: 0.12,
        speed_percent: 99.9,
        memory_slowdown_percent: 3.3,
        soaked_percent: Some(61.7),
        taken_percent: 0.11,
        soaker_mbytes_per_second: 230.0,
        proc_stat: StatShares {
            busy_percent: Some(stat[0]),
            user_percent: stat[1],
            system_percent: stat[2],
            irq_percent: stat[3],
            softirq_percent: stat[4],
            steal_percent: stat[5],
        },
    };
    Load {
        seconds: 1.0004,
        load_percent: 23.2,
        cpus: vec![
            cpu(0, 38.3, [24.5, 1.2, 0.7, 0.4, 22.2, 1.6]),
            cpu(1, 8.1, [7.9, 5.1, 2.8, 0.0, 0.2, 0.3]),
        ],
        doubts: vec![Doubt::Stolen { cpu: 0, percent: 1.6 }, Doubt::CpusLeftOut { cpus: vec![2, 3] }],
        conditions: Conditions { kernel: Some("6.6.3".to_owned()), ..Conditions::default() },
    }
}

/// A self-test on one quiet CPU.
pub(crate) fn self_test() -> SelfTest {
    let step = |injected_percent, error_points| SelfTestStep {
        cpu: 0,
        injected_percent,
        others_percent: 0.1,
        interrupts_percent: 0.8,
        measured_percent: injected_percent + 0.8 * (1.0 - injected_percent / 100.0) + error_points,
        error_points,
        windows: 6,
        quiet_windows: 5,
    };
    let calibration = Calibration {
        round_ns: 25_400.5,
        spread: 0.0004,
        windows: 12,
        register_ns: 5033.0,
        memory_ns: 5120.0,
    };
    SelfTest {
        max_error_points: 0.4,
        steps: vec![step(25.1, 0.2), step(50.1, 0.4), step(75.2, -0.3)],
        calibrations: vec![calibration],
        doubts: vec![Doubt::VirtualMachine { hypervisor: "QEMU".to_owned() }],
        conditions: Conditions::default(),
    }
}
