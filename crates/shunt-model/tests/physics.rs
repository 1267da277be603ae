//! What must be true of any run.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_model::{Case, Direction, Pacing, Path, Prediction, Protocol, run, stories};

fn router() -> Case {
    let mut case = Case::default();
    case.traffic.direction = Direction::Forward;
    case.traffic.seconds = 0.5;
    case
}

fn predict(case: &Case) -> Prediction {
    let prediction = run(case).unwrap();
    let drops = prediction.drops;
    let lost = drops.fifo + drops.queue + drops.switch + drops.backlog + drops.socket + drops.tx_ring;
    assert!(prediction.received + lost <= prediction.sent, "{prediction:?}");
    let under_way = prediction.sent - prediction.received - lost;
    let room = u64::from(case.ring.rx + 2 * case.ring.tx + case.cpu.socket_packets) + 1200;
    assert!(under_way <= room, "{under_way} packets are neither here nor there: {prediction:?}");
    prediction
}

#[test]
fn an_ideal_router_carries_what_the_line_carries() {
    let mut case = router();
    for (payload, pps) in [(18, 1_488_095.2), (1472, 81_274.4)] {
        case.traffic.payload = payload;
        case.traffic.rate = 2e9;
        let got = predict(&case).received as f64 / 0.5;
        assert!((got / pps - 1.0).abs() < 0.001, "{payload}: {got}");
    }
    case.traffic.tags = 1;
    let tagged = predict(&case).received as f64 / 0.5;
    assert!((tagged / 81_063.6 - 1.0).abs() < 0.001, "{tagged}");
}

#[test]
fn a_cpu_forwards_one_packet_per_cost() {
    let mut case = router();
    case.traffic.payload = 18;
    case.forward.slow_ns = 9_000.0;
    case.driver.rx_ns = 1_000.0;
    let got = predict(&case);
    assert!((got.received as f64 / 0.5 / 100_000.0 - 1.0).abs() < 0.01, "{got:?}");
    assert!(got.cpu > 0.999 && got.loss > 0.9);
    // Half of that needs half of the CPU, and loses nothing.
    case.traffic.rate = 50_000.0 * 18.0 * 8.0;
    let got = predict(&case);
    assert!((got.cpu - 0.5).abs() < 0.005 && got.loss == 0.0, "{got:?}");
}

#[test]
fn paths_differ_by_their_cost_and_an_engine_leaves_the_cpu_idle() {
    let mut case = router();
    case.traffic.payload = 18;
    (case.forward.slow_ns, case.forward.tc_ns, case.forward.xdp_ns, case.forward.external_ns) =
        (6_000.0, 3_000.0, 1_000.0, 1_000.0);
    let mut at = |path| {
        case.forward.path = path;
        predict(&case)
    };
    let rates = [Path::Slow, Path::Tc, Path::Xdp].map(|path| at(path).received as f64);
    assert!(
        (rates[1] / rates[0] - 2.0).abs() < 0.02 && (rates[2] / rates[0] - 6.0).abs() < 0.06,
        "{rates:?}"
    );
    let engine = at(Path::External);
    assert!(engine.cpu == 0.0 && (engine.received as f64 / rates[2] - 1.0).abs() < 0.01, "{engine:?}");
}

#[test]
fn tcp_fills_a_line_and_a_window_limits_it() {
    let mut case = router();
    case.traffic.protocol = Protocol::Tcp;
    case.traffic.payload = 1448;
    let full = predict(&case).total() / 1e6;
    assert!((930.0..=941.5).contains(&full), "{full}");
    case.traffic.window = 10 * 1448;
    case.traffic.peer_us = 1000.0;
    let windowed = predict(&case).total() / 1e6;
    // Ten segments in each round trip: 1 ms at either peer.
    assert!((50.0..60.0).contains(&windowed), "{windowed}");
    case.traffic.direction = Direction::Rx;
    assert!(predict(&case).total() > 90e6, "one peer, half of the round trip");
}

