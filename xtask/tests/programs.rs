//! packaging/deps.sh installs every program that the tests, the lab, the benches and xtask start.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_testkit::{Shunt, tree::root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Programs of every Debian system: essential packages, and the other packages that debootstrap installs.
const BASE: &str = "apt-get awk bash cat chmod chown comm cp cut date dd dirname dmesg dpkg dpkg-deb echo env expr false find \
    getent grep gzip head hostname id kill ln ls md5sum mkdir mktemp mount mv nproc nsenter unshare readlink rm script sed seq setpriv setsid sh sha256sum \
    sleep sort stat stty sync tail tar taskset tee timeout touch tr true umount uname wc xargs";
/// Words of the shell. Those of the second list are followed by a command.
const BUILTINS: &str = ". : [ break case cd command continue declare done esac exit export fi for function local \
    printf read return set shift source test trap unset wait";
const BEFORE_COMMANDS: &str = "! ( { do elif else exec if then time until while";
/// Programs that packaging/deps.sh does not list, and the reason.
const OTHERS: [(&str, &str); 7] = [
    ("cbmc", "packaging/deps.sh --proof installs it where it is packaged; elsewhere xtask unpacks it"),
    ("node", "drives a browser in `make browser-test`, which asks for it"),
    ("cargo", "packaging/deps.sh and packaging/cargo.sh find it or install it"),
    ("rustc", "comes with cargo"),
    ("rustup", "fetches standard libraries if it is there; else, an error says what to install"),
    ("shunt", "built here"),
    ("ssh", "reaches the agent of a router that is another machine; tests put a script in its place"),
];
/// Sources whose literals may be sentences that look like scripts, since they print text.
const PRINTING: [&str; 14] = [
    "crates/shunt-core/src/slow_causes.rs",
    "crates/shunt-core/src/verdict",
    "crates/shunt-inspect/src/doctor/",
    "crates/shunt-inspect/src/reg/",
    "crates/shunt/",
    "crates/shuntd/",
    "crates/shunt-api/",
    "crates/shunt-lab/src/iperf/",
    "tests/netns/guides/main.rs",
    "tests/netns/guides/page.rs",
    "xtask/src/vm.rs",
    "crates/shunt-bench/src/peers/",
    "crates/shunt-bench/src/generators/table.rs",
    "xtask/src/vm/boards/",
];

/// A string literal, and the code in front of it.
struct Literal<'a> {
    before: &'a str,
    text: String,
}

fn literals(source: &str) -> Vec<Literal<'_>> {
    let (bytes, mut found, mut at) = (source.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let rest = &source[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            at += if rest.starts_with("'\"'") { 3 } else { 4 };
        } else if rest.starts_with("r\"") || rest.starts_with("r#\"") {
            let (open, close) = if rest.starts_with("r\"") { (2, "\"") } else { (3, "\"#") };
            let end = rest[open..].find(close).unwrap();
            found.push(Literal { before: &source[..at], text: rest[open..open + end].to_owned() });
            at += open + end + close.len();
        } else if bytes[at] == b'"' {
            let (mut text, mut chars, before) = (String::new(), rest[1..].char_indices(), &source[..at]);
            let end = loop {
                match chars.next().unwrap() {
                    (end, '"') => break end,
                    (_, '\\') => match chars.next().unwrap().1 {
                        'n' => text.push('\n'),
                        // The line continues; its indentation separates nothing.
                        '\n' => text.push(' '),
                        other => text.push(other),
                    },
                    (_, other) => text.push(other),
                }
            };
            found.push(Literal { before, text });
            at += end + 2;
        } else {
            at += rest.chars().next().unwrap().len_utf8();
        }
    }
    found
}

/// The first words of the commands of a shell script.
fn commands(script: &str) -> Vec<String> {
    // Quoted text is an argument, except `$(...)` in double quotes.
    let (mut plain, mut quote, mut around) = (String::new(), None, None);
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\'' | '"') => {
                quote = Some(c);
                plain.push('_');
            }
            (Some(q), _) if c == q => quote = None,
            (Some('"') | None, '$') if chars.peek() == Some(&'(') => {
                chars.next();
                plain.push('\n');
                around = quote.take();
            }
            (None, ')') if around.is_some() => quote = around.take(),
            (None, ';' | '|' | '&' | '`') => plain.push('\n'),
            (None, '#') if plain.ends_with(['\n', ' ']) => while chars.next_if(|c| *c != '\n').is_some() {},
            (None, _) => plain.push(c),
            (Some(_), _) => {}
        }
    }
    plain.lines().filter_map(first_word).collect()
}

