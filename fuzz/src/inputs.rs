//! Inputs for the tests: the corpus, and inputs that are made from a seed.

use fastrand::Rng;
use std::{env, fs, panic::catch_unwind, path::Path};

const SEED: u64 = 1;

/// The files of `fuzz/corpus/NAME`.
pub(crate) fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Calls a function with this number of inputs, unless SHUNT_FUZZ_INPUTS sets another. Returns how many were accepted.
#[track_caller]
pub(crate) fn accepted(
    count: u64,
    claim: fn(&[u8]) -> bool,
    mut make: impl FnMut(&mut Rng) -> Vec<u8>,
) -> u64 {
    let count = env::var("SHUNT_FUZZ_INPUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(count);
    let mut random = Rng::with_seed(SEED);
    let mut accepted = 0;
    for number in 0..count {
        let bytes = make(&mut random);
        let Ok(was) = catch_unwind(|| claim(&bytes)) else {
            panic!("input {number} of seed {SEED}: {:?}: {bytes:02x?}", String::from_utf8_lossy(&bytes));
        };
        accepted += u64::from(was);
    }
    accepted
}

/// Calls a function with each file of the corpus, and with changed files.
#[track_caller]
pub(crate) fn corpus_and_changes(name: &str, count: u64, claim: fn(&[u8]) -> bool) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name}");
    for bytes in &corpus {
        claim(bytes);
    }
    accepted(count, claim, |random| {
        let mut bytes = random.choice(&corpus).unwrap().clone();
        if random.u8(..4) == 0 {
            let other = random.choice(&corpus).unwrap();
            bytes.truncate(random.usize(..=bytes.len()));
            bytes.extend(&other[random.usize(..=other.len())..]);
        }
        mutate(&mut bytes, random);
        bytes
    });
}

/// Changes a few bytes.
pub(crate) fn mutate(bytes: &mut Vec<u8>, random: &mut Rng) {
    for _ in 0..random.u8(..6) {
        if bytes.is_empty() {
            return;
        }
        let at = random.usize(..bytes.len());
        match random.u8(..4) {
            0 => bytes.truncate(at),
            1 => bytes[at] = [0, 1, 3, 4, 0x7f, 0x80, 0xff][random.usize(..7)],
            2 => bytes[at] ^= 1 << random.u8(..8),
            _ => bytes.insert(at, random.u8(..)),
        }
    }
}
