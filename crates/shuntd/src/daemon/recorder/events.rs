//! Events of the history: what differs from what was seen before.

use super::{
    super::Daemon,
    stations::{StationNews, Stations},
};
use crate::{history::Clock, kernel_types::pretends_missing, off_rules::OffChange};
use shunt_api::{
    BitRate, Engine, EngineChange, Happening, HistoryTable, LongestStep, OffBy, OffEnd, PortQos, QosTable,
    RestartKind, RulesetStatus,
};
use shunt_core::{Cause, ChangeDetails, TcNews, Told};
use std::collections::{BTreeMap, BTreeSet};

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The engine of each port.
    ports: BTreeMap<String, Engine>,
    /// Changes of stations of this moment, and when each happened. They are told unless a link goes up or down: the
    /// kernel may report first what follows from that.
    of_hosts: Vec<(Clock, Happening)>,
    stations: Stations,
    /// Changes of stations and neighbours at the last look at the stations.
    station_moves: u64,
    /// Why learning is off, for some traffic at least.
    hold: Option<String>,
    /// The measuring command that alone added or removed rules when they changed last.
    off_by_command: Option<OffBy>,
    counts_lost: u64,
    lines_lost: u64,
    step_seconds: f64,
}

impl Daemon {
    /// Sees the state at the start, which is no event, but for rules that stop learning.
    pub(super) fn see_first(&mut self) {
        self.read_stations();
        self.recorder.seen.ports = self.ports_now();
        self.record_hold();
        self.record_off();
    }

    pub(in super::super) fn note(&mut self, what: Happening) {
        self.recorder.history.set_clock(Clock::read());
        self.recorder.history.note(what);
    }

    fn ports_now(&self) -> BTreeMap<String, Engine> {
        let port = |(link, view): (&shunt_core::Link, &shunt_core::PortView)| {
            (link.name.clone(), self.engine_in_use(view.setting))
        };
        self.core.ports().map(port).collect()
    }

    /// Notes a move of the epoch, with the device, route or part of the ruleset that has changed.
    pub(in super::super) fn note_move(&mut self, cause: Cause, change: ChangeDetails) {
        let ChangeDetails { device, object } = change;
        let rules = if cause == Cause::Ruleset { self.recorder.changed_rules.take() } else { None };
        let object = object.or(rules);
        let has_room = self.recorder.seen.of_hosts.len() < OF_HOSTS_MAX;
        let is_of_host = cause == Cause::Fdb && has_room;
        let by = self.recorder.seen.off_by_command.filter(|_| cause == Cause::Off);
        let cause = match by {
            Some(OffBy::Verify) => "verify".to_owned(),
            Some(OffBy::Quality) => "quality".to_owned(),
            Some(OffBy::Owner) | None => cause.to_string(),
        };
        let what = Happening::Invalidated { cause, device, object };
        if is_of_host {
            self.recorder.seen.of_hosts.push((Clock::read(), what));
        } else {
            self.note(what);
        }
    }

    /// Notes changes of stations, half a second after they happened at most.
    pub(super) fn record_hosts(&mut self) {
        for (at, what) in std::mem::take(&mut self.recorder.seen.of_hosts) {
            self.recorder.history.note_of(at, what);
        }
    }

    /// Notes no change of a station of this moment: a link has gone up or down.
    pub(in super::super) fn forget_hosts(&mut self) {
        self.recorder.seen.of_hosts.clear();
    }

    /// Notes ports that have gone up or down. Returns whether there are any.
    pub(in super::super) fn note_links(&mut self) -> bool {
        let links = self.core.take_links();
        let has_any = !links.is_empty();
        self.note_all(links);
        has_any
    }

    /// Notes changes that moves of the epoch do not name.
    pub(in super::super) fn note_told(&mut self) {
        let told = self.core.take_told();
        self.note_all(told);
    }

