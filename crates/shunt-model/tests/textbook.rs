//! What-ifs whose answers are in textbooks.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_model::{Case, Direction, Interrupt, Pacing, Part, Path, Prediction, Protocol, explain, run};

/// An ideal router between lines of 1 Gbit/s.
fn router() -> Case {
    let mut case = Case::default();
    case.traffic.direction = Direction::Forward;
    case.traffic.seconds = 0.2;
    case
}

/// The same as a host that receives.
fn host() -> Case {
    Case { traffic: shunt_model::Traffic { direction: Direction::Rx, ..router().traffic }, ..router() }
}

fn tcp(mut case: Case) -> Case {
    (case.traffic.protocol, case.traffic.payload, case.traffic.seconds) = (Protocol::Tcp, 1448, 2.0);
    case
}

fn predict(case: &Case) -> Prediction {
    run(case).unwrap()
}

fn pps(case: &Case) -> f64 {
    predict(case).received as f64 / case.traffic.seconds
}

#[track_caller]
fn near(got: f64, wanted: f64, tolerance: f64) {
    assert!((got / wanted - 1.0).abs() < tolerance, "{got}, not {wanted}");
}

#[test]
fn a_window_lasts_for_a_round_trip() {
    for (window, peer_us) in [(64 << 10, 10_000.0), (128 << 10, 10_000.0), (64 << 10, 20_000.0)] {
        let mut case = tcp(host());
        (case.traffic.window, case.traffic.peer_us) = (window, peer_us);
        let segments = f64::from(window / 1448);
        near(predict(&case).total(), segments * 1448.0 * 8.0 / (peer_us / 1e6), 0.1);
    }
}

#[test]
fn four_times_the_loss_halves_tcp_and_so_does_twice_the_round_trip() {
    let at = |loss: f64, peer_us: f64| {
        let mut case = tcp(host());
        (case.link.loss, case.traffic.peer_us, case.traffic.window) = (loss, peer_us, 16 << 20);
        case.traffic.seconds = 60.0;
        predict(&case).total()
    };
    // Mathis and others, 1997.
    let usual = at(1e-3, 20_000.0);
    near(usual, (1.5f64 / 1e-3).sqrt() * 1448.0 * 8.0 / 20e-3, 0.2);
    near(at(4e-3, 20_000.0) / usual, 0.5, 0.2);
    near(at(1e-3, 40_000.0) / usual, 0.5, 0.2);
}

#[test]
fn a_ring_must_hold_what_arrives_while_the_interrupt_waits() {
    // 81,274 packets/s: 24.4 arrive in 300 us.
    let mut case = router();
    (case.driver.coalesce_us, case.fifo.bytes) = (300.0, 2048);
    let loses = |ring| {
        let mut case = case.clone();
        case.ring.rx = ring;
        predict(&case).loss > 0.0
    };
    assert!(loses(16) && loses(22) && !loses(28) && !loses(64));
}

#[test]
fn a_line_carries_so_many_of_the_smallest_and_the_largest_frames() {
    for (rate, payload, wanted) in
        [(1e9, 18, 1_488_095.0), (10e9, 18, 14_880_952.0), (1e9, 1472, 81_274.0), (100e6, 18, 148_810.0)]
    {
        let mut case = router();
        (case.link.rate, case.traffic.rate, case.traffic.payload) = (rate, 2.0 * rate, payload);
        case.traffic.seconds = 0.05;
        near(pps(&case), wanted, 0.002);
    }
    // Jumbo frames: 8972 bytes of UDP in 9038 + 20 - 20 bytes of line time.
    let mut case = router();
    case.traffic.payload = 8972;
    near(predict(&case).total(), 1e9 * 8972.0 / 9038.0, 0.002);
}

#[test]
fn half_the_line_is_half_the_rate() {
    let mut case = router();
    let whole = predict(&case).total();
    case.link.rate = 500e6;
    near(predict(&case).total(), whole / 2.0, 0.002);
}

#[test]
fn twice_the_clock_is_twice_the_rate_of_a_core_but_not_of_a_bus() {
    let mut case = router();
    (case.traffic.payload, case.forward.slow_ns) = (18, 4_000.0);
    let slow = pps(&case);
    case.set("cpu.clock", "2x").unwrap();
    near(pps(&case), 2.0 * slow, 0.01);
    case.cpu.memory_share = 1.0;
    near(pps(&case), slow, 0.01);
    let mut bus = router();
    bus.bus.rx_rate = 300e6;
    let before = predict(&bus).total();
    bus.set("cpu.clock", "2x").unwrap();
    near(predict(&bus).total(), before, 0.001);
}

