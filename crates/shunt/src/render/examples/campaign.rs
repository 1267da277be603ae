//! What became of a campaign.

use crate::{
    campaign::{Done, State, Summary},
    render::Answer,
};

/// One of each.
pub(crate) fn campaign() -> Answer {
    let step = |name: &str, state: State, seconds: f64, [readings, doubts]: [usize; 2]| Done {
        step: name.to_owned(),
        command: format!("shunt bench size --size={}", name.len() * 64),
        state,
        seconds,
        readings,
        doubts,
        file: (readings > 0).then(|| format!("campaign-lab/{name}.json").into()),
    };
    let why = "eth1: no link; is the cable in, and the other side up?".to_owned();
    Answer::Campaign(Box::new(Summary {
        campaign: "lab.toml".to_owned(),
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned(),
        seconds: 412.4,
        steps: vec![
            step("small", State::There, 0.0, [3, 1]),
            step("imix", State::Measured, 127.2, [12, 4]),
            step("unplugged", State::Failed { why }, 0.1, [0, 0]),
            step("large", State::Interrupted, 285.1, [2, 0]),
            step("late", State::Missing, 0.0, [0, 0]),
        ],
        report: Some("campaign-lab/report.html".into()),
    }))
}
