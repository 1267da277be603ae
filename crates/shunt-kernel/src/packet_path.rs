//! Follows traffic through the rules of a base chain: which traffic reaches a rule, and of which traffic a rule decides
//! whether it is dropped. Where the rules do not tell, the answer is more traffic.

use shunt_core::{Effect, Traffic, effect};
use std::{collections::HashMap, hash::Hash};

/// A base chain, and as many jumps as the kernel allows (NFT_JUMP_STACK_SIZE).
const DEPTH_MAX: usize = 1 + 16;

/// The traffic that may meet a condition, and the traffic that always meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Matched {
    pub may: Traffic,
    pub sure: Traffic,
}

impl Matched {
    pub const ALL: Self = Self { may: Traffic::ALL, sure: Traffic::ALL };
    /// Nobody knows which packets meet the condition.
    pub const UNKNOWN: Self = Self { may: Traffic::ALL, sure: Traffic::NONE };

    pub fn and(self, other: Self) -> Self {
        Self { may: self.may & other.may, sure: self.sure & other.sure }
    }

    pub fn not(self) -> Self {
        Self { may: Traffic::ALL - self.sure, sure: Traffic::ALL - self.may }
    }

    /// Which traffic meets a condition on a value. `values` returns the values that packets of one kind may have, or
    /// `None` if they are not known.
    pub fn by_value<V: IntoIterator<Item = u32>>(
        values: impl Fn(Traffic) -> Option<V>,
        condition: impl Fn(u32) -> bool,
    ) -> Self {
        let mut found = Self { may: Traffic::NONE, sure: Traffic::NONE };
        for kind in Traffic::KINDS {
            let (mut some, mut all) = (false, true);
            match values(kind) {
                Some(values) => values.into_iter().map(&condition).for_each(|met| {
                    some |= met;
                    all &= met;
                }),
                None => (some, all) = (true, false),
            }
            found.may |= if some { kind } else { Traffic::NONE };
            found.sure |= if all { kind } else { Traffic::NONE };
        }
        found
    }
}

/// The states of `ct state` that packets of this kind have once conntrack has seen them: established; or new or related
/// before the first answer.
pub(crate) fn states(kind: Traffic) -> Option<Vec<u32>> {
    Some(if Traffic::UNANSWERED.meets(kind) { vec![1 << 2, 1 << 3] } else { vec![1 << 1] })
}

/// The flags of TCP packets that can be fast: ACK, and neither FIN, SYN nor RST.
pub(crate) fn tcp_flags(kind: Traffic) -> Option<impl Iterator<Item = u32>> {
    const ACK: u32 = 0x10;
    const FIN_SYN_RST_ACK: u32 = 0x17;
    Traffic::TCP.meets(kind).then(|| (0..=0xff).filter(|flags| flags & FIN_SYN_RST_ACK == ACK))
}

/// What a rule does with a packet. Chains have names of the type `C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict<C> {
    Accept,
    Drop,
    Return,
    Jump(C),
    Goto(C),
    /// Accepts, drops or continues.
    Unknown,
}

/// A verdict, and the traffic that it applies to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Branch<C> {
    pub matched: Matched,
    pub verdict: Verdict<C>,
}

/// A rule.
#[derive(Debug)]
pub(crate) struct Rule<C> {
    /// The traffic that may meet its conditions.
    pub may: Traffic,
    /// One for each verdict; none if packets always continue with the next rule.
    pub branches: Vec<Branch<C>>,
    /// Whether it limits.
    pub limits: bool,
    /// Whether it changes packets, their marks or their tracking, or sets, by which other rules may drop.
    pub changes: bool,
}

/// The traffic that may be dropped, the traffic that may pass, and the traffic that rules may change before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Outcome {
    pub drops: Traffic,
    pub passes: Traffic,
    pub changes: Traffic,
}

impl Outcome {
    const NONE: Self = Self { drops: Traffic::NONE, passes: Traffic::NONE, changes: Traffic::NONE };
    pub const DROP: Self = Self { drops: Traffic::ALL, ..Self::NONE };
    pub const PASS: Self = Self { passes: Traffic::ALL, ..Self::NONE };
    const UNKNOWN: Self = Self { drops: Traffic::ALL, passes: Traffic::ALL, ..Self::NONE };

    fn of(self, traffic: Traffic) -> Self {
        let Self { drops, passes, changes } = self;
        Self { drops: drops & traffic, passes: passes & traffic, changes: changes & traffic }
    }

    fn or(self, other: Self) -> Self {
        Self {
            drops: self.drops | other.drops,
            passes: self.passes | other.passes,
            changes: self.changes | other.changes,
        }
    }
}

/// What was found about a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The traffic that reaches the rule and may meet its conditions.
    pub reached: Traffic,
    /// The traffic that the rule may drop by its limit.
    pub decided: Traffic,
}

/// Whether the effect of a statement depends on the traffic that meets the statement.
pub(crate) fn is_about_traffic(statement: &str) -> bool {
    matches!(effect(statement), Some(Effect::Limits | Effect::Rewrites | Effect::Refreshes))
}

/// The traffic that a statement concerns, by what was found about its rule.
pub(crate) fn concerns(statement: &str, finding: Finding) -> Traffic {
    match effect(statement) {
        Some(Effect::Limits) => finding.decided,
        Some(Effect::Rewrites | Effect::Refreshes) => finding.reached,
        _ => Traffic::NONE,
    }
}

/// The findings about rules, by chain and position in it.
pub(crate) type Findings<C> = HashMap<(C, usize), Finding>;

