//! Each part of a board does what its parameters say: the expected figures are worked out by hand.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod board;

use board::{cost, near, predict, receiver};
use shunt_model::{Direction, Interrupt, Pacing, Protocol, Receive};

#[test]
fn a_copy_costs_what_its_memory_and_its_alignment_cost() {
    let mut case = receiver();
    (case.memory.uncached_ns, case.memory.burst) = (40.0, 4);
    (case.memory.cold_ns, case.memory.cached_ns, case.memory.unaligned) = (3.0, 2.0, 2.5);
    // 1000 bytes of payload in a frame of 1046 bytes.
    for (receive, uncached, wanted) in [
        (Receive::Copy, true, 1046.0 * (10.0 + 5.0) + 1000.0 * 2.0),
        (Receive::CopyAligned, true, 1046.0 * (10.0 + 2.0) + 1000.0 * 2.0),
        (Receive::CopyAligned, false, 1046.0 * (3.0 + 2.0) + 1000.0 * 2.0),
        (Receive::Fragments, false, 1000.0 * (3.0 + 2.0)),
        (Receive::Fragments, true, 1000.0 * (10.0 + 2.0)),
    ] {
        (case.driver.receive, case.memory.uncached) = (receive, uncached);
        near(cost(&case), wanted);
    }
    case.memory.checksum_ns = 1.0;
    near(cost(&case), 1000.0 * (10.0 + 2.0 + 1.0));
    // Eight times as many bytes in each access.
    case.memory.burst = 32;
    near(cost(&case), 1000.0 * (1.25 + 2.0 + 1.0));
}

#[test]
fn descriptors_and_buffers_cost_per_fragment_and_recycled_buffers_cost_nothing() {
    let mut case = receiver();
    case.ring.buffer = 128;
    (case.driver.rx_ns, case.driver.descriptor_ns, case.driver.buffer_ns) = (500.0, 100.0, 300.0);
    // A frame of 1046 bytes lies in nine buffers.
    near(cost(&case), 500.0 + 9.0 * 400.0);
    case.driver.recycle = true;
    near(cost(&case), 500.0 + 9.0 * 100.0);
}

#[test]
fn stack_and_socket_cost_per_packet() {
    let mut case = receiver();
    (case.cpu.stack_rx_ns, case.cpu.socket_ns) = (3_000.0, 4_000.0);
    near(cost(&case), 7_000.0);
    // The program on a core of its own leaves the stack on this one.
    case.cpu.own_core = true;
    near(cost(&case), 3_000.0);
    (case.cpu.own_core, case.cpu.base_load) = (false, 0.2);
    near(predict(&case).cpu, 0.2 + 0.07);
}

#[test]
fn coalescing_saves_interrupts() {
    let mut case = receiver();
    case.cpu.irq_ns = 10_000.0;
    near(cost(&case), 10_000.0);
    case.driver.interrupt = Interrupt::PerPacket;
    near(cost(&case), 10_000.0);
    // An interrupt 450 us after the first packet finds five, one each 100 us.
    (case.driver.interrupt, case.driver.coalesce_us) = (Interrupt::Napi, 450.0);
    near(cost(&case), 2_000.0);
}

#[test]
fn a_driver_that_polls_survives_a_rate_that_livelocks_interrupts() {
    let mut case = receiver();
    case.traffic.payload = 18;
    case.traffic.rate = 1e9;
    (case.cpu.irq_ns, case.driver.rx_ns) = (1_000.0, 1_000.0);
    (case.cpu.stack_rx_ns, case.cpu.socket_ns, case.driver.budget) = (1_000.0, 2_000.0, 64);
    let polled = predict(&case);
    case.driver.interrupt = Interrupt::PerPacket;
    let interrupted = predict(&case);
    assert!(polled.received > 50 * interrupted.received.max(1), "{polled:?} {interrupted:?}");
    // Beyond its budget, driver and stack get half of the CPU, and the program the other half.
    near(polled.received as f64, 0.5 * 0.2 / 2e-6);
}

