//! More what-ifs whose answers are in textbooks, each as settings of an ideal router or host.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_model::{Case, Part, Prediction, explain, run};

fn with(settings: &str) -> Case {
    let mut case = Case::default();
    for setting in
        "traffic.direction=forward traffic.seconds=0.2".split(' ').chain(settings.split_whitespace())
    {
        let (name, value) = setting.split_once('=').unwrap();
        case.set(name, value).unwrap();
    }
    case
}

fn predict(settings: &str) -> Prediction {
    run(&with(settings)).unwrap()
}

/// Mbit/s of payload.
fn rate(settings: &str) -> f64 {
    predict(settings).total() / 1e6
}

fn delay(settings: &str) -> f64 {
    predict(settings).latency.unwrap().mean_us
}

#[track_caller]
fn near(got: f64, wanted: f64, tolerance: f64) {
    assert!((got / wanted - 1.0).abs() < tolerance, "{got}, not {wanted}");
}

const TCP: &str = "traffic.direction=rx traffic.protocol=tcp traffic.payload=1448 traffic.seconds=2";
const SMALL: &str = "traffic.payload=18 forward.slow_ns=5000";

#[test]
fn tcp_without_loss_fills_the_line_with_any_mtu() {
    near(rate(&format!("{TCP} traffic.window=4194304")), 1e3 * 1448.0 / 1538.0, 0.002);
    near(rate(&format!("{TCP} traffic.window=4194304 traffic.payload=8948")), 1e3 * 8948.0 / 9038.0, 0.002);
    let buffers = "traffic.window=16777216 fifo.bytes=1000000 traffic.peer_us=10000";
    near(rate(&format!("{TCP} {buffers}")), 1e3 * 1448.0 / 1538.0, 0.05);
}

#[test]
fn tcp_falls_with_the_root_of_the_loss() {
    for (loss, peer_us) in [("0.0001", 10_000.0), ("0.001", 10_000.0), ("0.01", 10_000.0)] {
        let got = rate(&format!(
            "{TCP} traffic.seconds=60 traffic.window=16777216 link.loss={loss} traffic.peer_us={peer_us}"
        ));
        near(got, (1.5 / loss.parse::<f64>().unwrap()).sqrt() * 1448.0 * 8.0 / peer_us, 0.2);
    }
}

#[test]
fn a_bus_that_is_shared_carries_each_frame_twice() {
    let bus = "bus.rx_rate=500M bus.tx_rate=500M";
    let apart = rate(&format!("{bus} bus.shared=off"));
    near(apart, 500.0 * 1472.0 / 1518.0, 0.002);
    near(rate(&format!("{bus} bus.shared=on")), apart / 2.0, 0.002);
    near(rate(&format!("{bus} traffic.direction=both bus.shared=off")), 2.0 * apart, 0.002);
    near(rate(&format!("{bus} traffic.direction=both bus.shared=on")), apart / 2.0, 0.002);
}

#[test]
fn lines_carry_so_many_frames_of_each_size() {
    for (frame, payload) in [(64.0, 18), (128.0, 82), (1518.0, 1472), (9018.0, 8972)] {
        let got = predict(&format!("traffic.payload={payload} link.rate=100M"));
        near(got.received as f64, 0.2 * 100e6 / 8.0 / (frame + 20.0), 0.01);
    }
}

#[test]
fn a_frame_that_is_stored_waits_for_its_bytes_on_each_bus() {
    for payload in [18.0, 500.0, 1472.0] {
        let got = delay(&format!(
            "traffic.payload={payload} traffic.rate=1M fifo.section_full=0 bus.rx_rate=100M bus.tx_rate=100M"
        ));
        near(got, 2.0 * (payload + 46.0) * 8.0 / 100.0, 0.001);
    }
}

#[test]
fn random_arrivals_wait_and_regular_ones_do_not() {
    // M/D/1: the mean wait is rho / (2 (1 - rho)) services.
    for rho in [0.5, 0.9, 0.95] {
        let load = format!(
            "traffic.payload=18 forward.slow_ns=10000 traffic.seconds=10 traffic.rate={}",
            rho * 1e5 * 144.0
        );
        let wait = delay(&format!("{load} traffic.pacing=poisson")) - 10.0;
        near(wait, 10.0 * rho / (2.0 * (1.0 - rho)), 0.1);
        near(delay(&format!("{load} traffic.pacing=cbr")), 10.0, 0.001);
    }
}

