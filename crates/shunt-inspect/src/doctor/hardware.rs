//! Hardware around a port: PCIe, NUMA, caches, and CPUs that are taken.

use super::kernel_files::{entries, text};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// What a port is attached to. A field is absent or empty if it could not be read, or if the machine has no such part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// The port's PCIe link.
    pub pcie: Option<Pcie>,
    /// CPUs of the port's NUMA node, as a list such as `0-7`.
    pub node_cpus: String,
    /// Size of the largest cache of CPU 0 in bytes.
    pub cache_bytes: Option<u64>,
    /// CPUs that external engines of Shunt are pinned to.
    pub engine_cpus: Vec<usize>,
}

/// A PCIe link as it was trained.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pcie {
    /// Lanes in use.
    pub lanes: u32,
    /// Lanes that the device has.
    pub lanes_max: u32,
    /// Transfers per second and lane, in 10^9.
    pub gt_per_second: f64,
    /// The most of which the device is capable.
    pub gt_per_second_max: f64,
}

impl Pcie {
    /// Mbit/s in each direction after line coding, before headers of packets.
    pub(super) fn mbps(&self) -> f64 {
        // Generations 1 and 2 send 10 bits for 8, later ones 130 for 128.
        let coding = if self.gt_per_second < 6.0 { 0.8 } else { 128.0 / 130.0 };
        f64::from(self.lanes) * self.gt_per_second * coding * 1e3
    }
}

impl Hardware {
    pub(super) fn read_from(root: &Path, port: &str) -> Self {
        let device = root.join("sys/class/net").join(port).join("device");
        let nodes = entries(&root.join("sys/devices/system/node"));
        let is_node =
            |name: &&String| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
        let own = text(&device, "numa_node").filter(|node| !node.starts_with('-'));
        let node_cpus = own.filter(|_| nodes.iter().filter(is_node).count() > 1);
        let node_cpus = node_cpus
            .and_then(|node| text(&root.join(format!("sys/devices/system/node/node{node}")), "cpulist"));
        let caches = root.join("sys/devices/system/cpu/cpu0/cache");
        let cache = |name: &String| size(&text(&caches.join(name), "size")?);
        Self {
            pcie: pcie(&device),
            node_cpus: node_cpus.unwrap_or_default(),
            cache_bytes: entries(&caches).iter().filter_map(cache).max(),
            engine_cpus: engine_cpus(&root.join("proc")),
        }
    }
}

fn pcie(device: &Path) -> Option<Pcie> {
    let lanes = |file: &str| text(device, file)?.parse().ok().filter(|lanes| *lanes > 0);
    // `8.0 GT/s PCIe`
    let speed = |file: &str| text(device, file)?.split_whitespace().next()?.parse().ok();
    Some(Pcie {
        lanes: lanes("current_link_width")?,
        lanes_max: lanes("max_link_width")?,
        gt_per_second: speed("current_link_speed")?,
        gt_per_second_max: speed("max_link_speed")?,
    })
}

/// A size such as `512K`.
fn size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    Some(digits.parse::<u64>().ok()? * factor)
}

fn engine_cpus(processes: &Path) -> Vec<usize> {
    let cpu = |process: &String| {
        process.parse::<u32>().ok()?;
        let process = processes.join(process);
        let command = fs::read(process.join("cmdline")).ok()?;
        let is_engine = command.split(|byte| *byte == 0).any(|word| word == b"--external-engine");
        let status = is_engine.then(|| text(&process, "status")).flatten()?;
        // A list of several CPUs is no number.
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok()
    };
    entries(processes).iter().filter_map(cpu).collect()
}

/// Whether a list of CPUs such as `0-3,8` contains a CPU.
pub(super) fn contains(list: &str, cpu: usize) -> bool {
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let ends = first.trim().parse::<usize>().ok().zip(last.trim().parse::<usize>().ok());
        ends.is_some_and(|(first, last)| (first..=last).contains(&cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hardware_of_a_port_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/class/net/eth0/device/numa_node", "1\n"),
            ("sys/class/net/eth0/device/current_link_width", "4\n"),
            ("sys/class/net/eth0/device/max_link_width", "8\n"),
            ("sys/class/net/eth0/device/current_link_speed", "8.0 GT/s PCIe\n"),
            ("sys/class/net/eth0/device/max_link_speed", "8.0 GT/s PCIe\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/size", "8M\n"),
            ("proc/77/cmdline", "shuntd\0--external-engine\0"),
            ("proc/77/status", "Name:\tshuntd\nCpus_allowed_list:\t3\n"),
            ("proc/78/cmdline", "shuntd\0--port\0eth0\0"),
            ("proc/78/status", "Cpus_allowed_list:\t2\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = Hardware::read_from(root.path(), "eth0");
        let pcie = Pcie { lanes: 4, lanes_max: 8, gt_per_second: 8.0, gt_per_second_max: 8.0 };
        assert!((31_000.0..32_000.0).contains(&pcie.mbps()));
        let expected = Hardware {
            pcie: Some(pcie),
            node_cpus: "4-7".to_owned(),
            cache_bytes: Some(8 << 20),
            engine_cpus: vec![3],
        };
        assert_eq!(found, expected);
        assert_eq!(Hardware::read_from(root.path(), "eth1").pcie, None);
    }

    #[test]
    fn lists_of_cpus_have_ranges() {
        for (list, cpu, is_in) in
            [("0-3,8", 2, true), ("0-3,8", 8, true), ("0-3,8", 4, false), ("", 0, false)]
        {
            assert_eq!(contains(list, cpu), is_in, "{list} {cpu}");
        }
    }
}
