//! The text of `shunt bench ndr --what concurrent`. Doubts stand above the numbers.

use crate::render::{Answer, Format, columns::align, units};
use shunt_lab::throughput::concurrent::{Report, Searched};

impl Answer for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn json(&self) -> serde_json::Result<String> {
        self.results.to_json()
    }
}

fn describe(report: &Report) -> String {
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
            "Connections held at once, from {} to {} ({}); width (1 - held/fails) {} %. Masqueraded UDP connections are opened at {}/s.\n\
             The router holds N connections if each answers one more packet, none is opened a second time, and conntrack lists all N.\n\
             (With a fast path, another packet comes before, from which the fast path learns.) None expires: conntrack's timeouts are a\n\
             day in this router. Fast is the share of these last packets that took the fast path.\n",
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