#[test]
fn a_socket_holds_so_many_packets_of_a_burst() {
    let mut case = receiver();
    (case.traffic.pacing, case.traffic.burst, case.cpu.socket_packets) = (Pacing::Bursts, 100, 60);
    // The stack has precedence until the burst is over; each packet takes 8.5 us on the line.
    (case.cpu.stack_rx_ns, case.cpu.socket_ns) = (8_600.0, 10_000.0);
    let got = predict(&case);
    assert_eq!((got.drops.socket, got.sent, got.received), (20 * 40, 2_000, 20 * 60), "{got:?}");
}

#[test]
fn a_cut_through_fifo_may_be_smaller() {
    let mut case = receiver();
    (case.traffic.payload, case.traffic.pacing, case.traffic.burst) = (1472, Pacing::Bursts, 3);
    case.bus.rx_rate = 600e6;
    // At the end of the third frame, 36.8 us after the start of the first, 60 % of the line's rate have moved 2700
    // bytes of 4554 if DMA began at once, and 1830 if it began after the first frame.
    for (bytes, section_full, overruns) in
        [(2000, 64, false), (2000, 0, true), (2900, 0, false), (1700, 64, true)]
    {
        (case.fifo.bytes, case.fifo.section_full) = (bytes, section_full);
        let got = predict(&case);
        assert_eq!(got.drops.fifo > 0, overruns, "{bytes} {section_full}: {got:?}");
    }
}

#[test]
fn an_overrun_costs_the_time_to_recover() {
    let mut case = receiver();
    (case.traffic.payload, case.traffic.rate, case.bus.rx_rate) = (1472, 1e9, 800e6);
    (case.fifo.bytes, case.fifo.resume) = (8192, 8192);
    let at_once = predict(&case).total();
    case.fifo.recover_us = 1_000.0;
    let late = predict(&case).total();
    near(at_once, 800e6 * 1472.0 / 1518.0);
    assert!(late < 0.5 * at_once, "{late} {at_once}");
}

#[test]
fn descriptors_of_sent_frames_come_back_when_the_driver_frees_them() {
    let mut case = receiver();
    case.traffic.direction = Direction::Tx;
    (case.traffic.payload, case.traffic.rate) = (18, 1e9);
    (case.driver.tx_ns, case.driver.complete_ns) = (1_000.0, 2_000.0);
    near(predict(&case).received as f64, 0.2 / 3e-6);
    // Each packet has an interrupt of its own.
    (case.driver.interrupt, case.cpu.irq_ns) = (Interrupt::PerPacket, 2_000.0);
    near(predict(&case).received as f64, 0.2 / 5e-6);
    // A ring of eight that is looked at each 200 us.
    (case.driver.interrupt, case.cpu.irq_ns) = (Interrupt::Napi, 0.0);
    (case.ring.tx, case.driver.coalesce_us) = (8, 200.0);
    let got = predict(&case).received as f64;
    assert!(got > 0.2 * 8.0 / 230e-6 && got < 0.2 * 8.0 / 200e-6, "{got}");
}

#[test]
fn the_bus_limits_what_is_sent() {
    let mut case = receiver();
    (case.traffic.direction, case.traffic.payload, case.traffic.rate) = (Direction::Tx, 1472, 1e9);
    case.bus.tx_rate = 300e6;
    near(predict(&case).total(), 300e6 * 1472.0 / 1518.0);
    // 10 us for each frame in addition to 40.48.
    case.bus.frame_ns = 10_000.0;
    near(predict(&case).total(), 1472.0 * 8.0 / 50.48e-6);
}

