//! The control block, ports, counters, events and traces.

use super::Tuple;
use crate::plain;

plain! {
    /// `struct shunt_control`.
    pub struct Control = "shunt_control", 96; {
        /// [`ABI_VERSION`].
        pub abi: u32,
        /// The current epoch. Actions of another epoch are stale.
        pub epoch: u32,
        /// The daemon's last heartbeat, in 64-bit jiffies, which do not wrap.
        pub heartbeat_ticks: u64,
        /// Age at which a heartbeat is too old.
        pub heartbeat_max_ticks: u32,
        /// Interval between proofs of a flow.
        pub reprove_ticks: u32,
        /// How long a proof lasts.
        pub prove_ticks: u32,
        /// Learn from this packet of a UDP direction on.
        pub learn_udp_pkts: u32,
        /// Learn from this packet of a TCP direction on.
        pub learn_tcp_pkts: u32,
        /// `CONTROL_*` flags.
        pub flags: u32,
        /// Buckets of an index, minus one.
        pub bucket_mask: u32,
        /// Flows per address family.
        pub max_flows: u32,
        /// Seed of the tables' hash.
        pub seed: u64,
        /// The kernel's HZ.
        pub ticks_per_s: u32,
        /// Learn nothing from packets with this mark, under `exclude_mark_mask`.
        pub exclude_mark: u32,
        /// 0 excludes nothing.
        pub exclude_mark_mask: u32,
        /// Learn nothing from connections with this mark, under `exclude_ct_mark_mask`.
        pub exclude_ct_mark: u32,
        /// 0 excludes nothing.
        pub exclude_ct_mark_mask: u32,
        /// Inode number of the ports' network namespace.
        pub netns: u32,
        /// Lines of the filter of dependencies, minus one.
        pub mark_mask: u32,
        /// Counts the commits of nftables that may change how rules use sets.
        pub rule_changes: u32,
        /// `rule_changes` when the rules were read that describe the sets in use.
        pub sets_at: u32,
        /// Counts the changes of a bridge's stations that ended flows.
        pub station_moves: u32,
    }
}

/// Checked by processes that read the control block of a running daemon.
pub const ABI_VERSION: u32 = 1;
/// Learn flows. This and the following are `enum shunt_control_flags`.
pub const CONTROL_LEARN: u32 = 1 << 0;
/// Learn UDP before the first reply.
pub const CONTROL_UDP_UNREPLIED: u32 = 1 << 1;
/// Learn no TCP over IPv4: the ruleset must see every packet.
pub const CONTROL_HOLD_TCP4: u32 = 1 << 2;
/// Learn no TCP over IPv6.
pub const CONTROL_HOLD_TCP6: u32 = 1 << 3;
/// A reader of traces is present.
pub const CONTROL_TRACE: u32 = 1 << 4;
/// The table has static flows.
pub const CONTROL_STATICS: u32 = 1 << 5;
/// Verify L4 checksums of short packets in tc, unless the driver did.
pub const CONTROL_VERIFY_TC: u32 = 1 << 6;
/// Verify L4 checksums of short packets in XDP.
pub const CONTROL_VERIFY_XDP: u32 = 1 << 7;
/// Verify L4 checksums of longer packets, too.
pub const CONTROL_VERIFY_LONG: u32 = 1 << 8;
/// tc counts the kinds of packets that ports receive.
pub const CONTROL_SURVEY: u32 = 1 << 9;
/// Learn no UDP over IPv4.
pub const CONTROL_HOLD_UDP4: u32 = 1 << 10;
/// Learn no UDP over IPv6.
pub const CONTROL_HOLD_UDP6: u32 = 1 << 11;
/// Learn UDP over IPv4 only after the first reply.
pub const CONTROL_HOLD_NEW4: u32 = 1 << 12;
/// Learn UDP over IPv6 only after the first reply.
pub const CONTROL_HOLD_NEW6: u32 = 1 << 13;
/// All flags that hold learning.
pub const CONTROL_HOLD: u32 = CONTROL_HOLD_TCP4
    | CONTROL_HOLD_TCP6
    | CONTROL_HOLD_UDP4
    | CONTROL_HOLD_UDP6
    | CONTROL_HOLD_NEW4
    | CONTROL_HOLD_NEW6;

