mod faults;
mod guests;
mod recordings;

use super::*;
use crate::link::{Irq, Link, Offload, Pause, Rate, Rings};
use std::collections::BTreeSet;

/// An i.MX6 on a gigabit link that has nothing to find except its errata, which a different SoC takes away.
fn healthy() -> System {
    let mut link = Link {
        up: true,
        carrier: true,
        duplex: Some("full".to_owned()),
        autoneg: Some(true),
        ..Link::default()
    };
    link.nic.name = "eth0".to_owned();
    link.nic.driver = Some("fec".to_owned());
    link.nic.speed_mbps = Some(1000);
    link.nic.mtu = Some(1500);
    link.partner = ["1000baseT/Full", "Pause", "Asym_Pause"].map(str::to_owned).to_vec();
    link.pause = Some(Pause { autoneg: true, rx: true, tx: true });
    link.rings = Some(Rings { rx: Some(512), rx_max: Some(512), tx: Some(512), tx_max: Some(512) });
    link.coalesce.insert("rx-usecs".to_owned(), 50);
    for name in ["rx-checksum", "tx-checksum-ip-generic"] {
        link.offloads.insert(name.to_owned(), Offload { on: true, fixed: false });
    }
    for name in ["rx-lro", "rx-gro"] {
        link.offloads.insert(name.to_owned(), Offload { on: false, fixed: false });
    }
    link.irqs = [(150, [60_000, 100]), (151, [100, 60_000])]
        .map(|(number, per_cpu)| Irq { number, per_cpu: per_cpu.to_vec(), ..Irq::default() })
        .to_vec();
    let copy =
        |bytes, source_offset| CopyRate { bytes, source_offset, target_offset: 0, mbytes_per_second: 900.0 };
    System {
        compatible: vec!["fsl,imx8mq-evk".to_owned(), "fsl,imx8mq".to_owned()],
        cpus: 2,
        governors: vec!["performance".to_owned()],
        idle_states: vec![IdleState { name: "WFI".to_owned(), latency_us: 1, disabled: false }],
        forwards: true,
        others: vec![OtherPort { name: "eth1".to_owned(), mtu: Some(1500) }],
        copies: vec![copy(500, 0), copy(1514, 0), copy(1514, 2)],
        load: Some(Load {
            seconds: 2.0,
            rates: rates(&[("rx_packets", 80_000.0)], 4_000.0),
            ..Load::default()
        }),
        registers: [("ENET_RCR".to_owned(), 0x05ee_0264), ("ENET_RSEM".to_owned(), 0x84)].into(),
        link,
        ..System::default()
    }
}

fn rates(counters: &[(&str, f64)], interrupts: f64) -> Vec<Rate> {
    let rate = |device: &str, counter: &str, per_second: f64| Rate {
        device: device.to_owned(),
        counter: counter.to_owned(),
        rise: (per_second * 2.0) as u64,
        per_second,
        trouble: false,
    };
    let mut all: Vec<Rate> = counters.iter().map(|(name, value)| rate("eth0", name, *value)).collect();
    all.push(rate("irq150", "interrupts", interrupts));
    all
}

fn sick(change: impl FnOnce(&mut System)) -> System {
    let mut system = healthy();
    change(&mut system);
    system
}

