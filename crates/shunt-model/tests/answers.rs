//! What people ask of a model: another clock, latency under load, other silicon, another NIC, more queues, a better
//! driver.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod board;

use board::{cost, near, predict, receiver};
use shunt_model::{Case, Direction, Part, Protocol, explain, run, stories};

/// The ideal board as a router.
fn router() -> Case {
    let mut case = receiver();
    case.traffic.direction = Direction::Forward;
    case
}

fn with(case: &Case, settings: &[(&str, &str)]) -> Case {
    let mut case = case.clone();
    for (name, value) in settings {
        case.set(name, value).unwrap();
    }
    case
}

#[test]
fn a_faster_clock_shortens_what_does_not_wait_for_memory() {
    let mut case = receiver();
    (case.cpu.stack_rx_ns, case.memory.cold_ns, case.memory.cached_ns) = (20_000.0, 3.0, 2.0);
    near(cost(&case), 20_000.0 + 1000.0 * 5.0);
    near(cost(&with(&case, &[("cpu.clock", "2x")])), 10_000.0 + 1000.0 * 4.0);
    case.cpu.memory_share = 0.4;
    near(cost(&with(&case, &[("cpu.clock", "2x")])), 8_000.0 + 6_000.0 + 1000.0 * 4.0);
    near(cost(&with(&case, &[("cpu.clock", "0.5x")])), 8_000.0 + 24_000.0 + 1000.0 * 7.0);
}

#[test]
fn a_clock_is_given_in_the_unit_of_the_case() {
    let board = stories::case("imx8-enet-pcie").unwrap();
    let (twice, hertz) = (with(&board, &[("cpu.clock", "2x")]), with(&board, &[("cpu.clock", "2.4G")]));
    assert_eq!(predict(&twice), predict(&hertz));
    let slow = predict(&with(&board, &[("traffic.tags", "1")]));
    assert!(predict(&with(&twice, &[("traffic.tags", "1")])).total() > 1.2 * slow.total());
    let no_unit = with(&Case::default(), &[("cpu.clock", "1.6G")]);
    let error = run(&no_unit).unwrap_err().to_string();
    assert!(
        error.starts_with("cpu.clock is 1600000000: the costs are for a clock of 1 (cpu.costs_at)"),
        "{error}"
    );
}

#[test]
fn a_factor_multiplies_the_present_value_and_leaves_an_unknown_cost_unknown() {
    let board = stories::case("imx8-enet-pcie").unwrap();
    assert_eq!(with(&board, &[("ring.rx", "0.5x")]).ring.rx, 256);
    let external = with(&board, &[("forward.path", "external"), ("forward.external_ns", "2x")]);
    assert_eq!(run(&external).unwrap_err().name, "forward.external_ns");
}

#[test]
fn latency_is_what_a_packet_waits_for() {
    let mut case = router();
    (case.forward.slow_ns, case.driver.coalesce_us) = (5_000.0, 30.0);
    // 1046 bytes through a bus of 1 Gbit/s, twice.
    (case.bus.rx_rate, case.bus.tx_rate, case.fifo.section_full) = (1e9, 1e9, 0);
    let times = predict(&case).latency.unwrap();
    near(times.mean_us, 2.0 * 1046.0 * 8.0 / 1e3 + 30.0 + 5.0);
    near(times.max_us, times.mean_us);
    // An overloaded CPU: a ring of 100 descriptors is always full.
    (case.traffic.rate, case.ring.rx, case.driver.coalesce_us, case.fifo.bytes) = (900e6, 100, 0.0, 2048);
    case.forward.slow_ns = 20_000.0;
    let times = predict(&case).latency.unwrap();
    assert!(times.p99_us > 1_900.0 && times.max_us < 2_200.0, "{times:?}");
    assert!(times.mean_us < times.p99_us && times.p99_us <= times.max_us, "{times:?}");
}

