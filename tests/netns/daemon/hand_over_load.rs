//! `shunt restart` again and again while packets pass in both directions through NAT, and daemons that are killed at
//! random moments of a hand-over. The long tests print their figures; docs/guide/upgrade.md has them.

use crate::{
    hand_over::{DEAD_MAN, Rig, SLOW_PER_RESTART, next_daemon},
    left_behind::Settings,
    watched::has_ended,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{Engine, RestartKind, Status};
use shunt_testkit::{
    ENGINES, KernelObjects, Stop, Tap, backlog, require_root, rulesets, wait_for, wait_until,
};
use shunt_wire::Packet;
use std::{
    fmt, fs,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Packets of each direction.
const HALF_A_MILLION: u32 = 500_000;
/// Packets of each direction are sent so often, as many as are due.
const STEP: Duration = Duration::from_millis(1);
/// A sender that was held up sends no more than this at once: the ring of a veth has 256.
const BURST: u32 = 64;
const MARK: &[u8] = b"number ";
/// A packet that takes longer than this through the router is late: many times what an idle router takes.
const LATE: Duration = Duration::from_millis(20);
/// A hand-over that takes longer has met a kernel that keeps everybody waiting, as on a machine that is much too busy.
const KERNEL_MAX: Duration = Duration::from_millis(4900);
/// How long the kernel may take to free what a daemon has held, on such a machine.
const FREED: Duration = Duration::from_secs(60);
/// As LASTING_FLOWS says: each flow is proved so often without a restart.
const PROOF: Duration = Duration::from_secs(30);

/// How long packets are watched after a kill, and how soon Linux must have all of them.
const WATCHED: Duration = Duration::from_secs(5);
const DEAD_MAN_EXACTLY: Duration = Duration::from_secs(3);

/// One direction of a connection.
struct Direction {
    name: &'static str,
    from: Tap,
    to: Tap,
    packet: Packet,
    received: AtomicU32,
}

/// What has become of the packets of a direction.
#[derive(Debug, Default)]
struct Outcome {
    name: &'static str,
    sent: u32,
    /// How often each came.
    seen: Vec<u8>,
    late: u32,
    longest_delay: Duration,
    /// The longest time without a packet.
    longest_gap: Duration,
    /// Packets that came after one that was sent later.
    overtaken: u32,
}

impl Direction {
    /// Sends packets at a steady rate until `ends` says so for the number of packets sent; returns that.
    fn send(&self, per_step: u32, mut ends: impl FnMut(u32) -> bool) -> u32 {
        let begin = Instant::now();
        let mut sent = 0;
        while !ends(sent) {
            let due = (begin.elapsed().as_micros() / STEP.as_micros()) as u32 * per_step;
            for _ in 0..due.saturating_sub(sent).min(BURST) {
                self.from.send(&self.packet.clone().payload(payload(sent)).with_id(sent as u16));
                sent += 1;
                if ends(sent) {
                    break;
                }
            }
            thread::sleep(STEP);
        }
        sent
    }

    /// Receives until no packet has come for a second after the end.
    fn receive(&self, stop: &Stop) -> Outcome {
        let mut outcome = Outcome { name: self.name, ..Outcome::default() };
        let mut last: Option<(u32, Duration)> = None;
        loop {
            let ended = stop.is_set();
            let Some((frame, arrived)) = self.to.next_stamped(Duration::from_secs(1)) else {
                if ended {
                    return outcome;
                }
                continue;
            };
            let Some(packet) = frame.packet().filter(|packet| packet.payload.starts_with(MARK)) else {
                continue;
            };
            assert_eq!(packet.hop_limit(), Some(63), "{packet:?}");
            self.received.fetch_add(1, Ordering::SeqCst);
            let (number, left) = number_and_time(&packet.payload[MARK.len()..]);
            let delay = arrived.saturating_sub(left);
            outcome.late += u32::from(delay > LATE);
            outcome.longest_delay = outcome.longest_delay.max(delay);
            if let Some((before, at)) = last {
                outcome.longest_gap = outcome.longest_gap.max(arrived.saturating_sub(at));
                outcome.overtaken += u32::from(number < before);
            }
            last = Some((number.max(last.map_or(0, |(before, _)| before)), arrived));
            let place = number as usize;
            if outcome.seen.len() <= place {
                outcome.seen.resize(place + 1, 0);
            }
            outcome.seen[place] = outcome.seen[place].saturating_add(1);
        }
    }
}

impl Outcome {
    fn lost(&self) -> u32 {
        self.sent - self.seen.iter().filter(|times| **times > 0).count() as u32
    }

    fn doubled(&self) -> usize {
        self.seen.iter().filter(|times| **times > 1).count()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} sent, {} lost, {} came twice, {} overtaken, {} later than {LATE:?} (at most {:?}), none for at most {:?}",
            self.name,
            self.sent,
            self.lost(),
            self.doubled(),
            self.overtaken,
            self.late,
            self.longest_delay,
            self.longest_gap
        )
    }
}

