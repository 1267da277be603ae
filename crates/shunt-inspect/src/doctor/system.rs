//! The input of the rules: a port, and the machine around it.

use super::{
    CopyRate, CpuLoad, Hardware, QueueLoad,
    kernel_files::{entries, text},
};
use crate::link::{Link, Rate};
use serde::{Deserialize, Serialize};
use shunt_lab::Doubt;
use std::{collections::BTreeMap, fs, path::Path};

/// A recorded system. A field is absent or empty if it could not be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct System {
    /// Values of `compatible` of the board and its SoC: `fsl,imx6q-sabrelite`, `fsl,imx6q`.
    pub compatible: Vec<String>,
    /// The kernel's command line.
    pub command_line: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// The cpufreq governors in use.
    pub governors: Vec<String>,
    /// The cpufreq driver of CPU 0, such as `intel_pstate`; empty if there is none.
    pub frequency_driver: String,
    /// Idle states of CPU 0.
    pub idle_states: Vec<IdleState>,
    /// Whether the machine forwards IP.
    pub forwards: bool,
    /// The port.
    pub link: Link,
    /// What the port is attached to.
    pub hardware: Hardware,
    /// The other ports that are up.
    pub others: Vec<OtherPort>,
    /// Measured copy rates of memory; empty if not measured.
    pub copies: Vec<CopyRate>,
    /// Rates while traffic ran; absent if traffic was not observed.
    pub load: Option<Load>,
    /// Registers of the port's MAC by name; empty if they were not read.
    pub registers: BTreeMap<String, u64>,
}

/// An idle state of a CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleState {
    /// The kernel's name for the state, such as `C6`.
    pub name: String,
    /// Time to wake up, in microseconds.
    pub latency_us: u64,
    /// Whether it is disabled.
    pub disabled: bool,
}

/// A port other than the one under examination.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherPort {
    /// Its name.
    pub name: String,
    /// Its MTU.
    pub mtu: Option<u64>,
}

/// Rates of counters over some seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Length of the observation in seconds.
    pub seconds: f64,
    /// Rates of the counters that rose.
    pub rates: Vec<Rate>,
    /// Steps of the sweep; empty if existing traffic was watched instead.
    pub steps: Vec<LoadStep>,
    /// Doubts about the sweep.
    pub doubts: Vec<Doubt>,
    /// The time of each CPU; empty if it was not recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuLoad>,
    /// What the port's queues did; empty if they were not recorded, or if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueLoad>,
}

/// A step of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadStep {
    /// Offered rate in bit/s of frames with FCS.
    pub offered_bps: u64,
    /// Share of the packets that were lost, from 0 to 1.
    pub loss_ratio: f64,
}

impl System {
    /// Reads the state of the machine around a port, without copies, load and registers.
    pub fn read(link: Link) -> Self {
        Self::read_from(Path::new("/"), link)
    }

    pub(super) fn read_from(root: &Path, link: Link) -> Self {
        let cpus = root.join("sys/devices/system/cpu");
        let names = entries(&cpus);
        let is_cpu = |name: &&String| {
            name.strip_prefix("cpu")
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let own: Vec<&String> = names.iter().filter(is_cpu).collect();
        let mut governors: Vec<String> =
            own.iter().filter_map(|cpu| text(&cpus.join(cpu), "cpufreq/scaling_governor")).collect();
        governors.sort_unstable();
        governors.dedup();
        let states = cpus.join("cpu0/cpuidle");
        let idle = |name: &String| {
            let state = states.join(name);
            Some(IdleState {
                name: text(&state, "name")?,
                latency_us: text(&state, "latency")?.parse().ok()?,
                disabled: text(&state, "disable").as_deref() != Some("0"),
            })
        };
        let compatible = fs::read(root.join("proc/device-tree/compatible")).unwrap_or_default();
        let compatible = String::from_utf8_lossy(&compatible);
        let sysctl = |name: &str| text(root, &format!("proc/sys/net/{name}")).as_deref() == Some("1");
        let net = root.join("sys/class/net");
        let other = |name: &String| {
            let up = text(&net.join(name), "operstate").is_some_and(|state| state == "up");
            let is_other = *name != link.nic.name && name != "lo" && up;
            is_other.then(|| OtherPort {
                name: name.clone(),
                mtu: text(&net.join(name), "mtu").and_then(|mtu| mtu.parse().ok()),
            })
        };
        Self {
            compatible: compatible.split('\0').filter(|one| !one.is_empty()).map(str::to_owned).collect(),
            command_line: text(root, "proc/cmdline").unwrap_or_default(),
            cpus: own.len(),
            governors,
            frequency_driver: text(&cpus, "cpu0/cpufreq/scaling_driver").unwrap_or_default(),
            idle_states: entries(&states).iter().filter_map(idle).collect(),
            forwards: sysctl("ipv4/ip_forward") || sysctl("ipv6/conf/all/forwarding"),
            others: entries(&net).iter().filter_map(other).collect(),
            hardware: Hardware::read_from(root, &link.nic.name),
            link,
            ..Self::default()
        }
    }

    /// Whether the SoC is one of these, by the end of its name in the device tree.
    pub(super) fn is_soc(&self, names: &[&str]) -> bool {
        self.compatible.iter().any(|one| names.iter().any(|name| one.rsplit(',').next() == Some(name)))
    }

    /// Highest rate of the port's counters whose names contain one of these parts, per second; 0 without a load. A
    /// driver counts one event under several names.
    pub(super) fn rate(&self, parts: &[&str]) -> f64 {
        let Some(load) = &self.load else { return 0.0 };
        let of_port = |rate: &&Rate| rate.device == self.link.nic.name;
        let named = |rate: &&Rate| parts.iter().any(|part| rate.counter.to_ascii_lowercase().contains(part));
        load.rates.iter().filter(of_port).filter(named).map(|rate| rate.per_second).fold(0.0, f64::max)
    }

    /// Rate of one counter of the port, per second; 0 without a load.
    pub(super) fn rate_of(&self, counter: &str) -> f64 {
        let Some(load) = &self.load else { return 0.0 };
        let own = |rate: &&Rate| rate.device == self.link.nic.name && rate.counter == counter;
        load.rates.iter().find(own).map_or(0.0, |rate| rate.per_second)
    }

    /// Interrupts per second of the port.
    pub(super) fn interrupts(&self) -> f64 {
        let Some(load) = &self.load else { return 0.0 };
        load.rates.iter().filter(|rate| rate.counter == "interrupts").map(|rate| rate.per_second).sum()
    }

    /// Highest packets/s of the link, with frames of 64 bytes; None without a line.
    pub(super) fn line_pps(&self) -> Option<f64> {
        Some(self.link.nic.speed_mbps? as f64 * 1e6 / (84.0 * 8.0))
    }
}
