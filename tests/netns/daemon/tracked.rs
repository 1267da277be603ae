//! `shunt conntrack` prints what `conntrack -L` prints, with true counters.

use serde_json::Value;
use shunt_api::{Counted, Engine, Tracked};
use shunt_testkit::{
    Crossing, ENGINES, Handshake, Shunt, Shuntd, Topology, daemon_with, require_root, rulesets,
    silent_router, wait_for, wait_until,
};
use shunt_wire::Packet;
use std::{net::SocketAddr, rc::Rc, time::Duration};

const AGAIN: Duration = Duration::from_secs(30);

/// A ruleset with a conntrack helper, and with a zone for one port.
const RULES: &str = r#"
table inet filter {
	ct helper ftp-standard { type "ftp" protocol tcp; l3proto inet; };
	chain zones { type filter hook prerouting priority raw; udp dport 5001 ct zone set 9; };
	chain pre { type filter hook prerouting priority filter; tcp dport 21 ct helper set "ftp-standard"; };
	chain forward { type filter hook forward priority filter; tcp dport 21 ct mark set 7; ct state new accept; };
}
"#;

fn list(lab: &Topology, filter: &str) -> Vec<String> {
    lines(&lab.router().run(&format!("conntrack -L {filter} 2>/dev/null")))
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// A line without the two numbers that change with time, the timeout and the age; and these numbers.
fn timeless(line: &str) -> (String, [u64; 2]) {
    let mut times = [0; 2];
    let words = line.split_inclusive(' ').scan(0, |nth, word| {
        let bare = word.trim();
        *nth += usize::from(!bare.is_empty());
        let time = match bare.strip_prefix("delta-time=") {
            Some(age) => age.parse().map(|age| times[1] = age),
            None if *nth == 3 && !bare.is_empty() => bare.parse().map(|left| times[0] = left),
            None => return Some(word),
        };
        Some(if time.is_ok() { "TIME " } else { word })
    });
    (words.collect(), times)
}

/// Asserts that `conntrack -L` and `shunt conntrack` list the same connections, word by word, except for the time.
#[track_caller]
fn same_lists(lab: &Topology, shunt: &Shunt, filter: &str) -> Vec<String> {
    let before = list(lab, filter);
    let ours = lines(&shunt.done(&format!("conntrack {filter}")));
    let after = list(lab, filter);
    assert_eq!((ours.len(), ours.len()), (before.len(), after.len()), "{filter}: {ours:#?} {after:#?}");
    for ((line, before), after) in ours.iter().zip(&before).zip(&after) {
        let [(ours, now), (theirs, first), (later, last)] = [line, before, after].map(|line| timeless(line));
        assert_eq!(ours, theirs, "{filter}");
        assert_eq!(theirs, later, "the table changed between the commands");
        assert!(first[0] >= now[0] && now[0] >= last[0], "{before}\n{line}\n{after}");
        assert!(first[1] <= now[1] && now[1] <= last[1], "{before}\n{line}\n{after}");
    }
    ours
}

#[test]
fn the_table_is_printed_as_conntrack_prints_it() {
    if !require_root() {
        return;
    }
    let lab = silent_router(RULES);
    let shunt = Shunt::on(lab.router());
    let config = shunt.file("shunt.toml", "learn = false\n");
    shunt.done(&format!("up --config {}", config.display()));
    for acct in [0, 1] {
        lab.router().sysctl("netfilter/nf_conntrack_acct", acct);
        lab.router().sysctl("netfilter/nf_conntrack_timestamp", acct);
        lab.router().run("conntrack -F 2>/dev/null");
        let (there, back) =
            (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
        for (at, port) in [(lab.wan().at(21), 4001), (lab.wan().at6(21), 4002), (lab.wan().at(80), 4003)] {
            Handshake::open(&there, &back, &lab.lan().tcp_to(port, at, 0), lab.wan());
        }
        for (at, port) in
            [(lab.wan().at(5000), 4000), (lab.wan().at6(5000), 4000), (lab.wan().at(5001), 4000)]
        {
            there.pass(&lab.lan().udp_to(port, at).payload("udp"));
        }
        for made in [
            "-p udp -s 192.0.2.1 -d 192.0.2.2 --sport 1 --dport 2 -t 900 -u SEEN_REPLY,ASSURED -m 5",
            "-p udp -s 192.0.2.1 -d 192.0.2.2 --sport 1 --dport 3 -t 900 --orig-zone 3",
            "-p tcp -s 2001:db8::1 -d 2001:db8::2 --sport 1 --dport 2 -t 900 --state TIME_WAIT -w 7",
            "-p sctp -s 192.0.2.1 -d 192.0.2.2 --sport 1 --dport 2 -t 900 --state ESTABLISHED --orig-vtag 1 \
             --reply-vtag 2",
            "-p gre -s 192.0.2.1 -d 192.0.2.2 --srckey 1 --dstkey 2 -t 900",
            "-p icmp -s 192.0.2.1 -d 192.0.2.2 --icmp-type 8 --icmp-code 0 --icmp-id 77 -t 900",
            "-p icmpv6 -s 2001:db8::1 -d 2001:db8::2 --icmpv6-type 128 --icmpv6-code 0 --icmpv6-id 77 -t 900",
        ] {
            lab.router().run(&format!("conntrack -I {made} 2>/dev/null"));
        }
        let theirs = same_lists(&lab, &shunt, "");
        let all = theirs.join("\n");
        for part in
            ["icmp ", "icmpv6 ", "[UNREPLIED]", "[ASSURED]", "mark=5", "mark=7", "helper=ftp", "zone=9"]
        {
            assert!(
                all.contains(part),
                "no entry with {part}:
            {all}"
            );
        }
        assert!(theirs.len() >= 10, "{all}");
        assert_eq!(all.contains("packets="), acct == 1, "{all}");
        assert_eq!(all.contains("delta-time="), acct == 1, "{all}");
        let output = shunt.run("conntrack");
        assert_eq!(output.err.contains("net.netfilter.nf_conntrack_acct=1"), acct == 0, "{output:?}");
    }
    for filter in
        ["-p icmp", "-p tcp --dport 21", "-s 192.0.2.1 -p udp", "-p udp -d 198.18.0.2 --sport 4000", "-p 17"]
    {
        assert!(!same_lists(&lab, &shunt, filter).is_empty(), "{filter}");
    }
    shunt.done("down");
}

/// One direction of a connection: what was sent in it and arrived.
struct Line<'c> {
    name: &'static str,
    way: &'c Crossing,
    make: Box<dyn Fn(u32, Vec<u8>) -> Packet + 'c>,
    sent: Counted,
    offset: u32,
    /// Packets that were fast when the counters were compared last.
    fast: u64,
}

impl<'c> Line<'c> {
    fn new(
        name: &'static str,
        way: &'c Crossing,
        sent: Counted,
        make: impl Fn(u32, Vec<u8>) -> Packet + 'c,
    ) -> Self {
        Self { name, way, make: Box::new(make), sent, offset: 0, fast: 0 }
    }

    #[track_caller]
    fn send(&mut self, bytes: usize) {
        let payload: Vec<u8> = (0..bytes).map(|n| (n as u8) ^ (self.offset as u8)).collect();
        let packet = (self.make)(self.offset, payload);
        self.way.pass(&packet);
        self.offset += bytes as u32;
        self.sent = self.sent.plus(on_wire(&packet));
    }
}

fn on_wire(packet: &Packet) -> Counted {
    Counted { packets: 1, bytes: packet.to_bytes().len() as u64 - 14 }
}

/// The ways between two hosts.
struct Ways<'c> {
    lab: &'c Topology,
    there: Crossing,
    back: Crossing,
}

