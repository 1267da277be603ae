//! Under which conditions something was measured.

use crate::Doubt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

/// What a number depends on besides what is measured. What cannot be found out is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Its release.
    pub kernel: Option<String>,
    /// What runs everything.
    pub cpus: Cpus,
    /// What the kernel reads the time from.
    pub clocksource: Option<String>,
    /// The hypervisor, where there is one.
    pub hypervisor: Option<String>,
    /// The load averages of 1, 5 and 15 minutes, processes and last pid, when it began.
    pub load_at_start: Option<String>,
    /// Those that took part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<Nic>,
    /// The engine of the fast path, or `slow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The versions of what took part; ours is always there.
    pub tools: BTreeMap<String, String>,
    /// What chance was seeded with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The command, to run it again.
    pub command: Vec<String>,
    /// Those of the DUT, where it is another machine and tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut: Option<Box<Conditions>>,
    /// What it was a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<CampaignStep>,
}

/// One measurement of several that belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignStep {
    /// The file of the campaign.
    pub file: String,
    /// Of its text.
    pub sha256: String,
    /// Which of its steps.
    pub step: String,
    /// The whole file.
    pub text: String,
}

/// The CPUs of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// x86_64, aarch64.
    pub architecture: String,
    /// As the machine names itself or its CPU.
    pub model: Option<String>,
    /// How many are online.
    pub count: usize,
    /// Some are threads of one core.
    pub sibling_threads: Option<bool>,
    /// Of CPU 0.
    pub governor: Option<String>,
    /// Of CPU 0, when it began; absent where the kernel does not set it.
    pub khz: Option<u64>,
    /// The most that CPU 0 may have.
    pub max_khz: Option<u64>,
}

/// A network device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: Option<String>,
    /// In Mbit/s, while the link is up; absent where there is no line.
    pub speed_mbps: Option<u64>,
    /// Its MTU.
    pub mtu: Option<u64>,
    /// What is on, as `ethtool -k` names it; absent where there is no ethtool.
    pub offloads: Option<Vec<String>>,
}

impl Conditions {
    /// Of this machine and this process.
    pub fn of_this_machine() -> Self {
        let mut conditions = Self::of_root(Path::new("/"));
        conditions.cpus.architecture = env::consts::ARCH.to_owned();
        conditions.command = env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        conditions.tools.insert("shunt".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        conditions
    }

    fn of_root(root: &Path) -> Self {
        Self {
            kernel: text(root, "proc/sys/kernel/osrelease"),
            cpus: Cpus::of_root(root),
            clocksource: text(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
            hypervisor: hypervisor(root),
            load_at_start: text(root, "proc/loadavg"),
            ..Self::default()
        }
    }

    /// Each that is known, by its name, such as `cpus.governor`.
    pub fn by_name(&self) -> BTreeMap<String, String> {
        let mut leaves = BTreeMap::new();
        // Every value of these types has a form in JSON.
        add_leaves("", serde_json::to_value(self).unwrap_or_default(), &mut leaves);
        leaves
    }

    /// Those that follow from the conditions alone.
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
    fn of_root(root: &Path) -> Self {
        const CPUFREQ: &str = "sys/devices/system/cpu/cpu0/cpufreq";
        let info = text(root, "proc/cpuinfo").unwrap_or_default();
        let named = info.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            matches!(name.trim(), "model name" | "Model" | "Hardware").then(|| value.trim().to_owned())
        });
        let khz = |file: &str| text(root, &format!("{CPUFREQ}/{file}"))?.parse().ok();
        Self {
            architecture: String::new(),
            // ARM's cpuinfo seldom names anything; the device tree does, and ends with a zero byte.
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
    /// Of this device in the network namespace of the caller.
    pub fn of(name: &str) -> Self {
        Self::of_sys(&Path::new("/sys/class/net").join(name), name)
    }

    fn of_sys(sys: &Path, name: &str) -> Self {
        let linked = fs::read_link(sys.join("device/driver")).ok();
        let linked = linked.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let told = || {
            let info = ethtool(&["-i", name])?;
            Some(info.lines().find_map(|line| line.strip_prefix("driver: "))?.trim().to_owned())
        };
        Self {
            name: name.to_owned(),
            // Virtual devices have no device behind them.
            driver: linked.or_else(told),
            speed_mbps: text(sys, "speed").and_then(|speed| speed.parse().ok()).filter(|_| has_line(sys)),
            mtu: text(sys, "mtu").and_then(|mtu| mtu.parse().ok()),
            offloads: ethtool(&["-k", name]).map(|features| offloads(&features)),
        }
    }
}

/// Virtual devices have no line, whatever speed they claim: 10 Gbit/s of a veth. One on top of others, such as a VLAN device, has
/// theirs.
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
        Conditions::of_root(root.path())
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
    fn what_the_machine_is_gives_rise_to_doubts() {
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
        let lo = Nic::of("lo");
        assert_eq!((lo.mtu.is_some(), Nic::of("nosuchdevice").mtu), (true, None));
    }

    #[test]
    fn only_a_line_has_a_speed() {
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
            assert_eq!(Nic::of_sys(&sys, name).speed_mbps, speed, "{name}");
        }
    }

    #[test]
    fn offloads_are_those_that_are_on() {
        let said = "Features for eth0:\nrx-checksumming: on\ntx-checksumming: off\n\ttx-checksum-ipv4: on [fixed]\n\
                    generic-segmentation-offload: off [requested on]\n";
        assert_eq!(offloads(said), ["rx-checksumming", "tx-checksum-ipv4"]);
    }
}
