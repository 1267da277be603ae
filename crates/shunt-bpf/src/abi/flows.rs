//! The flow table: its keys and actions, and what a sweep or an edit of it says.

use super::plain::{Plain, plain};
use std::mem::offset_of;

/// The longest L2 header: MACs, two tags, EtherType.
pub const L2_MAX: usize = 22;
/// The epoch of a retired action.
pub const EPOCH_RETIRED: u32 = 0;

/// A tag in a key is there, which a VLAN id of 0 alone would not say.
pub const TAG_PRESENT: u16 = 0x8000;
/// It is an 802.1ad tag.
pub const TAG_8021AD: u16 = 0x1000;
/// Its VLAN id.
pub const TAG_VID: u16 = 0x0fff;

/// `enum shunt_flow_state`.
pub const FLOW_PENDING: u8 = 1;
/// `enum shunt_flow_state`.
pub const FLOW_ACTIVE: u8 = 2;

/// `enum shunt_flow_flags`: XDP may send it.
pub const FLOW_XDP: u8 = 1 << 0;
/// Put in by hand.
pub const FLOW_STATIC: u8 = 1 << 1;
/// Addresses or ports change.
pub const FLOW_NAT: u8 = 1 << 2;
/// The ingress driver may hand up unfinished checksums.
pub const FLOW_PARTIAL: u8 = 1 << 3;
/// The connection's reply direction.
pub const FLOW_REPLY: u8 = 1 << 4;
/// Proved before the other side had answered: UDP only.
pub const FLOW_UNREPLIED: u8 = 1 << 5;
/// The TTL stays, and the source MAC counts.
pub const FLOW_BRIDGED: u8 = 1 << 6;
/// Bridged, and conntrack has no say in it.
pub const FLOW_UNTRACKED: u8 = 1 << 7;

plain! {
    /// `struct shunt_key4`. Fields that end in `_be` hold the bytes of the wire.
    Key4, 24 {
        /// Source address.
        src_be: [u8; 4],
        /// Destination address.
        dst_be: [u8; 4],
        /// Source port.
        sport_be: [u8; 2],
        /// Destination port.
        dport_be: [u8; 2],
        /// The ingress port.
        ifindex: u32,
        /// VLAN tags, outermost first.
        tags: [u16; 2],
        /// Protocol number.
        l4_proto: u32,
    }
}

plain! {
    /// `struct shunt_key6`.
    Key6, 48 {
        /// Source address.
        src_be: [u8; 16],
        /// Destination address.
        dst_be: [u8; 16],
        /// Source port.
        sport_be: [u8; 2],
        /// Destination port.
        dport_be: [u8; 2],
        /// The ingress port.
        ifindex: u32,
        /// VLAN tags, outermost first.
        tags: [u16; 2],
        /// Protocol number.
        l4_proto: u32,
    }
}

plain! {
    /// `struct shunt_flow`: an action, and what changes with its packets. Ticks are jiffies.
    Flow, 96 {
        /// The epoch it was proved in; 0 once retired.
        epoch: u32,
        /// Pending or active.
        state: u8,
        /// `FLOW_*`.
        flags: u8,
        /// How many tags the new L2 header has.
        out_tags: u8,
        /// The next packet is to be punted.
        punt_due: u8,
        /// When one packet is to go through Linux again.
        reprove_at_ticks: u32,
        /// When the proof ends.
        prove_by_ticks: u32,
        /// The largest packet Linux was seen to forward.
        max_l3_bytes: u16,
        /// DSCP and VLAN priorities it was learned with.
        class_bits: u16,
        /// The MAC its packets come in to.
        in_dmac: [u8; 6],
        /// The new L2 header.
        l2: [u8; L2_MAX],
        /// The ingress port's slot.
        in_slot: u16,
        /// The egress port's slot.
        out_slot: u16,
        /// Change of the sum over addresses and ports.
        l4_delta: u16,
        /// Change of the sum over addresses.
        l4_delta_addr: u16,
        /// The CPU that counts without atomics.
        home_cpu: u16,
        /// TTL or hop limit it was learned with.
        in_ttl: u8,
        /// Why it was retired the last time.
        retired_why: u8,
        /// New source port.
        sport_be: [u8; 2],
        /// New destination port.
        dport_be: [u8; 2],
        /// skb->mark as Linux left it.
        mark: u32,
        /// skb->priority as Linux left it.
        priority: u32,
        /// Last use or proof.
        seen_ticks: u32,
        /// When it was retired.
        retired_ticks: u32,
        /// Packets on the home CPU.
        pkts: u64,
        /// Bytes on the home CPU.
        bytes: u64,
    }
}

