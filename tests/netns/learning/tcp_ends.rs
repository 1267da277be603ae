//! FIN and RST on fast connections. As without Shunt, genuine ones arrive and end the connection, and blind ones, whose
//! sequence numbers are guessed, change nothing.

use shunt_api::{Engine, FlowState};
use shunt_testkit::{
    Crossing, ENGINES, Handshake, SELDOM_PROVED, Shuntd, Topology, daemon_with, punts, require_root,
    silent_router, wait_until,
};
use shunt_wire::{Packet, Tcp, Transport};
use std::net::SocketAddr;

/// The strictest ruleset for TCP that Linux allows, with masquerade.
const STRICT: &str = r#"
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state invalid drop
		ct state established,related,new accept
	}
}
table inet nat {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "r1" masquerade
	}
}
"#;
/// Conntrack's timeout for established connections, in seconds. For connections that were reset, the timeout is 10 s.
const ESTABLISHED_S: u32 = 1000;
/// Bytes skipped at once: more than any window, and four of them pass 4 GiB.
const STEP: u32 = 1 << 30;
/// Distance of a blind packet's sequence number from the expected one.
const BLIND: u32 = 300 << 20;

/// A TCP connection made of single packets, whose ends have acknowledged everything.
struct Connection<'l> {
    lab: &'l Topology,
    there: Crossing,
    back: Crossing,
    syn: Packet,
    at_server: Packet,
    client: u32,
    server: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Client,
    Server,
}
use Sender::{Client, Server};

