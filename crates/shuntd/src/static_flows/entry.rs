//! Compiles static flows to entries of the flow table.

use crate::flow_entry::flow_key;
use shunt_api::{Engine, Failure, Proto, StaticFlow, StaticRoute, Tuple};
use shunt_bpf::{
    DataPlane, Entry, Key,
    abi::{self, Flow},
    core::{Ends, translate},
};
use shunt_core::{CompiledFlow, Core, compile_static_flow};
use shunt_wire::Tag;
use std::{collections::BTreeMap, net::IpAddr};

/// Whether two entries do the same to packets, whatever they have counted.
pub(super) fn has_same_action(a: &Entry, b: &Entry) -> bool {
    let action = |entry: &Entry| Flow { seen_ticks: 0, pkts: 0, bytes: 0, tcp_position: 0, ..entry.flow };
    action(a) == action(b) && a.to == b.to
}

/// The entry of a flow, as long as its ports exist.
pub(super) fn compile(
    flow: &StaticFlow,
    routes: &BTreeMap<String, StaticRoute>,
    core: &Core,
    plane: &DataPlane,
) -> Result<(Key, Entry), Failure> {
    let compiled = compile_static_flow(flow, routes, core, |ifindex| plane.slot(ifindex))?;
    Ok((table_key(flow, compiled.in_ifindex), table_entry(flow, &compiled)))
}

/// The key of a flow whose addresses are of one family.
fn table_key(flow: &StaticFlow, ifindex: u32) -> Key {
    let mut tags = [0; 2];
    for (bits, tag) in tags.iter_mut().zip(Tag::stack(&flow.in_vlans)) {
        *bits = tag.key_bits();
    }
    let l4_proto = match flow.proto {
        Proto::Tcp => 6,
        Proto::Udp => 17,
    };
    flow_key(&flow.tuple(), ifindex, tags, l4_proto)
}

fn table_entry(flow: &StaticFlow, compiled: &CompiledFlow) -> Entry {
    let mut l2 = [0; abi::L2_MAX];
    l2[..compiled.l2.len()].copy_from_slice(&compiled.l2);
    let action = Flow {
        state: abi::FLOW_ACTIVE,
        flags: abi::FLOW_STATIC
            | if compiled.engine == Engine::Tc { 0 } else { abi::FLOW_XDP }
            | if compiled.partial { abi::FLOW_PARTIAL } else { 0 },
        out_tags: compiled.out_tags,
        max_l3_bytes: compiled.max_l3_bytes,
        in_dmac: compiled.in_dmac.0,
        l2,
        out_slot: compiled.out_slot,
        in_slot: compiled.in_slot,
        mark: flow.mark,
        priority: flow.priority,
        ..Flow::default()
    };
    let mut entry = Entry { flow: action, ..Entry::default() };
    if let (Some(old), Some(new)) = (ends(&flow.tuple()), ends(&compiled.new)) {
        translate(&old, &new, &mut entry);
    }
    entry
}

/// Addresses and ports in the order of the packet headers; `None` if the addresses are of two families.
fn ends(tuple: &Tuple) -> Option<Ends> {
    let ports = [tuple.sport.to_be_bytes(), tuple.dport.to_be_bytes()].concat();
    match (tuple.src, tuple.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let bytes = [&src.octets()[..], &dst.octets(), &ports].concat();
            bytes.try_into().ok().map(Ends::V4)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let bytes = [&src.octets()[..], &dst.octets(), &ports].concat();
            bytes.try_into().ok().map(Ends::V6)
        }
        _ => None,
    }
}
