//! What the verifier has to follow when the programs are loaded. It is most of the time of a start.

use crate::rig::with_rig;
use std::fs;

/// The verifier refuses a program beyond a million. The largest has 58,000 on Linux 6.18 and 64,000 on 6.1.
const EACH: u64 = 80_000;
const TOGETHER: u64 = 250_000;

#[test]
fn a_start_makes_the_verifier_follow_few_instructions() {
    with_rig(|_| {
        // A program's fdinfo says how many instructions were verified.
        let verified = |text: String| {
            text.lines().find_map(|line| line.strip_prefix("verified_insns:")?.trim().parse().ok())
        };
        let open = fs::read_dir("/proc/self/fdinfo").unwrap();
        let texts = open.filter_map(|file| fs::read_to_string(file.unwrap().path()).ok());
        let counts: Vec<u64> = texts.filter_map(verified).collect();
        assert!(counts.len() >= 5, "{counts:?}");
        assert!(counts.iter().all(|count| *count < EACH), "{counts:?}");
        assert!(counts.iter().sum::<u64>() < TOGETHER, "{counts:?}");
    });
}
