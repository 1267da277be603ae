//! Which file of a crate uses which: no two files may use each other, and the command has floors.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use shunt_testkit::tree::root;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The path of a module within its crate; empty for the root.
type Module = Vec<String>;
/// The modules that have a file, with what each uses.
type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// The floors of `crates/shunt`, from the ground up. A module uses only modules of lower floors, and its own children.
const FLOORS: &[&[&str]] = &[
    &["failure", "render"],
    &["daemon", "output", "signals"],
    &["client"],
    &["command"],
    &["commands"],
    &["cli"],
];

/// The paths and the imports that one file mentions.
#[derive(Default)]
struct Mentions {
    /// Paths, with the module in which they stand.
    paths: Vec<(Module, Vec<String>)>,
    /// Names that `use` brings into a module.
    imports: BTreeMap<(Module, String), Import>,
    /// Modules that exist in tests only.
    test_modules: Vec<Module>,
}

struct Import {
    path: Vec<String>,
    is_public: bool,
}

impl Mentions {
    fn read(module: &Module, source: &str) -> Self {
        let mut mentions = Self::default();
        mentions.items(module, source.parse().unwrap());
        mentions
    }

    /// Reads a stream of tokens that stands in this module. Leaves out items that exist in tests only.
    fn items(&mut self, module: &Module, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..]) {
                let end = end_of_item(&tokens, at + 2);
                self.test_modules.extend(declared_module(&tokens[at..end]).map(|name| child(module, &name)));
                at = end;
            } else if is_word(&tokens[at], "use") {
                let end = (at..tokens.len()).find(|n| is_punct(&tokens[*n], ';')).unwrap_or(tokens.len());
                let is_public = is_public(&tokens[..at]);
                self.use_tree(module, is_public, &[], &tokens[at + 1..end]);
                at = end + 1;
            } else if let Some((name, body)) = inline_module(&tokens[at..]) {
                self.items(&child(module, &name), body);
                at += 3;
            } else if let TokenTree::Group(group) = &tokens[at] {
                self.items(module, group.stream());
                at += 1;
            } else if matches!(tokens[at], TokenTree::Ident(_)) {
                let (path, length) = path_at(&tokens[at..]);
                if path.len() > 1 {
                    self.paths.push((module.clone(), path));
                }
                at += length;
            } else {
                at += 1;
            }
        }
    }

    /// Reads what stands after `use`: a path, a group of them, or a list within a group.
    fn use_tree(&mut self, module: &Module, is_public: bool, prefix: &[String], tokens: &[TokenTree]) {
        for tree in tokens.split(|token| is_punct(token, ',')).filter(|tree| !tree.is_empty()) {
            let (relative, length) = path_at(tree);
            let mut path = [prefix, &relative].concat();
            match &tree[length..] {
                [TokenTree::Group(group)] => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.use_tree(module, is_public, &path, &inner);
                    continue;
                }
                [as_word, TokenTree::Ident(alias)] if is_word(as_word, "as") => {
                    let import = Import { path: path.clone(), is_public };
                    self.imports.insert((module.clone(), alias.to_string()), import);
                }
                _ => {
                    if path.last().is_some_and(|last| last == "self") {
                        path.pop();
                    }
                    if let Some(name) = path.last() {
                        let import = Import { path: path.clone(), is_public };
                        self.imports.insert((module.clone(), name.clone()), import);
                    }
                }
            }
            self.paths.push((module.clone(), path));
        }
    }
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn is_punct(token: &TokenTree, punct: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == punct)
}

/// Whether the item after these tokens is `pub` or `pub(...)`.
fn is_public(before: &[TokenTree]) -> bool {
    match before {
        [.., word, TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => {
            is_word(word, "pub")
        }
        [.., word] => is_word(word, "pub"),
        [] => false,
    }
}

/// The name in `mod name;` or `mod name { ... }`.
fn declared_module(tokens: &[TokenTree]) -> Option<String> {
    let at = tokens.iter().position(|token| is_word(token, "mod"))?;
    tokens.get(at + 1).map(ToString::to_string)
}

/// Whether the tokens begin with `#[cfg(test)]` or `#[test]`.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [hash, TokenTree::Group(group), ..] = tokens else { return false };
    let text = group.stream().to_string().replace(' ', "");
    is_punct(hash, '#')
        && (text == "test" || text.starts_with("cfg(test)") || text.starts_with("cfg(all(test"))
}

/// The index after the item that begins at `at`: after its `;`, or after its body.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let is_end = |token: &TokenTree| {
        is_punct(token, ';')
            || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    // An import may end with a group and a semicolon.
    let end = (at..tokens.len()).find(|n| is_end(&tokens[*n])).unwrap_or(tokens.len());
    if tokens.get(end + 1).is_some_and(|token| is_punct(token, ';')) { end + 2 } else { end + 1 }
}

