//! What Shunt itself costs: CPU time of the daemon and of the programs, and memory.

use crate::{history::DeviceCounts, savings::OwnTime};
use nix::time::{ClockId, clock_gettime};
use shunt_api::{EngineChange, OwnCosts, ProgramCost};
use shunt_bpf::{ProgramMeter, ProgramRuns};
use std::{
    collections::BTreeMap,
    fs, io,
    time::{Duration, Instant},
};

/// The name of the measurement, for `shunt status`.
pub(super) const MEASURE: &str = "measure";
/// At lower rates, a measurement of the programs has too few packets.
const PACKETS_PER_S_MIN: f64 = OwnCosts::LEAST_PPS as f64;
/// How long the programs are measured.
const WINDOW: Duration = Duration::from_millis(OwnCosts::PROGRAMS_MS);
/// How long the programs are measured again and again after somebody has asked for that.
const WANTED: Duration = Duration::from_secs(5);
/// Time after a change of engine, until flows have been learned again and take the new one.
const SETTLE: Duration = Duration::from_secs(2);
/// Time between two measurements while the time for a packet is unknown.
const RETRY: Duration = Duration::from_secs(10);

type Devices = BTreeMap<String, DeviceCounts>;

/// What a thread has measured.
pub(super) struct Measured {
    programs: Result<(Vec<ProgramRuns>, Duration), String>,
    devices: Option<Devices>,
    daemon_bytes: Option<u64>,
}

/// The last figures.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    programs: Vec<ProgramCost>,
    measured: Option<Instant>,
    /// Nanoseconds of the programs for each packet, and packets in a second; unknown until they were counted.
    packet_ns: Option<f64>,
    packets_per_s: Option<f64>,
    daemon_cores: Option<f64>,
    /// CPU time of the daemon at the last reading.
    daemon: Option<(Instant, Duration)>,
    daemon_bytes: u64,
    /// Bytes of the maps, and for each flow.
    tables: (u64, u64),
    /// When somebody has asked for the figures of the programs.
    wanted: Option<Instant>,
    /// When the programs were measured last, with enough packets or not.
    tried: Option<Instant>,
    /// The change of engine since which the time for a packet is unknown, and when it was seen.
    changed: Option<(EngineChange, Instant)>,
}

impl Measured {
    /// Measures, for a quarter of a second.
    pub(super) fn take(meter: &ProgramMeter, ports: &[String]) -> Self {
        Self {
            devices: devices(ports).ok(),
            programs: meter.measure(WINDOW).map_err(|error| error.to_string()),
            daemon_bytes: daemon_bytes(),
        }
    }
}

impl Costs {
    /// Lets the programs be measured without pause for a few seconds.
    pub(crate) fn want(&mut self) {
        self.wanted = Some(Instant::now());
    }

    pub(super) fn are_wanted(&self) -> bool {
        self.wanted.is_some_and(|wanted| wanted.elapsed() < WANTED)
    }

    /// Whether the programs are to be measured out of turn: the time for a packet is unknown, and there are packets.
    pub(super) fn are_due(&self) -> bool {
        let was_tried = self.tried.is_some_and(|tried| tried.elapsed() < RETRY);
        let has_settled = self.changed.as_ref().is_none_or(|(_, at)| at.elapsed() >= SETTLE);
        let unknown = self.packet_ns.is_none() && self.packets_per_s >= Some(PACKETS_PER_S_MIN);
        unknown && has_settled && !was_tried
    }

    /// Forgets the time of programs: packets run others from now on.
    pub(super) fn change_engine(&mut self, change: EngineChange) {
        self.changed = Some((change, Instant::now()));
        (self.packet_ns, self.measured, self.tried) = (None, None, None);
        self.programs.clear();
    }

