//! A report of `shunt bench latency`.

use shunt_lab::{
    Conditions, Doubt, Position, Results, ResultsFile, Run,
    iperf::{Direction, FlowDirection},
    latency::{Clock, Percentile, Phase, Quantity, Report, WHAT},
};

/// Two engines on a line of 100 Mbit/s: Linux fills the queue of its driver, tc does not.
pub(crate) fn latency() -> Report {
    let mut conditions = Conditions::default();
    conditions.setup.insert("clock".to_owned(), Clock::Kernel.to_string().into());
    let reason = "lan0: the driver offers no hardware time stamps";
    conditions.setup.insert("clock_not_better".to_owned(), vec![reason].into());
    let mut kept = ResultsFile::in_memory(Results::new(WHAT, conditions));
    let percentiles = [Percentile::P50, Percentile::P99, Percentile::Max];
    for (column, idle, loaded, share) in [
        ("slow", [0.21, 0.34, 0.52], [48.3, 97.1, 101.2], None),
        ("tc", [0.19, 0.31, 0.44], [2.42, 5.83, 7.6], Some(0.982)),
    ] {
        for (phase, times) in [(Phase::Idle, idle), (Phase::Loaded, loaded)] {
            for (percentile, ms) in percentiles.into_iter().zip(times) {
                let details = share.map(|share: f64| [("fast_share".to_owned(), share.into())]);
                let details = details.into_iter().flatten().collect();
                let quantity = Quantity::Rtt(phase, percentile);
                add(
                    &mut kept,
                    &quantity.reading(column),
                    quantity.unit(),
                    Run { value: ms, at: None, details },
                );
            }
        }
        for (quantity, value) in [
            (Quantity::Lost, 1.25),
            (Quantity::Received(FlowDirection::Forward), 94.2),
            (Quantity::Received(FlowDirection::Reverse), 93.7),
        ] {
            add(&mut kept, &quantity.reading(column), quantity.unit(), Run::from(value));
        }
        for (at, ms) in [(-0.5, idle[1]), (0.0, loaded[1] / 2.0), (0.5, loaded[1])] {
            let name = format!("RTT p99 {column} at {at:.1} s");
            add(&mut kept, &name, "ms", Run::from(ms));
            let of = "RTT p99".to_owned();
            let (line, along, unit) =
                (column.to_owned(), "time since the load began".to_owned(), "s".to_owned());
            kept.set_position(&name, Position { of, line, along, unit, value: at });
        }
    }
    kept.add_doubt(&Quantity::Lost.reading("slow"), Doubt::VirtualLinks);
    kept.add_missing("idle RTT median xdp", "none of 400 probes was answered".to_owned());
    let columns = ["slow", "tc"].map(str::to_owned).to_vec();
    let results = kept.finish().unwrap();
    Report { columns, direction: Direction::Duplex, streams: 4, seconds: 10, results }
}

fn add(kept: &mut ResultsFile, name: &str, unit: &str, run: Run) {
    kept.add(name, unit, run).unwrap();
}
