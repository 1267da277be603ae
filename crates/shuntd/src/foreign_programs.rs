//! Finds the TCX programs of others.

use shunt_bpf::{OwnPrograms, attach::Hook};
use shunt_core::Program;
use std::collections::BTreeSet;

/// The TCX programs on these devices that do not belong to the data plane. Waits for the RTNL lock.
pub(crate) fn foreign_programs(own: OwnPrograms, devices: &BTreeSet<u32>) -> BTreeSet<Program> {
    let hooks = [(Hook::Ingress, false), (Hook::Egress, true)];
    let programs_at = |ifindex: u32, (hook, egress)| {
        let names = own.others_at(ifindex, hook).into_iter();
        names.map(move |name| Program { ifindex, egress, name })
    };
    devices
        .iter()
        .flat_map(|ifindex| hooks.into_iter().flat_map(|hook| programs_at(*ifindex, hook)))
        .collect()
}
