//! The text of `shunt load`.

use crate::render::{Answer, Format, Text, columns::align, json_line, units};
use shunt_lab::{
    Doubt,
    load::{CpuLoad, Load, SelfTest, SelfTestStep},
};

const HEADS: [&str; 9] = ["cpu", "load", "/proc/stat", "softirq", "irq", "steal", "speed", "memory", "meter"];

impl Answer for Load {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn json(&self) -> serde_json::Result<String> {
        json_line(self)
    }
}

impl Text for SelfTest {
    fn text(&self, _: Format) -> String {
        describe_self_test(self)
    }
}

/// The doubts, then a row for all CPUs together and one for each CPU.
fn describe(load: &Load) -> String {
    let mut rows = vec![HEADS.map(str::to_owned).to_vec()];
    rows.push(vec!["all".to_owned(), percent(load.load_percent)]);
    rows.extend(load.cpus.iter().map(cpu));
    doubts(&load.doubts) + &align("<>", &rows)
}

fn describe_self_test(test: &SelfTest) -> String {
    let heads = ["cpu", "injected", "others", "interrupts", "measured", "error", "windows", "quiet"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(test.steps.iter().map(step));
    doubts(&test.doubts)
        + &align("<>", &rows)
        + &format!("The largest error is {:.2} percentage points of load.\n", test.max_error_points)
}

fn cpu(load: &CpuLoad) -> Vec<String> {
    let stat = &load.proc_stat;
    let or_unknown = |share: Option<f64>| share.map_or("?".to_owned(), percent);
    vec![
        load.cpu.to_string(),
        format!("{} ±{:.1} %", units::rounded(load.load_percent), load.error_points),
        or_unknown(stat.busy_percent),
        percent(stat.softirq_percent),
        percent(stat.irq_percent),
        percent(stat.steal_percent),
        percent(load.speed_percent),
        units::change_percent(load.memory_slowdown_percent),
        or_unknown(load.soaked_percent),
    ]
}

fn step(step: &SelfTestStep) -> Vec<String> {
    vec![
        step.cpu.to_string(),
        percent(step.injected_percent),
        percent(step.others_percent),
        percent(step.interrupts_percent),
        percent(step.measured_percent),
        units::unsigned_zero(format!("{:+.2}", step.error_points)),
        step.windows.to_string(),
        step.quiet_windows.to_string(),
    ]
}

fn doubts(doubts: &[Doubt]) -> String {
    doubts.iter().map(|doubt| format!("doubt: {doubt}\n")).collect()
}

fn percent(value: f64) -> String {
    units::load(Some(value))
}
