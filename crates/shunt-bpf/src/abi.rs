//! The Rust twin of `bpf/abi/shunt_abi.h`. Sizes and offsets are asserted on both sides.

use std::mem::{offset_of, size_of};

/// Compared with what the control map says when it is adopted.
pub const ABI_VERSION: u32 = 1;
/// How many ports one instance can have.
pub const PORTS_MAX: u32 = 64;
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

/// `enum shunt_port_flags`: XDP may redirect to it.
pub const PORT_XDP_OUT: u16 = 1 << 1;
/// Frames may come in with unfinished checksums.
pub const PORT_PARTIAL: u16 = 1 << 2;
/// Nothing is learned that comes in or leaves by it: somebody captures.
pub const PORT_CAPTURED: u16 = 1 << 3;
/// Nothing is learned that comes in by it: it has tc filters or TCX programs of others.
pub const PORT_FILTERED: u16 = 1 << 4;
/// Nothing is learned that leaves by it: it has TCX programs of others.
pub const PORT_FILTERED_OUT: u16 = 1 << 5;
/// What is bridged may be learned that comes in by it.
pub const PORT_BRIDGED: u16 = 1 << 6;
/// Conntrack sees no IPv4 that is bridged.
pub const PORT_UNTRACKED4: u16 = 1 << 7;
/// Conntrack sees no IPv6 that is bridged.
pub const PORT_UNTRACKED6: u16 = 1 << 8;

/// `enum shunt_control_flags`: learn at all.
pub const CONTROL_LEARN: u32 = 1 << 0;
/// Learn UDP before any reply was seen.
pub const CONTROL_UDP_UNREPLIED: u32 = 1 << 1;
/// Learn no IPv4: the ruleset must see every packet.
pub const CONTROL_HOLD4: u32 = 1 << 2;
/// Learn no IPv6.
pub const CONTROL_HOLD6: u32 = 1 << 3;
/// Somebody reads the traces.
pub const CONTROL_TRACE: u32 = 1 << 4;
/// Flows have been put in by hand.
pub const CONTROL_STATICS: u32 = 1 << 5;

/// `enum shunt_event_kind`.
pub const EVENT_WANT_LIBERAL: u8 = 1;
/// Nobody has sent for a while, and all that was sent was answered.
pub const EVENT_SILENT: u8 = 2;

/// The first reason that says why nothing was learned; those below say why a packet was punted.
pub const FIRST_REFUSAL: usize = 32;

/// Numbers and names of `enum shunt_reason`.
pub const REASONS: &[(usize, &str)] = &[
    (1, "not-ours"),
    (2, "options"),
    (3, "bad-header"),
    (4, "fragment"),
    (5, "mtu"),
    (6, "ttl"),
    (7, "protocol"),
    (8, "tcp-flags"),
    (9, "miss"),
    (10, "stale"),
    (11, "reprove"),
    (12, "no-daemon"),
    (13, "port"),
    (14, "pending"),
    (15, "class"),
    (16, "tags"),
    (17, "capture"),
    (18, "ingress-filter"),
    (19, "ruleset"),
    (32, "not-watched"),
    (33, "aged"),
    (34, "old-epoch"),
    (35, "no-conntrack"),
    (36, "other-tuple"),
    (37, "unconfirmed"),
    (38, "dying"),
    (39, "helper"),
    (40, "seq-adjust"),
    (41, "unreplied"),
    (42, "not-established"),
    (43, "not-liberal"),
    (44, "not-proved"),
    (45, "left-twice"),
    (46, "table-full"),
    (47, "odd-egress"),
    (48, "retiring"),
    (49, "not-routed"),
    (50, "egress-capture"),
    (51, "excluded"),
    (52, "idle"),
    (53, "flushed"),
    (54, "conntrack-gone"),
    (55, "egress-filter"),
];

