//! The tables of other fast paths: instructions per packet, and ratios.

use super::report::{name_of, target_pairs};
use crate::{
    rig::{
        path::Path,
        setting::{Family, Setting, Tagging},
    },
    summary::Target,
    table_cells::bound,
};
use anyhow::Context;
use shunt_lab::{Reading, Results, statistics};
use std::fmt::Write;

const COLUMNS: [(&str, Path); 8] = [
    ("slow path", Path::Slow),
    ("with Shunt up", Path::Idle),
    ("nf_flowtable", Path::FlowTable),
    ("xdp-forward -f flowtable", Path::XdpForwardFlowTable),
    ("xdp-forward -f fib", Path::XdpForwardFib),
    ("Shunt tc", Path::Tc),
    ("Shunt xdp", Path::Xdp),
    ("bare redirect", Path::Bare),
];
/// Programs that return at once on single hooks and on all three, one that counts tuples, and Shunt, which learns
/// nothing.
const HOOKS: [(&str, Path); 7] = [
    ("slow path", Path::Slow),
    ("XDP hook", Path::HookXdp),
    ("tc ingress hook", Path::HookIngress),
    ("tc egress hook", Path::HookEgress),
    ("all three", Path::Hooks),
    ("tuples counted at tc ingress", Path::HookCount),
    ("Shunt up", Path::Idle),
];
/// Number of flows in the lines that name none.
const FLOWS: u32 = 1000;
/// Notes by a part of the reason why a row is missing.
const NOTES: [(&str, &str); 4] = [
    ("translate addresses", "the program does not translate addresses"),
    ("took another path", "the program hands all packets to the kernel"),
    ("no XDP program", "Shunt attached no XDP program; the tc engine forwards"),
    ("VLAN tag was not changed", "the program forwards the packets with the tag on"),
];

pub fn costs(results: &Results) -> String {
    let mut text = head(&COLUMNS);
    let plain = Setting::default();
    let v6 = Setting { family: Family::Ipv6, ..plain };
    let more = [(plain, 1, "1 flow"), (plain, 100_000, "100,000 flows"), (v6, 100_000, "100,000 flows")];
    let more = more.map(|(setting, flows, label)| (setting, flows, format!("{setting}, {label}")));
    let lines = settings().into_iter().map(|setting| (setting, FLOWS, setting.to_string()));
    let mut notes: Vec<&str> = Vec::new();
    for (setting, flows, label) in lines.chain(more) {
        text += &format!("\n| {label} |");
        for (_, path) in COLUMNS {
            let name = name_of(path, setting, flows);
            let cell = match (results.readings.get(&name), results.missing.get(&name)) {
                (Some(reading), _) => format!("{:.0}", reading.value),
                (None, Some(why)) => note(&mut notes, why).to_string(),
                (None, None) => "-".to_owned(),
            };
            text += &format!(" {cell} |");
        }
    }
    text += "\n\n";
    let notes = notes.iter().zip('a'..).map(|(note, letter)| format!("{letter}: {note}."));
    text + &notes.collect::<Vec<_>>().join("\n") + "\n"
}

/// The head of a table with a column for each path.
fn head(columns: &[(&str, Path)]) -> String {
    let names: String = columns.iter().map(|(name, _)| format!(" {name} |")).collect();
    format!("| setting |{names}\n| --- |{}", " --- |".repeat(columns.len()))
}

/// What each hook costs a packet of the slow path.
pub fn hooks(results: &Results) -> String {
    let mut text = head(&HOOKS);
    for setting in settings() {
        let values: Option<Vec<f64>> = HOOKS
            .iter()
            .map(|(_, path)| Some(results.readings.get(&name_of(*path, setting, FLOWS))?.value))
            .collect();
        let Some(values) = values else { continue };
        text += &format!("\n| {setting} | {:.0} |", values[0]);
        values[1..].iter().for_each(|value| text += &format!(" {:+.0} |", value - values[0]));
    }
    text
}

/// A line for each fast path, with the settings that they have in common.
pub(crate) fn short(results: &Results) -> String {
    let plain = Setting::default();
    let settings = [plain, Setting { nat: false, ..plain }];
    let mut text = format!("| |{}", settings.map(|setting| format!(" {setting} |")).concat());
    text += &format!("\n| --- |{}", " ---: |".repeat(settings.len()));
    for (label, path) in COLUMNS {
        let cells = settings.map(|setting| match results.readings.get(&name_of(path, setting, FLOWS)) {
            Some(reading) => format!(" {:.0} |", reading.value),
            None => " - |".to_owned(),
        });
        text += &format!("\n| {label} |{}", cells.concat());
    }
    text
}

/// How many more instructions packets of the slow path take with Shunt up, over all settings.
pub(crate) fn slow_path_instructions(results: &Results) -> anyhow::Result<String> {
    let more: Option<Vec<f64>> = settings()
        .into_iter()
        .map(|setting| {
            let [slow, idle] = [Path::Slow, Path::Idle].map(|path| name_of(path, setting, FLOWS));
            Some((results.readings.get(&idle)?.value / results.readings.get(&slow)?.value - 1.0) * 100.0)
        })
        .collect();
    let more = more.context("the slow path is not in all settings")?;
    let (low, high) =
        more.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(*v), high.max(*v)));
    Ok(format!("{low:.0} to {high:.0} %"))
}

/// The letter of a note, which is added if it is new.
fn note<'w>(notes: &mut Vec<&'w str>, why: &'w str) -> char {
    let text = NOTES.iter().find(|(part, _)| why.contains(part)).map_or(why, |(_, text)| text);
    let at = notes.iter().position(|note| *note == text).unwrap_or_else(|| {
        notes.push(text);
        notes.len() - 1
    });
    ('a'..='z').nth(at).unwrap_or('?')
}

fn settings() -> Vec<Setting> {
    let tags = [Tagging::None, Tagging::Popped, Tagging::Pushed];
    let kinds = [Family::Ipv4, Family::Ipv6].map(|family| [true, false].map(|nat| (family, nat)));
    let kinds = kinds.into_iter().flatten();
    kinds.flat_map(|(family, nat)| tags.map(|tag| Setting { family, nat, tag })).collect()
}

pub fn ratios(results: &Results) -> String {
    let mut text =
        "| IPv4 NAT, 1,000 flows | ratio | ratio of the costs less the baseline | target |\n| --- | --- | --- | --- |\n"
            .to_owned();
    for (name, (of, of_setting), (to, to_setting), target) in target_pairs() {
        let readings = [(of, of_setting), (to, to_setting)]
            .map(|(path, setting)| results.readings.get(&name_of(path, setting, FLOWS)));
        let [Some(of), Some(to)] = readings else { continue };
        let pairs: Vec<f64> = of.runs.iter().zip(&to.runs).map(|(of, to)| of.value / to.value).collect();
        let value = statistics::median(&pairs).unwrap_or(f64::NAN);
        let less_baseline = less_baseline(of) / less_baseline(to);
        let target = bound(Target::AtMost(target), value);
        let _ = writeln!(text, "| {name} | {value:.3} | {less_baseline:.3} | {target} |");
    }
    text
}

/// The median of what generator, router and sink take together, less the baseline.
fn less_baseline(reading: &Reading) -> f64 {
    let values = reading.runs.iter().filter_map(|run| run.details.get("less_baseline")?.as_f64());
    statistics::median(&values.collect::<Vec<_>>()).unwrap_or(f64::NAN)
}
