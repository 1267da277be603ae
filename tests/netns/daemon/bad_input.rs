//! Mistakes that only a router shows are answered in one line, which names the thing and the way out, with an exit code
//! that is not 0. (`crates/shunt/tests/bad_input.rs` has those that need neither devices nor a daemon.)

use shunt_testkit::{Shunt, require_root, rulesets, silent_router};

const NO_DEVICE: &str = "nosuch0: no such device in this network namespace; see `ip link`";

/// What is typed, the exit code, and parts of the message.
const BAD: [(&str, i32, &[&str]); 27] = [
    ("check nosuch0", 13, &[NO_DEVICE]),
    ("check r0 --peer nosuch0", 13, &[NO_DEVICE]),
    ("doctor nosuch0", 13, &[NO_DEVICE]),
    ("link nosuch0", 13, &[NO_DEVICE]),
    ("trace nosuch0", 13, &[NO_DEVICE]),
    ("gen --tx nosuch0 --rx r0", 13, &[NO_DEVICE]),
    ("gen --tx r0 --rx r0", 2, &["--tx r0 --rx r0", "name the device at the other side"]),
    ("bench sweep --tx r0 --rx r0 --from 1M --to 1M --quick", 2, &["--tx r0 --rx r0"]),
    ("qos set r1 --rate 50M", 2, &["`r1` has no queues", "uses tc", "`engine = \"external\"`", "tc qdisc"]),
    ("qos set r9 --rate 50M", 13, &["`r9`", "its ports: r0, r1"]),
    ("up", 19, &["is running already", "shunt reload", "shunt restart", "shunt down"]),
    ("up --dry-run --external-port nosuch0", 13, &["external port", NO_DEVICE]),
    ("up --dry-run --port nosuch0", 13, &[NO_DEVICE]),
    ("up --dry-run --config nosuch.toml", 18, &["nosuch.toml", "there is no such file"]),
    ("quality --wan r1 --host nosuch", 2, &["`nosuch` is not a host", "`shunt usage`", "an address such as"]),
    ("quality --wan r9", 2, &["r9 is no port of this instance", "its ports are r0, r1"]),
    ("quality --wan r0 --wan r1", 2, &["all ports are on the WAN side", "--wan PORT"]),
    ("quality", 2, &["no default route leads to a port", "--wan PORT"]),
    ("why 203.0.113.9", 27, &["no such connection"]),
    ("on 192.168.1.2", 27, &["no rule `192.168.1.2`"]),
    ("off 192.168.1.2 192.168.1.3 192.168.1.4", 2, &["`192.168.1.4`", "at most a source and a destination"]),
    ("qos show nosuch0", 13, &[NO_DEVICE]),
    ("qos show r1", 13, &["`r1` has no queues", "uses tc", "`tc -s qdisc show dev r1`"]),
    ("usage --host nosuch", 2, &["`nosuch` is not a host", "`shunt usage`", "an address such as"]),
    ("usage --host 203.0.113.9", 2, &["nothing was counted for `203.0.113.9`", "`shunt usage`"]),
    ("bench sweep --from 100 --to 100", 2, &["100bit is less than one frame", "100M is 100 Mbit/s"]),
    ("check r0", 2, &["r0: cannot tell: ", " of 17 cases need the port at the other end", "--peer PORT2"]),
];

#[test]
fn each_mistake_is_one_line_with_the_thing_and_the_way_out() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    for (words, code, parts) in BAD {
        let output = shunt.run(words);
        assert_eq!((output.code, output.err.lines().count()), (Some(code), 1), "{words}: {output:?}");
        assert!(parts.iter().all(|part| output.err.contains(part)), "{words}: {output:?}");
    }
    assert!(shunt.done("qos").starts_with("no port has queues"), "nothing was set");
    shunt.done("down");
}

