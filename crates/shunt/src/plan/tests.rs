use super::*;
use clap::Parser;
use std::io::Write;
use tempfile::NamedTempFile;

fn typed_up(line: &str) -> UpArgs {
    match Cli::parse_from(format!("shunt up {line}").split_whitespace()).command {
        Command::Up(up) => up,
        other => panic!("{other:?}"),
    }
}

fn resolve(line: &str) -> anyhow::Result<Plan> {
    Plan::resolve(Cli::parse_from(format!("shunt {line}").split_whitespace()))
}

fn failure_of(line: &str) -> Failure {
    resolve(line).unwrap_err().downcast::<Failure>().unwrap()
}

const ROUTES: &str = "[[route]]\nname = \"wan\"\nout_port = \"eth1\"\ndmac = \"02:00:00:00:00:01\"\n";

#[test]
fn the_daemon_is_told_what_was_typed_and_nothing_else() {
    let lab: Instance = "lab".parse().unwrap();
    assert_eq!(daemon_args(&lab, &typed_up("")).unwrap(), ["--instance", "lab"]);
    let args = daemon_args(&lab, &typed_up("--port a --port b --engine tc --config /x/y.toml")).unwrap();
    let want = ["--instance", "lab", "--config", "/x/y.toml", "--engine", "tc", "--port", "a", "--port", "b"];
    assert_eq!(args, want);
}

#[test]
fn a_relative_file_is_found_from_anywhere() {
    let args = daemon_args(&Instance::default(), &typed_up("--config y.toml")).unwrap();
    let config = Path::new(&args[3]);
    assert!(config.is_absolute() && config.ends_with("y.toml"), "{config:?}");
}

#[test]
fn a_file_of_routes_is_put_in_and_taken_out() {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(ROUTES.as_bytes()).unwrap();
    let path = file.path().display();
    let Step::Add(table) = resolve(&format!("flow load {path}")).unwrap().step else { panic!("add") };
    assert_eq!(table.route[0].name, "wan");
    let Step::Remove(removal) = resolve(&format!("flow del --file {path}")).unwrap().step else {
        panic!("remove")
    };
    assert_eq!(removal, StaticRemoval { route: vec!["wan".to_owned()], ..StaticRemoval::default() });
}

#[test]
fn a_wrong_file_is_named_with_what_is_wrong() {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(ROUTES.replace("name", "nom").as_bytes()).unwrap();
    let failure = failure_of(&format!("flow load {}", file.path().display()));
    assert_eq!(failure.code, FailureCode::BadConfig);
    let start = format!("{}: line 2: unknown field `nom`", file.path().display());
    assert!(failure.message.starts_with(&start), "{failure}");
    let failure = failure_of("flow load /nonexistent.toml");
    assert_eq!(failure.code, FailureCode::BadConfig);
    assert!(failure.message.starts_with("/nonexistent.toml: No such file"), "{failure}");
}

#[test]
fn a_flow_that_cannot_be_is_a_wrong_command() {
    let failure =
        failure_of("flow add --in-port e --proto udp --src 192.0.2.1:1 --dst [2001:db8::1]:2 --route wan");
    assert_eq!(failure.code, FailureCode::Usage);
    assert!(failure.message.ends_with("src and dst are of different families"), "{failure}");
}

#[test]
fn files_that_hold_no_results_are_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let whole = Results::new("throughput", shunt_lab::Conditions::default()).to_json().unwrap();
    let newer = whole.replacen("\"version\": 1", "\"version\": 9", 1);
    for (name, text) in [("whole", &whole[..]), ("cut", &whole[..60]), ("newer", &newer), ("other", "{}")] {
        std::fs::write(path(name), text).unwrap();
    }
    let compare = |a: &str, b: &str| resolve(&format!("compare {} {}", path(a), path(b)));
    assert!(compare("whole", "whole").is_ok());
    for (name, why) in [
        ("cut", "it ends in the middle, after 4 lines: copy it again, or measure again"),
        ("newer", "its format is version 9, and this Shunt reads 1: read it with the Shunt that wrote it"),
        ("other", "it is no result of Shunt: \"format\": \"shunt-result\" is missing"),
        ("none", "No such file or directory (os error 2)"),
    ] {
        for failure in [compare(name, "whole"), compare("whole", name)].map(|it| it.unwrap_err()) {
            let failure = failure.downcast::<Failure>().unwrap();
            assert_eq!(failure.code, FailureCode::BadConfig);
            assert_eq!(failure.message, format!("{}: {why}", path(name)));
        }
    }
}