impl<'l> Connection<'l> {
    #[track_caller]
    fn open(lab: &'l Topology, v6: bool) -> Self {
        let (there, back) =
            (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
        let server: SocketAddr = if v6 { lab.wan().at6(80) } else { lab.wan().at(80) };
        let syn = lab.lan().tcp_to(4000, server, 0);
        let Handshake { at_server, client_sequence, server_sequence } =
            Handshake::open(&there, &back, &syn, lab.wan());
        Self { lab, there, back, syn, at_server, client: client_sequence, server: server_sequence }
    }

    fn way(&self, from: Sender) -> &Crossing {
        if from == Client { &self.there } else { &self.back }
    }

    /// A packet of one end whose sequence number is `ahead` of what the other end expects.
    fn packet(&self, from: Sender, flags: u8, ahead: u32, data: &str) -> Packet {
        let (like, sequence, acknowledgement) = match from {
            Client => (self.syn.clone(), self.client, self.server),
            Server => (self.lab.wan().answer_to(&self.at_server), self.server, self.client),
        };
        let mut packet = like.payload(data);
        if let Transport::Tcp(tcp) = &mut packet.transport {
            tcp.flags = flags;
            tcp.sequence = sequence.wrapping_add(ahead);
            tcp.acknowledgement = if flags == Tcp::RST { 0 } else { acknowledgement };
        }
        packet
    }

    /// Each end sends data, and acknowledges the data of the other.
    #[track_caller]
    fn talk(&mut self) {
        for from in [Client, Server] {
            self.way(from).pass(&self.packet(from, Tcp::ACK, 0, "word"));
            *(if from == Client { &mut self.client } else { &mut self.server }) += 4;
        }
        self.way(Client).pass(&self.packet(Client, Tcp::ACK, 0, ""));
    }

    /// Advances the sequence numbers as if this number of bytes had been sent both ways.
    fn skip(&mut self, bytes: u32) {
        self.client = self.client.wrapping_add(bytes);
        self.server = self.server.wrapping_add(bytes);
    }

    #[track_caller]
    fn talk_until_fast(&mut self, shuntd: &Shuntd) {
        wait_until("both directions are fast", || {
            let before = shuntd.status().packets.fast;
            self.talk();
            shuntd.status().packets.fast == before + 3
        });
    }

    /// Sends a packet; returns how many times it leaves.
    fn leaves(&self, from: Sender, packet: &Packet) -> usize {
        self.way(from).all_that_leave(packet).len()
    }

    /// The state in conntrack, and the seconds until the entry expires.
    #[track_caller]
    fn tracked(&self) -> (String, u32) {
        let family = if self.syn.source().unwrap().is_ipv4() { "ipv4" } else { "ipv6" };
        let entry = self.lab.router().run(&format!("conntrack -L -f {family} -p tcp 2>/dev/null"));
        let words: Vec<&str> = entry.split_whitespace().collect();
        assert!(words.len() > 3, "conntrack has no TCP entry: {entry:?}");
        (words[3].to_owned(), words[2].parse().unwrap())
    }
}

fn router() -> Topology {
    let lab = silent_router(STRICT);
    for name in ["established", "unacknowledged", "max_retrans"] {
        lab.router().sysctl(&format!("netfilter/nf_conntrack_tcp_timeout_{name}"), ESTABLISHED_S);
    }
    lab
}

/// Sends six times the RST of a host whose process was killed; returns how many left, and the state in conntrack.
#[track_caller]
fn six_resets(connection: &Connection<'_>, from: Sender) -> (usize, String) {
    let reset = connection.packet(from, Tcp::RST, 0, "");
    let left = (0..6).map(|_| connection.leaves(from, &reset)).sum();
    (left, connection.tracked().0)
}

/// Lets both ends talk until each direction has been re-proved by Linux a few times.
#[track_caller]
fn talk_until_proved(connection: &mut Connection<'_>, shuntd: &Shuntd) {
    let proved = shuntd.status().proved;
    wait_until("eight more proofs", || {
        connection.talk();
        shuntd.status().proved >= proved + 8
    });
}

/// The effect of six resets on a router without Shunt.
#[track_caller]
fn resets_without_shunt(v6: bool, from: Sender) -> (usize, String) {
    let lab = router();
    let mut connection = Connection::open(&lab, v6);
    connection.talk();
    let expected = six_resets(&connection, from);
    assert_eq!(expected.1, "CLOSE");
    expected
}

/// The effect of six resets after three gigabytes that conntrack hardly saw.
#[track_caller]
fn resets_after_gigabytes(engine: Engine, v6: bool, from: Sender) -> (usize, String) {
    let lab = router();
    let shuntd = daemon_with(&lab, engine, "reprove = \"200ms\"");
    let mut connection = Connection::open(&lab, v6);
    connection.talk_until_fast(&shuntd);
    for _ in 0..3 {
        connection.skip(STEP);
        talk_until_proved(&mut connection, &shuntd);
    }
    let effect = six_resets(&connection, from);
    assert!(shuntd.flows().iter().all(|flow| flow.state == FlowState::Retired), "{:#?}", shuntd.flows());
    shuntd.stop();
    effect
}

#[test]
fn resets_of_either_end_arrive_after_three_gigabytes_of_tcp_over_ipv4() {
    if require_root() {
        resets_of_either_end(false);
    }
}

#[test]
fn resets_of_either_end_arrive_after_three_gigabytes_of_tcp_over_ipv6() {
    if require_root() {
        resets_of_either_end(true);
    }
}

fn resets_of_either_end(v6: bool) {
    for from in [Client, Server] {
        let expected = resets_without_shunt(v6, from);
        for engine in ENGINES {
            assert_eq!(resets_after_gigabytes(engine, v6, from), expected, "{engine} {from:?}");
        }
    }
}

/// Conntrack has missed the last acknowledgement, so it cannot tell by itself that the RST is exact.
#[test]
fn a_reset_closes_the_connection_in_conntrack() {
    if !require_root() {
        return;
    }
    for (engine, from) in ENGINES.into_iter().zip([Client, Server]) {
        let lab = router();
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        let mut connection = Connection::open(&lab, false);
        connection.talk_until_fast(&shuntd);
        connection.talk();
        assert_eq!(connection.tracked().0, "ESTABLISHED");
        assert_eq!(connection.leaves(from, &connection.packet(from, Tcp::RST, 0, "")), 1);
        wait_until("conntrack has closed the connection", || connection.tracked().0 == "CLOSE");
        assert!(connection.tracked().1 <= 10);
        shuntd.stop();
    }
}

/// Asserts that the entry in conntrack is as if no blind packet had come.
#[track_caller]
fn assert_untouched(connection: &Connection<'_>) {
    wait_until("conntrack has the connection as before", || {
        let (state, left) = connection.tracked();
        state == "ESTABLISHED" && left > ESTABLISHED_S - 60
    });
}

#[test]
fn a_blind_reset_or_fin_leaves_a_fast_connection_alone() {
    if !require_root() {
        return;
    }
    for (engine, v6) in ENGINES.into_iter().zip([false, true]) {
        for (flags, from, far) in
            [(Tcp::RST, Server, false), (Tcp::FIN | Tcp::ACK, Client, false), (Tcp::RST, Client, true)]
        {
            let alone = router();
            let mut connection = Connection::open(&alone, v6);
            connection.talk();
            connection.leaves(from, &connection.packet(from, flags, BLIND, ""));
            assert_untouched(&connection);

            let lab = router();
            let shuntd = daemon_with(&lab, engine, if far { "reprove = \"200ms\"" } else { SELDOM_PROVED });
            let mut connection = Connection::open(&lab, v6);
            connection.talk_until_fast(&shuntd);
            if far {
                connection.skip(STEP);
                talk_until_proved(&mut connection, &shuntd);
            }
            let before = shuntd.status();
            connection.leaves(from, &connection.packet(from, flags, BLIND, ""));
            assert_eq!(punts(&shuntd.status(), "tcp-flags"), punts(&before, "tcp-flags") + 1);
            assert_untouched(&connection);
            assert_eq!(shuntd.flows()[0].state, FlowState::Active);
            connection.talk_until_fast(&shuntd);
            shuntd.stop();
        }
    }
}

#[test]
fn a_blind_reset_or_fin_leaves_a_connection_alone_after_its_flows_left_the_table() {
    if !require_root() {
        return;
    }
    for (v6, flags, from) in [(false, Tcp::RST, Server), (true, Tcp::FIN | Tcp::ACK, Client)] {
        let lab = router();
        let shuntd = daemon_with(&lab, Engine::Tc, "idle = \"1s\"");
        let mut connection = Connection::open(&lab, v6);
        connection.talk_until_fast(&shuntd);
        shuntd.wait_until("the table is empty", |s| s.flows.active + s.flows.pending + s.flows.retired == 0);
        connection.leaves(from, &connection.packet(from, flags, BLIND, ""));
        assert_untouched(&connection);
        // A genuine RST still ends the connection.
        connection.leaves(from, &connection.packet(from, Tcp::RST, 0, ""));
        wait_until("conntrack has closed the connection", || connection.tracked().0 == "CLOSE");
        shuntd.stop();
    }
}

/// The blind RST must not keep the genuine one from ending both directions at once, in Shunt and in conntrack.
#[test]
fn a_genuine_reset_after_a_blind_one_ends_the_connection() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = router();
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        let mut connection = Connection::open(&lab, false);
        connection.talk_until_fast(&shuntd);
        connection.leaves(Server, &connection.packet(Server, Tcp::RST, BLIND, ""));
        assert_eq!(connection.leaves(Server, &connection.packet(Server, Tcp::RST, 0, "")), 1);
        assert!(shuntd.flows().iter().all(|flow| flow.state == FlowState::Retired), "{:#?}", shuntd.flows());
        wait_until("conntrack has closed the connection", || connection.tracked().0 == "CLOSE");
        shuntd.stop();
    }
}