const _: () = assert!(offset_of!(Flow, max_l3_bytes) == 16);
const _: () = assert!(offset_of!(Flow, l2) == 26);
const _: () = assert!(offset_of!(Flow, l4_delta) == 52);
const _: () = assert!(offset_of!(Flow, mark) == 64);
const _: () = assert!(offset_of!(Flow, pkts) == 80);

plain! {
    /// `struct shunt_cold`.
    Cold, 32 {
        /// Packets on other CPUs.
        away_pkts: u64,
        /// Bytes on other CPUs.
        away_bytes: u64,
        /// First proof.
        learned_ticks: u32,
        /// When its silence was told last, the flow's `seen_ticks` then.
        told_ticks: u32,
        /// While it is free, the next one that is, plus one.
        next_free: u32,
        /// Zero.
        pad: u32,
    }
}

/// Slots in a bucket of the index.
pub const WAYS: usize = 4;

plain! {
    /// `struct shunt_edit`.
    Edit, 240 {
        /// `EDIT_*`.
        op: u32,
        /// 4 or 6.
        family: u32,
        /// 0 or a negative error number.
        result: i32,
        /// Zero.
        pad: u32,
        /// A Key4 or a Key6.
        key: [u8; 48],
        /// The flow.
        flow: Flow,
        /// The addresses it translates to.
        to: [u8; 32],
        /// The rest.
        cold: Cold,
        /// Of the key's tuple.
        sighting: Sighting,
    }
}

/// Put in, or replace.
pub const EDIT_PUT: u32 = 1;
/// Take out.
pub const EDIT_REMOVE: u32 = 2;
/// Read.
pub const EDIT_GET: u32 = 3;
/// What was seen of the key's tuple.
pub const EDIT_SIGHTING: u32 = 4;

plain! {
    /// `struct shunt_sighting`.
    Sighting, 16 {
        /// Since when packets were counted.
        since_ticks: u32,
        /// Packets that were seen, of this or of other tuples in the same place.
        pkts: u32,
        /// Until when it is left in peace; 0 if never.
        quiet_until_ticks: u32,
        /// Whose the refusal is.
        refused_fingerprint: u16,
        /// The last refusal, 0 for none.
        refused_why: u8,
        /// Zero.
        pad: u8,
    }
}

plain! {
    /// `struct shunt_tuple`: one direction of a connection. IPv4 addresses are in the first four bytes.
    Tuple, 40 {
        /// Source address.
        src_be: [u8; 16],
        /// Destination address.
        dst_be: [u8; 16],
        /// Source port.
        sport_be: [u8; 2],
        /// Destination port.
        dport_be: [u8; 2],
        /// 4 or 6.
        family: u8,
        /// Protocol number.
        l4_proto: u8,
        /// Zero.
        pad: [u8; 2],
    }
}

plain! {
    /// `struct shunt_past`.
    Past, 16 {
        /// Packets.
        pkts: u64,
        /// Bytes, from the L3 header on.
        bytes: u64,
    }
}

plain! {
    /// `struct shunt_usage`.
    Usage, 64 {
        /// Entries in use: IPv4, IPv6.
        entries: [u64; 2],
        /// From which one on none ever was in use.
        fresh: [u64; 2],
        /// The first of those that were and are free, plus one; in the upper half how often it changed.
        free: [u64; 2],
        /// Flows whose counts found no place.
        past_lost: u64,
        /// Traces that found no place.
        traces_lost: u64,
    }
}

plain! {
    /// `struct shunt_sweep`.
    Sweep, 52 {
        /// Found: the clock, in ticks.
        now_ticks: u32,
        /// How long a flow may go unused.
        idle_ticks: u32,
        /// Retire everything that was learned.
        all: u32,
        /// Found: active flows.
        active: u32,
        /// Found: pending flows.
        pending: u32,
        /// Found: retired flows.
        retired: u32,
        /// Found: static flows.
        statics: u32,
        /// Removed.
        deleted: u32,
        /// How long after it was retired a flow is removed; filled in by the program.
        remove_ticks: u32,
        /// Found: flows that this sweep retired.
        flushed: u32,
        /// The first entry to look at; those of IPv6 come after those of IPv4.
        from: u32,
        /// How many entries to look at.
        entries: u32,
        /// After how long a connection is silent; filled in by the program.
        silent_ticks: u32,
    }
}
