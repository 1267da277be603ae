//! The backlog: each CPU's queue of received packets, which all network namespaces share. If another program fills it,
//! packets of other namespaces are lost, which is no fault of the router under test.

use std::{fs, io};

/// Number of packets that all CPUs have dropped from full backlogs since the machine started.
///
/// # Panics
/// If /proc/net/softnet_stat cannot be read.
#[must_use]
pub fn dropped() -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat");
    text.and_then(|text| sum(&text).ok_or(io::ErrorKind::InvalidData.into()))
        .unwrap_or_else(|e| panic!("/proc/net/softnet_stat: {e}"))
}

/// The sum of the second number of each line; there is a line for each CPU.
fn sum(text: &str) -> Option<u64> {
    text.lines().map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn drops_of_all_cpus_are_added_up() {
        let text = "03b37fd9 000388d9 0000000d 00000000\n03d80b34 00000001 0000001c 00000000\n";
        assert_eq!(super::sum(text), Some(0x388da));
        assert_eq!(super::sum("03b37fd9\n"), None);
    }
}