/// The number of a packet, and when it is sent.
fn payload(number: u32) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    [MARK, &number.to_be_bytes(), &now.to_be_bytes()].concat()
}

fn number_and_time(payload: &[u8]) -> (u32, Duration) {
    let (number, time) = payload.split_at(4);
    let nanoseconds = u64::from_be_bytes(time.try_into().unwrap());
    (u32::from_be_bytes(number.try_into().unwrap()), Duration::from_nanos(nanoseconds))
}

/// Both directions of a masqueraded connection, which conntrack knows.
#[track_caller]
fn both_directions(rig: &Rig) -> [Direction; 2] {
    let (lan, wan) = (rig.lab.lan(), rig.lab.wan());
    let request = lan.udp_to(4001, wan.at(5001));
    let translated = rig.stage.pass(&request.clone().payload("translate me"));
    assert_ne!(translated.source(), request.source(), "the router does not translate");
    let answer = wan.answer_to(&translated);
    let direction = |name, from: Tap, to: Tap, packet| {
        to.stamp();
        Direction { name, from, to, packet, received: AtomicU32::default() }
    };
    [
        direction("to the WAN", lan.tap(), wan.tap(), request),
        direction("to the LAN", wan.tap(), lan.tap(), answer),
    ]
}

/// Sends in both directions while `act` runs: until `count` packets have been sent, or, without one, until `act` has
/// ended. Returns what has become of the packets.
fn during_traffic(
    directions: &[Direction; 2],
    (per_step, count): (u32, Option<u32>),
    act: impl FnOnce(&dyn Fn() -> bool),
) -> Vec<Outcome> {
    let (stop, received) = (Stop::default(), Stop::default());
    let ends = |sent: u32| stop.is_set() || count.is_some_and(|count| sent >= count);
    thread::scope(|scope| {
        let end_all = received.on_drop();
        let received = &received;
        let receivers = directions.each_ref().map(|direction| scope.spawn(|| direction.receive(received)));
        let senders =
            directions.each_ref().map(|direction| scope.spawn(move || direction.send(per_step, ends)));
        let end = stop.on_drop();
        act(&|| senders.iter().any(|sender| !sender.is_finished()));
        if count.is_none() {
            drop(end);
        } else {
            wait_for(Duration::from_secs(600), || senders.iter().all(|s| s.is_finished()).then_some(()));
        }
        let sent = senders.map(|sender| sender.join().unwrap());
        drop(end_all);
        receivers
            .into_iter()
            .zip(sent)
            .map(|(receiver, sent)| Outcome { sent, ..receiver.join().unwrap() })
            .collect()
    })
}

