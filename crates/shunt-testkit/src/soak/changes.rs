//! Changes of the router and its daemon while the traffic flows.

use super::{
    Report, SoakPlan,
    checks::{self, Counts, Usage},
    clients::{Services, Traffic},
};
use crate::{Shuntd, Topology};
use nix::sys::signal::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};

/// A table that drops packets to the ports of a set.
pub(super) const REFUSED: &str = r"
table inet refused {
	set ports { type inet_service; }
	chain forward {
		type filter hook forward priority filter - 1; policy accept;
		udp dport @ports drop
	}
}
";
/// How long after a change a packet may still be handled the old way. Generous, for machines that are busy.
const BOUND: Duration = Duration::from_millis(500);
/// How long no refused packet may arrive then.
const QUIET: Duration = Duration::from_millis(300);
/// Age of a daemon at which its memory is measured for the first time.
const WARM: Duration = Duration::from_secs(10);
const ENGINES: [&str; 3] = ["tc", "auto", "xdp"];

/// The running daemon and its measurements.
struct Life {
    shuntd: Shuntd,
    since: Instant,
    warm: Option<Usage>,
    /// Counters at the last check.
    counts: Option<(Counts, Counts)>,
}

/// Makes the changes, one after the other.
pub(super) struct Changes<'a> {
    lab: &'a Topology,
    traffic: &'a Traffic,
    plan: &'a SoakPlan,
    random: fastrand::Rng,
    life: Option<Life>,
    report: Report,
}

impl<'a> Changes<'a> {
    #[track_caller]
    pub(super) fn new(lab: &'a Topology, traffic: &'a Traffic, plan: &'a SoakPlan) -> Self {
        let random = fastrand::Rng::with_seed(plan.seed);
        let mut changes = Self { lab, traffic, plan, random, life: None, report: Report::default() };
        changes.start();
        changes
    }

    pub(super) fn report(&self) -> Report {
        self.report.clone()
    }

