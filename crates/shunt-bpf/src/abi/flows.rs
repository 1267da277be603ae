//! The flow table: keys, actions, and the requests and results of sweeps and edits.

use crate::plain;

/// The longest L2 header: MACs, two tags, EtherType.
pub const L2_MAX: usize = 22;
/// The epoch of a retired action.
pub const EPOCH_RETIRED: u32 = 0;

/// Set in a key's tag if the tag is present: VLAN id 0 is a priority tag.
pub const TAG_PRESENT: u16 = 0x8000;
/// The tag is an 802.1ad tag.
pub const TAG_8021AD: u16 = 0x1000;
/// Mask of the VLAN id.
pub const TAG_VID: u16 = 0x0fff;

/// Number of groups of flows by their stations; each number of 16 bits is one.
pub const GROUPS: usize = 1 << 16;
/// Proved; the packet may still leave a second time.
pub const FLOW_PENDING: u8 = 1;
/// In use.
pub const FLOW_ACTIVE: u8 = 2;
/// Proved; its connection may have been deleted meanwhile.
pub const FLOW_INSERTED: u8 = 3;

/// XDP may send to the egress port. This and the following are `enum shunt_flow_flags`.
pub const FLOW_XDP: u8 = 1 << 0;
/// Configured by the operator: no epoch, no proof, no conntrack.
pub const FLOW_STATIC: u8 = 1 << 1;
/// Addresses or ports change.
pub const FLOW_NAT: u8 = 1 << 2;
/// The ingress driver may deliver unfinished checksums.
pub const FLOW_PARTIAL: u8 = 1 << 3;
/// The connection's reply direction.
pub const FLOW_REPLY: u8 = 1 << 4;
/// Proved before the first reply; UDP only.
pub const FLOW_UNREPLIED: u8 = 1 << 5;
/// Bridged: the TTL stays, and the source MAC must match.
pub const FLOW_BRIDGED: u8 = 1 << 6;
/// Bridged and not tracked by conntrack.
pub const FLOW_UNTRACKED: u8 = 1 << 7;

plain! {
    /// `struct shunt_key4`. Fields that end in `_be` hold the bytes of the wire.
    pub struct Key4 = "shunt_key4", 24; {
        /// Source address.
        pub src_be: [u8; 4],
        /// Destination address.
        pub dst_be: [u8; 4],
        /// Source port.
        pub sport_be: [u8; 2],
        /// Destination port.
        pub dport_be: [u8; 2],
        /// The ingress port.
        pub ifindex: u32,
        /// VLAN tags, outermost first.
        pub tags: [u16; 2],
        /// Protocol number.
        pub l4_proto: u32,
    }
}

plain! {
    /// `struct shunt_key6`.
    pub struct Key6 = "shunt_key6", 48; {
        /// Source address.
        pub src_be: [u8; 16],
        /// Destination address.
        pub dst_be: [u8; 16],
        /// Source port.
        pub sport_be: [u8; 2],
        /// Destination port.
        pub dport_be: [u8; 2],
        /// The ingress port.
        pub ifindex: u32,
        /// VLAN tags, outermost first.
        pub tags: [u16; 2],
        /// Protocol number.
        pub l4_proto: u32,
    }
}

plain! {
    /// `struct shunt_flow`: an action, and the state that changes with each packet. Ticks are the low half of jiffies.
    pub struct Flow = "shunt_flow", 96; {
        /// The epoch of the last proof, plus the moves of the flow's group by then; `EPOCH_RETIRED` once retired.
        pub epoch: u32,
        /// `FLOW_INSERTED`, `FLOW_PENDING` or `FLOW_ACTIVE`.
        pub state: u8,
        /// `FLOW_*` flags.
        pub flags: u8,
        /// Number of VLAN tags in `l2`.
        pub out_tags: u8,
        /// 1 if tc is to punt the next packet.
        pub punt_due: u8,
        /// When the next proof is due; for a retired action, when it was retired.
        pub reprove_at_ticks: u32,
        /// When the last proof expires.
        pub prove_by_ticks: u32,
        /// The largest packet that Linux was seen to forward.
        pub max_l3_bytes: u16,
        /// The stations that the flow depends on; of a retired action, see [`Flow::retired_why`].
        pub group: u16,
        /// The destination MAC of ingress packets.
        pub in_dmac: [u8; 6],
        /// The whole new L2 header: MACs, tags, EtherType.
        pub l2: [u8; L2_MAX],
        /// Slot of the ingress port.
        pub in_slot: u8,
        /// Slot of the egress port.
        pub out_slot: u8,
        /// Ones' complement sum of new minus old addresses and ports.
        pub l4_delta: u16,
        /// Ones' complement sum of new minus old addresses.
        pub l4_delta_addr: u16,
        /// The CPU that counts without atomics; `NO_CPU` for none, `ENGINE_CPU` for the external engine.
        pub home_cpu: u8,
        /// Of `seen_ticks` when the flow's silence was reported: the low byte with bit 0 set; 0 after a use.
        pub reported: u8,
        /// DSCP and VLAN priorities the flow was learned with.
        pub class_bits: u16,
        /// TTL or hop limit the flow was learned with.
        pub in_ttl: u8,
        /// Zero.
        pub _zero: u8,
        /// New source port.
        pub sport_be: [u8; 2],
        /// New destination port.
        pub dport_be: [u8; 2],
        /// skb->mark as Linux left it.
        pub mark: u32,
        /// skb->priority as Linux left it.
        pub priority: u32,
        /// Last use or proof.
        pub seen_ticks: u32,
        /// Packets on the home CPU; overflows into `remote_pkts`.
        pub pkts: u32,
        /// Bytes on the home CPU.
        pub bytes: u64,
        /// The TCP position after the last packet, see `core::tcp_position`; 0 if unknown.
        pub tcp_position: u64,
    }
}

