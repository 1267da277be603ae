//! The conditions of a measurement: machine, settings, tools.

use crate::Doubt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

/// The conditions of a measurement. A field is absent if its value cannot be found out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// The CPUs of the measuring machine.
    pub cpus: Cpus,
    /// The kernel's clock source, such as `tsc`.
    pub clocksource: Option<String>,
    /// The hypervisor; absent on bare metal.
    pub hypervisor: Option<String>,
    /// `/proc/loadavg` at the beginning: load averages over 1, 5 and 15 minutes, processes, last pid.
    pub load_at_start: Option<String>,
    /// The network devices that took part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<Nic>,
    /// The engine of the fast path, or `slow` for Linux without Shunt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Versions of the programs that took part; `shunt` is always present.
    pub tools: BTreeMap<String, String>,
    /// The seed of everything random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The command line that made the measurement.
    pub command: Vec<String>,
    /// Conditions of the DUT; absent if the DUT is this machine or has no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut: Option<Box<Conditions>>,
    /// The campaign step that this measurement was; absent outside of campaigns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<CampaignStep>,
    /// Settings of this measurement that have no field above, by name: frame size, batch size, placement, ...
    #[serde(flatten)]
    pub setup: BTreeMap<String, Value>,
}

/// A step of a campaign.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignStep {
    /// Path of the campaign file.
    pub file: String,
    /// SHA-256 of the campaign file.
    pub sha256: String,
    /// Name of the step.
    pub step: String,
    /// Text of the campaign file.
    pub text: String,
}

/// The CPUs of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// The architecture: `x86_64`, `aarch64`.
    pub architecture: String,
    /// Name of the CPU model or of the board.
    pub model: Option<String>,
    /// Number of CPUs that are online.
    pub count: usize,
    /// Whether some CPUs are threads of the same core.
    pub sibling_threads: Option<bool>,
    /// The cpufreq governor of CPU 0.
    pub governor: Option<String>,
    /// Frequency of CPU 0 at the beginning, in kHz; absent if the kernel does not control it.
    pub khz: Option<u64>,
    /// Highest frequency of CPU 0, in kHz.
    pub max_khz: Option<u64>,
}

/// A network device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Name of the device.
    pub name: String,
    /// Name of the driver.
    pub driver: Option<String>,
    /// Speed in Mbit/s; absent if the link is down or virtual.
    pub speed_mbps: Option<u64>,
    /// MTU in bytes.
    pub mtu: Option<u64>,
    /// Offloads that are on, named as by `ethtool -k`; absent if ethtool is not installed.
    pub offloads: Option<Vec<String>>,
}

impl Conditions {
    /// The conditions of this machine and this process.
    pub fn of_this_machine() -> Self {
        let mut conditions = Self::read(Path::new("/"));
        conditions.cpus.architecture = env::consts::ARCH.to_owned();
        conditions.command = env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        conditions.tools.insert("shunt".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        conditions
    }

    fn read(root: &Path) -> Self {
        Self {
            kernel: text(root, "proc/sys/kernel/osrelease"),
            cpus: Cpus::read(root),
            clocksource: text(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
            hypervisor: hypervisor(root),
            load_at_start: text(root, "proc/loadavg"),
            ..Self::default()
        }
    }

    /// All known conditions by dotted name, such as `cpus.governor`.
    pub fn by_name(&self) -> BTreeMap<String, String> {
        let mut leaves = BTreeMap::new();
        // Every value of these types has a JSON form.
        add_leaves("", serde_json::to_value(self).unwrap_or_default(), &mut leaves);
        leaves
    }

    /// The doubts that follow from the conditions alone.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if let Some(hypervisor) = &self.hypervisor {
            doubts.push(Doubt::VirtualMachine { hypervisor: hypervisor.clone() });
        }
        if self.nics.iter().any(|nic| nic.driver.as_deref() == Some("veth")) {
            doubts.push(Doubt::VirtualLinks);
        }
        if self.cpus.count == 1 {
            doubts.push(Doubt::OneCore);
        }
        if self.cpus.sibling_threads == Some(true) {
            doubts.push(Doubt::SiblingThreads);
        }
        doubts
    }
}

