//! No text and no observation makes the model panic or run without end; `fuzz/src/model.rs` says the same of cases.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use fastrand::Rng;
use shunt_model::{Case, Observation, Quantity, fit};

/// Runs of this length end at once, however fast the board.
const SECONDS: f64 = 2e-4;

const NUMBERS: [&str; 22] = [
    "0",
    "1",
    "2",
    "3",
    "63",
    "64",
    "65",
    "100",
    "1000",
    "1518",
    "65000",
    "1M",
    "268435456",
    "1G",
    "100G",
    "0.5",
    "0.99",
    "1e-9",
    "-1",
    "nan",
    "inf",
    "4294967296",
];
/// The names of all parameters.
fn names() -> Vec<String> {
    let table: toml::Table = Case::default().to_toml().parse().unwrap();
    let of = |(section, keys): (&String, &toml::Value)| {
        let keys =
            keys.as_table().map(|keys| keys.keys().map(|key| format!("{section}.{key}")).collect::<Vec<_>>());
        keys.unwrap_or_default()
    };
    table.iter().flat_map(of).collect()
}

#[test]
fn a_text_with_deep_brackets_is_refused() {
    for open in ["[", "{", "a = [", "a = {b = ", "[a."] {
        Case::parse(&open.repeat(100_000)).unwrap_err();
    }
}

#[test]
fn a_fit_ends_whatever_was_observed() {
    let mut rng = Rng::with_seed(3);
    let names = names();
    let mut fitted = 0;
    for _ in 0..40 {
        let mut case = Case::default();
        case.traffic.seconds = SECONDS;
        case.forward.slow_ns = 5_000.0;
        let chosen: Vec<&str> = (0..rng.usize(0..4)).map(|_| rng.choice(&names).unwrap().as_str()).collect();
        let values = [0.0, -1.0, 1e-300, 50.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let observed: Vec<Observation> = (0..rng.usize(0..5))
            .map(|_| Observation {
                settings: vec![("traffic.rate".to_owned(), (*rng.choice(&NUMBERS).unwrap()).to_owned())],
                quantity: *rng.choice(&[Quantity::Goodput, Quantity::Loss, Quantity::Cpu]).unwrap(),
                value: *rng.choice(&values).unwrap(),
            })
            .collect();
        if let Ok(found) = fit(&case, &chosen, &observed) {
            fitted += 1;
            assert!(found.runs < 5_000 && found.parameters.len() == chosen.len(), "{found:?}");
        }
    }
    assert!(fitted > 10, "only {fitted} fits were made, which tests little");
}
