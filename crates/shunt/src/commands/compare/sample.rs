//! A comparison of two files of results.

use shunt_lab::{Comparison, Conditions, Doubt, Reading, Results, Run};

/// Runs that were made in turn: of A in even minutes, of B in odd minutes.
pub(crate) fn comparison() -> Comparison {
    let reading = |unit: &str, first: u32, values: &[f64]| {
        let at = |n: u32| Some(format!("2026-01-02T03:{:02}:00.000Z", first + 2 * n));
        let run = |(n, &value): (u32, &f64)| Run { at: at(n), ..Run::from(value) };
        Reading::from_runs(unit, (0..).zip(values).map(run).collect()).unwrap()
    };
    let rates = [811e3, 799e3, 808e3, 803e3, 806e3, 801e3, 805e3];
    let side = |first: u32, rate: f64, latency: f64, engine: &str| {
        let mut results = Results::new("throughput", Conditions::default());
        results.began = format!("2026-01-02T03:{first:02}:00Z");
        results.conditions.engine = Some(engine.to_owned());
        let scaled = |by: f64| rates.map(|value| value * by);
        results.readings.insert("ndr".to_owned(), reading("pps", first, &scaled(rate)));
        results.readings.insert("latency p99".to_owned(), reading("us", first, &scaled(latency)));
        results
    };
    let (mut a, mut b) = (side(0, 1.0, 50e-6, "tc"), side(1, 1.3, 55e-6, "xdp"));
    a.complete = true;
    if let Some(ndr) = a.readings.get_mut("ndr") {
        ndr.doubts.push(Doubt::VirtualLinks);
    }
    a.readings.insert("pdr".to_owned(), reading("pps", 0, &rates));
    b.readings
        .insert("pdr".to_owned(), reading("pps", 1, &[808e3, 803e3, 805e3, 806e3, 801e3, 807e3, 804e3]));
    a.readings.insert("load".to_owned(), reading("%", 0, &[61.5, 60.5]));
    b.readings.insert("load".to_owned(), reading("%", 1, &[61.5]));
    b.readings.insert("jitter".to_owned(), reading("us", 1, &[0.25]));
    Comparison::new(("before.json", &a), ("after.json", &b))
}
