//! Tables: a packet in, a verdict, a packet out and the counters. The programs are run by `BPF_PROG_TEST_RUN`, and where
//! that hides something (tags beside the frame, aggregates), on a wire.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod abi;
mod conntrack;
mod forwarded;
mod mutated;
mod over_time;
mod ports;
mod punted;
mod rig;
mod swept;
mod table;
mod wire;
