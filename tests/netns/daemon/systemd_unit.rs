//! The systemd unit's capabilities suffice for the daemon.

use crate::{programs::attach, up_and_down::send_fast, up_and_down::start_by};
use shunt_bpf::attach::Hook;
use shunt_testkit::{Shunt, require_root, wait_until};
use shunt_traffic::bystander::NAME;
use std::fs;

const UNIT: &str = include_str!("../../../packaging/shuntd@.service");

fn warnings(shunt: &Shunt) -> Vec<String> {
    let log = fs::read_to_string(shunt.directory().join(format!("{}.log", shunt.instance()))).unwrap();
    log.lines().filter_map(|line| line.split_once(" WARN ")).map(|(_, what)| what.to_owned()).collect()
}

#[test]
fn the_capabilities_of_the_systemd_unit_suffice() {
    if !require_root() {
        return;
    }
    let allowed = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let allowed = allowed.to_lowercase().replace("cap_", "+").replace(' ', ",");
    let restricted = format!("setpriv --no-new-privs --bounding-set=-all,{allowed}");
    for engine in ["tc", "xdp", "external"] {
        let warned = ["", &restricted].map(|by| {
            let (lab, shunt, stage, packet) = start_by(by, &format!("--engine {engine}"));
            send_fast(&shunt, &stage, &packet, 5);
            let _program = attach(&lab, "r0", Hook::Ingress);
            wait_until("status names the other program", || shunt.done("status").contains(NAME));
            warnings(&shunt)
        });
        assert_eq!(warned[1], warned[0], "{engine}");
    }
}

#[test]
fn the_unit_tells_the_daemon_how_many_descriptors_systemd_keeps() {
    let value = |key: &str| UNIT.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    assert_eq!(value("FileDescriptorStoreMax="), value("Environment=FDSTORE="));
    // systemd sets the limit before it gives them back.
    let [stored, limit] =
        ["FileDescriptorStoreMax=", "LimitNOFILE="].map(|key| value(key).split(':').next().unwrap());
    assert!(limit.parse::<u32>().unwrap() > 2 * stored.parse::<u32>().unwrap() - 100);
    // The default keeps them for a restart and no longer.
    assert!(!UNIT.contains("\nFileDescriptorStorePreserve="));
}
