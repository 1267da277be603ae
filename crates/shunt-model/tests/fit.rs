//! Fits find the parameters of a simulation, and say what the data does not determine.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use fastrand::Rng;
use shunt_model::{
    Case, Direction, Fit, FitProgress, Observation, Quantity, explain, fit, fit_watched, run, stories,
};
use std::ops::ControlFlow;

fn board() -> Case {
    let mut case = Case::default();
    case.traffic.direction = Direction::Forward;
    case.traffic.seconds = 0.1;
    case.fifo.bytes = 16 << 10;
    case
}

/// A sweep of a board, as it would be measured.
fn sweep(board: &Case, quantities: &[Quantity]) -> Vec<Observation> {
    let mut all = Vec::new();
    for step in 1..=10 {
        let settings = vec![("traffic.rate".to_owned(), format!("{}M", 95 * step))];
        let mut at = board.clone();
        at.set(&settings[0].0, &settings[0].1).unwrap();
        let got = run(&at).unwrap();
        all.extend(quantities.iter().map(|quantity| Observation {
            settings: settings.clone(),
            quantity: *quantity,
            value: quantity.value_in(&got),
        }));
    }
    all
}

fn value(fit: &Fit, name: &str) -> (f64, bool) {
    let found = fit.parameters.iter().find(|one| one.name == name).unwrap();
    (found.value, found.determined)
}

#[test]
fn the_cost_of_a_packet_and_its_interrupt_are_found() {
    let mut truth = board();
    (truth.forward.slow_ns, truth.cpu.base_load) = (21_000.0, 0.08);
    let seen = sweep(&truth, &[Quantity::Goodput, Quantity::Loss, Quantity::Cpu]);
    let mut start = board();
    (start.forward.slow_ns, start.cpu.base_load) = (5_000.0, 0.01);
    let found = fit(&start, &["forward.slow_ns", "cpu.base_load"], &seen).unwrap();
    let ((cost, sure), (base, base_sure)) =
        (value(&found, "forward.slow_ns"), value(&found, "cpu.base_load"));
    assert!(sure && (cost / 21_000.0 - 1.0).abs() < 0.03, "{found:?}");
    assert!(base_sure && (base / 0.08 - 1.0).abs() < 0.1, "{found:?}");
    assert!(found.mean_error < 1.0 && found.alike.is_empty(), "{found:?}");
}

#[test]
fn a_bus_is_told_from_a_cpu() {
    let mut truth = board();
    truth.bus.rx_rate = 520e6;
    truth.forward.slow_ns = 6_000.0;
    let seen = sweep(&truth, &[Quantity::Goodput, Quantity::Loss, Quantity::Cpu]);
    let mut start = board();
    (start.bus.rx_rate, start.forward.slow_ns) = (900e6, 12_000.0);
    let found = fit(&start, &["bus.rx_rate", "forward.slow_ns"], &seen).unwrap();
    assert!((value(&found, "bus.rx_rate").0 / 520e6 - 1.0).abs() < 0.03, "{found:?}");
    assert!((value(&found, "forward.slow_ns").0 / 6_000.0 - 1.0).abs() < 0.05, "{found:?}");
}

#[test]
fn what_the_data_does_not_determine_is_named() {
    let mut truth = board();
    truth.forward.slow_ns = 25_000.0;
    let seen = sweep(&truth, &[Quantity::Goodput, Quantity::Loss]);
    let mut start = board();
    (start.forward.slow_ns, start.driver.rx_ns, start.bus.rx_rate) = (12_000.0, 12_000.0, 2e9);
    let names = ["forward.slow_ns", "driver.rx_ns", "bus.rx_rate"];
    let found = fit(&start, &names, &seen).unwrap();
    // Only their sum matters.
    let sum = value(&found, "forward.slow_ns").0 + value(&found, "driver.rx_ns").0;
    assert!((sum / 25_000.0 - 1.0).abs() < 0.05, "{found:?}");
    let alike = ("forward.slow_ns".to_owned(), "driver.rx_ns".to_owned());
    assert!(found.alike.contains(&alike), "{found:?}");
    // The bus was never the limit.
    assert!(!value(&found, "bus.rx_rate").1, "{found:?}");
}

/// A sweep as it is measured: goodput is off by up to 1 %, loss and CPU load by up to half a point.
fn noisy(mut seen: Vec<Observation>, rng: &mut Rng) -> Vec<Observation> {
    for one in &mut seen {
        let off = 2.0 * rng.f64() - 1.0;
        match one.quantity {
            Quantity::Goodput | Quantity::Up | Quantity::Down => one.value *= 1.0 + 0.01 * off,
            Quantity::Loss | Quantity::Cpu => one.value = (one.value + 0.5 * off).clamp(0.0, 100.0),
        }
    }
    seen
}

