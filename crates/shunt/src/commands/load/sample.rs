//! The load of two CPUs, and a self-test.

use crate::golden::sample;
use shunt_lab::load::{Load, SelfTest};

/// The load of a forwarding CPU, whose softirqs /proc/stat underestimates, and of another CPU.
pub(crate) fn load() -> Load {
    sample(include_str!("golden/load.jsonl"))
}

/// A self-test on one quiet CPU.
pub(crate) fn self_test() -> SelfTest {
    sample(include_str!("golden/load-self-test.json"))
}