impl Flow {
    /// When the action was retired. Valid for a retired action only.
    pub fn retired_ticks(&self) -> u32 {
        self.reprove_at_ticks
    }

    /// Why the action was retired, if it was.
    pub fn retired_why(&self) -> Option<u8> {
        (self.epoch == EPOCH_RETIRED).then(|| self.group.to_ne_bytes()[0])
    }

    /// Marks the action as retired at that time.
    pub fn retire(&mut self, at_ticks: u32) {
        (self.epoch, self.reprove_at_ticks) = (EPOCH_RETIRED, at_ticks);
    }
}

plain! {
    /// `struct shunt_cold`: the rarely used part of an entry.
    pub struct Cold = "shunt_cold", 24; {
        /// Packets counted by CPUs other than the home CPU.
        pub remote_pkts: u64,
        /// Bytes counted by CPUs other than the home CPU.
        pub remote_bytes: u64,
        /// First proof.
        pub learned_ticks: u32,
        /// While the entry is free, the next free entry plus one. While it is in use, when a blind FIN or RST was last
        /// reported.
        pub next_free: u32,
    }
}

/// Slots in a bucket of the index.
pub const WAYS: usize = 4;

plain! {
    /// `struct shunt_edit`.
    pub struct Edit = "shunt_edit", 232; {
        /// The operation (`EDIT_*`).
        pub op: u32,
        /// 4 or 6.
        pub family: u32,
        /// 0 or a negative errno.
        pub result: i32,
        /// Zero.
        pub _pad: u32,
        /// A [`Key4`] or a [`Key6`].
        pub key: [u8; 48],
        /// The flow.
        pub flow: Flow,
        /// The new addresses.
        pub to: [u8; 32],
        /// The rarely used part of the entry.
        pub cold: Cold,
        /// The sighting of the key's tuple.
        pub sighting: Sighting,
    }
}

/// Insert or replace a flow.
pub const EDIT_PUT: u32 = 1;
/// Remove a flow.
pub const EDIT_REMOVE: u32 = 2;
/// Read a flow.
pub const EDIT_GET: u32 = 3;
/// Read the sighting of the key's tuple.
pub const EDIT_SIGHTING: u32 = 4;

/// Ticks in a unit of `Sighting::since`.
pub const SIGHTING_TICKS: u32 = 64;

plain! {
    /// `struct shunt_sighting`: packets seen with a tuple. Tuples may share one.
    pub struct Sighting = "shunt_sighting", 16; {
        /// Packets within the window, including those of tuples that share the sighting.
        pub pkts: u32,
        /// Until when the refused tuple is not watched; 0 if none was refused.
        pub quiet_until_ticks: u32,
        /// Start of the window in which packets are counted, in units of `SIGHTING_TICKS`; wraps.
        pub since: u16,
        /// Tells which tuple is the only one counted within the window; 0 if there are several.
        pub fingerprint: u16,
        /// Tells which tuple was refused.
        pub refused_fingerprint: u16,
        /// Number of the last refusal's reason; 0 for none.
        pub refused_why: u8,
        /// Number of tuples here that have a TCP position in `Expired`; saturates at 255.
        pub expired: u8,
    }
}

plain! {
    /// `struct shunt_tuple`: one direction of a connection. IPv4 addresses are in the first four bytes.
    pub struct Tuple = "shunt_tuple", 40; {
        /// Source address.
        pub src_be: [u8; 16],
        /// Destination address.
        pub dst_be: [u8; 16],
        /// Source port.
        pub sport_be: [u8; 2],
        /// Destination port.
        pub dport_be: [u8; 2],
        /// 4 or 6.
        pub family: u8,
        /// Protocol number.
        pub l4_proto: u8,
        /// Zero.
        pub _pad: [u8; 2],
    }
}

