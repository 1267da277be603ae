//! `shunt link` and `shunt doctor` on a pair of virtual devices, and `shunt reg` on an image of registers.

use super::gen_command::json;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, require_root, wait_for};
use std::{
    fs,
    net::UdpSocket,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// A machine with the two ends of a veth pair, `v0` and `v1`.
fn machine() -> (NetNs, Shunt) {
    let host = NetNs::new("machine");
    host.run("ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up");
    let shunt = Shunt::on(&host);
    (host, shunt)
}

fn rules(report: &Value) -> Vec<&str> {
    report["ports"][0]["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect()
}

#[test]
fn link_shows_a_port_changes_it_reads_it_back_and_says_how_to_undo_it() {
    if !require_root() {
        return;
    }
    let (host, shunt) = machine();
    let before = json(&shunt.run("link v0 --interval 100ms --json"));
    let link = &before[0];
    assert_eq!(
        (&link["nic"]["driver"], &link["up"], &link["carrier"]),
        (&"veth".into(), &true.into(), &true.into())
    );
    assert_eq!((&link["queues"]["rx"], &link["nic"]["mtu"]), (&1.into(), &1500.into()));
    assert_eq!(link["lacking"]["pause"], "the driver does not offer it");
    assert_eq!(link["offloads"]["tx-tcp-segmentation"]["on"], true);

    let change = json(&shunt.run("link v0 --offload tso=off --json"));
    assert_eq!(change["undo"], "shunt link v0 --offload tx-tcp-segmentation=on");
    let features = || host.run("ethtool -k v0");
    assert!(features().contains("tx-tcp-segmentation: off"));
    let undo = change["undo"].as_str().unwrap().strip_prefix("shunt ").unwrap();
    assert_eq!(shunt.run(undo).code, Some(0));
    assert!(features().contains("tx-tcp-segmentation: on"));
    // What is set already is not an error, and what the driver lacks is.
    let same = json(&shunt.run("link v0 --offload tso=on --json"));
    assert_eq!(same["undo"], Value::Null);
    let refused = shunt.run("link v0 --ring rx=512");
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.err.contains("ethtool -G v0 rx 512") && refused.err.contains("not supported"),
        "{}",
        refused.err
    );
    assert_eq!(shunt.run("link nosuchport").code, Some(13));
}

#[test]
fn the_doctor_finds_what_was_put_there_and_a_record_gives_the_same_findings() {
    if !require_root() {
        return;
    }
    let (host, shunt) = machine();
    let found = |line: &str| json(&shunt.run(line));
    let healthy = found("doctor v0 --json");
    for rule in ["lro-on-router", "gro-on-router", "checksum-offload-off", "mtu-mismatch", "pause-storm"] {
        assert!(!rules(&healthy).contains(&rule), "{healthy}");
    }
    host.sysctl("ipv4/ip_forward", 1);
    host.run("ip link set v1 mtu 9000 && ethtool -K v0 gro on && ethtool -K v0 rx off");
    let file = std::env::temp_dir().join(format!("{}.json", host.name()));
    let sick = found(&format!("doctor v0 --json --load --peer v1 --time 200ms --record {}", file.display()));
    for rule in ["gro-on-router", "checksum-offload-off", "mtu-mismatch"] {
        assert!(rules(&sick).contains(&rule), "{sick}");
    }
    assert_eq!(sick["ports"][0]["load"]["steps"].as_array().unwrap().len(), 4, "{sick}");
    let again = found(&format!("doctor --json --recorded {}", file.display()));
    fs::remove_file(&file).unwrap();
    assert_eq!(again["ports"][0]["findings"], sick["ports"][0]["findings"]);
}

/// Faults that a veth can have: the rule, the commands that put it there, and those that take it away.
const LIVE: [(&str, &str, &str); 4] = [
    ("gro-on-router", "ethtool -K v0 gro on", "ethtool -K v0 gro off"),
    ("checksum-offload-off", "ethtool -K v0 rx off", "ethtool -K v0 rx on"),
    ("checksum-offload-off", "ethtool -K v0 tx off", "ethtool -K v0 tx on"),
    ("mtu-mismatch", "ip link set v1 mtu 9000", "ip link set v1 mtu 1500"),
];

#[test]
fn a_fault_that_is_put_into_a_router_is_the_first_finding_and_goes_with_it() {
    if !require_root() {
        return;
    }
    let (host, shunt) = machine();
    host.sysctl("ipv4/ip_forward", 1);
    let found = |line: &str| json(&shunt.run(&format!("doctor v0 --load {line} --json")));
    for (rule, break_it, undo) in LIVE {
        host.run(break_it);
        let sick = found("--time 100ms");
        assert_eq!(rules(&sick).first(), Some(&rule), "{break_it}: {sick}");
        host.run(undo);
        let healthy = found("--time 100ms");
        assert!(!rules(&healthy).contains(&rule), "{undo}: {healthy}");
    }
}

#[test]
fn the_doctor_says_whether_the_line_is_the_limit_or_nothing_at_this_moment() {
    if !require_root() {
        return;
    }
    let (host, shunt) = machine();
    host.run("ip addr add 198.18.0.1/24 dev v0; ip neigh add 198.18.0.2 lladdr 02:00:00:00:00:02 dev v0");
    let socket = host.within(|| UdpSocket::bind("198.18.0.1:0").unwrap());
    let limit = || json(&shunt.run("doctor v0 --json"))["limit"].clone();
    // Others may overload the machine for a while, which is an answer, too.
    let wait_for_limit = |expected: &str| {
        let found =
            wait_for(Duration::from_secs(60), || Some(limit()).filter(|limit| limit["limit"] == expected));
        found.unwrap_or_else(|| panic!("not {expected}: {}", limit()))
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Six times the rate of the queue, which drops the rest.
                let _ = socket.send_to(&[0; 1400], "198.18.0.2:9");
                thread::sleep(Duration::from_millis(2));
            }
        });
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| {
            host.run("tc qdisc add dev v0 root tbf rate 1mbit burst 5k latency 50ms");
            let queue = wait_for_limit("queue");
            assert_eq!((&queue["port"], &queue["qdisc"]), (&"v0".into(), &"tbf".into()), "{queue}");
            let [set, sent] = ["rate_bps", "sent_bps"].map(|rate| queue[rate].as_f64().unwrap());
            assert!(set == 1e6 && (0.5e6..1.5e6).contains(&sent), "{queue}");
            assert!(queue["dropped_pps"].as_f64().unwrap() > 0.0, "{queue}");
            host.run("tc qdisc del dev v0 root");
            let nothing = wait_for_limit("not-now");
            assert!(nothing["busy_percent"].is_number(), "{nothing}");
            let text = shunt.run("doctor v0").out;
            assert!(text.lines().next().unwrap().contains("the router"), "{text}");
        }));
        is_over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn one_queue_of_two_that_has_all_packets_is_found() {
    if !require_root() {
        return;
    }
    let host = NetNs::new("machine");
    host.run("ip link add v0 numrxqueues 2 numtxqueues 2 type veth peer name v1 numrxqueues 2 numtxqueues 2");
    host.run("ip link set v0 up && ip link set v1 up");
    // One thread sends, and a veth takes the queue of its CPU. Threads that this one starts stay on its CPU.
    let mut first = CpuSet::new();
    first.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &first).unwrap();
    let shunt = Shunt::on(&host);
    let report = json(&shunt.run("doctor v0 --load --peer v1 --time 200ms --json"));
    assert!(rules(&report).contains(&"uneven-queues"), "{report}");
}

