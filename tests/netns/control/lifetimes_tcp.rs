//! TCP connections are forgotten when Linux would forget them, and their tuples can be used again.

use crate::silent;
use shunt_api::{Engine, FlowState};
use shunt_testkit::{
    Crossing, Handshake, Host, Shuntd, TcpEcho, Topology, require_root, rulesets, wait_for, wait_until,
};
use shunt_wire::{Packet, Tcp, Transport};
use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// Conntrack's timeouts here, for a connection that is idle and for one that has data unanswered.
const IDLE: Duration = Duration::from_secs(14);
const UNANSWERED: Duration = Duration::from_secs(7);
/// Conntrack sees a packet of a fast flow at least so often, and counts from the last that it has seen.
const REPROVE: Duration = Duration::from_secs(2);
/// Conntrack is asked over and over, on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

fn router() -> Topology {
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    for (name, time) in [("established", IDLE), ("unacknowledged", UNANSWERED), ("max_retrans", UNANSWERED)] {
        lab.router().sysctl(&format!("netfilter/nf_conntrack_tcp_timeout_{name}"), time.as_secs());
    }
    lab
}

/// How long conntrack still knows a connection to port 80.
#[track_caller]
fn life_after(lab: &Topology, last_packet: Instant) -> Duration {
    let known = || {
        let table = lab.router().within(shunt_kernel::tracked).unwrap();
        table.iter().any(|entry| entry.protocol == 6 && entry.orig.dport == Some(80))
    };
    assert!(known());
    wait_for(2 * IDLE, || (!known()).then(|| last_packet.elapsed())).unwrap()
}

/// Runs the same on a router with Shunt and on one without, at the same time; how long conntrack knew each connection.
fn with_and_without(
    engine: Engine,
    play: impl Fn(&Topology, Option<&Shuntd>) -> Duration + Sync,
) -> [Duration; 2] {
    thread::scope(|scope| {
        let with = scope.spawn(|| {
            let lab = router();
            let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
            let life = play(&lab, Some(&shuntd));
            shuntd.stop();
            life
        });
        let without = play(&router(), None);
        [with.join().unwrap(), without]
    })
}

/// Both directions of the connection from this port are fast, or there is nothing that could make them so.
fn is_fast(shuntd: Option<&Shuntd>, port: u16) -> bool {
    shuntd.is_none_or(|shuntd| {
        let flows = shuntd.flows();
        let of_it = flows.iter().filter(|c| c.orig.sport == port).flat_map(|c| &c.directions);
        of_it.filter(|d| d.state == FlowState::Active && d.packets > 0).count() == 2
    })
}

/// Says something and hears it come back.
#[track_caller]
fn say(stream: &TcpStream, bytes: usize) {
    let text = vec![b'x'; bytes];
    let mut answer = vec![0; bytes];
    thread::scope(|scope| {
        scope.spawn(|| (&mut &*stream).write_all(&text).unwrap());
        (&mut &*stream).read_exact(&mut answer).unwrap();
    });
    assert!(answer == text);
}

/// A transfer, far beyond the window that conntrack has last seen, and then nothing more.
#[track_caller]
fn transfer(lab: &Topology, shuntd: Option<&Shuntd>) -> Duration {
    let _echo = TcpEcho::start(&lab.wan().ns, lab.wan().at(80));
    let stream = lab.lan().ns.within(|| TcpStream::connect(lab.wan().at(80))).unwrap();
    let port = stream.local_addr().unwrap().port();
    wait_until("it is fast", || {
        say(&stream, 100);
        is_fast(shuntd, port)
    });
    say(&stream, 8 << 20);
    // That of the last data may be delayed.
    wait_until("all is acknowledged", || {
        let unacknowledged = |host: &Host| {
            let sockets = host.ns.run("ss -Htn state established");
            sockets.lines().any(|line| line.split_whitespace().nth(1) != Some("0"))
        };
        ![lab.lan(), lab.wan()].into_iter().any(unacknowledged)
    });
    life_after(lab, Instant::now())
}

#[track_caller]
fn idle_connection_by(engine: Engine) {
    if !require_root() {
        return;
    }
    let [with, without] = with_and_without(engine, transfer);
    eprintln!("idle, by {engine}: {with:?}, by Linux: {without:?}");
    assert!(without + SLACK > IDLE && without < IDLE + SLACK, "{without:?}");
    assert!(with + REPROVE + SLACK > IDLE && with < IDLE + SLACK, "{with:?}");
}

#[test]
fn an_idle_connection_by_tc_is_known_as_long_as_without_shunt() {
    idle_connection_by(Engine::Tc);
}

#[test]
fn an_idle_connection_by_xdp_is_known_as_long_as_without_shunt() {
    idle_connection_by(Engine::Xdp);
}

