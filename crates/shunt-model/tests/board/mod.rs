//! An ideal board, and what it costs.

use shunt_model::{Case, Prediction, run};

/// An ideal board that is sent 10,000 packets of 1000 bytes each second.
pub fn receiver() -> Case {
    let mut case = Case::default();
    case.traffic.payload = 1000;
    case.traffic.rate = 80e6;
    case.traffic.seconds = 0.2;
    case
}

pub fn predict(case: &Case) -> Prediction {
    run(case).unwrap()
}

#[track_caller]
pub fn near(got: f64, wanted: f64) {
    assert!((got / wanted - 1.0).abs() < 0.01, "{got}, not {wanted}");
}

/// CPU time for each received packet, in nanoseconds.
pub fn cost(case: &Case) -> f64 {
    let got = predict(case);
    assert!(got.cpu < 0.99 && got.loss == 0.0, "{got:?}");
    got.cpu * case.traffic.seconds * 1e9 / got.received as f64
}