#[test]
fn a_mac_that_obeys_pause_frames_loses_nothing_in_a_slow_switch() {
    let mut case = receiver();
    (case.traffic.direction, case.traffic.payload, case.traffic.rate) = (Direction::Tx, 1472, 1e9);
    (case.switch.buffer, case.switch.onward_rate) = (64 << 10, 100e6);
    let paused = predict(&case);
    assert!(paused.drops.switch == 0 && paused.pauses_received > 50, "{paused:?}");
    near(paused.total(), 100e6 * 1472.0 / 1538.0);
    case.fifo.obeys_pause = false;
    let deaf = predict(&case);
    assert!(deaf.drops.switch > 10_000 && deaf.pauses_received > 0, "{deaf:?}");
    near(deaf.total(), 100e6 * 1472.0 / 1538.0);
    (case.fifo.obeys_pause, case.switch.pause) = (true, false);
    assert!(predict(&case).drops.switch > 10_000);
}

#[test]
fn a_sender_that_ignores_pause_frames_loses_in_the_switch_what_the_board_does_not_take() {
    let mut case = receiver();
    (case.traffic.payload, case.traffic.rate, case.bus.rx_rate) = (1472, 900e6, 500e6);
    (case.switch.buffer, case.fifo.bytes, case.fifo.pause) = (64 << 10, 16 << 10, true);
    let waits = predict(&case);
    assert!(waits.drops == Default::default() && waits.pauses > 0, "{waits:?}");
    case.traffic.obeys_pause = false;
    let loses = predict(&case);
    assert!(loses.drops.switch > 1_000 && loses.drops.fifo == 0, "{loses:?}");
    near(loses.total(), waits.total());
}

#[test]
fn a_cpu_that_sleeps_wakes_late_and_is_not_busy_meanwhile() {
    let mut case = receiver();
    (case.cpu.idle_exit_us, case.ring.rx, case.fifo.bytes) = (1_050.0, 8, 2048);
    let asleep = predict(&case);
    // Eight packets wait in the ring and one in the FIFO; the eleventh of a millisecond wakes nobody.
    assert!(asleep.drops.fifo > 200 && asleep.cpu == 0.0, "{asleep:?}");
    // A packet comes each 100 us, which is too soon to fall asleep.
    case.cpu.idle_after_us = 150.0;
    assert_eq!(predict(&case).loss, 0.0);
}

#[test]
fn a_window_and_a_long_cable_limit_tcp() {
    let mut case = receiver();
    (case.traffic.protocol, case.traffic.payload) = (Protocol::Tcp, 1448);
    (case.traffic.seconds, case.traffic.peer_us) = (2.0, 0.0);
    case.traffic.window = 20 * 1448;
    // A cable of 1000 km.
    case.link.propagation_ns = 5e6;
    let rtt = 10e-3;
    let got = predict(&case).total();
    assert!((got / (20.0 * 1448.0 * 8.0 / rtt) - 1.0).abs() < 0.1, "{got}");
    // A router has a cable on either side.
    case.traffic.direction = Direction::Forward;
    let got = predict(&case).total();
    assert!((got / (20.0 * 1448.0 * 8.0 / (2.0 * rtt)) - 1.0).abs() < 0.1, "{got}");
}

#[test]
fn lost_frames_slow_tcp_as_the_formula_for_reno_says() {
    let mut case = receiver();
    (case.traffic.protocol, case.traffic.payload) = (Protocol::Tcp, 1448);
    (case.traffic.seconds, case.traffic.window, case.traffic.peer_us) = (60.0, 16 << 20, 10_000.0);
    for loss in [1e-4, 1e-3, 1e-2] {
        case.link.loss = loss;
        let got = predict(&case);
        // Mathis and others, 1997: the window is sqrt(3/2) / sqrt(loss) segments on average.
        let wanted = (1.5 / loss).sqrt() * 1448.0 * 8.0 / 10.1e-3;
        assert!((got.total() / wanted - 1.0).abs() < 0.25, "{loss}: {} of {wanted}", got.total());
        assert!((got.loss / loss - 1.0).abs() < 0.25 && got.drops.line > 0, "{got:?}");
    }
}

