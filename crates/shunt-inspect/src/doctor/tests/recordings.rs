//! Recorded systems of other kinds than the boards of the stories: what is found, how certainly, and that one fix does
//! not undo another.

use super::*;

/// An i.MX6 with flow control on, and these registers.
fn imx6(rcr: u64, rsem: u64) -> System {
    sick(|system| {
        system.compatible = vec!["fsl,imx6q".to_owned()];
        system.registers = [("ENET_RCR".to_owned(), rcr), ("ENET_RSEM".to_owned(), rsem)].into();
    })
}

fn finding(system: &System, rule: &str) -> Option<Finding> {
    diagnose(system).into_iter().find(|finding| finding.rule == rule)
}

/// A server with two queues, both on CPU 0 of eight, and the CPUs 0, 2, 4 and 6 on its node.
fn igb() -> System {
    sick(|system| {
        system.compatible.clear();
        system.registers.clear();
        system.link.nic.driver = Some("igb".to_owned());
        system.cpus = 8;
        system.hardware.node_cpus = "0,2,4,6".to_owned();
        for irq in &mut system.link.irqs {
            irq.per_cpu = vec![60_000, 0, 0, 0, 0, 0, 0, 0];
            irq.effective = "0".to_owned();
        }
    })
}

/// A laptop as it is sold: deep idle states, a governor that follows the load, a ring that could be larger.
fn laptop() -> System {
    sick(|system| {
        system.compatible.clear();
        system.registers.clear();
        system.link.nic.driver = Some("e1000e".to_owned());
        system.forwards = false;
        system.governors = vec!["powersave".to_owned()];
        system.frequency_driver = "intel_pstate".to_owned();
        let deep = IdleState { name: "C10".to_owned(), latency_us: 890, disabled: false };
        system.idle_states.push(deep);
        system.link.rings = Some(Rings { rx: Some(256), rx_max: Some(4096), ..Rings::default() });
        system.link.counters.insert("rx_dropped".to_owned(), 40);
    })
}

#[test]
fn a_healthy_laptop_has_nothing_that_is_more_than_possible() {
    let found = diagnose(&laptop());
    assert!(found.iter().all(|finding| finding.certainty == Certainty::Possible), "{found:#?}");
    assert_eq!(finding(&laptop(), "powersave-governor"), None, "this powersave follows the load");
    let mut slow = laptop();
    slow.frequency_driver = "acpi-cpufreq".to_owned();
    assert_eq!(finding(&slow, "powersave-governor").unwrap().certainty, Certainty::Likely);
    let mut loses = laptop();
    loses.link.counters.insert("rx_missed_errors".to_owned(), 7);
    for rule in ["deep-idle", "small-ring"] {
        assert_eq!(finding(&loses, rule).unwrap().certainty, Certainty::Likely, "{rule}");
    }
}

#[test]
fn a_mac_that_obeys_pause_frames_is_not_said_to_ignore_them() {
    let with_fce = finding(&imx6(0x05ee_0264, 0), "flow-control-off-in-mac").unwrap();
    assert!(with_fce.evidence.contains("are obeyed") && !with_fce.cost.contains("obeys"), "{with_fce:?}");
    let without = finding(&imx6(0x05ee_0244, 0x84), "flow-control-off-in-mac").unwrap();
    assert!(without.evidence.contains("neither sends nor obeys"), "{without:?}");
}

#[test]
fn pause_frames_that_were_negotiated_are_seen_in_the_registers() {
    let mut system = imx6(0x05ee_0264, 0x84);
    system.link.pause = Some(Pause { autoneg: true, rx: false, tx: false });
    system.link.counters.insert("IEEE_rx_macerr".to_owned(), 900);
    assert!(found(&system).iter().all(|rule| rule.starts_with("err")), "{:?}", found(&system));
    let erratum = finding(&system, "err004512").unwrap();
    assert!(erratum.fix.starts_with("pause frames are on"), "{erratum:?}");
}

#[test]
fn a_partner_without_pause_frames_is_the_reason_why_the_mac_has_them_off() {
    let mut system = imx6(0x05ee_0244, 0x84);
    system.link.partner = vec!["1000baseT/Full".to_owned()];
    assert_eq!(finding(&system, "flow-control-off-in-mac"), None);
    system.link.counters.insert("IEEE_rx_macerr".to_owned(), 900);
    let overruns = finding(&system, "overruns-without-pause").unwrap();
    assert!(overruns.fix.starts_with("the partner cannot pause"), "{overruns:?}");
}

#[test]
fn a_frame_that_two_counters_have_is_one_frame_and_one_that_waited_is_none() {
    let mut system = imx6(0x05ee_0244, 0x84);
    system.link.pause = Some(Pause::default());
    system
        .load
        .as_mut()
        .unwrap()
        .rates
        .extend(rates(&[("IEEE_rx_macerr", 40.0), ("rx_fifo_errors", 40.0)], 0.0));
    let overruns = finding(&system, "overruns-without-pause").unwrap();
    assert!(overruns.evidence.starts_with("40 frames/s overran"), "{overruns:?}");
    let mut igb = sick(|system| system.registers.clear());
    igb.link.pause = Some(Pause::default());
    igb.link.counters.insert("rx_no_buffer_count".to_owned(), 900);
    assert_eq!(finding(&igb, "overruns-without-pause"), None);
}

