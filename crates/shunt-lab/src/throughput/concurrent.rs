//! The number of connections that a masquerading router holds at once: the connections are opened, and then a packet of
//! each must pass as the same connection.

use super::{Engine, RunningShunt, connections, generated::unless_stopped};
use crate::{
    Doubt, Progress, Results, ResultsFile, Run,
    net::NetNs,
    traffic::{Error, Figures, Session, Testbed, TrafficSpec, session},
};
use serde::Serialize;
use serde_json::{Value, json};
use shunt_gen::Schedule;
use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

/// Number of passes: one opens the connections, and one checks all of them. With a fast path, another one comes before
/// that, since a flow is proved twice.
const PASSES: u32 = 2;
const PASSES_FAST: u32 = 3;
/// Number of further tries of the last pass: on a machine that does other work, packets are lost.
const REPEATS: u32 = 2;
/// Counts packets that belong to no connection the router knows.
const COUNTER: &str = "table inet begun { counter connections { }; \
    chain forward { type filter hook forward priority filter - 1; iifname \"r0\" ct state new counter name connections; }; }";
/// Timeout of connections, longer than any trial.
const TIMEOUT_S: u32 = 86_400;

/// The plan of a search.
#[derive(Debug, Clone)]
pub struct ConcurrentPlan {
    /// The traffic: as many flows as the maximum, answered by the receiver.
    pub spec: TrafficSpec,
    /// Engines in a router of our own, by name; None for Linux without Shunt.
    pub engines: Vec<(String, Option<Engine>)>,
    /// The range of numbers of connections.
    pub range: Range,
    /// Rate at which connections are opened, in connections/s.
    pub pps: f64,
    /// Number of searches of each router.
    pub runs: u32,
}

/// A range of numbers of connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// The least number.
    pub min: u32,
    /// The greatest number.
    pub max: u32,
    /// The reason for `max`.
    pub max_of: MaximumOf,
    /// The relative width at which the search ends.
    pub width: f64,
}

/// The reason for a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaximumOf {
    /// The table's size, `nf_conntrack_max`.
    Table,
    /// The number of flows that addresses and ports give.
    Flows,
    /// An option.
    Asked,
    /// The option `--quick`.
    Quick,
}

/// The result of the searches.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The range of numbers of connections.
    pub range: Range,
    /// Rate at which connections were to be opened, in connections/s.
    pub pps: f64,
    /// The searches, in the order in which they were made.
    pub searches: Vec<Searched>,
    /// All readings, with doubts and conditions.
    pub results: Results,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Searched {
    /// Name of the router.
    pub device: String,
    /// Number of this search of the router, from 1.
    pub run: u32,
    /// Number of trials.
    pub trials: u32,
    /// The trial with the greatest number that was held.
    pub held: Option<Trial>,
    /// The trial with the least number that was not held; None if all were held.
    pub fails: Option<Trial>,
    /// Reasons why the result may be wrong.
    pub doubts: Vec<Doubt>,
}

/// A trial: all connections were opened, and then a packet of each was sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Trial {
    /// Number of connections.
    pub connections: u32,
    /// Rate at which they were opened, in connections/s.
    pub opened_pps: f64,
    /// Number of passes, the first one included.
    pub passes: u32,
    /// Entries in conntrack before or after the last pass, whichever is less.
    pub tracked: u64,
    /// Connections that the last pass opened again.
    pub renewed: u64,
    /// Packets of the last pass that were not answered.
    pub lost: u64,
    /// Share of the packets of the last pass on the fast path; None without an engine.
    pub fast_share: Option<f64>,
}

/// A masquerading router and its engine.
pub struct Router<'n> {
    ns: &'n NetNs,
    up: Option<RunningShunt<'n>>,
}

/// The router's counters.
struct RouterCounters {
    tracked: u64,
    begun: u64,
    /// Packets on the fast path, and all packets.
    fast: Option<(u64, u64)>,
}

impl Trial {
    /// Whether all connections were present and passed.
    pub fn held(&self) -> bool {
        self.tracked >= u64::from(self.connections) && self.renewed == 0 && self.lost == 0
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tracked, renewed, lost, .. } = self;
        write!(f, "{tracked} in conntrack, {renewed} opened twice, {lost} packets lost")
    }
}

