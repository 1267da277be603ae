//! An answer of `shunt bench run`.

use super::view::CampaignSummary;
use crate::golden::sample;

/// A campaign with a step in each state.
pub(crate) fn campaign() -> CampaignSummary {
    sample(include_str!("golden/bench-run.jsonl"))
}
