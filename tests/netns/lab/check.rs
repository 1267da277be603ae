//! `shunt check`: a veth passes, and each kind of faulty cable is found by the cases that must find it.

use serde_json::Value;
use shunt_testkit::{CommandOutput, NetNs, Shunt, require_root};
use shunt_traffic::tap::TapDevice;
use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// What a cable makes of a frame that goes from its second end to its first.
pub(crate) type Fault = fn(Vec<u8>) -> Vec<Vec<u8>>;

/// Carries frames between two TAP devices until `done`.
pub(crate) fn carry(ends: [&TapDevice; 2], fault: Fault, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let (there, back) = (ends[0].next().unwrap(), ends[1].next().unwrap());
        if there.is_none() && back.is_none() {
            thread::sleep(Duration::from_micros(200));
        }
        // A device that is down takes no frame.
        if let Some(frame) = there {
            let _ = ends[1].receive(&frame);
        }
        for frame in back.into_iter().flat_map(fault) {
            let _ = ends[0].receive(&frame);
        }
    }
}

/// Checks p0 against p1, with a cable between them that is made of two TAP devices; the outcome and evidence of each
/// case.
fn check_with(fault: Fault, cases: &[&str]) -> Vec<(String, String, String)> {
    let ns = NetNs::new("check");
    let ends = ns.within(|| ["p0", "p1"].map(|name| TapDevice::create(name).unwrap()));
    for name in ["p0", "p1"] {
        ns.run(&format!("ip link set {name} txqueuelen 10000 up"));
    }
    let shunt = Shunt::on(&ns);
    let done = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| carry([&ends[0], &ends[1]], fault, &done));
        let only: String = cases.iter().map(|case| format!(" --only {case}")).collect();
        let output = shunt.run(&format!("check p0 --peer p1{only} --json"));
        done.store(true, Ordering::Relaxed);
        output
    });
    let all = verdicts(&output);
    assert_eq!(all.len(), cases.len());
    let some = |which: &str| all.iter().any(|(_, outcome, _)| outcome == which);
    // Without a case that passes, nothing is known of the port.
    let code = match (some("fail"), some("pass")) {
        (true, _) => 30,
        (false, true) => 0,
        (false, false) => 2,
    };
    assert_eq!(output.code, Some(code), "{all:#?}");
    all
}

/// The name, outcome and evidence of each case.
pub(crate) fn verdicts(output: &CommandOutput) -> Vec<(String, String, String)> {
    let report: Value = serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_owned();
    let cases = report["cases"].as_array().unwrap().iter();
    cases.map(|case| (text(case, "case"), text(case, "outcome"), text(case, "evidence"))).collect()
}

#[track_caller]
fn assert_found(fault: Fault, expected: &[(&str, &str)]) {
    let cases: Vec<&str> = expected.iter().map(|(case, _)| *case).collect();
    let found = check_with(fault, &cases);
    for ((case, words), (_, outcome, evidence)) in expected.iter().zip(&found) {
        assert_eq!(outcome, if words.is_empty() { "pass" } else { "fail" }, "{case}: {evidence}");
        assert!(evidence.contains(words), "{case}: {evidence}");
    }
}

pub(crate) fn is_checked(frame: &[u8]) -> bool {
    frame[12..14] == [0x88, 0xb5] || frame[12..14] == [8, 0]
}

#[test]
fn a_veth_passes_every_check_that_it_can_do_and_is_left_as_it_was() {
    if !require_root() {
        return;
    }
    let (ns, far) = (NetNs::new("check"), NetNs::new("far"));
    ns.run(&format!("ip link add p0 type veth peer name p1 netns {}", far.name()));
    ns.run("ip link set p0 mtu 1600 up");
    far.run("ip link set p1 mtu 1600 up");
    // One feature of several that `tso` stands for.
    ns.run("ethtool -K p0 tx-tcp-mangleid-segmentation off");
    let state = || ns.run("ethtool -k p0; cd /sys/class/net/p0; cat mtu flags address");
    let before = state();
    let shunt = Shunt::on(&ns);
    let file = shunt.directory().join("checks.xml");
    let output = shunt.run(&format!(
        "check p0 --peer p1 --peer-netns {} --junit {} --json",
        far.name(),
        file.display()
    ));
    assert_eq!(output.code, Some(0), "{output:?}");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    for case in report["cases"].as_array().unwrap() {
        let hardware = ["modes", "pause", "rings", "coalesce"].contains(&case["case"].as_str().unwrap());
        assert_eq!(case["outcome"], if hardware { "impossible" } else { "pass" }, "{case:#}");
        assert!(!case["evidence"].as_str().unwrap().is_empty(), "{case:#}");
    }
    assert_eq!(report["cases"].as_array().unwrap().len(), 17);
    assert_eq!(state(), before);
    // The groups that the check joined.
    assert!(!ns.run("ip maddress show p0").contains("33:33:a5:5a"));
    let junit = fs::read_to_string(file).unwrap();
    assert!(junit.contains("tests=\"17\" failures=\"0\" errors=\"0\" skipped=\"4\""), "{junit}");
}

