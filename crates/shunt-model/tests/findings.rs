//! What the published stories found, by sign and by size. Each test names the published figures.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_model::{Case, Part, Prediction, explain, run, stories};

type Settings<'a> = &'a [(&'a str, &'a str)];

const TCP: [(&str, &str); 2] = [("traffic.protocol", "tcp"), ("traffic.payload", "1448")];
/// With wait mode on, the cores of the i.MX6 wake at the next tick of 100 Hz.
const WAIT_MODE: (&str, &str) = ("cpu.idle_exit_us", "10000");
const TX: (&str, &str) = ("traffic.direction", "tx");
const PAUSE: (&str, &str) = ("fifo.pause", "on");
const THRESHOLDS: [(&str, &str); 3] = [PAUSE, ("fifo.xoff", "on"), ("fifo.section_full", "128")];

fn case(name: &str, settings: &[Settings]) -> Case {
    let mut case = stories::case(name).unwrap();
    for (name, value) in settings.iter().copied().flatten() {
        case.set(name, value).unwrap();
    }
    case
}

fn predict(name: &str, settings: &[Settings]) -> Prediction {
    run(&case(name, settings)).unwrap()
}

fn mbps(name: &str, settings: &[Settings]) -> f64 {
    predict(name, settings).total() / 1e6
}

#[track_caller]
fn between(got: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&got), "{got:.1}, not from {low} to {high}");
}

#[test]
fn imx6_wait_mode_costs_tcp_receive_a_factor_of_twenty_and_transmit_nothing() {
    // 8.5 to 14.4 with wait mode, 210 without.
    between(mbps("imx6", &[&TCP, &[WAIT_MODE]]), 6.0, 16.0);
    between(mbps("imx6", &[&TCP]), 150.0, 280.0);
    // 397 with wait mode, 372 to 399 without.
    between(mbps("imx6", &[&TCP, &[TX, WAIT_MODE]]), 370.0, 420.0);
    between(mbps("imx6", &[&TCP, &[TX]]), 370.0, 420.0);
}

#[test]
fn imx6_pause_and_thresholds_double_tcp_receive() {
    // 426.
    between(mbps("imx6", &[&TCP, &THRESHOLDS]), 380.0, 510.0);
}

#[test]
fn imx6_flow_control_without_a_threshold_sends_no_pause_frame_and_changes_nothing() {
    for rate in ["400M", "600M", "1000M"] {
        let at = |settings| predict("imx6", &[&[("traffic.rate", rate)], settings]);
        let (before, alone) = (at(&[]), at(&[PAUSE]));
        assert_eq!((alone.pauses, alone.loss, alone.total()), (0, before.loss, before.total()), "{rate}");
        assert!(before.loss > 0.05, "{rate}: {before:?}");
    }
}

#[test]
fn imx6_pause_frames_answer_bursts_and_not_each_frame() {
    // 3,436 and 6,864 in two seconds, of 34,483 and 68,965 packets.
    for (rate, published) in [("200M", 3_436.0), ("400M", 6_864.0)] {
        let got = predict("imx6", &[&THRESHOLDS, &[("traffic.rate", rate)]]);
        between(got.pauses as f64, published / 3.0, published * 3.0);
        assert_eq!(got.drops.fifo, 0, "{got:?}");
    }
}

#[test]
fn imx6_loses_some_percent_at_the_socket_when_pause_frames_keep_the_fifo_from_overruns() {
    // 4.9 and 4.8 %, with 583 Mbit/s and no overrun.
    for rate in ["600M", "1000M"] {
        let got = predict("imx6", &[&THRESHOLDS, &[("traffic.rate", rate)]]);
        between(100.0 * got.loss, 1.0, 6.0);
        between(got.total() / 1e6, 560.0, 600.0);
        assert_eq!(got.drops.fifo, 0, "{got:?}");
    }
}

/// Gain in percent of passing pages up, over copying from cached buffers.
fn gain_without_copy(board: &str, more: Settings) -> f64 {
    let cached = ("memory.uncached", "off");
    let at =
        |receive| mbps(board, &[&[("traffic.protocol", "tcp"), cached, ("driver.receive", receive)], more]);
    100.0 * (at("fragments") / at("copy-aligned") - 1.0)
}

