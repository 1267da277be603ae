//! Records what happens: counts traffic for the history, and measures what Shunt itself costs.

mod costs;
mod events;
mod savings;
mod stations;

use super::{Daemon, blocking::BlockingThread};
use crate::{
    history::{Clock, Counted, DeviceCounts, History},
    savings::SavingsBook,
};
use costs::{Costs, Measured};
use events::Seen;
use savings::Meter;
use shunt_api::{Happening, OwnCosts, RestartKind, Savings};
use shunt_bpf::abi::Counters;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Ticks of the daemon between two readings of the counters: ten seconds.
const INTERVAL_TICKS: u32 = 20;
/// Ticks between two looks at stations that have changed: a second.
const STATION_TICKS: u32 = 2;
/// Readings in a minute.
const MINUTE_INTERVALS: u32 = 6;
/// The least time between two writes of the history.
const WRITE_GAP: Duration = Duration::from_secs(600);
const LOSS: &str = "a restart will lose the history since the last write";

/// What the event loop has of the history and of its own costs.
#[derive(Debug)]
pub(crate) struct Recorder {
    history: History,
    costs: Costs,
    savings: SavingsBook,
    meter: Meter,
    seen: Seen,
    /// What has changed in the ruleset until the epoch moves for it.
    changed_rules: Option<String>,
    ticks: u32,
    intervals: u32,
    /// What was counted, and when, at the last reading.
    interval: (Duration, Counters),
    /// The same at the beginning of the minute.
    minute: (Duration, Counters),
    /// Core seconds that the fast path has saved within the minute; `None` if nobody can tell.
    minute_saved: Option<f64>,
    /// A minute that waits for the counts of its devices.
    waiting: Option<Waiting>,
    /// The last counts of devices.
    devices: Option<BTreeMap<String, DeviceCounts>>,
    written: Duration,
}

#[derive(Debug)]
struct Waiting {
    since: Duration,
    counted: Counted,
}

impl Recorder {
    pub(crate) fn new(history: History, savings: SavingsBook) -> Self {
        let now = Clock::read().since_boot();
        Self {
            history,
            costs: Costs::default(),
            savings,
            meter: Meter::default(),
            seen: Seen::default(),
            changed_rules: None,
            ticks: 0,
            intervals: 0,
            interval: (now, Counters::default()),
            minute: (now, Counters::default()),
            minute_saved: Some(0.0),
            waiting: None,
            devices: None,
            // The first write is soon, so that an owner learns at once that nothing can be kept.
            written: now.saturating_sub(WRITE_GAP),
        }
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// What Shunt itself costs.
    pub(super) fn costs(&self) -> OwnCosts {
        let week = Some(self.savings.week_costs(Clock::read().now()));
        OwnCosts { week, ..self.costs.view() }
    }

    /// What the fast path saves.
    pub(super) fn savings(&self) -> Savings {
        let clock = Clock::read();
        self.savings.view(clock.now(), clock.since_boot())
    }

    /// Takes the words for a change of the ruleset, which is about to move the epoch.
    pub(super) fn set_changed_rules(&mut self, changed: Option<String>) {
        self.changed_rules = changed;
    }

    /// Lets the programs be measured for a few seconds.
    pub(super) fn want_costs(&mut self) {
        self.costs.want();
    }

    /// Adds a minute. `devices` are the counts of the devices of ports; without them, its rates are zero.
    fn end_minute(&mut self, minute: Waiting, devices: Option<BTreeMap<String, DeviceCounts>>) {
        let Waiting { since, mut counted } = minute;
        if let (Some(before), Some(now)) = (&self.devices, &devices) {
            let difference = |(name, counts): (&String, &DeviceCounts)| {
                Some((name.clone(), counts.since(*before.get(name)?)))
            };
            counted.devices = now.iter().filter_map(difference).collect();
        }
        self.devices = devices.or(self.devices.take());
        self.history.add_minute(since, &counted);
    }
}

impl Daemon {
    /// Begins to record: the first readings.
    pub(super) fn begin_recording(&mut self) {
        let now = Clock::read().since_boot();
        // Packets that came since the programs were attached count, unless the daemon before has counted them.
        let counters = match self.hand_over.start {
            Some(RestartKind::TakenOver { .. }) => self.all_counters(),
            Some(RestartKind::Clean { .. }) | None => Counters::default(),
        };
        self.recorder.interval = (now, counters);
        self.recorder.minute = (now, counters);
        self.recorder.devices = costs::devices(&self.port_names()).ok();
        self.recorder.costs.record_daemon();
        self.note_restart();
        self.see_first();
        self.measure(false);
    }

    /// Records what a tick finds.
    pub(super) fn record_tick(&mut self) {
        self.recorder.history.set_clock(Clock::read());
        self.record_ports();
        self.record_hosts();
        self.recorder.ticks += 1;
        if self.recorder.ticks.is_multiple_of(STATION_TICKS) {
            self.record_stations();
        }
        if self.recorder.ticks.is_multiple_of(INTERVAL_TICKS) {
            self.record_interval();
        } else if self.recorder.costs.are_wanted() || self.recorder.costs.are_due() {
            self.measure(false);
        }
        self.write_history();
        self.measure_savings();
    }

    fn record_interval(&mut self) {
        self.record_faults();
        self.read_stations();
        self.count_interval();
        self.recorder.intervals += 1;
        let minute_is_over = self.recorder.intervals.is_multiple_of(MINUTE_INTERVALS);
        if minute_is_over {
            self.await_devices();
        }
        if minute_is_over || self.recorder.costs.are_wanted() {
            self.measure(minute_is_over);
        }
    }

