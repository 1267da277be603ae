//! Whether the router is the limit of the traffic that was watched: one answer for all ports together.

use super::{QueueLoad, System, rules::OVERRUNS};
use serde::{Deserialize, Serialize};
use shunt_lab::load::StatShares;
use shunt_wire::units;
use std::fmt::{self, Display, Formatter};

/// A core with less idle time than this is fully busy: the account counts whole ticks.
const FULL_PERCENT: f64 = 98.0;
/// A fully busy core with this share of interrupts is busy with packets.
const PACKETS_PERCENT: f64 = 50.0;
/// A line that carries this share of its speed is full: gaps between frames and preambles are counted.
const LINE_SHARE: f64 = 0.95;
/// Bytes of a frame on the line that the device does not count: preamble, FCS, and the gap after it.
const LINE_OVERHEAD: f64 = 24.0;

/// The limit of the traffic, with the values that show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "limit", rename_all = "kebab-case")]
pub enum Limit {
    /// A core of the router: it has no time left, and packets are dropped before it takes them.
    Cpu {
        /// The number of the CPU.
        cpu: usize,
        /// All but idle time, in percent.
        busy_percent: f64,
        /// Interrupts and softirqs, in percent.
        packets_percent: f64,
        /// Packets dropped per second.
        dropped_pps: f64,
        /// Where they are dropped: the backlog of the CPU, or a counter of a port.
        dropped_by: String,
    },
    /// A receive ring or FIFO of a port of the router overran, while no core was fully busy.
    Ring {
        /// The port.
        port: String,
        /// The counter of the driver.
        counter: String,
        /// Frames lost per second.
        lost_pps: f64,
    },
    /// The line of a port is full.
    Line {
        /// The port.
        port: String,
        /// Whether it is full with what the port sends.
        sends: bool,
        /// Bits per second on the line.
        bps: f64,
        /// The speed of the line, in bit/s.
        speed_bps: f64,
    },
    /// The queue in front of a line is full: the line, or the rate that the queue is set to, is the limit.
    Queue {
        /// The port.
        port: String,
        /// The kind of queueing discipline, such as `tbf`.
        qdisc: String,
        /// The rate that it is set to, in bit/s; absent if it has none, or does not report it.
        rate_bps: Option<f64>,
        /// Bits per second that it sends.
        sent_bps: f64,
        /// Packets that it drops per second.
        dropped_pps: f64,
        /// Packets that wait in it.
        waiting: u64,
    },
    /// Nothing in the router and none of its lines was the limit at that time.
    NotNow {
        /// The busiest CPU.
        cpu: usize,
        /// All but idle time of this CPU, in percent.
        busy_percent: f64,
        /// Its time for packets, in percent.
        packets_percent: f64,
        /// The fullest line; absent if no port has a speed.
        line: Option<FullestLine>,
    },
    /// The data do not carry an answer.
    Unknown {
        /// What is missing.
        why: String,
        /// What would tell.
        would_tell: String,
    },
}

/// The fullest line of the ports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FullestLine {
    /// The port.
    pub port: String,
    /// What it carries of its speed, from 0 to 1.
    pub share: f64,
}

/// A line in one direction.
struct Line<'s> {
    port: &'s str,
    sends: bool,
    bps: f64,
    speed_bps: f64,
}

impl Line<'_> {
    fn share(&self) -> f64 {
        self.bps / self.speed_bps
    }
}