#[test]
fn tcp_backs_off_where_packets_are_lost() {
    let mut case = router();
    case.traffic.protocol = Protocol::Tcp;
    case.traffic.payload = 1448;
    case.forward.slow_ns = 30_000.0;
    case.ring.rx = 64;
    case.traffic.window = 4 << 20;
    case.traffic.seconds = 2.0;
    let got = predict(&case);
    // Each second segment is acknowledged, and forwarding an acknowledgement costs as much as a segment.
    let most = 1448.0 * 8.0 / 45e-6;
    assert!(got.loss > 0.0 && got.loss < 0.05, "{got:?}");
    assert!(got.total() > 0.95 * most && got.total() < 1.01 * most, "{got:?}");
}

#[test]
fn pause_frames_take_the_loss_out_of_a_slow_bus() {
    let mut case = router();
    case.bus.rx_rate = 500e6;
    case.fifo.bytes = 16 << 10;
    let lossy = predict(&case);
    case.fifo.pause = true;
    let paused = predict(&case);
    assert!(lossy.drops.fifo > 1000 && lossy.pauses == 0 && paused.drops.fifo == 0 && paused.pauses > 0);
    assert!(paused.total() >= 0.99 * lossy.total() && paused.total() < 500e6, "{paused:?}");
    // A partner that ignores them loses as before.
    case.switch.pause = false;
    assert!(predict(&case).drops.fifo > 1000);
}

#[test]
fn a_shared_bus_divides_itself_between_the_directions() {
    let mut case = router();
    (case.bus.rx_rate, case.bus.tx_rate) = (600e6, 600e6);
    let apart = predict(&case).total();
    case.bus.shared = true;
    let shared = predict(&case).total();
    assert!(apart > 550e6 && shared < 0.6 * apart, "{apart} {shared}");
}

#[test]
fn the_same_case_gives_the_same_bytes() {
    let mut case = router();
    case.traffic.pacing = Pacing::Poisson;
    case.traffic.rate = 600e6;
    case.forward.slow_ns = 15_000.0;
    let text = |case: &Case| format!("{:?}", predict(case));
    assert_eq!(text(&case), text(&case));
    let first = text(&case);
    case.seed = 2;
    assert_ne!(first, text(&case));
    // On every platform, since only operations that IEEE 754 defines are used: recorded on x86-64.
    case.seed = 1;
    let mut hash = fnv(FNV_START, &text(&case));
    for (name, file) in stories::CASES {
        let mut case = Case::parse(file).unwrap();
        case.traffic.seconds = 0.1;
        hash = fnv(hash, &format!("{name} {:?}", run(&case).unwrap()));
    }
    assert_eq!(hash, RECORDED, "{hash:#x}");
}