    /// Counts the packets since the last reading.
    fn count_interval(&mut self) {
        let (now, counters) = (Clock::read().since_boot(), self.all_counters());
        let (before, earlier) = std::mem::replace(&mut self.recorder.interval, (now, counters));
        let seconds = now.saturating_sub(before).as_secs_f64();
        let recorder = &mut self.recorder;
        recorder.costs.record_packets(packets_since(&counters, packets(&earlier)), seconds);
        let saved = recorder.savings.add_interval(Clock::read().now(), &since(&counters, &earlier), seconds);
        let own = recorder.costs.record_daemon();
        recorder.savings.add_own(&own);
        recorder.minute_saved = recorder.minute_saved.zip(saved).map(|(sum, saved)| sum + saved);
    }

    /// Ends the minute, but for the counts of devices, which another thread reads.
    fn await_devices(&mut self) {
        let recorder = &mut self.recorder;
        let (now, counters) = recorder.interval;
        let (begun, earlier) = std::mem::replace(&mut recorder.minute, (now, counters));
        let counted = Counted {
            seconds: now.saturating_sub(begun).as_secs_f64(),
            counters: since(&counters, &earlier),
            devices: BTreeMap::new(),
            saved_core_s: recorder.minute_saved.replace(0.0),
        };
        if let Some(late) = recorder.waiting.replace(Waiting { since: begun, counted }) {
            recorder.end_minute(late, None);
        }
    }

    /// Measures programs, devices and memory on another thread, unless that is being done. A minute that waits always
    /// gets its devices.
    fn measure(&mut self, minute_is_over: bool) {
        if self.is_open(BlockingThread::Meter, costs::MEASURE) && !minute_is_over {
            return;
        }
        let meter = self.plane.program_meter();
        let tables = (self.plane.map_bytes(), self.plane.flow_bytes());
        let names = self.port_names();
        let (start, packets) = (Instant::now(), packets(&self.all_counters()));
        let work = move |_: &mut shunt_kernel::Linux| Measured::take(&meter, &names);
        self.in_background(BlockingThread::Meter, costs::MEASURE, work, move |daemon, measured| {
            let packets = packets_since(&daemon.all_counters(), packets);
            daemon.recorder.costs.record_tables(tables);
            daemon.on_measured(measured, start, packets as f64 / start.elapsed().as_secs_f64());
        });
    }

    /// Takes what was measured since `begun`, while so many packets came in a second.
    fn on_measured(&mut self, measured: Measured, begun: Instant, packets_per_s: f64) {
        let recorder = &mut self.recorder;
        let devices = recorder.costs.record(measured, begun, packets_per_s);
        if let Some(minute) = recorder.waiting.take() {
            recorder.end_minute(minute, devices);
        }
    }

    fn port_names(&self) -> Vec<String> {
        self.core.ports().map(|(link, _)| link.name.clone()).collect()
    }

    fn write_history(&mut self) {
        let now = Clock::read().since_boot();
        if now.saturating_sub(self.recorder.written) >= WRITE_GAP {
            self.recorder.written = now;
            let file = self.recorder.history.replacement(true);
            self.keep("write-history", file, LOSS);
            self.write_savings();
        }
    }

    fn write_savings(&mut self) {
        let file = self.recorder.savings.replacement();
        self.keep("write-savings", file, "a restart will measure again what the fast path saves");
    }

    /// Ends the minute and writes the history. `by` says who stops the daemon.
    pub(super) fn end_recording(&mut self, by: &str) {
        self.count_interval();
        let devices = costs::devices(&self.port_names()).ok();
        // A minute whose devices are being read comes first.
        if let Some(minute) = self.recorder.waiting.take() {
            self.recorder.end_minute(minute, devices.clone());
        }
        self.await_devices();
        if let Some(last) = self.recorder.waiting.take() {
            self.recorder.end_minute(last, devices);
        }
        self.record_hosts();
        let flows = Some(u64::from(self.sweeper.totals().active));
        self.recorder.history.note(Happening::Stopped { by: by.to_owned(), flows });
        let file = self.recorder.history.replacement(false);
        self.keep("write-history", file, LOSS);
        self.write_savings();
    }

    /// Goes on to record after [`Self::end_recording`], because the next daemon has not taken over.
    pub(super) fn resume_recording(&mut self) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.recorder.history.note(Happening::Started { version, after_crash: false });
    }

    /// What all ports have counted since the start, present and former ones.
    fn all_counters(&mut self) -> Counters {
        let ports: Vec<u32> = self.core.ports().map(|(link, _)| link.ifindex).collect();
        for ifindex in ports {
            self.record_counters(ifindex);
        }
        let mut sum = Counters::default();
        for counters in self.port_counters.by_name().values() {
            sum.add(counters);
        }
        sum
    }
}

fn since(now: &Counters, before: &Counters) -> Counters {
    let mut since = *now;
    since.subtract(before);
    since
}

fn packets(counters: &Counters) -> u64 {
    let fast = counters.xdp_pkts + counters.tc_pkts + counters.external_pkts;
    fast + counters.slow_pkts + counters.dropped_pkts
}

fn packets_since(counters: &Counters, before: u64) -> u64 {
    packets(counters).saturating_sub(before)
}