/// The limit of the traffic that passed these ports of one machine; `None` if traffic was not watched, or was a sweep
/// of rates, which has no single answer.
pub fn limit(systems: &[System]) -> Option<Limit> {
    let watched: Vec<_> = systems.iter().filter(|system| system.load.is_some()).collect();
    let load = watched.first()?.load.as_ref()?;
    if !load.steps.is_empty() {
        return None;
    }
    let full = |(_, shares): &(usize, StatShares)| used(shares) >= FULL_PERCENT;
    let cpus: Vec<(usize, StatShares)> = load.cpus.iter().map(|one| (one.cpu, one.shares)).collect();
    let Some(busiest) = cpus.iter().max_by(|a, b| used(&a.1).total_cmp(&used(&b.1))) else {
        let would_tell = "the idle time of each core: `shunt load` while the traffic runs".to_owned();
        return Some(Limit::Unknown { why: "the time of the CPUs was not recorded".to_owned(), would_tell });
    };
    let with_packets =
        cpus.iter().filter(|cpu| full(cpu)).max_by(|a, b| packets(&a.1).total_cmp(&packets(&b.1)));
    let with_packets = with_packets.filter(|(_, shares)| packets(shares) >= PACKETS_PERCENT);
    let of_cpu = |(cpu, shares): (usize, StatShares), dropped_pps, dropped_by| Limit::Cpu {
        cpu,
        busy_percent: used(&shares),
        packets_percent: packets(&shares),
        dropped_pps,
        dropped_by,
    };
    let backlog = |cpu: usize| {
        let name = format!("cpu{cpu}");
        load.rates.iter().find(|rate| rate.device == name && rate.counter == "dropped")
    };
    let overloaded = cpus.iter().filter(|cpu| full(cpu)).find_map(|cpu| Some((*cpu, backlog(cpu.0)?)));
    if let Some((cpu, drops)) = overloaded {
        return Some(of_cpu(cpu, drops.per_second, format!("the backlog of CPU {}", cpu.0)));
    }
    let overrun = watched.iter().find_map(|system| {
        let rates = &system.load.as_ref()?.rates;
        let port = &system.link.nic.name;
        let is_overrun =
            |counter: &str| OVERRUNS.iter().any(|part| counter.to_ascii_lowercase().contains(part));
        let found = rates.iter().find(|rate| rate.device == *port && is_overrun(&rate.counter))?;
        Some((port.clone(), found))
    });
    if let Some((port, found)) = overrun {
        return Some(match with_packets {
            Some(cpu) => of_cpu(*cpu, found.per_second, format!("{port}, {}", found.counter)),
            None => Limit::Ring { port, counter: found.counter.clone(), lost_pps: found.per_second },
        });
    }
    let lines: Vec<Line<'_>> = watched.iter().flat_map(|system| lines(system)).collect();
    let fullest = lines.iter().max_by(|a, b| a.share().total_cmp(&b.share()));
    if let Some(Line { port, sends, bps, speed_bps }) = fullest.filter(|line| line.share() >= LINE_SHARE) {
        let (port, sends, bps, speed_bps) = ((*port).to_owned(), *sends, *bps, *speed_bps);
        return Some(Limit::Line { port, sends, bps, speed_bps });
    }
    if let Some(queue) = watched.iter().find_map(|system| full_queue(system)) {
        return Some(queue);
    }
    if let Some((cpu, shares)) = with_packets {
        return Some(Limit::Unknown {
            why: format!(
                "CPU {cpu} is {:.0} % busy ({:.0} % with packets), but nothing was dropped for lack of room",
                used(shares),
                packets(shares)
            ),
            would_tell: "more traffic, or `shunt trace`, which shows where packets wait".to_owned(),
        });
    }
    let line = fullest.map(|line| FullestLine { port: line.port.to_owned(), share: line.share() });
    Some(Limit::NotNow {
        cpu: busiest.0,
        busy_percent: used(&busiest.1),
        packets_percent: packets(&busiest.1),
        line,
    })
}

/// All but idle time, in percent.
fn used(shares: &StatShares) -> f64 {
    shares.busy_percent.unwrap_or_default()
}

/// Interrupts and softirqs, in percent.
fn packets(shares: &StatShares) -> f64 {
    shares.irq_percent + shares.softirq_percent
}

/// Both directions of a port's line; none if its speed is not known.
fn lines(system: &System) -> Vec<Line<'_>> {
    let Some(speed) = system.link.nic.speed_mbps.filter(|speed| *speed > 0) else { return Vec::new() };
    let line = |sends| {
        let side = if sends { "tx" } else { "rx" };
        let (bytes, packets) =
            (system.rate_of(&format!("{side}_bytes")), system.rate_of(&format!("{side}_packets")));
        let bps = (bytes + packets * LINE_OVERHEAD) * 8.0;
        Line { port: &system.link.nic.name, sends, bps, speed_bps: speed as f64 * 1e6 }
    };
    vec![line(true), line(false)]
}

