//! Fleets through a simulated router.

use super::*;
use shunt_wire::{Packet, Tcp, Transport};
use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

const DELAY: Duration = Duration::from_millis(5);
const NAT: [u8; 4] = [203, 0, 113, 1];

/// What a router makes of a packet that a side sent: the packets that reach a side.
type Router<'r> = &'r mut dyn FnMut(Side, Packet) -> Vec<(Side, Packet)>;

fn other(side: Side) -> Side {
    if side == Side::Client { Side::Server } else { Side::Client }
}

fn spec(connections: u32, v6: bool) -> FleetSpec {
    let (client, server): (IpAddr, IpAddr) = match v6 {
        false => ([192, 0, 2, 2].into(), [198, 51, 100, 2].into()),
        true => ("fd00::2".parse().unwrap(), "fd01::2".parse().unwrap()),
    };
    let profile = Profile {
        request: "200".parse().unwrap(),
        response: "8..60k".parse().unwrap(),
        exchanges: 3,
        think: Duration::from_millis(20),
    };
    FleetSpec {
        profile,
        connections,
        per_second: 1000.0,
        client,
        server,
        segment_bytes: 1460,
        patience: Duration::from_secs(5),
        seed: 1,
        run: 3,
    }
}

/// Runs a fleet to its end; a packet takes [`DELAY`] through the router.
fn run(spec: FleetSpec, router: Router<'_>) -> Outcome {
    let mut fleet = Fleet::new(spec).unwrap();
    let mut wire: VecDeque<(Duration, Side, Vec<u8>)> = VecDeque::new();
    let mut now = Duration::ZERO;
    // Until nothing is under way, so that all that arrives is counted.
    while !fleet.is_over() || !wire.is_empty() {
        let arrival = wire.front().map(|(at, ..)| *at);
        now = now.max([fleet.due(), arrival].into_iter().flatten().min().unwrap());
        assert!(now < Duration::from_secs(100), "{:?}", fleet.outcome());
        while let Some((_, side, frame)) = wire.pop_front_if(|(at, ..)| *at <= now) {
            fleet.receive(side, &Packet::parse(&frame).unwrap(), now);
        }
        fleet.advance(now);
        fleet.flush(now, &mut |side, packet| {
            let packets = router(side, packet).into_iter();
            wire.extend(packets.map(|(to, packet)| (now + DELAY, to, packet.to_bytes())));
        });
    }
    let outcome = fleet.outcome();
    assert_eq!((outcome.unfinished(), outcome.late), (0, Duration::ZERO));
    outcome
}

fn pass(side: Side, packet: Packet) -> Vec<(Side, Packet)> {
    vec![(other(side), packet)]
}

fn random() -> impl FnMut() -> u64 {
    let mut state = 1;
    move || {
        state = profile::mix(state);
        state
    }
}

#[test]
fn all_connections_complete_and_nothing_is_repeated_where_nothing_is_lost() {
    for v6 in [false, true] {
        let spec = spec(300, v6);
        let outcome = run(spec, &mut pass);
        let Outcome { to_server, to_client, .. } = &outcome;
        assert_eq!((outcome.opened, outcome.established, outcome.completed), (300, 300, 300));
        assert_eq!((outcome.failed, outcome.stray), (Failures::default(), 0));
        assert_eq!((to_server.bytes, to_server.retransmitted, to_server.lost()), (300 * 600, 0, 0));
        let sizes = |nth| (0..3).map(move |exchange| spec.profile.exchange(1, nth, exchange).1);
        let responses: u64 = (0..300).flat_map(sizes).sum();
        assert_eq!((to_client.bytes, to_client.retransmitted, to_client.lost()), (responses, 0, 0));
        assert_eq!((outcome.handshake_ns.len(), outcome.exchange_ns.len()), (300, 900));
        let trip = 2 * DELAY.as_nanos() as u64;
        assert!(outcome.handshake_ns.iter().all(|ns| *ns == trip));
        // A response of 60 kB takes three round trips of slow start.
        assert!(outcome.exchange_ns.iter().all(|ns| (trip..=4 * trip).contains(ns)));
        // Each connection lasts for five round trips and two pauses at least.
        assert!((90..300).contains(&outcome.open_most), "{}", outcome.open_most);
    }
}