#[test]
fn avr32_gains_less_from_avoiding_the_copy_on_the_narrower_memory() {
    // +12.4 and +6.5 %.
    let (wide, narrow) = (gain_without_copy("atstk1000", &[]), gain_without_copy("atngw100", &[]));
    between(wide, 9.0, 16.0);
    between(narrow, 4.0, 9.0);
    assert!(narrow < 0.75 * wide, "{narrow} {wide}");
}

#[test]
fn avr32_loses_transmit_where_receive_gains() {
    // -6.8 and -8.6 %: each acknowledgement that comes in takes longer.
    let (wide, narrow) = (gain_without_copy("atstk1000", &[TX]), gain_without_copy("atngw100", &[TX]));
    between(wide, -9.0, -3.0);
    between(narrow, -11.0, -4.0);
    assert!(narrow < wide, "{narrow} {wide}");
}

#[test]
fn avr32_on_the_narrower_memory_loses_datagrams_without_the_copy_too() {
    // 46 to 50 % with copies, 19 % without, where the other board loses nothing.
    let without = [("memory.uncached", "off"), ("driver.receive", "fragments"), ("traffic.payload", "1470")];
    between(100.0 * predict("atngw100", &[&without]).loss, 10.0, 25.0);
    assert_eq!(predict("atstk1000", &[&without]).loss, 0.0);
}

#[test]
fn imx8_full_duplex_tcp_saturates_the_cpu_and_is_not_equal_both_ways() {
    // 939 and 820 Mbit/s over IPv4.
    let both = [("traffic.direction", "both"), ("forward.path", "tc"), ("traffic.tags", "1")];
    let other_port = [("traffic.ack_gap_back_us", "247"), ("driver.second_port", "0.91")];
    let got = predict("imx8-enet-pcie", &[&TCP, &both, &other_port]);
    between(got.total() / 1e6, 1_670.0, 1_850.0);
    assert!(got.goodput[0] > 1.03 * got.goodput[1] && got.cpu > 0.99, "{got:?}");
}

#[test]
fn hme_needs_less_cpu_than_qfe_for_large_datagrams_and_more_for_small_ones() {
    // 60 against 64 % with 1472 bytes; 29.4 against 34.2 Mbit/s with 128.
    let at = |case, payload| predict(case, &[&[("traffic.payload", payload)]]);
    let (hme, qfe) = (at("hme", "1472"), at("qfe", "1472"));
    assert!(hme.cpu < qfe.cpu - 0.02 && hme.total() >= 0.99 * qfe.total(), "{hme:?} {qfe:?}");
    assert!(at("hme", "128").total() < 0.95 * at("qfe", "128").total());
}

#[test]
fn hme_needs_more_cpu_than_qfe_for_tcp_receive() {
    // 24 against 12 %, as far as they are ttcp's.
    let at = |case| predict(case, &[&TCP, &[("traffic.direction", "rx")]]);
    let (hme, qfe) = (at("hme"), at("qfe"));
    assert!(hme.cpu > 1.3 * qfe.cpu && hme.total() >= 0.99 * qfe.total(), "{hme:?} {qfe:?}");
}

#[test]
fn imx8_engine_of_unknown_speed_is_not_predicted() {
    let case = case("imx8-enet-pcie", &[&[("forward.path", "external")]]);
    let refused = run(&case).unwrap_err();
    assert_eq!((refused.name.as_str(), refused.value.as_str()), ("forward.external_ns", "unknown"));
}

#[test]
fn an_engine_that_is_busy_all_the_time_is_the_limit() {
    let engine = [("forward.path", "external"), ("forward.external_ns", "18000"), ("traffic.rate", "950M")];
    let explained = explain(&case("imx8-enet-pcie", &[&engine])).unwrap();
    assert!(explained.prediction.loss > 0.2, "{explained:?}");
    assert_eq!(explained.bottleneck, Part::Engine, "{explained:?}");
}