/// `mod name { ... }`: the name and the body.
fn inline_module(tokens: &[TokenTree]) -> Option<(String, TokenStream)> {
    match tokens {
        [word, TokenTree::Ident(name), TokenTree::Group(body), ..] if is_word(word, "mod") => {
            Some((name.to_string(), body.stream()))
        }
        _ => None,
    }
}

/// The path `a::b::c` at the beginning of these tokens, and how many tokens it takes, with a `::` at its end.
fn path_at(tokens: &[TokenTree]) -> (Vec<String>, usize) {
    let (mut path, mut at) = (Vec::new(), 0);
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        path.push(name.to_string().trim_start_matches("r#").to_owned());
        at += 1;
        match &tokens[at..] {
            [first, second, ..] if is_punct(first, ':') && is_punct(second, ':') => at += 2,
            _ => break,
        }
    }
    (path, at)
}

fn child(module: &Module, name: &str) -> Module {
    [module.as_slice(), &[name.to_owned()]].concat()
}

/// Reads the sources of a crate: the text of each file, by its module.
fn sources(folder: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(Module::new(), folder.to_owned())];
    while let Some((module, folder)) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push((child(&module, &stem), path));
            } else if path.extension().is_some_and(|end| end == "rs") {
                let is_root = module.is_empty() && ["lib", "main"].contains(&stem.as_str());
                let module = if is_root || stem == "mod" { module.clone() } else { child(&module, &stem) };
                // A crate with both roots has its modules in lib.rs.
                let text = found.entry(module).or_insert_with(String::new);
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Which module uses which, for modules with a file of their own.
fn uses(sources: &BTreeMap<Module, String>) -> Uses {
    let mentions: BTreeMap<&Module, Mentions> =
        sources.iter().map(|(module, text)| (module, Mentions::read(module, text))).collect();
    let of_tests: Vec<&Module> = mentions.values().flat_map(|found| &found.test_modules).collect();
    let is_test = |module: &Module| of_tests.iter().any(|test| module.starts_with(test));
    let resolve = |module: &Module, path: &[String]| resolve(sources, &mentions, module, path, 8);
    let used_by = |(module, found): (&&Module, &Mentions)| {
        let used = found.paths.iter().filter_map(|(inner, path)| resolve(inner, path));
        ((*module).clone(), used.filter(|used| used != *module).collect())
    };
    mentions.iter().filter(|(module, _)| !is_test(module)).map(used_by).collect()
}

/// The module with a file that defines what `path` names in `module`; none if it is not of this crate. Follows imports,
/// so that an item that a module re-exports leads to the file that defines it.
fn resolve(
    sources: &BTreeMap<Module, String>,
    mentions: &BTreeMap<&Module, Mentions>,
    module: &Module,
    path: &[String],
    depth: usize,
) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let depth = depth.checked_sub(1)?;
    let mut at = module.clone();
    let mut rest = rest;
    match first.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => drop(at.pop()),
        name => {
            rest = path;
            let is_child = sources.contains_key(&child(&at, name));
            let file = file_of(sources, &at);
            let imported = mentions[&file].imports.get(&(at.clone(), name.to_owned()));
            match imported {
                // `use x` in a module of which `x` is a child names that child.
                Some(import) if !is_child && import.path != path => {
                    let path = [&import.path, &path[1..]].concat();
                    return resolve(sources, mentions, module, &path, depth);
                }
                _ if is_child => {}
                _ => return None,
            }
        }
    }
    while let Some((name, further)) = rest.split_first() {
        if name == "super" {
            at.pop();
        } else if sources.contains_key(&child(&at, name)) {
            at.push(name.clone());
        } else {
            let file = file_of(sources, &at);
            let import = mentions[&file].imports.get(&(at.clone(), name.clone()));
            // A private import is visible to the children of its module only.
            if let Some(import) = import.filter(|import| import.is_public || module.starts_with(&at)) {
                let path = [&import.path, further].concat();
                if let Some(found) = resolve(sources, mentions, &at, &path, depth) {
                    return Some(found);
                }
            }
            break;
        }
        rest = further;
    }
    Some(file_of(sources, &at))
}

/// The module with a file in which this module stands.
fn file_of(sources: &BTreeMap<Module, String>, module: &Module) -> Module {
    let mut at = module.clone();
    while !sources.contains_key(&at) && at.pop().is_some() {}
    at
}