#[test]
fn lost_segments_are_repeated_and_counted_exactly() {
    for percent in [1, 10] {
        let (mut random, mut dropped) = (random(), [0, 0]);
        let patient = FleetSpec { patience: Duration::from_secs(60), ..spec(200, false) };
        let outcome = run(patient, &mut |side, packet| {
            if random() % 100 >= percent {
                return pass(side, packet);
            }
            dropped[usize::from(side == Side::Server)] += 1;
            Vec::new()
        });
        assert!(dropped[0] > 10 && dropped[1] > 10);
        assert_eq!([outcome.to_server.lost(), outcome.to_client.lost()], dropped);
        assert_eq!((outcome.completed, outcome.failed.sum(), outcome.stray), (200, 0, 0), "{outcome:?}");
        assert_eq!(outcome.to_server.bytes, 200 * 600);
        assert!(outcome.to_client.retransmitted > dropped[1] / 2);
    }
}

#[test]
fn reordered_and_repeated_segments_do_no_harm() {
    let (mut random, mut held) = (random(), Vec::new());
    let outcome = run(spec(100, false), &mut |side, packet| {
        match random() % 8 {
            0 => {
                held.push((other(side), packet));
                return Vec::new();
            }
            1 => return vec![(other(side), packet.clone()), (other(side), packet)],
            _ => {}
        }
        let mut all = pass(side, packet);
        all.append(&mut held);
        all
    });
    assert_eq!((outcome.completed, outcome.failed.sum(), outcome.stray), (100, 0, 0), "{outcome:?}");
    assert_eq!(outcome.to_server.bytes, 100 * 600);
}

/// A router that translates addresses, sequence numbers and the segment size, as a firewall may.
#[test]
fn a_router_may_translate_as_long_as_it_does_so_everywhere() {
    let shift = 0x7fff_fff0;
    let nat = |port| SocketAddr::from((NAT, port));
    let outcome = run(spec(100, false), &mut |side, packet| {
        let Transport::Tcp(mut tcp) = packet.transport.clone() else { panic!() };
        match side {
            Side::Client => tcp.sequence = tcp.sequence.wrapping_add(shift),
            Side::Server => tcp.acknowledgement = tcp.acknowledgement.wrapping_sub(shift),
        }
        if tcp.flags & Tcp::SYN != 0 {
            // No window scale, and segments of 500 bytes.
            tcp.options = vec![2, 4, 1, 244];
        }
        let (from, to) = (packet.source().unwrap(), packet.destination().unwrap());
        let packet = Packet { transport: Transport::Tcp(tcp), ..packet };
        let port = |port: u16| port ^ 0x4000;
        pass(
            side,
            match side {
                Side::Client => packet.with_source(nat(port(from.port()))),
                Side::Server => packet.with_destination(SocketAddr::from(([192, 0, 2, 2], port(to.port())))),
            },
        )
    });
    assert_eq!((outcome.completed, outcome.stray, outcome.to_client.retransmitted), (100, 0, 0));
    assert!(outcome.to_client.sent > outcome.to_client.bytes / 500);
}

