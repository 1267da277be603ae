//! What the systemd unit leaves to the daemon is what it needs.

use crate::{
    command::{send_fast, start_by},
    programs::attach,
};
use shunt_bpf::{attach::Hook, bystander::NAME};
use shunt_testkit::{Shunt, require_root, wait_until};
use std::fs;

const UNIT: &str = include_str!("../../../packaging/shuntd@.service");

fn warnings(shunt: &Shunt) -> Vec<String> {
    let log = fs::read_to_string(shunt.directory().join(format!("{}.log", shunt.instance()))).unwrap();
    log.lines().filter_map(|line| line.split_once(" WARN ")).map(|(_, what)| what.to_owned()).collect()
}

#[test]
fn with_the_capabilities_of_the_unit_it_does_all_that_it_does_with_every_one() {
    if !require_root() {
        return;
    }
    let allowed = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let allowed = allowed.to_lowercase().replace("cap_", "+").replace(' ', ",");
    let restricted = format!("setpriv --no-new-privs --bounding-set=-all,{allowed}");
    for engine in ["tc", "xdp"] {
        let warned = ["", &restricted].map(|by| {
            let (lab, shunt, stage, packet) = start_by(by, &format!("--engine {engine}"));
            send_fast(&shunt, &stage, &packet, 5);
            let _program = attach(&lab, "r0", Hook::Ingress);
            wait_until("somebody else's program is named", || shunt.done("status").contains(NAME));
            warnings(&shunt)
        });
        assert_eq!(warned[1], warned[0], "{engine}");
    }
}