#[test]
fn twice_the_bus_is_twice_the_rate_until_the_line_is_full() {
    let mut case = router();
    case.bus.rx_rate = 300e6;
    let slow = predict(&case).total();
    case.bus.rx_rate = 600e6;
    near(predict(&case).total(), 2.0 * slow, 0.01);
    case.bus.rx_rate = 1.2e9;
    near(predict(&case).total(), 957.1e6, 0.002);
}

#[test]
fn half_the_fifo_loses_more_of_a_burst_and_nothing_of_a_smooth_stream() {
    let mut case = router();
    (case.traffic.rate, case.bus.rx_rate) = (400e6, 600e6);
    (case.traffic.pacing, case.traffic.burst) = (Pacing::Bursts, 40);
    let loss = |bytes: u32, pacing| {
        let mut case = case.clone();
        (case.fifo.bytes, case.traffic.pacing) = (bytes, pacing);
        predict(&case).loss
    };
    // A burst of 60,720 bytes comes at 987 Mbit/s, and 40 % of it waits.
    let (full, half) = (loss(32 << 10, Pacing::Bursts), loss(16 << 10, Pacing::Bursts));
    assert!(full == 0.0 && half > 0.02, "{full} {half}");
    assert!(loss(8 << 10, Pacing::Bursts) > half);
    assert_eq!((loss(32 << 10, Pacing::Cbr), loss(16 << 10, Pacing::Cbr)), (0.0, 0.0));
}

#[test]
fn half_the_buffers_of_a_switch_lose_more_of_a_burst() {
    let mut case = host();
    (case.traffic.direction, case.traffic.rate, case.traffic.payload) = (Direction::Tx, 80e6, 1472);
    (case.traffic.pacing, case.traffic.burst) = (Pacing::Bursts, 64);
    (case.switch.onward_rate, case.switch.pause) = (100e6, false);
    let loss = |buffer| {
        let mut case = case.clone();
        case.switch.buffer = buffer;
        predict(&case).loss
    };
    let (large, half) = (loss(96 << 10), loss(48 << 10));
    // 64 frames of 1518 bytes come ten times as fast as they go: nine tenths of 97 kB wait.
    assert!(large == 0.0 && (0.3..0.6).contains(&half), "{large} {half}");
}

#[test]
fn flow_control_without_a_threshold_sends_nothing_and_with_one_loses_nothing() {
    let mut case = router();
    (case.bus.rx_rate, case.fifo.bytes) = (500e6, 16 << 10);
    let none = predict(&case);
    (case.fifo.pause, case.fifo.xoff) = (true, false);
    let without = predict(&case);
    assert_eq!((without.pauses, without.loss), (0, none.loss));
    case.fifo.xoff = true;
    let with = predict(&case);
    assert!(with.pauses > 0 && with.loss == 0.0 && none.loss > 0.4, "{with:?}");
}

#[test]
fn deep_idle_limits_a_ping_pong_and_not_a_full_line() {
    let mut case = tcp(host());
    (case.cpu.idle_exit_us, case.traffic.ack_every, case.traffic.peer_us) = (10_000.0, 1, 0.0);
    // One segment for each wake-up.
    case.traffic.window = 1448;
    near(pps(&case), 100.0, 0.03);
    case.cpu.idle_exit_us = 0.0;
    assert!(pps(&case) > 10_000.0);
    // At a low rate, each packet waits for the exit; at a high rate, the CPU does not sleep.
    let mut case = router();
    (case.cpu.idle_exit_us, case.cpu.idle_after_us, case.forward.slow_ns) = (200.0, 50.0, 5_000.0);
    let latency = |rate: f64| {
        let mut case = case.clone();
        case.traffic.rate = rate;
        predict(&case).latency.unwrap()
    };
    near(latency(10e6).mean_us, 205.0, 0.03);
    assert!(latency(500e6).p99_us < 300.0 && latency(500e6).mean_us < 20.0, "{:?}", latency(500e6));
}

#[test]
fn an_interrupt_per_packet_ends_in_livelock_and_polling_does_not() {
    let mut case = host();
    (case.traffic.payload, case.cpu.irq_ns, case.driver.rx_ns) = (18, 3_000.0, 1_000.0);
    (case.cpu.stack_rx_ns, case.cpu.socket_ns, case.driver.budget) = (2_000.0, 4_000.0, 64);
    let at = |interrupt, offered: f64| {
        let mut case = case.clone();
        (case.driver.interrupt, case.traffic.rate) = (interrupt, offered * 18.0 * 8.0);
        pps(&case)
    };
    // Mogul and Ramakrishnan, 1997: 10 us a packet are 100,000 packets/s; beyond 250,000, interrupts take all.
    near(at(Interrupt::PerPacket, 90_000.0), 90_000.0, 0.01);
    assert!(at(Interrupt::PerPacket, 400_000.0) < 1_000.0);
    for offered in [200_000.0, 400_000.0, 1_400_000.0] {
        let got = at(Interrupt::Napi, offered);
        assert!(got > 50_000.0, "{got} of {offered}");
    }
}

