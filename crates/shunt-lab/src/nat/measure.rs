//! The four measurements of RFC 9693, each on an emptied table.

use super::{
    CapacitySearch,
    gateway::{Gateway, Opened, Pace},
};
use crate::{
    dut::ATTEMPTS,
    search::{Goal, GoalResult, MlrSearch, Outcome, Range, Trial, UNSENT},
    statistics::median,
    traffic::Error,
};
use serde::{Deserialize, Serialize};
use std::io;

/// Least duration of a trial of the establishment rate, in seconds: in shorter ones, the sender hardly runs.
const SHORTEST_S: f64 = 0.02;
/// A table is emptied this often to find the time that the command itself takes.
const EMPTIED: u32 = 3;
/// An emptied table must have taken this many times as long as an empty one.
const ABOVE_EMPTY: f64 = 2.0;

/// The maximum connection establishment rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Established {
    /// Number of connections of each trial.
    pub connections: u32,
    /// Number of trials.
    pub trials: u32,
    /// The rate in connections/s, and its bounds.
    pub result: GoalResult,
    /// How much conntrack's count differs from the connections established in trials that established all: the largest
    /// share. None if conntrack cannot be asked or no trial established all.
    pub tracked_difference: Option<f64>,
    /// Whether more frames were not sent than were lost at the upper bound.
    pub sender_bound: bool,
}

/// The connection tear-down rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TornDown {
    /// Number of connections that were to be in the table.
    pub asked: u32,
    /// Number of connections in the table.
    pub connections: u64,
    /// Time to empty the table, in seconds.
    pub seconds: f64,
    /// Time to empty a table without connections, in seconds: the cost of the command.
    pub empty_s: f64,
}

/// The capacity of the connection tracking table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The search and its range.
    pub search: CapacitySearch,
    /// The greatest number that was held; None if not even the least was.
    pub held: Option<u32>,
    /// The least number that was not held; None if all were.
    pub failed: Option<u32>,
    /// Number of trials.
    pub trials: u32,
    /// Connections in conntrack when the greatest number was held; None if conntrack cannot be asked.
    pub tracked: Option<u64>,
}

/// Throughput with a number of sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Number of sessions, each of which sends both ways.
    pub sessions: u32,
    /// Number of sessions that answered after the search.
    pub left: u64,
    /// Number of trials.
    pub trials: u32,
    /// The rate in frames/s of one direction, and its bounds; None if not all sessions could be opened.
    pub result: Option<GoalResult>,
    /// Share of the packets on the fast path; None without an engine.
    pub fast_share: Option<f64>,
    /// Whether more frames were not sent than were lost at the upper bound.
    pub sender_bound: bool,
}

/// A finished search for a rate.
struct Found {
    result: GoalResult,
    trials: Vec<(Trial, Outcome)>,
}

impl TornDown {
    /// Connections/s; None if the table was emptied hardly slower than an empty one.
    pub fn per_second(&self) -> Option<f64> {
        let measurable = self.connections > 0 && self.seconds > ABOVE_EMPTY * self.empty_s;
        measurable.then(|| self.connections as f64 / (self.seconds - self.empty_s))
    }
}

impl Found {
    fn search(
        goal: Goal,
        range: Range,
        warm_up_s: Option<f64>,
        mut measure: impl FnMut(Trial) -> Result<Outcome, Error>,
    ) -> Result<Self, Error> {
        let wrong = |why| Error::from(io::Error::new(io::ErrorKind::InvalidInput, why));
        let mut search = MlrSearch::new(&[goal], range).map_err(wrong)?;
        if let Some(seconds) = warm_up_s {
            search = search.with_warm_up(seconds);
        }
        let mut trials = Vec::new();
        let results = crate::search::run(&mut search, |trial| {
            let mut outcome = measure(trial)?;
            // A sender that was held up says nothing about the router.
            if outcome.unsent() > outcome.lost() {
                let again = measure(trial)?;
                if again.loss_ratio() < outcome.loss_ratio() {
                    outcome = again;
                }
            }
            trials.push((trial, outcome));
            Ok::<_, Error>(outcome)
        })?;
        trials.drain(..usize::from(warm_up_s.is_some()));
        let result = results.into_iter().next().ok_or_else(|| Error::Machine("no goal".to_owned()))?;
        Ok(Self { result, trials })
    }

    /// Whether more frames were not sent than were lost at the upper bound, or no load was too high.
    fn sender_bound(&self) -> bool {
        let at_upper = self.trials.iter().filter(|(trial, _)| Some(trial.load_pps) == self.result.upper_pps);
        let (unsent, lost) = at_upper
            .fold((0, 0), |(unsent, lost), (_, outcome)| (unsent + outcome.unsent(), lost + outcome.lost()));
        self.result.upper_pps.is_none() || unsent > lost
    }
}

