use super::measurement::{BenchParser, Measurement};
use crate::{
    commands::measure::MeasureContext,
    golden::{JSON, TEXT, assert_golden},
    render::Answer,
};
use clap::Parser;
use std::sync::Arc;

/// Three simulated routers: one whose throughput is found, one that loses at any load, and one beyond the range.
fn simulated() -> Box<dyn Answer + Send> {
    let line =
        "ndr --quick --simulate capacity_pps=7e5 --simulate loss_floor=0.003 --simulate capacity_pps=2e6";
    let typed = BenchParser::parse_from(line.split_whitespace()).command;
    let (stop, conditions) = (Arc::default(), shunt_lab::Conditions::default());
    let context = MeasureContext { stop: &stop, conditions, show: &mut |_| () };
    Measurement::resolve(&typed).unwrap().measure(context).unwrap()
}

#[test]
fn the_texts_of_a_search_match_their_golden_files() {
    assert_golden("bench-ndr.txt", &simulated(), TEXT);
    assert_golden("bench-ndr.json", &simulated(), JSON);
}
