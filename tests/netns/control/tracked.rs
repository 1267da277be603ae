//! `shunt conntrack` prints what `conntrack -L` prints, with true counters.

use crate::{ENGINES, daemon_with, silent};
use serde_json::Value;
use shunt_api::{Counted, Engine, Tracked};
use shunt_testkit::{
    Crossing, Handshake, Shunt, Shuntd, Topology, require_root, rulesets, wait_for, wait_until,
};
use shunt_wire::Packet;
use std::time::Duration;

const AGAIN: Duration = Duration::from_secs(30);

/// With a helper, and a zone of its own for one port.
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

/// A line without the two words that change with time: how long until it is forgotten, and since when it is there.
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

/// Their list and ours are of the same connections, word by word. Time goes on between them.
#[track_caller]
fn same_lists(lab: &Topology, shunt: &Shunt, filter: &str) -> Vec<String> {
    let before = list(lab, filter);
    let ours = lines(&shunt.done(&format!("conntrack {filter}")));
    let after = list(lab, filter);
    assert_eq!((ours.len(), ours.len()), (before.len(), after.len()), "{filter}: {ours:#?} {after:#?}");
    for ((line, before), after) in ours.iter().zip(&before).zip(&after) {
        let [(ours, now), (theirs, first), (later, last)] = [line, before, after].map(|line| timeless(line));
        assert_eq!(ours, theirs, "{filter}");
        assert_eq!(theirs, later, "the table changes");
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
    let lab = silent(Topology::two_hosts_and_a_router(), RULES);
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
            assert!(all.contains(part), "nothing with {part}:\n{all}");
        }
        assert!(theirs.len() >= 10, "{all}");
        assert_eq!(all.contains("packets="), acct == 1, "{all}");
        assert_eq!(all.contains("delta-time="), acct == 1, "{all}");
        let said = shunt.run("conntrack");
        assert_eq!(said.err.contains("net.netfilter.nf_conntrack_acct=1"), acct == 0, "{said:?}");
    }
    for filter in
        ["-p icmp", "-p tcp --dport 21", "-s 192.0.2.1 -p udp", "-p udp -d 198.18.0.2 --sport 4000", "-p 17"]
    {
        assert!(!same_lists(&lab, &shunt, filter).is_empty(), "{filter}");
    }
    shunt.done("down");
}

/// One direction, and what was sent in it and arrived.
struct Line<'c> {
    name: &'static str,
    way: &'c Crossing,
    make: Box<dyn Fn(u32, Vec<u8>) -> Packet + 'c>,
    sent: Counted,
    offset: u32,
}

impl Line<'_> {
    #[track_caller]
    fn send(&mut self, bytes: usize) {
        let payload: Vec<u8> = (0..bytes).map(|n| (n as u8) ^ (self.offset as u8)).collect();
        let packet = (self.make)(self.offset, payload);
        self.way.pass(&packet);
        self.offset += bytes as u32;
        self.count(&packet);
    }

    fn count(&mut self, packet: &Packet) {
        let bytes = packet.to_bytes().len() as u64 - 14;
        self.sent = self.sent.plus(Counted { packets: 1, bytes });
    }
}

/// Those of a connection: as the client sends, and as the server answers.
struct Ends {
    lan: u16,
    wan: u16,
}

type Lines<'c> = Vec<(Ends, bool, [Line<'c>; 2])>;

fn counts(shuntd: &Shuntd, ends: &Ends, v6: bool) -> [(Counted, Counted); 2] {
    let (code, text) = shuntd.request("GET", "/v1/conntrack", "").unwrap();
    assert_eq!(code, 200, "{text}");
    let table: Value = serde_json::from_str(&text).unwrap();
    let entries: Vec<Tracked> = serde_json::from_value(table["entries"].clone()).unwrap();
    let ours = |e: &&Tracked| {
        e.orig.sport == Some(ends.lan) && e.orig.dport == Some(ends.wan) && e.orig.src.is_ipv6() == v6
    };
    let entry = entries.iter().find(ours).unwrap_or_else(|| panic!("{} is not tracked: {text}", ends.lan));
    [&entry.orig, &entry.reply].map(|direction| (direction.count.unwrap(), direction.fast))
}