/// Searches for the highest rate at which all connections are established. Each trial opens the same number of
/// connections, so a trial counts the same whatever its rate; the goal's durations count trials.
pub(super) fn establishment(
    gateway: &mut dyn Gateway,
    connections: u32,
    goal: Goal,
    range: Range,
) -> Result<Established, Error> {
    let most = (f64::from(connections) / SHORTEST_S).max(2.0 * range.min_pps);
    let range = Range { max_pps: range.max_pps.min(most), ..range };
    let mut tracked_difference: Option<f64> = None;
    let found = Found::search(goal, range, None, |trial| {
        let mut outcome = open_at(gateway, connections, trial, &mut tracked_difference)?;
        for _ in 1..ATTEMPTS {
            if !outcome.sender_late {
                break;
            }
            gateway.change_priority();
            outcome = open_at(gateway, connections, trial, &mut tracked_difference)?;
        }
        Ok(outcome)
    })?;
    Ok(Established {
        connections,
        trials: found.trials.len() as u32,
        sender_bound: found.sender_bound(),
        tracked_difference,
        result: found.result,
    })
}

/// Opens connections in an empty table at the load of a trial.
fn open_at(
    gateway: &mut dyn Gateway,
    connections: u32,
    trial: Trial,
    tracked_difference: &mut Option<f64>,
) -> Result<Outcome, Error> {
    gateway.empty()?;
    let Opened { sent, held_up, established, tracked } =
        gateway.open(connections, Pace::Exactly(trial.load_pps))?;
    if let Some(tracked) = tracked.filter(|_| established > 0 && established == sent) {
        let difference = tracked.abs_diff(sent) as f64 / sent as f64;
        *tracked_difference = Some(tracked_difference.map_or(difference, |worst| worst.max(difference)));
    }
    // A few frames may stay unsent. If all that was sent was established, and the sender was not too slow but held up,
    // the rate is not known to be too high.
    let all = u64::from(connections);
    let enough = sent >= all - (f64::from(connections) * UNSENT) as u64;
    let (expected, sender_late) =
        (if enough { sent } else { all }, !enough && held_up && established >= sent);
    Ok(Outcome {
        expected,
        offered: sent,
        forwarded: established,
        effective_s: trial.duration_s,
        sender_late,
    })
}

/// Opens connections and deletes all of them.
pub(super) fn tear_down(gateway: &mut dyn Gateway, connections: u32, pps: f64) -> Result<TornDown, Error> {
    gateway.empty()?;
    let empty = (0..EMPTIED).map(|_| Ok(gateway.empty()?.as_secs_f64()));
    let empty_s = median(&empty.collect::<Result<Vec<_>, Error>>()?).unwrap_or_default();
    let (_, opened) = fill(gateway, connections, pps)?;
    let seconds = gateway.empty()?.as_secs_f64();
    let (asked, connections) = (connections, opened.tracked.unwrap_or(opened.established));
    Ok(TornDown { asked, connections, seconds, empty_s })
}

/// Opens connections in an empty table.
fn fill(gateway: &mut dyn Gateway, connections: u32, pps: f64) -> Result<(bool, Opened), Error> {
    gateway.empty()?;
    let opened = gateway.open(connections, Pace::AtMost(pps))?;
    Ok((opened.established == u64::from(connections), opened))
}

/// Searches for the number of connections that the router holds at once: each of them answers.
pub(super) fn capacity(
    gateway: &mut dyn Gateway,
    mut search: CapacitySearch,
    pps: f64,
) -> Result<Capacity, Error> {
    let (mut trials, mut tracked) = (0, None);
    while let Some(number) = search.next_number() {
        let (held, opened) = fill(gateway, number, pps)?;
        search.record(number, held);
        trials += 1;
        if held {
            tracked = opened.tracked;
        }
    }
    Ok(Capacity { search, held: search.held, failed: search.failed, trials, tracked })
}

/// Searches for the highest rate without loss of frames both ways through this many sessions.
pub(super) fn throughput(
    gateway: &mut dyn Gateway,
    sessions: u32,
    pps: f64,
    goal: Goal,
    range: Range,
) -> Result<Throughput, Error> {
    let (all, opened) = fill(gateway, sessions, pps)?;
    if !all {
        let (left, result) = (opened.established, None);
        return Ok(Throughput { sessions, left, trials: 0, result, fast_share: None, sender_bound: false });
    }
    let before = gateway.fast_packets()?;
    let found = Found::search(goal, range, Some(goal.final_s), |trial| gateway.load(trial))?;
    let fast_share = gateway.fast_packets()?.zip(before).map(|((fast, of), (fast_before, of_before))| {
        (fast - fast_before) as f64 / (of - of_before).max(1) as f64
    });
    let left = gateway.validate()?;
    Ok(Throughput {
        sessions,
        left,
        trials: found.trials.len() as u32,
        sender_bound: found.sender_bound(),
        result: Some(found.result),
        fast_share,
    })
}

#[cfg(test)]
mod tests;
