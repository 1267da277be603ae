use super::*;
use crate::{
    commands::{arguments::parse_args, status},
    golden::{JSON, TEXT, assert_golden, sample, show},
    render::Answer,
};
use shunt_api::PortPackets;
use shunt_inspect::quality::{Finding, Part, Report, Share, Symptom, Verdict};

fn shown(json: &str) -> Shown {
    Shown { report: sample(json), limit: 10, unseen_host: None }
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
        let answer = Shown { report: Report { verdict, ..lossy().report }, ..lossy() };
        answer.failure().map(|failure| failure.code.exit_code())
    };
    let verdicts = [Verdict::Sound, Verdict::Fault, Verdict::CannotTell];
    assert_eq!(verdicts.map(code), [None, Some(30), Some(2)]);
}

#[test]
fn the_first_line_names_what_is_not_wrong() {
    let line = |unknown: &[(Part, Symptom)]| {
        let mut answer = lossy();
        answer.report.verdict = Verdict::Sound;
        answer.report.findings.clear();
        let open =
            |(part, symptom): &(Part, Symptom)| Finding { part: *part, symptom: *symptom, share: None };
        answer.report.unknown = unknown.iter().map(open).collect();
        show(&answer, TEXT).lines().next().unwrap_or_default().to_owned()
    };
    let (up, down) =
        ((Part::LanSide, Symptom::LosesTowardsRouter), (Part::LanSide, Symptom::LosesFromRouter));
    assert_eq!(line(&[]), "nothing wrong on either side, and nothing waits in the router");
    let of_download =
        "nothing wrong with the download, and nothing waits in the router; too little upload to judge";
    assert_eq!(line(&[up, (Part::WanSide, Symptom::LosesFromRouter)]), of_download);
    assert!(line(&[down]).starts_with("nothing wrong with the upload, and"));
    assert!(line(&[up, down]).ends_with("the rest is too little to judge"));
}

#[test]
fn long_round_trips_alone_are_no_verdict() {
    let mut answer = lossy();
    answer.report.verdict = Verdict::CannotTell;
    answer.report.findings.clear();
    let share = Some(Share { value: 0.01, low: 0.005, high: 0.9 });
    answer.report.unknown = vec![Finding { part: Part::WanSide, symptom: Symptom::Waits, share }];
    let text = show(&answer, TEXT);
    let start =
        "cannot tell: WAN side: round trips take up to 240 ms (p95); the other end is far away, or a buffer";
    assert!(text.starts_with(start), "{text}");
}

#[test]
fn without_an_answer_the_text_says_what_would_tell() {
    let mut answer = lossy();
    answer.report.verdict = Verdict::CannotTell;
    answer.report.findings.clear();
    assert!(show(&answer, TEXT).contains("a longer upload would tell"), "{}", show(&answer, TEXT));
    let tells = |part: Part, symptom: Symptom, is_seen: bool| {
        let mut answer = lossy();
        let share = is_seen.then_some(Share { value: 0.0, low: 0.0, high: 0.3 });
        answer.report.unknown = vec![Finding { part, symptom, share }];
        let text = show(&answer, TEXT);
        text.lines().find_map(|line| line.split("): ").nth(1)).unwrap_or_default().to_owned()
    };
    let (lan, wan) = (Part::LanSide, Part::WanSide);
    assert_eq!(tells(lan, Symptom::Waits, false), "a download would tell");
    assert_eq!(tells(lan, Symptom::Waits, true), "a longer download would tell");
    assert_eq!(
        tells(wan, Symptom::Waits, true),
        "a start while the line is idle, or a server nearby would tell"
    );
    assert_eq!(tells(wan, Symptom::LosesFromRouter, true), "a longer upload would tell");
    assert_eq!(tells(wan, Symptom::LosesTowardsRouter, false), "a download would tell");
    assert_eq!(tells(lan, Symptom::LosesTowardsRouter, false), "an upload would tell");
    assert_eq!(tells(Part::Router, Symptom::Waits, true), "more traffic would tell");
    let mut unnamed = lossy();
    (unnamed.report.hosts[0].host, unnamed.report.hosts[0].is_not_attributed) = (None, true);
    assert!(show(&unnamed, TEXT).contains("not attributed: connections behind NAT until"));
    assert!(!show(&lossy(), TEXT).contains("not attributed"));
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
fn a_host_without_traffic_is_named_with_those_that_had_some() {
    let mut answer = lossy();
    answer.report.verdict = Verdict::CannotTell;
    answer.report.hosts.clear();
    let seen = vec!["laptop".to_owned(), "192.168.1.3".to_owned()];
    answer.unseen_host = Some(view::UnseenHost { wanted: "192.168.1.9".to_owned(), seen });
    let text = show(&answer, TEXT);
    let wanted = "cannot tell: no TCP data of 192.168.1.9 passed the ports; seen was laptop, 192.168.1.3\n";
    assert!(text.starts_with(wanted), "{text}");
}

#[test]
fn both_sides_must_have_a_port() {
    let ports = [port("lan0", 0), port("wan0", 0)];
    let with = |names: &[&str], default_routes: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let default_routes = default_routes.iter().map(|name| (*name).to_owned()).collect();
        sides(&ports, &names, &default_routes).map_err(|failure| failure.message)
    };
    let of = |names: &[&str]| with(names, &[]);
    let expected = [("lan0".to_owned(), Side::Lan), ("wan0".to_owned(), Side::Wan)];
    assert_eq!(of(&["wan0"]), Ok(expected.into()));
    assert!(of(&["lan0", "wan0"]).unwrap_err().contains("all ports are on the WAN side"));
    assert!(of(&[]).unwrap_err().contains("no default route leads to a port"));
    for names in [&[][..], &["wan0"]] {
        assert_eq!(with(names, &["wan0", "eth9"]), of(&["wan0"]));
    }
    assert_eq!(
        with(&["lan0"], &["wan0"]).unwrap_err(),
        "--wan: a default route leads to wan0, and none to lan0, so wan0 cannot be on the LAN side: --wan wan0"
    );
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
fn a_host_that_is_not_known_is_refused_with_those_that_are() {
    let names = |count: usize| {
        let lines: String = (1..=count).map(|n| format!("192.168.1.{n} host{n:02}\n")).collect();
        HostNames::read(|path| if path == "/etc/hosts" { lines.clone() } else { String::new() })
    };
    let said = |wanted: &str, count| known_host(wanted, &names(count)).map_err(|failure| failure.message);
    assert!(said("fe80::1%lan0", 1).unwrap_err().contains("leave out `%lan0`"));
    for known in ["Host01", "203.0.113.9", "2001:db8::9"] {
        assert_eq!(said(known, 1), Ok(()));
    }
    assert!(
        said("nosuch", 0)
            .unwrap_err()
            .contains("--host: `nosuch` is not a host that this machine knows (`shunt")
    );
    assert!(said("nosuch", 2).unwrap_err().contains("(known: host01, host02; `shunt usage`"));
    assert!(said("nosuch", 12).unwrap_err().contains("host04 and 8 more; `shunt usage`"));
}

#[test]
fn the_time_is_a_second_to_a_day() {
    let args = |words: &str| parse_args::<QualityArgs>(words);
    let typed = args("").unwrap();
    assert_eq!((typed.time, typed.limit), (Duration::from_secs(30), 10));
    assert_eq!(args("--for 1d").unwrap().time, LONGEST);
    for wrong in ["--for 500ms", "--for 0", "--for 25h", "--limit 0"] {
        assert!(args(wrong).is_err(), "{wrong}");
    }
}
