//! When a flow becomes fast, and when it becomes slow again.

use crate::daemon;
use shunt_api::{Connection, DirectionName, FlowState};
use shunt_testkit::{
    Crossing, ENGINES, Handshake, SELDOM_PROVED, Shuntd, Topology, punts, refusals, require_root, rulesets,
    silent_router,
};
use shunt_wire::{Packet, Tcp, Transport};
use std::time::{Duration, Instant};

/// Time for several proofs, at five per second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a packet `times` times; returns for each whether it was fast.
#[track_caller]
fn fast_ones(shuntd: &Shuntd, way: &Crossing, packet: &Packet, times: usize) -> Vec<bool> {
    let once = |n: usize| {
        let before = shuntd.status().packets.fast;
        way.pass(&packet.clone().with_id(n as u16));
        shuntd.status().packets.fast == before + 1
    };
    (1..=times).map(once).collect()
}

/// The expected result of [`fast_ones`] if the first `slow` packets are slow and all others fast.
fn after(slow: usize, times: usize) -> Vec<bool> {
    (0..times).map(|n| n >= slow).collect()
}

fn ways(lab: &Topology) -> (Crossing, Crossing) {
    (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()))
}

fn with_flags(packet: &Packet, flags: u8) -> Packet {
    let mut packet = packet.clone();
    if let Transport::Tcp(tcp) = &mut packet.transport {
        tcp.flags = flags;
    }
    packet
}

#[test]
fn udp_is_fast_from_its_third_packet_in_each_direction() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        let (there, back) = ways(&lab);
        let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("there");
        assert_eq!(fast_ones(&shuntd, &there, &packet, 8), after(2, 8));
        // There was no answer yet, so nothing is known of the reply direction.
        let flow = shuntd.flows();
        assert_eq!(flow.len(), 1);
        assert_eq!(flow[0].directions.len(), 1, "{flow:#?}");

        let seen = there.pass(&packet).packet().unwrap();
        let answer = lab.wan().answer_to(&seen).payload("back");
        assert_eq!(fast_ones(&shuntd, &back, &answer, 8), after(2, 8));

        let [Connection { orig, reply, directions, state, packets, .. }] = &shuntd.flows()[..] else {
            panic!("{:#?}", shuntd.flows())
        };
        assert_eq!((orig.source(), orig.destination()), (lab.lan().at(4000), lab.wan().at(5000)));
        assert_eq!(Some(reply.source()), seen.destination());
        assert_eq!(Some(reply.destination()), seen.source());
        assert_eq!(
            directions.iter().map(|d| d.dir).collect::<Vec<_>>(),
            [DirectionName::Orig, DirectionName::Reply]
        );
        // Six of eight packets in each direction, and the one whose frame was captured.
        assert_eq!((*state, *packets), (FlowState::Active, 13));
        shuntd.stop();
    }
}

/// Accepts new connections, but no packet of the original direction after the first answer.
const ASKING_ONLY: &str = r"
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established ct direction original drop
		ct state { new, established } accept
		icmp type echo-request accept
	}
}
";

#[test]
fn udp_learned_before_its_answer_meets_the_established_rules_after_it() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(ASKING_ONLY);
        let shuntd = daemon(&lab, engine);
        let (there, back) = ways(&lab);
        let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("there");
        assert_eq!(fast_ones(&shuntd, &there, &packet, 8), after(2, 8));
        let answer = lab.wan().udp_to(5000, lab.lan().at(4000)).payload("back");
        assert_eq!(fast_ones(&shuntd, &back, &answer, 8), after(2, 8));
        for _ in 0..8 {
            assert_eq!(there.all_that_leave(&packet), [], "{engine}");
        }
        shuntd.stop();
    }
}

#[test]
fn udp_waits_for_an_answer_where_that_is_configured() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).config("udp_unreplied = false").config(SELDOM_PROVED).start();
    let (there, back) = ways(&lab);
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("there");
    assert_eq!(fast_ones(&shuntd, &there, &packet, 20), after(20, 20));
    assert!(refusals(&shuntd.status(), "unreplied") > 0);
    assert_eq!(shuntd.flows(), []);
    back.pass(&lab.wan().answer_to(&there.pass(&packet).packet().unwrap()).payload("back"));
    there.teach(&shuntd, &packet);
}

