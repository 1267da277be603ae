//! Which crate needs which is what ARCHITECTURE.md draws.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    process::Command,
};

type Arrows = BTreeMap<String, BTreeSet<String>>;

const HEAD: &str = "| crate | needs of ours |\n| --- | --- |\n";
/// They need what they test.
const TESTING: [&str; 4] = ["shunt-testkit", "shunt-tests", "shunt-twin", "xtask"];

fn drawn(page: &str) -> Arrows {
    let (_, table) = page.split_once(HEAD).unwrap();
    let names = |row: &str| -> Vec<String> { row.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let rows = table.lines().take_while(|line| line.starts_with('|')).map(names);
    rows.map(|names| (names[0].clone(), names[1..].iter().cloned().collect())).collect()
}

/// Those of the manifests, but for what only tests need.
fn there(root: &Path) -> Arrows {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let said = Command::new(cargo).args(asked).current_dir(root).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let name = |of: &Value| of["name"].as_str().unwrap().to_owned();
    let packages = said["packages"].as_array().unwrap();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let needs = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|one| one["kind"] != "dev").map(name).filter(|other| ours.contains(other)).collect()
    };
    packages.iter().map(|package| (name(package), needs(package))).collect()
}

#[test]
fn crates_need_what_is_drawn_and_nothing_needs_the_daemon_or_the_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (testing, product): (Arrows, Arrows) =
        there(&root).into_iter().partition(|(name, _)| TESTING.contains(&name.as_str()));
    assert_eq!(product, drawn(&fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap()));
    let mut needed = testing.values().chain(product.values()).flatten();
    assert_eq!(needed.find(|name| ["shunt", "shuntd"].contains(&name.as_str())), None);
}
