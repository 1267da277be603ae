//! The text of `shunt bench ndr --what concurrent`. What speaks against a number stands above it.

use super::{columns::align, units};
use shunt_lab::throughput::concurrent::{Report, Searched};

pub(super) fn describe(report: &Report) -> String {
    let doubts = |searched: &Searched| {
        searched
            .doubts
            .iter()
            .map(|doubt| format!("doubt: {}: {doubt}\n", searched.device))
            .collect::<Vec<_>>()
    };
    let mut doubts: Vec<String> = report.searches.iter().flat_map(doubts).collect();
    doubts.dedup();
    let heads = ["router", "run", "held", "fails", "opened/s", "fast", "trials", "bound"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(report.searches.iter().map(|searched| fields(searched, report)));
    let range = &report.range;
    doubts.concat()
        + &align("<>>>>>><", &rows)
        + &format!(
            "Connections held at once, from {} to {} ({}); width (1 - held/fails) {} %. UDP, masqueraded, begun at {}/s; then a packet went\n\
             over each again (and one before, of which a fast path learns), was answered and began none anew, while conntrack had them\n\
             all. None time out: conntrack's timeouts are a day in this router. Fast is the share of this last pass that the fast path took.\n",
            range.min,
            range.max,
            range.max_of,
            range.width * 100.0,
            report.pps
        )
}

fn fields(searched: &Searched, report: &Report) -> Vec<String> {
    let Searched { device, run, trials, held, fails, .. } = searched;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        device.clone(),
        run.to_string(),
        or_dash(held.map(|trial| trial.connections.to_string())),
        or_dash(fails.map(|trial| trial.connections.to_string())),
        or_dash(held.map(|trial| format!("{:.0}", trial.opened_pps))),
        or_dash(held.and_then(|trial| trial.fast_share).map(units::percent)),
        trials.to_string(),
        searched.bound(&report.range),
    ]
}
