//! The dependencies between crates are those that ARCHITECTURE.md lists. The test `modules` checks the files of each
//! crate.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use serde_json::Value;
use shunt_testkit::tree::root;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    process::Command,
};

type Arrows = BTreeMap<String, BTreeSet<String>>;

const HEAD: &str = "| crate | needs of ours |\n| --- | --- |\n";
/// Crates for testing; they may depend on any crate.
const TESTING: [&str; 7] =
    ["shunt-bench", "shunt-fuzz", "shunt-proof", "shunt-testkit", "shunt-tests", "shunt-twin", "xtask"];

/// The table of ARCHITECTURE.md: each crate, and the crates that it depends on.
fn documented(page: &str) -> Arrows {
    let (_, table) = page.split_once(HEAD).unwrap();
    let names = |row: &str| -> Vec<String> { row.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let rows = table.lines().take_while(|line| line.starts_with('|')).map(names);
    rows.map(|names| (names[0].clone(), names[1..].iter().cloned().collect())).collect()
}

/// The dependencies in the manifests, without dev-dependencies.
fn declared(root: &Path) -> Arrows {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(args).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let needs = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|dependency| dependency["kind"] != "dev")
            .map(name)
            .filter(|name| ours.contains(name))
            .collect()
    };
    packages.iter().map(|package| (name(package), needs(package))).collect()
}

#[test]
fn crates_depend_on_each_other_as_documented_and_only_fuzzing_and_the_small_program_on_the_daemon() {
    let root = root();
    let (testing, product): (Arrows, Arrows) =
        declared(&root).into_iter().partition(|(name, _)| TESTING.contains(&name.as_str()));
    assert_eq!(product, documented(&fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap()));
    let needing = |wanted: &str| -> Vec<&String> {
        let all = testing.iter().chain(&product);
        all.filter(|(_, needs)| needs.contains(wanted)).map(|(name, _)| name).collect()
    };
    assert_eq!(needing("shunt"), Vec::<&String>::new());
    assert_eq!(needing("shuntd"), [&"shunt-fuzz".to_owned(), &"shunt".to_owned()]);
}