#[test]
fn one_packet_in_a_hundred_is_later_than_the_99th_percentile() {
    let mut case = router();
    // A burst of 50 packets that take 10 us each waits for up to 500 us.
    (case.traffic.pacing, case.traffic.burst) = (shunt_model::Pacing::Bursts, 50);
    case.forward.slow_ns = 18_500.0;
    let times = predict(&case).latency.unwrap();
    // 8.53 us for a packet on the line: the last of a burst waits for 49 times the difference.
    near(times.max_us, 18.5 + 49.0 * (18.5 - 8.528));
    assert!(
        times.p99_us > 0.95 * times.max_us && (0.45..0.55).contains(&(times.mean_us / times.max_us)),
        "{times:?}"
    );
}

#[test]
fn a_ping_waits_behind_the_traffic() {
    let mut case = router();
    (case.traffic.ping_every_us, case.traffic.peer_us, case.forward.slow_ns) = (1_000.0, 0.0, 10_000.0);
    case.traffic.rate = 8e3;
    let quiet = predict(&case);
    // 102 bytes and a slow path, each way twice, and 100 ns of cable four times. The first ping meets a packet.
    assert!((23.6..24.2).contains(&quiet.ping.unwrap().mean_us), "{quiet:?}");
    assert!((199..=200).contains(&quiet.ping.unwrap().count) && quiet.pings_lost == 0, "{quiet:?}");
    (case.traffic.rate, case.ring.rx, case.fifo.bytes) = (900e6, 200, 2048);
    let loaded = predict(&case);
    // 200 packets of 10 us are before it on its way there, and some of those on the way back.
    assert!(loaded.ping.unwrap().mean_us > 1_900.0 && loaded.pings_lost > 0, "{loaded:?}");
    (case.traffic.direction, case.traffic.rate, case.cpu.stack_rx_ns) = (Direction::Rx, 8e3, 5_000.0);
    case.traffic.peer_us = 100.0;
    near(predict(&case).ping.unwrap().mean_us, 100.0 + 2.0 * 0.816 + 5.0 + 0.2);
}

#[test]
fn tcp_fills_the_ring_that_a_ping_waits_in() {
    let mut case = router();
    (case.traffic.protocol, case.traffic.payload, case.traffic.seconds) = (Protocol::Tcp, 1448, 1.0);
    (case.traffic.ping_every_us, case.forward.slow_ns) = (10_000.0, 20_000.0);
    let ping = |window: u32, ring: u32| {
        let mut case = case.clone();
        (case.traffic.window, case.ring.rx) = (window, ring);
        predict(&case).ping.unwrap().mean_us
    };
    let (small, large) = (ping(20 * 1448, 256), ping(200 * 1448, 256));
    assert!(large > 5.0 * small, "{small} {large}");
    assert!(ping(1000 * 1448, 1024) > 2.0 * ping(1000 * 1448, 256));
}

#[test]
fn queues_spread_flows_over_cores_and_not_the_packets_of_one_flow() {
    let mut case = router();
    (case.traffic.payload, case.traffic.rate, case.forward.slow_ns) = (18, 1e9, 4_000.0);
    let got = |flows, queues, cores| {
        let mut case = case.clone();
        (case.traffic.flows, case.ring.queues, case.cpu.cores) = (flows, queues, cores);
        predict(&case)
    };
    let one = got(1, 1, 1).received as f64;
    near(got(1, 4, 4).received as f64, one);
    near(got(1000, 4, 1).received as f64, one);
    let four = got(1000, 4, 4);
    assert!(four.received as f64 > 3.8 * one && four.cores.iter().all(|load| *load > 0.95), "{four:?}");
    // Few flows do not meet in each queue.
    let few = got(4, 4, 4).received as f64;
    assert!(few >= one && few < 3.5 * one, "{few} {one}");
}

#[test]
fn the_busiest_queue_limits_an_uneven_spread_that_loses_nothing() {
    let mut case = router();
    (case.traffic.payload, case.forward.slow_ns) = (18, 4_000.0);
    (case.ring.queues, case.cpu.cores, case.ring.busiest) = (4, 4, 0.4);
    // A core forwards 250,000 packets/s, and one core gets 40 % of them: of 700,000, it loses 30,000.
    let at = |pps: f64| {
        let mut case = case.clone();
        case.traffic.rate = pps * 18.0 * 8.0;
        predict(&case)
    };
    let (below, above) = (at(600_000.0), at(700_000.0));
    assert!(below.loss == 0.0 && (0.04..0.045).contains(&above.loss), "{} {}", below.loss, above.loss);
    near(below.cores[0], 0.96);
    near(below.cores[3], 0.48);
    case.traffic.rate = 700_000.0 * 18.0 * 8.0;
    let explained = explain(&case).unwrap();
    assert_eq!(explained.bottleneck, Part::Cpu);
    assert!(explained.because.contains("one core of 4 is busy for 100 %"), "{}", explained.because);
}

