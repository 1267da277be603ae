//! The queue that each CPU has for packets that come in, which all network namespaces share: while somebody else fills it, packets of
//! whoever else is there are lost in it, and that is no router's fault.

use std::{fs, io};

/// Packets that found it full, of all CPUs, since the machine started.
///
/// # Panics
/// When the kernel does not tell.
#[must_use]
pub fn dropped() -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat");
    text.and_then(|text| sum(&text).ok_or(io::ErrorKind::InvalidData.into()))
        .unwrap_or_else(|e| panic!("/proc/net/softnet_stat: {e}"))
}

/// A line for each CPU; the second number of it.
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
