//! The results of a run.

use crate::{
    Options,
    compare::{Discrepancy, Fault},
    episode::{EpisodeOptions, Outcome},
    plan::{EpisodePlan, Step},
    shrink::shrink,
    worker::Frame,
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// A connection in another state for so many packets is accepted: at a load of ten, one in ten million packets was in
/// FIN_WAIT where Linux alone had CLOSE_WAIT.
const STATE_PACKETS: u64 = 2_000_000;

/// The numbers of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Seed of the first episode, which determines the others.
    pub seed: u64,
    /// Packets sent to each router.
    pub packets: u64,
    /// Changes made on each router.
    pub changes: u64,
    /// Frames with other bytes or another egress than without Shunt, or that Linux alone would not send.
    pub differences: u64,
    /// Frames that only the router without Shunt sent.
    pub lost: u64,
    /// Frames that were sent once more than without Shunt.
    pub duplicated: u64,
    /// Packets that were overtaken within their direction of a flow, and not without Shunt.
    pub reordered: u64,
    /// Overtaken packets that were the only one of their flow and round, which happens when a packet re-proves the
    /// flow.
    pub reordered_reproof: u64,
    /// Packets sent during a change, which may leave as before or after it.
    pub within_reaction: u64,
    /// Share of the eligible packets that were fast, 0 to 1.
    pub fast_share: f64,
    /// Duration in seconds, including the set-up of routers.
    pub seconds: f64,
    /// Frames that left both routers and were compared.
    pub compared: u64,
    /// Frames that Linux sends by its timers, which are not compared.
    pub unasked: u64,
    /// Other connections that conntrack showed in another state than without Shunt. They were deleted, too.
    pub other_states: Vec<String>,
    /// Connections with resets or forged packets that conntrack showed in another state than without Shunt. They were
    /// deleted on both routers.
    pub other_resets: u64,
    /// Changes by kind.
    pub changes_by_kind: BTreeMap<String, u64>,
    /// Packets by shape.
    pub packets_by_shape: BTreeMap<String, u64>,
    /// Packets by punt reason and by refusal.
    pub reasons: BTreeMap<String, u64>,
    /// Episodes that were repeated because other programs had filled queues that all network namespaces share.
    pub disturbed: u64,
    /// The first episode with a difference, if any.
    pub failure: Option<Failure>,
    #[serde(skip)]
    fast: u64,
    #[serde(skip)]
    eligible: u64,
}

/// The first episode with a difference.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// Seed of the episode; with `packets` and `changes`, it repeats the episode.
    pub seed: u64,
    /// Packets of the episode.
    pub packets: u64,
    /// Changes of the episode.
    pub changes: u64,
    /// The first differences found.
    pub found: Vec<String>,
    /// The shortest sequence of steps found that shows a difference; empty if no shorter one was found.
    pub steps: Vec<String>,
    /// The differences that this sequence shows.
    pub shown: Vec<String>,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.packets += outcome.packets;
        self.changes += outcome.changes.values().sum::<u64>();
        self.compared += outcome.compared;
        self.unasked += outcome.unasked;
        self.reordered += outcome.reordered;
        self.reordered_reproof += outcome.reordered_reproof;
        self.within_reaction += outcome.within_reaction;
        self.fast += outcome.fast;
        self.eligible += outcome.eligible;
        self.fast_share = self.fast as f64 / self.eligible.max(1) as f64;
        for (_, discrepancy) in &outcome.found {
            match discrepancy.kind {
                Fault::Different | Fault::Extra => self.differences += 1,
                Fault::Lost => self.lost += 1,
                Fault::Duplicated => self.duplicated += 1,
            }
        }
        self.differences += outcome.uneven.len() as u64;
        self.other_resets += outcome.other_resets;
        self.other_states.extend_from_slice(&outcome.other_states);
        for (subject, count) in &outcome.changes {
            *self.changes_by_kind.entry(format!("{subject:?}").to_lowercase()).or_default() += count;
        }
        for (shape, count) in &outcome.shapes {
            *self.packets_by_shape.entry(format!("{shape:?}").to_lowercase()).or_default() += count;
        }
        for (reason, count) in &outcome.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    /// Whether there were no differences, losses or duplicates, and hardly any other states of connections.
    pub fn is_good(&self) -> bool {
        let other_states = self.other_states.len() as u64;
        self.differences + self.lost + self.duplicated == 0
            && other_states <= 1 + self.packets / STATE_PACKETS
    }
}