/// The queue of a port that was full: it dropped packets, or held packets back while others waited.
fn full_queue(system: &System) -> Option<Limit> {
    let queues = &system.load.as_ref()?.queues;
    let is_full = |queue: &&QueueLoad| {
        queue.sent_bps > 0.0 && (queue.dropped_pps > 0.0 || queue.overlimits_per_s > 0.0 && queue.waiting > 0)
    };
    let QueueLoad { qdisc, rate_bps, sent_bps, dropped_pps, waiting, .. } =
        queues.iter().find(is_full)?.clone();
    Some(Limit::Queue { port: system.link.nic.name.clone(), qdisc, rate_bps, sent_bps, dropped_pps, waiting })
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rate = |bps: f64| units::bits_per_second(bps as u64);
        match self {
            Self::Cpu { cpu, busy_percent, packets_percent, dropped_pps, dropped_by } => write!(
                f,
                "the router is the limit: CPU {cpu} is {busy_percent:.0} % busy ({packets_percent:.0} % with packets), and \
                 {dropped_pps:.0} packets/s are dropped ({dropped_by})"
            ),
            Self::Ring { port, counter, lost_pps } => write!(
                f,
                "the router is the limit: {port} has no room for {lost_pps:.0} frames/s that arrive ({counter}), though no \
                 core is fully busy: bursts overrun its ring"
            ),
            Self::Line { port, sends, bps, speed_bps } => {
                let does = if *sends { "sends" } else { "receives" };
                let (bps, speed) = (rate(*bps), rate(*speed_bps));
                write!(f, "the router is not the limit: the line of {port} is full ({does} {bps} of {speed})")
            }
            Self::Queue { port, qdisc, rate_bps, sent_bps, dropped_pps, waiting } => {
                let set = rate_bps.map_or_else(String::new, |bps| format!(", set to {}", rate(bps)));
                write!(
                    f,
                    "the router's CPU is not the limit: the queue {qdisc} of {port}{set}, is full (sends {}, drops \
                     {dropped_pps:.0} packets/s, {waiting} wait)",
                    rate(*sent_bps)
                )
            }
            Self::NotNow { cpu, busy_percent, packets_percent, line } => {
                write!(
                    f,
                    "the router is not the limit at this moment: no core is fully busy with packets (of the busiest, \
                     CPU {cpu}, {packets_percent:.0} % is for packets and {busy_percent:.0} % in all) and nothing is dropped for lack of room"
                )?;
                line.iter().try_for_each(|FullestLine { port, share }| {
                    write!(f, "; the fullest line is that of {port}, {}", units::percent(*share))
                })
            }
            Self::Unknown { why, would_tell } => {
                write!(f, "cannot tell whether the router is the limit: {why}; what would tell: {would_tell}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{CpuLoad, Load},
        *,
    };
    use crate::link::{Link, Rate};
    use shunt_lab::Nic;

    /// A port of 1 Gbit/s, with these rates, while CPU 0 is so busy: all but idle, and softirqs.
    fn system(port: &str, rates: &[(&str, &str, f64)], [busy, softirq]: [f64; 2]) -> System {
        let rate = |(device, counter, per_second): &(&str, &str, f64)| Rate {
            device: (*device).to_owned(),
            counter: (*counter).to_owned(),
            rise: *per_second as u64,
            per_second: *per_second,
            trouble: false,
        };
        let shares = |busy, softirq_percent| StatShares {
            busy_percent: Some(busy),
            softirq_percent,
            ..StatShares::default()
        };
        let load = Load {
            seconds: 1.0,
            rates: rates.iter().map(rate).collect(),
            cpus: vec![
                CpuLoad { cpu: 0, shares: shares(busy, softirq) },
                CpuLoad { cpu: 1, shares: shares(10.0, 1.0) },
            ],
            ..Load::default()
        };
        let nic = Nic { name: port.to_owned(), speed_mbps: Some(1000), ..Nic::default() };
        System { link: Link { nic, ..Link::default() }, load: Some(load), ..System::default() }
    }

    fn said(systems: &[System]) -> String {
        limit(systems).unwrap().to_string()
    }

    const RINGS: [(&str, &str, f64); 1] = [("eth0", "rx_missed_errors", 70.0)];

    #[test]
    fn a_busy_core_is_the_limit_only_if_packets_are_dropped() {
        let backlog = [system("eth0", &[("cpu0", "dropped", 123.0)], [99.0, 97.0])];
        let expected = "the router is the limit: CPU 0 is 99 % busy (97 % with packets), and 123 packets/s are dropped \
            (the backlog of CPU 0)";
        assert_eq!(said(&backlog), expected);
        let ring = said(&[system("eth0", &RINGS, [100.0, 80.0])]);
        assert!(
            ring.starts_with("the router is the limit: CPU 0") && ring.contains("eth0, rx_missed_errors"),
            "{ring}"
        );
        let quiet = said(&[system("eth0", &[], [100.0, 80.0])]);
        assert!(quiet.starts_with("cannot tell") && quiet.contains("shunt trace"), "{quiet}");
        // Another core drops, which is not busy: its backlog is short for a burst.
        let other = said(&[system("eth0", &[("cpu1", "dropped", 5.0)], [100.0, 80.0])]);
        assert!(other.starts_with("cannot tell"), "{other}");
    }

    #[test]
    fn a_core_that_is_busy_with_programs_is_not_the_limit_while_nothing_is_dropped() {
        let compiling = said(&[system("eth0", &[("eth0", "rx_bytes", 1e6)], [100.0, 5.0])]);
        assert!(compiling.starts_with("the router is not the limit at this moment"), "{compiling}");
        let dropping = said(&[system("eth0", &[("cpu0", "dropped", 9.0)], [100.0, 5.0])]);
        assert!(dropping.starts_with("the router is the limit: CPU 0 is 100 % busy (5 %"), "{dropping}");
    }

    #[test]
    fn a_ring_that_overruns_without_a_busy_core_is_the_limit() {
        let ring = said(&[system("eth0", &RINGS, [30.0, 20.0])]);
        assert!(ring.starts_with("the router is the limit: eth0 has no room for 70 frames/s"), "{ring}");
    }

    #[test]
    fn a_full_line_is_the_limit_with_its_direction() {
        // 81,274 frames/s of 1514 bytes fill 1 Gbit/s.
        let full = [("eth0", "tx_packets", 81_000.0), ("eth0", "tx_bytes", 81_000.0 * 1514.0)];
        let line = said(&[system("eth1", &[], [50.0, 40.0]), system("eth0", &full, [50.0, 40.0])]);
        assert_eq!(
            line,
            "the router is not the limit: the line of eth0 is full (sends 997 Mbit/s of 1.00 Gbit/s)"
        );
        let half = [("eth0", "rx_packets", 40_000.0), ("eth0", "rx_bytes", 40_000.0 * 1514.0)];
        let half = said(&[system("eth0", &half, [50.0, 40.0])]);
        assert!(half.contains("at this moment") && half.ends_with("that of eth0, 49.2 %"), "{half}");
    }

    #[test]
    fn a_full_queue_is_the_limit_with_the_rate_that_it_is_set_to() {
        let mut shaped = system("wan0", &[], [20.0, 10.0]);
        let queue = QueueLoad {
            qdisc: "tbf".to_owned(),
            rate_bps: Some(5e7),
            sent_bps: 4.99e7,
            dropped_pps: 12.0,
            overlimits_per_s: 300.0,
            waiting: 7,
        };
        let with = |shaped: &mut System, queue: QueueLoad| shaped.load.as_mut().unwrap().queues = vec![queue];
        with(&mut shaped, queue.clone());
        let full = said(std::slice::from_ref(&shaped));
        assert!(
            full.contains("the queue tbf of wan0, set to 50.0 Mbit/s, is full (sends 49.9 Mbit/s"),
            "{full}"
        );
        // It holds packets back at times, and none waits long.
        with(&mut shaped, QueueLoad { dropped_pps: 0.0, waiting: 0, ..queue });
        assert!(said(&[shaped]).contains("at this moment"));
    }

    #[test]
    fn without_the_data_there_is_no_answer() {
        let mut old = system("eth0", &[], [50.0, 40.0]);
        old.load.as_mut().unwrap().cpus.clear();
        assert!(said(std::slice::from_ref(&old)).starts_with("cannot tell"));
        old.load.as_mut().unwrap().steps.push(Default::default());
        assert_eq!(limit(&[old]), None);
        assert_eq!(limit(&[System::default()]), None);
    }
}