#[test]
fn registers_are_decoded_read_compared_and_written_in_an_image() {
    if !require_root() {
        return;
    }
    let host = NetNs::new("machine");
    let shunt = Shunt::on(&host);
    let decode = |value: &str| json(&shunt.run(&format!("reg decode --soc imx6q ENET_RCR {value} --json")));
    let [before, after] = ["0x05ee0244", "0x05ee0264"].map(|value| decode(value)["fields"].clone());
    assert_eq!((&before["MAX_FL"], &before["FCE"], &after["FCE"]), (&1518.into(), &0.into(), &1.into()));
    let differ = before.as_object().unwrap().iter().filter(|(name, value)| after[name.as_str()] != **value);
    assert_eq!(differ.map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["FCE"]);

    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let definitions =
        "[block]\nname = \"MAC\"\nbase = 0x1000\n[register.CTRL]\noffset = 4\nfields = { FCE = \"5\" }\n";
    fs::write(path("mac.toml"), definitions).unwrap();
    fs::write(path("memory"), vec![0; 8192]).unwrap();
    let place = format!("--defs {} --from mem:{}", path("mac.toml"), path("memory"));
    assert_eq!(shunt.run(&format!("reg snapshot {place} --output {}", path("before"))).code, Some(0));
    let shown = json(&shunt.run(&format!("reg write MAC_CTRL.FCE 1 {place} --json")));
    assert_eq!((&shown["written"], &shown["value"]["value"]), (&false.into(), &32.into()));
    assert_eq!(fs::read(path("memory")).unwrap()[0x1004], 0);
    let written = json(&shunt.run(&format!("reg write MAC_CTRL.FCE 1 --write {place} --json")));
    assert_eq!((&written["written"], &written["took"]), (&true.into(), &true.into()));
    let changed = json(&shunt.run(&format!("reg diff {} {place} --json", path("before"))));
    assert_eq!(changed[0]["fields"][0]["name"], "FCE");
    // Beyond the end of the file there is nothing, as where a clock is off.
    fs::write(path("memory"), vec![0; 4096]).unwrap();
    let fault = shunt.run(&format!("reg read MAC_CTRL {place}"));
    assert_eq!(fault.code, Some(2));
    assert!(fault.err.contains("MAC_CTRL: bus error"), "{}", fault.err);
    fs::write(path("mac.toml"), definitions.replace("offset", "offsat")).unwrap();
    let wrong = shunt.run(&format!("reg list {place}"));
    assert_eq!(wrong.code, Some(18));
    assert!(wrong.err.contains("mac.toml: line ") && wrong.err.contains("offsat"), "{}", wrong.err);
}