fn found(system: &System) -> Vec<String> {
    diagnose(system).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn a_healthy_system_has_no_findings() {
    assert_eq!(diagnose(&healthy()), []);
    assert_eq!(diagnose(&System::default()), []);
}

/// What the board of the measurements of 2012 looked like.
fn imx6_of_2012() -> System {
    sick(|system| {
        system.compatible = vec!["fsl,imx6q-sabrelite".to_owned(), "fsl,imx6q".to_owned()];
        system.idle_states.push(IdleState { name: "WAIT".to_owned(), latency_us: 50, disabled: false });
        system.link.pause = Some(Pause { autoneg: true, rx: false, tx: false });
        system.link.counters.insert("rx_fifo_errors".to_owned(), 782_502);
        system.registers = [("ENET_RCR", 0x05ee_0244), ("ENET_RSEM", 0)]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
    })
}

#[test]
fn the_imx6_of_the_measurements_is_diagnosed() {
    let found: BTreeSet<String> = found(&imx6_of_2012()).into_iter().collect();
    let want = ["deep-idle", "err004512", "err005783", "no-pause-threshold"];
    assert_eq!(found, want.map(str::to_owned).into());
}

/// The first finding and its certainty.
fn first(system: &System) -> (String, Certainty) {
    let first = diagnose(system).into_iter().next().unwrap();
    (first.rule, first.certainty)
}

#[test]
fn on_an_imx6_the_finding_is_pause_and_thresholds_together() {
    let of_2012 = imx6_of_2012();
    assert_eq!(first(&of_2012), ("no-pause-threshold".to_owned(), Certainty::Certain));
    let finding = &diagnose(&of_2012)[0];
    assert!(finding.fix.contains("--pause on") && finding.fix.contains("ENET_RSEM 0x84"), "{finding:?}");
    assert!(finding.cost.contains("580 to 611"), "{finding:?}");
    // Without registers, the threshold is only what it is after reset.
    let unread = System { registers: [].into(), ..of_2012.clone() };
    assert_eq!(first(&unread), ("no-pause-threshold".to_owned(), Certainty::Likely));
    // With a threshold, flow control is all that is missing.
    let registers = [("ENET_RCR".to_owned(), 0x05ee_0244), ("ENET_RSEM".to_owned(), 0x84)].into();
    assert_eq!(first(&System { registers, ..of_2012.clone() }).0, "overruns-without-pause");
    // A partner that cannot pause is not asked to.
    let mut deaf = of_2012;
    deaf.link.partner = vec!["1000baseT/Full".to_owned()];
    let finding = diagnose(&deaf).into_iter().next().unwrap();
    assert_eq!(finding.rule, "overruns-without-pause");
    assert!(!finding.fix.contains("--pause"), "{finding:?}");
}

#[test]
fn the_erratum_is_never_certain_and_ends_where_the_port_carries_more() {
    let mut system = imx6_of_2012();
    let erratum = |system: &System| diagnose(system).into_iter().find(|finding| finding.rule == "err004512");
    assert_eq!(erratum(&system).unwrap().certainty, Certainty::Possible);
    // 583 Mbit/s were received after the changes.
    system.load.as_mut().unwrap().rates.extend(rates(&[("rx_bytes", 583e6 / 8.0)], 0.0));
    assert_eq!(erratum(&system), None);
}

#[test]
fn findings_have_all_parts_and_the_most_certain_comes_first() {
    let findings = diagnose(&imx6_of_2012());
    assert!(findings.windows(2).all(|pair| pair[0].certainty <= pair[1].certainty));
    for finding in findings {
        let parts = [&finding.title, &finding.evidence, &finding.cost, &finding.fix, &finding.source];
        assert!(parts.iter().all(|part| part.len() > 3), "{finding:?}");
    }
}

#[test]
fn a_recorded_system_reads_back_with_the_same_findings() {
    let system = imx6_of_2012();
    let text = serde_json::to_string(&system).unwrap();
    let back: System = serde_json::from_str(&text).unwrap();
    assert_eq!((&back, diagnose(&back)), (&system, diagnose(&system)));
    // A record of less, or by another version, is no error.
    assert_eq!(serde_json::from_str::<System>("{\"cpus\": 2, \"newer\": 1}").unwrap().cpus, 2);
}

#[test]
fn a_machine_is_read_from_its_files() {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpufreq/x", ""),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "WAIT\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "50\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
        ("proc/device-tree/compatible", "fsl,imx6q-sabrelite\0fsl,imx6q\0"),
        ("proc/sys/net/ipv4/ip_forward", "1\n"),
        ("sys/class/net/eth1/operstate", "up\n"),
        ("sys/class/net/eth1/mtu", "9000\n"),
        ("sys/class/net/eth2/operstate", "down\n"),
    ] {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let system = System::read_from(root.path(), Link::default());
    assert_eq!((system.cpus, system.forwards, system.is_soc(&["imx6q"])), (2, true, true));
    assert_eq!(system.governors, ["performance", "powersave"]);
    assert_eq!(system.idle_states, [IdleState { name: "WAIT".to_owned(), latency_us: 50, disabled: false }]);
    assert_eq!(system.others, [OtherPort { name: "eth1".to_owned(), mtu: Some(9000) }]);
}
