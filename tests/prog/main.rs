//! Tables of single packets: the verdict, the packet that leaves, and the counters. The programs run by
//! `BPF_PROG_TEST_RUN`, or on a wire if that hides something (tags in metadata, aggregates).
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod ahead;
mod at_rest;
mod checksums;
mod conntrack;
mod ends;
mod forwarded;
mod mutated;
mod over_time;
mod ports;
mod punted;
mod rig;
mod sessions;
mod swept;
mod table;
mod verified;
mod wire;
