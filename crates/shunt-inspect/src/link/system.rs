//! Reads the state of a port from sysfs, procfs and `tc`.

use super::{Link, Napi, Queues};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// An interrupt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Irq {
    /// IRQ number, as in `/proc/interrupts`.
    pub number: u32,
    /// Its name in `/proc/interrupts`.
    pub name: String,
    /// CPUs that may take the interrupt, as a list such as `0-3`.
    pub affinity: String,
    /// CPUs that take the interrupt at present, as a list.
    pub effective: String,
    /// Number of interrupts since boot, by CPU.
    pub per_cpu: Vec<u64>,
}

impl Irq {
    /// Number of interrupts since boot, on all CPUs together.
    pub fn total(&self) -> u64 {
        self.per_cpu.iter().sum()
    }
}

impl Link {
    pub(super) fn read_system(&mut self, root: &Path, port: &str) {
        let sys = root.join("sys/class/net").join(port);
        self.up =
            text(&sys, "flags").and_then(|flags| hexadecimal(&flags)).is_some_and(|flags| flags & 1 == 1);
        // Reading `carrier` of a device that is down fails.
        self.carrier = text(&sys, "carrier").as_deref() == Some("1");
        self.queues = queues(&sys);
        let sysctl = |name: &str| text(root, &format!("proc/sys/net/core/{name}"))?.parse().ok();
        self.napi = Napi {
            threaded: text(&sys, "threaded").map(|threaded| threaded != "0"),
            budget: sysctl("netdev_budget"),
            budget_usecs: sysctl("netdev_budget_usecs"),
            defer_hard_irqs: text(&sys, "napi_defer_hard_irqs").and_then(|times| times.parse().ok()),
            gro_flush_timeout_ns: text(&sys, "gro_flush_timeout").and_then(|ns| ns.parse().ok()),
        };
        let numbers = irq_numbers(&sys);
        self.irqs = interrupts(root).into_iter().filter(|irq| is_of(irq, &numbers, port)).collect();
        if self.irqs.is_empty() {
            self.lacking.insert("interrupts".to_owned(), "none in /proc/interrupts is the port's".to_owned());
        }
    }
}

/// All numbered interrupts of the machine.
pub fn interrupts(root: &Path) -> Vec<Irq> {
    let table = fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
    let cpus = table.lines().next().unwrap_or_default().split_whitespace().count();
    let irq = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number: u32 = number.trim().parse().ok()?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let per_cpu = words.iter().take(cpus).map_while(|word| word.parse().ok()).collect();
        let directory = root.join(format!("proc/irq/{number}"));
        let list = |file: &str| text(&directory, file).unwrap_or_default();
        Some(Irq {
            number,
            name: words.last().copied().unwrap_or_default().to_owned(),
            affinity: list("smp_affinity_list"),
            effective: list("effective_affinity_list"),
            per_cpu,
        })
    };
    table.lines().skip(1).filter_map(irq).collect()
}

/// The MSI interrupts of the port's device, or of the bus device that carries it, as for virtio.
fn irq_numbers(sys: &Path) -> Vec<u32> {
    let device = fs::canonicalize(sys.join("device")).ok();
    let mut at: Option<PathBuf> = device;
    for _ in 0..3 {
        let Some(device) = at else { break };
        let names = fs::read_dir(device.join("msi_irqs")).into_iter().flatten().flatten();
        let numbers: Vec<u32> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        if !numbers.is_empty() {
            return numbers;
        }
        let legacy = text(&device, "irq").and_then(|irq| irq.parse().ok()).filter(|irq| *irq > 0);
        if let Some(number) = legacy {
            return vec![number];
        }
        at = device.parent().map(Path::to_owned);
    }
    Vec::new()
}

fn is_of(irq: &Irq, numbers: &[u32], port: &str) -> bool {
    if !numbers.is_empty() {
        return numbers.contains(&irq.number);
    }
    // `eth0`, `eth0-TxRx-1`, and `30be0000.ethernet` are found by the number or not at all.
    irq.name.strip_prefix(port).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

fn queues(sys: &Path) -> Queues {
    let entries = fs::read_dir(sys.join("queues")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    let of = |kind: &'static str| names.iter().filter(move |name| name.starts_with(kind));
    let file = |name: &str, file: &str| text(&sys.join("queues").join(name), file);
    Queues {
        rx: of("rx-").count(),
        tx: of("tx-").count(),
        rps: of("rx-").filter_map(|name| file(name, "rps_cpus")).collect(),
        xps: of("tx-").filter_map(|name| file(name, "xps_cpus")).collect(),
    }
}

/// The kinds of queueing disciplines, as `tc` lists them.
pub(super) fn qdiscs(port: &str) -> Result<Vec<String>, String> {
    let output = Command::new("tc").args(["-j", "qdisc", "show", "dev", port]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run tc: {error}"))?;
    let all: Vec<serde_json::Value> =
        serde_json::from_slice(&output.stdout).map_err(|_| "tc printed no JSON".to_owned())?;
    let one = |qdisc: &serde_json::Value| {
        let text = |name: &str| qdisc[name].as_str().map(str::to_owned);
        let place = text("parent").map_or("root".to_owned(), |parent| format!("parent {parent}"));
        Some(format!("{} {place}", text("kind")?))
    };
    Ok(all.iter().filter_map(one).collect())
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn text(directory: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(directory.join(file)).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_queues_interrupts_and_napi() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("sys/class/net/eth0/flags", "0x1003\n"),
            ("sys/class/net/eth0/carrier", "1\n"),
            ("sys/class/net/eth0/threaded", "0\n"),
            ("sys/class/net/eth0/napi_defer_hard_irqs", "2\n"),
            ("sys/class/net/eth0/queues/rx-0/rps_cpus", "3\n"),
            ("sys/class/net/eth0/queues/rx-10/rps_cpus", "0\n"),
            ("sys/class/net/eth0/queues/rx-2/rps_cpus", "1\n"),
            ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n"),
            ("proc/sys/net/core/netdev_budget", "300\n"),
            ("proc/irq/151/smp_affinity_list", "0-3\n"),
            ("proc/irq/151/effective_affinity_list", "0\n"),
            (
                "proc/interrupts",
                "           CPU0       CPU1\n 150:   1  2  GIC 150 Level  mmc0\n 151:  782502  5  GIC 151 Edge  eth0\n\
                 152:  3  4  GIC 152 Edge  eth01\n 153:  3  4  GIC 153 Edge  eth0-tx\nNMI:  0 0 x\n",
            ),
        ];
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut link = Link::default();
        link.read_system(root.path(), "eth0");
        assert_eq!((link.up, link.carrier, link.queues.rx, link.queues.tx), (true, true, 3, 1));
        assert_eq!(link.queues.rps, ["3", "1", "0"]);
        assert_eq!(
            (link.napi.threaded, link.napi.budget, link.napi.defer_hard_irqs),
            (Some(false), Some(300), Some(2))
        );
        let numbers: Vec<_> = link.irqs.iter().map(|irq| irq.number).collect();
        assert_eq!(numbers, [151, 153]);
        let irq = &link.irqs[0];
        assert_eq!((irq.total(), irq.affinity.as_str(), irq.effective.as_str()), (782_507, "0-3", "0"));
    }
}
