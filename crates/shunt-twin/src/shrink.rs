//! Searches the shortest sequence that shows a difference, by delta debugging over packets and changes.

use crate::{
    change::Change,
    episode::{EpisodeOptions, Outcome, carry_out},
    packet::Intent,
    plan::{EpisodePlan, Step},
};
use std::time::{Duration, Instant};

/// A packet or a change that can be left out, with the number of its step.
#[derive(Debug, Clone)]
enum Part {
    Packet(usize, Intent),
    Change(usize, Change),
}

/// A shorter plan that still fails, with its outcome; `None` if none was found in time.
pub(crate) fn shrink(
    plan: &EpisodePlan,
    outcome: &Outcome,
    options: &EpisodeOptions,
    limit: Duration,
) -> Option<(EpisodePlan, Outcome)> {
    let end = Instant::now() + limit;
    let until = outcome.found.first().map_or(plan.steps.len(), |(step, _)| step + 1);
    let mut search = Search { plan, options, end, last: None, parts: parts(&plan.steps[..until]) };
    if let Some(identity) = outcome.found.first().and_then(|(_, discrepancy)| discrepancy.identity) {
        search.attempt(search.parts.iter().filter(|part| part.is_of(identity.flow)).cloned().collect());
    }
    let mut size = search.parts.len().div_ceil(2);
    while size > 0 && Instant::now() < end {
        let mut at = 0;
        while at < search.parts.len() && Instant::now() < end {
            let cut = at..(at + size).min(search.parts.len());
            let mut without = search.parts.clone();
            without.drain(cut);
            // The next parts are now at the position of the cut.
            if without.is_empty() || !search.attempt(without) {
                at += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    Some((search.plan_of(&search.parts), search.last?))
}

struct Search<'a> {
    plan: &'a EpisodePlan,
    options: &'a EpisodeOptions,
    end: Instant,
    last: Option<Outcome>,
    parts: Vec<Part>,
}

impl Search<'_> {
    /// Carries out these parts; keeps them if they fail.
    fn attempt(&mut self, parts: Vec<Part>) -> bool {
        if Instant::now() >= self.end {
            return false;
        }
        let outcome = carry_out(&self.plan_of(&parts), self.options, &mut |_| {});
        let fails = outcome.is_bad();
        if fails {
            self.parts = parts;
            self.last = Some(outcome);
        }
        fails
    }

    fn plan_of(&self, parts: &[Part]) -> EpisodePlan {
        let steps = parts.chunk_by(|a, b| a.step() == b.step()).map(|group| match &group[0] {
            Part::Change(_, change) => Step::Change(change.clone()),
            Part::Packet(..) => Step::Round(group.iter().filter_map(Part::intent).collect()),
        });
        EpisodePlan { steps: steps.collect(), ..self.plan.clone() }
    }
}

impl Part {
    fn step(&self) -> usize {
        match self {
            Self::Packet(step, _) | Self::Change(step, _) => *step,
        }
    }

    fn intent(&self) -> Option<Intent> {
        if let Self::Packet(_, intent) = self { Some(*intent) } else { None }
    }

    /// Whether this is a change, or a packet of this flow.
    fn is_of(&self, flow: u16) -> bool {
        self.intent().is_none_or(|intent| intent.flow == flow)
    }
}

fn parts(steps: &[Step]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Round(intents) => parts.extend(intents.iter().map(|intent| Part::Packet(number, *intent))),
            Step::Change(change) => parts.push(Part::Change(number, change.clone())),
        }
    }
    parts
}
