//! The time of the CPUs and the queues of the ports, while traffic is watched.

use serde::{Deserialize, Serialize};
use shunt_lab::load::{CpuTimes, StatShares};
use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    time::Instant,
};

/// Queueing disciplines that queue nothing, or that drop and delay on purpose.
const OTHERS: [&str; 4] = ["noqueue", "ingress", "clsact", "netem"];

/// Both at the beginning of an interval.
#[derive(Debug)]
pub struct Pressure {
    began: Instant,
    cpus: Option<CpuTimes>,
    queues: BTreeMap<String, Vec<QueueCounters>>,
}

/// The time of a CPU while traffic was watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// The number of the CPU.
    pub cpu: usize,
    /// Shares of its time. The busy share is all but idle.
    #[serde(flatten)]
    pub shares: StatShares,
}

/// What a queueing discipline did while traffic was watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueLoad {
    /// The kind, such as `tbf`.
    pub qdisc: String,
    /// The rate that it is set to, in bit/s; absent if it has none, or does not report it.
    pub rate_bps: Option<f64>,
    /// Bits per second that it sent.
    pub sent_bps: f64,
    /// Packets that it dropped per second.
    pub dropped_pps: f64,
    /// Times per second that it had to hold packets back.
    pub overlimits_per_s: f64,
    /// Packets that waited in it at the end.
    pub waiting: u64,
}

/// The counters of a queueing discipline, as `tc` prints them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct QueueCounters {
    kind: String,
    handle: String,
    parent: String,
    options: QueueOptions,
    bytes: u64,
    drops: u64,
    overlimits: u64,
    qlen: u64,
}

/// Bytes per second: `rate` of tbf, `bandwidth` of cake, which may be a word.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct QueueOptions {
    rate: serde_json::Value,
    bandwidth: serde_json::Value,
}

impl Pressure {
    /// Begins an interval for these ports.
    pub fn begin<'p>(ports: impl IntoIterator<Item = &'p str>) -> Self {
        let queues = ports.into_iter().map(|port| (port.to_owned(), queues(port))).collect();
        Self { began: Instant::now(), cpus: CpuTimes::read(), queues }
    }

    /// The time of each CPU since the beginning; empty if it cannot be read.
    pub fn cpus(&self) -> Vec<CpuLoad> {
        let both = self.cpus.as_ref().zip(CpuTimes::read());
        let shares = both.map(|(then, now)| now.shares_since(then)).unwrap_or_default();
        shares.into_iter().map(|(cpu, shares)| CpuLoad { cpu, shares }).collect()
    }

    /// What the queues of a port did since the beginning.
    pub fn queues(&self, port: &str) -> Vec<QueueLoad> {
        let before = self.queues.get(port).map(Vec::as_slice).unwrap_or_default();
        loads(before, &queues(port), self.began.elapsed().as_secs_f64())
    }
}

fn loads(before: &[QueueCounters], now: &[QueueCounters], seconds: f64) -> Vec<QueueLoad> {
    let load = |now: &QueueCounters| {
        let is_same = |then: &&QueueCounters| {
            (&then.kind, &then.handle, &then.parent) == (&now.kind, &now.handle, &now.parent)
        };
        let then = before.iter().find(is_same)?;
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-3);
        let set = [&now.options.rate, &now.options.bandwidth].into_iter().find_map(serde_json::Value::as_f64);
        Some(QueueLoad {
            qdisc: now.kind.clone(),
            rate_bps: set.map(|bytes| bytes * 8.0),
            sent_bps: rate(now.bytes, then.bytes) * 8.0,
            dropped_pps: rate(now.drops, then.drops),
            overlimits_per_s: rate(now.overlimits, then.overlimits),
            waiting: now.qlen,
        })
    };
    now.iter().filter(|queue| !OTHERS.contains(&queue.kind.as_str())).filter_map(load).collect()
}

/// The queues of a port; none if `tc` does not tell.
fn queues(port: &str) -> Vec<QueueCounters> {
    let mut command = Command::new("tc");
    let output = command.args(["-s", "-j", "qdisc", "show", "dev", port]).stdin(Stdio::null()).output();
    output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<QueueCounters> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_queue_has_its_rates_and_the_rate_that_it_is_set_to() {
        let before = read(
            r#"[{"kind":"tbf","handle":"8006:","root":true,"options":{"rate":125000,"burst":5120},"bytes":1000,
            "packets":1,"drops":1,"overlimits":2,"requeues":0,"backlog":0,"qlen":0},
            {"kind":"cake","handle":"1:","options":{"bandwidth":"unlimited"}}, {"kind":"netem","handle":"2:"}]"#,
        );
        let mut now = before.clone();
        (now[0].bytes, now[0].drops, now[0].overlimits, now[0].qlen) = (251_000, 21, 42, 3);
        let found = loads(&before, &now, 2.0);
        let expected = QueueLoad {
            qdisc: "tbf".to_owned(),
            rate_bps: Some(1e6),
            sent_bps: 1e6,
            dropped_pps: 10.0,
            overlimits_per_s: 20.0,
            waiting: 3,
        };
        assert_eq!(found, [expected, QueueLoad { qdisc: "cake".to_owned(), ..QueueLoad::default() }]);
        // One that was put there meanwhile has no rates yet.
        assert!(loads(&before[1..], &now[..1], 2.0).is_empty());
    }
}
