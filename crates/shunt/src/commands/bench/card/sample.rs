//! A router card of Linux and the external engine on a small machine.

use super::view::Card;
use shunt_lab::{
    Conditions, Cpus, Doubt, MachineSample, Results, ResultsFile, Run,
    card::{WHAT, reading},
};

/// Values of `slow` and of `external`, for each quantity.
const FIGURES: [(&str, &str, [f64; 2]); 9] = [
    ("ndr 64 bytes", "pps", [431_000.0, 912_000.0]),
    ("pdr 64 bytes", "pps", [455_000.0, 940_000.0]),
    ("ndr imix", "pps", [402_000.0, 873_000.0]),
    ("pdr imix", "pps", [420_000.0, 905_000.0]),
    ("connection establishment rate 10000 connections", "1/s", [104_000.0, 61_000.0]),
    ("connection capacity", "connections", [20_000.0, 20_000.0]),
    ("latency p50 at 50 % of the NDR imix", "us", [11.2, 6.4]),
    ("latency p99 at 50 % of the NDR imix", "us", [48.0, 19.5]),
    (CPU_TIME, "ns/packet", [1210.0, 0.0]),
];
const CPU_TIME: &str = "CPU time at 50 % of the NDR imix";
const ROUNDS: u32 = 6;

/// The router with the external engine has no CPU time, and no NDR of IMIX in one round.
pub(crate) fn card() -> Card {
    Card { results: results(), rounds: ROUNDS, files: None }
}

fn results() -> Results {
    let cpus = Cpus { model: Some("Example A53".to_owned()), count: 2, ..Cpus::default() };
    let mut conditions = Conditions { kernel: Some("6.12.48".to_owned()), cpus, ..Conditions::default() };
    let routers = ["slow", "external"];
    conditions.setup.insert("routers".to_owned(), serde_json::json!(routers));
    let mut results = Results::new(WHAT, conditions);
    results.began = "2026-01-02T03:04:05Z".to_owned();
    let at = |round: u32| format!("2026-01-02T03:{:02}:00.000Z", 4 + round);
    let sample = |round| MachineSample { at: at(round), others_percent: 1.25, work_us: 5120.0 };
    results.machine = (0..ROUNDS).map(sample).collect();
    let mut file = ResultsFile::in_memory(results);
    for (nth, router) in routers.into_iter().enumerate() {
        for (quantity, unit, values) in FIGURES {
            let name = reading(quantity, router);
            let is_external = nth == 1;
            if is_external && quantity == CPU_TIME {
                let why = "cannot tell: the external engine polls, so its core is busy whatever the load";
                file.add_missing(&name, why.to_owned());
                continue;
            }
            for round in 0..ROUNDS {
                if is_external && round == 2 && quantity == "ndr imix" {
                    let why = "cannot tell: the sender was held up at the loads above; repeat it on an idle machine";
                    file.add_missing(&name, why.to_owned());
                    continue;
                }
                let noise = if unit == "connections" { 1.0 } else { 1.0 + 0.01 * f64::from(round % 3) };
                let run = Run { at: Some(at(round)), ..Run::from(values[nth] * noise) };
                file.add(&name, unit, run).unwrap();
            }
            file.add_doubt(&name, Doubt::VirtualLinks);
            if unit == "pps" {
                file.add_doubt(&name, Doubt::TooShort { seconds: 0.2, wanted: 1.0 });
            }
        }
    }
    file.finish().unwrap()
}
