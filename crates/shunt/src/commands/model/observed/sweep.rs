//! The steps of `shunt bench sweep`.

use super::{load::busiest, setting::settings};
use serde::Deserialize;
use shunt_lab::{Reading, Results};
use shunt_model::{Observation, Quantity};
use std::collections::BTreeMap;

/// Ethernet, IPv4 and UDP headers, and FCS.
pub(super) const HEADERS: f64 = 46.0;

/// The figures of one offered rate.
#[derive(Debug, Default)]
struct Step {
    /// Mean size of a frame.
    frame: Option<f64>,
    /// Of all directions together.
    received_pps: Option<f64>,
    /// Of all directions, in percent.
    losses: Vec<f64>,
    load: Option<f64>,
    lines: u32,
}

/// The steps by offered rate.
type Steps = BTreeMap<u64, Step>;

/// What is read of the report that `shunt bench sweep --json` printed.
#[derive(Debug, Deserialize)]
pub(super) struct Printed {
    steps: Vec<PrintedStep>,
}

#[derive(Debug, Deserialize)]
struct PrintedStep {
    offered_bps: f64,
    directions: Vec<Figures>,
    dut_load: Option<PrintedLoad>,
}

#[derive(Debug, Deserialize)]
struct Figures {
    achieved_l2_bps: f64,
    seconds: f64,
    sent: u64,
    received: u64,
    loss_ratio: f64,
}

#[derive(Debug, Deserialize)]
struct PrintedLoad {
    load_percent: f64,
    #[serde(default)]
    cpus: Vec<PrintedCpu>,
}

#[derive(Debug, Deserialize)]
struct PrintedCpu {
    load_percent: f64,
}

impl Printed {
    pub(super) fn observations(self) -> Option<Vec<Observation>> {
        let step = |PrintedStep { offered_bps, directions, dut_load }: PrintedStep| {
            let first = directions.first().filter(|first| first.sent > 0);
            let known = Step {
                frame: first.map(|one| one.achieved_l2_bps * one.seconds / 8.0 / one.sent as f64),
                received_pps: Some(directions.iter().map(|one| one.received as f64 / one.seconds).sum()),
                losses: directions.iter().map(|one| one.loss_ratio * 100.0).collect(),
                load: dut_load.map(|load| {
                    let busiest = load.cpus.iter().map(|cpu| cpu.load_percent).reduce(f64::max);
                    busiest.unwrap_or(load.load_percent)
                }),
                lines: directions.len() as u32,
            };
            (offered_bps as u64, known)
        };
        from_steps(&self.steps.into_iter().map(step).collect())
    }
}

/// The steps of a file that `--keep` wrote; None if it has none.
pub(super) fn observations(results: &Results) -> Option<Vec<Observation>> {
    let mut steps = Steps::new();
    for reading in results.readings.values() {
        let Some(position) =
            reading.position.as_ref().filter(|at| at.along == "offered rate" && at.unit == "bit/s")
        else {
            continue;
        };
        let step = steps.entry(position.value as u64).or_default();
        match position.of.as_str() {
            "received" => {
                step.frame = step.frame.or(sent_frame(reading));
                *step.received_pps.get_or_insert(0.0) += reading.value;
                step.lines += 1;
            }
            "loss" => step.losses.push(reading.value),
            "load" => step.load = Some(busiest(reading)),
            _ => {}
        }
    }
    from_steps(&steps)
}

fn sent_frame(reading: &Reading) -> Option<f64> {
    let details = &reading.runs.first()?.details;
    let number = |name: &str| details.get(name)?.as_f64();
    let bits = number("achieved_bps")? * number("seconds")?;
    Some(bits / 8.0 / number("sent")?).filter(|bytes| bytes.is_finite() && *bytes >= 60.0)
}

