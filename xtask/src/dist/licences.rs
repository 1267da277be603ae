//! The licences of the crates that are linked into the programs, as their sources contain them.

use super::PROGRAMS;
use crate::arch::Arch;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Beginnings of the names of licence files, in upper case.
const NAMES: [&str; 5] = ["LICEN", "UNLICEN", "COPYING", "COPYRIGHT", "NOTICE"];

/// A page with all crates of others that the programs contain for an architecture: names, licences and their texts.
pub(super) fn of_crates(arch: &Arch) -> anyhow::Result<String> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", arch.target])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    page(&serde_json::from_slice(&output.stdout)?)
}

fn page(metadata: &Value) -> anyhow::Result<String> {
    let mut list = "Crates that the programs contain\n\n".to_owned();
    // Many crates have the same text.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in linked(metadata)? {
        let field = |name: &str| package[name].as_str().unwrap_or("unknown");
        let name = format!("{} {}", field("name"), field("version"));
        list += &format!("{name}: {}\n", field("license"));
        let manifest = Path::new(field("manifest_path"));
        let directory = manifest.parent().context("a manifest is in a directory")?;
        for file in licence_files(directory)? {
            let text = fs::read(&file).with_context(|| file.display().to_string())?;
            let text = String::from_utf8_lossy(&text).trim().to_owned();
            let names = texts.entry(text).or_default();
            if !names.contains(&name) {
                names.push(name.clone());
            }
        }
    }
    let line = "-".repeat(80);
    for (text, names) in texts {
        list += &format!("\n{line}\n{}\n{line}\n\n{text}\n", names.join(", "));
    }
    Ok(list)
}

/// The packages of registries that the programs need at run time, by name and version.
fn linked(metadata: &Value) -> anyhow::Result<Vec<&Value>> {
    let entries = |of: &'static str, list: &'static str| -> anyhow::Result<BTreeMap<&str, &Value>> {
        let list = metadata.pointer(list).and_then(Value::as_array).context("no list of packages")?;
        Ok(list.iter().filter_map(|entry| Some((entry[of].as_str()?, entry))).collect())
    };
    let (packages, nodes) = (entries("id", "/packages")?, entries("id", "/resolve/nodes")?);
    let is_program =
        |package: &Value| package["source"].is_null() && PROGRAMS.iter().any(|name| package["name"] == *name);
    let mut queue: Vec<&str> =
        packages.iter().filter(|(_, package)| is_program(package)).map(|(id, _)| *id).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = queue.pop() {
        if !found.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let at_run_time = dependencies.filter(|dependency| {
            dependency["dep_kinds"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        });
        queue.extend(at_run_time.filter_map(|dependency| dependency["pkg"].as_str()));
    }
    let mut linked: Vec<&Value> = found.iter().filter_map(|id| packages.get(id).copied()).collect();
    linked.retain(|package| !package["source"].is_null());
    linked.sort_by_key(|package| (package["name"].as_str(), package["version"].as_str()));
    Ok(linked)
}

/// The licence files of a crate, and of libraries whose source it contains.
fn licence_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let folder = if path.is_dir() {
            fs::read_dir(&path)?.flatten().map(|entry| entry.path()).collect()
        } else {
            vec![path]
        };
        found.extend(folder.into_iter().filter(|path| path.is_file() && is_licence(path)));
    }
    found.sort();
    Ok(found)
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    let is_source = path.extension().is_some_and(|end| end == "rs" || end == "toml");
    !is_source && NAMES.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::page;
    use serde_json::{Value, json};
    use std::fs;

    #[test]
    fn crates_of_others_that_are_linked_are_listed_once_with_their_texts() {
        let directory = tempfile::tempdir().expect("a directory");
        let package = |name: &str, ours: bool| -> Value {
            let home = directory.path().join(name);
            fs::create_dir_all(home.join("vendored")).expect("a directory");
            fs::write(home.join("LICENSE-MIT"), "the MIT text\n").expect("a file");
            fs::write(home.join("vendored/COPYING"), format!("the text of {name}'s library"))
                .expect("a file");
            fs::write(home.join("licenses.rs"), "code").expect("a file");
            json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT", "manifest_path": home.join("Cargo.toml"),
                "source": if ours { Value::Null } else { json!("registry") },
            })
        };
        let needs = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                package("shunt", true), package("a", false), package("b", false), package("tester", false),
                package("unused", false),
            ],
            "resolve": {"nodes": [
                {"id": "shunt", "deps": [needs("a", Value::Null), needs("tester", json!("dev"))]},
                {"id": "a", "deps": [needs("b", Value::Null)]},
                {"id": "b", "deps": []},
            ]},
        });
        let page = page(&metadata).expect("a page");
        assert!(page.contains("a 1.0.0: MIT\nb 1.0.0: MIT\n"), "{page}");
        assert!(page.contains("\na 1.0.0, b 1.0.0\n") && page.matches("the MIT text").count() == 1, "{page}");
        assert!(page.contains("the text of a's library") && !page.contains("code"), "{page}");
        assert!(!page.contains("tester") && !page.contains("unused") && !page.contains("shunt"), "{page}");
    }
}
