//! Links, file names and options in the documentation exist.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_testkit::{Shunt, tree::root};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const PLACES: [&str; 8] = ["bpf/", "crates/", "docs/", "fuzz/", "lab/", "packaging/", "tests/", "xtask/"];

fn pages(root: &Path) -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let mut found: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(is_page).collect();
    let mut folders: Vec<PathBuf> =
        [".github", "docs", "lab", "proof", "fuzz", "packaging"].map(|name| root.join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if is_page(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// Anchors of headings, as GitHub makes them.
fn anchors(page: &str) -> Vec<String> {
    let headings =
        page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    headings
        .map(|text| text.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Targets of links, except to other sites.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://"))
}

fn code(page: &str) -> impl Iterator<Item = &str> {
    page.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// Names of files and folders that are set as code. Names with `*` or `<` are patterns.
fn names(page: &str) -> impl Iterator<Item = &str> {
    code(page).filter(|name| {
        PLACES.iter().any(|place| name.starts_with(place)) && !name.contains(['*', '<', '{', ' ', ':'])
    })
}

/// Options of Shunt's commands, in shell examples and in code.
fn options(page: &str) -> impl Iterator<Item = &str> {
    let typed = page.split("```").skip(1).step_by(2).flat_map(str::lines);
    let ours = code(page).chain(typed).filter_map(|line| {
        let line = line.trim_start_matches("$ ").trim_start_matches("# ").trim_start_matches("sudo ");
        (line.starts_with("shunt ") || line.starts_with("shuntd ")).then_some(line)
    });
    let words = ours.flat_map(|line| line.split([' ', '\n', '`', '=', '[', ']', '|', ',', ';']));
    words.filter(|word| word.len() > 2 && word.starts_with("--"))
}

/// The text of all man pages, without the escapes of troff.
fn man_pages() -> String {
    let manual = tempfile::tempdir().unwrap();
    let wrote = Command::new(Shunt::program()).arg("man").arg(manual.path()).output().unwrap();
    assert!(wrote.status.success(), "{wrote:?}");
    let files = fs::read_dir(manual.path()).unwrap();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap().replace("\\-", "-")).collect()
}

fn leads_nowhere(root: &Path, from: &Path, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { from.to_owned() } else { from.parent().unwrap().join(file) };
    let within = path.canonicalize().is_ok_and(|path| path.starts_with(root));
    !within
        || (!anchor.is_empty()
            && !anchors(&fs::read_to_string(path).unwrap()).iter().any(|name| name == anchor))
}

#[test]
fn every_link_file_name_and_option_in_the_documentation_exists() {
    let root = root().canonicalize().unwrap();
    let manual = man_pages();
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in pages(&root) {
        let page = fs::read_to_string(&path).unwrap();
        let mut note = |what: &str, is_wrong: bool| {
            seen += 1;
            if is_wrong {
                wrong.push(format!("{}: {what}", path.display()));
            }
        };
        links(&page).for_each(|target| note(target, leads_nowhere(&root, &path, target)));
        names(&page).for_each(|name| note(name, !root.join(name).exists()));
        options(&page).for_each(|option| note(option, !manual.contains(&format!("\\fB{option}\\fR"))));
    }
    assert!(seen > 100, "found only {seen} links, names and options");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