plain! {
    /// `struct shunt_port`.
    pub struct Port = "shunt_port", 8; {
        /// Index into the counters and the devmap, `0..PORTS_MAX`.
        pub slot: u16,
        /// `PORT_*` flags.
        pub flags: u16,
        /// Interface index of the device.
        pub ifindex: u32,
    }
}

plain! {
    /// `struct shunt_port_cache`.
    pub struct PortCache = "shunt_port_cache", 768; {
        /// Ports by the low bits of the ifindex. On collision, the port that was written last.
        pub by_ifindex: [Port; PORTS_MAX as usize],
        /// Interface indexes by slot; 0 if the slot is free.
        pub ifindex: [u32; PORTS_MAX as usize],
    }
}

/// Counters of reasons: more than there are reasons.
pub const REASONS_MAX: u32 = 128;
/// The number of ports that an instance can have.
pub const PORTS_MAX: u32 = 64;
/// XDP may redirect to this port. This and the following are `enum shunt_port_flags`.
pub const PORT_XDP_OUT: u16 = 1 << 1;
/// Ingress frames may have unfinished checksums (CHECKSUM_PARTIAL).
pub const PORT_PARTIAL: u16 = 1 << 2;
/// A packet socket captures: learn nothing that arrives or leaves here.
pub const PORT_CAPTURED: u16 = 1 << 3;
/// The port has tc filters or TCX programs that are not Shunt's: learn nothing that arrives here.
pub const PORT_FILTERED: u16 = 1 << 4;
/// The port has TCX programs at egress that are not Shunt's: learn nothing that leaves here.
pub const PORT_FILTERED_OUT: u16 = 1 << 5;
/// Bridged traffic that arrives here may be learned.
pub const PORT_BRIDGED: u16 = 1 << 6;
/// Conntrack does not see bridged IPv4.
pub const PORT_UNTRACKED4: u16 = 1 << 7;
/// Conntrack does not see bridged IPv6.
pub const PORT_UNTRACKED6: u16 = 1 << 8;
/// Shunt's XDP program runs on this port.
pub const PORT_XDP_IN: u16 = 1 << 9;
/// The driver accepts redirected multi-buffer frames.
pub const PORT_XDP_FRAGS: u16 = 1 << 10;
/// A bridge may send copies of what leaves here by devices that are no ports.
pub const PORT_FLOODS_UNSEEN: u16 = 1 << 11;
/// The external engine serves this port.
pub const PORT_EXTERNAL: u16 = 1 << 12;
/// A qdisc of this port treats packets by the socket that they belong to.
pub const PORT_PACED: u16 = 1 << 13;

plain! {
    /// `struct shunt_counters`: per port and CPU. Bytes are counted from the L3 header on.
    pub struct Counters = "shunt_counters", 1144; {
        /// Packets forwarded by XDP.
        pub xdp_pkts: u64,
        /// Bytes forwarded by XDP.
        pub xdp_bytes: u64,
        /// Packets forwarded by tc. A GRO aggregate is one packet.
        pub tc_pkts: u64,
        /// Bytes forwarded by tc.
        pub tc_bytes: u64,
        /// Packets passed to Linux.
        pub slow_pkts: u64,
        /// Bytes passed to Linux.
        pub slow_bytes: u64,
        /// Packets that the fast path lost: midway through a rewrite, or since the egress driver did not accept them.
        pub dropped_pkts: u64,
        /// Actions installed.
        pub learned: u64,
        /// Actions renewed.
        pub proved: u64,
        /// Actions retired.
        pub retired: u64,
        /// Packets received during surveys. An aggregate counts as its segments.
        pub surveyed_pkts: u64,
        /// Surveyed packets that arrived in aggregates.
        pub aggregated_pkts: u64,
        /// Surveyed packets in buffers that native XDP of a virtual device would have to copy.
        pub copied_pkts: u64,
        /// Packets forwarded by the external engine.
        pub external_pkts: u64,
        /// Bytes forwarded by the external engine.
        pub external_bytes: u64,
        /// Packets by `enum shunt_reason`.
        pub reasons: [u64; REASONS_MAX as usize],
    }
}

