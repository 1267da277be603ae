//! From the configuration of queues to that of the external engine.

use shunt_api::{Engine, PortQos, QosClass, QosCounters, QosStatus, QosTable, UnusedQueues};
use shunt_core::Core;
use shunt_xsk::{
    protocol,
    sched::{ClassConfig, ClassCounters, MarkRule, SchedConfig},
};

const BITS_PER_BYTE: u64 = 8;

/// How a port gets queues of Shunt, or else of Linux.
const WITH_QUEUES: &str = "only the external engine has queues: set `engine = \"external\"` or \
    `external_ports` in the configuration; with tc, shape by a qdisc (`tc qdisc replace dev PORT root cake bandwidth RATE`)";

/// The ifindex of a port whose queues are in use, or why they are not, and what to do.
pub(crate) fn port_with_queues(core: &Core, port: &str) -> Result<u32, UnusedQueues> {
    let unused = |why: String, remedy: String| UnusedQueues { port: port.to_owned(), why, remedy };
    let Some((link, view)) = core.ports().find(|(link, _)| link.name == port) else {
        let names: Vec<&str> = core.ports().map(|(link, _)| link.name.as_str()).collect();
        let remedy = format!("name one of its ports ({}), or make {port} a port (`ports`)", names.join(", "));
        return Err(unused(format!("`{port}` is not a port of this instance"), remedy));
    };
    match view.setting.engine {
        Engine::External => Ok(link.ifindex),
        other => {
            let why = format!("the port uses {other}, not the external engine: {}", view.reason);
            Err(unused(why, WITH_QUEUES.to_owned()))
        }
    }
}

/// The queues of a configuration that a policy does not use.
pub(crate) fn unused(core: &Core, table: &QosTable) -> Vec<UnusedQueues> {
    table.keys().filter_map(|port| port_with_queues(core, port).err()).collect()
}

/// The queues of the port in a slot. The configuration has passed [`PortQos::check`].
pub(crate) fn for_slot(slot: u16, qos: &PortQos) -> protocol::Qos {
    let shapes = qos.rate.0 != 0 || !qos.class.is_empty();
    let scheduler = shapes.then(|| scheduler(qos));
    let policer = (qos.police.0 != 0).then_some((qos.police.0 / BITS_PER_BYTE, qos.police_burst.0));
    protocol::Qos::new(slot, scheduler.as_ref(), policer)
}

fn scheduler(qos: &PortQos) -> SchedConfig {
    let classes = qos.classes();
    let mut config = SchedConfig {
        bytes_per_s: qos.rate.0 / BITS_PER_BYTE,
        burst_bytes: qos.burst.0,
        overhead_bytes: qos.overhead,
        classes: classes.len() as u32,
        default_class: qos.default_class() as u32,
        ..SchedConfig::default()
    };
    let mut rules = config.mark_rules.iter_mut();
    for (number, class) in classes.iter().enumerate() {
        config.class_config[number] = class_config(class);
        for dscp in &class.dscp {
            config.dscp_class[usize::from(dscp.number())] = number as u8 + 1;
        }
        for (mark, rule) in class.mark.iter().zip(&mut rules) {
            *rule = MarkRule { mark: mark.value, mask: mark.mask, class_id: number as u32 };
        }
    }
    config
}

fn class_config(class: &QosClass) -> ClassConfig {
    // Both are at most a minute (PortQos::check).
    let [target_us, interval_us] = [class.target, class.interval].map(|time| time.as_micros() as u32);
    ClassConfig {
        priority: class.priority,
        quantum: class.quantum.0,
        limit_bytes: class.limit.0,
        target_us,
        interval_us,
    }
}

/// The state of a port's queues. Without counters, nothing has been counted.
pub(crate) fn status(
    port: &str,
    qos: &PortQos,
    unused: Option<String>,
    counted: Option<&protocol::QosCounters>,
) -> QosStatus {
    let (policer_passed, policer_dropped) = counted.and_then(|all| all.policer).unwrap_or_default();
    let mut by_class = counted.into_iter().flat_map(protocol::QosCounters::classes);
    let classes = qos
        .classes()
        .into_iter()
        .map(|class| class_counters(class.name, by_class.next().unwrap_or_default()));
    QosStatus {
        port: port.to_owned(),
        unused,
        qos: qos.clone(),
        policer_passed,
        policer_dropped,
        classes: classes.collect(),
    }
}

