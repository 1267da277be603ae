//! A line between a host and the router: a wire with delay and loss, both of which are known afterwards. It replaces
//! netem, which not every kernel has.

use crate::{Host, NetNs, Stop, Tap};
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};
use shunt_lab::statistics::{median, quantile};
use std::{
    collections::VecDeque,
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

/// Frames that are longer carry data, others acknowledge.
const DATA_BYTES: usize = 200;
/// The host's end of the line, and the router's.
const ENDS: [&str; 2] = ["near", "far"];
/// How often a thread looks whether it should end.
const IDLE: Duration = Duration::from_millis(50);

/// What a line does to frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinePlan {
    /// Delay of each frame, in each direction.
    pub delay: Duration,
    /// One frame with data in this number is lost on the way to the router; 0: none.
    pub lost_to_router: u64,
    /// The same on the way to the host.
    pub lost_from_router: u64,
}

/// What a direction of a line did.
#[derive(Debug, Default)]
struct Record {
    data: AtomicU64,
    lost: AtomicU64,
    delays_ms: Mutex<Vec<f64>>,
}

/// A line, until this is dropped. Then the host has no link any more.
#[derive(Debug)]
pub struct Line {
    to_router: Arc<Record>,
    from_router: Arc<Record>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    _ns: NetNs,
}

impl Line {
    /// Puts a line between a host and its port. The host keeps its addresses and its MAC, and sends frames of the MTU
    /// with whole checksums; the caller has to see that the router does, too.
    ///
    /// # Panics
    /// If the line cannot be set up.
    #[track_caller]
    pub fn before(host: &Host, plan: LinePlan) -> Self {
        let ns = NetNs::new("line");
        let [near, far] = ENDS;
        let Host { nic, mac, v4, v6, gateway_v4, gateway_v6, .. } = host;
        ns.sysctl("ipv6/conf/all/disable_ipv6", 1);
        ns.sysctl("ipv6/conf/default/disable_ipv6", 1);
        let line = ns.name();
        host.ns.run(&format!("ip link set {nic} down && ip link set {nic} netns {line} name {far}"));
        host.ns.run(&format!(
            "ip link add {nic} address {mac} type veth peer name {near} netns {line} && \
             ethtool -K {nic} tx off tso off gso off gro on && ip link set {nic} up"
        ));
        // A wire carries each frame as it was sent: topologies have GRO on at hosts.
        ns.run(&format!(
            "ethtool -K {far} gro off && ip link set {near} up promisc on && ip link set {far} up promisc on"
        ));
        host.ns.run(&format!(
            "ip address add {v4}/24 dev {nic} && ip address add {v6}/64 dev {nic} nodad && \
             ip route add default via {gateway_v4} && ip route add ::/0 via {gateway_v6}"
        ));
        let stop = Arc::<Stop>::default();
        let [to_router, from_router] = [(); 2].map(|()| Arc::<Record>::default());
        let start = |from: &str, to: &str, lost: u64, record: &Arc<Record>| {
            let direction = Direction {
                from: Tap::open(&ns, from),
                to: Tap::open(&ns, to),
                delay: plan.delay,
                lost,
                record: record.clone(),
            };
            let stop = stop.clone();
            thread::spawn(move || direction.run(&stop))
        };
        let threads = vec![
            start(near, far, plan.lost_to_router, &to_router),
            start(far, near, plan.lost_from_router, &from_router),
        ];
        Self { to_router, from_router, stop, threads, _ns: ns }
    }

    /// The median delay of both directions together, in milliseconds.
    pub fn round_trip_ms(&self) -> f64 {
        let of = |record: &Record| median(&record.delays_ms.lock().unwrap_or_else(|e| e.into_inner()));
        [&self.to_router, &self.from_router].into_iter().filter_map(|record| of(record)).sum()
    }

    /// Forgets the delays of all frames so far.
    pub fn forget_delays(&self) {
        for record in [&self.to_router, &self.from_router] {
            record.delays_ms.lock().unwrap_or_else(|e| e.into_inner()).clear();
        }
    }

    /// Bounds of a quantile of the delay of both directions together, in milliseconds. Which frames make a round trip
    /// is unknown, so it is between the quantile of one direction with the shortest delay of the other, and the sum
    /// of the quantiles that half as many exceed.
    pub fn round_trip_quantile_ms(&self, share: f64) -> [f64; 2] {
        let of = |record: &Record, share| {
            let delays = record.delays_ms.lock().unwrap_or_else(|e| e.into_inner());
            quantile(&delays, share).unwrap_or_default()
        };
        let [one, other] = [&self.to_router, &self.from_router];
        let low = f64::max(of(one, share) + of(other, 0.0), of(one, 0.0) + of(other, share));
        let half = 1.0 - (1.0 - share) / 2.0;
        [low, of(one, half) + of(other, half)]
    }

    /// The share of frames with data that were lost on the way to the router.
    pub fn loss_to_router(&self) -> f64 {
        self.to_router.loss()
    }

    /// The share of frames with data that were lost on the way to the host.
    pub fn loss_from_router(&self) -> f64 {
        self.from_router.loss()
    }
}

impl Record {
    fn loss(&self) -> f64 {
        self.lost.load(Ordering::Relaxed) as f64 / self.data.load(Ordering::Relaxed).max(1) as f64
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stop.set();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The wall clock, by which the kernel stamps frames.
fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// A direction of a line.
struct Direction {
    from: Tap,
    to: Tap,
    delay: Duration,
    lost: u64,
    record: Arc<Record>,
}

impl Direction {
    fn run(self, stop: &Stop) {
        // When frames came, by the kernel: those that wait for this thread are delayed already.
        self.from.stamp();
        let mut waiting: VecDeque<(Duration, Vec<u8>)> = VecDeque::new();
        while !stop.is_set() {
            let until = waiting.front().map_or(IDLE, |(came, _)| (*came + self.delay).saturating_sub(now()));
            let mut fds = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
            // A signal only makes the loop turn.
            let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(until)), None);
            while let Some((frame, came)) = self.from.next_stamped(Duration::ZERO) {
                if !self.loses(&frame.bytes) {
                    waiting.push_back((came, frame.bytes));
                }
            }
            let mut delays = self.record.delays_ms.lock().unwrap_or_else(|e| e.into_inner());
            while waiting.front().is_some_and(|(came, _)| now() >= *came + self.delay) {
                if let Some((came, frame)) = waiting.pop_front() {
                    self.to.offer(&frame);
                    delays.push(now().saturating_sub(came).as_secs_f64() * 1000.0);
                }
            }
        }
    }

    fn loses(&self, frame: &[u8]) -> bool {
        if frame.len() <= DATA_BYTES {
            return false;
        }
        let number = self.record.data.fetch_add(1, Ordering::Relaxed) + 1;
        let is_lost = self.lost != 0 && number.is_multiple_of(self.lost);
        self.record.lost.fetch_add(is_lost.into(), Ordering::Relaxed);
        is_lost
    }
}
