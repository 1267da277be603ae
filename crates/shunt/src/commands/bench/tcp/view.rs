//! The text of `shunt bench tcp`. Doubts stand above the numbers.

use crate::render::{Format, Text, columns::align, units};
use shunt_lab::{
    Distribution, Doubt,
    tcp::{FailedConnections, Measured, Report, SegmentCounts},
};

impl Text for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(report: &Report) -> String {
    let routers = &report.routers;
    let mut text = doubts(report).concat();
    text += &table(
        "Connections",
        [
            "opened",
            "established",
            "completed",
            "failed",
            "at once",
            "conntrack",
            "invalid",
            "stray",
            "fast",
            "",
        ],
        routers.iter().map(|router| (router, connections(router))),
    );
    text += &table(
        "Segments and payload",
        ["way", "sent", "lost", "repeated", "payload", ""],
        routers.iter().flat_map(|router| {
            [("to the server", &router.to_server), ("to the client", &router.to_client)]
                .map(|(way, counts)| (router, segments(way, counts, router.seconds)))
        }),
    );
    text += &table(
        "Times of handshakes, and of exchanges from the request to the end of the response",
        ["handshake p50", "p99", "max", "exchange p50", "p99", "max"],
        routers.iter().map(|router| (router, times(router))),
    );
    text
}

fn doubts(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    let of_all: Vec<Doubt> = report.results.conditions.doubts();
    of_all.iter().for_each(|doubt| add(format!("doubt: {doubt}\n")));
    for router in &report.routers {
        router.doubts.iter().for_each(|doubt| add(format!("doubt: {}: {doubt}\n", router.device)));
    }
    lines
}

fn table<'r, const N: usize>(
    heading: &str,
    heads: [&str; N],
    rows: impl Iterator<Item = (&'r Measured, [String; N])>,
) -> String {
    let mut cells = vec![["router", "run"].into_iter().chain(heads).map(str::to_owned).collect::<Vec<_>>()];
    cells.extend(rows.map(|(router, row)| {
        [router.device.clone(), router.run.to_string()].into_iter().chain(row).collect()
    }));
    let sides = format!("<{}{}", ">".repeat(N), if heads[N - 1].is_empty() { "<" } else { ">" });
    format!("{heading}:\n{}", align(&sides, &cells))
}

fn connections(router: &Measured) -> [String; 10] {
    let Measured { opened, established, completed, failed, open_most, stray, .. } = router;
    let tracked = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    [
        opened.to_string(),
        established.to_string(),
        completed.to_string(),
        failed.sum().to_string(),
        open_most.to_string(),
        tracked(router.tracked.map(|tracked| tracked.connections)),
        tracked(router.tracked.map(|tracked| tracked.invalid)),
        stray.to_string(),
        router.fast_share.map_or("-".to_owned(), units::percent),
        causes(failed, router.unfinished),
    ]
}

fn causes(failed: &FailedConnections, unfinished: u64) -> String {
    let FailedConnections { refused, reset, unanswered, silent, corrupted } = *failed;
    let causes = [
        (refused, "refused"),
        (reset, "reset"),
        (unanswered, "without an answer to SYN"),
        (silent, "no longer acknowledged"),
        (corrupted, "with wrong bytes"),
        (unfinished, "cut short"),
    ];
    let some: Vec<String> = causes
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, cause)| format!("{number} {cause}"))
        .collect();
    some.join(", ")
}

fn segments(way: &str, counts: &SegmentCounts, seconds: f64) -> [String; 6] {
    let SegmentCounts { sent, lost, retransmitted, bytes } = *counts;
    let rate = units::bits_per_second((bytes as f64 * 8.0 / seconds.max(1e-9)).round() as u64);
    [way.to_owned(), sent.to_string(), lost.to_string(), retransmitted.to_string(), units::bytes(bytes), rate]
}

fn times(router: &Measured) -> [String; 6] {
    let [handshake, exchange] =
        [&router.handshake, &router.exchange].map(|times| percentiles(times.as_ref()));
    let [a, b, c] = handshake;
    let [d, e, f] = exchange;
    [a, b, c, d, e, f]
}

fn percentiles(times: Option<&Distribution>) -> [String; 3] {
    let Some(times) = times else { return [(); 3].map(|()| "-".to_owned()) };
    [times.at(0.5), times.at(0.99), times.max].map(milliseconds)
}

fn milliseconds(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}
