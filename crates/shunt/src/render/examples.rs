//! Fixed values to show. Each number occurs once, so that a test can tell which one it sees.

use shunt_api::{
    Attach, ByteTotals, Connection, Direction, DirectionName, Engine, Family, FlowCounts, FlowState,
    PacketTotals, PortPackets, PortStatus, Probe, ProbeAnswer, Proto, StaticTable, Status, Tuple,
};
use shunt_wire::Mac;
use std::collections::BTreeMap;

const fn mac(last: u8) -> Mac {
    Mac([0x02, 0, 0, 0, 0, last])
}

fn tuple(src: &str, dst: &str) -> Tuple {
    Tuple::new(src.parse().unwrap(), dst.parse().unwrap())
}

fn counts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Masqueraded, from a VLAN, both directions in use, by different engines.
pub(crate) fn tcp() -> Connection {
    let there = Direction {
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
    let back = Direction {
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
        orig: there.tuple,
        reply: back.tuple,
        state: FlowState::Active,
        engine: Engine::Xdp,
        packets: 3004,
        bytes: 3_006_008,
        rate_bps: 950_500_000,
        rate_pps: 82_046,
        age_s: 3726,
        idle_s: 2,
        directions: vec![there, back],
    }
}

/// Not translated, out by QinQ, one direction only, not yet in use.
pub(crate) fn udp6() -> Connection {
    let there = Direction {
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
    let Direction { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s, .. } = there;
    Connection {
        family: Family::V6,
        proto: Proto::Udp,
        orig: there.tuple,
        reply: tuple("[2001:db8:2::9]:5004", "[2001:db8:1::2]:5000"),
        state,
        engine,
        packets,
        bytes,
        rate_bps,
        rate_pps,
        age_s,
        idle_s,
        directions: vec![there],
    }
}

pub(crate) fn connections() -> Vec<Connection> {
    vec![tcp(), udp6()]
}

pub(crate) fn status() -> Status {
    let lan = PortStatus {
        name: "eth0".to_owned(),
        ifindex: 3,
        engine: Engine::Xdp,
        engine_reason: "the driver redirects natively and no qdisc shapes here".to_owned(),
        attach: Attach::Tcx,
        xdp_attached: true,
        up: true,
        mtu: 1500,
        mac: mac(0x10),
        packets: PortPackets { xdp: 1_000_001, tc: 1002, slow: 1003, dropped: 14 },
        bytes: ByteTotals { fast: 100_000_005, slow: 100_006 },
        reasons: counts(&[("miss", 1007), ("reprove", 1008)]),
        refusals: counts(&[("unconfirmed", 1009)]),
    };
    let wan = PortStatus {
        name: "enp1s0f1".to_owned(),
        ifindex: 4,
        engine: Engine::Tc,
        engine_reason: "its root qdisc is cake, which shapes".to_owned(),
        attach: Attach::Clsact,
        xdp_attached: false,
        up: false,
        mtu: 9000,
        mac: mac(0x11),
        packets: PortPackets { xdp: 0, tc: 2_000_002, slow: 2003, dropped: 24 },
        bytes: ByteTotals { fast: 200_000_005, slow: 200_006 },
        reasons: counts(&[("ttl", 2007)]),
        refusals: BTreeMap::new(),
    };
    let probe =
        |name: &str, answer, detail: &str| Probe { name: name.to_owned(), answer, detail: detail.to_owned() };
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
        bytes: ByteTotals { fast: 300_000_010, slow: 300_012 },
        flows: FlowCounts { active: 501, pending: 52, retired: 53, static_: 54, max: 65_536 },
        learned: 5501,
        proved: 5502,
        retired: 5503,
        reasons: counts(&[("miss", 1007), ("reprove", 1008), ("ttl", 2007)]),
        refusals: counts(&[("unconfirmed", 1009)]),
        kernel: vec![
            probe("tcx", ProbeAnswer::Yes, ""),
            probe("conntrack-lookup", ProbeAnswer::No, "CONFIG_NF_CONNTRACK is not set"),
            probe("xdp-frags", ProbeAnswer::Unknown, "eth0: EPERM"),
        ],
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