#[test]
fn pause_frames_move_the_loss_to_whom_does_not_obey_them() {
    let slow = "bus.rx_rate=500M fifo.bytes=16384 fifo.pause=on switch.buffer=131072";
    let drops = |settings: &str| {
        let got = predict(&format!("{slow} {settings}"));
        near(got.total() / 1e6, 500.0 * 1472.0 / 1518.0, 0.01);
        (got.drops.fifo > 0, got.drops.switch > 0)
    };
    assert_eq!(drops("switch.pause=on"), (false, false));
    assert_eq!(drops("switch.pause=on traffic.obeys_pause=off"), (false, true));
    assert_eq!(drops("switch.pause=off"), (true, false));
}

#[test]
fn ten_times_the_clock_ends_at_the_bus_or_the_line() {
    let slow = "driver.rx_ns=1000 forward.slow_ns=19000";
    near(rate(slow), 1472.0 * 8.0 / 20.0, 0.01);
    near(rate(&format!("{slow} cpu.clock=10x")), 957.1, 0.001);
    let bus = with(&format!("{slow} cpu.clock=10x bus.rx_rate=700M"));
    let explained = explain(&bus).unwrap();
    near(explained.prediction.total() / 1e6, 700.0 * 1472.0 / 1518.0, 0.001);
    assert_eq!(explained.bottleneck, Part::Bus);
}

#[test]
fn queues_and_cores_help_together_and_only_many_flows() {
    let one = rate(SMALL);
    near(one, 144.0 / 5.0, 0.01);
    for (queues, cores, flows, gain) in
        [(2, 2, 1, 1.0), (2, 2, 1000, 2.0), (1, 2, 1000, 1.0), (2, 1, 1000, 1.0), (4, 4, 1000, 4.0)]
    {
        let got = rate(&format!("{SMALL} ring.queues={queues} cpu.cores={cores} traffic.flows={flows}"));
        near(got / one, gain, 0.02);
    }
}

#[test]
fn an_engine_that_is_faster_than_the_line_leaves_the_line_as_the_limit() {
    near(rate(&format!("{SMALL} forward.path=external forward.external_ns=1000")), 144.0, 0.01);
    near(rate(&format!("{SMALL} forward.path=external forward.external_ns=100")), 1488.095 * 0.144, 0.001);
}

#[test]
fn a_budget_of_one_packet_and_a_ring_of_one_descriptor_only_delay() {
    near(rate(&format!("{SMALL} driver.budget=1")), 144.0 / 5.0, 0.01);
    near(rate("ring.rx=1 ring.tx=1 forward.slow_ns=5000"), 957.1, 0.001);
}

#[test]
fn checksums_and_copies_cost_each_byte_once_more() {
    let load = |more: &str| {
        predict(&format!("traffic.direction=rx traffic.rate=300M cpu.stack_rx_ns=10000 {more}")).cpu
    };
    let plain = load("");
    near(load("memory.checksum_ns=4") / plain, 1.0 + 1472.0 * 4.0 / 10_000.0, 0.01);
    near(load("memory.cached_ns=4") / plain, 1.0 + 1472.0 * 4.0 / 10_000.0, 0.01);
    near(load("memory.cached_ns=4 driver.receive=copy") / plain, 1.0 + 2990.0 * 4.0 / 10_000.0, 0.01);
}

#[test]
fn coalescing_delays_a_lonely_ping_by_the_whole_time() {
    for (us, wanted) in [(0, 50.0), (100, 150.0), (1000, 1050.0)] {
        let got = predict(&format!(
            "traffic.direction=rx traffic.rate=10k traffic.ping_every_us=10000 traffic.peer_us=50 traffic.seconds=2 driver.coalesce_us={us}"
        ));
        near(got.ping.unwrap().mean_us, wanted, 0.1);
    }
}
