//! What the daemon tells the programs, and what they tell it: settings, ports, counters, events, traces.

use super::{
    Tuple,
    plain::{Plain, plain},
};

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
        /// Buckets of an index, less one.
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

/// Compared with what the control map says when it is adopted.
pub const ABI_VERSION: u32 = 1;
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
    /// `struct shunt_places`.
    Places, 768 {
        /// Ports by the low bits of the ifindex; of those that share them, the last one.
        near: [Port; PORTS_MAX as usize],
        /// Devices by the slot.
        ifindex: [u32; PORTS_MAX as usize],
    }
}

/// How many ports one instance can have.
pub const PORTS_MAX: u32 = 64;
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

/// `enum shunt_event_kind`.
pub const EVENT_WANT_LIBERAL: u8 = 1;
/// Nobody has sent for a while, and all that was sent was answered.
pub const EVENT_SILENT: u8 = 2;

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