#[test]
fn a_router_that_breaks_connections_is_found_out() {
    let is_data = |packet: &Packet| packet.payload.len() > 300;
    let mut count = 0;
    let mut broken = |change: &dyn Fn(&mut Packet)| {
        count = 0;
        run(spec(20, false), &mut |side, mut packet| {
            if is_data(&packet) {
                count += 1;
                change(&mut packet);
            }
            pass(side, packet)
        })
    };
    let tcp_of = |packet: &mut Packet, change: &dyn Fn(&mut Tcp)| {
        if let Transport::Tcp(tcp) = &mut packet.transport {
            change(tcp);
        }
    };
    // Bytes that move to another place within the window.
    let moved = broken(&|packet| tcp_of(packet, &|tcp| tcp.sequence = tcp.sequence.wrapping_add(1)));
    assert!(moved.failed.corrupted == 20 && moved.completed == 0, "{moved:?}");
    // Numbers far outside the window.
    let far = broken(&|packet| tcp_of(packet, &|tcp| tcp.sequence = tcp.sequence.wrapping_add(1 << 30)));
    assert!(far.failed.silent == 20 && far.stray > 20, "{far:?}");
    // An acknowledgement of bytes that were never sent.
    let ahead = broken(&|packet| {
        tcp_of(packet, &|tcp| tcp.acknowledgement = tcp.acknowledgement.wrapping_add(100_000));
    });
    assert!(ahead.failed.sum() == 20 && ahead.stray > 20, "{ahead:?}");
    // A changed byte, with a correct checksum and with a wrong one.
    let byte = broken(&|packet| packet.payload[299] ^= 1);
    assert_eq!((byte.failed.corrupted, byte.completed), (20, 0), "{byte:?}");
    let sum = broken(&|packet| *packet = packet.clone().with_l4_checksum(shunt_wire::Checksum::Value(1)));
    assert_eq!((sum.failed.silent, sum.failed.corrupted), (20, 0), "{sum:?}");
}

#[test]
fn refused_reset_and_unanswered_connections_are_told_apart() {
    let number = |side, packet: &Packet| {
        let port = if side == Side::Client { packet.source() } else { packet.destination() };
        u32::from(port.unwrap().port()) % 4
    };
    let outcome = run(spec(40, false), &mut |side, packet| {
        let syn = packet.tcp().unwrap().flags & Tcp::SYN != 0;
        let reset = |seq: u32, ack: u32| {
            let (from, to) = (packet.source().unwrap(), packet.destination().unwrap());
            let mut reset = Packet::tcp_between(to, from, Tcp::RST | Tcp::ACK);
            if let Transport::Tcp(tcp) = &mut reset.transport {
                (tcp.sequence, tcp.acknowledgement) = (seq, ack);
            }
            vec![(side, reset)]
        };
        let tcp = packet.tcp().unwrap();
        match (number(side, &packet), side) {
            (0, Side::Client) if syn => reset(0, tcp.sequence.wrapping_add(1)),
            (1, Side::Client) if !packet.payload.is_empty() => reset(tcp.acknowledgement, tcp.sequence),
            (2, Side::Client) if syn => Vec::new(),
            // A reset with a number that the connection has not reached ends nothing.
            (3, Side::Client) if !packet.payload.is_empty() => {
                let mut all = reset(tcp.acknowledgement.wrapping_add(5000), 0);
                all.append(&mut pass(side, packet));
                all
            }
            _ => pass(side, packet),
        }
    });
    let Failures { refused, reset, unanswered, silent, corrupted } = outcome.failed;
    assert_eq!((refused, reset, unanswered, silent, corrupted), (10, 10, 10, 0, 0), "{outcome:?}");
    assert_eq!((outcome.completed, outcome.established, outcome.stray), (10, 20, 30), "{outcome:?}");
}

#[test]
fn impossible_fleets_are_refused() {
    let why = |spec| Fleet::new(spec).unwrap_err().to_string();
    let mixed = FleetSpec { server: "fd01::2".parse().unwrap(), ..spec(1, false) };
    assert!(why(mixed).ends_with("both must be IPv4, or both IPv6"));
    assert_eq!(why(spec(0, false)), "0 connections: 1 to 1032192 are possible");
    assert!(why(spec(Fleet::CONNECTIONS_MAX + 1, false)).contains("1032193 connections"));
}
