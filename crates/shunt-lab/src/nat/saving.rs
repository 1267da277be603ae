//! The readings of a measurement.

use super::{Capacity, Established, Measured, Throughput};
use crate::{Doubt, Position, ResultsFile, Run, search::GoalResult};
use serde::Serialize;
use serde_json::Value;
use std::io;

/// Conntrack's count and the connections established may differ by this share.
const SAME: f64 = 0.01;
/// Least duration of a trial, in seconds: shorter trials fit the buffers of a router.
const TRIAL_WANTED_S: f64 = 0.05;

impl Measured {
    /// Adds the readings of this run.
    pub(super) fn save(&self, file: &mut ResultsFile) -> io::Result<()> {
        let device = &self.device;
        if let Some(found) = &self.establishment {
            let name = format!("connection establishment rate {} connections {device}", found.connections);
            match found.rate() {
                Err(why) => file.add_missing(&name, why),
                Ok(rate) => add(file, &name, "1/s", rate, found)?,
            }
            self.doubt(file, &name, found.doubts(self));
        }
        if let Some(torn) = &self.tear_down {
            let name = format!("connection tear-down rate {} connections {device}", torn.asked);
            match torn.per_second() {
                Some(rate) => add(file, &name, "1/s", rate, torn)?,
                None => file.add_missing(&name, torn.missing()),
            }
            self.doubt(file, &name, Vec::new());
        }
        if let Some(found) = &self.capacity {
            let name = format!("connection capacity {device}");
            match found.held {
                Some(held) => add(file, &name, "connections", held.into(), found)?,
                None => file.add_missing(&name, found.bound()),
            }
            self.doubt(file, &name, Vec::new());
        }
        for found in &self.throughput {
            let sessions = found.sessions;
            let name = format!("throughput {sessions} sessions {device}");
            match found.rate() {
                Err(why) => file.add_missing(&name, why),
                Ok(pps) => {
                    add(file, &name, "pps", pps, found)?;
                    let [of, line, along] = ["throughput", device, "sessions"].map(str::to_owned);
                    let value = f64::from(sessions);
                    file.set_position(&name, Position { of, line, along, unit: String::new(), value });
                }
            }
            self.doubt(file, &name, found.doubts(self));
        }
        Ok(())
    }

    fn doubt(&self, file: &mut ResultsFile, name: &str, more: Vec<Doubt>) {
        self.doubts.iter().cloned().chain(more).for_each(|doubt| file.add_doubt(name, doubt));
    }

    /// The doubt that the sender was the limit: with virtual links, it does the router's work, too.
    fn sender_bound(&self) -> Doubt {
        if self.doubts.contains(&Doubt::VirtualLinks) { Doubt::SharedCpu } else { Doubt::GeneratorBound }
    }
}

impl Established {
    /// The rate in connections/s.
    ///
    /// # Errors
    /// Fails with the reason if there is no rate.
    pub fn rate(&self) -> Result<f64, String> {
        rate(&self.result, self.sender_bound)
    }

    /// Reasons why the rate may be wrong.
    pub fn doubts(&self, of: &Measured) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if let Some(difference) = self.tracked_difference.filter(|difference| *difference > SAME) {
            doubts.push(Doubt::ConntrackDiffers { percent: difference * 100.0 });
        }
        let seconds = self.result.throughput_pps.map(|pps| f64::from(self.connections) / pps);
        if let Some(seconds) = seconds.filter(|seconds| *seconds < TRIAL_WANTED_S) {
            doubts.push(Doubt::TooShort { seconds, wanted: TRIAL_WANTED_S });
        }
        doubts.extend(self.sender_bound.then(|| of.sender_bound()));
        doubts
    }
}

impl super::TornDown {
    /// The reason why there is no rate.
    pub fn missing(&self) -> String {
        format!(
            "cannot tell: a table of {} connections was emptied in {:.1} ms, an empty one in {:.1} ms; open more connections",
            self.connections,
            self.seconds * 1e3,
            self.empty_s * 1e3
        )
    }
}

impl Capacity {
    /// The reason why the number is not greater.
    pub fn bound(&self) -> String {
        match (self.failed, self.held) {
            (None, _) => format!("not searched beyond {}", self.search.max),
            (Some(failed), Some(_)) => format!("{failed} connections were not all held"),
            (Some(failed), None) => format!("the router does not hold {failed} connections"),
        }
    }
}

impl Throughput {
    /// The rate in frames/s of one direction.
    ///
    /// # Errors
    /// Fails with the reason if there is no rate.
    pub fn rate(&self) -> Result<f64, String> {
        let Self { sessions, left, result, sender_bound, .. } = self;
        let lost = u64::from(*sessions).saturating_sub(*left);
        match result {
            None => Err(format!("cannot tell: {lost} of {sessions} sessions could not be opened")),
            Some(_) if lost > 0 => {
                Err(format!("cannot tell: {lost} of {sessions} sessions were gone after the search"))
            }
            Some(result) => rate(result, *sender_bound),
        }
    }

    /// Reasons why the rate may be wrong.
    pub fn doubts(&self, of: &Measured) -> Vec<Doubt> {
        let slow = self.fast_share.and_then(Doubt::slow_path);
        self.sender_bound.then(|| of.sender_bound()).into_iter().chain(slow).collect()
    }
}

/// The rate of a search, or the reason why there is none.
fn rate(result: &GoalResult, sender_bound: bool) -> Result<f64, String> {
    match (result.throughput_pps, result.irregular) {
        (Some(rate), _) => Ok(rate),
        (None, _) if sender_bound => {
            Err("cannot tell: the sender was held up; make this machine quieter, or lower --min-load"
                .to_owned())
        }
        (None, why) => Err(why.map_or_else(|| "cannot tell".to_owned(), |why| why.to_string())),
    }
}

fn add(
    file: &mut ResultsFile,
    name: &str,
    unit: &str,
    value: f64,
    details: &impl Serialize,
) -> io::Result<()> {
    let details = match serde_json::to_value(details)? {
        Value::Object(details) => details,
        _ => serde_json::Map::new(),
    };
    file.add(name, unit, Run { value, at: None, details })
}
