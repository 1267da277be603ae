//! A hash of everything that RTM_NEWLINK says about a link, so that a change of any setting is noticed, even of one
//! that is not parsed.

use crate::netlink_message::{AF_INET6, Attrs, u16_at, u32_at};
use shunt_core::BridgePort;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Flags that are reported separately, change with the carrier, or with captures.
const DERIVED_FLAGS: u32 = IFF_UP | IFF_RUNNING | IFF_PROMISC | IFF_ALLMULTI | IFF_LOWER_UP | IFF_DORMANT;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 1 << 6;
const IFF_PROMISC: u32 = 1 << 8;
const IFF_ALLMULTI: u32 = 1 << 9;
const IFF_LOWER_UP: u32 = 1 << 16;
const IFF_DORMANT: u32 = 1 << 17;

const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;

/// Attributes that change by themselves, or that have events of their own.
const VOLATILE: [u16; 14] = [
    6,  // IFLA_QDISC: reported by RTM_NEWQDISC
    7,  // IFLA_STATS
    16, // IFLA_OPERSTATE
    23, // IFLA_STATS64
    30, // IFLA_PROMISCUITY: changes with captures
    33, // IFLA_CARRIER
    35, // IFLA_CARRIER_CHANGES
    42, // IFLA_PAD: depends on the position in the message
    43, // IFLA_XDP: programs come and go with the engines
    44, // IFLA_EVENT: the cause of the message
    47, // IFLA_CARRIER_UP_COUNT
    48, // IFLA_CARRIER_DOWN_COUNT
    61, // IFLA_ALLMULTI: changes with captures
    11, // IFLA_WIRELESS: an event, not a setting
];

const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_XSTATS: u16 = 3;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;

/// Attributes of IFLA_INFO_DATA that change by themselves, by the kind of the device.
fn volatile_data(kind: &str) -> &'static [u16] {
    match kind {
        // Timers (hello, topology change notification, topology change, garbage collection), the multicast querier and
        // its timer, the number of known stations.
        "bridge" => &[16, 17, 18, 19, 47, 48],
        // A sequence number.
        "hsr" => &[5],
        _ => &[],
    }
}

/// Attributes of IFLA_INFO_SLAVE_DATA that change by themselves, by the kind of the master.
fn volatile_member_data(kind: &str) -> &'static [u16] {
    match kind {
        // The number of link failures.
        "bond" => &[3],
        _ => &[],
    }
}

const IFLA_BRPORT_STATE: u16 = 1;
const IFLA_BRPORT_PRIORITY: u16 = 2;
const IFLA_BRPORT_COST: u16 = 3;
const IFLA_BRPORT_MULTICAST_ROUTER: u16 = 25;
/// The attributes of [`BridgePort::SWITCHES`], in their order.
const SWITCHES: [u16; BridgePort::SWITCHES.len()] =
    [4, 5, 6, 7, 8, 9, 10, 12, 27, 28, 29, 30, 32, 33, 39, 40, 43];
/// What a bridge finds out by itself: the cost, the root and the designated bridge and port, and what MRP has found.
const DERIVED_BRPORT: [u16; 8] = [3, 13, 14, 15, 16, 17, 35, 36];
/// Attributes of a port of a bridge that change by themselves: pending transmissions, three timers, padding, the
/// numbers of known multicast hosts and groups.
const VOLATILE_BRPORT: [u16; 8] = [19, 20, 21, 22, 23, 26, 38, 41];

/// Attributes of AF_INET6 in IFLA_AF_SPEC that change by themselves: flags set by router advertisements, counters, and
/// timestamps of addresses and routes.
const VOLATILE_INET6: [u16; 4] = [1, 3, 5, 6];

/// Hashes the settings of a link. `header` is struct ifinfomsg, `attrs` are the attributes that follow it.
pub(super) fn digest(header: &[u8], attrs: Attrs) -> u64 {
    let mut hash = DefaultHasher::new();
    u16_at(header, 2).hash(&mut hash);
    u32_at(header, 8).map(|flags| flags & !DERIVED_FLAGS).hash(&mut hash);
    for (kind, value) in attrs {
        match kind {
            IFLA_LINKINFO => hash_link_info(Attrs::new(value), &mut hash),
            IFLA_AF_SPEC => hash_families(Attrs::new(value), &mut hash),
            _ if VOLATILE.contains(&kind) => {}
            _ => (kind, value).hash(&mut hash),
        }
    }
    hash.finish()
}

/// A port of a bridge, from its IFLA_BRPORT_* attributes, which are those of IFLA_INFO_SLAVE_DATA and of IFLA_PROTINFO.
/// `None` if they are not about a port.
pub(super) fn bridge_port(port: Attrs) -> Option<BridgePort> {
    let state = port.u8(IFLA_BRPORT_STATE)?;
    let (mut settings, mut derived) = (DefaultHasher::new(), DefaultHasher::new());
    for (kind, value) in port {
        match kind {
            IFLA_BRPORT_STATE => {}
            _ if VOLATILE_BRPORT.contains(&kind) => {}
            _ if DERIVED_BRPORT.contains(&kind) => (kind, value).hash(&mut derived),
            _ => (kind, value).hash(&mut settings),
        }
    }
    let is_on = |attr: &u16| port.u8(*attr).is_some_and(|on| on != 0);
    let switch = |(bit, attr): (usize, &u16)| u32::from(is_on(attr)) << bit;
    Some(BridgePort {
        settings: settings.finish(),
        state,
        derived: derived.finish(),
        switches: SWITCHES.iter().enumerate().map(switch).sum(),
        cost: port.u32(IFLA_BRPORT_COST).unwrap_or_default(),
        priority: port.u16(IFLA_BRPORT_PRIORITY).unwrap_or_default(),
        mcast_router: port.u8(IFLA_BRPORT_MULTICAST_ROUTER).unwrap_or_default(),
    })
}

/// The port of a bridge that IFLA_LINKINFO describes; `None` if the device is none.
pub(super) fn bridge_port_of(info: Attrs) -> Option<BridgePort> {
    let is_bridge = info.text(IFLA_INFO_SLAVE_KIND).as_deref() == Some("bridge");
    is_bridge.then(|| bridge_port(info.nested(IFLA_INFO_SLAVE_DATA)))?
}

fn hash_link_info(info: Attrs, hash: &mut DefaultHasher) {
    let name = |kind| info.text(kind).unwrap_or_default();
    for (kind, value) in info {
        match kind {
            IFLA_INFO_DATA => hash_without(volatile_data(&name(IFLA_INFO_KIND)), value, hash),
            // See [`bridge_port`].
            IFLA_INFO_SLAVE_DATA if name(IFLA_INFO_SLAVE_KIND) == "bridge" => {}
            IFLA_INFO_SLAVE_DATA => {
                hash_without(volatile_member_data(&name(IFLA_INFO_SLAVE_KIND)), value, hash)
            }
            IFLA_INFO_XSTATS => {}
            _ => (kind, value).hash(hash),
        }
    }
}

fn hash_families(families: Attrs, hash: &mut DefaultHasher) {
    for (family, value) in families {
        let volatile = if family == u16::from(AF_INET6) { &VOLATILE_INET6[..] } else { &[] };
        family.hash(hash);
        hash_without(volatile, value, hash);
    }
}

/// Hashes nested attributes except for the excluded ones.
fn hash_without(excluded: &[u16], nested: &[u8], hash: &mut DefaultHasher) {
    for (kind, value) in Attrs::new(nested).into_iter().filter(|(kind, _)| !excluded.contains(kind)) {
        (kind, value).hash(hash);
    }
}