fn first_word(command: &str) -> Option<String> {
    // `2>&1` was cut at its `&`, and patterns of `case` end in `)`.
    let mut words = command.split_whitespace().filter(|word| *word != "1" && *word != ">");
    loop {
        let word = words.next()?.trim_end_matches(')');
        if is_in(BEFORE_COMMANDS, word) || word.contains('=') {
            continue;
        }
        match word {
            // `timeout` has a duration, and `ip netns exec` options, before the program.
            "timeout" => drop(words.next()),
            "ip" if command.contains("netns exec") => drop((words.next(), words.next(), words.next())),
            _ => return Some(word.to_owned()),
        }
    }
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}

/// Whether a word can be the name of a program. Other words are shell variables or placeholders of `format!`.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c))
}

/// The programs that a Rust source starts, as far as its text shows: literals and constants that are passed to
/// functions that start programs, and literals that begin with a `known` program, as a script does.
fn started(source: &str, known: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut programs = BTreeSet::new();
    for Literal { before, text } in literals(source) {
        let before = before
            .trim_end()
            .trim_end_matches("&format!(")
            .trim_end_matches("format!(")
            .trim_end_matches('&');
        let ends = |calls: &[&str]| calls.iter().any(|call| before.ends_with(call));
        if ends(&["Command::new(", ".command(", " tool(", "\ttool("]) {
            programs.insert(text);
        } else if ends(&["andbox.run(", "Sandbox::new().run("]) {
            // The command `shunt` of crates/shunt/tests.
        } else if ends(&[".run(", ".try_run(", ".spawn("])
            || commands(&text).first().is_some_and(|word| known(word) && text.contains(' '))
        {
            programs.extend(commands(&text));
        }
    }
    for constant in source.split("const ").skip(1) {
        let Some((name, value)) = constant.split_once(": &str = \"") else { continue };
        if source.contains(&format!("Command::new({name})")) || source.contains(&format!(".command({name})"))
        {
            programs.extend(value.split('"').next().map(str::to_owned));
        }
    }
    programs.into_iter().filter(|word| is_name(word)).collect()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The commands that packaging/deps.sh checks for.
fn installed(root: &Path) -> BTreeSet<String> {
    let script = fs::read_to_string(root.join("packaging/deps.sh")).unwrap();
    let needs = script.lines().filter_map(|line| line.trim().strip_prefix("command:")?.split_once('='));
    needs.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn every_program_that_is_started_is_installed_by_the_list_of_dependencies() {
    let root = root().canonicalize().unwrap();
    let installed = installed(&root);
    let there = |word: &str| {
        installed.contains(word) || is_in(BASE, word) || OTHERS.iter().any(|(name, _)| *name == word)
    };
    // `Shunt::run` runs subcommands of `shunt`.
    let manual = tempfile::tempdir().unwrap();
    let wrote = Command::new(Shunt::program()).arg("man").arg(manual.path()).output().unwrap();
    assert!(wrote.status.success(), "{wrote:?}");
    let pages =
        fs::read_dir(manual.path()).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap());
    let ours: BTreeSet<String> = pages
        .filter_map(|page| Some(page.strip_prefix("shunt-")?.split(['-', '.']).next()?.to_owned()))
        .collect();
    let mut sources = Vec::new();
    for folder in ["tests", "crates", "xtask/src"] {
        files(&root.join(folder), &mut sources);
    }
    let mut wanting: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for path in sources {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let prints = PRINTING.iter().any(|folder| name.starts_with(folder));
        for word in started(&fs::read_to_string(&path).unwrap(), |word| !prints && there(word)) {
            if !there(&word) && !ours.contains(&word) && !is_in(BUILTINS, &word) {
                wanting.entry(word.clone()).or_default().insert(name.clone());
            }
            seen.insert(word);
        }
    }
    assert!(wanting.is_empty(), "add them to packaging/deps.sh: {wanting:#?}");
    for name in ["conntrack", "ethtool", "iperf3", "nft", "setpriv", "tc"] {
        assert!(seen.contains(name), "the scan does not find {name} any more: {seen:?}");
    }
}

#[test]
fn programs_are_found_wherever_a_source_starts_them() {
    let source = r##"
        const PROGRAM: &str = "one";
        fn f() {
            Command::new(PROGRAM); // Command::new("no")
            ns.command("two").arg("no");
            ns.run(&format!("three -x; A=1 four | five 2>&1 && if six; then seven; fi"));
            ns.try_run("eight \"$(nine a)\"; timeout 3 ten -c 'no; no' # no
                for i in 1 2; do eleven; done; $variable; {placeholder}");
            let quote = '"';
            for line in ["echo x; twelve", r#"echo "x"; thirteen"#, "an echo; no"] {}
            tool("fourteen", &[]);
            ns.run("ip netns exec x fifteen");
        }"##;
    let found = started(source, |word| word == "echo");
    let expected = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen echo for done fi";
    assert_eq!(found, expected.split(' ').map(str::to_owned).collect());
}