/// Restarts the daemon again and again while `count` packets pass in each direction.
#[track_caller]
fn restarts_during_traffic(
    engine: Engine,
    count: u32,
    pause: Duration,
    variables: &[(&str, &str)],
) -> Vec<u64> {
    let rig = Rig::behind(rulesets::HOME_GATEWAY, variables);
    let directions = both_directions(&rig);
    rig.up(engine);
    let mut times = 0;
    let (mut begin, mut gaps) = (None, Vec::new());
    let since = Instant::now();
    let full_before = backlog::dropped();
    let outcomes = during_traffic(&directions, (4, Some(count)), |goes_on| {
        wait_until("both directions are fast", || rig.status().flows.active == 2);
        let status = begin.insert(rig.status());
        assert!(status.ports.iter().all(|port| port.engine == engine), "{status:#?}");
        loop {
            let next = Instant::now() + pause;
            wait_for(pause, || (!goes_on() || Instant::now() >= next).then_some(()));
            if !goes_on() {
                break;
            }
            let (_, kind) = rig.restart();
            let RestartKind::TakenOver { gap_ms } = kind else { panic!("{kind:?}: {}", rig.log()) };
            gaps.push(gap_ms);
            times += 1;
        }
    });
    let elapsed = since.elapsed();
    let (begin, status) = (begin.unwrap(), rig.status());
    let by = |status: &Status, reason: &str| status.reasons.get(reason).copied().unwrap_or_default();
    let since_begin = |reason| by(&status, reason) - by(&begin, reason);
    // A kernel that keeps the daemon waiting for seconds lets all packets take the slow path.
    let held: u64 = ["no-daemon", "ruleset"].map(since_begin).iter().sum();
    let slow = status.packets.slow - begin.packets.slow - held;
    let fast = status.packets.fast - begin.packets.fast;
    let elsewhere = backlog::dropped() - full_before;
    eprintln!(
        "{engine}: {times} restarts in {elapsed:.0?}, handed over in {gaps:?} ms; {fast} packets fast, {slow} slow, {held} \
         because the kernel kept the daemon waiting; {elsewhere} lost in this machine's shared queues"
    );
    outcomes.iter().for_each(|outcome| eprintln!("{engine}: {outcome}"));
    assert!(times > 0, "no restart");
    for outcome in &outcomes {
        assert_eq!(outcome.doubled(), 0, "packets came twice: {outcome}");
    }
    let lost: u64 = outcomes.iter().map(|outcome| u64::from(outcome.lost())).sum();
    assert!(lost <= elsewhere, "{lost} packets were lost");
    assert_eq!(status.epoch, begin.epoch, "{:?}: {}", status.epoch_moves, rig.log());
    let proofs = elapsed.as_secs() / PROOF.as_secs() + 1;
    let allowed = 2 * SLOW_PER_RESTART * (times + proofs);
    assert!(slow <= allowed, "{slow} packets were slow: {:?}", status.reasons);
    let longest = gaps.iter().max().copied().map(Duration::from_millis);
    let unbeaten = since_begin("no-daemon");
    assert!(
        unbeaten == 0 || longest > Some(KERNEL_MAX),
        "{unbeaten} packets were slow: {:?}",
        status.reasons
    );
    rig.shunt.done("down");
    assert_eq!(Settings::read(rig.lab.router()), rig.before);
    gaps
}

#[test]
fn restarts_lose_no_packet_of_either_direction_through_nat() {
    if require_root() {
        restarts_during_traffic(Engine::Xdp, 40_000, Duration::from_secs(1), &[]);
    }
}

#[test]
fn flows_stay_fast_while_the_kernel_is_slow_to_exchange_programs() {
    if require_root() {
        let slow = [("SHUNT_HANDOVER_FAULT", "slow:next-exchanged")];
        let gaps = restarts_during_traffic(Engine::Tc, 30_000, Duration::from_secs(1), &slow);
        // Longer than packets stay fast without a heartbeat.
        assert!(gaps.iter().all(|gap_ms| *gap_ms > 3000), "{gaps:?}");
    }
}

#[test]
#[ignore = "it takes five minutes"]
fn restarts_lose_none_of_a_million_packets_through_nat() {
    if require_root() {
        for engine in ENGINES {
            restarts_during_traffic(engine, HALF_A_MILLION, Duration::from_secs(3), &[]);
        }
    }
}