#[test]
fn the_fix_of_an_erratum_says_which_other_fix_it_replaces() {
    let fix = finding(&imx6(0x05ee_0264, 0x84), "err005783").unwrap().fix;
    assert!(fix.contains("ENET_RSFL = 0, instead of the 0x10"), "{fix}");
}

#[test]
fn an_interrupt_is_moved_neither_to_another_node_nor_beside_an_engine() {
    let mut system = igb();
    let fix = |system: &System, rule| finding(system, rule).unwrap().fix;
    assert!(fix(&system, "interrupts-on-one-cpu").contains("echo 2 > /proc/irq/151/"));
    system.hardware.engine_cpus = vec![2];
    assert!(fix(&system, "interrupts-on-one-cpu").contains("echo 4 > /proc/irq/151/"));
    system.link.irqs[0].per_cpu = vec![0, 60_000, 0, 0, 0, 0, 0, 0];
    assert!(fix(&system, "queues-share-cpu").contains("echo 4 > /proc/irq/151/"));
    system.hardware.engine_cpus = vec![0];
    assert!(fix(&system, "irq-beside-engine").contains("echo 2 > /proc/irq/150/"));
}

#[test]
fn an_interrupt_of_a_remote_node_is_not_moved_to_the_cpu_of_an_engine() {
    let mut system = igb();
    system.link.irqs[0].effective = "1".to_owned();
    system.link.irqs[1].effective = "2".to_owned();
    system.hardware.engine_cpus = vec![0, 6];
    let fix = |system: &System| finding(system, "remote-node").unwrap().fix;
    assert!(fix(&system).starts_with("echo 2,4 > /proc/irq/150/"), "{}", fix(&system));
    system.hardware.engine_cpus = vec![0, 2, 4, 6];
    assert!(fix(&system).starts_with("move the external engine"), "{}", fix(&system));
}

#[test]
fn the_fix_of_gro_turns_off_the_one_that_is_on() {
    let mut system = igb();
    system.link.offloads.get_mut("rx-gro").unwrap().on = true;
    assert!(finding(&system, "gro-on-router").unwrap().fix.contains("--offload rx-gro=off"));
    system.link.offloads.insert("rx-gro-hw".to_owned(), Offload { on: true, fixed: false });
    assert!(finding(&system, "gro-on-router").unwrap().fix.contains("--offload rx-gro-hw=off"));
}

#[test]
fn interrupts_that_are_spread_by_now_are_left_alone() {
    let mut system = igb();
    system.link.irqs[1].effective = "2".to_owned();
    assert_eq!(found(&system), Vec::<String>::new(), "the counts are those of the time before");
}

#[test]
fn half_duplex_that_both_ends_negotiated_is_no_mismatch() {
    let mut system = healthy();
    system.link.duplex = Some("half".to_owned());
    system.link.advertised = vec!["10baseT/Half".to_owned(), "100baseT/Half".to_owned()];
    system.link.partner = vec!["100baseT/Half".to_owned(), "100baseT/Full".to_owned(), "Pause".to_owned()];
    assert_eq!(found(&system), Vec::<String>::new());
    system.link.advertised.push("100baseT/Full".to_owned());
    assert_eq!(first(&system), ("duplex-mismatch".to_owned(), Certainty::Certain));
}

#[test]
fn a_storm_of_pause_frames_has_other_names_on_other_nics() {
    let mut system = igb();
    system.load.as_mut().unwrap().rates.extend(rates(&[("rx_flow_control_xoff", 9_000.0)], 0.0));
    assert!(finding(&system, "pause-storm").unwrap().fix.starts_with("the partner cannot keep up"));
}

#[test]
fn a_board_without_flow_control_and_a_sparse_record_are_not_asked_for_what_they_lack() {
    let mut avr32 = System { cpus: 1, ..System::default() };
    (avr32.link.nic.name, avr32.link.nic.driver) = ("eth0".to_owned(), Some("macb".to_owned()));
    avr32.link.nic.speed_mbps = Some(100);
    assert_eq!(diagnose(&avr32), []);
    avr32.link.counters.insert("rx_overruns".to_owned(), 12);
    let all = diagnose(&avr32);
    assert!(all.len() == 1 && all[0].fix.starts_with("the driver has no flow control"), "{all:?}");
    let mut sparse = System { compatible: vec!["fsl,imx6q".to_owned()], ..System::default() };
    sparse.link.nic.driver = Some("fec".to_owned());
    assert!(diagnose(&sparse).iter().all(|finding| finding.certainty == Certainty::Possible));
    sparse.compatible = vec!["fsl,imx8mq".to_owned()];
    assert_eq!(diagnose(&sparse), []);
}
