//! Files that cannot be written: the log, and what is kept across a restart.

use shunt_testkit::{Shuntd, Stage, require_root, rulesets};
use std::{fs::File, process::Stdio};

#[test]
fn a_log_that_cannot_be_written_ends_nothing_and_its_lines_are_counted() {
    if !require_root() {
        return;
    }
    let full = || File::options().write(true).open("/dev/full").unwrap().into();
    let closed = || {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drop(reader);
        writer.into()
    };
    let logs: [(&str, &dyn Fn() -> Stdio); 2] = [("a full disk", &full), ("a closed pipe", &closed)];
    for (name, log) in logs {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let shuntd = Shuntd::on(lab.router()).stderr(log()).start();
        stage.teach(&shuntd, &packet);
        // The daemon logs at least that it attached to each port, and that it detaches from one that goes.
        let before = shuntd.status().log_lines_lost;
        assert!(before >= 2, "{name}: {before} lines lost");
        lab.router().run("ip link add gone type veth peer gone-peer && ip addr add 203.0.113.1/24 dev gone");
        lab.router().run("ip link set gone up && ip link set gone-peer up");
        shuntd.wait_until("the port is there", |status| status.ports.iter().any(|port| port.name == "gone"));
        lab.router().run("ip link del gone");
        shuntd.wait_until("the port has gone", |status| status.ports.iter().all(|port| port.name != "gone"));
        let lost = shuntd.status().log_lines_lost;
        assert!(lost > before, "{name}: {lost} lines lost, {before} before");
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_state_directory_that_cannot_be_written_ends_nothing_and_the_status_says_so() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).variable("SHUNT_STATE_DIR", "/dev/null/state").start();
    stage.teach(&shuntd, &packet);
    let status = shuntd.wait_until("the history cannot be kept", |status| !status.not_kept.is_empty());
    let why = &status.not_kept[0].why;
    assert!(why.starts_with("/dev/null/state/") && why.contains("Not a directory"), "{why}");
    let text = String::from_utf8(shuntd.shunt(&["status"]).stdout).unwrap();
    assert!(text.contains(&format!("not kept: {why}\n    a restart will lose")), "{text}");
    stage.teach(&shuntd, &packet);
    shuntd.stop();
}
