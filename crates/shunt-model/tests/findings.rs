//! What the published stories found, by sign and by size. Each test names the published figures.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_model::{Case, Part, Prediction, explain, run, stories};

type Settings<'a> = &'a [(&'a str, &'a str)];

const TCP: [(&str, &str); 2] = [("traffic.protocol", "tcp"), ("traffic.payload", "1448")];
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

#[test]
fn every_finding_agrees_with_what_was_published() {
    for story in stories::all() {
        for finding in story.predict_findings().unwrap() {
            assert!(finding.agrees(), "{}: {finding:#?}", story.name);
        }
    }
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
fn imx6_pause_frames_keep_the_fifo_from_overruns() {
    for rate in ["200M", "400M", "600M", "1000M"] {
        let got = predict("imx6", &[&THRESHOLDS, &[("traffic.rate", rate)]]);
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
    assert!(narrow < 0.75 * wide, "{narrow} {wide}");
}

#[test]
fn avr32_loses_transmit_where_receive_gains() {
    // -6.8 and -8.6 %: each acknowledgement that comes in takes longer.
    let (wide, narrow) = (gain_without_copy("atstk1000", &[TX]), gain_without_copy("atngw100", &[TX]));
    assert!(narrow < wide, "{narrow} {wide}");
}

#[test]
fn imx8_full_duplex_tcp_saturates_the_cpu_and_is_not_equal_both_ways() {
    // 939 and 820 Mbit/s over IPv4.
    let both = [("traffic.direction", "both"), ("forward.path", "tc"), ("traffic.tags", "1")];
    let other_port = [("traffic.ack_gap_back_us", "453"), ("driver.second_port", "0.958")];
    let got = predict("imx8-enet-pcie", &[&TCP, &both, &other_port]);
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
fn an_engine_that_is_busy_all_the_time_is_the_limit() {
    let engine = [("forward.path", "external"), ("forward.external_ns", "18000"), ("traffic.rate", "950M")];
    let explained = explain(&case("imx8-enet-pcie", &[&engine])).unwrap();
    assert!(explained.prediction.loss > 0.2, "{explained:?}");
    assert_eq!(explained.bottleneck, Part::Engine, "{explained:?}");
}
