//! The size of the flow table on this machine, if the configuration leaves it to the daemon.

use shunt_core::flow_table_size;
use std::{fs, path::Path};

const CGROUPS: &str = "/sys/fs/cgroup";

/// Chooses the size by the memory and by nf_conntrack_max.
pub(crate) fn of_this_machine() -> u32 {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    let limit =
        fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| limit_bytes(Path::new(CGROUPS), &text));
    let memory = total.into_iter().chain(limit).min();
    let conntrack_max = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").ok();
    flow_table_size(memory.unwrap_or(0), conntrack_max.and_then(|text| text.trim().parse().ok()))
}

/// MemTotal of the text of /proc/meminfo, in bytes.
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The least memory limit of a control group and the groups above it; None if there is none. `groups` is the text of
/// /proc/PID/cgroup; only the second version of control groups is read.
fn limit_bytes(root: &Path, groups: &str) -> Option<u64> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |group: &Path| {
        let text = fs::read_to_string(root.join(group).join("memory.max")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Path::new(own).ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_least_of_all_groups_above() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("system.slice/shuntd.service");
        fs::create_dir_all(&group).unwrap();
        let limit = |text: &str| limit_bytes(root.path(), text);
        let own = "1:name=systemd:/old\n0::/system.slice/shuntd.service\n";
        assert_eq!((limit(own), limit("1:memory:/old\n")), (None, None));
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit(own), None);
        fs::write(group.join("memory.max"), "2147483648\n").unwrap();
        assert_eq!(limit(own), Some(2 << 30));
        fs::write(root.path().join("system.slice/memory.max"), "1073741824\n").unwrap();
        assert_eq!(limit(own), Some(1 << 30));
    }

    #[test]
    fn the_total_is_that_of_the_machine() {
        let text = "MemTotal:        1010204 kB\nMemFree:          512 kB\n";
        assert_eq!(total_bytes(text), Some(1_010_204 * 1024));
        assert_eq!(total_bytes("MemFree: 5 kB\n"), None);
        assert!(total_bytes(&fs::read_to_string("/proc/meminfo").unwrap()).unwrap() > 1 << 20);
    }
}
