//! The text of `shunt gen --streams`.

use crate::{
    commands::generate::view::share,
    render::{Format, Text, columns::align, units},
};
use shunt_lab::traffic::{Figures, SendMethod, StreamReport, StreamsReport};

impl Text for StreamsReport {
    fn text(&self, _: Format) -> String {
        let mut text = String::new();
        for doubt in &self.doubts {
            text += &format!("doubt: {doubt}\n");
        }
        for StreamReport { name, directed, .. } in &self.streams {
            let means = match directed.method {
                SendMethod::XdpLive => "live XDP frames",
                SendMethod::Socket => "a socket",
            };
            text +=
                &format!("{name}: {} -> {} by {means}: {}\n", directed.from, directed.to, directed.traffic);
        }
        text += &counts(self);
        text += &latencies(self);
        text
    }
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn count(packets: Option<u64>) -> String {
    packets.map_or("-".to_owned(), |packets| packets.to_string())
}

fn counts(report: &StreamsReport) -> String {
    let mut rows = vec![row(&["stream", "offered", "sent", "unsent", "lost", "loss %", "dup", "reordered"])];
    let figures = |name: &str, f: &Figures| {
        let rate = |pps: f64| units::packets_per_second(pps.round() as u64);
        vec![
            name.to_owned(),
            f.offered_pps.map_or("max".to_owned(), rate),
            f.sent.to_string(),
            f.unsent.to_string(),
            f.lost.to_string(),
            format!("{:.4}", f.loss_ratio * 100.0),
            count(f.duplicated),
            count(f.reordered),
        ]
    };
    rows.extend(report.streams.iter().map(|stream| figures(&stream.name, &stream.directed.figures)));
    if report.streams.len() > 1 {
        rows.push(figures("all", &report.figures));
    }
    align("<>", &rows)
}

fn latencies(report: &StreamsReport) -> String {
    let mut rows = vec![row(&["latency, us", "min", "p50", "p99", "p99.9", "max", "jitter", "achieved"])];
    for StreamReport { name, directed, .. } in &report.streams {
        let f = &directed.figures;
        let us = |us: f64| format!("{us:.1}");
        let times = f.latency_us.map_or(vec!["-".to_owned(); 6], |l| {
            [l.min, l.p50, l.p99, l.p999, l.max, f.jitter_us].map(us).to_vec()
        });
        let achieved = units::packets_per_second(f.achieved_pps.round() as u64);
        rows.push([vec![name.clone()], times, vec![achieved + &share(f)]].concat());
    }
    align("<>", &rows)
}
