//! Follows the packets of all flows for a time, from the records of the programs.

use super::{
    abi,
    fault::Way,
    follow::{Follower, Waits},
    programs::{Observed, Programs, Taps},
    request::{Flow, Owner, Request, VerifyError},
    segment::segments,
};
use crate::trace::{abi::TraceTuple, machine};
use nix::{
    net::if_::if_nametoindex,
    time::{ClockId, clock_gettime},
};
use shunt_api::{Engine, Proto, Tuple};
use shunt_lab::statistics::median;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

/// In how many slots packets vanish at XDP before XDP is said to lose them.
const SLOTS_OF_LOSS: usize = 3;

/// Each of these has a budget.
const SLOT: Duration = Duration::from_millis(100);
/// Bytes that may enter in a slot, with what each packet costs besides: 2,000 packets of 1,500 bytes a second.
const BUDGET: u64 = 512 * 1024;
/// How often records are taken from the buffers.
const INTERVAL: Duration = Duration::from_millis(5);
/// A packet that has not left after this time is lost: queues hold no packet for longer.
pub(super) const LONGEST_STAY: Duration = Duration::from_secs(1);
/// If Linux was seen to drop as many packets as have not left, they are given up after this time.
const STAY_OF_DROPPED: Duration = Duration::from_millis(250);
/// Records of different CPUs are in order once they are older than this.
const SETTLED: Duration = Duration::from_millis(2);
/// Reasons of the kernel up to this one are no reason: the driver of a veth frees with them what the other end took.
const NO_DROP_REASON: u32 = 2;
/// The reason for what a tc program drops, as Shunt's would.
const BY_PROGRAM: &str = "TC_INGRESS";

#[derive(Debug, Default)]
pub(super) struct Observation {
    pub(super) follower: Follower,
    /// The place of the other direction.
    reverse: Option<usize>,
    /// Round trips of earlier periods, by path.
    round_trips_before: [usize; 2],
}

pub(super) struct Observer {
    programs: Programs,
    /// Those that see the frames which XDP forwards, if there are such flows.
    pub(super) taps: Option<Taps>,
    /// The flows that can be observed.
    pub(super) flows: Vec<Flow>,
    pub(super) followers: Vec<Observation>,
    /// What cannot be observed.
    pub(super) doubts: Vec<String>,
    /// Records that may still be followed by older ones of other CPUs.
    unsettled: Vec<Observed>,
    pub(super) records_lost: u64,
    /// How many records the programs had lost when the observer last looked. While no window is open, none matters.
    lost_before: u64,
    /// After a gap, what entered before this time may have left unseen.
    blind_until_ns: u64,
    pub(super) drop_reasons: BTreeMap<u32, String>,
    /// How long the last period waited for packets that were on their way: the next ones may do so, too.
    pub(super) waited: Duration,
}

impl Observer {
    /// Attaches the programs; those that the owner attaches stay for this time.
    pub(super) fn attach(
        request: &Request,
        owner: &mut dyn Owner,
        time: Duration,
    ) -> Result<Self, VerifyError> {
        let mut observer = Self {
            programs: Programs::attach()?,
            taps: None,
            flows: request.flows.clone(),
            followers: Vec::new(),
            doubts: Vec::new(),
            unsettled: Vec::new(),
            records_lost: 0,
            lost_before: 0,
            blind_until_ns: 0,
            drop_reasons: machine::drop_reasons(),
            waited: Duration::ZERO,
        };
        observer.tap(owner, time)?;
        let flows = &observer.flows;
        for (number, flow) in flows.iter().enumerate() {
            let (enters, leaves) = (tuple(flow.proto, &flow.enters), tuple(flow.proto, &flow.leaves));
            let (from, to) = (index(&flow.in_port)?, index(&flow.out_port)?);
            let before_xdp = flow.engine == Engine::Xdp;
            observer.programs.observe(number as u32, before_xdp, (from, &enters), (to, &leaves))?;
            let mut others = flows.iter().enumerate();
            let reverse = others.find(|(n, one)| *n != number && one.connection == flow.connection);
            let reverse = reverse.map(|(n, _)| n);
            observer.followers.push(Observation { reverse, ..Observation::default() });
        }
        Ok(observer)
    }

