//! The packets of each hour of a week, by kind of traffic.

use super::traffic::Traffic;
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
}

/// The hours of a week, oldest first: when each begins, in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Hours(pub(super) VecDeque<(u64, Packets)>);

impl Hours {
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
            for (traffic, packets) in &hour.by_traffic {
                *sum.by_traffic.entry(*traffic).or_default() += packets;
            }
        }
        sum
    }
}
