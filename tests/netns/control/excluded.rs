//! Connections that the operator keeps slow by a mark.

use crate::{
    OPEN, Stage, silent,
    stage::{by, one},
};
use shunt_api::Status;
use shunt_testkit::{Shuntd, Topology, require_root, wait_until};
use shunt_wire::Packet;

const ENGINES: [&str; 2] = ["tc", "xdp"];

/// How many packets taught nothing because of their mark.
fn excluded(status: &Status) -> u64 {
    status.refusals.get("excluded").copied().unwrap_or(0)
}

/// Sends packets until one was refused for its mark: a tuple that was refused before is left in peace for a second.
#[track_caller]
fn is_excluded(shuntd: &Shuntd, stage: &Stage, packet: &Packet) {
    wait_until("a packet is excluded", || stage.passes(packet) && excluded(&shuntd.status()) > 0);
}

/// A flow that a rule marks and one that it does not: the one stays with Linux until the rule is gone, the other does not.
#[track_caller]
fn stays_slow_while_marked(config: &str, rule: &str, unmark: &str) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
        let stage = Stage::new(lab.lan(), &[lab.wan()]);
        let [chosen, other] =
            [5000, 5001].map(|port| lab.lan().udp_to(4000, lab.wan().at(port)).payload("from the lan"));
        lab.router().nft(&format!(
            "table inet marks {{ chain choose {{ type filter hook forward priority mangle;\n{rule}\n}}\n}}"
        ));
        let shuntd = Shuntd::on(lab.router()).engine(engine).config(config).start();
        let as_linux_does = |sent: &Packet| {
            let ttl = sent.hop_limit().map(|ttl| ttl - 1);
            one(0, move |seen| seen.hop_limit() == ttl)
        };
        stage.teach(&shuntd, &other);
        stage.never_fast(&shuntd, &chosen, as_linux_does(&chosen));
        is_excluded(&shuntd, &stage, &chosen);
        assert!(shuntd.flows().iter().all(|c| c.orig.dport != 5000), "{:#?}", shuntd.flows());
        let before = excluded(&shuntd.status());
        stage.teach(&shuntd, &other);
        assert_eq!(excluded(&shuntd.status()), before, "the other flow was never excluded");

        lab.router().run(unmark);
        stage.react("the mark gone", &chosen, by(0));
        stage.teach(&shuntd, &chosen);
        shuntd.stop();
    }
}

#[test]
fn a_flow_with_the_excluded_mark_stays_slow_until_its_rule_goes() {
    stays_slow_while_marked(
        "exclude_mark = \"0x10/0xf0\"",
        "udp dport 5000 meta mark set 0x1f\nudp dport 5001 meta mark set 0x2f",
        "nft delete table inet marks",
    );
}

#[test]
fn a_connection_with_the_excluded_conntrack_mark_stays_slow_until_it_is_taken_off() {
    stays_slow_while_marked(
        "exclude_ct_mark = \"0x100/0x100\"",
        "udp dport 5000 ct mark set 0x101\nudp dport 5001 ct mark set 0x1",
        "nft flush chain inet marks choose; nft add rule inet marks choose ct mark set 0",
    );
}

/// A mark counts as soon as a flow has it, not only before it is learned.
#[test]
fn a_fast_flow_that_is_marked_becomes_slow() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
        let (stage, packet) = Stage::from_lan(&lab);
        let shuntd = Shuntd::on(lab.router()).engine(engine).config("exclude_mark = \"7\"").start();
        stage.teach(&shuntd, &packet);
        lab.router().run("nft insert rule inet filter forward meta mark set 7");
        stage.react("a mark", &packet, by(0));
        stage.never_fast(&shuntd, &packet, by(0));
        is_excluded(&shuntd, &stage, &packet);
        shuntd.stop();
    }
}
