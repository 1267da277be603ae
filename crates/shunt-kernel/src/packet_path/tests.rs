//! Chains that the kernel would not accept, and how fast many of them are followed. `tests/linux/limits.rs` has
//! rulesets.

use super::*;

fn branch(verdict: Verdict<u32>) -> Branch<u32> {
    Branch { matched: Matched::ALL, verdict }
}

fn rule(verdicts: &[Verdict<u32>]) -> Rule<u32> {
    let branches = verdicts.iter().copied().map(branch).collect();
    Rule { may: Traffic::ALL, branches, limits: false, changes: false }
}

/// `limit rate over ... drop` for UDP.
fn limit() -> Rule<u32> {
    let matched = Matched { may: Traffic::UDP, sure: Traffic::NONE };
    let branches = vec![Branch { matched, verdict: Verdict::Drop }];
    Rule { may: Traffic::UDP, branches, limits: true, changes: false }
}

fn decided(chains: Vec<Vec<Rule<u32>>>, at: (u32, usize)) -> Traffic {
    let chains: HashMap<u32, Vec<Rule<u32>>> = (0..).zip(chains).collect();
    follow(0, Outcome::PASS, &chains).get(&at).copied().unwrap_or_default().decided
}

#[test]
fn chains_that_lead_to_each_other_are_followed_to_an_end() {
    let found = |lead: fn(u32) -> Verdict<u32>| {
        decided(vec![vec![rule(&[lead(1)]), limit()], vec![rule(&[lead(0)]), limit()]], (1, 1))
    };
    assert_eq!(found(Verdict::Jump), Traffic::UDP);
    assert_eq!(found(Verdict::Goto), Traffic::NONE, "no packet comes back to the rule behind");
}

#[test]
fn a_limit_is_found_as_deep_as_the_kernel_lets_chains_jump() {
    let mut chains: Vec<_> = (1..=16).map(|next| vec![rule(&[Verdict::Jump(next)])]).collect();
    chains.push(vec![limit()]);
    assert_eq!(decided(chains, (16, 0)), Traffic::UDP);
}

/// There are 2^16 ways through these chains.
#[test]
fn chains_that_are_reached_in_many_ways_are_followed_once() {
    let twice = |next| vec![rule(&[Verdict::Jump(next)]), rule(&[Verdict::Jump(next)])];
    let mut chains: Vec<_> = (1..=16).map(twice).collect();
    chains.push(vec![limit()]);
    let chains: HashMap<u32, Vec<Rule<u32>>> = (0..).zip(chains).collect();
    let mut walk = Walk {
        chains: &chains,
        outcomes: HashMap::new(),
        walked: HashMap::new(),
        findings: HashMap::new(),
        open: Vec::new(),
    };
    walk.walk(0, Traffic::ALL, Outcome::PASS);
    assert!(
        walk.walked.len() < 100 && walk.outcomes.len() < 200,
        "{} {}",
        walk.walked.len(),
        walk.outcomes.len()
    );
}

/// Rules of other chains may drop by what a rule has changed.
#[test]
fn a_limit_decides_about_changes_that_it_makes_or_saves_packets_from() {
    let change = || Rule { changes: true, ..rule(&[]) };
    let limit = |verdicts: &[Verdict<u32>], changes| {
        let branches = verdicts.iter().map(|to| Branch { matched: Matched::UNKNOWN, verdict: *to }).collect();
        Rule { branches, limits: true, changes, ..rule(&[]) }
    };
    let decides = |chains| !decided(chains, (0, 0)).is_empty();
    assert!(decides(vec![vec![limit(&[], true)]]));
    assert!(decides(vec![vec![limit(&[Verdict::Accept], false), change()]]));
    assert!(decides(vec![vec![limit(&[Verdict::Jump(1)], false)], vec![change()]]));
    // Behind the limit, all packets are changed alike.
    assert!(!decides(vec![vec![limit(&[], false), change()]]));
    assert!(!decides(vec![vec![limit(&[Verdict::Jump(1)], false), change()], Vec::new()]));
}

#[test]
fn a_verdict_decides_if_the_rest_of_the_rules_has_another() {
    let with = |verdict, rest: Verdict<u32>| {
        let first =
            Rule { branches: vec![Branch { matched: Matched::UNKNOWN, verdict }], limits: true, ..rule(&[]) };
        !decided(vec![vec![first, rule(&[rest])], vec![rule(&[Verdict::Drop])], Vec::new()], (0, 0))
            .is_empty()
    };
    for (verdict, before_accept, before_drop) in [
        (Verdict::Accept, false, true),
        (Verdict::Drop, true, false),
        (Verdict::Return, false, true),
        (Verdict::Jump(1), true, false),
        (Verdict::Goto(1), true, false),
        // An empty chain comes back.
        (Verdict::Jump(2), false, false),
        (Verdict::Unknown, true, true),
    ] {
        let found = (with(verdict, Verdict::Accept), with(verdict, Verdict::Drop));
        assert_eq!(found, (before_accept, before_drop), "{verdict:?}");
    }
}
