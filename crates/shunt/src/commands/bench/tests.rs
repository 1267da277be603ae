use super::{
    campaign, card,
    goodput::{
        self,
        view::{Matrix, Rxtx},
    },
    latency,
    measurement::BenchParser,
    nat, size, sweep, tcp,
};
use crate::{
    commands::measure::MeasureContext,
    golden::{JSON, TEXT, VERBOSE, assert_golden, assert_golden_text, folded, show},
    render::{Answer, Format},
};
use clap::Parser;
use shunt_lab::{Comparison, Results};
use std::sync::Arc;

/// Three simulated routers: one whose throughput is found, one that loses at any load, and one beyond the range.
fn simulated() -> Box<dyn Answer + Send> {
    let line =
        "ndr --quick --simulate capacity_pps=7e5 --simulate loss_floor=0.003 --simulate capacity_pps=2e6";
    let typed = BenchParser::parse_from(line.split_whitespace()).command;
    let (stop, conditions) = (Arc::default(), shunt_lab::Conditions::default());
    let context = MeasureContext { stop: &stop, conditions, show: &mut |_| () };
    typed.resolve().unwrap().measure(context).unwrap()
}

#[test]
fn the_texts_of_a_search_match_their_golden_files() {
    assert_golden("golden/bench-ndr.txt", &simulated(), TEXT);
    // The times of the runs are those of the test.
    let timeless = |line: &str| match line.split_once("\": \"") {
        Some((name, _)) if name.ends_with("\"at") || name.ends_with("\"began") => {
            format!("{name}\": \"2026-01-02T03:04:05Z\"{}\n", if line.ends_with(',') { "," } else { "" })
        }
        _ => format!("{line}\n"),
    };
    let text: String = show(&simulated(), JSON).lines().map(timeless).collect();
    assert_golden_text("golden/bench-ndr.json", &folded(&text));
}

#[test]
fn answers_match_their_golden_files() {
    let answers: &[(&str, &dyn Answer, Format)] = &[
        ("campaign/golden/bench-run.txt", &campaign::sample::campaign(), TEXT),
        ("campaign/golden/bench-run.jsonl", &campaign::sample::campaign(), JSON),
        ("sweep/golden/bench-sweep.txt", &sweep::sample::sweep(), TEXT),
        ("sweep/golden/bench-sweep.json", &sweep::sample::sweep(), JSON),
        ("card/golden/bench-card.txt", &card::sample::card(), TEXT),
        ("nat/golden/bench-nat.txt", &nat::sample::nat(), TEXT),
        ("nat/golden/bench-nat.json", &nat::sample::nat(), JSON),
        ("tcp/golden/bench-tcp.txt", &tcp::sample::tcp(), TEXT),
        ("tcp/golden/bench-tcp.json", &tcp::sample::tcp(), JSON),
        ("size/golden/bench-size.txt", &size::sample::sizes(), TEXT),
        ("size/golden/bench-size.json", &size::sample::sizes(), JSON),
        ("latency/golden/bench-latency.txt", &latency::sample::latency(), TEXT),
        ("latency/golden/bench-latency-verbose.txt", &latency::sample::latency(), VERBOSE),
    ];
    for (name, answer, format) in answers {
        assert_golden(name, *answer, *format);
    }
}

/// `shunt compare` and `shunt report` read what each measurement prints with --json.
#[test]
fn every_measurement_prints_a_file_of_results() {
    let (matrix, rxtx) = (goodput::sample::matrix(), goodput::sample::rxtx());
    let answers: [&dyn Answer; 9] = [
        &simulated(),
        &card::sample::card(),
        &nat::sample::nat(),
        &tcp::sample::tcp(),
        &size::sample::sizes(),
        &sweep::sample::sweep(),
        &Matrix(matrix),
        &Rxtx(rxtx),
        &latency::sample::latency(),
    ];
    for answer in answers {
        let printed = show(answer, JSON);
        let results = Results::parse(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
        let same = Comparison::new(("a", &results), ("b", &results));
        assert_eq!((same.readings.len(), same.alone.len()), (results.readings.len(), 0), "{}", results.what);
    }
}
