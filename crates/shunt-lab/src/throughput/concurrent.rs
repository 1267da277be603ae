//! How many connections a router that translates them holds at once: so many are begun, and then each must pass again, as the one it was.

use super::{Engine, Up, connections, generated::unless_stopped};
use crate::{
    Doubt, Kept, Progress, Results, Run,
    net::NetNs,
    traffic::{Error, Figures, Place, Session, Wanted, session},
};
use serde::Serialize;
use serde_json::{Value, json};
use shunt_gen::Schedule;
use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

/// One pass begins the connections, and another shows that all are there; before that, one makes a fast path take them, which proves a flow twice.
const PASSES: u32 = 2;
const PASSES_FAST: u32 = 3;
/// On a machine that does other things too packets are lost, so the last pass has so many more tries.
const REPEATS: u32 = 2;
/// Counts packets that are of no connection that the router knows.
const COUNTER: &str = "table inet begun { counter connections { }; \
    chain forward { type filter hook forward priority filter - 1; iifname \"r0\" ct state new counter name connections; }; }";
/// Longer than any trial: no connection times out in it.
const TIMEOUT_S: u32 = 86_400;

/// What is to be found out.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The frames, of as many flows as the maximum, and answered.
    pub wanted: Wanted,
    /// What forwards in a router of our own, by name; none: Linux.
    pub engines: Vec<(String, Option<Engine>)>,
    /// How many connections are tried.
    pub range: Range,
    /// How fast they are begun, in connections/s.
    pub pps: f64,
    /// How often each is searched.
    pub runs: u32,
}

/// Between which numbers of connections is searched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// The least one.
    pub min: u32,
    /// The greatest one.
    pub max: u32,
    /// Why not more.
    pub max_of: MaximumOf,
    /// How near bounds are to come, as a share.
    pub width: f64,
}

/// Where a maximum is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaximumOf {
    /// It is `nf_conntrack_max`.
    Table,
    /// Addresses and ports give no more flows that can be told apart.
    Flows,
    /// It was asked for.
    Asked,
    /// It is to be quick.
    Quick,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Between what.
    pub range: Range,
    /// How fast they were to be begun, in connections/s.
    pub pps: f64,
    /// A search each, in the order in which they were made.
    pub searches: Vec<Searched>,
    /// The same in the form of a file, with doubts and conditions.
    pub results: Results,
}

/// One search.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Searched {
    /// Of which router.
    pub device: String,
    /// The how many-th of this router, from 1 on.
    pub run: u32,
    /// How many trials it took.
    pub trials: u32,
    /// The greatest number that was held.
    pub held: Option<Trial>,
    /// The least one that was not, where there is one.
    pub fails: Option<Trial>,
    /// Why it may be wrong.
    pub doubts: Vec<Doubt>,
}

/// What came of so many connections, when all were begun and their packets were sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Trial {
    /// So many.
    pub connections: u32,
    /// How fast they were begun, in connections/s.
    pub opened_pps: f64,
    /// How often they were sent over, with the first time.
    pub passes: u32,
    /// What conntrack had of them, before the last pass or after it.
    pub tracked: u64,
    /// Connections that the last pass began anew.
    pub renewed: u64,
    /// Packets of the last pass that were not answered.
    pub lost: u64,
    /// The share of the packets of the last pass that the fast path took, if there is one.
    pub fast_share: Option<f64>,
}

/// A router that translates, and what forwards in it.
pub struct Router<'n> {
    ns: &'n NetNs,
    up: Option<Up<'n>>,
}

/// What the router has counted.
struct Seen {
    tracked: u64,
    begun: u64,
    /// Packets that the fast path took, and all.
    fast: Option<(u64, u64)>,
}

impl Trial {
    /// All connections were there, and passed.
    pub fn held(&self) -> bool {
        self.tracked >= u64::from(self.connections) && self.renewed == 0 && self.lost == 0
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tracked, renewed, lost, .. } = self;
        write!(f, "conntrack had {tracked}, {renewed} began anew, {lost} lost")
    }
}

impl fmt::Display for MaximumOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "nf_conntrack_max",
            Self::Flows => "the flows that can be told apart",
            Self::Asked => "the maximum that was asked for",
            Self::Quick => "the maximum of --quick",
        })
    }
}

impl Searched {
    /// What kept it from being more.
    pub fn bound(&self, range: &Range) -> String {
        self.fails.map_or_else(|| range.max_of.to_string(), |trial| trial.to_string())
    }

    fn keep(&self, kept: &mut Kept, range: &Range) -> Result<(), Error> {
        let name = format!("concurrent connections {}", self.device);
        let Some(held) = self.held else {
            kept.lacks(&name, format!("{} are too many: {}", range.min, self.bound(range)));
            return Ok(());
        };
        let details = json!({
            "held": held, "fails": self.fails, "bound": self.bound(range), "range": range,
            "trials": self.trials,
        });
        let details = details.as_object().cloned().unwrap_or_default();
        kept.add(&name, "connections", Run { value: f64::from(held.connections), at: None, details })?;
        self.doubts.iter().for_each(|doubt| kept.doubt(&name, doubt.clone()));
        Ok(())
    }
}