impl Cpus {
    fn read(root: &Path) -> Self {
        const CPUFREQ: &str = "sys/devices/system/cpu/cpu0/cpufreq";
        let info = text(root, "proc/cpuinfo").unwrap_or_default();
        let named = info.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            matches!(name.trim(), "model name" | "Model" | "Hardware").then(|| value.trim().to_owned())
        });
        let khz = |file: &str| text(root, &format!("{CPUFREQ}/{file}"))?.parse().ok();
        Self {
            architecture: String::new(),
            // /proc/cpuinfo seldom names the CPU on ARM. The device tree names the board, with a zero byte at the end.
            model: named
                .or_else(|| Some(text(root, "proc/device-tree/model")?.trim_end_matches('\0').to_owned())),
            count: info.lines().filter(|line| line.starts_with("processor")).count(),
            sibling_threads: text(root, "sys/devices/system/cpu/smt/active").map(|active| active == "1"),
            governor: text(root, &format!("{CPUFREQ}/scaling_governor")),
            khz: khz("scaling_cur_freq"),
            max_khz: khz("scaling_max_freq"),
        }
    }
}

impl Nic {
    /// Reads a device in the caller's network namespace.
    pub fn read(name: &str) -> Self {
        Self::read_from(&Path::new("/sys/class/net").join(name), name)
    }

    fn read_from(sys: &Path, name: &str) -> Self {
        let linked = fs::read_link(sys.join("device/driver")).ok();
        let linked = linked.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let from_ethtool = || {
            let info = ethtool(&["-i", name])?;
            Some(info.lines().find_map(|line| line.strip_prefix("driver: "))?.trim().to_owned())
        };
        Self {
            name: name.to_owned(),
            // Virtual devices have no `device/driver`; ask ethtool.
            driver: linked.or_else(from_ethtool),
            speed_mbps: text(sys, "speed").and_then(|speed| speed.parse().ok()).filter(|_| has_line(sys)),
            mtu: text(sys, "mtu").and_then(|mtu| mtu.parse().ok()),
            offloads: ethtool(&["-k", name]).map(|features| offloads(&features)),
        }
    }
}

/// Whether a device has a real line. A virtual device claims a speed without one (10 Gbit/s for a veth). A device on
/// top of others, such as a VLAN device, has a line if all lower devices have one.
fn has_line(sys: &Path) -> bool {
    let entries = fs::read_dir(sys).into_iter().flatten().flatten();
    let lower = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("lower_"));
    let lower: Vec<_> = lower.map(|entry| entry.path()).collect();
    sys.join("device").exists() || !lower.is_empty() && lower.iter().all(|sys| has_line(sys))
}

fn offloads(features: &str) -> Vec<String> {
    let on = |line: &str| {
        let (name, state) = line.trim().split_once(": ")?;
        state.split_whitespace().next().filter(|state| *state == "on").map(|_| name.to_owned())
    };
    features.lines().filter_map(on).collect()
}