    /// Takes what was measured since `begun`, while so many packets came in a second. Returns the counts of devices.
    pub(super) fn record(
        &mut self,
        measured: Measured,
        begun: Instant,
        packets_per_s: f64,
    ) -> Option<Devices> {
        let Measured { programs, devices, daemon_bytes } = measured;
        self.daemon_bytes = daemon_bytes.unwrap_or(self.daemon_bytes);
        self.tried = Some(Instant::now());
        // Packets of the engine before, or those from which flows are learned again.
        if self.changed.as_ref().is_some_and(|(_, at)| begun < *at + SETTLE) {
            self.tried = None;
            return devices;
        }
        match programs {
            Ok((programs, took)) => self.record_programs(&programs, took.as_secs_f64(), packets_per_s),
            Err(why) => tracing::debug!("cannot measure programs: {why}"),
        }
        devices
    }

    fn record_programs(&mut self, programs: &[ProgramRuns], seconds: f64, packets_per_s: f64) {
        self.programs =
            programs.iter().filter(|runs| runs.runs > 0).map(|runs| cost(runs, seconds)).collect();
        self.programs.sort_by(|a, b| (b.run_ns * b.runs_per_s).total_cmp(&(a.run_ns * a.runs_per_s)));
        self.measured = Some(Instant::now());
        // With fewer packets, the last figure holds.
        if packets_per_s >= PACKETS_PER_S_MIN {
            let cores = programs.iter().map(|runs| runs.time.as_secs_f64()).sum::<f64>() / seconds;
            self.packet_ns = Some(cores / packets_per_s * 1e9);
            self.changed = None;
        }
    }

    pub(super) fn record_tables(&mut self, tables: (u64, u64)) {
        self.tables = tables;
    }

    pub(super) fn record_packets(&mut self, packets: u64, seconds: f64) {
        if seconds > 0.0 {
            self.packets_per_s = Some(packets as f64 / seconds);
        }
    }

    /// Reads the CPU time of the daemon. Returns the CPU time since the last reading: that of the daemon, and that of
    /// the programs, if it is known.
    pub(super) fn record_daemon(&mut self) -> OwnTime {
        let mut own = OwnTime::default();
        let Ok(used) = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from) else {
            return own;
        };
        let now = Instant::now();
        if let Some((at, before)) = self.daemon.replace((now, used)) {
            own.counted_s = now.duration_since(at).as_secs_f64();
            own.daemon_s = used.saturating_sub(before).as_secs_f64();
            self.daemon_cores = Some(own.daemon_s / own.counted_s.max(f64::MIN_POSITIVE));
            if let Some(cores) = self.programs_cores() {
                (own.programs_s, own.programs_known_s) = (cores * own.counted_s, own.counted_s);
            }
        }
        own
    }

    fn programs_cores(&self) -> Option<f64> {
        Some(self.packet_ns? * self.packets_per_s? * 1e-9)
    }

    /// For `shunt status`.
    pub(crate) fn view(&self) -> OwnCosts {
        let (maps_bytes, flow_bytes) = self.tables;
        OwnCosts {
            daemon_cores: self.daemon_cores,
            programs_cores: self.programs_cores(),
            daemon_bytes: self.daemon_bytes,
            maps_bytes,
            flow_bytes,
            programs: self.programs.clone(),
            measured_ago_s: self.measured.map(|measured| measured.elapsed().as_secs_f64()),
            unmeasured_since: self.changed.as_ref().map(|(change, _)| change.clone()),
            week: None,
        }
    }
}

fn cost(runs: &ProgramRuns, seconds: f64) -> ProgramCost {
    ProgramCost {
        name: runs.name.clone(),
        run_ns: runs.time.as_nanos() as f64 / runs.runs as f64,
        runs_per_s: runs.runs as f64 / seconds,
    }
}

/// What these devices have counted, by name.
///
/// # Errors
/// If the kernel's list cannot be read.
pub(super) fn devices(names: &[String]) -> io::Result<Devices> {
    // Of the network namespace of this thread.
    Ok(parse_devices(&fs::read_to_string("/proc/thread-self/net/dev")?, names))
}

fn parse_devices(text: &str, names: &[String]) -> Devices {
    let counts = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let name = names.iter().find(|known| *known == name.trim())?;
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        // Eight columns of what was received, then those of what was sent.
        let [in_bytes, in_pkts, _, _, _, _, _, _, out_bytes, out_pkts, ..] = numbers[..] else { return None };
        Some((name.clone(), DeviceCounts { in_bytes, in_pkts, out_bytes, out_pkts }))
    };
    text.lines().filter_map(counts).collect()
}