/// Of all digits of all figures.
const RECORDED: u64 = 0x7c8d_e45f_ee6f_6d0a;

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash FNV-1a.
fn fnv(start: u64, text: &str) -> u64 {
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn pacing_changes_when_and_not_how_much() {
    let mut case = router();
    case.traffic.rate = 300e6;
    for (pacing, tolerance) in [(Pacing::Cbr, 0.001), (Pacing::Poisson, 0.02), (Pacing::Bursts, 0.001)] {
        (case.traffic.pacing, case.traffic.burst) = (pacing, 16);
        let offered = predict(&case).offered;
        assert!((offered / 300e6 - 1.0).abs() < tolerance, "{pacing:?}: {offered}");
    }
    // iperf 2 asks for 39 us where 39.25 would be right.
    case.traffic.pacing = Pacing::Iperf2;
    let offered = predict(&case).offered;
    assert!((offered / 1472.0 / 8.0 * 39e-6 - 1.0).abs() < 0.001, "{offered}");
}

#[test]
fn impossible_parameters_are_refused_by_name() {
    let refused = |name: &str, value: &str| {
        let mut case = Case::default();
        case.set(name, value).unwrap();
        let impossible = run(&case).unwrap_err();
        assert_eq!(impossible.name, name, "{impossible}");
        impossible.to_string()
    };
    assert_eq!(refused("traffic.rate", "-5"), "traffic.rate is -5: use 1 to 1e13 bit/s");
    assert_eq!(refused("ring.rx", "0"), "ring.rx is 0: use 1 to 1048576");
    assert_eq!(refused("fifo.bytes", "1000"), "fifo.bytes is 1000: a frame has 1518 bytes");
    assert_eq!(refused("forward.slow_ns", "-1"), "forward.slow_ns is -1: use 0 to 1e9 ns");
    for (name, value) in [
        ("link.rate", "0"),
        ("ring.tx", "0"),
        ("traffic.payload", "0"),
        ("traffic.seconds", "0"),
        ("traffic.ip", "5"),
        ("traffic.ping_every_us", "1e-9"),
        ("traffic.window", "100"),
        ("cpu.base_load", "1"),
        ("switch.buffer", "100"),
        ("driver.rx_ns", "nan"),
        ("fifo.resume", "1M"),
        ("fifo.section_full", "1M"),
        ("fifo.bytes", "1G"),
        ("link.loss", "1.5"),
        ("memory.burst", "0"),
        ("memory.unaligned", "0.5"),
        ("cpu.idle_exit_us", "-1"),
        ("driver.budget", "0"),
        ("switch.onward_rate", "-1"),
        ("traffic.rate", "1e300"),
    ] {
        refused(name, value);
    }
    let mut case = Case::default();
    case.set("ring.buffer", "128").unwrap();
    case.set("ring.rx", "4").unwrap();
    assert_eq!(run(&case).unwrap_err().to_string(), "ring.rx is 4: a frame takes 12 descriptors");
    // A run that would not end in reasonable time.
    let mut case = Case::default();
    (case.link.rate, case.traffic.seconds) = (400e9, 600.0);
    let error = run(&case).unwrap_err().to_string();
    assert!(error.starts_with("traffic.seconds is 600: at link.rate, that is 19505851756 frames"), "{error}");
    // The busiest of two queues has no tenth of the packets.
    let mut case = Case::default();
    (case.ring.queues, case.ring.busiest) = (2, 0.1);
    let error = run(&case).unwrap_err().to_string();
    assert_eq!(error, "ring.busiest is 0.1: of 2 queues, the busiest gets 0.50 or more");
    // A switch that is slower than the board needs a buffer.
    let mut case = Case::default();
    case.switch.onward_rate = 1e8;
    assert_eq!(run(&case).unwrap_err().name, "switch.buffer");
}

#[test]
fn names_and_values_that_are_wrong_are_named() {
    let mut case = Case::default();
    let mut wrong = |name: &str, value: &str| case.set(name, value).unwrap_err().to_string();
    assert!(
        wrong("fifo.pauze", "on").starts_with("there is no parameter fifo.pauze; fifo has almost_empty,")
    );
    assert!(wrong("fifos.pause", "on").contains("such as fifo.pause"));
    assert_eq!(wrong("fifo.pause", "maybe"), "fifo.pause=maybe: use on or off");
    assert_eq!(wrong("ring.rx", "1.5"), "ring.rx=1.5: use a whole number");
    assert_eq!(wrong("traffic.rate", "fast"), "traffic.rate=fast: use a number, such as 400M");
    assert_eq!(wrong("ring.rx", "-3"), "ring.rx=-3: use 1 to 1048576");
    assert_eq!(
        wrong("traffic.payload", "5G"),
        "traffic.payload=5G: a packet has 1 to 65000 bytes of payload"
    );
    assert_eq!(wrong("traffic.ip", "300"), "traffic.ip=300: use 4 or 6");
    assert!(wrong("forward.path", "quick").contains("quick"));
    assert!(Case::parse("[fifo]\npauze = true").unwrap_err().to_string().contains("pauze"));
    assert!(Case::parse("[ring]\nrx = 0").unwrap_err().to_string().contains("ring.rx is 0"));
}