/// Plain memory: any bytes are a value, and there is no padding.
///
/// # Safety
/// Only for `repr(C)` types without padding whose every bit pattern is valid.
pub unsafe trait Plain: Copy {
    /// Its bytes, as the kernel sees them.
    fn bytes(&self) -> &[u8] {
        // SAFETY: a Plain value has no padding, so each of its bytes is initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The value of these bytes; none when their number is wrong.
    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are enough bytes, any of them are valid, and the read does not need alignment.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}

macro_rules! plain {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $size);
        const _: () = assert!(0 $(+ size_of::<$type>())* == $size, "there is a hole");

        // SAFETY: repr(C), integers only, and the assertion above excludes padding.
        unsafe impl Plain for $name {}

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: all fields are integers or arrays of them, for which zero is a value.
                unsafe { std::mem::zeroed() }
            }
        }
    };
}

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
        /// The entry is in use.
        claim: u32,
        /// Zero.
        pad0: u32,
        /// Packets on other CPUs.
        away_pkts: u64,
        /// Bytes on other CPUs.
        away_bytes: u64,
        /// First proof.
        learned_ticks: u32,
        /// When its silence was told last, the flow's `seen_ticks` then.
        told_ticks: u32,
    }
}

/// `struct shunt_entry4`, as bytes: the key, the flow, 8 bytes of addresses.
pub const ENTRY4: usize = 128;
/// `struct shunt_entry6`, as bytes: the key, the flow, 32 bytes of addresses.
pub const ENTRY6: usize = 192;
/// Entries in a bucket.
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
        refused_tag: u16,
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
    Usage, 32 {
        /// Entries in use: IPv4, IPv6.
        entries: [u64; 2],
        /// Flows whose counts found no place.
        past_lost: u64,
        /// Traces that found no place.
        traces_lost: u64,
    }
}

plain! {
    /// `struct shunt_trace`.
    Trace, 64 {
        /// CLOCK_MONOTONIC.
        at_ns: u64,
        /// As on the wire of the port.
        tuple: Tuple,
        /// Where the packet came in.
        ifindex: u32,
        /// VLAN tags, outermost first.
        tags: [u16; 2],
        /// `TRACE_*`.
        kind: u8,
        /// Number of a reason, 0 for none.
        why: u8,
        /// Zero.
        pad: [u8; 6],
    }
}

/// `enum shunt_trace_kind`: proved, and put into the table.
pub const TRACE_LEARN: u8 = 1;
/// In use from this packet on.
pub const TRACE_ACTIVATE: u8 = 2;
/// A packet of a known flow went to Linux.
pub const TRACE_PUNT: u8 = 3;
/// Linux forwarded a packet that taught nothing.
pub const TRACE_REFUSE: u8 = 4;
/// Taken out of use.
pub const TRACE_RETIRE: u8 = 5;

/// Put in, or replace.
pub const EDIT_PUT: u32 = 1;
/// Take out.
pub const EDIT_REMOVE: u32 = 2;
/// Read.
pub const EDIT_GET: u32 = 3;
/// What was seen of the key's tuple.
pub const EDIT_SIGHTING: u32 = 4;

plain! {
    /// `struct shunt_port`.
    Port, 8 {
        /// Index into counters and devmap.
        slot: u16,
        /// `PORT_*`.
        flags: u16,
        /// The device.
        ifindex: u32,
    }
}

plain! {
    /// `struct shunt_counters`.
    Counters, 592 {
        /// Packets that the XDP program forwarded.
        xdp_pkts: u64,
        /// Their bytes.
        xdp_bytes: u64,
        /// Packets that the tc program forwarded.
        tc_pkts: u64,
        /// Their bytes.
        tc_bytes: u64,
        /// Packets that went to Linux.
        slow_pkts: u64,
        /// Their bytes.
        slow_bytes: u64,
        /// Packets that were lost half-way through a rewrite.
        dropped_pkts: u64,
        /// Actions installed.
        learned: u64,
        /// Actions renewed.
        proved: u64,
        /// Actions retired.
        retired: u64,
        /// By `enum shunt_reason`.
        reasons: [u64; 64],
    }
}

