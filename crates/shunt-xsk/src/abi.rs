//! The Rust side of `bpf/external/engine.h`. A unit test compares every size and offset with the C compiler's.

use crate::{
    mirror::mirror,
    sched::{CPolicer, CSched},
};
use shunt_bpf::abi::{Cold, Control, PORTS_MAX, REASONS_MAX};

/// Packets that are on their way through the engine at the same time.
pub const BATCH: usize = 64;
/// Bytes that must be free before a frame.
pub(crate) const FRAME_ROOM: usize = 12;
pub(crate) const PORTS: usize = PORTS_MAX as usize;
/// Ports by slot, then further queues of theirs.
pub(crate) const QUEUE_PAIRS: usize = 2 * PORTS;
pub(crate) const REASONS: usize = REASONS_MAX as usize;

mirror! {
    pub(crate) struct Frame = "shunt_frame"; {
        pub(crate) data: *mut u8,
        pub(crate) data_end: *mut u8,
        pub(crate) ifindex: u32,
        pub(crate) l3_bytes: u32,
        pub(crate) mark: u32,
        pub(crate) priority: u32,
        pub(crate) order: u32,
        pub(crate) why: u8,
        pub(crate) out_slot: u8,
        pub(crate) dscp: u8,
        pub(crate) late: u8,
    }
}

mirror! {
    pub(crate) struct Desc = "shunt_desc"; {
        pub(crate) at: u64,
        pub(crate) bytes: u32,
        pub(crate) options: u32,
    }
}

mirror! {
    pub(crate) struct Ring = "shunt_ring"; {
        pub(crate) producer: *mut u32,
        pub(crate) consumer: *mut u32,
        pub(crate) entries: *mut u8,
        pub(crate) mask: u32,
    }
}

mirror! {
    pub(crate) struct QueuePair = "shunt_queue_pair"; {
        pub(crate) rx: Ring,
        pub(crate) tx: Ring,
        pub(crate) fill: Ring,
        pub(crate) done: Ring,
        pub(crate) sched: *mut CSched,
        pub(crate) policer: *mut CPolicer,
        pub(crate) ifindex: u32,
        pub(crate) slot: u32,
    }
}

mirror! {
    /// Counters of a port.
    pub struct IngressCounters = "shunt_ingress_counters"; {
        /// Packets received here and forwarded.
        pub pkts: u64,
        /// Their bytes, from the L3 header on.
        pub bytes: u64,
        /// Packets received here and passed to Linux.
        pub slow_pkts: u64,
        /// Packets received here and dropped by the policer.
        pub policed_pkts: u64,
        /// Packets received here and dropped, because the egress port had no room.
        pub tx_full_pkts: u64,
        /// Packets received here and dropped, because the ring to Linux had no room.
        pub up_full_pkts: u64,
        /// Packets received here and dropped, because their batch took too long.
        pub late_pkts: u64,
        /// Packets received here and dropped by the queue of their egress port: it was full, or CoDel shortened it.
        pub queue_pkts: u64,
        /// Slow packets by reason, see [`shunt_bpf::abi::REASONS`].
        pub reasons: [u64; REASONS],
    }
}

mirror! {
    pub(crate) struct CEngine = "shunt_engine"; {
        pub(crate) memory: *mut u8,
        pub(crate) memory_bytes: u64,
        pub(crate) free: *mut u64,
        pub(crate) free_count: u32,
        pub(crate) free_max: u32,
        pub(crate) frame_bytes: u64,
        pub(crate) up: Ring,
        pub(crate) pairs: [QueuePair; QUEUE_PAIRS],
        pub(crate) pairs_end: u32,
        pub(crate) batch_count: u32,
        pub(crate) batch_slot: u32,
        pub(crate) copy_vlan: u32,
        pub(crate) copy_slots: [u32; 2],
        pub(crate) reachable: u64,
        pub(crate) batch: [Frame; BATCH],
        pub(crate) counters: [IngressCounters; PORTS],
        pub(crate) bad_descs: u64,
    }
}

mirror! {
    pub(crate) struct Memory = "shunt_memory"; {
        pub(crate) control: *mut Control,
        pub(crate) groups: *mut u32,
        pub(crate) index: [*mut u8; 2],
        pub(crate) entries4: *mut u8,
        pub(crate) entries6: *mut u8,
        pub(crate) cold: [*mut Cold; 2],
        pub(crate) buckets: u32,
        pub(crate) entries: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_bpf::abi::layout::{CValue, Values, assert_equal, c_values};

    // SAFETY: build.rs makes the table.
    unsafe extern "C" {
        static shunt_engine_values: CValue;
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads a table in C")]
    fn sizes_offsets_and_constants_are_those_of_the_c_header() {
        let mut rust = Values::new();
        Frame::add(&mut rust);
        Desc::add(&mut rust);
        Ring::add(&mut rust);
        QueuePair::add(&mut rust);
        IngressCounters::add(&mut rust);
        CEngine::add(&mut rust);
        Memory::add(&mut rust);
        rust.insert("SHUNT_BATCH".to_owned(), BATCH as u64);
        rust.insert("SHUNT_FRAME_ROOM".to_owned(), FRAME_ROOM as u64);
        rust.insert("SHUNT_QUEUE_PAIRS_MAX".to_owned(), QUEUE_PAIRS as u64);
        // SAFETY: the build script ends the table with an entry without a name.
        let c = unsafe { c_values(&raw const shunt_engine_values) };
        assert_equal(&rust, &c, &[]);
    }
}
