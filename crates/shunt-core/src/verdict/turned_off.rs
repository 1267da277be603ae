//! Connections that a person has turned off, by `shunt off` or by a mark.

use super::{
    IDLE_S, UNKNOWN, Verdict,
    facts::{DirectionFacts, LastUse, Look, WINDOW_S},
    slow,
};
use shunt_api::Idle;

impl DirectionFacts<'_> {
    pub(super) const fn is_turned_off(&self) -> bool {
        self.off.is_some() || self.excluded
    }

    /// What a person has turned off can have a trouble of its own, which turning it on would not end.
    pub(super) fn check_turned_off(&self) -> Option<Verdict> {
        let by = match &self.off {
            Some(off) => slow("off", off.rule.clone()),
            None if self.excluded => slow("excluded", "by the mark of the connection"),
            None => return None,
        };
        let troubles = [
            Self::check_off_ports,
            Self::check_stayed,
            Self::check_opening,
            Self::check_fragments,
            Self::check_passed,
        ];
        let Some(trouble) = troubles.iter().find_map(|check| check(self)) else {
            let idle = if self.is_silent() { self.silence() } else { None };
            return Some(Verdict { since_s: self.turned_off_s(), idle, ..by });
        };
        let detail = match &self.off {
            Some(off) => format!("{}; besides, it is off {}", trouble.detail, off.rule),
            None => format!("{}; besides, it is excluded by its mark", trouble.detail),
        };
        Some(Verdict { detail, ..trouble })
    }

    /// Seconds since the connection has been slow for this: from the rule on, or from its last fast packet or its own
    /// begin if that came later.
    fn turned_off_s(&self) -> Option<u64> {
        let last_fast_s = self.last_use.filter(|last| last.fast).map(|last| last.ago_s);
        let own_s = last_fast_s.or_else(|| self.never_fast_s());
        let rule_s = self.off.as_ref().and_then(|off| off.for_s);
        let age_s = self.tracked.and_then(|tracked| tracked.age_s).filter(|_| self.last_use.is_none());
        match (own_s.or(age_s), rule_s) {
            (Some(own_s), Some(rule_s)) => Some(own_s.min(rule_s)),
            _ => last_fast_s,
        }
    }

    /// Whether no packet has come for a window or longer. The first packet after a window begins the next one, if ports
    /// note it.
    pub(super) fn is_silent(&self) -> bool {
        self.window_age_s >= 2 * WINDOW_S && !self.look.as_ref().is_some_and(Look::has_packets)
    }

    fn silence(&self) -> Option<Idle> {
        match self.last_use.filter(|last| last.ago_s <= self.window_age_s) {
            Some(LastUse { ago_s, fast }) => {
                (ago_s >= IDLE_S).then_some(Idle { for_s: Some(ago_s), was_fast: Some(fast), ..UNKNOWN })
            }
            None => Some(UNKNOWN),
        }
    }
}
