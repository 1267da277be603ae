//! Shapers give fast packets the same rates and the same order as slow packets.

use shunt_api::{Engine, Status};
use shunt_testkit::{Shuntd, Tap, TcpEcho, Topology, engines, is_guest, require_root, silent_router};
use shunt_wire::Packet;
use std::{
    collections::BTreeMap,
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// A class for each way to choose one: by default, by mark, by priority and by DSCP, as destination port and rate in
/// Mbit/s. Each is offered more than its rate, but so little that the shaper and not the machine is the limit.
pub(crate) const CLASSES: [(u16, u32); 4] = [(5000, 2), (5001, 3), (5002, 4), (5003, 5)];
const OFFERED: f64 = 1.5;

pub(crate) const RULES: &str = r#"table inet marks {
    chain forward {
        type filter hook forward priority mangle
        ct state invalid drop
        udp dport 5001 meta mark set 0x7
        udp dport 5002 meta priority set 1:30
    }
}"#;

pub(crate) const HTB: &str = "tc qdisc add dev r1 root handle 1: htb default 10
    tc class add dev r1 parent 1: classid 1:10 htb rate 2mbit ceil 2mbit
    tc class add dev r1 parent 1: classid 1:20 htb rate 3mbit ceil 3mbit
    tc class add dev r1 parent 1: classid 1:30 htb rate 4mbit ceil 4mbit
    tc class add dev r1 parent 1: classid 1:40 htb rate 5mbit ceil 5mbit
    for n in 10 20 30 40; do tc qdisc add dev r1 parent 1:$n pfifo limit 30; done
    tc filter add dev r1 parent 1: protocol ip prio 1 bpf bytecode '4,32 0 0 4294963220,21 0 1 7,6 0 0 65568,6 0 0 0'
    tc filter add dev r1 parent 1: protocol ip prio 2 u32 match ip dsfield 0x20 0xfc flowid 1:40";

/// DSCP CS1.
const CLASS_1: u8 = 0x20;
/// Payloads begin with this, followed by the number of the run and of the packet.
const STREAM: &[u8] = b"rate";
const PAYLOAD_BYTES: usize = 1200;

/// Rates and durations of a run.
pub(crate) struct Pace {
    /// Offered rate, relative to the rate of the class.
    offered: f64,
    /// Time until queues are full and the shaper has settled.
    pub(crate) settle: Duration,
    /// How long packets are counted then.
    pub(crate) watch: Duration,
    /// Permitted relative difference.
    tolerance: f64,
}

const PACE: Pace = Pace {
    offered: OFFERED,
    settle: Duration::from_millis(700),
    watch: Duration::from_millis(2000),
    tolerance: 0.03,
};

/// A tenth of the rate, for QEMU guests.
const SLOW_PACE: Pace = Pace {
    offered: OFFERED / 10.0,
    settle: Duration::from_secs(4),
    watch: Duration::from_secs(6),
    tolerance: 0.05,
};

pub(crate) fn pace() -> &'static Pace {
    if is_guest() { &SLOW_PACE } else { &PACE }
}

pub(crate) const ROUNDS_MIN: u32 = 1;
pub(crate) const ROUNDS_MAX: u32 = 6;

/// Rate per second, by destination port.
pub(crate) type Rates = BTreeMap<u16, f64>;

fn packets(lab: &Topology) -> Vec<Packet> {
    let packet = |(port, _)| {
        let packet = lab.lan().udp_to(4000, lab.wan().at(port));
        if port == 5003 { packet.with_class(CLASS_1) } else { packet }
    };
    CLASSES.into_iter().map(packet).collect()
}

/// The first bytes of all payloads of a run.
pub(crate) fn payload_prefix(run: u32) -> Vec<u8> {
    [STREAM, &run.to_be_bytes()[..]].concat()
}

