use super::*;
use crate::{
    commands::{arguments::parse_args, status},
    golden::{JSON, TEXT, assert_golden, sample, show},
    render::Answer,
};
use shunt_api::PortPackets;
use shunt_inspect::quality::{Report, Verdict};

fn shown(json: &str) -> Shown {
    Shown { report: sample(json), limit: 10 }
}

/// A line that loses packets, and a host that uploads nothing.
fn lossy() -> Shown {
    shown(include_str!("golden/lossy.json"))
}

#[test]
fn texts_match_their_golden_files() {
    for (name, format) in [("golden/lossy.txt", TEXT), ("golden/lossy.json", JSON)] {
        assert_golden(name, &lossy(), format);
    }
}

#[test]
fn the_exit_code_is_the_verdict() {
    let code = |verdict: Verdict| {
        let answer = Shown { report: Report { verdict, ..lossy().report }, limit: 10 };
        answer.failure().map(|failure| failure.code.exit_code())
    };
    let verdicts = [Verdict::Sound, Verdict::Fault, Verdict::CannotTell];
    assert_eq!(verdicts.map(code), [None, Some(30), Some(2)]);
}

#[test]
fn without_an_answer_the_text_says_what_would_tell() {
    let mut answer = lossy();
    answer.report.verdict = Verdict::CannotTell;
    answer.report.findings.clear();
    assert!(show(&answer, TEXT).contains("an upload would tell"), "{}", show(&answer, TEXT));
    answer.report.unseen = Some(Unseen { packets: 7, of: 10 });
    assert!(
        show(&answer, TEXT).contains("with --off, Linux forwards TCP meanwhile"),
        "{}",
        show(&answer, TEXT)
    );
    answer.report.unseen = None;
    answer.report.sides.clear();
    assert!(show(&answer, TEXT).contains("UDP and QUIC do not tell"), "{}", show(&answer, TEXT));
}

fn port(name: &str, xdp: u64) -> PortStatus {
    let mut port = status::sample::status().ports[0].clone();
    port.name = name.to_owned();
    port.packets = PortPackets { xdp, ..PortPackets::default() };
    port
}

#[test]
fn both_sides_must_have_a_port() {
    let ports = [port("lan0", 0), port("wan0", 0)];
    let of = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        sides(&ports, &names).map_err(|failure| failure.message)
    };
    let expected = [("lan0".to_owned(), Side::Lan), ("wan0".to_owned(), Side::Wan)];
    assert_eq!(of(&["wan0"]), Ok(expected.into()));
    assert!(of(&["lan0", "wan0"]).unwrap_err().contains("all ports are on the WAN side"));
    assert!(
        of(&["eth9"]).unwrap_err().contains("eth9 is no port of this instance; its ports are lan0, wan0")
    );
}

#[test]
fn packets_of_other_engines_are_counted_from_the_start() {
    let unseen = unseen(&[port("lan0", 10)], &[port("lan0", 17)]);
    assert_eq!((unseen.packets, unseen.of), (7, 7));
}

#[test]
fn a_host_is_named_by_address_or_name() {
    let names =
        HostNames::read(
            |path| if path == "/etc/hosts" { "192.168.1.2 laptop\n".to_owned() } else { String::new() },
        );
    let host = Some("192.168.1.2".parse().unwrap());
    for (wanted, is) in
        [(None, true), (Some("192.168.1.2"), true), (Some("Laptop"), true), (Some("phone"), false)]
    {
        assert_eq!(is_wanted(host, wanted, &names), is, "{wanted:?}");
    }
    assert!(is_wanted(None, None, &names) && !is_wanted(None, Some("laptop"), &names));
}

#[test]
fn a_second_is_the_shortest_time() {
    let args = |words: &str| parse_args::<QualityArgs>(words).unwrap();
    assert_eq!((args("").time, args("").limit), (Duration::from_secs(30), 10));
    assert!(args("--for 500ms").time < SHORTEST);
}