#[test]
fn udp_is_fast_after_as_many_packets_as_configured() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).config("udp_packets = 5").config(SELDOM_PROVED).start();
    let (there, _) = ways(&lab);
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("there");
    assert_eq!(fast_ones(&shuntd, &there, &packet, 8), after(5, 8));
}

#[test]
fn tcp_is_not_fast_before_it_is_established() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        let (there, back) = ways(&lab);
        let syn = lab.lan().tcp_to(4000, lab.wan().at(80), Tcp::SYN);
        assert_eq!(fast_ones(&shuntd, &there, &syn, 10), after(10, 10));
        let seen = there.pass(&syn).packet().unwrap();
        let answer = with_flags(&lab.wan().answer_to(&seen), Tcp::SYN | Tcp::ACK);
        assert_eq!(fast_ones(&shuntd, &back, &answer, 10), after(10, 10));
        assert_eq!(shuntd.flows(), []);
        assert!(punts(&shuntd.status(), "tcp-flags") >= 20);

        let connection = Handshake::open(&there, &back, &syn, lab.wan());
        there.teach(&shuntd, &connection.from_client(&syn, 0, "there"));
        let flow = shuntd.flows();
        assert_eq!(flow[0].directions.len(), 1, "each direction is learned from its own packets: {flow:#?}");
        back.teach(&shuntd, &connection.from_server(lab.wan(), 0, "back"));
        shuntd.stop();
    }
}

/// A client that opens many connections uses its ports again soon. Packets of earlier connections do not count.
#[test]
fn short_connections_from_one_port_are_not_learned() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        let (there, back) = ways(&lab);
        let syn = lab.lan().tcp_to(4000, lab.wan().at(80), Tcp::SYN);
        for _ in 0..6 {
            let connection = Handshake::open(&there, &back, &syn, lab.wan());
            let data = connection.from_client(&syn, 0, "there");
            there.pass(&data);
            back.pass(&connection.from_server(lab.wan(), 0, "back"));
            there.pass(&with_flags(&data, Tcp::RST | Tcp::ACK));
        }
        let status = shuntd.status();
        assert!(status.refusals.is_empty(), "a connection was watched: {:?}", status.refusals);
        assert_eq!(shuntd.flows(), []);

        let connection = Handshake::open(&there, &back, &syn, lab.wan());
        there.teach(&shuntd, &connection.from_client(&syn, 0, "there"));
        shuntd.stop();
    }
}

/// Until conntrack has seen an acknowledgement of each end, it accepts any reset, and fast packets would not change
/// that. Only a connection that conntrack picked up in the middle can be in this state.
#[test]
fn tcp_picked_up_in_the_middle_is_not_fast_before_each_end_has_acknowledged() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        let (there, back, syn, connection) = Handshake::through(&lab);
        lab.router().run("conntrack -D -p tcp 2>/dev/null");
        let data = connection.from_client(&syn, 0, "there");
        let answer = connection.from_server(lab.wan(), 0, "back");
        there.pass(&data);
        assert_eq!(fast_ones(&shuntd, &back, &with_unseen_acknowledgement(&answer), 10), after(10, 10));
        assert_eq!(fast_ones(&shuntd, &there, &data, 10), after(10, 10));
        assert_eq!(shuntd.flows(), []);
        let tracked = lab.router().run("conntrack -L -p tcp 2>/dev/null");
        assert!(tracked.contains("ESTABLISHED") && tracked.contains("ASSURED"), "{tracked}");
        assert!(refusals(&shuntd.status(), "not-established") > 0);

        back.teach(&shuntd, &answer);
        there.teach(&shuntd, &data);
        shuntd.stop();
    }
}

/// A copy of a packet that acknowledges data that nobody has sent.
fn with_unseen_acknowledgement(packet: &Packet) -> Packet {
    let mut packet = packet.clone();
    if let Transport::Tcp(tcp) = &mut packet.transport {
        tcp.acknowledgement = tcp.acknowledgement.wrapping_add(1 << 30);
    }
    packet
}

