//! Case files of the model.

use shunt_model::{Case, explain, run};

/// Runs of this length end at once, however fast the board.
const SECONDS: f64 = 2e-4;
/// More events than any such run has: 30,000 of the smallest frames at 100 Gbit/s, and what each of them brings about.
const EVENTS: u64 = 2_000_000;

/// A case file and, after a zero byte, lines NAME=VALUE that change it: parser and model end with possible
/// figures, and a case that is written and read back gives the same figures.
pub fn model(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let (text, changes) = text.split_once('\0').unwrap_or((&text, ""));
    let Ok(mut case) = Case::parse(text) else { return false };
    for (name, value) in changes.lines().filter_map(|line| line.split_once('=')) {
        let _ = case.set(name, value);
    }
    case.traffic.seconds = SECONDS;
    let Ok(got) = run(&case) else { return false };
    let text = case.to_toml();
    assert!(got.events < EVENTS, "{} events: {text}", got.events);
    let numbers = [got.offered, got.loss, got.cpu, got.total()];
    assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{got:?}: {text}");
    assert!(got.loss <= 1.0 && got.cpu <= 1.0 && got.received <= got.sent, "{got:?}: {text}");
    assert!(explain(&case).is_ok(), "{text}");
    let again = Case::parse(&text).ok().and_then(|case| run(&case).ok());
    assert_eq!(again, Some(got), "after it was written and read: {text}");
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::accepted;
    use fastrand::Rng;
    use shunt_model::{Observation, Quantity, fit, stories};

    /// Separated by spaces.
    const NUMBERS: &str =
        "0 1 2 3 63 64 65 100 1000 1518 65000 1M 268435456 1G 100G 0.5 0.99 1e-9 -1 nan inf 4294967296";
    /// Likewise; the last is empty.
    const WORDS: &str = "on off udp tcp rx tx forward both napi per-packet copy copy-aligned fragments poisson bursts external ";

    fn one_of(rng: &mut Rng, words: &'static str) -> &'static str {
        rng.choice(words.split(' ').collect::<Vec<_>>()).unwrap()
    }

    fn texts() -> Vec<&'static str> {
        stories::CASES.iter().map(|(_, text)| *text).chain([stories::TEMPLATE]).collect()
    }

    /// The names of all parameters.
    fn names() -> Vec<String> {
        let table: toml::Table = Case::default().to_toml().parse().unwrap();
        let of = |(section, keys): (&String, &toml::Value)| {
            let keys = keys
                .as_table()
                .map(|keys| keys.keys().map(|key| format!("{section}.{key}")).collect::<Vec<_>>());
            keys.unwrap_or_default()
        };
        table.iter().flat_map(of).collect()
    }

    #[test]
    fn no_text_makes_the_parser_panic_and_what_it_accepts_runs() {
        let texts = texts();
        let ran = accepted(2_000, model, |rng| {
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
            text
        });
        assert!(ran > 100, "only {ran} texts were accepted, which tests little");
    }

    #[test]
    fn every_case_that_is_accepted_runs_to_its_end() {
        let (texts, names) = (texts(), names());
        let ran = accepted(1_500, model, |rng| {
            let text = if rng.bool() { "" } else { rng.choice(&texts).unwrap() };
            let (mut case, mut lines) = (Case::parse(text).unwrap(), format!("{text}\0"));
            for _ in 0..rng.usize(1..12) {
                let values = if rng.u8(0..3) == 0 { WORDS } else { NUMBERS };
                let value = one_of(rng, values);
                let (name, before) = (rng.choice(&names).unwrap(), case.clone());
                let _ = case.set(name, value);
                // Few cases would be possible if one wrong number spoilt the rest.
                if case.check().is_err() && rng.u8(0..20) > 0 {
                    case = before;
                } else {
                    lines += &format!("{name}={value}\n");
                }
            }
            lines.into_bytes()
        });
        assert!(ran > 750, "only {ran} cases were possible, which tests little");
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
            let chosen: Vec<&str> =
                (0..rng.usize(0..4)).map(|_| rng.choice(&names).unwrap().as_str()).collect();
            let values = [0.0, -1.0, 1e-300, 50.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            let observed: Vec<Observation> = (0..rng.usize(0..5))
                .map(|_| Observation {
                    settings: vec![("traffic.rate".to_owned(), one_of(&mut rng, NUMBERS).to_owned())],
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
}
