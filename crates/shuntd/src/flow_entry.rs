//! Table entries and traces of the data plane as values of the API and of the policy.

use shunt_api::{Proto, Tuple};
use shunt_bpf::{
    DataPlane, Entry, Epochs, Key,
    abi::{self, Key4, Key6},
};
use shunt_core::{EntryState, TickClock};
use shunt_wire::Tag;
use std::{net::IpAddr, time::Duration};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The key of a tuple. An IPv4 address of a tuple that mixes address families becomes an IPv4-mapped IPv6 address.
pub(crate) fn flow_key(tuple: &Tuple, ifindex: u32, tags: [u16; 2], l4_proto: u32) -> Key {
    let (sport_be, dport_be) = (tuple.sport.to_be_bytes(), tuple.dport.to_be_bytes());
    match (tuple.src, tuple.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let (src_be, dst_be) = (src.octets(), dst.octets());
            Key::V4(Key4 { src_be, dst_be, sport_be, dport_be, ifindex, tags, l4_proto })
        }
        (src, dst) => {
            let octets = |addr| match addr {
                IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
                IpAddr::V6(addr) => addr.octets(),
            };
            let (src_be, dst_be) = (octets(src), octets(dst));
            Key::V6(Key6 { src_be, dst_be, sport_be, dport_be, ifindex, tags, l4_proto })
        }
    }
}

/// The IP protocol number of a flow: 6 or 17.
pub(crate) fn key_protocol(key: &Key) -> u8 {
    let number = match key {
        Key::V4(key) => key.l4_proto,
        Key::V6(key) => key.l4_proto,
    };
    number as u8
}

pub(crate) fn key_proto(key: &Key) -> Proto {
    if key_protocol(key) == TCP { Proto::Tcp } else { Proto::Udp }
}

/// The ingress device and the VLAN tags of the flow's packets.
pub(crate) fn key_ingress(key: &Key) -> (u32, [u16; 2]) {
    match key {
        Key::V4(key) => (key.ifindex, key.tags),
        Key::V6(key) => (key.ifindex, key.tags),
    }
}

/// Addresses and ports as the flow's packets come in.
pub(crate) fn key_tuple(key: &Key) -> Tuple {
    match key {
        Key::V4(key) => Tuple {
            src: IpAddr::from(key.src_be),
            dst: IpAddr::from(key.dst_be),
            sport: u16::from_be_bytes(key.sport_be),
            dport: u16::from_be_bytes(key.dport_be),
        },
        Key::V6(key) => Tuple {
            src: IpAddr::from(key.src_be),
            dst: IpAddr::from(key.dst_be),
            sport: u16::from_be_bytes(key.sport_be),
            dport: u16::from_be_bytes(key.dport_be),
        },
    }
}

/// Addresses and ports as the flow's packets leave.
pub(crate) fn new_tuple(key: &Key, entry: &Entry) -> Tuple {
    let v4 = matches!(key, Key::V4(_));
    Tuple {
        src: address(&entry.to, 0, v4),
        dst: address(&entry.to, 1, v4),
        sport: u16::from_be_bytes(entry.flow.sport_be),
        dport: u16::from_be_bytes(entry.flow.dport_be),
    }
}

/// Address number `index` of two that are stored one after the other.
fn address(addresses: &[u8; 32], index: usize, v4: bool) -> IpAddr {
    if v4 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&addresses[4 * index..4 * index + 4]);
        IpAddr::from(bytes)
    } else {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&addresses[16 * index..16 * index + 16]);
        IpAddr::from(bytes)
    }
}

/// The addresses and ports of a trace or of an expired flow's counters.
pub(crate) fn trace_tuple(tuple: &abi::Tuple) -> Tuple {
    let address = |bytes: [u8; 16]| {
        let v4 = <[u8; 4]>::try_from(&bytes[..4]).ok().filter(|_| tuple.family == 4);
        v4.map_or(IpAddr::from(bytes), IpAddr::from)
    };
    Tuple {
        src: address(tuple.src_be),
        dst: address(tuple.dst_be),
        sport: u16::from_be_bytes(tuple.sport_be),
        dport: u16::from_be_bytes(tuple.dport_be),
    }
}

/// The key of an expired flow's counters.
pub(crate) fn expired_tuple(proto: Proto, tuple: &Tuple) -> abi::Tuple {
    let octets = |address: IpAddr| {
        let mut bytes = [0; 16];
        match address {
            IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes = address.octets(),
        }
        bytes
    };
    abi::Tuple {
        src_be: octets(tuple.src),
        dst_be: octets(tuple.dst),
        sport_be: tuple.sport.to_be_bytes(),
        dport_be: tuple.dport.to_be_bytes(),
        family: if tuple.src.is_ipv4() { 4 } else { 6 },
        l4_proto: if proto == Proto::Tcp { TCP } else { UDP },
        _pad: [0; 2],
    }
}

pub(crate) fn trace_proto(tuple: &abi::Tuple) -> Proto {
    if tuple.l4_proto == TCP { Proto::Tcp } else { Proto::Udp }
}

/// The VLAN IDs of the tags that are present, outermost first.
pub(crate) fn vlan_ids(tags: &[u16]) -> Vec<u16> {
    tags.iter().filter_map(|bits| Tag::from_key_bits(*bits)).map(|tag| tag.vid).collect()
}

/// The fields of an entry that decide the state of its flow.
pub(crate) fn entry_state(flow: &abi::Flow, epochs: &Epochs) -> EntryState {
    EntryState {
        is_static: flow.flags & abi::FLOW_STATIC != 0,
        is_retired: flow.epoch == abi::EPOCH_RETIRED,
        is_active: flow.state == abi::FLOW_ACTIVE,
        is_current: epochs.is_current(flow),
        prove_by_ticks: flow.prove_by_ticks,
    }
}

/// Reads the data plane's clock.
pub(crate) fn read_clock(plane: &DataPlane) -> Result<TickClock, shunt_bpf::Error> {
    Ok(TickClock {
        // A sweep of no entries returns the time.
        now: plane.sweep_part(Duration::ZERO, false, 0, 0)?.now_ticks,
        ticks_per_s: plane.control().ticks(Duration::from_secs(1)),
    })
}
