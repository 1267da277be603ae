//! Reasons why a packet was not forwarded, and why nothing was learned from it.

/// What became of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasonKind {
    /// It went to Linux.
    Punt,
    /// Linux forwarded it, and nothing was learned from it; or a flow was retired.
    Refusal,
    /// The fast path lost it.
    Drop,
}

/// A reason, as `bpf/abi/reasons.h` describes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// The value of `enum shunt_reason`.
    pub number: usize,
    /// Its name for users.
    pub name: &'static str,
    /// What became of the packet.
    pub kind: ReasonKind,
    /// Whether somebody can end it. Other reasons are passing states or consequences of another reason.
    pub is_cause: bool,
    /// What has happened: a sentence without a full stop.
    pub meaning: &'static str,
    /// What to do about it: a sentence without a full stop.
    pub remedy: &'static str,
}

mod twin {
    #![allow(missing_docs, reason = "the C header describes each")]
    use super::{Reason, ReasonKind};
    include!(concat!(env!("OUT_DIR"), "/reasons.rs"));
}

/// All reasons, in ascending order of their numbers.
pub use twin::REASONS;
/// The number of each reason.
pub use twin::numbers;

impl Reason {
    /// The reason with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        REASONS.iter().find(|reason| reason.name == name)
    }

    /// The reason with this number; `None` for 0 and for unknown numbers.
    #[must_use]
    pub fn numbered(number: usize) -> Option<&'static Self> {
        REASONS.iter().find(|reason| reason.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_number_and_a_name_of_its_own_and_two_sentences() {
        assert!(REASONS.is_sorted_by(|a, b| a.number < b.number));
        for reason in REASONS {
            assert_eq!(Reason::named(reason.name), Some(reason));
            for sentence in [reason.meaning, reason.remedy] {
                assert!(sentence.len() > 8 && !sentence.ends_with('.'), "{}: {sentence}", reason.name);
                assert_eq!(sentence.trim(), sentence, "{}", reason.name);
            }
        }
    }
}