/// Kills the running daemon or the next one at random moments of restarts, during traffic.
#[track_caller]
fn killed_at_random_moments(engine: Engine, rounds: u32) {
    let seed = fastrand::u64(..);
    eprintln!("{engine}: seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let rig = Rig::behind(rulesets::HOME_GATEWAY, &[]);
    let directions = both_directions(&rig);
    // How long a restart takes here.
    rig.up(engine);
    let begin = Instant::now();
    rig.restart();
    let usual = begin.elapsed();
    let (mut goes_on, mut takes_over, mut linux) = (0, 0, 0);
    let mut slowest = Duration::ZERO;
    let full_before = backlog::dropped();
    let outcomes = during_traffic(&directions, (1, None), |_| {
        for round in 0..rounds {
            wait_until("both directions are fast", || rig.status().flows.active >= 2);
            let running = rig.status().pid;
            let held = KernelObjects::held_by(running);
            let links = held.only_links();
            let restart = rig.shunt.start("restart");
            // A random moment is the point of this test: nothing is waited for.
            thread::sleep(usual.mul_f64(random.f64() * 1.2));
            let next = next_daemon(rig.shunt.instance(), running);
            let victim = next.filter(|_| random.bool()).unwrap_or(running as i32);
            let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
            let killed = Instant::now();
            let what = if victim == running as i32 { "running" } else { "next" };
            let daemon = wait_for(DEAD_MAN, || {
                let status = rig.shunt.run("status --json");
                match status.code {
                    Some(21) if links.is_freed() => Some(None),
                    Some(0) => {
                        let status: Status = serde_json::from_str(&status.out).ok()?;
                        (status.pid != victim as u32 && has_ended(victim as u32)).then_some(Some(status.pid))
                    }
                    _ => None,
                }
            });
            let now = || {
                format!("{:?}, {links:?} freed: {}, {}", rig.shunt.run("status"), links.is_freed(), rig.log())
            };
            let log = || format!("round {round}, the {what} daemon was killed: {}", now());
            let daemon = daemon.unwrap_or_else(|| panic!("neither a daemon nor Linux alone: {}", log()));
            slowest = slowest.max(killed.elapsed());
            if daemon.is_none() {
                let freed = wait_for(FREED, || held.is_freed().then_some(()));
                assert!(freed.is_some(), "BPF objects are left in the kernel: {}", log());
            }
            match daemon {
                Some(pid) if pid == running => goes_on += 1,
                Some(_) => takes_over += 1,
                None => linux += 1,
            }
            rig.stage.pass(&rig.packet);
            drop(restart);
            wait_until("no other daemon gets ready", || {
                next_daemon(rig.shunt.instance(), daemon.unwrap_or_default()).is_none()
            });
            if rig.shunt.run("status").code == Some(21) {
                rig.shunt.run("down");
                rig.up(engine);
            }
        }
    });
    let elsewhere = backlog::dropped() - full_before;
    eprintln!(
        "{engine}: {rounds} kills within {:?}: the running daemon went on {goes_on} times, the next one took over {takes_over} times, Linux \
         went on alone {linux} times, within {slowest:?}; {elsewhere} packets lost in this machine's shared queues",
        usual.mul_f64(1.2)
    );
    outcomes.iter().for_each(|outcome| eprintln!("{engine}: {outcome}"));
    for outcome in &outcomes {
        assert_eq!(outcome.doubled(), 0, "packets came twice: {outcome}");
        assert!(outcome.longest_gap < DEAD_MAN, "{outcome}");
    }
    let lost: u64 = outcomes.iter().map(|outcome| u64::from(outcome.lost())).sum();
    // When XDP is attached or detached, the driver discards what is in its rings.
    if engine == Engine::Tc {
        assert!(lost <= elsewhere, "{lost} packets were lost");
    }
    rig.shunt.run("down");
    assert_eq!(Settings::read(rig.lab.router()), rig.before);
}

#[test]
#[ignore = "it takes ten minutes"]
fn a_daemon_that_is_killed_at_a_random_moment_of_a_hand_over_leaves_one_that_works_or_linux() {
    if require_root() {
        for engine in ENGINES {
            killed_at_random_moments(engine, 40);
        }
    }
}

/// Packets of both directions by a moment: those that have come, and those that Linux has forwarded.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    received: i64,
    forwarded: i64,
}

impl Sample {
    /// Read in the router's namespace.
    fn take(directions: &[Direction; 2]) -> Self {
        // In this order: a packet in between makes fast ones fewer, and the last of them later.
        let received = directions.iter().map(|d| i64::from(d.received.load(Ordering::SeqCst))).sum();
        Self { forwarded: forwarded(), received, at: Instant::now() }
    }

    fn fast(&self) -> i64 {
        self.received - self.forwarded
    }
}