    /// Time until the next change.
    pub(super) fn pause(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(1..150))
    }

    /// Makes a random change.
    pub(super) fn next(&mut self, services: &Services) {
        self.report.changes += 1;
        match self.random.u32(0..100) {
            0..20 => self.rule(),
            20..32 => self.refuse(services),
            32..48 => self.route(),
            48..60 => self.neighbour(),
            60..68 => self.qdisc(),
            68..76 => self.address(),
            76..82 => self.mtu(),
            82..88 => self.forget(),
            88..97 => self.check(),
            97 => self.restart(),
            98 => self.crash(),
            _ => self.hang(),
        }
    }

    /// Makes the last checks and stops the daemon.
    pub(super) fn end(&mut self) {
        self.check();
        self.check();
        self.stop(false);
    }

    fn run(&self, line: &str) {
        self.lab.router().run(line);
    }

    fn rule(&mut self) {
        self.run("nft add rule inet refused forward udp dport 1 counter drop");
        if self.random.bool() {
            self.run("nft flush chain inet refused forward");
            self.run("nft add rule inet refused forward udp dport @ports drop");
        }
    }

    /// Refuses a port for a while; no packet to it may arrive.
    fn refuse(&mut self, services: &Services) {
        self.run("nft add element inet refused ports '{ 7000 }'");
        thread::sleep(BOUND);
        let before = services.heard();
        thread::sleep(QUIET);
        let refused = services.heard() - before;
        if refused > 0 {
            eprintln!("soak: {refused} refused packets were delivered");
        }
        self.report.refused += refused;
        self.run("nft delete element inet refused ports '{ 7000 }'");
    }

    fn route(&mut self) {
        let wan = self.lab.wan().v4;
        let line = match self.random.u32(0..3) {
            0 => "ip route replace 203.0.113.0/24 via 198.18.0.2",
            1 => "ip rule add fwmark 77 table 77; ip rule del fwmark 77 table 77",
            _ => "ip -6 route replace 2001:db8::/32 via fd00:2::2",
        };
        self.run(line);
        // Another route with the same next hop.
        self.run(&format!("ip route replace {wan}/32 dev r1; ip route del {wan}/32 dev r1"));
    }

    fn neighbour(&mut self) {
        let wan = self.lab.wan();
        let state = ["permanent", "reachable", "stale"][self.random.usize(0..3)];
        self.run(&format!("ip neigh replace {} lladdr {} dev r1 nud {state}", wan.v4, wan.mac));
        self.run("ip neigh replace 198.18.0.77 lladdr 02:00:00:00:00:77 dev r1");
        self.run("ip neigh del 198.18.0.77 dev r1");
    }

    fn qdisc(&mut self) {
        let kinds = ["htb", "pfifo", "tbf rate 10gbit burst 10mb latency 100ms"];
        let kind = kinds[self.random.usize(0..kinds.len())];
        // Deleting a qdisc discards its packets.
        let (lab, traffic) = (self.lab, self.traffic);
        traffic.excusing(|| {
            lab.router().run(&format!("tc qdisc replace dev r1 root handle 1: {kind}"));
            thread::sleep(Duration::from_millis(20));
            lab.router().run("tc qdisc del dev r1 root");
        });
    }

    fn address(&mut self) {
        self.run("ip address add 198.18.77.1/24 dev r1; ip address del 198.18.77.1/24 dev r1");
    }

    fn mtu(&mut self) {
        self.run("ip link set r1 mtu 1600; ip link set r1 mtu 1500");
    }

    /// Deletes the conntrack entries of the short-lived UDP flows.
    fn forget(&mut self) {
        let (lab, traffic) = (self.lab, self.traffic);
        traffic.excusing(|| lab.router().run("conntrack -D -p udp --dport 9002 2>/dev/null || true"));
    }

    /// Checks counters, flows and memory while the traffic is paused.
    fn check(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        if self.traffic.pause() {
            // Wait for the last segments of streams that have ended.
            thread::sleep(Duration::from_millis(100));
            let router = self.lab.router();
            if let Some(before) = &life.counts
                && let Some(difference) = checks::disagreement(router, &life.shuntd, before)
            {
                eprintln!("soak: counters disagree: {difference}");
                self.report.miscounted += 1;
            }
            life.counts = Some(checks::settled_counts(router, &life.shuntd));
            let stale = checks::stale(router, &life.shuntd);
            if !stale.is_empty() {
                eprintln!("soak: flows without a conntrack entry: {stale:?}");
            }
            self.report.stale += stale.len() as u64;
        }
        self.traffic.resume();
        let usage = Usage::read(life.shuntd.pid());
        self.report.rss_end_kb = usage.rss_kb;
        match life.warm {
            None if life.since.elapsed() > WARM => {
                life.warm = Some(usage);
                if self.report.rss_start_kb == 0 {
                    self.report.rss_start_kb = usage.rss_kb;
                }
            }
            Some(warm) => {
                self.report
                    .leaks
                    .extend(usage.growth_since(warm).map(|growth| format!("the daemon grew {growth}")));
            }
            None => {}
        }
        self.life = Some(life);
    }

    fn restart(&mut self) {
        self.stop(false);
        self.start();
        self.report.restarts += 1;
    }

    fn crash(&mut self) {
        self.stop(true);
        self.start();
        self.report.restarts += 1;
    }

    fn hang(&mut self) {
        let Some(life) = &self.life else { return };
        life.shuntd.signal(Signal::SIGSTOP);
        thread::sleep(Duration::from_millis(self.random.u64(100..4000)));
        life.shuntd.signal(Signal::SIGCONT);
        self.report.restarts += 1;
    }

    #[track_caller]
    fn start(&mut self) {
        let engine = ENGINES[self.random.usize(0..ENGINES.len())];
        let mut builder = Shuntd::on(self.lab.router()).engine(engine);
        if let Some(program) = &self.plan.program {
            builder = builder.program(program);
        }
        let shuntd = builder.start();
        self.life = Some(Life { shuntd, since: Instant::now(), warm: None, counts: None });
    }

    fn stop(&mut self, kill: bool) {
        let Some(Life { mut shuntd, .. }) = self.life.take() else { return };
        self.report.fast += shuntd.status().packets.fast;
        let left = if kill {
            shuntd.kill();
            shuntd.cleanup();
            shuntd.left_behind()
        } else {
            shuntd.try_stop().err()
        };
        self.report.leaks.extend(left.map(|objects| format!("left behind: {objects}")));
    }
}
