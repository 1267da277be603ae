//! The protocol that learns: every state within bounds, and faults that the model must find.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_proof::{
    protocol::{Bounds, Change, Mutation},
    search::search,
};

const LIMIT: usize = 6_000_000;

const NONE: Bounds = Bounds {
    changes: &[],
    budget: 0,
    arrivals: &[(0, 0)],
    packets: 2,
    copies: false,
    full_copies: false,
    chance: false,
    faults: false,
    overruns: false,
    epoch: 1,
    mutation: None,
};

/// Packets of one tuple on two ports, one of which Linux drops; copies, clones, and addresses that are used again.
fn identity() -> Bounds {
    Bounds { arrivals: &[(0, 0), (0, 1)], copies: true, ..NONE }
}

/// Another connection's packet may get the sk_buff of a packet that Linux dropped.
fn strangers() -> Bounds {
    Bounds { arrivals: &[(1, 0), (0, 1)], copies: true, full_copies: true, ..NONE }
}

/// Rules change, and so do those that must see every packet.
fn rules() -> Bounds {
    Bounds { changes: &[Change::Rule, Change::Queue], budget: 2, ..NONE }
}

/// Stations move; packets of a second connection depend on another one.
fn stations() -> Bounds {
    Bounds { changes: &[Change::Station], budget: 2, arrivals: &[(0, 0), (1, 0)], ..NONE }
}

/// Routes go; the epoch wraps.
fn routes() -> Bounds {
    Bounds { changes: &[Change::Route], budget: 2, epoch: 29, ..NONE }
}

/// Connections are deleted; the epoch wraps.
fn deletions() -> Bounds {
    Bounds { changes: &[Change::Delete, Change::Neighbour], budget: 2, epoch: 31, ..NONE }
}

/// Neighbours change, which the daemon alone can tell; it misses messages.
fn neighbours() -> Bounds {
    Bounds { changes: &[Change::Neighbour], budget: 2, overruns: true, ..NONE }
}

/// The daemon hangs, dies and starts again, while time passes and a rule changes.
fn faults() -> Bounds {
    Bounds { changes: &[Change::Rule], budget: 1, packets: 1, faults: true, ..NONE }
}

fn scenarios() -> [(&'static str, Bounds); 8] {
    [
        ("identity", identity()),
        ("strangers", strangers()),
        ("rules", rules()),
        ("stations", stations()),
        ("routes", routes()),
        ("deletions", deletions()),
        ("neighbours", neighbours()),
        ("faults", faults()),
    ]
}

fn holds(name: &str, bounds: &Bounds) {
    let start = std::time::Instant::now();
    let explored = search(bounds, LIMIT).map_err(|e| format!("{name}: {e:#}")).unwrap();
    println!(
        "{name}: {} states, {} steps, {:.1} s",
        explored.states,
        explored.steps,
        start.elapsed().as_secs_f32()
    );
}

#[test]
fn the_protocol_holds() {
    for (name, bounds) in scenarios() {
        holds(name, &bounds);
    }
}

#[test]
#[ignore = "takes a minute; make test-long runs it"]
fn the_protocol_holds_within_larger_bounds() {
    for (name, bounds) in scenarios() {
        let budget = if bounds.changes.is_empty() { 0 } else { bounds.budget + 1 };
        holds(name, &Bounds { budget, ..bounds });
    }
}

/// Each fault of the protocol violates the claim that the text starts with.
#[test]
fn faults_of_the_protocol_are_found() {
    use Mutation::*;
    let cases = [
        (CookieAlone, identity(), "S2"),
        (AddressAlone, strangers(), "S2"),
        (CloneTeaches, strangers(), "S2"),
        (SegmentTeaches, identity(), "S2"),
        (ActiveAtOnce, identity(), "S2"),
        (StampAtEgress, rules(), "S1"),
        (MarkAfterCheck, stations(), "S1"),
        (TakeMarksBeforeRecord, stations(), "S1"),
        (GroupNotInStamp, stations(), "S1"),
        (HookAfterAck, rules(), "S1"),
        (NoSecondMove, routes(), "S1"),
        (LearnWhileUnknown, rules(), "S1"),
        (NoDyingRecheck, deletions(), "S1"),
        (PendingAtOnce, deletions(), "S1"),
        (DumpMovesNothing, neighbours(), "S1"),
        (OverrunIgnored, neighbours(), "S1"),
        (WrapToRetired, deletions(), "S1"),
        (HeartbeatIgnored, faults(), "S3"),
        (RetiredForGood, identity(), "liveness"),
    ];
    let mut accepted = Vec::new();
    for (mutation, bounds, claim) in cases {
        match search(&Bounds { mutation: Some(mutation), ..bounds }, LIMIT) {
            Ok(_) => accepted.push(format!("{mutation:?}: accepted")),
            Err(e) if !e.to_string().starts_with(claim) => {
                accepted.push(format!("{mutation:?}: not {claim}: {e:#}"))
            }
            Err(e) => println!("{mutation:?}: {e:#}\n"),
        }
    }
    assert!(accepted.is_empty(), "{}", accepted.join("\n"));
}

/// The residual that ADR 0019 names: a full copy in the memory of a freed packet, with the same cookie by chance.
#[test]
fn only_chance_lets_a_full_copy_take_a_candidate() {
    let e = search(&Bounds { chance: true, ..strangers() }, LIMIT).unwrap_err().to_string();
    assert!(e.starts_with("S2") && e.contains("LinuxCopies"), "{e}");
    println!("{e}");
}
