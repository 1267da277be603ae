//! The conditions of the bench.

use crate::rig::router_rig::Placement;
use serde_json::Value;
use shunt_lab::Conditions;
use std::collections::BTreeMap;

/// The conditions for the file of results, and those of the summary.
pub fn conditions(placement: Placement, quick: bool) -> (Conditions, BTreeMap<&'static str, String>) {
    let mut conditions = Conditions::of_this_machine();
    let setup = [
        ("placement", format!("{:?}", placement)),
        ("quick", quick.to_string()),
        ("frame", "64 bytes with FCS, UDP, IPv4".to_owned()),
        ("batch", "64 frames".to_owned()),
        ("devices", "veth, native XDP, threaded NAPI".to_owned()),
    ];
    let machine = [
        ("kernel", conditions.kernel.clone().unwrap_or_default()),
        ("cpu", conditions.cpus.model.clone().unwrap_or_default()),
        ("cpus", conditions.cpus.count.to_string()),
        ("load_at_start", conditions.load_at_start.clone().unwrap_or_default()),
    ];
    for (name, value) in &setup {
        conditions.setup.insert((*name).to_owned(), Value::from(value.as_str()));
    }
    (conditions, setup.into_iter().chain(machine).collect())
}
