//! Conntrack forgets TCP connections when it would without Shunt, and their tuples can be used again.

use shunt_api::{Engine, FlowState};
use shunt_testkit::{
    Crossing, Handshake, Host, Shuntd, TcpEcho, Topology, require_root, rulesets, silent_router, wait_for,
    wait_until,
};
use shunt_wire::{Packet, Tcp, Transport};
use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// Conntrack's timeouts for an idle connection and for one with unacknowledged data.
const IDLE: Duration = Duration::from_secs(14);
const UNANSWERED: Duration = Duration::from_secs(7);
/// Conntrack sees a packet of a fast flow at least this often, and counts from the last one that it saw.
const REPROVE: Duration = Duration::from_secs(2);
/// Tolerance: the table is read again and again, on a machine that may be busy.
const SLACK: Duration = Duration::from_millis(1500);

fn router() -> Topology {
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    for (name, time) in [("established", IDLE), ("unacknowledged", UNANSWERED), ("max_retrans", UNANSWERED)] {
        lab.router().sysctl(&format!("netfilter/nf_conntrack_tcp_timeout_{name}"), time.as_secs());
    }
    lab
}

/// How long after its last packet conntrack still knows a connection to port 80.
#[track_caller]
fn life_after(lab: &Topology, last_packet: Instant) -> Duration {
    let known = || {
        let mut table = lab.router().within(shunt_kernel::conntrack_table).unwrap().map(Result::unwrap);
        table.any(|entry| entry.protocol == 6 && entry.orig.dport == Some(80))
    };
    assert!(known());
    wait_for(2 * IDLE, || (!known()).then(|| last_packet.elapsed())).unwrap()
}

/// Runs the same on a router with Shunt for each engine and on a router without, at the same time. Asserts that
/// conntrack knew the connection for `timeout` on the latter, and as long on the former, less the time between two
/// proofs.
fn compare_lifetimes(
    engines: &[Engine],
    timeout: Duration,
    play: impl Fn(&Topology, Option<&Shuntd>) -> Duration + Sync,
) {
    thread::scope(|scope| {
        let play = &play;
        let with_shunt: Vec<_> = engines
            .iter()
            .map(|engine| {
                scope.spawn(move || {
                    let lab = router();
                    let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
                    let life = play(&lab, Some(&shuntd));
                    shuntd.stop();
                    life
                })
            })
            .collect();
        let without = play(&router(), None);
        assert!(without + SLACK > timeout && without < timeout + SLACK, "without Shunt: {without:?}");
        for (engine, life) in engines.iter().zip(with_shunt) {
            let with = life.join().unwrap();
            eprintln!("with engine {engine}: {with:?}, without Shunt: {without:?}");
            assert!(with + REPROVE + SLACK > timeout && with < timeout + SLACK, "engine {engine}: {with:?}");
        }
    });
}

/// Whether both directions of the connection from this port are fast, or Shunt does not run.
fn is_fast(shuntd: Option<&Shuntd>, port: u16) -> bool {
    shuntd.is_none_or(|shuntd| {
        let flows = shuntd.flows();
        let directions = flows.iter().filter(|c| c.orig.sport == port).flat_map(|c| &c.directions);
        directions.filter(|d| d.state == FlowState::Active && d.packets > 0).count() == 2
    })
}

/// Sends bytes and receives their echo.
#[track_caller]
fn exchange(stream: &TcpStream, bytes: usize) {
    let text = vec![b'x'; bytes];
    let mut answer = vec![0; bytes];
    thread::scope(|scope| {
        scope.spawn(|| (&mut &*stream).write_all(&text).unwrap());
        (&mut &*stream).read_exact(&mut answer).unwrap();
    });
    assert!(answer == text);
}

/// A transfer far beyond the last window that conntrack saw, and then silence.
#[track_caller]
fn transfer(lab: &Topology, shuntd: Option<&Shuntd>) -> Duration {
    let _echo = TcpEcho::start(&lab.wan().ns, lab.wan().at(80));
    let stream = lab.lan().ns.within(|| TcpStream::connect(lab.wan().at(80))).unwrap();
    let port = stream.local_addr().unwrap().port();
    wait_until("the connection is fast", || {
        exchange(&stream, 100);
        is_fast(shuntd, port)
    });
    exchange(&stream, 8 << 20);
    // The last acknowledgement may be delayed.
    wait_until("everything is acknowledged", || {
        let unacknowledged = |host: &Host| {
            let sockets = host.ns.run("ss -Htn state established");
            sockets.lines().any(|line| line.split_whitespace().nth(1) != Some("0"))
        };
        ![lab.lan(), lab.wan()].into_iter().any(unacknowledged)
    });
    life_after(lab, Instant::now())
}

#[test]
fn conntrack_knows_an_idle_connection_as_long_as_without_shunt() {
    if require_root() {
        compare_lifetimes(&[Engine::Tc, Engine::Xdp], IDLE, transfer);
    }
}

/// The server vanishes, and the client retransmits for a while before it vanishes too.
#[track_caller]
fn vanish(lab: &Topology, shuntd: Option<&Shuntd>) -> Duration {
    lab.pin_neighbours();
    lab.hosts().iter().for_each(shunt_testkit::Host::be_silent);
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let syn = lab.lan().tcp_to(4000, lab.wan().at(80), 0);
    let connection = Handshake::open(&there, &back, &syn, lab.wan());
    let (question, answer) =
        (connection.from_client(&syn, 0, "question"), connection.from_server(lab.wan(), 0, "answer"));
    wait_until("the connection is fast", || {
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
fn conntrack_forgets_a_connection_with_vanished_ends_as_soon_as_without_shunt() {
    if require_root() {
        compare_lifetimes(&[Engine::Xdp], UNANSWERED, vanish);
    }
}

/// A copy of a packet with other TCP flags.
fn flagged(packet: &Packet, flags: u8) -> Packet {
    let mut packet = packet.clone();
    if let Transport::Tcp(tcp) = &mut packet.transport {
        tcp.flags = flags;
    }
    packet
}

/// Ends a fast connection by RST, or by FIN from both sides, and opens the next one with the same tuple at once.
#[test]
fn the_tuple_of_a_finished_connection_can_be_used_at_once() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
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
            wait_until("the connection is fast", || {
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
            // No packet of the old connection is fast any more.
            let before = shuntd.status().packets.fast;
            there.all_that_leave(&client);
            assert_eq!(shuntd.status().packets.fast, before, "{:#?}", shuntd.flows());
        }
        shuntd.stop();
    }
}

/// conntrack(8) prints a fast connection once, in its usual form.
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
    wait_until("the connection is fast", || {
        exchange(&stream, 100);
        is_fast(Some(&shuntd), port)
    });
    let listed = lab.router().run("conntrack -L -p tcp 2>/dev/null");
    let mut words: Vec<&str> = listed.split_whitespace().collect();
    let seconds: u64 = words.remove(2).parse().unwrap();
    assert!(seconds <= IDLE.as_secs(), "{listed}");
    let expected = format!(
        "tcp 6 ESTABLISHED src=192.168.1.2 dst=198.18.0.2 sport={port} dport=80 \
         src=198.18.0.2 dst=198.18.0.1 sport=80 dport={port} [ASSURED] mark=0 use="
    );
    let text = words.join(" ");
    assert!(text.strip_prefix(&expected).is_some_and(|rest| rest.parse::<u32>().is_ok()), "{listed}");
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