struct Connection<'c> {
    client_port: u16,
    server_port: u16,
    v6: bool,
    /// A connection and its traffic in both directions.
    lines: [Line<'c>; 2],
}

impl<'c> Connection<'c> {
    fn udp(ways: &'c Ways<'c>, v6: bool) -> Self {
        let (client_port, server_port) = (4000, 5000);
        let request = ways.lab.lan().udp_to(client_port, server(ways.lab, v6, server_port));
        let first = request.clone().payload("the first");
        let seen = ways.there.pass(&first).packet().unwrap();
        let reply = ways.lab.wan().answer_to(&seen);
        let lines = [
            Line::new("udp there", &ways.there, on_wire(&first), move |_, data| {
                request.clone().payload(data)
            }),
            Line::new("udp back", &ways.back, Counted::default(), move |_, data| reply.clone().payload(data)),
        ];
        Self { client_port, server_port, v6, lines }
    }

    fn tcp(ways: &'c Ways<'c>, v6: bool) -> Self {
        let (client_port, server_port, wan) = (4100, 80, ways.lab.wan());
        let syn = ways.lab.lan().tcp_to(client_port, server(ways.lab, v6, server_port), 0);
        let opened = Rc::new(Handshake::open(&ways.there, &ways.back, &syn, wan));
        // SYN and ACK in one direction, SYN-ACK in the other, without options and data.
        let bare = |packets| Counted { packets, bytes: packets * if v6 { 60 } else { 40 } };
        let theirs = Rc::clone(&opened);
        let lines = [
            Line::new("tcp there", &ways.there, bare(2), move |offset, data| {
                opened.from_client(&syn, offset, data)
            }),
            Line::new("tcp back", &ways.back, bare(1), move |offset, data| {
                theirs.from_server(wan, offset, data)
            }),
        ];
        Self { client_port, server_port, v6, lines }
    }

