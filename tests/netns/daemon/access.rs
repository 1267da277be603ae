//! Permissions of the control socket.

use shunt_api::FailureCode;
use shunt_testkit::{Shuntd, Stage, Topology, require_root, rulesets, silent_router};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command,
};

const NOBODY: &str = "65534";
/// The group `daemon`.
const MEMBER: &str = "1";

/// Sends a request with curl as another user; returns the HTTP status and the body, or `None` if curl cannot connect.
fn ask_as(shuntd: &Shuntd, groups: &[&str], method: &str, path: &str) -> Option<(String, String)> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", groups[0]]);
    match groups[1..] {
        [] => command.arg("--clear-groups"),
        _ => command.args(["--groups", &groups[1..].join(",")]),
    };
    command.args([
        "curl",
        "--silent",
        "--max-time",
        "10",
        "-w",
        "\n%{http_code}",
        "-H",
        "Content-Type: application/json",
        "-X",
        method,
        "--unix-socket",
    ]);
    let output = command.arg(shuntd.socket()).arg(format!("http://localhost{path}")).output().unwrap();
    // curl's exit code 7: could not connect.
    if output.status.code() == Some(7) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (body, status) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{output:?}"));
    Some((status.to_owned(), body.to_owned()))
}

fn open_directory(shuntd: &Shuntd) {
    fs::set_permissions(shuntd.directory(), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn without_a_group_others_cannot_even_connect() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    let shuntd = Shuntd::on(lab.router()).start();
    open_directory(&shuntd);
    let socket = fs::metadata(shuntd.socket()).unwrap();
    assert_eq!((socket.mode() & 0o7777, socket.uid()), (0o600, 0));
    for groups in [&[NOBODY][..], &["0"], &[NOBODY, "0"]] {
        assert_eq!(ask_as(&shuntd, groups, "GET", "/v1/status"), None, "{groups:?}");
    }
}

#[test]
fn members_of_the_group_may_read_and_change_nothing() {
    if !require_root() {
        return;
    }
    for named in ["daemon", MEMBER] {
        let lab = silent_router(rulesets::OPEN);
        let shuntd = Shuntd::on(lab.router()).config(&format!("read_group = \"{named}\"")).start();
        open_directory(&shuntd);
        let socket = fs::metadata(shuntd.socket()).unwrap();
        assert_eq!(
            (socket.mode() & 0o7777, socket.uid(), socket.gid().to_string().as_str()),
            (0o660, 0, MEMBER)
        );
        let stage = Stage::new(lab.lan(), &[lab.wan()]);
        stage.teach(&shuntd, &lab.lan().udp_to(4000, lab.wan().at(5000)).payload("to be kept"));
        assert_eq!(ask_as(&shuntd, &[NOBODY], "GET", "/v1/status"), None, "not a member of the group");
        for groups in [&[MEMBER][..], &[NOBODY, MEMBER]] {
            for path in ["/v1/status", "/v1/flows", "/v1/static", "/metrics"] {
                let (status, _) = ask_as(&shuntd, groups, "GET", path).unwrap();
                assert_eq!(status, "200", "{path}");
            }
            for (method, path) in [
                ("POST", "/v1/flush"),
                ("POST", "/v1/reload"),
                ("POST", "/v1/stop"),
                ("POST", "/v1/static"),
                ("DELETE", "/v1/static"),
            ] {
                let (status, body) = ask_as(&shuntd, groups, method, path).unwrap();
                assert_eq!(status, "403", "{method} {path}: {body}");
                assert!(body.contains(r#""code":"read-only""#) && body.contains("sudo"), "{body}");
            }
        }
        assert_eq!(shuntd.status().flows.active, 1, "no request flushed the flows");
        assert_eq!(shuntd.flush(), 1);
    }
}

#[test]
fn a_missing_group_is_refused_by_name() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    let refused = Shuntd::on(lab.router()).config("read_group = \"no-such-group\"").try_start();
    let (status, answer) = refused.map(|_| ()).unwrap_err();
    assert_eq!(status.code(), Some(FailureCode::GroupMissing.exit_code().into()));
    assert!(answer.contains("`no-such-group`") && answer.trim_end().lines().count() == 1, "{answer}");
}
