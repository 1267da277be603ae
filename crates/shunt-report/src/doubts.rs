//! Doubts about readings: those of their own, and where they are.

use super::{
    doubt_kind::{DoubtKind, about, add_kinds},
    files::{FileReading, ResultFile},
};
use shunt_lab::Reading;

/// The doubts about a reading that other readings of its file do not share.
pub(crate) fn own(source: &ResultFile, reading: &Reading) -> Vec<String> {
    let mut doubts = about(&source.results, reading);
    doubts.retain(|doubt| !source.shared_doubts.iter().any(|shared| shared.is_kind_of(doubt)));
    doubts
}

/// Where doubts are, and the doubts, except those that all readings of a file share: the place of the first of each
/// kind, and the number of the others.
pub(crate) fn at_places<'r>(
    readings: impl Iterator<Item = (String, FileReading<'r>)>,
) -> Vec<(String, String)> {
    let mut kinds: Vec<(DoubtKind, String, usize)> = Vec::new();
    let mut all = 0;
    for (at, (_, source, reading)) in readings {
        all += 1;
        let mut here: Vec<DoubtKind> = Vec::new();
        let doubts = own(source, reading);
        add_kinds(&mut here, &doubts);
        for kind in here {
            match kinds.iter_mut().find(|(known, ..)| known.is_same(&kind)) {
                Some((known, _, times)) => {
                    doubts.iter().for_each(|doubt| known.widen(doubt));
                    *times += 1;
                }
                None => kinds.push((kind, at.clone(), 1)),
            }
        }
    }
    let text = |(kind, at, times): (DoubtKind, String, usize)| match times {
        1 => (at, kind.text()),
        times => (format!("{at}, and {} more of {all}", times - 1), kind.text()),
    };
    kinds.into_iter().map(text).collect()
}
