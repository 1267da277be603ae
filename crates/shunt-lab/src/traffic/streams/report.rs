//! The report of several streams.

use crate::{
    Conditions, Doubt, Results, ResultsFile,
    traffic::{Directed, Figures, WHAT, readings::readings},
};
use serde::{Deserialize, Serialize};
use std::io;

/// The figures of one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// The name of the stream.
    pub name: String,
    /// Whether packets were left to send when the figures were read.
    pub running: bool,
    /// Number of packets of the warm-up, which do not count.
    pub warm_up_sent: u64,
    /// Reasons why the figures of this stream may be wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<Doubt>,
    /// Direction, packets and figures.
    #[serde(flatten)]
    pub directed: Directed,
}

/// The report of a measurement with several streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamsReport {
    /// Reasons why the figures may be wrong.
    pub doubts: Vec<Doubt>,
    /// Sum over all streams.
    #[serde(flatten)]
    pub figures: Figures,
    /// Figures of each stream.
    pub streams: Vec<StreamReport>,
    /// Number of frames that the kernel builds before it passes them on.
    pub burst: u32,
    /// The same figures as a file of results, with the conditions.
    #[serde(flatten, serialize_with = "Results::serialize_file")]
    pub results: Results,
}

impl StreamsReport {
    pub(super) fn new(
        streams: Vec<StreamReport>,
        burst: u32,
        conditions: Conditions,
        interrupted: bool,
    ) -> Self {
        let mut doubts = conditions.doubts();
        let found = streams.iter().flat_map(|stream| stream.doubts.clone());
        found.chain(interrupted.then_some(Doubt::Interrupted)).for_each(|doubt| doubt.add_to(&mut doubts));
        let mut results = Results::new(WHAT, conditions);
        let named =
            streams.iter().map(|one| (one.name.clone(), &one.directed.figures, one.directed.limit.as_ref()));
        results.readings = readings(named, None, &doubts);
        results.complete = !interrupted;
        let all: Vec<Directed> = streams.iter().map(|stream| stream.directed.clone()).collect();
        Self { doubts, figures: Figures::sum(&all), streams, burst, results }
    }

    /// Adds the figures to a file of results.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save(&self, file: &mut ResultsFile) -> io::Result<()> {
        file.set_nics(&self.results.conditions.nics);
        self.results.readings.iter().try_for_each(|(name, reading)| file.add_all(name, reading))
    }
}
