//! The Rust twin of `bpf/external/engine.h` and `sched.h`, which the build makes.

mod twin {
    #![allow(
        dead_code,
        missing_docs,
        reason = "the C headers have more than Rust needs, and leave out what a name says"
    )]
    #![allow(clippy::all, unused_parens, reason = "expressions come from C as they are")]
    use shunt_bpf::abi::*;
    include!(concat!(env!("OUT_DIR"), "/engine_abi.rs"));
}

pub use twin::*;

/// Packets that are on their way through the engine at the same time.
pub const BATCH: usize = twin::BATCH as usize;
/// Bytes that must be free before a frame.
pub const FRAME_ROOM: usize = twin::FRAME_ROOM as usize;
/// Ports by slot.
pub(crate) const PORTS: usize = shunt_bpf::abi::EXTERNAL_PORTS_MAX as usize;
/// Ports by slot, then further queues of theirs.
pub(crate) const QUEUE_PAIRS: usize = QUEUE_PAIRS_MAX as usize;