/// Offers each class more than its rate, until `stop` is set or twice the duration of a run has passed.
pub(crate) fn offer(lab: &Topology, run: u32, stop: &AtomicBool) {
    let (tap, packets) = (lab.lan().tap(), packets(lab));
    let since = Instant::now();
    let mut sent = [0_u32; CLASSES.len()];
    while !stop.load(Ordering::Relaxed) && since.elapsed() < 2 * (pace().settle + pace().watch) {
        for ((packet, (_, mbit)), sent) in packets.iter().zip(CLASSES).zip(&mut sent) {
            let per_second = f64::from(mbit) * pace().offered * 1e6 / 8.0 / PAYLOAD_BYTES as f64;
            while f64::from(*sent) < since.elapsed().as_secs_f64() * per_second {
                let mut payload = [payload_prefix(run), sent.to_be_bytes().to_vec()].concat();
                payload.resize(PAYLOAD_BYTES, 0);
                tap.send(&packet.clone().payload(payload));
                *sent += 1;
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Adds up the amounts of the packets that arrive after the shaper has settled; returns rates per second by port. The
/// time of arrival is the kernel's time stamp.
#[track_caller]
fn watch(exit: &Tap, mut amount: impl FnMut(&Packet) -> Option<(u16, usize)>) -> Rates {
    exit.stamp();
    let Pace { settle, watch, .. } = *pace();
    let mut first = None;
    let mut sums = BTreeMap::new();
    while let Some((frame, arrived)) = exit.next_stamped(watch) {
        let Some((port, amount)) = frame.packet().and_then(|packet| amount(&packet)) else { continue };
        let after = arrived.saturating_sub(*first.get_or_insert(arrived));
        if after > settle + watch {
            break;
        }
        if after > settle {
            *sums.entry(port).or_insert(0) += amount;
        }
    }
    sums.into_iter().map(|(port, sum)| (port, sum as f64 / watch.as_secs_f64())).collect()
}

/// Measures the rate of each class while all are offered more. Asserts that each flow's packets leave in order.
#[track_caller]
pub(crate) fn rates(lab: &Topology) -> Rates {
    static RUN: AtomicU32 = AtomicU32::new(1);
    let (run, stop) = (RUN.fetch_add(1, Ordering::Relaxed), AtomicBool::new(false));
    let (exit, start) = (lab.wan().tap(), payload_prefix(run));
    let mut last = BTreeMap::new();
    thread::scope(|scope| {
        scope.spawn(|| offer(lab, run, &stop));
        let rates = watch(&exit, |packet| {
            let number = packet.payload.strip_prefix(&start[..])?;
            let number = u32::from_be_bytes(number[..4].try_into().unwrap());
            let port = packet.destination().unwrap().port();
            let before = last.insert(port, number);
            assert!(
                before.is_none_or(|before| before < number),
                "port {port}: packet {number} after {before:?}"
            );
            Some((port, 1))
        });
        stop.store(true, Ordering::Relaxed);
        rates
    })
}

fn by_tc(status: &Status) -> u64 {
    status.ports.iter().map(|port| port.packets.tc).sum()
}

/// Measures with Shunt. Asserts that the packets are fast by tc, and that `auto` names the qdisc as its reason.
#[track_caller]
pub(crate) fn rates_with_shunt(lab: &Topology, kind: &str) -> Rates {
    let shuntd = Shuntd::on(lab.router()).start();
    let status = shuntd.status();
    let port = status.ports.iter().find(|port| port.name == "r1").unwrap();
    let is_why = !engines().contains(&Engine::Xdp) || port.engine_reason.contains(kind);
    assert!(port.engine == Engine::Tc && is_why, "{}", port.engine_reason);
    let rates = rates(lab);
    let status = shuntd.status();
    let share = by_tc(&status) as f64 / (status.packets.slow + by_tc(&status)) as f64;
    assert!(share > 0.9, "only {share} of the packets were fast: {status:#?}");
    shuntd.stop();
    rates
}

/// Measures with Shunt and without in turn, and asserts that the rates of all classes agree. The best of several rounds
/// counts, since other load can only make a class slower.
#[track_caller]
pub(crate) fn compare(
    kind: &str,
    classes: usize,
    with_shunt: impl Fn() -> Rates,
    without: impl Fn() -> Rates,
) {
    let mut best = [Rates::new(), Rates::new()];
    for round in 1..=ROUNDS_MAX {
        for (best, rates) in best.iter_mut().zip([with_shunt(), without()]) {
            for (port, rate) in rates {
                let best = best.entry(port).or_default();
                *best = rate.max(*best);
            }
        }
        let [with, without] = &best;
        let mut alike = with.len() == classes && without.len() == classes;
        for (port, without) in without {
            let off = with.get(port).unwrap_or(&0.0) / without - 1.0;
            eprintln!("{kind}, round {round}, port {port}: {:+.2} % of {without:.1}", 100.0 * off);
            alike &= off.abs() < pace().tolerance;
        }
        if alike && round >= ROUNDS_MIN {
            return;
        }
    }
    panic!("{kind}: rates with Shunt and without differ: {best:?}");
}

pub(crate) fn shaped(rules: &str, shaper: &str) -> Topology {
    let lab = silent_router(rules);
    lab.keep_order();
    // Guests get a tenth of the rate.
    lab.router().run(&if is_guest() { shaper.replace("mbit", "00kbit") } else { shaper.to_owned() });
    lab
}

#[test]
fn classes_by_mark_priority_and_dscp_get_their_rates() {
    if !require_root() {
        return;
    }
    let lab = shaped(RULES, HTB);
    compare("htb", CLASSES.len(), || rates_with_shunt(&lab, "htb"), || rates(&lab));
    // Each class has forwarded packets.
    let output = lab.router().run("tc -s class show dev r1");
    for class in ["1:10", "1:20", "1:30", "1:40"] {
        let rest = output.split(&format!("class htb {class} ")).nth(1).unwrap();
        let sent: u64 = rest.split("Sent ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(sent > 1_000_000, "{output}");
    }
}

#[test]
fn a_token_bucket_gives_its_rate() {
    if !require_root() {
        return;
    }
    let lab = shaped(RULES, "tc qdisc add dev r1 root tbf rate 6mbit burst 5000 limit 60000");
    // All flows share the bucket, so only their sum is defined.
    let sum = |rates: Rates| Rates::from([(0, rates.values().sum())]);
    compare("tbf", 1, || sum(rates_with_shunt(&lab, "tbf")), || sum(rates(&lab)));
}

/// Measures bytes of TCP per second, in aggregates of GSO and GRO.
#[track_caller]
fn tcp_rate(lab: &Topology, shuntd: Option<&Shuntd>) -> Rates {
    let (server, exit) = (lab.wan().at(80), lab.wan().tap());
    let _echo = TcpEcho::start(&lab.wan().ns, server);
    let mut stream = lab.lan().ns.within(|| TcpStream::connect(server)).unwrap();
    let mut back = stream.try_clone().unwrap();
    back.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let stop = AtomicBool::new(false);
    let rate = thread::scope(|scope| {
        scope.spawn(|| {
            let (data, since) = (vec![7; 16 << 10], Instant::now());
            let goes_on =
                || !stop.load(Ordering::Relaxed) && since.elapsed() < 2 * (pace().settle + pace().watch);
            while goes_on() && stream.write_all(&data).is_ok() {}
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        scope.spawn(|| std::io::copy(&mut back, &mut std::io::sink()));
        let rate = watch(&exit, |packet| packet.tcp().map(|_| (80, packet.payload.len())));
        stop.store(true, Ordering::Relaxed);
        rate
    });
    if let Some(shuntd) = shuntd {
        let bytes = shuntd.status().bytes;
        assert!(bytes.fast > 4 * bytes.slow, "{bytes:?}");
    }
    rate
}

#[test]
fn aggregates_get_the_rate_of_their_class() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(RULES);
    lab.router().run(
        "tc qdisc add dev r1 root handle 1: htb default 10
        tc class add dev r1 parent 1: classid 1:10 htb rate 10mbit ceil 10mbit
        tc qdisc add dev r1 parent 1:10 pfifo limit 50",
    );
    let with_shunt = || {
        let shuntd = Shuntd::on(lab.router()).start();
        let rate = tcp_rate(&lab, Some(&shuntd));
        shuntd.stop();
        rate
    };
    compare("TCP", 1, with_shunt, || tcp_rate(&lab, None));
}
