//! Connections, and hosts. Each number occurs once, so that a test can find it in the text.

use crate::commands::hosts::totals::HostTotal;
use shunt_api::{Connection, Direction, DirectionName, Engine, Family, FlowState, Proto, Tuple};
use shunt_wire::Mac;

pub(crate) const fn mac(last: u8) -> Mac {
    Mac([0x02, 0, 0, 0, 0, last])
}

fn tuple(src: &str, dst: &str) -> Tuple {
    Tuple::new(src.parse().unwrap(), dst.parse().unwrap())
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
