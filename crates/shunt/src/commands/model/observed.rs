//! Turns a file of results into observations to fit the model to.

use serde::Deserialize;
use shunt_lab::{Reading, Results};
use shunt_model::{Case, Direction, Observation, Quantity};
use std::collections::{BTreeMap, BTreeSet};

/// Ethernet, IPv4 and UDP headers, and FCS.
const HEADERS: f64 = 46.0;
/// The time of a run of the model: so long that what a ring holds at the end hardly counts, and so short that hundreds of runs take
/// seconds.
const SECONDS: f64 = 0.5;

/// The figures of one offered rate.
#[derive(Debug, Default)]
struct Step {
    /// Mean size of a frame.
    frame: Option<f64>,
    received_pps: Option<f64>,
    loss: Option<f64>,
    load: Option<f64>,
    lines: u32,
}

fn sent_frame(reading: &Reading) -> Option<f64> {
    let details = &reading.runs.first()?.details;
    let number = |name: &str| details.get(name)?.as_f64();
    let bits = number("achieved_bps")? * number("seconds")?;
    Some(bits / 8.0 / number("sent")?).filter(|bytes| bytes.is_finite() && *bytes >= 60.0)
}

/// Reads the observations in a file: results that `--keep` wrote, or the report that `shunt bench sweep --json`
/// printed.
pub(super) fn read(text: &str) -> Result<Vec<Observation>, String> {
    if let Ok(report) = serde_json::from_str::<SweepReport>(text) {
        return from_steps(&report.into_steps()).ok_or_else(|| "the sweep has no steps".to_owned());
    }
    let results = Results::parse(text).map_err(|error| error.to_string())?;
    observations(&results)
}

/// The part of a sweep's report that is used.
#[derive(Debug, Deserialize)]
struct SweepReport {
    steps: Vec<ReportedStep>,
}

#[derive(Debug, Deserialize)]
struct ReportedStep {
    offered_bps: f64,
    directions: Vec<ReportedDirection>,
    dut_load: Option<ReportedLoad>,
}

#[derive(Debug, Deserialize)]
struct ReportedDirection {
    figures: ReportedFigures,
}

#[derive(Debug, Deserialize)]
struct ReportedFigures {
    achieved_l2_bps: f64,
    seconds: f64,
    sent: u64,
    received: u64,
    loss_ratio: f64,
}

#[derive(Debug, Deserialize)]
struct ReportedLoad {
    load_percent: f64,
}

impl SweepReport {
    fn into_steps(self) -> BTreeMap<u64, Step> {
        let step = |step: ReportedStep| {
            let figures: Vec<&ReportedFigures> = step.directions.iter().map(|one| &one.figures).collect();
            let first = figures.first().filter(|first| first.sent > 0);
            let known = Step {
                frame: first.map(|one| one.achieved_l2_bps * one.seconds / 8.0 / one.sent as f64),
                received_pps: Some(figures.iter().map(|one| one.received as f64 / one.seconds).sum()),
                loss: figures.iter().map(|one| one.loss_ratio * 100.0).reduce(f64::max),
                load: step.dut_load.map(|load| load.load_percent),
                lines: figures.len() as u32,
            };
            (step.offered_bps as u64, known)
        };
        self.steps.into_iter().map(step).collect()
    }
}

/// Reads the steps of a sweep, or the cells of a matrix.
fn observations(results: &Results) -> Result<Vec<Observation>, String> {
    let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
    for reading in results.readings.values() {
        let Some(position) = reading.position.as_ref().filter(|at| at.along == "offered rate") else {
            continue;
        };
        let step = steps.entry(position.value as u64).or_default();
        match position.of.as_str() {
            "received" => {
                step.frame = step.frame.or(sent_frame(reading));
                *step.received_pps.get_or_insert(0.0) += reading.value;
                step.lines += 1;
            }
            "loss" => step.loss = Some(step.loss.unwrap_or(0.0).max(reading.value)),
            "load" => step.load = Some(reading.value),
            _ => {}
        }
    }
    let cells = || results.readings.iter().filter_map(|(name, reading)| cell(name, reading.value));
    from_steps(&steps).or_else(|| Some(cells().collect()).filter(|all: &Vec<_>| !all.is_empty())).ok_or_else(|| {
        format!(
            "the results of `{}` have neither steps of an offered rate nor cells of a matrix: use a file of `shunt bench sweep --keep` \
             or `shunt bench matrix --keep`",
            results.what
        )
    })
}