    #[track_caller]
    fn send(&mut self, bytes: usize) {
        self.lines.iter_mut().for_each(|line| line.send(bytes));
    }

    /// All packets of the connection and the fast ones among them, by direction.
    fn seen(&self, shuntd: &Shuntd) -> [(Counted, Counted); 2] {
        let (code, text) = shuntd.request("GET", "/v1/conntrack", "").unwrap();
        assert_eq!(code, 200, "{text}");
        let table: Value = serde_json::from_str(&text).unwrap();
        let entries: Vec<Tracked> = serde_json::from_value(table["entries"].clone()).unwrap();
        let ends = (Some(self.client_port), Some(self.server_port));
        let ours = |e: &&Tracked| (e.orig.sport, e.orig.dport) == ends && e.orig.src.is_ipv6() == self.v6;
        let entry = entries.iter().find(ours).unwrap_or_else(|| panic!("{ends:?} is not tracked: {text}"));
        [&entry.orig, &entry.reply].map(|direction| (direction.count.unwrap(), direction.fast))
    }

    /// Whether this number of packets of each direction were fast since the last comparison.
    fn is_fast(&self, shuntd: &Shuntd, packets: u64) -> bool {
        let mut lines = self.lines.iter().zip(self.seen(shuntd));
        lines.all(|(line, (_, fast))| fast.packets >= line.fast + packets)
    }

    /// Asserts that the counters equal the traffic, and that the counts of fast packets do not decrease.
    #[track_caller]
    fn compare(&mut self, shuntd: &Shuntd, when: &str) {
        let seen = self.seen(shuntd);
        for (line, (all, fast)) in self.lines.iter_mut().zip(seen) {
            let what = format!("{}, IPv6 {}, {when}", line.name, self.v6);
            assert_eq!(all, line.sent, "{what}: {fast:?} of it fast: {:#?}", shuntd.flows());
            assert!(fast.packets >= line.fast, "{what}: counts were lost");
            line.fast = fast.packets;
        }
    }
}

fn server(lab: &Topology, v6: bool, port: u16) -> SocketAddr {
    if v6 { lab.wan().at6(port) } else { lab.wan().at(port) }
}

/// Sends over connections of four kinds until both directions of each are fast, and compares.
#[track_caller]
fn fast_and_exact(shuntd: &Shuntd, all: &mut [Connection<'_>], when: &str) {
    let fast = wait_for(AGAIN, || {
        for n in 0..20 {
            all.iter_mut().for_each(|one| one.send(20 + 37 * n % 1200));
        }
        all.iter().all(|one| one.is_fast(shuntd, 20)).then_some(())
    });
    let seen = || all.iter().map(|one| one.seen(shuntd)).collect::<Vec<_>>();
    assert!(fast.is_some(), "{when}: not all connections are fast: {:#?}", seen());
    all.iter_mut().for_each(|one| one.compare(shuntd, when));
}

#[track_caller]
fn idle_out(shuntd: &Shuntd) {
    wait_until("the flow table is empty", || shuntd.flows().is_empty());
}

#[track_caller]
fn exact(engine: Engine) {
    let lab = &silent_router(rulesets::HOME_GATEWAY);
    lab.router().sysctl("netfilter/nf_conntrack_acct", 1);
    let shuntd = daemon_with(lab, engine, "reprove = \"300ms\"\nidle = \"1s\"");
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let ways = Ways { lab, there, back };
    let of_family = |v6| [Connection::udp(&ways, v6), Connection::tcp(&ways, v6)];
    let mut all: Vec<Connection> = [false, true].into_iter().flat_map(of_family).collect();

    fast_and_exact(&shuntd, &mut all, &format!("{engine}, learned"));
    idle_out(&shuntd);
    fast_and_exact(&shuntd, &mut all, &format!("{engine}, after it idled out"));
    shuntd.flush();
    fast_and_exact(&shuntd, &mut all, &format!("{engine}, after a flush"));
    lab.router().run("ip rule add from 203.0.113.9 lookup main");
    fast_and_exact(&shuntd, &mut all, &format!("{engine}, after a change"));
    idle_out(&shuntd);
    all.iter_mut().for_each(|one| one.send(20));
    all.iter_mut().for_each(|one| one.compare(&shuntd, &format!("{engine}, when all is over")));
    shuntd.stop();
}

#[test]
fn counters_of_a_connection_equal_the_bytes_on_the_wire() {
    if !require_root() {
        return;
    }
    ENGINES.into_iter().for_each(exact);
}