/// The groups of modules that use each other, directly or through others. Uses of a module's own parents do not count:
/// a parent and its children are one unit, which the parent divides.
fn circles(uses: &Uses) -> Vec<Vec<&Module>> {
    let reachable = |start| {
        let mut found = BTreeSet::new();
        let mut open: Vec<&Module> = vec![start];
        while let Some(module) = open.pop() {
            let used = uses.get(module).into_iter().flatten().filter(|used| !module.starts_with(used));
            open.extend(used.filter(|used| found.insert(*used)));
        }
        found
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|module| (module, reachable(module))).collect();
    let mut groups: Vec<Vec<&Module>> = Vec::new();
    for (module, from_here) in reached.iter().filter(|(module, from_here)| from_here.contains(*module)) {
        if !groups.iter().any(|group| group.contains(module)) {
            groups.push(from_here.iter().copied().filter(|other| reached[other].contains(module)).collect());
        }
    }
    groups
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

/// Each use of a module on the same or on a higher floor.
fn upward_uses(uses: &Uses, floors: &[&[&str]]) -> Vec<String> {
    let floor = |module: &Module| {
        let top = module.first()?;
        floors.iter().position(|names| names.contains(&top.as_str()))
    };
    let mut wrong = Vec::new();
    for (module, used) in uses.iter().filter(|(module, _)| !module.is_empty()) {
        match floor(module) {
            None => wrong.push(format!("{} has no floor", shown(module))),
            Some(own) => wrong.extend(
                used.iter()
                    .filter(|used| used.first() != module.first())
                    .filter(|used| floor(used).is_none_or(|used| used >= own))
                    .map(|used| format!("{} uses {}", shown(module), shown(used))),
            ),
        }
    }
    wrong
}

fn crates() -> Vec<PathBuf> {
    let root = root();
    let members = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    members
        .chain([root.join("xtask"), root.join("fuzz"), root.join("proof")])
        .filter(|path| path.join("src").is_dir())
        .collect()
}

#[test]
fn no_files_of_a_crate_use_each_other() {
    let mut found = Vec::new();
    for path in crates() {
        let uses = uses(&sources(&path.join("src")));
        for circle in circles(&uses) {
            let crate_name = path.file_name().unwrap().display();
            found.extend(circle.iter().map(|module| {
                let used: Vec<String> =
                    uses[*module].iter().filter(|used| circle.contains(used)).map(shown).collect();
                format!("{crate_name}: {} uses {}", shown(module), used.join(", "))
            }));
        }
    }
    assert!(found.is_empty(), "files that use each other: {found:#?}");
}

#[test]
fn modules_of_the_command_use_lower_floors_only() {
    let uses = uses(&sources(&root().join("crates/shunt/src")));
    assert!(uses.len() > 40 && uses.values().map(BTreeSet::len).sum::<usize>() > 100, "{uses:?}");
    assert_eq!(upward_uses(&uses, FLOORS), Vec::<String>::new());
}

fn planted(files: &[(&str, &str)]) -> Uses {
    let module = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    uses(&files.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect())
}

#[test]
fn a_planted_circle_is_found() {
    let circle_of = |b: &str| {
        let root = "mod a; mod b; mod c; pub use c::Thing;";
        let files = [("", root), ("a", "use crate::b::f;"), ("b", b), ("c", "fn g() { crate::a::x() }")];
        let uses = planted(&files);
        let names = |circle: Vec<&Module>| circle.into_iter().map(shown).collect::<Vec<_>>().join(" ");
        circles(&uses).into_iter().map(names).next()
    };
    assert_eq!(circle_of("use std::fmt;"), None);
    for b in [
        "use crate::{a::y, d};",
        "use super::a as other;",
        "mod inner { fn f() { super::super::a::y() } }",
        "fn f() { println!(\"{}\", crate::a::Y) }",
    ] {
        assert_eq!(circle_of(b).as_deref(), Some("a b"), "{b}");
    }
    // A re-export leads to the file that defines the item.
    assert_eq!(circle_of("use crate::Thing;").as_deref(), Some("a b c"));
    // Tests, comments and strings do not count.
    for b in [
        "#[cfg(test)] mod tests { use crate::a::y; }",
        "#[test] fn t() { crate::a::y() }",
        "// crate::a::y",
        "const A: &str = \"crate::a\";",
    ] {
        assert_eq!(circle_of(b), None, "{b}");
    }
}

#[test]
fn children_may_use_their_parent_but_siblings_not_each_other() {
    let files = |b: &'static str| {
        [("", "mod p;"), ("p", "mod a; mod b; use a::x;"), ("p::a", "use super::{b::y, z};"), ("p::b", b)]
    };
    assert!(circles(&planted(&files("use super::z;"))).is_empty());
    assert_eq!(circles(&planted(&files("use super::a::x;"))).len(), 1);
}

#[test]
fn a_planted_use_of_a_higher_floor_is_found() {
    let floors: &[&[&str]] = &[&["low", "same"], &["high"]];
    let files =
        |low: &'static str| [("", "mod low;"), ("low", low), ("same", ""), ("high", "use crate::low::f;")];
    assert!(upward_uses(&planted(&files("")), floors).is_empty());
    assert_eq!(upward_uses(&planted(&files("use crate::high::f;")), floors), ["low uses high"]);
    assert_eq!(upward_uses(&planted(&files("use crate::same::f;")), floors), ["low uses same"]);
}
