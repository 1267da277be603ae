//! The text of `shunt bench nat`. Doubts stand above the numbers.

use crate::render::{Format, Text, columns::align, units};
use shunt_lab::{
    Doubt,
    nat::{Capacity, Established, Measured, Report, Throughput, TornDown},
    search::GoalResult,
};

impl Text for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(report: &Report) -> String {
    let mut text = doubts(report).concat();
    let routers = &report.routers;
    let sections = [
        table(
            "New connections/s that the router establishes, each validated by an answer (RFC 9693)",
            ["connections", "rate", "passes", "fails", "trials", ""],
            routers
                .iter()
                .flat_map(|router| router.establishment.as_ref().map(|of| (router, established(of)))),
        ),
        table(
            "Connections/s when the whole table is emptied at once",
            ["connections", "emptied in", "empty in", "rate", ""],
            routers.iter().flat_map(|router| router.tear_down.as_ref().map(|of| (router, torn_down(of)))),
        ),
        table(
            "Connections held at once: each answered",
            ["held", "fails", "conntrack", "trials", ""],
            routers.iter().flat_map(|router| router.capacity.as_ref().map(|of| (router, capacity(of)))),
        ),
        table(
            "Frames/s of each direction without loss, both at once, by number of sessions",
            ["sessions", "throughput", "passes", "fails", "fast", "trials", ""],
            routers
                .iter()
                .flat_map(|router| router.throughput.iter().map(move |of| (router, throughput(of)))),
        ),
    ];
    text += &sections.concat();
    text
}

/// Each doubt once, with the first measurement that has it.
fn doubts(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |device: &str, of: &str, doubt: &Doubt| {
        let line = format!("doubt: {device}{of}: {doubt}\n");
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for router in &report.routers {
        let device = &router.device;
        router.doubts.iter().for_each(|doubt| add(device, "", doubt));
        let of_rate = router.establishment.iter().flat_map(|of| of.doubts(router));
        of_rate.for_each(|doubt| add(device, ", connection establishment", &doubt));
        for of in &router.throughput {
            let name = format!(", {} sessions", of.sessions);
            of.doubts(router).iter().for_each(|doubt| add(device, &name, doubt));
        }
    }
    lines
}

/// A heading and a table; nothing without rows.
fn table<'r, const N: usize>(
    heading: &str,
    heads: [&str; N],
    rows: impl Iterator<Item = (&'r Measured, [String; N])>,
) -> String {
    let mut cells = vec![["router", "run"].into_iter().chain(heads).map(str::to_owned).collect::<Vec<_>>()];
    cells.extend(rows.map(|(router, row)| {
        [router.device.clone(), router.run.to_string()].into_iter().chain(row).collect()
    }));
    if cells.len() == 1 {
        return String::new();
    }
    let sides = format!("<{}<", ">".repeat(N));
    format!("{heading}:\n{}", align(&sides, &cells))
}

fn established(of: &Established) -> [String; 6] {
    let [rate, passes, fails, note] = rates(of.rate(), Some(&of.result));
    [of.connections.to_string(), rate, passes, fails, of.trials.to_string(), note]
}

fn torn_down(of: &TornDown) -> [String; 5] {
    let rate = of.per_second();
    [
        of.connections.to_string(),
        milliseconds(of.seconds),
        milliseconds(of.empty_s),
        rate.map_or("-".to_owned(), |rate| format!("{rate:.0}")),
        rate.map_or_else(|| of.missing(), |_| String::new()),
    ]
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

fn capacity(of: &Capacity) -> [String; 5] {
    let or_dash = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    [
        or_dash(of.held.map(u64::from)),
        or_dash(of.failed.map(u64::from)),
        or_dash(of.tracked),
        of.trials.to_string(),
        of.bound(),
    ]
}

fn throughput(of: &Throughput) -> [String; 7] {
    let [rate, passes, fails, note] = rates(of.rate(), of.result.as_ref());
    [
        of.sessions.to_string(),
        rate,
        passes,
        fails,
        of.fast_share.map_or("-".to_owned(), units::percent),
        of.trials.to_string(),
        note,
    ]
}

/// The rate, its bounds and a note.
fn rates(rate: Result<f64, String>, result: Option<&GoalResult>) -> [String; 4] {
    let number = |pps: Option<f64>| pps.map_or("-".to_owned(), |pps| format!("{pps:.0}"));
    let result = result.filter(|_| rate.is_ok());
    let [passes, fails] = result.map_or([None; 2], |result| [result.lower_pps, result.upper_pps]);
    let irregular = result.and_then(|result| result.irregular).map(|why| why.to_string());
    let note = rate.as_ref().err().cloned().or(irregular).unwrap_or_default();
    [number(rate.ok()), number(passes), number(fails), note]
}