#[test]
fn a_driver_that_maintains_two_lines_saves_the_others() {
    let mut case = router();
    (case.memory.maintain_ns, case.memory.line_bytes) = (50.0, 64);
    // 1046 bytes are 17 lines, to invalidate and to clean.
    near(cost(&case), 2.0 * 17.0 * 50.0);
    case.driver.touched_lines = 2;
    near(cost(&case), 2.0 * 2.0 * 50.0);
    // What the CPU copies, it must see whole.
    case.traffic.direction = Direction::Rx;
    near(cost(&case), 17.0 * 50.0);
    case.memory.uncached = true;
    assert_eq!(predict(&case).cpu, 0.0, "uncached buffers need no maintenance");
}

#[test]
fn bursts_read_uncached_descriptors_at_once() {
    let mut case = router();
    (case.ring.descriptor_bytes, case.memory.uncached_ns) = (32, 100.0);
    near(cost(&case), 800.0);
    near(cost(&with(&case, &[("memory.descriptor_burst", "32")])), 100.0);
    near(cost(&with(&case, &[("memory.descriptor_burst", "16")])), 200.0);
}

#[test]
fn what_the_drivers_of_the_imx8_saved_is_unknown_until_its_cost_is_given() {
    let board = stories::case("imx8-enet-pcie").unwrap();
    let slow = predict(&board).total();
    for (setting, cost, value) in [
        (("driver.recycle", "off"), "driver.buffer_ns", "2000"),
        (("driver.touched_lines", "0"), "memory.maintain_ns", "50"),
    ] {
        let case = with(&board, &[setting]);
        assert_eq!(run(&case).unwrap_err().name, cost);
        assert!(predict(&with(&case, &[(cost, value)])).total() < 0.95 * slow);
    }
}

#[test]
fn small_frames_overflow_the_queue_of_their_status_before_a_pause_frame_helps() {
    // The i.MX6's erratum ERR005783.
    let after =
        [("fifo.pause", "on"), ("fifo.xoff", "on"), ("fifo.section_full", "64"), ("traffic.rate", "100M")];
    let small = [("traffic.payload", "18"), ("traffic.sender_ns", "0"), ("traffic.stall_us", "0")];
    let board = with(&with(&stories::case("imx6").unwrap(), &after), &[("traffic.seconds", "0.1")]);
    let drops = |case: &Case| predict(case).drops.fifo;
    let limited = with(&board, &[("fifo.frames", "16")]);
    assert_eq!((drops(&with(&board, &small)), drops(&limited)), (0, 0));
    assert!(drops(&with(&limited, &small)) > 100);
}

#[test]
fn the_imx6_receives_more_with_newer_silicon_and_sends_more_by_pcie() {
    let at = |case: &str, settings: &[(&str, &str)]| {
        predict(&with(&stories::case(case).unwrap(), settings)).total() / 1e6
    };
    let (most, pause) = (("traffic.rate", "1G"), [("fifo.pause", "on"), ("fifo.xoff", "on")]);
    // Above 630 with silicon TO1.2, 583 before.
    let old = at("imx6", &[most, pause[0], pause[1], ("fifo.section_full", "128")]);
    assert!(at("imx6-to12", &[most]) > 1.06 * old, "{old}");
    // 462 and 611 by ENET after all changes, 597 and 507 by PCIe.
    let tx = [most, ("traffic.direction", "tx"), ("traffic.sender_ns", "0"), ("traffic.stall_us", "0")];
    let (enet, pcie) = (at("imx6", &tx), at("imx6-pcie", &tx));
    assert!((440.0..480.0).contains(&enet) && (580.0..610.0).contains(&pcie), "{enet} {pcie}");
    assert!(at("imx6-pcie", &[most]) < 0.9 * old);
}