    /// Lets the programs see frames that XDP forwards. If they cannot, such flows are left out.
    fn tap(&mut self, owner: &mut dyn Owner, time: Duration) -> Result<(), VerifyError> {
        let by_xdp = self.flows.iter().filter(|flow| flow.engine == Engine::Xdp);
        let ports: BTreeSet<u32> = by_xdp.map(|flow| index(&flow.in_port)).collect::<Result<_, _>>()?;
        if ports.is_empty() {
            return Ok(());
        }
        let loaded = self.programs.load_taps(&ports).map_err(|error| error.to_string());
        match loaded.and_then(|taps| owner.attach(&taps, time).map(|()| taps)) {
            Ok(taps) => self.taps = Some(taps),
            Err(why) => {
                self.doubts.push(format!("flows of the engine xdp cannot be observed: {why}"));
                self.flows.retain(|flow| flow.engine != Engine::Xdp);
            }
        }
        Ok(())
    }

    /// Follows packets for this long, and then those that are on their way to their end.
    pub(super) fn observe(&mut self, way: Way, time: Duration, stop: &AtomicBool) -> Result<(), VerifyError> {
        self.followers.iter_mut().for_each(|one| one.follower.period = Some(way));
        let began = Instant::now();
        while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
            let slot = Instant::now();
            self.lost_before = self.programs.lost();
            self.programs.set_window(BUDGET, true)?;
            while slot.elapsed() < SLOT {
                sleep(INTERVAL);
                if !self.follow(SETTLED)? {
                    break;
                }
                if self.programs.is_full() {
                    self.drain()?;
                    break;
                }
            }
            sleep(SLOT.saturating_sub(slot.elapsed()));
        }
        self.drain()
    }

    /// Lets no further packet enter, and waits for those that are on their way.
    fn drain(&mut self) -> Result<(), VerifyError> {
        self.programs.set_window(0, true)?;
        let began = Instant::now();
        loop {
            sleep(INTERVAL);
            let is_whole = self.follow(SETTLED)?;
            let waits = self.followers.iter().map(|one| one.follower.waits()).max();
            let patience = match waits.unwrap_or(Waits::No) {
                Waits::No if self.unsettled.is_empty() => break,
                Waits::ForDropped => STAY_OF_DROPPED,
                Waits::No | Waits::Yes => LONGEST_STAY,
            };
            if !is_whole || began.elapsed() > patience {
                break;
            }
        }
        self.waited = began.elapsed();
        self.programs.set_window(0, false)?;
        self.follow(Duration::ZERO)?;
        for one in &mut self.followers {
            one.follower.give_up(u64::MAX);
            one.follower.forget(false);
        }
        Ok(())
    }

    /// Follows the packets whose records have arrived and are at least this old. Returns false if records were lost:
    /// then nothing is known of the packets on their way, and the window is closed.
    fn follow(&mut self, settled: Duration) -> Result<bool, VerifyError> {
        let now = now_ns()?;
        self.unsettled.extend(self.programs.take());
        self.unsettled.sort_by_key(|one| one.record.at_ns);
        let lost = self.programs.lost();
        if lost != self.lost_before {
            self.records_lost += lost - self.lost_before;
            self.lost_before = lost;
            self.programs.set_window(0, false)?;
            // Packets have entered since the records were taken, and leave while the window is closed.
            self.blind_until_ns = now_ns()? + SETTLED.as_nanos() as u64;
            self.unsettled.clear();
            self.followers.iter_mut().for_each(|one| one.follower.forget(true));
            return Ok(false);
        }
        let until = now.saturating_sub(settled.as_nanos() as u64);
        let at = self.unsettled.partition_point(|one| one.record.at_ns < until);
        for observed in self.unsettled.drain(..at).collect::<Vec<_>>() {
            self.handle(&observed);
        }
        for one in &mut self.followers {
            one.follower.give_up(until.saturating_sub(LONGEST_STAY.as_nanos() as u64));
        }
        Ok(true)
    }

    fn handle(&mut self, observed: &Observed) {
        let Observed { record, frame } = observed;
        let at = record.flow as usize;
        if record.at_ns < self.blind_until_ns && record.place != abi::VERIFY_LEAVES {
            return;
        }
        let is_before_xdp = self.flows.get(at).is_some_and(|flow| flow.engine == Engine::Xdp);
        let Some(one) = self.followers.get_mut(at) else { return };
        let follower = &mut one.follower;
        let mut acknowledged = None;
        match (record.place, segments(frame)) {
            (abi::VERIFY_ENTERS, Some(found)) if is_before_xdp => {
                follower.enter_before_xdp(record.at_ns, found);
            }
            (abi::VERIFY_ENTERS, Some(found)) => follower.enter(record.at_ns, found),
            (abi::VERIFY_RECEIVED, Some(found)) => follower.receive(&found),
            (abi::VERIFY_LEAVES, Some(found)) => {
                acknowledged = follower.leave(record.at_ns, way_of(record), found);
            }
            (abi::VERIFY_DROPPED | abi::VERIFY_DROPPED_LEAVING, _) => {
                let by_program = self.drop_reasons.get(&record.reason).is_some_and(|name| name == BY_PROGRAM);
                let by_linux = record.reason > NO_DROP_REASON && !by_program;
                let way = (record.place == abi::VERIFY_DROPPED_LEAVING).then(|| way_of(record));
                follower.drop(way, by_linux.then_some(record.reason), record.packets.into());
            }
            _ => follower.unseen += 1,
        }
        let reverse = one.reverse;
        if let (Some(acknowledged), Some(reverse)) = (acknowledged, reverse) {
            self.followers[reverse].follower.acknowledge(acknowledged);
        }
    }

    /// Decides whether packets that were seen before XDP and nowhere else are lost. Tracepoints can be silent for the
    /// packets of a whole softirq, so only loss at several times, and at more than while Linux forwards all packets, is
    /// the work of XDP. Returns how many packets stay undecided.
    pub(super) fn settle(&mut self) -> u64 {
        let slots = |times: BTreeSet<u64>| {
            times.into_iter().map(|ns| ns / SLOT.as_nanos() as u64).collect::<BTreeSet<_>>().len()
        };
        let all = || self.followers.iter().map(|one| &one.follower);
        let suspects: Vec<u64> = all().flat_map(Follower::suspects_ns).collect();
        let count = suspects.len() as u64;
        let by_xdp = slots(suspects.into_iter().collect());
        let missed = slots(all().flat_map(|follower| &follower.missed_ns).copied().collect());
        let are_lost = by_xdp >= SLOTS_OF_LOSS && by_xdp > missed;
        self.followers.iter_mut().for_each(|one| one.follower.settle(are_lost));
        if are_lost { 0 } else { count }
    }

    /// The median round trip of the period that ends, on this path.
    pub(super) fn round_trip(&mut self, way: Way) -> Option<f64> {
        let mut times = Vec::new();
        for one in &mut self.followers {
            let all = one.follower.tallies.get(&way).map(|tally| tally.round_trip_ns.as_slice());
            let all = all.unwrap_or_default();
            let before = &mut one.round_trips_before[usize::from(way == Way::Slow)];
            times.extend(&all[*before..]);
            *before = all.len();
        }
        median(&times)
    }
}

/// The index of a port.
/// The path of a packet that leaves.
const fn way_of(record: &abi::VerifyRecord) -> Way {
    if record.is_tracked == 0 { Way::Fast } else { Way::Slow }
}

fn index(port: &str) -> Result<u32, VerifyError> {
    if_nametoindex(port).map_err(|error| VerifyError::System {
        doing: format!("finding the port {port}"),
        source: error.into(),
    })
}

fn now_ns() -> Result<u64, VerifyError> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|error| VerifyError::System {
        doing: "reading the clock".to_owned(),
        source: error.into(),
    })?;
    Ok(Duration::from(now).as_nanos() as u64)
}

/// A tuple as the programs compare it.
fn tuple(proto: Proto, tuple: &Tuple) -> TraceTuple {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    };
    TraceTuple {
        src_be: bytes(tuple.src),
        dst_be: bytes(tuple.dst),
        sport_be: tuple.sport.to_be_bytes(),
        dport_be: tuple.dport.to_be_bytes(),
        family: if tuple.src.is_ipv4() { 4 } else { 6 },
        l4_proto: match proto {
            Proto::Tcp => 6,
            Proto::Udp => 17,
        },
        ..TraceTuple::default()
    }
}