#[test]
fn coalescing_trades_latency_for_cpu() {
    let mut case = router();
    (case.traffic.payload, case.traffic.rate) = (100, 27e6);
    (case.cpu.irq_ns, case.forward.slow_ns) = (5_000.0, 2_000.0);
    let at = |us: f64| {
        let mut case = case.clone();
        case.driver.coalesce_us = us;
        predict(&case)
    };
    let (none, some, more) = (at(0.0), at(200.0), at(400.0));
    assert!(none.cpu > 2.0 * some.cpu && some.cpu > more.cpu, "{} {} {}", none.cpu, some.cpu, more.cpu);
    let mean = |got: &Prediction| got.latency.unwrap().mean_us;
    near(mean(&none), 7.0, 0.05);
    // Packets come at any time of the wait.
    near(mean(&some), 105.0, 0.1);
    near(mean(&more), 205.0, 0.1);
}

#[test]
fn an_external_engine_leaves_the_cpu_idle_and_is_the_limit_itself() {
    let mut case = router();
    (case.traffic.payload, case.forward.slow_ns, case.forward.external_ns) = (18, 10_000.0, 2_000.0);
    let slow = predict(&case);
    case.forward.path = Path::External;
    let external = explain(&case).unwrap();
    near(external.prediction.received as f64, 5.0 * slow.received as f64, 0.01);
    assert_eq!((external.prediction.cpu, external.bottleneck), (0.0, Part::Engine));
}

#[test]
fn a_larger_mtu_saves_the_cost_of_packets_and_not_that_of_bytes() {
    let mut case = host();
    (case.cpu.stack_rx_ns, case.memory.cached_ns, case.cpu.socket_packets) = (15_000.0, 4.0, 1000);
    let at = |payload| {
        let mut case = case.clone();
        case.traffic.payload = payload;
        predict(&case).total()
    };
    near(at(1472), 1472.0 * 8.0 / (15e-6 + 1472.0 * 4e-9), 0.02);
    near(at(8972), (8972.0f64 * 8.0 / (15e-6 + 8972.0 * 4e-9)).min(1e9 * 8972.0 / 9038.0), 0.02);
    case.cpu.stack_rx_ns = 60_000.0;
    let cpu = |payload| {
        let mut case = case.clone();
        (case.traffic.payload, case.traffic.rate) = (payload, 100e6);
        predict(&case).cpu
    };
    near(cpu(1472) / cpu(8972), (60.0 / 1.472 + 4.0) / (60.0 / 8.972 + 4.0), 0.02);
}

#[test]
fn fewer_acknowledgements_leave_more_of_the_cpu_for_data() {
    let mut case = tcp(router());
    (case.forward.slow_ns, case.traffic.window) = (20_000.0, 64 << 10);
    let at = |every| {
        let mut case = case.clone();
        case.traffic.ack_every = every;
        predict(&case).total()
    };
    // An acknowledgement takes the CPU as long as a segment.
    let whole = 1448.0 * 8.0 / 20e-6;
    near(at(1), whole / 2.0, 0.03);
    near(at(2), whole / 1.5, 0.03);
    near(at(8), whole / 1.125, 0.03);
}

#[test]
fn a_window_of_one_segment_waits_for_the_delayed_acknowledgement() {
    let mut case = tcp(host());
    case.traffic.window = 1448;
    near(pps(&case), 25.0, 0.05);
    case.traffic.ack_every = 1;
    assert!(pps(&case) > 5_000.0);
}

#[test]
fn a_core_that_is_busy_half_of_the_time_queues_random_arrivals_as_the_formula_says() {
    // M/D/1: the mean wait is rho / (2 (1 - rho)) services.
    let mut case = router();
    (case.traffic.payload, case.traffic.pacing, case.forward.slow_ns) = (18, Pacing::Poisson, 10_000.0);
    case.traffic.seconds = 5.0;
    for rho in [0.5, 0.8] {
        case.traffic.rate = rho * 1e5 * 18.0 * 8.0;
        let wanted = 10.0 + 10.0 * rho / (2.0 * (1.0 - rho));
        near(predict(&case).latency.unwrap().mean_us, wanted, 0.05);
    }
}
