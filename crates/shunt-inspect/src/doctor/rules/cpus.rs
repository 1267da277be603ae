//! Rules about the CPUs that do a port's work.

use super::{BUSY_PPS, Certainty, RuleMatch, System, seen};
use crate::{
    doctor::hardware::{Hardware, contains},
    link::Irq,
};

/// Share of all interrupts above which one CPU counts as taking all of them.
const ALMOST_ALL: f64 = 0.97;
/// Squeezes per second above which packets wait for a noticeable time.
const SQUEEZED_OFTEN: f64 = 10.0;

/// Interrupts that matter: each has more than a twentieth of all.
fn busy(system: &System) -> Vec<&Irq> {
    let irqs = &system.link.irqs;
    let total: u64 = irqs.iter().map(Irq::total).sum();
    irqs.iter().filter(|irq| total >= 1000 && irq.total() * 20 > total).collect()
}

/// The one CPU that takes an interrupt at present.
fn cpu_of(irq: &Irq) -> Option<usize> {
    irq.effective.parse().ok()
}

/// Whether a CPU may take interrupts of the port: it is on the port's node, and no external engine is pinned there.
fn is_free(system: &System, cpu: usize) -> bool {
    let Hardware { node_cpus, engine_cpus, .. } = &system.hardware;
    !engine_cpus.contains(&cpu) && (node_cpus.is_empty() || contains(node_cpus, cpu))
}

/// A CPU besides this one that may take interrupts of the port.
fn other_cpu(system: &System, than: usize) -> Option<usize> {
    (than + 1..system.cpus).chain(0..than).find(|cpu| is_free(system, *cpu))
}

pub(super) fn irq_beside_engine(system: &System) -> Option<RuleMatch> {
    let engines = &system.hardware.engine_cpus;
    let (irq, cpu) = busy(system)
        .into_iter()
        .filter_map(|irq| Some((irq, cpu_of(irq)?)))
        .find(|(_, cpu)| engines.contains(cpu))?;
    let other = other_cpu(system, cpu)?;
    let evidence = format!("IRQ {} goes to CPU {cpu}, and an external engine is pinned there", irq.number);
    let fix = format!(
        "echo {other} > /proc/irq/{}/smp_affinity_list, and keep irqbalance off that CPU",
        irq.number
    );
    seen(Certainty::Certain, evidence, fix)
}

pub(super) fn remote_node(system: &System) -> Option<RuleMatch> {
    let node = &system.hardware.node_cpus;
    let is_remote = |irq: &&Irq| cpu_of(irq).is_some_and(|cpu| !contains(node, cpu));
    let irq = busy(system).into_iter().find(is_remote).filter(|_| !node.is_empty())?;
    let evidence =
        format!("IRQ {} goes to CPU {}; the port's node has CPUs {node}", irq.number, irq.effective);
    let free = (0..system.cpus).filter(|cpu| is_free(system, *cpu)).map(|cpu| cpu.to_string());
    let free = free.collect::<Vec<_>>().join(",");
    let fix = match free.is_empty() {
        true => format!("move the external engine to another node: all of the CPUs {node} are engines'"),
        false => {
            format!(
                "echo {free} > /proc/irq/{}/smp_affinity_list, and run programs there: numactl",
                irq.number
            )
        }
    };
    seen(Certainty::Likely, evidence, fix)
}

pub(super) fn queues_share_cpu(system: &System) -> Option<RuleMatch> {
    let busy = busy(system);
    let on = |cpu: usize| busy.iter().filter(|irq| cpu_of(irq) == Some(cpu)).collect::<Vec<_>>();
    let idle = (0..system.cpus).find(|cpu| on(*cpu).is_empty() && is_free(system, *cpu))?;
    let (cpu, shared) = (0..system.cpus).map(|cpu| (cpu, on(cpu))).find(|(_, irqs)| irqs.len() > 1)?;
    if interrupts_on_one_cpu(system).is_some() {
        return None;
    }
    let numbers: Vec<String> = shared.iter().map(|irq| irq.number.to_string()).collect();
    let evidence = format!("IRQs {} go to CPU {cpu}, and CPU {idle} takes none", numbers.join(" and "));
    seen(
        Certainty::Likely,
        evidence,
        format!("echo {idle} > /proc/irq/{}/smp_affinity_list", shared[1].number),
    )
}