fn ethtool(args: &[&str]) -> Option<String> {
    let output = Command::new("ethtool").args(args).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn hypervisor(root: &Path) -> Option<String> {
    if let Some(kind) = text(root, "sys/hypervisor/type") {
        return Some(kind);
    }
    if let Some(model) = text(root, "proc/device-tree/hypervisor/compatible") {
        return Some(model.trim_end_matches('\0').to_owned());
    }
    let info = text(root, "proc/cpuinfo")?;
    let flags = info.lines().find(|line| line.starts_with("flags"))?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    Some(text(root, "sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "unnamed".to_owned()))
}

fn text(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn add_leaves(name: &str, value: Value, leaves: &mut BTreeMap<String, String>) {
    let below = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(fields) => {
            fields.into_iter().for_each(|(key, value)| add_leaves(&below(&key), value, leaves))
        }
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let words: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            leaves.insert(name.to_owned(), words.join(" "));
        }
        Value::Array(items) => items
            .into_iter()
            .enumerate()
            .for_each(|(n, value)| add_leaves(&below(&n.to_string()), value, leaves)),
        Value::Null => {}
        Value::String(text) => {
            leaves.insert(name.to_owned(), text);
        }
        other => {
            leaves.insert(name.to_owned(), other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Conditions {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Conditions::read(root.path())
    }

    #[test]
    fn a_board_is_named_by_its_device_tree() {
        let board = machine(&[
            ("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 16.00\n\nprocessor\t: 1\nCPU part\t: 0xd03\n"),
            ("proc/device-tree/model", "NXP i.MX8MQ EVK\0"),
            ("proc/sys/kernel/osrelease", "6.6.3\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "ondemand\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "800000\n"),
        ]);
        assert_eq!((board.cpus.model.as_deref(), board.cpus.count), (Some("NXP i.MX8MQ EVK"), 2));
        assert_eq!((board.cpus.governor.as_deref(), board.cpus.khz), (Some("ondemand"), Some(800_000)));
        assert_eq!(
            (board.kernel.as_deref(), &board.hypervisor, board.doubts().len()),
            (Some("6.6.3"), &None, 0)
        );
    }

    #[test]
    fn properties_of_the_machine_raise_doubts() {
        let mut guest = machine(&[
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor sse\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
            ("sys/devices/system/cpu/smt/active", "1\n"),
        ]);
        guest.nics.push(Nic { driver: Some("veth".to_owned()), ..Nic::default() });
        let hypervisor = "QEMU".to_owned();
        let doubts = [
            Doubt::VirtualMachine { hypervisor },
            Doubt::VirtualLinks,
            Doubt::OneCore,
            Doubt::SiblingThreads,
        ];
        assert_eq!(guest.doubts(), doubts);
        let bare =
            machine(&[("proc/cpuinfo", "processor : 0\nprocessor : 1\nflags : fpu sse hypervisors\n")]);
        assert_eq!(bare.doubts(), []);
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_cpu() {
        let here = Conditions::of_this_machine();
        assert!(here.kernel.is_some() && here.cpus.count > 0 && !here.command.is_empty(), "{here:?}");
        let lo = Nic::read("lo");
        assert_eq!((lo.mtu.is_some(), Nic::read("nosuchdevice").mtu), (true, None));
    }

    #[test]
    fn only_a_device_with_a_line_has_a_speed() {
        let root = tempfile::tempdir().unwrap();
        let device = |name: &str, below: &[&str]| {
            let sys = root.path().join(name);
            fs::create_dir_all(&sys).unwrap();
            fs::write(sys.join("speed"), "10000\n").unwrap();
            for other in below {
                std::os::unix::fs::symlink(root.path().join(other), sys.join(format!("lower_{other}")))
                    .unwrap();
            }
            sys
        };
        fs::create_dir_all(device("eth0", &[]).join("device")).unwrap();
        for (name, below, speed) in [
            ("eth0", &[][..], Some(10_000)),
            ("veth0", &[], None),
            ("eth0.5", &["eth0"], Some(10_000)),
            ("veth0.5", &["veth0"], None),
            ("br0", &["eth0", "veth0"], None),
        ] {
            let sys = if name == "eth0" { root.path().join(name) } else { device(name, below) };
            assert_eq!(Nic::read_from(&sys, name).speed_mbps, speed, "{name}");
        }
    }

    #[test]
    fn only_enabled_offloads_are_listed() {
        let features = "Features for eth0:\nrx-checksumming: on\ntx-checksumming: off\n\ttx-checksum-ipv4: on [fixed]\n\
                    generic-segmentation-offload: off [requested on]\n";
        assert_eq!(offloads(features), ["rx-checksumming", "tx-checksum-ipv4"]);
    }
}