/// Conntrack does not see fast packets. When it sees the connection again, far beyond the last window, it must still
/// take the packet for valid, since the ruleset drops invalid packets.
#[test]
fn conntrack_is_liberal_with_a_fast_connection() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).config("reprove = \"200ms\"").start();
    let (there, back, syn, connection) = Handshake::through(&lab);
    there.teach(&shuntd, &connection.from_client(&syn, 0, "there"));
    back.teach(&shuntd, &connection.from_server(lab.wan(), 0, "back"));
    let proved = shuntd.status().proved;
    let since = Instant::now();
    // Each step is larger than a window.
    for step in (1..).take_while(|_| since.elapsed() < PATIENCE) {
        there.pass(&connection.from_client(&syn, step * 100_000, "there"));
        back.pass(&connection.from_server(lab.wan(), step * 100_000, "back"));
        if shuntd.status().proved > proved + 6 {
            return;
        }
    }
    panic!("the flow is not re-proved: {:#?}", shuntd.status());
}

#[track_caller]
fn both_directions_retire_by(flags: u8) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        let (there, back, syn, connection) = Handshake::through(&lab);
        let data = connection.from_client(&syn, 0, "there");
        let answer = connection.from_server(lab.wan(), 0, "back");
        there.teach(&shuntd, &data);
        back.teach(&shuntd, &answer);
        let before = shuntd.status();
        there.pass(&with_flags(&data, flags));
        // The next answer goes to Linux.
        if flags & Tcp::RST == 0 {
            back.pass(&answer);
        }
        let status = shuntd.status();
        assert_eq!(status.packets.fast, before.packets.fast);
        assert_eq!(punts(&status, "tcp-flags"), punts(&before, "tcp-flags") + 1);
        let flow = shuntd.flows();
        assert!(flow.iter().all(|c| c.state == FlowState::Retired), "{flow:#?}");

        // Conntrack has seen the end, so the same ports can be used for another connection.
        if flags & Tcp::RST == 0 {
            back.pass(&with_flags(&answer, flags));
            there.pass(&with_flags(&data, Tcp::ACK));
        }
        let connection = Handshake::open(&there, &back, &syn, lab.wan());
        let before = shuntd.status().packets.fast;
        there.pass(&connection.from_client(&syn, 0, "at once"));
        assert_eq!(shuntd.status().packets.fast, before, "an action of the previous connection is used");
        there.teach(&shuntd, &connection.from_client(&syn, 0, "there"));
        back.teach(&shuntd, &connection.from_server(lab.wan(), 0, "back"));
        shuntd.stop();
    }
}

#[test]
fn a_fin_retires_both_directions_and_the_ports_can_be_used_again() {
    both_directions_retire_by(Tcp::FIN | Tcp::ACK);
}

#[test]
fn a_reset_retires_both_directions_and_the_ports_can_be_used_again() {
    both_directions_retire_by(Tcp::RST | Tcp::ACK);
}

#[test]
fn a_syn_on_a_fast_connection_goes_to_linux_and_retires_it() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        let (there, _, syn, connection) = Handshake::through(&lab);
        there.teach(&shuntd, &connection.from_client(&syn, 0, "there"));
        let before = shuntd.status();
        there.from.send(&with_flags(&connection.from_client(&syn, 0, []), Tcp::SYN));
        let status = shuntd.wait_until("the SYN is counted", |now| {
            punts(now, "tcp-flags") == punts(&before, "tcp-flags") + 1
        });
        assert_eq!(status.packets.fast, before.packets.fast);
        assert_eq!(shuntd.flows()[0].state, FlowState::Retired);
        shuntd.stop();
    }
}

#[test]
fn a_flow_without_packets_leaves_the_table() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).config("idle = \"1s\"").start();
    let (there, _) = ways(&lab);
    there.teach(&shuntd, &lab.lan().udp_to(4000, lab.wan().at(5000)).payload("there"));
    shuntd.wait_until("the table is empty", |s| s.flows.active + s.flows.pending + s.flows.retired == 0);
    assert_eq!(shuntd.flows(), []);
}

#[test]
fn a_flush_sends_every_flow_back_to_linux() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = daemon(&lab, ENGINES[1]);
    let (there, _) = ways(&lab);
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("there");
    there.teach(&shuntd, &packet);
    assert_eq!(shuntd.flush(), 1);
    assert_eq!(fast_ones(&shuntd, &there, &packet, 1), [false]);
    there.teach(&shuntd, &packet);
}