plain! {
    /// `struct shunt_expired`: counters and TCP positions of a tuple whose flow has left the table.
    pub struct Expired = "shunt_expired", 48; {
        /// Packets.
        pub pkts: u64,
        /// Bytes, from the L3 header on.
        pub bytes: u64,
        /// As in [`Flow`]; 0 once a packet has passed without a flow.
        pub tcp_position: u64,
        /// TCP position of the other direction.
        pub other_position: u64,
        /// Last use of the flow.
        pub seen_ticks: u32,
        /// When a blind FIN or RST was last reported.
        pub blind_ticks: u32,
        /// 1 for the reply direction.
        pub reply: u32,
        /// Zero.
        pub _pad: u32,
    }
}

plain! {
    /// `struct shunt_usage`. Arrays are by family: IPv4, IPv6.
    pub struct Usage = "shunt_usage", 64; {
        /// Entries in use.
        pub entries: [u32; 2],
        /// The first entry that was never used; none behind it was.
        pub fresh: [u64; 2],
        /// Head of the free list, plus one; the upper half counts changes.
        pub free: [u64; 2],
        /// Entries of `shunt_expired`, or more while one is added or removed.
        pub expired: u64,
        /// Expired flows whose counters did not fit.
        pub expired_lost: u64,
        /// Trace records that did not fit the ring.
        pub traces_lost: u64,
    }
}

plain! {
    /// `struct shunt_sweep`.
    pub struct Sweep = "shunt_sweep", 52; {
        /// Result: the clock.
        pub now_ticks: u32,
        /// Retire flows that were unused for longer.
        pub idle_ticks: u32,
        /// 1 to retire all learned flows.
        pub all: u32,
        /// Result: active flows.
        pub active: u32,
        /// Result: pending flows.
        pub pending: u32,
        /// Result: retired flows.
        pub retired: u32,
        /// Result: static flows.
        pub statics: u32,
        /// Result: flows removed.
        pub deleted: u32,
        /// Age at which a retired flow is removed; set by the program.
        pub remove_ticks: u32,
        /// Result: flows retired by this sweep.
        pub flushed: u32,
        /// The first entry to visit; IPv6 entries follow the IPv4 entries.
        pub from: u32,
        /// How many entries to visit; result: how many are left.
        pub entries: u32,
        /// Silence after which a connection is reported; set by the program.
        pub silent_ticks: u32,
    }
}

plain! {
    /// `struct shunt_change`.
    pub struct Change = "shunt_change", 28; {
        /// 4 or 6 for a prefix; 0 for a station.
        pub family: u32,
        /// Length of the prefix.
        pub prefix_len: u32,
        /// Of the prefix; or the MAC of the station, in the first six bytes.
        pub address: [u8; 16],
        /// Result: 1 if the change may concern a flow; the epoch has moved then.
        pub moved: u32,
    }
}

plain! {
    /// `struct shunt_mac`.
    pub struct PaddedMac = "shunt_mac", 8; {
        /// The MAC.
        pub bytes: [u8; 6],
        pub(crate) _pad: [u8; 2],
    }
}

plain! {
    /// `struct shunt_unstable`: a station whose changes have ended flows. Times are all 64 bits of jiffies.
    pub struct Unstable = "shunt_unstable", 24; {
        /// When the first of these changes was seen.
        pub since_ticks: u64,
        /// Nothing is learned from its packets until then; 0 if it may be learned.
        pub until_ticks: u64,
        /// Number of changes.
        pub changes: u32,
        pub(crate) _pad: u32,
    }
}

plain! {
    /// `struct shunt_set_name`.
    pub struct SetName = "shunt_set_name", 100; {
        /// NFPROTO_* of the table.
        pub family: u8,
        /// The table, padded with zeros.
        pub table: [u8; 32],
        /// The set, padded with zeros.
        pub set: [u8; 64],
        pub(crate) _pad: [u8; 3],
    }
}

plain! {
    /// `struct shunt_set`.
    pub struct Set = "shunt_set", 8; {
        /// 4 or 6, of the address.
        pub family: u8,
        /// Offset of the address in the key.
        pub offset: u8,
        /// Size of the key.
        pub key_bytes: u8,
        /// `SET_*` flags.
        pub flags: u8,
        /// Differs between sets; never 0.
        pub number: u32,
    }
}

/// The most sets that are described to the programs.
pub const SETS_MAX: u32 = 1024;
/// Elements are boundaries of intervals. This is `enum shunt_set_flags`.
pub const SET_INTERVALS: u8 = 1;
