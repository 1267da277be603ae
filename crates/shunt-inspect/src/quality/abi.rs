//! The Rust twin of `bpf/inspect/quality_abi.h`, which the build makes.
#![allow(
    dead_code,
    missing_docs,
    reason = "the C header has more than Rust needs, and leaves out what a name says"
)]
#![allow(clippy::all, unused_parens, reason = "expressions come from C as they are")]

include!(concat!(env!("OUT_DIR"), "/quality_abi.rs"));