/// Size of the frames, from the rate that was sent or else from a step without loss.
fn frame_size(steps: &BTreeMap<u64, Step>) -> Option<f64> {
    let sent = steps.values().find_map(|step| step.frame);
    let counted = steps.iter().find_map(|(offered, step)| {
        let pps = step.received_pps.filter(|pps| *pps > 0.0 && step.loss.unwrap_or(0.0) < 0.01)?;
        Some(*offered as f64 * f64::from(step.lines.max(1)) / 8.0 / pps)
    });
    sent.or(counted).filter(|bytes| (60.0..70_000.0).contains(bytes))
}

fn settings(of: &[(&str, String)]) -> Vec<(String, String)> {
    of.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn from_steps(steps: &BTreeMap<u64, Step>) -> Option<Vec<Observation>> {
    let frame = frame_size(steps)?;
    let payload = (frame - HEADERS).max(1.0).round();
    let mut all = Vec::new();
    for (offered, step) in steps {
        let both = if step.lines > 1 { "both" } else { "forward" };
        let settings = settings(&[
            ("traffic.direction", both.to_owned()),
            ("traffic.payload", payload.to_string()),
            ("traffic.rate", (*offered as f64 * payload / frame).to_string()),
            ("traffic.seconds", SECONDS.to_string()),
        ]);
        let goodput = step.received_pps.map(|pps| pps * payload * 8.0 / 1e6);
        let figures = [(Quantity::Goodput, goodput), (Quantity::Loss, step.loss), (Quantity::Cpu, step.load)];
        for (quantity, value) in figures {
            all.extend(value.map(|value| Observation { settings: settings.clone(), quantity, value }));
        }
    }
    Some(all)
}

/// A cell of a matrix, by the name of its reading: `UDP IPv4 NAT LAN to WAN tc`, perhaps followed by the quantity.
fn cell(name: &str, value: f64) -> Option<Observation> {
    let mut words: Vec<&str> = name.split(' ').collect();
    let quantity = match *words.last()? {
        "loss" => Quantity::Loss,
        "CPU" => Quantity::Cpu,
        "jitter" | "/proc/stat" => return None,
        _ => Quantity::Goodput,
    };
    if quantity != Quantity::Goodput {
        words.pop();
    }
    let path = words.pop().filter(|column| ["slow", "tc", "xdp"].contains(column))?;
    // Goodput of one way of full duplex is half of what the model adds up.
    if words.iter().any(|word| ["forward", "reverse", "duplex"].contains(word)) {
        return None;
    }
    let has = |wanted: &str| words.contains(&wanted);
    let (tcp, v6) = (has("TCP"), has("IPv6"));
    if !tcp && !has("UDP") {
        return None;
    }
    let payload = 1500 - if v6 { 40 } else { 20 } - if tcp { 32 } else { 8 };
    let mut set = vec![
        ("traffic.direction", "forward".to_owned()),
        ("traffic.protocol", if tcp { "tcp" } else { "udp" }.to_owned()),
        ("traffic.ip", if v6 { "6" } else { "4" }.to_owned()),
        ("traffic.tags", u8::from(has("VLAN")).to_string()),
        ("traffic.payload", payload.to_string()),
        ("traffic.seconds", SECONDS.to_string()),
        ("forward.path", path.to_owned()),
    ];
    if !has("NAT") {
        set.push(("forward.slow_nat_ns", "0".to_owned()));
    }
    Some(Observation { settings: settings(&set), quantity, value })
}

/// The parameters that say what the measured paths cost.
pub(super) fn paths(observed: &[Observation]) -> Vec<String> {
    let all: BTreeSet<&str> = observed
        .iter()
        .flat_map(|one| &one.settings)
        .filter(|(name, _)| name == "forward.path")
        .map(|(_, path)| path.as_str())
        .collect();
    if all.is_empty() {
        return vec!["forward.slow_ns".to_owned()];
    }
    all.iter().map(|path| format!("forward.{path}_ns")).collect()
}

/// A router without limits, from which the parameters of a fit begin near what was measured.
pub(super) fn ideal_router(observed: &[Observation]) -> Case {
    let mut case = Case { name: "a router".to_owned(), ..Case::default() };
    case.traffic.direction = Direction::Forward;
    let goodputs = observed.iter().filter(|one| one.quantity == Quantity::Goodput);
    let payload = |one: &Observation| {
        let value = one.settings.iter().find(|(name, _)| name == "traffic.payload");
        value.and_then(|(_, value)| value.parse::<f64>().ok()).unwrap_or(1472.0)
    };
    let most = goodputs.map(|one| (one.value, payload(one))).max_by(|a, b| a.0.total_cmp(&b.0));
    let (goodput, payload) = most.unwrap_or((1000.0, 1472.0));
    let goodput = goodput.max(0.001) * 1e6;
    case.bus.rx_rate = 1.2 * goodput * (payload + HEADERS) / payload;
    let cost = 0.8 * payload * 8.0 / goodput * 1e9;
    (case.forward.slow_ns, case.forward.tc_ns, case.forward.xdp_ns) = (cost, cost, cost);
    (case.cpu.irq_ns, case.cpu.base_load) = (0.1 * cost, 0.01);
    case.link.rate = [1e8, 1e9, 2.5e9, 1e10, 4e10, 1e11]
        .into_iter()
        .find(|rate| *rate > goodput * (payload + HEADERS + 20.0) / payload)
        .unwrap_or(4e11);
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_lab::Conditions;

    #[test]
    fn other_results_are_refused_with_what_to_use() {
        let results = Results::new("throughput", Conditions::default());
        let why = observations(&results).unwrap_err();
        assert!(why.contains("`throughput`") && why.contains("shunt bench sweep --keep"), "{why}");
    }

    #[test]
    fn a_printed_sweep_is_read() {
        let figures = r#"{"achieved_l2_bps": 1e8, "seconds": 2.0, "sent": 16469, "received": 16000, "loss_ratio": 0.0285}"#;
        let text = format!(
            r#"{{"steps": [{{"offered_bps": 1e8, "directions": [{{"figures": {figures}}}], "dut_load": {{"load_percent": 40.0}}}}]}}"#
        );
        let all = read(&text).unwrap();
        let value = |of| all.iter().find(|one| one.quantity == of).unwrap().value;
        assert_eq!((value(Quantity::Loss), value(Quantity::Cpu)), (2.85, 40.0));
        assert!((value(Quantity::Goodput) - 8000.0 * 1472.0 * 8.0 / 1e6).abs() < 0.1);
        assert!(all[0].settings.contains(&("traffic.payload".to_owned(), "1472".to_owned())), "{all:?}");
    }

    #[test]
    fn the_name_of_a_cell_says_what_was_sent() {
        let known = |name: &str| cell(name, 1.0).map(|one| (one.quantity, one.settings.len()));
        assert_eq!(known("UDP IPv4 NAT VLAN up tc"), Some((Quantity::Goodput, 7)));
        assert_eq!(known("TCP IPv6 up slow CPU"), Some((Quantity::Cpu, 8)));
        assert_eq!(known("TCP IPv6 duplex forward slow"), None);
        assert_eq!(known("UDP IPv4 up tc jitter"), None);
        assert_eq!(known("idle"), None);
    }
}