/// The memory of this process without maps that it shares with the kernel.
fn daemon_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kilobytes("RssAnon:")? + kilobytes("RssFile:")?) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::Engine;

    #[test]
    fn counts_of_devices_are_read_by_name() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     0       0          0\n\
            wan0.7:    1000      10    0    0    0     0          0         0     2000      20    0    0    0     0       0          0\n";
        let names = ["wan0.7".to_owned(), "gone".to_owned()];
        let counts = DeviceCounts { in_bytes: 1000, in_pkts: 10, out_bytes: 2000, out_pkts: 20 };
        assert_eq!(parse_devices(text, &names), BTreeMap::from([("wan0.7".to_owned(), counts)]));
    }

    #[test]
    fn this_process_has_memory_and_a_daemon_that_works_takes_a_part_of_a_core() {
        assert!(daemon_bytes().unwrap() > 100_000);
        let mut costs = Costs::default();
        costs.record_daemon();
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {}
        costs.record_daemon();
        let view = costs.view();
        assert!(view.daemon_cores > Some(0.0) && view.programs_cores.is_none(), "{view:?}");
    }

    #[test]
    fn after_a_change_of_engine_the_cost_is_unknown_until_the_new_programs_were_measured() {
        let mut costs = Costs::default();
        let measured = |ms| Measured {
            programs: Ok((
                vec![ProgramRuns {
                    name: "shunt_xdp".to_owned(),
                    runs: 100,
                    time: Duration::from_millis(ms),
                }],
                WINDOW,
            )),
            devices: None,
            daemon_bytes: None,
        };
        let change = EngineChange { port: "r0".to_owned(), from: Engine::Xdp, to: Engine::Tc, at: 1000 };
        costs.record_packets(10_000, 10.0);
        assert!(costs.are_due());
        costs.record(measured(3), Instant::now(), 1000.0);
        assert!(!costs.are_due() && costs.view().programs_cores.is_some());
        let before = Instant::now();
        costs.change_engine(change.clone());
        let unknown = OwnCosts { unmeasured_since: Some(change), ..OwnCosts::default() };
        assert_eq!(costs.view(), unknown);
        // A measurement that began before the change, or just after it.
        for begun in [before, Instant::now()] {
            costs.record(measured(3), begun, 1000.0);
            assert_eq!((costs.view(), costs.are_due()), (unknown.clone(), false));
        }
        let settled = Instant::now() + SETTLE;
        costs.record(measured(6), settled, 2.0);
        assert!(costs.view().unmeasured_since.is_some() && costs.view().programs_cores.is_none());
        costs.record(measured(6), settled, 1000.0);
        assert!(costs.view().unmeasured_since.is_none() && costs.view().programs_cores.is_some());
    }

    #[test]
    fn the_cost_of_programs_follows_the_packets_and_few_packets_do_not_change_it() {
        let mut costs = Costs::default();
        let runs =
            |ms| ProgramRuns { name: "shunt_in".to_owned(), runs: 100, time: Duration::from_millis(ms) };
        costs.record_programs(&[runs(3)], 0.25, 40_000.0);
        costs.record_packets(1_000_000, 10.0);
        let cores = |costs: &Costs| costs.view().programs_cores.unwrap();
        // 300 ns a packet, and 100,000 packets in a second.
        assert!((cores(&costs) - 0.03).abs() < 1e-9);
        costs.record_programs(&[runs(9)], 0.25, 2.0);
        assert!((cores(&costs) - 0.03).abs() < 1e-9);
        let program = &costs.view().programs[0];
        assert!((program.run_ns - 90_000.0).abs() < 1e-6 && (program.runs_per_s - 400.0).abs() < 1e-9);
    }

    #[test]
    fn measurements_end_some_seconds_after_the_last_request() {
        let mut costs = Costs::default();
        assert!(!costs.are_wanted());
        costs.want();
        assert!(costs.are_wanted());
        costs.wanted = Instant::now().checked_sub(WANTED);
        assert!(!costs.are_wanted());
    }
}
