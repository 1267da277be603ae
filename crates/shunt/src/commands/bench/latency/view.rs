//! The text of `shunt bench latency`. Doubts stand above the numbers.

use crate::render::{Answer, Format, columns::align, units};
use shunt_lab::{
    Doubt,
    iperf::FlowDirection,
    latency::{Percentile, Phase, Quantity, Report},
};

impl Answer for Report {
    fn text(&self, format: Format) -> String {
        describe(self, format.verbose)
    }

    fn json(&self) -> serde_json::Result<String> {
        self.results.to_json()
    }
}

fn describe(report: &Report, verbose: bool) -> String {
    let mut doubts: Vec<&Doubt> = Vec::new();
    for doubt in report.results.readings.values().flat_map(|reading| &reading.doubts) {
        if !doubts.contains(&doubt) {
            doubts.push(doubt);
        }
    }
    let mut text: String = doubts.iter().map(|doubt| format!("doubt: {doubt}\n")).collect();
    text += &summary(report);
    for (name, why) in &report.results.missing {
        text += &format!("not measured: {name}: {why}\n");
    }
    text += &format!(
        "RTT in ms, of a UDP probe every 5 ms. Load: {} of TCP {} for {} s.\n",
        units::count(u64::from(report.streams), "stream"),
        if report.direction.ways().len() == 2 { "in each direction" } else { report.direction.name() },
        report.seconds
    );
    if let Some(clock) = report.clock() {
        text += &format!("Clock: {clock}.\n");
    }
    for why in report.clock_reasons() {
        text += &format!("No better clock: {why}.\n");
    }
    text += "Received: Mbit/s at the hosts, headers included.\n";
    if verbose { text + "\n" + &course(report) } else { text + "Use -v for the values over time.\n" }
}

/// One row for each engine.
fn summary(report: &Report) -> String {
    let mut heads = ["", "idle p50", "p99", "loaded p50", "p99", "max", "p99 x idle", "lost %"]
        .map(str::to_owned)
        .to_vec();
    heads.extend(report.direction.ways().iter().map(|way| format!("received {}", side(*way))));
    let has_engine = report.columns.iter().any(|column| report.fast_share(column).is_some());
    heads.extend(has_engine.then(|| "fast share".to_owned()));
    let mut rows = vec![heads];
    for column in &report.columns {
        let value = |quantity| report.value(quantity, column);
        let rtt = |phase, percentile| value(Quantity::Rtt(phase, percentile));
        let (idle, loaded) = (rtt(Phase::Idle, Percentile::P99), rtt(Phase::Loaded, Percentile::P99));
        let mut row = vec![column.clone()];
        row.push(or_dash(rtt(Phase::Idle, Percentile::P50).map(ms)));
        row.push(or_dash(idle.map(ms)));
        row.push(or_dash(rtt(Phase::Loaded, Percentile::P50).map(ms)));
        row.push(or_dash(loaded.map(ms)));
        row.push(or_dash(rtt(Phase::Loaded, Percentile::Max).map(ms)));
        let times = loaded.zip(idle).filter(|(_, idle)| *idle > 0.0).map(|(loaded, idle)| loaded / idle);
        row.push(or_dash(times.map(|times| format!("{times:.1}"))));
        row.push(or_dash(value(Quantity::Lost).map(|percent| format!("{percent:.2}"))));
        for way in report.direction.ways() {
            row.push(or_dash(value(Quantity::Received(*way)).map(units::rounded)));
        }
        if has_engine {
            row.push(or_dash(report.fast_share(column).map(units::percent)));
        }
        rows.push(row);
    }
    align("<>", &rows)
}

/// One row for each interval, with the 99th percentile of each engine.
fn course(report: &Report) -> String {
    let courses: Vec<Vec<(f64, f64)>> =
        report.columns.iter().map(|column| report.course("RTT p99", column)).collect();
    let mut times: Vec<f64> = courses.iter().flatten().map(|(at, _)| *at).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let mut heads = vec!["time s".to_owned()];
    heads.extend(report.columns.iter().map(|column| format!("{column} p99 ms")));
    let mut rows = vec![heads];
    for time in times {
        let at = |course: &Vec<(f64, f64)>| {
            or_dash(course.iter().find(|(at, _)| *at == time).map(|(_, value)| ms(*value)))
        };
        rows.push([format!("{time:.1}")].into_iter().chain(courses.iter().map(at)).collect());
    }
    align(">", &rows) + "Time 0 is the start of the load.\n"
}

fn side(way: FlowDirection) -> &'static str {
    match way {
        FlowDirection::Forward => "WAN",
        FlowDirection::Reverse => "LAN",
    }
}

fn ms(value: f64) -> String {
    format!("{value:.3}")
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}