    fn note_all(&mut self, told: Vec<Told>) {
        for change in told {
            self.note(match change {
                Told::Link { port, up: true } => Happening::PortUp { port },
                Told::Link { port, up: false } => Happening::PortDown { port },
                Told::CaptureEnded { ports } => Happening::CaptureEnded { ports },
                Told::Tc(TcNews { device, kind, .. })
                    if kind == "clsact" && self.may_be_own_clsact(&device) =>
                {
                    continue;
                }
                Told::Tc(TcNews { device, words, .. }) => Happening::Tc { device, object: words },
                Told::Neighbour { device, addr, mac, was } => {
                    Happening::Neighbour { device, address: addr, mac: mac.to_string(), was: was.to_string() }
                }
                Told::DefaultRoute(ChangeDetails { object: None, .. }) => continue,
                Told::DefaultRoute(ChangeDetails { device, object: Some(object) }) => {
                    Happening::Route { device, object }
                }
            });
        }
    }

    /// Whether Shunt itself may have attached a qdisc `clsact` to a device, or removed it: without TCX, ports need one.
    fn may_be_own_clsact(&self, device: &str) -> bool {
        let has_tcx = shunt_bpf::attach::has_tcx() && !pretends_missing("tcx");
        let was_port = self.recorder.seen.ports.contains_key(device);
        !has_tcx && (was_port || self.core.ports().any(|(link, _)| link.name == device))
    }

    /// Notes queues that differ from those before.
    pub(in super::super) fn note_queues(&mut self, before: &QosTable, by: &str) {
        let now = self.config.qos.clone();
        let changed: Vec<&String> =
            now.keys().chain(before.keys()).filter(|port| now.get(*port) != before.get(*port)).collect();
        for port in changed.into_iter().collect::<BTreeSet<_>>() {
            let to = now.get(port).map(|qos| queue_changes(before.get(port), qos));
            self.note(Happening::Queues { port: port.clone(), to, by: by.to_owned() });
        }
    }

    /// Notes what became of the flows in a restart.
    pub(super) fn note_restart(&mut self) {
        let what = match self.hand_over.start.clone() {
            Some(RestartKind::TakenOver { gap_ms }) => {
                let entries = self.plane.usage().unwrap_or_default().entries;
                Happening::FlowsKept { flows: entries.iter().map(|count| u64::from(*count)).sum(), gap_ms }
            }
            Some(RestartKind::Clean { why }) => Happening::FlowsLost { why },
            None => return,
        };
        self.note(what);
    }

    /// Notes ports that have come, gone, or changed their engine.
    pub(in super::super) fn record_ports(&mut self) {
        let now = self.ports_now();
        if now == self.recorder.seen.ports {
            return;
        }
        let before = std::mem::replace(&mut self.recorder.seen.ports, now.clone());
        for port in before.keys().filter(|port| !now.contains_key(*port)) {
            self.note(Happening::PortRemoved { port: port.clone() });
        }
        for (port, engine) in now {
            let from = before.get(&port).copied();
            if from != Some(engine) {
                let view = self.core.ports().find(|(link, _)| link.name == port);
                let why = view.map(|(_, view)| view.reason.clone()).unwrap_or_default();
                if let Some(from) = from {
                    let (port, at) = (port.clone(), Clock::read().now());
                    self.recorder.costs.change_engine(EngineChange { port, from, to: engine, at });
                }
                self.note(Happening::Engine { port, from, to: engine, why });
            }
        }
    }

    /// Notes whether the ruleset, which has been read, stops learning.
    pub(in super::super) fn record_hold(&mut self) {
        let hold = why_held(&self.core.ruleset());
        if hold == self.recorder.seen.hold {
            return;
        }
        self.recorder.seen.hold.clone_from(&hold);
        self.note(hold.map_or(Happening::Released, |why| Happening::Held { why }));
    }

    /// Notes rules of `shunt off` that have come or gone.
    pub(in super::super) fn record_off(&mut self) {
        let changes = self.off_rules.take_changes();
        let by = changes.first().map(|change| change.by).filter(|by| !by.is_owner());
        self.recorder.seen.off_by_command = by.filter(|by| changes.iter().all(|change| change.by == *by));
        // A client that adds or removes a rule waits for the file.
        if changes.iter().any(|change| matches!(change.end, Some(OffEnd::Time | OffEnd::TimeWithoutDaemon))) {
            let file = self.off_rules.replacement();
            self.keep("write-off", file, "a restart will note again that a rule of `shunt off` has ended");
        }
        for OffChange { which, by, for_s, end } in changes {
            self.note(match end {
                None => Happening::OffAdded { which, by, for_s },
                end => Happening::OffRemoved { which, by, end },
            });
        }
    }