impl fmt::Display for MaximumOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "nf_conntrack_max",
            Self::Flows => "the number of distinct flows",
            Self::Asked => "the requested maximum",
            Self::Quick => "the maximum of --quick",
        })
    }
}

impl Searched {
    /// The reason why the number is not greater.
    pub fn bound(&self, range: &Range) -> String {
        self.fails.map_or_else(|| range.max_of.to_string(), |trial| trial.to_string())
    }

    fn save(&self, file: &mut ResultsFile, range: &Range) -> Result<(), Error> {
        let name = format!("concurrent connections {}", self.device);
        let Some(held) = self.held else {
            file.add_missing(
                &name,
                format!("the router does not hold {} connections: {}", range.min, self.bound(range)),
            );
            return Ok(());
        };
        let details = json!({
            "held": held, "fails": self.fails, "bound": self.bound(range), "range": range,
            "trials": self.trials,
        });
        let details = details.as_object().cloned().unwrap_or_default();
        file.add(&name, "connections", Run { value: f64::from(held.connections), at: None, details })?;
        self.doubts.iter().for_each(|doubt| file.add_doubt(&name, doubt.clone()));
        Ok(())
    }
}

impl ConcurrentPlan {
    /// Searches each router in turn, `runs` times, and saves each search when it is over. When `stop` is set, the
    /// report has the searches until then.
    ///
    /// # Errors
    /// Fails if a trial fails or the file cannot be written. Finished searches stay in the file.
    pub fn perform(
        &self,
        mut file: ResultsFile,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        let mut searches = Vec::new();
        let total = u64::from(self.runs) * self.engines.len() as u64;
        'all: for run in 1..=self.runs {
            for (device, engine) in &self.engines {
                let done = searches.len() as u64;
                let searched = session(&self.spec, &Testbed::Own, stop, |session| {
                    file.set_nics(session.nics());
                    let router = Router::set_up(session, engine.as_ref())?;
                    let searched = self.range.search(|connections| {
                        unless_stopped(stop)?;
                        show(Progress { done, total, now: format!("{device}, {connections} connections") });
                        router.trial(session, connections, self.pps)
                    })?;
                    router.up.map(RunningShunt::down).transpose()?;
                    Ok::<_, Error>(searched)
                });
                let searched = match searched {
                    Err(_) if stop.load(Ordering::Relaxed) && !searches.is_empty() => break 'all,
                    searched => searched?,
                };
                let mut doubts = vec![Doubt::VirtualLinks];
                doubts.extend(searched.held.and_then(|trial| trial.fast_share).and_then(Doubt::slow_path));
                let searched = Searched { device: device.clone(), run, doubts, ..searched };
                searched.save(&mut file, &self.range)?;
                file.save()?;
                searches.push(searched);
            }
        }
        let results = file.end(!stop.load(Ordering::Relaxed))?;
        Ok(Report { range: self.range, pps: self.pps, searches, results })
    }
}

impl Range {
    /// Doubles the number until it is not held, then halves the interval.
    ///
    /// # Errors
    /// Returns the errors of the trials.
    pub fn search<E>(&self, mut trial: impl FnMut(u32) -> Result<Trial, E>) -> Result<Searched, E> {
        let mut searched = Searched::default();
        let mut next = self.min;
        loop {
            let seen = trial(next)?;
            searched.trials += 1;
            *if seen.held() { &mut searched.held } else { &mut searched.fails } = Some(seen);
            let [held, fails] = [searched.held, searched.fails].map(|of| of.map(|trial| trial.connections));
            next = match (held, fails) {
                (Some(held), None) if held < self.max => held.saturating_mul(2).min(self.max),
                (Some(held), Some(fails))
                    if f64::from(fails - held) > (f64::from(fails) * self.width).max(1.0) =>
                {
                    held.midpoint(fails)
                }
                _ => return Ok(searched),
            };
        }
    }
}

impl<'n> Router<'n> {
    /// Sets up masquerade, long timeouts and the counter of unknown packets in a session's router.
    ///
    /// # Errors
    /// Fails if the router is not our own or a command fails.
    pub fn set_up(session: &Session<'n>, engine: Option<&'n Engine>) -> Result<Self, Error> {
        let ns = session.router().ok_or_else(|| Error::Machine("the router is not our own".to_owned()))?;
        ns.try_run(&format!("nft '{}' && nft '{COUNTER}'", connections::RULESET))?;
        for timeout in ["udp_timeout", "udp_timeout_stream"] {
            ns.try_sysctl(&format!("netfilter/nf_conntrack_{timeout}"), TIMEOUT_S)?;
        }
        let up = RunningShunt::new(Some(ns), engine)?;
        Ok(Self { ns, up })
    }