#[test]
fn a_start_that_is_refused_leaves_no_file_and_a_wrong_request_is_no_reload() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    let files = || -> Vec<String> {
        let names = std::fs::read_dir(shunt.directory()).unwrap().map(|entry| entry.unwrap().file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| !name.ends_with(".toml"))
            .collect()
    };
    let wrong = shunt.file("wrong.toml", "max_flow = 1000\n");
    for (words, code) in [
        ("up --port nosuch0".to_owned(), 13),
        (format!("up --config {}", wrong.display()), 18),
        ("up --engine external --core 9999".to_owned(), 2),
    ] {
        let output = shunt.run(&words);
        assert_eq!((output.code, output.err.lines().count()), (Some(code), 1), "{words}: {output:?}");
        assert_eq!(files(), Vec::<String>::new(), "{words}");
    }
    shunt.done("up --engine tc");
    let second = shunt.run("up");
    assert_eq!(second.code, Some(19), "{second:?}");
    let log = format!("{}.log", shunt.instance());
    assert!(files().contains(&log), "the log of the daemon that runs stays: {:?}", files());
    let other = shunt.file("other.toml", "idle = \"1m\"\n");
    let refused = shunt.run(&format!("reload --config {}", other.display()));
    assert!(refused.code == Some(2) && refused.err.contains("install"), "{refused:?}");
    let status = shunt.done("status");
    assert!(!status.contains("refused"), "{status}");
    assert!(!shunt.done("history --events").contains("configuration not read"));
    shunt.done("down");
}

#[test]
fn a_check_that_can_judge_nothing_says_that_it_cannot_tell() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    let output = shunt.run("check r0 --only link");
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.err.contains("r0: cannot tell: the case needs the port at the other end"), "{output:?}");
}

#[test]
fn queues_that_no_packet_passes_and_keys_without_effect_are_named_by_up_and_status() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    let file = shunt
        .file("queues.toml", "engine = \"tc\"\npage_token_file = \"/etc/token\"\n[qos.r1]\nrate = \"50M\"\n");
    let file = file.display();
    let dry_run = shunt.done(&format!("up --dry-run --config {file}"));
    let [up, status] = [shunt.done(&format!("up --config {file}")), shunt.done("status")];
    for text in [dry_run, up, status] {
        assert!(text.contains("queues: the queues of r1 are not in use: the port uses tc"), "{text}");
        let no_page =
            "config: page_token_file has no effect: no address for the page is set\n    set `page`, such as";
        assert!(text.contains(no_page) && text.contains("or remove `page_token_file`"), "{text}");
        // The reason for the engine is the same for both ports.
        let both = ["r0, r1  tc  chosen by configuration", "r0, r1: tc, chosen by configuration"];
        assert!(both.iter().any(|line| text.contains(line)), "{text}");
        assert_eq!(text.matches("r0, r1").count(), 1, "{text}");
    }
    shunt.done("down");
}

#[test]
fn a_bug_report_names_what_it_contains_and_hides_addresses_if_asked() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up");
    let [open, hidden, down] = ["open", "hidden", "down"].map(|name| shunt.directory().join(name));
    let said = shunt.done(&format!("bug-report --output {}", open.display()));
    let contains = "contains: versions, status, probe, history, configuration, ruleset, links, log";
    assert!(said.contains(contains) && said.contains("--hide-addresses"), "{said}");
    let text = std::fs::read_to_string(&open).unwrap();
    for part in ["192.168.1.1", "chain forward", "\"epoch_moves\"", "\"obstacles\"", "qdisc"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    shunt.done(&format!("bug-report --hide-addresses --output {}", hidden.display()));
    let text = std::fs::read_to_string(&hidden).unwrap();
    assert!(text.contains("<ipv4 ") && text.contains("<mac ") && text.contains("chain forward"), "{text}");
    let macs = lab.router().run("cat /sys/class/net/r?/address");
    for address in macs.split_whitespace().chain(["192.168.1.1", "198.18.0.1", "198.18.0.2"]) {
        assert!(!text.contains(address), "{address} is in the file: {text}");
    }
    shunt.done("down");
    // Without a daemon, too.
    let said = shunt.done(&format!("bug-report --output {}", down.display()));
    assert!(said.contains(contains), "{said}");
    assert!(std::fs::read_to_string(&down).unwrap().contains("is not running; start it with"));
}