/// The number of packets that Linux has forwarded in the namespace of this thread.
fn forwarded() -> i64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let [names, values] =
        [0, 1].map(|nth| text.lines().filter(|line| line.starts_with("Ip:")).nth(nth).unwrap());
    let mut fields = names.split_whitespace().zip(values.split_whitespace());
    fields.find(|(name, _)| *name == "ForwDatagrams").unwrap().1.parse().unwrap()
}

/// The moment by which the last fast packet has come.
fn last_fast(samples: &[Sample]) -> Instant {
    let most = samples.iter().map(Sample::fast).max();
    samples.iter().find(|sample| Some(sample.fast()) == most).unwrap().at
}

#[test]
fn the_last_fast_packet_is_the_one_after_which_linux_forwards_as_many_as_come() {
    let begin = Instant::now();
    let counts = [(0, 0), (5, 0), (9, 1), (12, 5), (16, 8), (20, 12), (21, 14), (24, 16)];
    let samples = counts.into_iter().enumerate().map(|(at, (received, forwarded))| Sample {
        at: begin + Duration::from_secs(at as u64),
        received,
        forwarded,
    });
    assert_eq!(last_fast(&samples.collect::<Vec<_>>()), begin + Duration::from_secs(2));
}

/// Kills the running daemon, the next one or both at random moments of restarts, until Linux has gone on alone `wanted`
/// times; returns how long after the kill the last fast packet came.
#[track_caller]
fn until_linux_has_all(engine: Engine, wanted: usize) -> Vec<Duration> {
    let seed = fastrand::u64(..);
    eprintln!("{engine}: seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let rig = Rig::behind(rulesets::HOME_GATEWAY, &[]);
    let directions = both_directions(&rig);
    rig.up(engine);
    let begin = Instant::now();
    rig.restart();
    let usual = begin.elapsed();
    let (mut took, mut kept) = (Vec::new(), 0);
    during_traffic(&directions, (1, None), |_| {
        while took.len() < wanted {
            assert!(kept < 3 * wanted, "a daemon goes on nearly always");
            wait_until("both directions are fast", || rig.status().flows.active >= 2);
            let running = rig.status().pid;
            let stop = Stop::default();
            let (killed, samples) = thread::scope(|scope| {
                let sampler = scope.spawn(|| {
                    rig.lab.router().enter();
                    let mut samples = Vec::new();
                    while !stop.is_set() {
                        samples.push(Sample::take(&directions));
                        thread::sleep(STEP);
                    }
                    samples
                });
                let end = stop.on_drop();
                let restart = rig.shunt.start("restart");
                // A random moment is the point of this test: nothing is waited for.
                thread::sleep(usual.mul_f64(random.f64() * 1.2));
                let next = next_daemon(rig.shunt.instance(), running);
                let mut victims: Vec<i32> = next.into_iter().chain([running as i32]).collect();
                random.shuffle(&mut victims);
                victims.truncate(random.usize(1..=2));
                for victim in victims {
                    let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
                }
                let killed = Instant::now();
                // Nor here, so that nothing but the kernel acts.
                thread::sleep(WATCHED);
                drop((end, restart));
                (killed, sampler.join().unwrap())
            });
            let before = samples.iter().rfind(|sample| sample.at < killed).unwrap();
            assert!(before.fast() > samples[0].fast(), "no packet was fast before the kill");
            if rig.shunt.run("status").code == Some(21) {
                took.push(last_fast(&samples).saturating_duration_since(killed));
                rig.shunt.run("down");
                rig.up(engine);
            } else {
                kept += 1;
            }
            wait_until("no other daemon gets ready", || {
                next_daemon(rig.shunt.instance(), rig.status().pid).is_none()
            });
        }
    });
    rig.shunt.run("down");
    took.sort();
    eprintln!(
        "{engine}: Linux went on alone {} times and a daemon {kept} times; the last fast packet came after {:?} \
         (median), {:?} at most: {took:?}",
        took.len(),
        took[took.len() / 2],
        took.last().unwrap()
    );
    took
}

#[test]
#[ignore = "it takes ten minutes"]
fn linux_has_all_packets_within_three_seconds_of_a_damaged_hand_over() {
    if require_root() {
        for engine in ENGINES {
            let took = until_linux_has_all(engine, 20);
            assert!(took.iter().all(|took| *took < DEAD_MAN_EXACTLY), "{engine}: {took:?}");
        }
    }
}
