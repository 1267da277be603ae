//! No text and no numbers make the model panic or run without end.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use fastrand::Rng;
use shunt_model::{Case, Observation, Quantity, explain, fit, run, stories};

/// Runs of this length end at once, however fast the board.
const SECONDS: f64 = 2e-4;
/// More events than any such run has: 30,000 of the smallest frames at 100 Gbit/s, and what each of them brings about.
const EVENTS: u64 = 2_000_000;

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
const WORDS: [&str; 17] = [
    "on",
    "off",
    "udp",
    "tcp",
    "rx",
    "tx",
    "forward",
    "both",
    "napi",
    "per-packet",
    "copy",
    "copy-aligned",
    "fragments",
    "poisson",
    "bursts",
    "external",
    "",
];

fn texts() -> Vec<&'static str> {
    stories::CASES.iter().map(|(_, text)| *text).chain([stories::TEMPLATE]).collect()
}

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

fn finishes(mut case: Case) {
    case.traffic.seconds = SECONDS;
    let Ok(got) = run(&case) else { return };
    let text = case.to_toml();
    assert!(got.events < EVENTS, "{} events: {text}", got.events);
    let numbers = [got.offered, got.loss, got.cpu, got.total()];
    assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{got:?}: {text}");
    assert!(got.loss <= 1.0 && got.cpu <= 1.0 && got.received <= got.sent, "{got:?}: {text}");
    explain(&case).unwrap();
}

#[test]
fn no_text_makes_the_parser_panic_and_what_it_accepts_runs() {
    let mut rng = Rng::with_seed(1);
    let texts = texts();
    let mut accepted = 0;
    for _ in 0..2_000 {
        let mut text = rng.choice(&texts).unwrap().as_bytes().to_vec();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(0..text.len().max(1));
            match rng.u8(0..5) {
                _ if text.is_empty() => text.push(b'a'),
                0 => text[at] = rng.u8(..),
                1 => drop(text.remove(at)),
                2 => text.insert(at, *rng.choice(b"[]{}=.\"'#\n019e-_").unwrap()),
                3 => text.truncate(at.max(1)),
                _ => {
                    let other = rng.choice(&texts).unwrap().as_bytes();
                    let from = rng.usize(0..other.len());
                    text.splice(
                        at..at,
                        other[from..(from + rng.usize(0..60)).min(other.len())].iter().copied(),
                    );
                }
            }
        }
        if let Ok(case) = Case::parse(&String::from_utf8_lossy(&text)) {
            accepted += 1;
            if rng.u8(0..16) == 0 {
                finishes(case);
            }
        }
    }
    assert!(accepted > 100, "only {accepted} texts were accepted, which tests little");
    for open in ["[", "{", "a = [", "a = {b = ", "[a."] {
        Case::parse(&open.repeat(100_000)).unwrap_err();
    }
}

#[test]
fn every_case_that_is_accepted_runs_to_its_end() {
    let mut rng = Rng::with_seed(2);
    let names = names();
    let mut ran = 0;
    for _ in 0..1_500 {
        let mut case = match rng.bool() {
            true => Case::default(),
            false => Case::parse(rng.choice(&texts()).unwrap()).unwrap(),
        };
        for _ in 0..rng.usize(1..12) {
            let value = if rng.u8(0..3) == 0 { rng.choice(&WORDS) } else { rng.choice(&NUMBERS) };
            let before = case.clone();
            let _ = case.set(rng.choice(&names).unwrap(), value.unwrap());
            // Few cases would be possible if one wrong number spoilt the rest.
            if case.check().is_err() && rng.u8(0..20) > 0 {
                case = before;
            }
        }
        ran += u32::from(case.check().is_ok());
        finishes(case);
    }
    assert!(ran > 750, "only {ran} cases were possible, which tests little");
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
