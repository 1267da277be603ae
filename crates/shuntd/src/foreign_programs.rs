//! Finds the TCX programs of others.

use shunt_bpf::{DataPlane, attach::Hook};
use shunt_core::Program;
use std::collections::BTreeSet;

/// The TCX programs on these devices that do not belong to this data plane.
pub(crate) fn foreign_programs(plane: &DataPlane, devices: &BTreeSet<u32>) -> BTreeSet<Program> {
    let hooks = [(Hook::Ingress, false), (Hook::Egress, true)];
    let programs_at = |ifindex: u32, (hook, egress)| {
        let names = plane.foreign_programs(ifindex, hook).into_iter();
        names.map(move |name| Program { ifindex, egress, name })
    };
    devices
        .iter()
        .flat_map(|ifindex| hooks.into_iter().flat_map(|hook| programs_at(*ifindex, hook)))
        .collect()
}