#[test]
fn udp_loses_what_the_line_damages() {
    let mut case = receiver();
    (case.traffic.seconds, case.link.loss) = (2.0, 0.05);
    let got = predict(&case);
    assert!((got.loss - 0.05).abs() < 0.01 && got.drops.line + got.received + 1 >= got.sent, "{got:?}");
}

#[test]
fn a_receiver_acknowledges_a_lone_segment_after_40_ms() {
    let mut case = receiver();
    (case.traffic.protocol, case.traffic.payload, case.traffic.window) = (Protocol::Tcp, 1448, 1448);
    case.traffic.seconds = 2.0;
    for direction in [Direction::Rx, Direction::Tx, Direction::Forward] {
        case.traffic.direction = direction;
        let got = predict(&case);
        assert!((48..=51).contains(&got.received) && got.loss == 0.0, "{direction:?}: {got:?}");
    }
    case.traffic.ack_every = 1;
    assert!(predict(&case).received > 5_000);
}

#[test]
fn interrupts_for_each_packet_forward_in_both_directions() {
    let mut case = receiver();
    (case.traffic.direction, case.traffic.protocol, case.traffic.payload) =
        (Direction::Both, Protocol::Tcp, 1448);
    case.forward.slow_ns = 1_000.0;
    let polled = predict(&case);
    case.driver.interrupt = Interrupt::PerPacket;
    let interrupted = predict(&case);
    for (polled, interrupted) in polled.goodput.iter().zip(&interrupted.goodput) {
        assert!(*polled > 500e6 && (interrupted / polled - 1.0).abs() < 0.1, "{polled} {interrupted}");
    }
}

#[test]
fn half_the_width_of_the_memory_costs_what_its_lines_cost() {
    let mut case = receiver();
    (case.cpu.stack_rx_ns, case.cpu.memory_share) = (10_000.0, 0.5);
    near(cost(&case), 10_000.0);
    // A line of 32 bytes takes 6 cycles and 16 transfers instead of 6 and 8.
    case.memory.width = 16;
    near(cost(&case), 5_000.0 + 5_000.0 * 22.0 / 14.0);
}

#[test]
fn pages_that_are_passed_up_cost_per_frame_and_copies_do_not() {
    let mut case = receiver();
    (case.driver.rx_ns, case.driver.fragment_ns) = (1_000.0, 2_000.0);
    near(cost(&case), 3_000.0);
    case.driver.receive = Receive::CopyAligned;
    near(cost(&case), 1_000.0);
}

#[test]
fn a_pause_ends_with_its_quanta_or_with_xon() {
    let mut case = receiver();
    (case.traffic.payload, case.traffic.rate, case.bus.rx_rate) = (1472, 950e6, 500e6);
    (case.fifo.bytes, case.fifo.pause, case.switch.buffer) = (16 << 10, true, 64 << 10);
    (case.fifo.almost_full, case.fifo.almost_empty) = (8_000, 2_000);
    let long = predict(&case);
    assert!(long.drops.fifo == 0 && long.pauses > 0, "{long:?}");
    // 6000 bytes come at 487 Mbit/s more than DMA takes, and go at 500: a pause each 195 us, and some more for the
    // frame that has begun.
    let each = 0.2 / long.pauses as f64;
    assert!((195e-6..230e-6).contains(&each), "{each}");
    // Pauses of 30 us end before DMA has made room; a frame follows each, and nothing is lost.
    case.fifo.pause_quanta = 60;
    let short = predict(&case);
    assert!(short.pauses > 3 * long.pauses && short.drops.fifo == 0, "{short:?}");
    // Without a level that sends them, there is none.
    case.fifo.xoff = false;
    let none = predict(&case);
    assert!(none.pauses == 0 && none.drops.fifo > 1_000, "{none:?}");
}
