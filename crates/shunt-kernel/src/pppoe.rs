//! The sessions of PPPoE that the kernel has.

use std::{collections::BTreeSet, fs};

const PROC: &str = "/proc/net/pppoe";

/// The names of the devices that carry one; none if the kernel lacks PPPoE.
pub(crate) fn devices() -> BTreeSet<String> {
    fs::read_to_string(PROC).map(|text| devices_in(&text)).unwrap_or_default()
}

/// Below the heading, each line has the session, the MAC of the other end, and the device.
fn devices_in(text: &str) -> BTreeSet<String> {
    let device = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    text.lines().skip(1).filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn devices_are_in_the_third_column() {
        let text = "Id       Address              Device\n\
                    00001234 02:00:00:0c:00:01     wan0\n\
                    0000abcd 02:00:00:0c:00:02   wan0.7\n";
        assert_eq!(super::devices_in(text), ["wan0", "wan0.7"].map(str::to_owned).into());
        assert!(super::devices_in("").is_empty());
    }
}