impl Failure {
    pub(crate) fn new(
        plan: &EpisodePlan,
        outcome: &Outcome,
        episode_options: &EpisodeOptions,
        options: &Options,
    ) -> Self {
        let mut failure = Self {
            seed: plan.seed,
            packets: plan.packets,
            changes: plan.steps.iter().filter(|step| matches!(step, Step::Change(_))).count() as u64,
            found: describe(plan, outcome),
            steps: Vec::new(),
            shown: Vec::new(),
        };
        if let Some((shorter, outcome)) = shrink(plan, outcome, episode_options, options.shrink) {
            failure.steps = shorter.steps.iter().map(ToString::to_string).collect();
            failure.shown = describe(&shorter, &outcome);
        }
        failure
    }
}

/// Describes the first five faults.
fn describe(plan: &EpisodePlan, outcome: &Outcome) -> Vec<String> {
    let uneven = outcome.uneven.iter().map(|output| format!("a command failed on one router only: {output}"));
    let found = outcome.found.iter().map(|(step, discrepancy)| {
        let flow = discrepancy.identity.and_then(|identity| plan.flows.get(usize::from(identity.flow)));
        let flow = flow.map_or_else(|| "of no flow".to_owned(), ToString::to_string);
        let last = plan.steps[..=*step].iter().rposition(|step| matches!(step, Step::Change(_)));
        let last = last.map_or_else(String::new, |at| format!(", last change at {at}: {}", plan.steps[at]));
        format!("step {step}{last}; {flow}\n{discrepancy}")
    });
    uneven.chain(found).take(5).collect()
}

impl fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, identity, reference, subject } = self;
        write!(f, "  {kind:?}")?;
        if let Some(identity) = identity {
            let way = if identity.back { "back" } else { "there" };
            write!(f, ", packet {} {way}", identity.number)?;
        }
        for (who, frame) in [("without", reference), ("with", subject)] {
            match frame {
                Some(frame) => write!(f, "\n  {who:>7}: {frame}")?,
                None => write!(f, "\n  {who:>7}: nothing")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} bytes: ", self.site, self.bytes.len())?;
        self.bytes.iter().take(128).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, packets, changes, differences, lost, duplicated, reordered, .. } = self;
        writeln!(f, "seed {seed}: {packets} packets, {changes} changes in {:.0} s", self.seconds)?;
        writeln!(f, "fast: {:.0} % of those that could be", self.fast_share * 100.0)?;
        writeln!(f, "differences: {differences}, lost: {lost}, duplicated: {duplicated}")?;
        writeln!(f, "other states in conntrack after resets or forged packets: {}", self.other_resets)?;
        self.other_states.iter().try_for_each(|text| writeln!(f, "other state in conntrack: {text}"))?;
        writeln!(
            f,
            "reordered: {reordered}, by re-proofs: {}; sent during changes: {}",
            self.reordered_reproof, self.within_reaction
        )?;
        let Some(failure) = &self.failure else { return Ok(()) };
        writeln!(
            f,
            "\nto repeat: --seed {} --packets {} --changes {}\n{}",
            failure.seed,
            failure.packets,
            failure.changes,
            failure.found.join("\n")
        )?;
        if failure.steps.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nthe shortest sequence found:\n{}", failure.steps.join("\n"))?;
        writeln!(f, "{}", failure.shown.join("\n"))
    }
}