/// Follows all traffic from a base chain. `policy` is what happens at its end.
pub(crate) fn follow<C: Copy + Eq + Hash>(
    base: C,
    policy: Outcome,
    chains: &HashMap<C, Vec<Rule<C>>>,
) -> Findings<C> {
    let mut walk = Walk {
        chains,
        outcomes: HashMap::new(),
        walked: HashMap::new(),
        findings: HashMap::new(),
        open: Vec::new(),
    };
    walk.walk(base, Traffic::ALL, policy);
    walk.findings
}

struct Walk<'a, C> {
    chains: &'a HashMap<C, Vec<Rule<C>>>,
    /// The outcome at the beginning of a chain, by the outcome behind its end.
    outcomes: HashMap<(C, Outcome), Outcome>,
    /// The traffic that comes back from a chain, by the traffic that enters it and the outcome behind its end.
    walked: HashMap<(C, Traffic, Outcome), Traffic>,
    findings: Findings<C>,
    /// The chains that are being followed.
    open: Vec<C>,
}

impl<'a, C: Copy + Eq + Hash> Walk<'a, C> {
    fn rules(&self, chain: C) -> &'a [Rule<C>] {
        self.chains.get(&chain).map(Vec::as_slice).unwrap_or_default()
    }

    /// Begins a chain; `false` if it leads back to itself or too deep, which the kernel does not allow.
    fn open(&mut self, chain: C) -> bool {
        let can = self.open.len() < DEPTH_MAX && !self.open.contains(&chain);
        self.open.extend(can.then_some(chain));
        can
    }

    /// The outcome of a chain, when `end` follows it.
    fn outcome(&mut self, chain: C, end: Outcome) -> Outcome {
        if let Some(known) = self.outcomes.get(&(chain, end)) {
            return *known;
        }
        if !self.open(chain) {
            return Outcome::UNKNOWN;
        }
        let found = self.outcomes_in(chain, end).first().copied().unwrap_or(end);
        self.open.pop();
        self.outcomes.insert((chain, end), found);
        found
    }

    /// The outcome before each rule of a chain, and at its end.
    fn outcomes_in(&mut self, chain: C, end: Outcome) -> Vec<Outcome> {
        let rules = self.rules(chain);
        let mut found = vec![end; rules.len() + 1];
        for (at, rule) in rules.iter().enumerate().rev() {
            let next = found[at + 1];
            found[at] = next.of(Traffic::ALL - rule.leaves());
            for branch in &rule.branches {
                let to = self.outcome_of(branch.verdict, next, end);
                found[at] = found[at].or(to.of(branch.matched.may));
            }
            if rule.changes {
                found[at].changes |= rule.may;
            }
        }
        found
    }

    fn outcome_of(&mut self, verdict: Verdict<C>, next: Outcome, end: Outcome) -> Outcome {
        match verdict {
            Verdict::Accept => Outcome::PASS,
            Verdict::Drop => Outcome::DROP,
            Verdict::Return => end,
            Verdict::Jump(chain) => self.outcome(chain, next),
            Verdict::Goto(chain) => self.outcome(chain, end),
            Verdict::Unknown => Outcome::UNKNOWN,
        }
    }

    /// Follows traffic through a chain. Returns the traffic that comes back to the rule behind the jump.
    fn walk(&mut self, chain: C, mut traffic: Traffic, end: Outcome) -> Traffic {
        let entered = (chain, traffic, end);
        if let Some(known) = self.walked.get(&entered) {
            return *known;
        }
        if !self.open(chain) {
            return traffic;
        }
        let outcomes = self.outcomes_in(chain, end);
        let mut back = Traffic::NONE;
        for (at, rule) in self.rules(chain).iter().enumerate() {
            let next = outcomes[at + 1];
            let decided = if rule.limits { self.decided(rule, next, end) } else { Traffic::NONE };
            let finding = self.findings.entry((chain, at)).or_default();
            finding.reached |= traffic & rule.may;
            finding.decided |= traffic & decided;
            let mut behind = traffic - rule.leaves();
            for Branch { matched, verdict } in &rule.branches {
                let into = traffic & matched.may;
                match *verdict {
                    _ if into.is_empty() => {}
                    Verdict::Return => back |= into,
                    Verdict::Jump(chain) => behind |= self.walk(chain, into, next),
                    Verdict::Goto(chain) => back |= self.walk(chain, into, end),
                    Verdict::Accept | Verdict::Drop | Verdict::Unknown => {}
                }
            }
            traffic = behind;
        }
        self.open.pop();
        back |= traffic;
        self.walked.insert(entered, back);
        back
    }

    /// The traffic that a rule drops or lets pass by its limit, and that may fare otherwise without. A verdict that
    /// only leads back to the next rule decides nothing.
    fn decided(&mut self, rule: &Rule<C>, next: Outcome, end: Outcome) -> Traffic {
        let mut decided = if rule.changes { rule.may } else { Traffic::NONE };
        for Branch { matched, verdict } in &rule.branches {
            let to = self.outcome_of(*verdict, next, end);
            let own = match *verdict {
                Verdict::Jump(chain) | Verdict::Goto(chain) => self.outcome(chain, Outcome::NONE),
                _ => Outcome::UNKNOWN,
            };
            let differs = to.drops & next.passes | to.passes & next.drops | to.changes | next.changes;
            decided |= matched.may & differs & (own.drops | own.passes | own.changes);
        }
        decided
    }
}

impl<C> Rule<C> {
    /// The traffic that never continues with the next rule, unless a jump comes back.
    fn leaves(&self) -> Traffic {
        self.branches.iter().fold(Traffic::NONE, |sure, branch| sure | branch.matched.sure)
    }
}

#[cfg(test)]
mod tests;
