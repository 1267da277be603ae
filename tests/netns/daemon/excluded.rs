//! Connections that the operator keeps slow by a mark.

use shunt_api::Status;
use shunt_testkit::{
    Shuntd, Stage, require_root, rulesets, silent_router, stage::leaves_as, stage::leaves_by, wait_until,
};
use shunt_wire::Packet;

const ENGINES: [&str; 2] = ["tc", "xdp"];

/// Number of packets from which nothing was learned because of their mark.
fn excluded(status: &Status) -> u64 {
    status.refusals.get("excluded").copied().unwrap_or(0)
}

/// Sends packets until one is refused for its mark. After another refusal, the daemon leaves a flow alone for a second.
#[track_caller]
fn is_excluded(shuntd: &Shuntd, stage: &Stage, packet: &Packet) {
    wait_until("a packet is excluded", || stage.passes(packet) && excluded(&shuntd.status()) > 0);
}

/// Two flows, one of which a rule marks: the marked one stays slow until the rule is deleted, the other is fast.
#[track_caller]
fn stays_slow_while_marked(config: &str, rule: &str, unmark: &str) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::OPEN);
        let stage = Stage::new(lab.lan(), &[lab.wan()]);
        let [chosen, other] =
            [5000, 5001].map(|port| lab.lan().udp_to(4000, lab.wan().at(port)).payload("from the lan"));
        lab.router().nft(&format!(
            "table inet marks {{ chain choose {{ type filter hook forward priority mangle;\n{rule}\n}}\n}}"
        ));
        let shuntd = Shuntd::on(lab.router()).engine(engine).config(config).start();
        let as_linux_does = |sent: &Packet| {
            let ttl = sent.hop_limit().map(|ttl| ttl - 1);
            leaves_as(0, move |seen| seen.hop_limit() == ttl)
        };
        stage.teach(&shuntd, &other);
        stage.never_fast(&shuntd, &chosen, as_linux_does(&chosen));
        is_excluded(&shuntd, &stage, &chosen);
        assert!(shuntd.flows().iter().all(|c| c.orig.dport != 5000), "{:#?}", shuntd.flows());
        let before = excluded(&shuntd.status());
        stage.teach(&shuntd, &other);
        assert_eq!(excluded(&shuntd.status()), before, "the other flow was never excluded");

        lab.router().run(unmark);
        stage.settle("the mark gone", &chosen, leaves_by(0));
        stage.teach(&shuntd, &chosen);
        shuntd.stop();
    }
}

#[test]
fn a_flow_with_the_excluded_mark_stays_slow_until_the_rule_is_deleted() {
    stays_slow_while_marked(
        "exclude_mark = \"0x10/0xf0\"",
        "udp dport 5000 meta mark set 0x1f\nudp dport 5001 meta mark set 0x2f",
        "nft delete table inet marks",
    );
}

#[test]
fn a_connection_with_the_excluded_ct_mark_stays_slow_until_the_mark_is_removed() {
    stays_slow_while_marked(
        "exclude_ct_mark = \"0x100/0x100\"",
        "udp dport 5000 ct mark set 0x101\nudp dport 5001 ct mark set 0x1",
        "nft flush chain inet marks choose; nft add rule inet marks choose ct mark set 0",
    );
}

/// A mark also takes effect on a flow that is already fast.
#[test]
fn a_fast_flow_that_is_marked_becomes_slow() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::OPEN);
        let (stage, packet) = Stage::from_lan(&lab);
        let shuntd = Shuntd::on(lab.router()).engine(engine).config("exclude_mark = \"7\"").start();
        stage.teach(&shuntd, &packet);
        lab.router().run("nft insert rule inet filter forward meta mark set 7");
        stage.settle("a mark", &packet, leaves_by(0));
        stage.never_fast(&shuntd, &packet, leaves_by(0));
        is_excluded(&shuntd, &stage, &packet);
        shuntd.stop();
    }
}