#[test]
fn a_sound_cable_of_taps_passes() {
    if !require_root() {
        return;
    }
    let cases = ["link", "lengths", "padding", "integrity", "vlan", "mtu", "mac", "counters"];
    assert_found(|frame| vec![frame], &cases.map(|case| (case, "")));
    // A TAP cannot switch its offloads, so nothing is compared.
    for (case, outcome, evidence) in check_with(|frame| vec![frame], &["checksum", "segmentation"]) {
        assert_eq!(outcome, "impossible", "{case}: {evidence}");
        assert!(evidence.contains("not compared: "), "{case}: {evidence}");
    }
}

#[test]
fn a_cable_that_flips_a_bit_is_found() {
    if !require_root() {
        return;
    }
    let flip = |mut frame: Vec<u8>| {
        if let (true, Some(last)) = (frame.len() > 90 && is_checked(&frame), frame.last_mut()) {
            *last ^= 0x10;
        }
        vec![frame]
    };
    assert_found(
        flip,
        &[
            ("link", ""),
            ("lengths", "changed: byte"),
            ("integrity", "changed: byte"),
            ("checksum", "payload changed"),
            ("segmentation", "wrong checksum"),
        ],
    );
}

#[test]
fn a_nic_that_keeps_filtering_by_its_old_address_is_found() {
    if !require_root() {
        return;
    }
    // The other address begins with these bytes.
    let drop_new = |frame: Vec<u8>| if frame[..2] == [0x02, 0x53] { vec![] } else { vec![frame] };
    assert_found(drop_new, &[("link", ""), ("mac", "was lost")]);
}

#[test]
fn a_peer_that_pads_with_other_bytes_than_zero_is_found() {
    if !require_root() {
        return;
    }
    let pad = |mut frame: Vec<u8>| {
        frame.resize(frame.len().max(60), 0xa5);
        vec![frame]
    };
    assert_found(pad, &[("link", ""), ("padding", "padded with 0xa5 instead of zeros")]);
}

#[test]
fn a_cable_that_drops_frames_is_found() {
    if !require_root() {
        return;
    }
    // By number: a quarter of the frames, whatever else is sent.
    let drop_some = |frame: Vec<u8>| {
        let lost = is_checked(&frame) && frame.get(21).is_some_and(|number| number % 4 == 3);
        if lost { vec![] } else { vec![frame] }
    };
    assert_found(
        drop_some,
        &[
            ("link", "was lost"),
            ("filters", "was lost"),
            ("storm", "was lost"),
            ("updown", "after round 1"),
            ("counters", "was lost"),
        ],
    );
}

#[test]
fn a_cable_that_copies_frames_or_spoils_tags_and_long_frames_is_found() {
    if !require_root() {
        return;
    }
    let spoil = |mut frame: Vec<u8>| {
        if frame[12..14] == [0x81, 0x00] && frame[14] & 0xf == 0xf && frame[15] == 0xff {
            // The tag with ID 4095 is taken off.
            frame.drain(12..16);
        }
        frame.truncate(4000);
        let copies = if is_checked(&frame) && frame.get(21) == Some(&9) { 2 } else { 1 };
        vec![frame; copies]
    };
    assert_found(
        spoil,
        &[("vlan", ""), ("mtu", "was cut from"), ("counters", "arrived 2 times")]
            .map(|(case, words)| if case == "vlan" { (case, "changed") } else { (case, words) }),
    );
}