#[test]
fn hidden_parameters_of_several_boards_are_found_from_noisy_sweeps() {
    let mut rng = Rng::with_seed(7);
    let hidden: [&[(&str, f64)]; 4] = [
        &[("forward.slow_ns", 33_000.0), ("cpu.base_load", 0.15)],
        &[("forward.slow_ns", 9_500.0), ("bus.rx_rate", 380e6)],
        &[("forward.slow_ns", 14_000.0), ("cpu.irq_ns", 6_000.0)],
        &[("bus.rx_rate", 710e6), ("bus.frame_ns", 2_500.0)],
    ];
    for hidden in hidden {
        let case = || {
            let mut case = board();
            case.traffic.seconds = 0.04;
            case
        };
        let (mut truth, mut start, names) =
            (case(), case(), hidden.iter().map(|one| one.0).collect::<Vec<_>>());
        for (name, value) in hidden {
            truth.set_number(name, *value).unwrap();
            // The search begins with up to twice or half of the truth.
            start.set_number(name, value * (0.5 + 1.5 * rng.f64())).unwrap();
        }
        // Sizes tell the cost of a frame from that of its bytes.
        let mut seen = sweep(&truth, &[Quantity::Goodput, Quantity::Loss, Quantity::Cpu]);
        let small = ("traffic.payload".to_owned(), "400".to_owned());
        let mut at = truth.clone();
        at.set(&small.0, &small.1).unwrap();
        let mut more = sweep(&at, &[Quantity::Goodput, Quantity::Loss, Quantity::Cpu]);
        more.iter_mut().for_each(|one| one.settings.push(small.clone()));
        seen.extend(more);
        let found = fit(&start, &names, &noisy(seen, &mut rng)).unwrap();
        for (parameter, (name, value)) in found.parameters.iter().zip(hidden) {
            assert!(
                parameter.determined && (parameter.value / value - 1.0).abs() < 0.1,
                "{name} {value}: {found:?}"
            );
            let (low, high) = (parameter.low, parameter.high.unwrap());
            assert!(low < *value && *value < high, "{name} {value}: {found:?}");
        }
    }
}

#[test]
fn a_search_shows_its_progress_and_stops_with_the_best_so_far() {
    let mut truth = board();
    truth.forward.slow_ns = 21_000.0;
    let seen = sweep(&truth, &[Quantity::Goodput]);
    let mut start = board();
    start.forward.slow_ns = 5_000.0;
    let mut steps = Vec::new();
    let stop_after = |steps: &mut Vec<FitProgress>, most: usize| {
        let mut watch = |progress| {
            steps.push(progress);
            if steps.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        fit_watched(&start, &["forward.slow_ns"], &seen, &mut watch).unwrap()
    };
    let found = stop_after(&mut steps, 12);
    assert!(found.stopped && steps.len() == 12 && found.runs == 120, "{found:?} {steps:?}");
    assert!(!found.parameters[0].determined, "{found:?}");
    assert!(found.mean_error < steps[0].mean_error && found.mean_error == steps[11].mean_error, "{steps:?}");
    let whole = stop_after(&mut steps, 10_000);
    assert!(!whole.stopped && whole.mean_error < found.mean_error && whole.parameters[0].determined);
}

#[test]
fn seven_parameters_and_twenty_points_take_a_bounded_number_of_short_runs() {
    let mut truth = stories::case("imx6").unwrap();
    truth.traffic.seconds = 0.02;
    let names = [
        "cpu.irq_ns",
        "cpu.socket_ns",
        "fifo.recover_us",
        "bus.rx_rate",
        "bus.frame_ns",
        "traffic.stall_us",
        "traffic.stall_every_us",
    ];
    let twice = (1..=2).flat_map(|_| sweep(&truth, &[Quantity::Goodput]));
    let seen: Vec<Observation> = twice.collect();
    let found = fit(&truth, &names, &seen).unwrap();
    assert!(found.runs < 30_000, "{} runs", found.runs);
}

#[test]
fn a_name_that_is_no_number_is_refused() {
    for name in ["fifo.pause", "fifo.bites"] {
        let error = fit(&board(), &[name], &[]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("number"), "{error}");
    }
}

#[test]
fn the_limit_and_the_next_one_are_explained() {
    let mut case = board();
    case.forward.slow_ns = 30_000.0;
    case.bus.rx_rate = 700e6;
    let explained = explain(&case).unwrap();
    assert_eq!(
        (explained.bottleneck.name(), explained.next.name()),
        ("the CPU", "the bus between MAC and memory")
    );
    assert!(explained.because.contains("busy for 100 %"), "{}", explained.because);
    case.traffic.rate = 50e6;
    let explained = explain(&case).unwrap();
    assert_eq!(explained.bottleneck.name(), "the sender", "{explained:?}");
}