/// The server vanishes, and the client repeats itself for a while before it vanishes too.
#[track_caller]
fn vanish(lab: &Topology, shuntd: Option<&Shuntd>) -> Duration {
    lab.pin_neighbours();
    lab.hosts().iter().for_each(shunt_testkit::Host::be_silent);
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let syn = lab.lan().tcp_to(4000, lab.wan().at(80), 0);
    let connection = Handshake::open(&there, &back, &syn, lab.wan());
    let (question, answer) =
        (connection.from_client(&syn, 0, "question"), connection.from_server(lab.wan(), 0, "answer"));
    wait_until("it is fast", || {
        there.pass(&question);
        back.pass(&answer);
        is_fast(shuntd, 4000)
    });
    let since = Instant::now();
    let unanswered = connection.from_client(&syn, 8, "is anybody there?");
    while since.elapsed() < REPROVE {
        there.pass(&unanswered);
        let answered = back.to.capture_packet(Duration::from_millis(100), |seen| seen.tcp().is_some());
        assert!(answered.is_none(), "{answered:?}");
    }
    life_after(lab, Instant::now())
}

#[test]
fn a_connection_whose_ends_have_vanished_is_forgotten_as_soon_as_without_shunt() {
    if !require_root() {
        return;
    }
    let [with, without] = with_and_without(Engine::Xdp, vanish);
    eprintln!("vanished, by XDP: {with:?}, by Linux: {without:?}");
    assert!(without + SLACK > UNANSWERED && without < UNANSWERED + SLACK, "{without:?}");
    assert!(with + REPROVE + SLACK > UNANSWERED && with < UNANSWERED + SLACK, "{with:?}");
}

/// The same packet with other flags.
fn flagged(packet: &Packet, flags: u8) -> Packet {
    let mut packet = packet.clone();
    if let Transport::Tcp(tcp) = &mut packet.transport {
        tcp.flags = flags;
    }
    packet
}

/// Ends a fast connection by RST or by FIN from both sides, and opens the next one with the same tuple at once.
#[test]
fn the_tuple_of_a_finished_connection_can_be_used_at_once() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let syn = lab.lan().tcp_to(4000, lab.wan().at(80), 0);
    for engine in [Engine::Tc, Engine::Xdp] {
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
        for end in [Tcp::RST, Tcp::FIN] {
            let connection = Handshake::open(&there, &back, &syn, lab.wan());
            let (client, server) = (
                connection.from_client(&syn, 0, "from the client"),
                connection.from_server(lab.wan(), 0, "from the server"),
            );
            wait_until("it is fast", || {
                assert_eq!(there.pass(&client).packet().unwrap().payload, b"from the client");
                assert_eq!(back.pass(&server).packet().unwrap().payload, b"from the server");
                is_fast(Some(&shuntd), 4000)
            });
            let (last, answer) =
                (connection.from_client(&syn, 15, ""), connection.from_server(lab.wan(), 15, ""));
            there.pass(&flagged(&last, end | Tcp::ACK));
            if end == Tcp::FIN {
                back.pass(&flagged(&answer, Tcp::FIN | Tcp::ACK));
                there.pass(&connection.from_client(&syn, 16, ""));
            }
            // No packet of the old connection's flows is fast any more, whatever comes now.
            let before = shuntd.status().packets.fast;
            there.all_that_leave(&client);
            assert_eq!(shuntd.status().packets.fast, before, "{:#?}", shuntd.flows());
        }
        shuntd.stop();
    }
}

/// What ordinary tools read is as it was: conntrack(8) prints each connection once, in its usual form.
#[test]
fn conntrack_prints_fast_connections_as_always() {
    if !require_root() {
        return;
    }
    let lab = router();
    let shuntd = Shuntd::on(lab.router()).start();
    let _echo = TcpEcho::start(&lab.wan().ns, lab.wan().at(80));
    let stream = lab.lan().ns.within(|| TcpStream::connect(lab.wan().at(80))).unwrap();
    let port = stream.local_addr().unwrap().port();
    wait_until("it is fast", || {
        say(&stream, 100);
        is_fast(Some(&shuntd), port)
    });
    let said = lab.router().run("conntrack -L -p tcp 2>/dev/null");
    let mut words: Vec<&str> = said.split_whitespace().collect();
    let seconds: u64 = words.remove(2).parse().unwrap();
    assert!(seconds <= IDLE.as_secs(), "{said}");
    let wanted = format!(
        "tcp 6 ESTABLISHED src=192.168.1.2 dst=198.18.0.2 sport={port} dport=80 \
         src=198.18.0.2 dst=198.18.0.1 sport=80 dport={port} [ASSURED] mark=0 use="
    );
    let text = words.join(" ");
    assert!(text.strip_prefix(&wanted).is_some_and(|rest| rest.parse::<u32>().is_ok()), "{said}");
    let xml = lab.router().run("conntrack -L -p tcp -o xml 2>/dev/null");
    for part in [
        "<state>ESTABLISHED</state>",
        "<assured/>",
        &format!("<layer4 protonum=\"6\" protoname=\"tcp\"><sport>{port}</sport><dport>80</dport></layer4>"),
    ] {
        assert_eq!(xml.matches(part).count(), 1, "{part}: {xml}");
    }
    shuntd.stop();
}