impl Counters {
    /// Adds the counters of another CPU.
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
        self.surveyed_pkts += other.surveyed_pkts;
        self.aggregated_pkts += other.aggregated_pkts;
        self.copied_pkts += other.copied_pkts;
        self.external_pkts += other.external_pkts;
        self.external_bytes += other.external_bytes;
        for (mine, theirs) in self.reasons.iter_mut().zip(other.reasons) {
            *mine += theirs;
        }
    }
}

plain! {
    /// `struct shunt_event`.
    pub struct Event = "shunt_event", 48; {
        /// The kind of event (`EVENT_*`).
        pub kind: u8,
        /// 4 or 6.
        pub family: u8,
        /// IP protocol number.
        pub l4_proto: u8,
        /// 1 for the reply direction, 0 for the original one.
        pub reply: u8,
        /// `EVENT_IN_WINDOW` and `EVENT_BLIND`: seconds since the connection's last packet. `EVENT_TX_ERROR`: an errno.
        pub value: u32,
        /// Source port.
        pub sport_be: [u8; 2],
        /// Destination port.
        pub dport_be: [u8; 2],
        /// The ingress port; for `EVENT_TX_ERROR`, the egress port.
        pub ifindex: u32,
        /// Source address. An IPv4 address uses the first four bytes.
        pub src_be: [u8; 16],
        /// Destination address.
        pub dst_be: [u8; 16],
    }
}

/// Set BE_LIBERAL on the connection. This and the following are `enum shunt_event_kind`.
pub const EVENT_SET_LIBERAL: u8 = 1;
/// Both directions are silent, and everything was acknowledged.
pub const EVENT_SILENT: u8 = 2;
/// Conntrack no longer follows the acknowledgements of this direction.
pub const EVENT_LAGS: u8 = 3;
/// A genuine RST, or a FIN soon after a blind packet.
pub const EVENT_ENDED: u8 = 4;
/// An RST within the window.
pub const EVENT_IN_WINDOW: u8 = 5;
/// A FIN or RST outside the window.
pub const EVENT_BLIND: u8 = 6;
/// The driver of `ifindex` refuses redirected frames. The event names no connection.
pub const EVENT_TX_ERROR: u8 = 7;

plain! {
    /// `struct shunt_trace`.
    pub struct Trace = "shunt_trace", 64; {
        /// CLOCK_MONOTONIC in ns.
        pub at_ns: u64,
        /// The tuple as on the wire of the port.
        pub tuple: Tuple,
        /// The ingress port.
        pub ifindex: u32,
        /// VLAN tags (`TAG_*`), outermost first; 0 for none.
        pub tags: [u16; 2],
        /// The kind of record (`TRACE_*`).
        pub kind: u8,
        /// Number of a reason in [`REASONS`](super::REASONS); 0 for none.
        pub why: u8,
        /// Zero.
        pub _pad: [u8; 6],
    }
}

/// A flow was proved and inserted. This and the following are `enum shunt_trace_kind`.
pub const TRACE_LEARN: u8 = 1;
/// A pending flow became active.
pub const TRACE_ACTIVATE: u8 = 2;
/// A packet of a known flow went to Linux.
pub const TRACE_PUNT: u8 = 3;
/// Linux forwarded a packet that taught nothing.
pub const TRACE_REFUSE: u8 = 4;
/// A flow was retired.
pub const TRACE_RETIRE: u8 = 5;
