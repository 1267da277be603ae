//! Qdiscs and their filters, by which packets leave.

use super::*;

#[test]
fn a_shaping_qdisc_moves_its_port_to_tc_and_back() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(engines(&core), [("r0".to_owned(), Engine::Xdp), ("r1".to_owned(), Engine::Xdp)]);
    let htb = qdisc(2, "htb", 0x1_0000);
    let setting = |engine| PortSetting {
        ifindex: 2,
        engine,
        no_l2: false,
        xdp_in: true,
        xdp_external: false,
        xdp_tags: false,
        xdp_frags: true,
        partial: false,
        up: true,
        captured: false,
        filtered: false,
        filtered_out: false,
        bridged: Bridged::default(),
        floods_unseen: false,
        paced: false,
    };
    assert_eq!(
        core.handle(now, Event::Qdisc(htb.clone())),
        [Action::Set(setting(Engine::Tc)), Action::MoveEpoch(Cause::Engine)]
    );
    assert_eq!(
        core.handle(now, Event::QdiscGone(htb)),
        [Action::Set(setting(Engine::Xdp)), Action::MoveEpoch(Cause::Engine)]
    );
}

#[test]
fn default_qdiscs_of_the_kernel_do_not_count() {
    let (mut core, now) = started(Choice::default(), router());
    for default in [qdisc(2, "fq_codel", 0), qdisc(2, "noqueue", 0), qdisc(2, "mq", 0x8001_0000)] {
        assert_eq!(core.handle(now, Event::Qdisc(default)), []);
    }
}

/// fq is often the default qdisc of the kernel's configuration.
#[test]
fn a_port_with_fq_treats_packets_by_their_socket_even_by_default() {
    let (mut core, now) = started(Choice::default(), router());
    let paced = |core: &Core| core.ports().map(|(_, view)| view.setting.paced).collect::<Vec<_>>();
    assert_eq!(paced(&core), [false, false]);
    let below_mq = Qdisc { parent: 0x8001_0001, ..qdisc(2, "fq", 0) };
    for fq in [qdisc(2, "fq", 0), below_mq] {
        core.handle(now, Event::Qdisc(fq.clone()));
        assert_eq!(paced(&core), [false, true]);
        core.handle(now, Event::QdiscGone(fq));
        assert_eq!(paced(&core), [false, false]);
    }
}

#[test]
fn the_qdisc_of_an_mq_queue_counts_until_the_mq_is_removed() {
    let (mut core, now) = started(Choice::default(), router());
    let engine = |core: &Core| engines(core)[1].1;
    let mq = qdisc(2, "mq", 0x8001_0000);
    let queue = |kind: &str, handle| Qdisc { parent: 0x8001_0002, ..qdisc(2, kind, handle) };
    for _ in 0..2 {
        core.handle(now, Event::Qdisc(mq.clone()));
        core.handle(now, Event::Qdisc(queue("fq_codel", 0)));
        core.handle(now, Event::Qdisc(queue("pfifo", 0x8_0000)));
        assert_eq!(engine(&core), Engine::Xdp);
        core.handle(now, Event::Qdisc(queue("fq_codel", 0x9_0000)));
        assert_eq!(engine(&core), Engine::Tc);
        // The kernel does not report the removal of its queues.
        core.handle(now, Event::QdiscGone(mq.clone()));
        assert_eq!(engine(&core), Engine::Xdp);
    }
}

#[test]
fn egress_qdiscs_and_filters_of_an_upper_device_stop_learning_on_egress() {
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let state: Vec<_> = router().into_iter().chain([Event::Link(vlan)]).collect();
    let (mut core, t) = started(Choice::default(), state);
    let settings = |actions: &[Action]| -> Vec<_> {
        let set = actions.iter().filter_map(|action| match action {
            Action::Set(setting) => Some((setting.ifindex, setting.filtered, setting.filtered_out)),
            _ => None,
        });
        set.collect()
    };
    assert_eq!(core.handle(t, Event::Qdisc(qdisc(6, "noqueue", 0))), []);
    let actions = core.handle(t, Event::Qdisc(qdisc(6, "cake", 0x8001_0000)));
    assert_eq!(settings(&actions), [(1, false, true)]);
    assert!(actions.contains(&Action::MoveEpoch(Cause::Filter)), "flows learned before must not be used");
    let view = core.ports().next().unwrap().1;
    assert_eq!(view.filters[0].to_string(), "qdisc cake of r0.10");
    assert_eq!(view.setting.engine, Engine::Xdp, "r0 itself has no qdisc");
    let actions = core.handle(t, Event::QdiscGone(qdisc(6, "cake", 0x8001_0000)));
    assert_eq!(settings(&actions), [(1, false, false)]);

    let filter =
        |ifindex| Event::Filter { ifindex, egress: true, kind: Some("flower".to_owned()), change: None };
    assert_eq!(settings(&core.handle(t, filter(6))), [(1, false, true)]);
    assert_eq!(
        settings(&core.handle(t, filter(2))),
        [(2, false, false)],
        "an egress filter of the port itself only changes its engine"
    );
}

#[test]
fn a_qdisc_does_not_overrule_a_chosen_engine() {
    let (mut core, now) = started(Choice { engine: EngineChoice::Xdp, ..Choice::default() }, router());
    assert_eq!(core.handle(now, Event::Qdisc(qdisc(2, "htb", 0x1_0000))), []);
}