    /// Opens connections at a rate, and then sends a packet of each again.
    ///
    /// # Errors
    /// Fails if the operating system returns an error.
    pub fn trial(&self, session: &mut Session<'_>, connections: u32, pps: f64) -> Result<Trial, Error> {
        connections::forget(self.ns)?;
        let packets = Some(u64::from(connections));
        let schedule = Schedule { pps: Some(pps), burst: 1, packets, duration: None };
        let mut trial = Trial { connections, ..Trial::default() };
        let least = if self.up.is_some() { PASSES_FAST } else { PASSES };
        let mut before = self.seen()?;
        while trial.passes < least + REPEATS {
            let figures = Figures::sum(&session.run(&schedule)?);
            let after = self.seen()?;
            if trial.passes == 0 {
                trial.opened_pps = figures.achieved_pps;
            }
            trial.passes += 1;
            trial.tracked = before.tracked.min(after.tracked);
            trial.renewed = after.begun - before.begun;
            trial.lost = u64::from(connections).saturating_sub(figures.received);
            trial.fast_share = after
                .fast
                .zip(before.fast)
                .map(|(after, before)| (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64);
            // If a second pass adds no entry, a third one will not add any.
            let full = after.tracked == before.tracked && after.tracked < u64::from(connections);
            if trial.passes >= least && trial.held() || full {
                break;
            }
            before = after;
        }
        Ok(trial)
    }

    fn seen(&self) -> Result<RouterCounters, Error> {
        let fast = self.up.as_ref().map(RunningShunt::packets).transpose()?;
        Ok(RouterCounters { tracked: connections::tracked(self.ns)?, begun: begun(self.ns)?, fast })
    }
}

/// Number of packets that belonged to no known connection.
fn begun(router: &NetNs) -> Result<u64, Error> {
    let text = router.try_run("nft -j list counter inet begun connections")?;
    let value: Option<Value> = serde_json::from_str(&text).ok();
    let objects = value.as_ref().and_then(|value| value["nftables"].as_array());
    let packets = objects.into_iter().flatten().find_map(|object| object["counter"]["packets"].as_u64());
    packets.ok_or_else(|| Error::Machine(format!("unexpected output of nft list counter: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A search of a table of this size, from 1000 to 262144.
    fn search(table: u32, width: f64) -> Searched {
        let range = Range { min: 1000, max: 262_144, max_of: MaximumOf::Table, width };
        let of = |connections: u32| {
            Ok::<_, Infallible>(Trial {
                connections,
                tracked: connections.min(table).into(),
                ..Trial::default()
            })
        };
        range.search(of).unwrap()
    }

    fn bounds(searched: &Searched) -> [Option<u32>; 2] {
        [searched.held, searched.fails].map(|trial| trial.map(|trial| trial.connections))
    }

    #[test]
    fn the_number_held_is_found_exactly_or_within_the_width() {
        let exact = search(2000, 0.0);
        assert_eq!(bounds(&exact), [Some(2000), Some(2001)]);
        let [held, fails] = bounds(&search(150_000, 0.01)).map(Option::unwrap);
        assert!(held <= 150_000 && fails > 150_000 && fails - held <= fails / 100, "{held} {fails}");
    }

    #[test]
    fn the_search_ends_at_the_maximum_or_if_the_minimum_fails() {
        let all = search(300_000, 0.01);
        // 1000 doubled eight times, and the maximum.
        assert_eq!((bounds(&all), all.trials), ([Some(262_144), None], 10));
        let none = search(999, 0.01);
        assert_eq!((bounds(&none), none.trials), ([None, Some(1000)], 1));
    }

    #[test]
    fn lost_or_reopened_connections_are_not_held() {
        let all = Trial { connections: 10, tracked: 10, ..Trial::default() };
        assert!(all.held());
        for trial in [Trial { tracked: 9, ..all }, Trial { renewed: 1, ..all }, Trial { lost: 1, ..all }] {
            assert!(!trial.held(), "{trial}");
        }
    }
}