fn class_counters(name: String, counted: ClassCounters) -> QosCounters {
    const NS_PER_US: u64 = 1000;
    QosCounters {
        name,
        sent_packets: counted.sent_pkts,
        sent_bytes: counted.sent_bytes,
        dropped_full: counted.dropped_full,
        dropped_codel: counted.dropped_codel,
        delay_mean_us: counted.delay_sum_ns.checked_div(counted.sent_pkts).unwrap_or_default() / NS_PER_US,
        delay_max_us: counted.delay_max_ns / NS_PER_US,
        backlog_packets: counted.backlog_pkts,
        backlog_bytes: counted.backlog_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::Config as File;

    fn wan(text: &str) -> PortQos {
        File::parse(text).unwrap().qos.remove("wan0").unwrap()
    }

    #[test]
    fn every_key_reaches_the_scheduler() {
        let qos = wan(r#"
            [qos.wan0]
            rate = "80M"
            burst = "20k"
            overhead = -4
            default_class = "rest"
            [[qos.wan0.class]]
            name = "voice"
            dscp = ["ef", 2]
            mark = ["0x10/0xf0", "7"]
            limit = "30k"
            [[qos.wan0.class]]
            name = "rest"
            priority = 2
            quantum = 3000
            target = "20ms"
            interval = "1s"
            [[qos.wan0.class]]
            name = "scavenger"
            priority = 3
            dscp = ["le"]
            mark = ["8"]
            "#);
        let config = scheduler(&qos);
        assert_eq!((config.bytes_per_s, config.burst_bytes, config.overhead_bytes), (10_000_000, 20_000, -4));
        assert_eq!((config.classes, config.default_class), (3, 1));
        let rest = config.class_config[1];
        assert_eq!((rest.priority, rest.quantum, rest.limit_bytes), (2, 3000, 256_000));
        assert_eq!((rest.target_us, rest.interval_us), (20_000, 1_000_000));
        assert_eq!(config.class_config[0].limit_bytes, 30_000);
        let classes = [46, 2, 0, 63].map(|dscp| config.dscp_class[dscp]);
        assert_eq!(classes, [1, 1, 0, 0], "the number of the class plus one, or 0 for the default class");
        let rules = config.mark_rules.map(|rule| (rule.mark, rule.mask, rule.class_id));
        assert_eq!(rules[..4], [(0x10, 0xf0, 0), (7, u32::MAX, 0), (8, u32::MAX, 2), (0, 0, 0)]);
        assert!(shunt_xsk::sched::Scheduler::new(&config, 64).is_ok());
    }

    #[test]
    fn a_port_has_only_what_is_configured() {
        let parts = |text: &str| {
            let qos = for_slot(3, &wan(text));
            (qos.has_scheduler(), qos.policer())
        };
        assert_eq!(parts("[qos.wan0]"), (false, None));
        assert_eq!(parts("[qos.wan0]\nrate = \"1M\""), (true, None));
        assert_eq!(
            parts("[qos.wan0]\npolice = \"8M\"\npolice_burst = \"64k\""),
            (false, Some((1_000_000, 64_000)))
        );
        assert_eq!(parts("[[qos.wan0.class]]\nname = \"all\""), (true, None));
    }

    #[test]
    fn without_counters_nothing_has_been_counted() {
        let status = status("wan0", &wan("[qos.wan0]\nrate = \"1M\""), Some("why".to_owned()), None);
        assert_eq!((status.classes.len(), status.classes[0].sent_packets, status.policer_dropped), (1, 0, 0));
        assert_eq!((status.classes[0].name.as_str(), status.unused.as_deref()), ("all", Some("why")));
    }
}