pub(super) fn interrupts_on_one_cpu(system: &System) -> Option<RuleMatch> {
    let link = &system.link;
    let spread =
        |masks: &[String]| masks.iter().any(|mask| mask.chars().any(|c| c.is_ascii_hexdigit() && c != '0'));
    let per_cpu = |cpu: usize| link.irqs.iter().filter_map(|irq| irq.per_cpu.get(cpu)).sum::<u64>();
    let total: u64 = link.irqs.iter().map(Irq::total).sum();
    let (cpu, most) = (0..system.cpus).map(|cpu| (cpu, per_cpu(cpu))).max_by_key(|(_, count)| *count)?;
    // The counts are since boot; if they say otherwise, the CPUs that take the interrupts now are right.
    let busy = busy(system);
    let now: Vec<usize> = busy.iter().filter_map(|irq| cpu_of(irq)).collect();
    if system.cpus < 2
        || total < 1000
        || now.iter().any(|other| *other != now[0])
        || (most as f64) < ALMOST_ALL * total as f64
        || spread(&link.queues.rps)
    {
        return None;
    }
    let evidence =
        format!("CPU {cpu} took {most} of {total} interrupts of {} (of {} CPUs)", link.nic.name, system.cpus);
    let other = other_cpu(system, cpu)?;
    match &busy[..] {
        [_, second, ..] => {
            let fix = format!(
                "spread them: echo {other} > /proc/irq/{}/smp_affinity_list, or run irqbalance",
                second.number
            );
            seen(Certainty::Likely, evidence, fix)
        }
        _ => {
            let free = (0..system.cpus.min(32)).filter(|cpu| is_free(system, *cpu));
            let mask = free.fold(0u32, |mask, cpu| mask | 1 << cpu);
            let fix = format!(
                "one queue has one interrupt; spread in software: echo {mask:x} > /sys/class/net/{}/queues/rx-0/rps_cpus",
                link.nic.name
            );
            seen(Certainty::Possible, evidence, fix)
        }
    }
}

pub(super) fn uneven_queues(system: &System) -> Option<RuleMatch> {
    let mut queues: Vec<(&str, f64)> = Vec::new();
    for rate in system.load.iter().flat_map(|load| &load.rates) {
        let name = rate.counter.to_ascii_lowercase();
        let is_queue = name.starts_with("rx")
            && name.ends_with("packets")
            && name.contains(|c: char| c.is_ascii_digit());
        if rate.device == system.link.nic.name && is_queue {
            queues.push((&rate.counter, rate.per_second));
        }
    }
    let (total, count) = (queues.iter().map(|queue| queue.1).sum::<f64>(), system.link.queues.rx);
    let (name, most) = queues.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // Halfway between an even share and everything.
    let fair = 1.0 / count.max(1) as f64;
    if count < 2 || total < BUSY_PPS || most < total * (1.0 + fair) / 2.0 {
        return None;
    }
    let port = &system.link.nic.name;
    let evidence = format!("{name} has {most:.0} of {total:.0} packets/s, with {count} receive queues");
    let fix = format!(
        "ethtool -X {port} equal {count}; if all traffic is UDP between two hosts: ethtool -N {port} rx-flow-hash udp4 sdfn; one flow stays on one queue"
    );
    seen(Certainty::Likely, evidence, fix)
}

/// Rates of a counter of /proc/net/softnet_stat by CPU, the highest first.
fn softnet<'a>(system: &'a System, counter: &str) -> Vec<(&'a str, f64)> {
    let rates = system.load.iter().flat_map(|load| &load.rates);
    let of_cpus = rates.filter(|rate| rate.counter == counter && rate.device.starts_with("cpu"));
    let mut all: Vec<(&str, f64)> = of_cpus.map(|rate| (rate.device.as_str(), rate.per_second)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

pub(super) fn softnet_squeezed(system: &System) -> Option<RuleMatch> {
    let (cpu, rate) = *softnet(system, "time_squeeze").first()?;
    let certainty = if rate >= SQUEEZED_OFTEN { Certainty::Likely } else { Certainty::Possible };
    let napi = &system.link.napi;
    let (budget, usecs) = (napi.budget.unwrap_or(300), napi.budget_usecs.unwrap_or(2000));
    let evidence = format!(
        "{cpu} stopped polling with packets left {rate:.1} times/s (netdev_budget {budget}, netdev_budget_usecs {usecs})"
    );
    let fix = format!(
        "sysctl -w net.core.netdev_budget={} net.core.netdev_budget_usecs={}; if that CPU is busy all the time, spread its queues",
        2 * budget,
        2 * usecs
    );
    seen(certainty, evidence, fix)
}

pub(super) fn backlog_full(system: &System) -> Option<RuleMatch> {
    let (cpu, rate) = *softnet(system, "dropped").first()?;
    let fix = "sysctl -w net.core.netdev_max_backlog=10000, or spread RPS over more CPUs";
    seen(Certainty::Certain, format!("{cpu} dropped {rate:.0} packets/s between driver and stack"), fix)
}
