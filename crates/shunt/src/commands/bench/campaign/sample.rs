//! An answer of `shunt bench run`.

use super::view::{CampaignSummary, StepState, StepSummary};

/// A campaign with a step in each state.
pub(crate) fn campaign() -> CampaignSummary {
    let step = |name: &str, state: StepState, seconds: f64, [readings, doubts]: [usize; 2]| StepSummary {
        step: name.to_owned(),
        command: format!("shunt bench size --size={}", name.len() * 64),
        state,
        seconds,
        readings,
        doubts,
        file: (readings > 0).then(|| format!("campaign-lab/{name}.json").into()),
    };
    let why = "eth1: no link; is the cable in, and the other side up?".to_owned();
    CampaignSummary {
        campaign: "lab.toml".to_owned(),
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned(),
        seconds: 412.4,
        steps: vec![
            step("small", StepState::There, 0.0, [3, 1]),
            step("imix", StepState::Measured, 127.2, [12, 4]),
            step("unplugged", StepState::Failed { why }, 0.1, [0, 0]),
            step("large", StepState::Interrupted, 285.1, [2, 0]),
            step("late", StepState::Missing, 0.0, [0, 0]),
        ],
        report: Some("campaign-lab/report.html".into()),
    }
}