/// Of the four kinds of connections, both directions.
#[track_caller]
fn exact(engine: Engine) {
    let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
    lab.router().sysctl("netfilter/nf_conntrack_acct", 1);
    let shuntd = daemon_with(&lab, engine, "reprove = \"300ms\"\nidle = \"1s\"");
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let mut lines: Lines = Vec::new();
    for v6 in [false, true] {
        let at = |port| if v6 { lab.wan().at6(port) } else { lab.wan().at(port) };
        let request = lab.lan().udp_to(4000, at(5000));
        let first = request.clone().payload("the first");
        let seen = there.pass(&first).packet().unwrap();
        let reply = lab.wan().answer_to(&seen);
        let mut up = Line {
            name: "udp there",
            way: &there,
            make: Box::new(move |_, data| request.clone().payload(data)),
            sent: Counted::default(),
            offset: 0,
        };
        up.count(&first);
        let down = Line {
            name: "udp back",
            way: &back,
            make: Box::new(move |_, data| reply.clone().payload(data)),
            sent: Counted::default(),
            offset: 0,
        };
        lines.push((Ends { lan: 4000, wan: 5000 }, v6, [up, down]));

        let syn = lab.lan().tcp_to(4100, at(80), 0);
        let opened = std::rc::Rc::new(Handshake::open(&there, &back, &syn, lab.wan()));
        // SYN and ACK one way, SYN with ACK the other: none has options or data.
        let bare = |packets| {
            let header = if v6 { 60 } else { 40 };
            Counted { packets, bytes: packets * header }
        };
        let (theirs, server) = (std::rc::Rc::clone(&opened), lab.wan());
        let up = Line {
            name: "tcp there",
            way: &there,
            make: Box::new(move |offset, data| opened.from_client(&syn, offset, data)),
            sent: bare(2),
            offset: 0,
        };
        let down = Line {
            name: "tcp back",
            way: &back,
            make: Box::new(move |offset, data| theirs.from_server(server, offset, data)),
            sent: bare(1),
            offset: 0,
        };
        lines.push((Ends { lan: 4100, wan: 80 }, v6, [up, down]));
    }
    let mut fast = [[0; 2]; 4];
    for phase in ["learned", "after it idled out", "after a flush", "after a change", "when all is over"] {
        match phase {
            "learned" => {}
            "after a flush" => drop(shuntd.flush()),
            "after a change" => drop(lab.router().run("ip route add blackhole 203.0.113.0/24")),
            _ => wait_until("no flow is left", || shuntd.flows().is_empty()),
        }
        let more = if phase == "when all is over" { 0 } else { 20 };
        let seen =
            |lines: &Lines| lines.iter().map(|(ends, v6, _)| counts(&shuntd, ends, *v6)).collect::<Vec<_>>();
        let enough = |seen: &[[(Counted, Counted); 2]], fast: &[[u64; 2]; 4]| {
            let pairs = seen.iter().flatten().zip(fast.iter().flatten());
            pairs.into_iter().all(|((_, passed), before)| passed.packets >= before + more)
        };
        let done = wait_for(AGAIN, || {
            for n in 0..20 {
                for (_, _, pair) in &mut lines {
                    pair.iter_mut().for_each(|line| line.send(20 + 37 * n % 1200));
                }
                if more == 0 {
                    return Some(());
                }
            }
            enough(&seen(&lines), &fast).then_some(())
        });
        let seen = seen(&lines);
        assert!(done.is_some(), "{engine}, {phase}: not all are fast: {seen:#?}");
        for ((_, v6, pair), (seen, fast)) in lines.iter().zip(seen.iter().zip(&mut fast)) {
            for ((line, (count, passed)), before) in pair.iter().zip(seen).zip(fast) {
                let what = format!("{engine}, {}, IPv6 {v6}, {phase}", line.name);
                assert_eq!(*count, line.sent, "{what}: {passed:?} of it fast: {:#?}", shuntd.flows());
                assert!(passed.packets >= *before, "{what}: counts are forgotten");
                *before = passed.packets;
            }
        }
    }
    shuntd.stop();
}

#[test]
fn what_was_on_the_wire_is_counted_exactly() {
    if !require_root() {
        return;
    }
    ENGINES.into_iter().for_each(exact);
}
