//! Faults that were put into guests (tests/vm/doctor.sh): what the doctor saw there; and, in recorded systems, the
//! faults of hardware that no guest has.

use super::{
    faults::{FAULTS, OF_FEC, server},
    *,
};

/// A fault in a guest, and what the doctor saw.
#[derive(Deserialize)]
struct Injected {
    guest: String,
    fault: String,
    rule: String,
    systems: Vec<System>,
}

/// What `tests/vm/doctor.sh DRIVER record` printed, without offloads that are off and fixed.
const RECORDED: &str = include_str!("guests.jsonl");

#[test]
fn the_right_finding_comes_first_for_27_of_30_faults() {
    let mut cases: Vec<(String, String, System)> = Vec::new();
    for line in RECORDED.lines() {
        let Injected { guest, fault, rule, systems } = serde_json::from_str(line).unwrap();
        let mut system = systems.into_iter().next().unwrap();
        // The memory of an emulated machine is slow in any case.
        system.copies.clear();
        cases.push((format!("{guest}: {fault}"), rule, system));
    }
    let of_guests: BTreeSet<String> = cases.iter().map(|(_, rule, _)| rule.clone()).collect();
    assert!(cases.len() >= 15 && of_guests.len() >= 10, "{of_guests:?}");
    for (number, (rule, change)) in FAULTS.iter().enumerate() {
        if !of_guests.contains(*rule) {
            let mut system = if OF_FEC.contains(rule) { healthy() } else { server() };
            change(&mut system);
            cases.push((format!("recorded system {number}"), (*rule).to_owned(), system));
        }
    }
    let late: Vec<String> = cases
        .iter()
        .filter(|(_, rule, system)| found(system).first() != Some(rule))
        .map(|(name, rule, system)| format!("{name}: {rule}, not {:?}", found(system)))
        .collect();
    let right = cases.len() - late.len();
    assert!(cases.len() >= 30 && 30 * right >= 27 * cases.len(), "{right} of {}: {late:#?}", cases.len());
}