impl Plan {
    /// Searches each router in turn, `runs` times, and puts down each search as soon as it is over. When `stop` is set, what there
    /// is by then is the report.
    ///
    /// # Errors
    /// When a trial cannot be measured, or what was found cannot be kept. The searches until then are kept.
    pub fn perform(
        &self,
        kept: &mut Kept,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        let mut searches = Vec::new();
        let total = u64::from(self.runs) * self.engines.len() as u64;
        'all: for run in 1..=self.runs {
            for (device, engine) in &self.engines {
                let done = searches.len() as u64;
                let searched = session(&self.wanted, &Place::Own, stop, |session| {
                    kept.took_part(session.nics());
                    let router = Router::set_up(session, engine.as_ref())?;
                    let searched = self.range.search(|connections| {
                        unless_stopped(stop)?;
                        show(Progress { done, total, now: format!("{device}, {connections} connections") });
                        router.trial(session, connections, self.pps)
                    })?;
                    router.up.map(Up::down).transpose()?;
                    Ok::<_, Error>(searched)
                });
                let searched = match searched {
                    Err(_) if stop.load(Ordering::Relaxed) && !searches.is_empty() => break 'all,
                    searched => searched?,
                };
                let mut doubts = vec![Doubt::VirtualLinks];
                doubts.extend(searched.held.and_then(|trial| trial.fast_share).and_then(Doubt::slow_path));
                let searched = Searched { device: device.clone(), run, doubts, ..searched };
                searched.keep(kept, &self.range)?;
                searches.push(searched);
            }
        }
        Ok(Report { range: self.range, pps: self.pps, searches, results: kept.results().clone() })
    }
}

impl Range {
    /// Doubles what is held until something is not, and halves what is in between.
    ///
    /// # Errors
    /// Those of the trials.
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
    /// Has the router of a session translate, keep what it tracks, and count what it did not know.
    ///
    /// # Errors
    /// When there is no router of ours, or it refuses.
    pub fn set_up(session: &Session<'n>, engine: Option<&'n Engine>) -> Result<Self, Error> {
        let ns =
            session.router().ok_or_else(|| Error::Machine("not through a router of our own".to_owned()))?;
        ns.try_run(&format!("nft '{}' && nft '{COUNTER}'", connections::RULESET))?;
        for timeout in ["udp_timeout", "udp_timeout_stream"] {
            ns.try_sysctl(&format!("netfilter/nf_conntrack_{timeout}"), TIMEOUT_S)?;
        }
        let up = Up::new(Some(ns), engine)?;
        Ok(Self { ns, up })
    }

    /// Begins so many connections, at so many a second, and sends over all of them again.
    ///
    /// # Errors
    /// When the machine refuses.
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
            // Where a second time adds none, a third one will not.
            let full = after.tracked == before.tracked && after.tracked < u64::from(connections);
            if trial.passes >= least && trial.held() || full {
                break;
            }
            before = after;
        }
        Ok(trial)
    }

    fn seen(&self) -> Result<Seen, Error> {
        let fast = self.up.as_ref().map(Up::packets).transpose()?;
        Ok(Seen { tracked: connections::tracked(self.ns)?, begun: begun(self.ns)?, fast })
    }
}

/// How many packets were of no connection that the router knew.
fn begun(router: &NetNs) -> Result<u64, Error> {
    let said = router.try_run("nft -j list counter inet begun connections")?;
    let value: Option<Value> = serde_json::from_str(&said).ok();
    let objects = value.as_ref().and_then(|value| value["nftables"].as_array());
    let packets = objects.into_iter().flatten().find_map(|object| object["counter"]["packets"].as_u64());
    packets.ok_or_else(|| Error::Machine(format!("nft list counter does not say how many packets: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A table of so many, searched from 1000 to 262144.
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
    fn what_is_held_is_found_to_the_last_connection_or_within_the_width() {
        let exact = search(2000, 0.0);
        assert_eq!(bounds(&exact), [Some(2000), Some(2001)]);
        let [held, fails] = bounds(&search(150_000, 0.01)).map(Option::unwrap);
        assert!(held <= 150_000 && fails > 150_000 && fails - held <= fails / 100, "{held} {fails}");
    }

    #[test]
    fn it_ends_at_the_maximum_and_where_the_least_is_too_much() {
        let all = search(300_000, 0.01);
        // 1000 doubled eight times, and the maximum.
        assert_eq!((bounds(&all), all.trials), ([Some(262_144), None], 10));
        let none = search(999, 0.01);
        assert_eq!((bounds(&none), none.trials), ([None, Some(1000)], 1));
    }

    #[test]
    fn one_that_is_lost_or_begins_anew_is_not_held() {
        let all = Trial { connections: 10, tracked: 10, ..Trial::default() };
        assert!(all.held());
        for trial in [Trial { tracked: 9, ..all }, Trial { renewed: 1, ..all }, Trial { lost: 1, ..all }] {
            assert!(!trial.held(), "{trial}");
        }
    }
}
