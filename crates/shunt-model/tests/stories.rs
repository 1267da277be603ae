//! The model compared with published measurements: errors stay below their bounds, and what the stories are about
//! happens.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_model::{
    Case, Prediction, run,
    stories::{self, StoryPredictions},
};

fn predict(case: &str, settings: &[(&str, &str)]) -> Prediction {
    let mut case: Case = stories::case(case).unwrap();
    for (name, value) in settings {
        case.set(name, value).unwrap();
    }
    run(&case).unwrap()
}

/// All claims about all figures in one test, because the predictions take seconds.
#[test]
fn published_figures_are_predicted_within_bounds_that_need_the_mechanisms() {
    let all: Vec<StoryPredictions> = stories::all().iter().map(|story| story.predict().unwrap()).collect();
    held_out_figures_are_predicted_within_10_percent_and_5_points(&all);
    without_a_mechanism_errors_of_held_out_goodput_are_half_as_large_again(&all);
    fitted_figures_are_met_but_for_the_livelock(&all);
}

fn held_out_figures_are_predicted_within_10_percent_and_5_points(all: &[StoryPredictions]) {
    for predicted in all {
        for unit in ["Mbit/s", "%"] {
            let columns = predicted.columns.iter().filter(|column| column.unit == unit);
            let (mut sum, mut cells) = (0.0, 0);
            for column in columns {
                sum += column.held_out_mean_error.unwrap_or(0.0) * column.held_out.len() as f64;
                cells += column.held_out.len();
            }
            // Where the stack takes nearly all of the ATNGW100, small errors of its costs are large ones of the loss.
            let points = if predicted.name == "AVR32AP7" { 7.0 } else { 5.0 };
            let (mean, bound) = (sum / cells.max(1) as f64, if unit == "%" { points } else { 10.0 });
            assert!(mean <= bound, "{}, {unit}: {mean:.1}", predicted.name);
        }
    }
}

fn without_a_mechanism_errors_of_held_out_goodput_are_half_as_large_again(all: &[StoryPredictions]) {
    let mut informative = 0;
    for story in all {
        for skill in story.skill.iter().filter(|skill| skill.quantity == "goodput") {
            informative += skill.informative;
            let (Some(model), Some(trivial)) = (skill.model, skill.best_trivial()) else { continue };
            assert!(1.5 * model < trivial, "{}: {skill:?}", story.name);
        }
    }
    assert!(informative > 20, "{informative} figures say little");
}

fn fitted_figures_are_met_but_for_the_livelock(all: &[StoryPredictions]) {
    for story in all {
        for column in &story.columns {
            // 11 and 3 Mbit/s were published, of 800 and 1000: an error of a factor is one of few Mbit/s.
            let livelock = column.name.contains("an interrupt per packet: goodput");
            let bound = if livelock { 150.0 } else { 10.0 };
            assert!(column.fitted_mean_error.unwrap_or(0.0) <= bound, "{column:?}");
        }
    }
}

#[test]
fn the_imx6_collapses_beyond_a_knee_and_pause_frames_end_that() {
    let goodput = |rate: &str| predict("imx6", &[("traffic.rate", rate)]).total() / 1e6;
    let best = (8..=20).map(|step| (goodput(&format!("{}M", 50 * step)), 50 * step));
    let (most, knee) = best.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    assert!((400..=600).contains(&knee) && goodput("1000M") < 0.75 * most, "{knee}: {most}");
    let settings = [("fifo.pause", "on"), ("fifo.xoff", "on"), ("fifo.section_full", "128")];
    let paused = predict("imx6", &[&settings[..], &[("traffic.rate", "1000M")]].concat());
    assert!(paused.drops.fifo == 0 && paused.pauses > 1000 && paused.total() > 560e6, "{paused:?}");
}

#[test]
fn an_interrupt_per_packet_ends_in_livelock() {
    let settings = [("driver.interrupt", "per-packet")];
    let at = |rate| predict("imx6", &[&settings[..], &[("traffic.rate", rate)]].concat()).total() / 1e6;
    assert!(at("400M") > 360.0 && at("1000M") < 20.0, "{} {}", at("400M"), at("1000M"));
}

#[test]
fn the_packet_rate_of_the_imx8_hardly_depends_on_the_packet_size() {
    // Sizes at which a line of 1 Gbit/s carries more than the path forwards.
    for (path, largest) in [("slow", "1400"), ("tc", "200")] {
        let pps = |payload: &str| {
            let at = predict(
                "imx8-enet-pcie",
                &[
                    ("forward.path", path),
                    ("traffic.payload", payload),
                    ("link.rate", "10G"),
                    ("traffic.rate", "9G"),
                ],
            );
            at.received as f64
        };
        let (small, large) = (pps("64"), pps(largest));
        assert!((small / large - 1.0).abs() < 0.05, "{path}: {small} {large}");
    }
    let pps = |path| predict("imx8-enet-pcie", &[("forward.path", path), ("traffic.payload", "18")]).received;
    assert!(pps("tc") > 2 * pps("slow"));
}

#[test]
fn every_case_of_the_library_is_possible() {
    for (name, text) in stories::CASES.into_iter().chain([("template", stories::TEMPLATE)]) {
        let case = Case::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(Case::parse(&case.to_toml()).unwrap(), case, "{name}");
    }
}
