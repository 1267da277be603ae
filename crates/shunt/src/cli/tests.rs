use super::*;
use clap::{CommandFactory, error::ErrorKind};

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