/// Size of the frames, from the rate that was sent or else from a step without loss.
fn frame_size(steps: &Steps) -> Option<f64> {
    let sent = steps.values().find_map(|step| step.frame);
    let counted = steps.iter().find_map(|(offered, step)| {
        let lossless = step.losses.iter().all(|loss| *loss < 0.01);
        let pps = step.received_pps.filter(|pps| *pps > 0.0 && lossless)?;
        Some(*offered as f64 * f64::from(step.lines.max(1)) / 8.0 / pps)
    });
    sent.or(counted).filter(|bytes| (60.0..65_000.0).contains(bytes))
}

fn from_steps(steps: &Steps) -> Option<Vec<Observation>> {
    let frame = frame_size(steps)?;
    let payload = (frame - HEADERS).max(1.0).round();
    let mut all = Vec::new();
    for (offered, step) in steps {
        let both = if step.lines > 1 { "both" } else { "forward" };
        let settings = settings(&[
            ("traffic.direction", both.to_owned()),
            ("traffic.payload", payload.to_string()),
            ("traffic.rate", (*offered as f64 * payload / frame).to_string()),
        ]);
        let goodput = step.received_pps.map(|pps| pps * payload * 8.0 / 1e6);
        let loss = step.losses.iter().sum::<f64>() / step.losses.len().max(1) as f64;
        let loss = (!step.losses.is_empty()).then_some(loss);
        let figures = [(Quantity::Goodput, goodput), (Quantity::Loss, loss), (Quantity::Cpu, step.load)];
        for (quantity, value) in figures {
            all.extend(value.map(|value| Observation { settings: settings.clone(), quantity, value }));
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(all: &[Observation], of: Quantity) -> f64 {
        all.iter().find(|one| one.quantity == of).unwrap().value
    }

    #[test]
    fn a_printed_sweep_is_read_and_the_busiest_cpu_counts() {
        let text = include_str!("../../bench/sweep/golden/bench-sweep.json");
        let all = serde_json::from_str::<Printed>(text).unwrap().observations().unwrap();
        let rates: Vec<&String> = all.iter().map(|one| &one.settings[2].1).collect();
        assert!(
            rates.windows(2).all(|two| two[0].parse::<f64>().unwrap() <= two[1].parse().unwrap()),
            "{rates:?}"
        );
        assert!((value(&all, Quantity::Goodput) - 30_303.0 * 1398.0 * 8.0 / 1e6).abs() < 0.1, "{all:?}");
        // The mean of the two CPUs is 23.2 %.
        assert_eq!(value(&all, Quantity::Cpu), 38.3);
    }

    #[test]
    fn a_kept_sweep_is_read() {
        let position = |of: &str| json!({"of": of, "line": "a to b", "along": "offered rate", "unit": "bit/s", "value": 1e8});
        let reading = |of: &str, unit: &str, value: f64, details| {
            json!({
                "unit": unit, "value": value, "spread": {"low": value, "high": value, "kind": "range"}, "doubts": [],
                "position": position(of), "runs": [{"value": value, "details": details}],
            })
        };
        let mut file: serde_json::Value =
            serde_json::from_str(&Results::new("sweep", shunt_lab::Conditions::default()).to_json().unwrap())
                .unwrap();
        let sent = json!({"achieved_bps": 1e8, "sent": 16_469, "received": 16_000, "seconds": 2.0});
        file["readings"] = json!({
            "received": reading("received", "pps", 8_000.0, sent),
            "loss": reading("loss", "%", 2.85, json!({})),
            "load": reading("load", "%", 15.0, json!({"cpus": {"cpu0": 5.0, "cpu1": 25.0}, "seconds": 2.0})),
        });
        let all = observations(&Results::parse(&file.to_string()).unwrap()).unwrap();
        assert_eq!((value(&all, Quantity::Loss), value(&all, Quantity::Cpu)), (2.85, 25.0));
        assert!((value(&all, Quantity::Goodput) - 8000.0 * 1472.0 * 8.0 / 1e6).abs() < 0.1);
        assert!(all[0].settings.contains(&("traffic.payload".to_owned(), "1472".to_owned())), "{all:?}");
    }
}
