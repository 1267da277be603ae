//! The texts of `shunt up`, also with --dry-run, and of `shunt probe`.

use crate::{
    commands::{
        reload::view::Reloaded,
        status::{
            reasons::{engine_rows, reason_lines},
            view::{brief, probe_table, ruleset, slow_causes, started, unused_keys, unused_queues},
        },
    },
    render::{Answer, Format, Text, columns::align, json},
};
use shunt_api::{DeviceReport, DryRun, FailureCode, ProbeReport, Status};
use std::path::PathBuf;

/// The state of a daemon that has just started.
#[derive(Debug)]
pub(crate) struct StartedDaemon {
    pub(crate) status: Status,
    pub(crate) log: PathBuf,
}

impl Answer for StartedDaemon {
    fn text(&self, format: Format) -> String {
        if format.brief {
            return brief(&self.status);
        }
        let mut text = started(&self.status);
        if format.verbose {
            text += &format!("pid {}, log {}\n", self.status.pid, self.log.display());
        }
        text
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.status)
    }
}

impl Text for DryRun {
    fn text(&self, format: Format) -> String {
        dry_run(self, format)
    }
}

impl Text for ProbeReport {
    fn text(&self, format: Format) -> String {
        probed(self, format.verbose)
    }
}

pub(crate) fn dry_run(plan: &DryRun, format: Format) -> String {
    let mut text = if plan.running {
        format!(
            "instance {} runs and is not changed; started again with these options, it would attach to these ports\n",
            plan.instance
        )
    } else {
        format!("instance {} would attach to these ports; nothing is attached\n", plan.instance)
    };
    let ports = plan.ports.iter();
    text += &engine_rows(ports.map(|port| (port.name.as_str(), port.engine, port.engine_reason.as_str())));
    text += &slow_causes(&plan.slow_causes);
    text += &unused_queues(&plan.unused_queues);
    text += &unused_keys(&plan.unused_keys);
    if let Some(reload) = &plan.reload {
        let mut reload = reload.clone();
        reload.unused_queues.retain(|unused| !plan.unused_queues.contains(unused));
        let reloaded = Reloaded { reload, instance: plan.instance.clone() };
        let way_out = Answer::failure(&reloaded).filter(|failure| failure.code == FailureCode::NeedsRestart);
        let way_out = way_out.map_or_else(String::new, |failure| failure.message + "\n");
        text += &section("what `shunt reload` would do", &(reloaded.text(format) + &way_out));
    }
    if format.verbose {
        text += &ruleset(&plan.ruleset, true);
        text += &probe_table("kernel", &plan.kernel);
    }
    text
}

pub(crate) fn probed(report: &ProbeReport, verbose: bool) -> String {
    let mut text =
        format!("Linux {}, Shunt {}; the probe attaches nothing\n", report.kernel_release, report.version);
    if report.obstacles.is_empty() {
        let ports = report.devices.iter().filter(|device| device.port.is_some());
        let names: Vec<&str> = ports.map(|device| device.name.as_str()).collect();
        text += &format!("`shunt up` would start on {}\n", names.join(", "));
    }
    for obstacle in &report.obstacles {
        text += &format!("`shunt up` would fail: {obstacle}\n");
    }
    text += &probe_table("kernel", &report.kernel);
    text += &probe_table("router", &report.router);
    text += &format!("\n{}", device_table(&report.devices));
    let why = |device: &DeviceReport| match (&device.port, &device.no_port) {
        (Some(port), _) => Some(format!("{}, {}", port.engine, port.engine_reason)),
        (None, Some(why)) => Some(format!("no port: {why}")),
        (None, None) => None,
    };
    let reasons = report.devices.iter().filter_map(|device| Some((device.name.as_str(), why(device)?)));
    text += &reason_lines(reasons);
    text += &section(
        "what would stay slow",
        &(slow_causes(&report.slow_causes) + &ruleset(&report.ruleset, verbose)),
    );
    text += &section("gain", &report.gain.iter().map(|line| format!("{line}\n")).collect::<String>());
    text
}

fn section(title: &str, lines: &str) -> String {
    if lines.is_empty() { String::new() } else { format!("\n{title}\n{lines}") }
}

fn device_table(devices: &[DeviceReport]) -> String {
    let answer = |answer: Option<bool>| {
        match answer {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        }
        .to_owned()
    };
    let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let head = ["device", "kind", "link", "native XDP", "XDP target", "qdiscs"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(devices.iter().map(|device| {
        vec![
            device.name.clone(),
            or_none(device.kind.as_deref().unwrap_or_default()),
            if device.up { "up" } else { "down" }.to_owned(),
            answer(device.xdp_native),
            answer(device.xdp_target),
            or_none(&device.qdiscs.join(" ")),
        ]
    }));
    align("<", &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        commands::status::sample::status,
        golden::{JSON, TEXT, VERBOSE, assert_golden, sample, show},
    };
    use shunt_api::{Failure, FailureCode, Reload};

    fn started() -> StartedDaemon {
        StartedDaemon { status: status(), log: "/run/shunt/default.log".into() }
    }

    fn planned() -> DryRun {
        sample(include_str!("golden/up-dry-run.json"))
    }

    fn probe_report() -> ProbeReport {
        sample(include_str!("golden/probe.json"))
    }

    #[test]
    fn texts_match_their_golden_files() {
        assert_golden("golden/up.txt", &started(), VERBOSE);
        assert_golden("golden/up-dry-run.txt", &planned(), TEXT);
        assert_golden("golden/up-dry-run-verbose.txt", &planned(), VERBOSE);
        assert_golden("golden/up-dry-run.json", &planned(), JSON);
        let beside = DryRun { running: true, ..planned() };
        assert!(
            show(&beside, TEXT).starts_with("instance default runs and is not changed; started again with")
        );
        let reload: Reload = sample(include_str!("../reload/golden/reload.json"));
        let compare = |applied| {
            let tried = Reload { dry_run: true, applied, ..reload.clone() };
            show(&DryRun { reload: Some(tried), ..beside.clone() }, TEXT)
        };
        let compared = compare(true);
        assert!(compared.contains("\nwhat `shunt reload` would do\nkey "), "{compared}");
        assert!(!compared.contains("needs a restart:"), "{compared}");
        let refused = compare(false);
        assert!(
            refused.contains(
                "would not be applied; nothing was changed\nlearn needs a restart: `shunt restart`"
            ),
            "{refused}"
        );
        assert_golden("golden/probe.json", &probe_report(), JSON);
        assert_golden("golden/probe.txt", &probe_report(), TEXT);
        let failing = ProbeReport {
            obstacles: vec![Failure::new(FailureCode::ForwardingOff, "forwarding is off: set a sysctl")],
            ..probe_report()
        };
        assert_golden("golden/probe-failing.txt", &failing, VERBOSE);
    }

    #[test]
    fn ports_with_the_same_reason_share_a_line() {
        let mut plan = planned();
        let mut third = plan.ports[0].clone();
        "wan0".clone_into(&mut third.name);
        plan.ports.push(third);
        let text = show(&plan, TEXT);
        let reason = plan.ports[0].engine_reason.as_str();
        assert_eq!(text.matches(reason).count(), 1, "{text}");
        assert!(text.contains(&format!("\neth0, wan0  xdp  {reason}\n")), "{text}");
    }

    #[test]
    fn a_started_daemon_has_the_json_of_its_status() {
        assert_eq!(show(&started(), JSON), show(&status(), JSON));
    }
}