    /// Notes what `shunt status` warns of.
    pub(super) fn record_faults(&mut self) {
        let counts_lost = self.plane.usage().unwrap_or_default().expired_lost;
        if std::mem::replace(&mut self.recorder.seen.counts_lost, counts_lost) < counts_lost {
            self.fault("counters of removed flows were lost; raise max_flows");
        }
        let lines_lost = crate::log_writer::lost_lines();
        if std::mem::replace(&mut self.recorder.seen.lines_lost, lines_lost) < lines_lost {
            self.fault("lines of the log could not be written: its disk or file is full");
        }
        if let Some(step) = self.steps.longest() {
            let seconds = step.seconds;
            let before = std::mem::replace(&mut self.recorder.seen.step_seconds, seconds);
            // The same step is the longest one for a minute.
            let is_new = (before - seconds).abs() > f64::EPSILON;
            if is_new && seconds > LongestStep::BOUND_SECONDS {
                self.fault(&format!(
                    "the daemon was busy or waiting for more than 5 ms with {}",
                    step.work()
                ));
            }
        }
    }

    /// Looks at the stations if one of them has changed since the last look.
    pub(super) fn record_stations(&mut self) {
        let of_neighbours = self.epoch_moves.get(&Cause::Neighbour).copied().unwrap_or_default();
        let moves = u64::from(self.plane.control().station_moves()) + of_neighbours;
        if std::mem::replace(&mut self.recorder.seen.station_moves, moves) != moves {
            self.read_stations();
        }
    }

    /// Notes stations that change again and again.
    pub(super) fn read_stations(&mut self) {
        let stations = self.plane.station_changes().unwrap_or_default();
        let news = self.recorder.seen.stations.follow(Clock::read().since_boot(), &stations);
        for news in news.into_iter().take(STATIONS_NAMED) {
            let name = |mac| shunt_wire::Mac(mac).to_string();
            self.note(match news {
                StationNews::Moving(mac) => Happening::Moving { station: name(mac) },
                StationNews::Unstable(mac) => Happening::Unstable { station: Some(name(mac)) },
            });
        }
    }

    fn fault(&mut self, what: &str) {
        self.note(Happening::Fault { what: what.to_owned() });
    }
}

/// The most changes of stations that wait for a moment.
const OF_HOSTS_MAX: usize = 64;
/// The most stations that are noted at a time.
const STATIONS_NAMED: usize = HistoryTable::OF_A_KIND_MAX;

/// The rates of a port's queues as they were and as they are, and that the rest differs if it does.
fn queue_changes(before: Option<&PortQos>, now: &PortQos) -> String {
    let default = PortQos::default();
    let was = before.unwrap_or(&default);
    let rate = |name: &str, was: BitRate, now: BitRate| {
        (was != now).then(|| format!("{name} {} instead of {}", bit_rate(now), bit_rate(was)))
    };
    let mut parts: Vec<String> = [rate("rate", was.rate, now.rate), rate("police", was.police, now.police)]
        .into_iter()
        .flatten()
        .collect();
    let same_rates = PortQos { rate: now.rate, police: now.police, ..was.clone() };
    if same_rates != *now {
        let classes: Vec<&str> = now.class.iter().map(|class| class.name.as_str()).collect();
        let names = if classes.is_empty() { "none".to_owned() } else { classes.join(", ") };
        parts.push(format!("bursts, framing or classes, which are now: {names}"));
    }
    parts.join("; ")
}

fn bit_rate(rate: BitRate) -> String {
    if rate.0 == 0 { "none".to_owned() } else { shunt_wire::units::bits_per_second(rate.0) }
}

/// Why the ruleset stops learning, for some traffic at least; `None` if it does not.
fn why_held(ruleset: &RulesetStatus) -> Option<String> {
    if let Some(why) = &ruleset.unread {
        return Some(format!("cannot read the ruleset: {why}"));
    }
    let stop = ruleset.stops.first().map(|note| format!("{}: {}", note.place(), note.statement));
    stop.or_else(|| {
        let note = ruleset.limits.first()?;
        Some(format!("for {}: {}: {}", note.traffic, note.place(), note.statement))
    })
}
