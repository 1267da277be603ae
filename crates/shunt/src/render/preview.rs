//! The texts of `shunt up --dry-run` and `shunt probe`.

use super::{
    Answer, Format,
    columns::align,
    json,
    status::{probe_table, ruleset, slow_causes},
};
use shunt_api::{DeviceReport, DryRun, PlannedPort, ProbeReport};

impl Answer for DryRun {
    fn text(&self, format: Format) -> String {
        dry_run(self, format.verbose)
    }

    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }
}

impl Answer for ProbeReport {
    fn text(&self, format: Format) -> String {
        probed(self, format.verbose)
    }

    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }
}

pub(super) fn dry_run(plan: &DryRun, verbose: bool) -> String {
    let mut text = format!("instance {} would attach to these ports; nothing is attached\n", plan.instance);
    let row =
        |port: &PlannedPort| vec![port.name.clone(), port.engine.to_string(), port.engine_reason.clone()];
    text += &align("<", &plan.ports.iter().map(row).collect::<Vec<_>>());
    text += &slow_causes(&plan.slow_causes);
    if verbose {
        text += &ruleset(&plan.ruleset, true);
        text += &probe_table("kernel", &plan.kernel);
    }
    text
}

pub(super) fn probed(report: &ProbeReport, verbose: bool) -> String {
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
    for device in &report.devices {
        text += &match (&device.port, &device.no_port) {
            (Some(port), _) => format!("{}: {}, {}\n", device.name, port.engine, port.engine_reason),
            (None, Some(why)) => format!("{}: no port: {why}\n", device.name),
            (None, None) => String::new(),
        };
    }
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
