//! The text of `shunt bench ndr`. Doubts stand above the numbers.

use crate::render::{Format, Text, columns::align, units};
use shunt_lab::{
    Doubt,
    search::GoalResult,
    throughput::{Counted, LatencyAt, Method, Report, Searched},
    traffic::LatencyUs,
};

impl Text for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(report: &Report) -> String {
    let mut doubts = Vec::new();
    for searched in &report.searches {
        for doubt in searched.doubts.iter().map(|doubt| format!("{}: {doubt}", searched.device)) {
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
    }
    let mut text: String = doubts.iter().map(|doubt| format!("doubt: {doubt}\n")).collect();
    let heads = ["router", "run", "goal", "throughput", "line", "passes", "fails", "trials", ""];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for searched in &report.searches {
        rows.extend(searched.results.iter().map(|result| fields(searched, result)));
    }
    text += &align("<><>>>>><", &rows);
    let latencies =
        report.searches.iter().flat_map(|searched| searched.latency.iter().map(move |at| (searched, at)));
    let mut rows: Vec<_> = latencies.clone().filter_map(|(searched, at)| latency(searched, at)).collect();
    if !rows.is_empty() {
        let heads = ["router", "run", "load", "pps", "lost", "min us", "p50", "p99", "p99.9", "max"];
        rows.insert(0, heads.map(str::to_owned).to_vec());
        if latencies.clone().any(|(_, at)| at.dut_load.is_some()) {
            rows[0].extend(units::LOAD_HEADS.map(str::to_owned));
            let with_latency = latencies.filter(|(_, at)| at.latency_us.is_some());
            for (row, (_, at)) in rows[1..].iter_mut().zip(with_latency) {
                row.extend(units::loads(at.dut_load.as_ref()));
            }
        }
        text += &align("<>", &rows);
        if rows[0].last().is_some_and(|head| head == units::LOAD_HEADS[1]) {
            text += units::LOAD_NOTE;
        }
    }
    text += &method(report);
    match report.searches.iter().find_map(|searched| searched.limit.as_ref()) {
        Some(limit) => {
            text += &format!("Line is the throughput, as a share of what the line carries ({}).\n", limit.of)
        }
        None if report.searches.iter().all(without_line) => {}
        None => text += units::NO_LINE,
    }
    text
}

/// Whether a share of the line makes no sense: for simulated routers, and for connections.
fn without_line(searched: &Searched) -> bool {
    searched.doubts.contains(&Doubt::Simulated) || searched.counted == Counted::Connections
}

fn fields(searched: &Searched, result: &GoalResult) -> Vec<String> {
    let load = |pps: Option<f64>| pps.map_or("-".to_owned(), |pps| format!("{pps:.0}"));
    let Searched { device, run, trials, .. } = searched;
    let mut fields = vec![device.clone(), run.to_string(), result.goal.name().to_uppercase()];
    let share = searched.limit.as_ref().zip(result.throughput_pps).and_then(|(limit, pps)| limit.share(pps));
    fields.extend([load(result.throughput_pps), units::line_share(share)]);
    fields.extend([result.lower_pps, result.upper_pps].map(load));
    fields.push(trials.to_string());
    fields.push(result.irregular.map_or(String::new(), |why| why.to_string()));
    fields
}

fn latency(searched: &Searched, at: &LatencyAt) -> Option<Vec<String>> {
    let latency = at.latency_us?;
    let mut row = vec![searched.device.clone(), searched.run.to_string(), format!("{} %", at.percent)];
    row.extend([format!("{:.0}", at.load_pps), format!("{:.4} %", at.loss_ratio * 100.0)]);
    let LatencyUs { min, p50, p99, p999, max } = latency;
    row.extend([min, p50, p99, p999, max].map(|us| format!("{us:.1}")));
    Some(row)
}

fn method(report: &Report) -> String {
    let Some(goal) = report.searches.first().and_then(|searched| searched.results.first()).map(|it| it.goal)
    else {
        return String::new();
    };
    let how = match report.method {
        Method::Mlrsearch => format!(
            "By MLRsearch (RFC 9971): trials of {} s, {} s for each load, of which {} % may exceed the loss ratio",
            goal.final_s,
            goal.sum_s,
            goal.exceed_ratio * 100.0
        ),
        Method::Rfc2544 => format!("By halving (RFC 2544): one trial of {} s for each load", goal.final_s),
    };
    format!(
        "{how}; width (1 - passes/fails) {} %.\n{}, from {} to {}.{} Packets that were not sent count as lost.\n",
        goal.width * 100.0,
        match report.searches.first().map(|searched| searched.counted) {
            Some(Counted::Connections) =>
                "New connections/s, masqueraded, answered, and tracked by conntrack",
            _ => "Frames/s of one direction",
        },
        report.range.min_pps.round(),
        report.range.max_pps.round(),
        units::variant(report.searches.first().map(|searched| &searched.variant)),
    )
}
