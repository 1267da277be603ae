//! The size of the flow table on this machine, if the configuration leaves it to the daemon.

use shunt_core::flow_table_size;
use std::fs;

/// Chooses the size by the memory and by nf_conntrack_max.
pub(crate) fn of_this_machine() -> u32 {
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    let conntrack_max = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").ok();
    flow_table_size(memory.unwrap_or(0), conntrack_max.and_then(|text| text.trim().parse().ok()))
}

/// MemTotal of the text of /proc/meminfo, in bytes.
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_that_of_the_machine() {
        let text = "MemTotal:        1010204 kB\nMemFree:          512 kB\n";
        assert_eq!(total_bytes(text), Some(1_010_204 * 1024));
        assert_eq!(total_bytes("MemFree: 5 kB\n"), None);
        assert!(total_bytes(&fs::read_to_string("/proc/meminfo").unwrap()).unwrap() > 1 << 20);
    }
}