plain! {
    /// `struct shunt_control`.
    Control, 72 {
        /// `ABI_VERSION`.
        abi: u32,
        /// The epoch whose actions may be used.
        epoch: u32,
        /// When the daemon last said that it is alive.
        heartbeat_ticks: u32,
        /// How long that holds.
        heartbeat_max_ticks: u32,
        /// How often a flow is proved again.
        reprove_ticks: u32,
        /// How long a proof holds.
        prove_ticks: u32,
        /// The packet of a UDP direction that is learned from.
        learn_udp_pkts: u32,
        /// The same for TCP.
        learn_tcp_pkts: u32,
        /// `CONTROL_*`.
        flags: u32,
        /// Buckets of a flow table, less one.
        bucket_mask: u32,
        /// Seed of the tables' hash.
        seed: u64,
        /// Flows of each family.
        max_flows: u32,
        /// The kernel's HZ.
        ticks_per_s: u32,
        /// Packets whose mark under the mask is this teach nothing.
        exclude_mark: u32,
        /// Its mask; 0 excludes none.
        exclude_mark_mask: u32,
        /// The same for the mark of the connection.
        exclude_ct_mark: u32,
        /// Its mask.
        exclude_ct_mark_mask: u32,
    }
}

plain! {
    /// `struct shunt_event`.
    Event, 48 {
        /// `EVENT_*`.
        kind: u8,
        /// 4 or 6.
        family: u8,
        /// Protocol number.
        l4_proto: u8,
        /// 1 where it is the reply direction and not the original one.
        reply: u8,
        /// Zero.
        pad: [u8; 4],
        /// Source port of that direction.
        sport_be: [u8; 2],
        /// Destination port.
        dport_be: [u8; 2],
        /// Where the packet came in.
        ifindex: u32,
        /// Source address.
        src_be: [u8; 16],
        /// Destination address.
        dst_be: [u8; 16],
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
        /// The first bucket to look at; those of IPv6 come after those of IPv4.
        from: u32,
        /// How many buckets to look at.
        buckets: u32,
        /// After how long a connection is silent; filled in by the program.
        silent_ticks: u32,
    }
}

impl Counters {
    /// Adds another CPU's.
    pub fn add(&mut self, other: &Self) {
        self.xdp_pkts += other.xdp_pkts;
        self.xdp_bytes += other.xdp_bytes;
        self.tc_pkts += other.tc_pkts;
        self.tc_bytes += other.tc_bytes;
        self.slow_pkts += other.slow_pkts;
        self.slow_bytes += other.slow_bytes;
        self.dropped_pkts += other.dropped_pkts;
        self.learned += other.learned;
        self.proved += other.proved;
        self.retired += other.retired;
        for (mine, theirs) in self.reasons.iter_mut().zip(other.reasons) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_names_are_those_of_the_header() {
        let header = include_str!("../../../bpf/abi/shunt_abi.h");
        let body = header.split("enum shunt_reason {").nth(1).and_then(|t| t.split("};").next()).unwrap();
        let declared: Vec<(usize, String)> = body
            .lines()
            .filter_map(|line| line.trim().strip_prefix("SHUNT_")?.split_once(" = "))
            .map(|(name, rest)| {
                let number = rest.split(',').next().and_then(|n| n.parse().ok()).unwrap();
                (number, name.to_lowercase().replace('_', "-"))
            })
            .filter(|(number, _)| *number != 0)
            .collect();
        let named: Vec<(usize, String)> = REASONS.iter().map(|(n, s)| (*n, (*s).to_owned())).collect();
        assert_eq!(named, declared);
    }

    #[test]
    fn bytes_and_values_agree() {
        let key = Key4 { src_be: [10, 0, 0, 1], ifindex: 7, l4_proto: 17, ..Key4::default() };
        assert_eq!(Key4::of(key.bytes()), Some(key));
        assert_eq!(Key4::of(&key.bytes()[1..]), None);
    }
}
