//! The packets of each hour of a week, by kind of traffic.

use super::traffic::Traffic;
use serde::{Deserialize, Serialize};
use shunt_api::Savings;
use std::collections::{BTreeMap, VecDeque};

const HOUR_S: u64 = 3600;
/// Kinds of traffic in an hour; further ones are counted without a kind.
const KINDS_MAX: usize = 16;

/// The packets of a time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Packets {
    /// All fast packets.
    pub(super) all: u64,
    pub(super) by_traffic: BTreeMap<Traffic, u64>,
    /// The seconds in which they were counted.
    pub(super) seconds: f64,
    /// What Shunt itself has cost meanwhile.
    pub(super) own: OwnTime,
}

/// CPU time of Shunt itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OwnTime {
    /// Seconds in which it was read.
    pub(crate) counted_s: f64,
    pub(crate) daemon_s: f64,
    pub(crate) programs_s: f64,
    /// Seconds in which the cost of the programs was known.
    pub(crate) programs_known_s: f64,
}

impl OwnTime {
    fn add(&mut self, more: &Self) {
        self.counted_s += more.counted_s;
        self.daemon_s += more.daemon_s;
        self.programs_s += more.programs_s;
        self.programs_known_s += more.programs_known_s;
    }
}

/// The hours of a week, oldest first: when each begins, in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Hours(pub(super) VecDeque<(u64, Packets)>);

impl Hours {
    /// Adds what Shunt itself has cost to the hour of the last packets.
    pub(super) fn add_own(&mut self, own: &OwnTime) {
        if let Some((_, hour)) = self.0.back_mut() {
            hour.own.add(own);
        }
    }

    /// Adds packets that were counted within some seconds that end at `at`.
    pub(super) fn add(&mut self, at: u64, traffic: Option<Traffic>, packets: u64, seconds: f64) {
        let begin = at - at % HOUR_S;
        // A clock that was set back begins an hour again, or adds to the last one.
        if self.0.back().is_none_or(|(last, _)| *last < begin) {
            self.0.push_back((begin, Packets::default()));
        }
        if let Some((_, hour)) = self.0.back_mut() {
            hour.all += packets;
            hour.seconds += seconds;
            let kinds = hour.by_traffic.len();
            if let Some(traffic) = traffic
                && (kinds < KINDS_MAX || hour.by_traffic.contains_key(&traffic))
            {
                *hour.by_traffic.entry(traffic).or_default() += packets;
            }
        }
        let week = at.saturating_sub(Savings::WEEK_S);
        while self.0.front().is_some_and(|(begin, _)| begin + HOUR_S <= week)
            || self.0.len() as u64 > Savings::WEEK_S / HOUR_S + 1
        {
            self.0.pop_front();
        }
    }

    /// All packets of hours that end after `from`.
    pub(super) fn packets_since(&self, from: u64) -> Packets {
        let mut sum = Packets::default();
        for (_, hour) in self.0.iter().filter(|(begin, _)| begin + HOUR_S > from) {
            sum.all += hour.all;
            sum.seconds += hour.seconds;
            sum.own.add(&hour.own);
            for (traffic, packets) in &hour.by_traffic {
                *sum.by_traffic.entry(*traffic).or_default() += packets;
            }
        }
        sum
    }
}
