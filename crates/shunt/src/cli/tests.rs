use super::*;
use crate::commands::command;
use clap::{CommandFactory, Parser};
use shunt_api::Instance;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(format!("shunt {line}").split_whitespace())
}

fn refusal(line: &str) -> ErrorKind {
    parse(line).map(|typed| format!("{typed:?}")).unwrap_err().kind()
}

#[test]
fn claps_own_checks_of_the_definitions_pass() {
    Cli::command().debug_assert();
}

#[test]
fn global_options_may_stand_before_and_after_the_command() {
    for line in ["--instance lab --json -v status", "status --json -v --instance lab"] {
        let typed = parse(line).unwrap();
        assert_eq!((typed.instance.as_str(), typed.json, typed.verbose), ("lab", true, true));
    }
    assert_eq!(parse("status").unwrap().instance, Instance::default());
    assert_eq!(refusal("--instance A/B status"), ErrorKind::ValueValidation);
}

#[test]
fn up_takes_ports_an_engine_and_a_configuration_file() {
    assert!(parse("up --port eth0 --port eth1 --engine xdp --config a.toml").is_ok());
    assert_eq!(refusal("up --engine fast"), ErrorKind::InvalidValue);
}

#[test]
fn a_dry_run_is_not_for_the_foreground_and_no_command_is_a_question() {
    assert!(parse("up --dry-run --port eth0").is_ok());
    assert_eq!(refusal("up --dry-run --foreground"), ErrorKind::ArgumentConflict);
    assert!(parse("probe --port eth0 --engine tc --config a.toml").is_ok());
    assert!(parse("--instance lab").unwrap().command.is_none());
}

#[test]
fn options_of_ip_are_understood_and_other_programs_commands_are_answered() {
    let typed = |line: &str| words(line.split_whitespace().map(Into::into));
    assert_eq!(typed("shunt -d status -br"), ["shunt", "--verbose", "status", "--brief"]);
    assert_eq!(typed("shunt flows -d 192.0.2.1"), ["shunt", "flows", "-d", "192.0.2.1"]);
    assert!(instead_of("start").is_some_and(|text| text.contains("shunt up")));
    assert_eq!(instead_of("status"), None);
}

#[test]
fn a_line_that_is_not_understood_is_answered_in_one_line_with_a_way_out() {
    let said = |line: &str| {
        let error = super::parse(line.split_whitespace().map(Into::into)).unwrap_err();
        message(&error).unwrap_or_else(|| panic!("{line}"))
    };
    for (line, wanted) in [
        ("start", "unrecognized subcommand 'start'; `shunt up` starts an instance"),
        ("flows --proto icmp", "invalid value 'icmp' for '--proto <PROTO>'; expected one of tcp, udp"),
        (
            "flow add --src 1.2.3.4",
            "invalid value '1.2.3.4' for '--src <ADDR:PORT>': expected an address and a port, such as 192.0.2.1:5000 or \
             [2001:db8::1]:5000",
        ),
        (
            "watch --for 5x",
            "invalid value '5x' for '--for <TIME>': expected a time such as 500ms, 30s, 10m or 2h, or a number of seconds; \
             1ms to 365d",
        ),
        (
            "compare a.json",
            "the following required arguments were not provided: <B>; type `shunt compare a.json B`; see `shunt compare \
             --help`",
        ),
        ("quality --limit -1s", "invalid value '-1s' for '--limit <N>': expected a whole number from 1 on"),
        ("verify --limit 0", "invalid value '0' for '--limit <N>': expected 1 to 16"),
        ("watch --count 0", "invalid value '0' for '--count <N>': expected 1 or more"),
        ("why --dport 99999", "invalid value '99999' for '--dport <PORT>': expected 1 to 65535"),
        ("hosts", "unrecognized subcommand 'hosts'; `shunt usage` shows what each host sends and receives"),
        (
            "up lan0 wan0 xdp",
            "unexpected argument 'lan0' found; did you mean `shunt up --port lan0 --port wan0 --engine xdp`?",
        ),
        ("history --last 2h --event", "unexpected argument '--last' found; did you mean `--for <TIME>`?"),
        (
            "down nosuch",
            "unexpected argument 'nosuch' found; `shunt down` has no options of its own; see `shunt down --help`",
        ),
        ("off 'a 10m", "`'a` is not an IP address; expected one such as 192.0.2.1 or 2001:db8::1"),
        ("reg show", "unrecognized subcommand 'show'; did you mean `shunt reg list`?"),
        ("reg draw", "unrecognized subcommand 'draw'; see `shunt reg --help`"),
        (
            "up --dry-run --foreground",
            "the argument '--dry-run' cannot be used with '--foreground'; see `shunt up --help`",
        ),
    ] {
        assert_eq!(said(&format!("shunt {line}")), wanted);
    }
    for question in ["shunt --help", "shunt up -h", "shunt --version", "shunt reg"] {
        let error = super::parse(question.split_whitespace().map(Into::into)).unwrap_err();
        assert_eq!(message(&error), None, "{question}");
    }
}

#[test]
fn the_instance_is_no_option_of_commands_that_ask_no_daemon() {
    command().debug_assert();
    let help = |line: &str| {
        let error = command().try_get_matches_from(line.split_whitespace()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{line}: {error}");
        error.to_string()
    };
    assert!(help("shunt status -h").contains("--instance"));
    for line in ["shunt line -h", "shunt bench -h", "shunt bench size -h", "shunt lab agent --help"] {
        let text = help(line);
        assert!(!text.contains("--instance") && text.contains("--json"), "{line}: {text}");
    }
    let matches = command().try_get_matches_from(["shunt", "--instance", "lab", "line", "--json"]).unwrap();
    let typed = <Cli as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
    assert_eq!((typed.instance.as_str(), typed.json), ("lab", true));
}
