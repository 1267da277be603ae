//! Explores the flow table: runs compiled BPF programs on several CPUs in every interleaving within bounds, on memory
//! as weakly ordered as arm64's.
//!
//! `protocol` is a model of how flows are learned and ended, which `search` explores.
//!
//! *Invariant: the explored code is the object code that is loaded into the kernel, or operations that include its
//! source.*

pub mod cpu;
pub mod explore;
pub mod memory;
pub mod object;
pub mod protocol;
pub mod search;