/// Otherwise the fast direction would hide the acknowledgement of the FIN from conntrack.
#[test]
fn a_fin_of_a_direction_without_a_flow_ends_the_other_direction() {
    if !require_root() {
        return;
    }
    for (engine, v6) in ENGINES.into_iter().zip([false, true]) {
        let lab = router();
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        let mut connection = Connection::open(&lab, v6);
        wait_until("the client's direction is fast", || {
            let before = shuntd.status().packets.fast;
            connection.way(Client).pass(&connection.packet(Client, Tcp::ACK, 0, "word"));
            connection.client += 4;
            shuntd.status().packets.fast == before + 1
        });
        assert_eq!(shuntd.flows()[0].directions.len(), 1, "{:#?}", shuntd.flows());
        assert_eq!(connection.leaves(Server, &connection.packet(Server, Tcp::FIN | Tcp::ACK, 0, "")), 1);
        connection.server += 1;
        assert_eq!(shuntd.flows()[0].state, FlowState::Retired);
        connection.way(Client).pass(&connection.packet(Client, Tcp::ACK, 0, ""));
        assert_eq!(connection.tracked().0, "CLOSE_WAIT");
        shuntd.stop();
    }
}

/// Packets of a class that is not the flow's stay slow, and still move the connection on.
#[test]
fn a_fin_after_data_of_another_class_ends_the_connection() {
    if !require_root() {
        return;
    }
    let lab = router();
    let shuntd = daemon_with(&lab, Engine::Tc, SELDOM_PROVED);
    let mut connection = Connection::open(&lab, false);
    connection.talk_until_fast(&shuntd);
    connection.client += 2 << 20;
    let marked = |packet: Packet| packet.with_class(46 << 2);
    let before = punts(&shuntd.status(), "class");
    connection.way(Client).pass(&marked(connection.packet(Client, Tcp::ACK, 0, "word")));
    connection.client += 4;
    assert_eq!(punts(&shuntd.status(), "class"), before + 1);
    connection.way(Client).pass(&marked(connection.packet(Client, Tcp::FIN | Tcp::ACK, 0, "")));
    assert!(shuntd.flows().iter().all(|flow| flow.state == FlowState::Retired), "{:#?}", shuntd.flows());
    shuntd.stop();
}
