//! The services of other systems start and confine the daemon as the systemd unit does.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_testkit::tree::root;
use std::{collections::BTreeMap, fs};

/// Settings of the unit that a module of NixOS makes from its own options.
const BY_OPTIONS: [&str; 3] = ["EnvironmentFile", "ExecReload", "ExecStart"];

/// `NAME=VALUE` of the section [Service].
fn of_unit(text: &str) -> BTreeMap<&str, &str> {
    let section = text.split_once("[Service]\n").unwrap().1.split_once("\n[").unwrap().0;
    section.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')).collect()
}

/// `NAME = VALUE;` of `serviceConfig`.
fn of_module(text: &str) -> BTreeMap<&str, &str> {
    let part = text.split_once("serviceConfig = {\n").unwrap().1.split_once("\n      };").unwrap().0;
    let settings = part.lines().filter_map(|line| line.trim().strip_suffix(';')?.split_once(" = "));
    settings.map(|(name, value)| (name, value.trim_matches('"'))).collect()
}

fn same(unit: &str, module: &str) -> bool {
    unit == module || (unit, module) == ("yes", "true")
}

#[test]
fn the_module_for_nixos_has_the_settings_of_the_unit() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (unit, module) = (read("packaging/shuntd@.service"), read("packaging/nixos/module.nix"));
    let (unit, module) = (of_unit(&unit), of_module(&module));
    assert!(unit.len() > 30, "{unit:?}");
    for (name, value) in unit.into_iter().filter(|(name, _)| !BY_OPTIONS.contains(name)) {
        let other = module.get(name).unwrap_or_else(|| panic!("packaging/nixos/module.nix has no {name}"));
        assert!(same(value, other), "{name}: {value} in the unit, {other} in packaging/nixos/module.nix");
    }
}

#[test]
fn containers_have_the_capabilities_of_the_unit() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (unit, compose) = (read("packaging/shuntd@.service"), read("packaging/oci/compose.yaml"));
    let unit = of_unit(&unit)["CapabilityBoundingSet"].replace("CAP_", "").replace(' ', ", ");
    let added = compose.lines().find_map(|line| line.trim().strip_prefix("cap_add: ")).unwrap();
    assert_eq!(added, format!("[{unit}]"));
}
