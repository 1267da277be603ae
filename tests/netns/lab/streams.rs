//! Several streams at once: each has what happened to its own packets, and a script controls them.

use crate::gen_command::{Bench, NICS, bench, doubts, json};
use serde_json::{Value, json};
use shunt_lab::Results;
use shunt_testkit::{Shunt, require_root, tree::root, wait_until};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

fn stream<'r>(report: &'r Value, name: &str) -> &'r Value {
    let found = report["streams"].as_array().unwrap().iter().find(|stream| stream["name"] == name);
    found.unwrap_or_else(|| panic!("no stream {name}: {report:#}"))
}

fn number(stream: &Value, name: &str) -> u64 {
    stream[name].as_u64().unwrap_or_else(|| panic!("no {name}: {stream:#}"))
}

/// Packets that the rule of the router with this comment has matched.
fn matched(bench: &Bench, comment: &str) -> u64 {
    let rules: Value = serde_json::from_str(&bench.router.run("nft -j list table inet f")).unwrap();
    let all = rules["nftables"].as_array().unwrap();
    let rule = all.iter().find(|one| one["rule"]["comment"] == comment).unwrap();
    let counter = rule["rule"]["expr"].as_array().unwrap().iter().find_map(|e| e.get("counter"));
    counter.unwrap()["packets"].as_u64().unwrap()
}

/// Three streams: the router counts the packets of the first by their DSCP and drops every eighth of the second; the
/// third waits in a queue of ten packets for a class of 1 Mbit/s. Each has a number of packets, which a busy machine
/// sends later.
const STREAMS: &str = r#"
[[stream]]
name = "plain"
rate = "2kpps"
count = 2000
warm-up = "200ms"
dport = "5001"
sport = "1000-1009"
dscp = 46

[[stream]]
name = "lossy"
rate = "500pps"
count = 500
warm-up = "200ms"
size = "70:7,570:4,1518:1"
dport = "5002"
tcp = true

[[stream]]
name = "slow"
rate = "2kpps"
count = 1000
warm-up = "0s"
size = 1004
dport = "5003"
"#;

/// Packets that the queue of the slow class has dropped.
fn queue_drops(bench: &Bench) -> u64 {
    let all: Value = serde_json::from_str(&bench.router.run("tc -s -j qdisc show dev p1")).unwrap();
    let pfifo = all.as_array().unwrap().iter().find(|qdisc| qdisc["kind"] == "pfifo").unwrap();
    number(pfifo, "drops")
}

fn prepare(bench: &Bench) {
    bench.router.nft(
        "table inet f { chain c { type filter hook forward priority 0; \
         udp dport 5001 ip dscp ef counter comment \"plain\"; \
         tcp dport 5002 ip id & 7 == 3 counter drop comment \"lossy\"; \
         udp dport 5003 meta priority set 1:10 counter comment \"slow\"; }; }",
    );
    bench.router.run("tc qdisc add dev p1 root handle 1: htb");
    bench.router.run("tc class add dev p1 parent 1: classid 1:10 htb rate 1mbit burst 1000 cburst 1000");
    bench.router.run("tc qdisc add dev p1 parent 1:10 pfifo limit 10");
}

#[test]
fn each_stream_has_the_loss_and_the_latency_of_its_own_packets() {
    if !require_root() {
        return;
    }
    let bench = bench();
    prepare(&bench);
    let file = bench.shunt.file("s.toml", STREAMS);
    let kept = bench.shunt.directory().join("kept.json");
    for sender in ["xdp", "socket"] {
        let before = ["plain", "lossy", "slow"].map(|name| matched(&bench, name));
        let before_queue = queue_drops(&bench);
        let report = json(&bench.shunt.run(&format!(
            "gen {NICS} --sender {sender} --streams {} --keep {}",
            file.display(),
            kept.display()
        )));
        let seen = ["plain", "lossy", "slow"].map(|name| matched(&bench, name));
        let [plain, lossy, slow] = ["plain", "lossy", "slow"].map(|name| stream(&report, name));
        let warm_up = |stream: &Value| number(stream, "warm_up_sent");
        assert_eq!([plain, lossy, slow].map(|one| number(one, "sent")), [2000, 500, 1000]);
        assert!(warm_up(plain) <= 400 && warm_up(lossy) <= 100 && warm_up(slow) == 0, "{report:#}");
        // The router counts the packets of the warm-up, too. It drops the third of each eight identifications, which
        // count from 1.
        let warm_up_lost = (warm_up(lossy) + 5) / 8;
        let expected = [2000 + warm_up(plain), number(lossy, "lost") + warm_up_lost, 1000];
        assert_eq!([0, 1, 2].map(|nth| seen[nth] - before[nth]), expected, "{report:#}");
        assert_eq!(expected[1], (500 + warm_up(lossy) + 5) / 8);
        for one in [plain, lossy, slow] {
            assert_eq!((number(one, "duplicated"), number(one, "reordered")), (0, 0), "{one:#}");
            assert_eq!(number(one, "sent") - number(one, "lost"), number(one, "received"));
            assert_eq!(one["latency_ns"]["count"], one["received"], "{one:#}");
        }
        assert_eq!((number(plain, "lost"), number(plain, "flows")), (0, 10));
        assert_eq!(number(slow, "lost"), queue_drops(&bench) - before_queue, "{slow:#}");
        // 10 packets of 1000 bytes at 1 Mbit/s take 80 ms.
        let latency = |stream: &Value, of: &str| stream["latency_us"][of].as_f64().unwrap();
        assert!(latency(slow, "p99") > 60e3 && number(slow, "lost") > 100, "{slow:#}");
        assert!(latency(plain, "p50") < 40e3 && latency(lossy, "p50") < 40e3, "{plain:#} {lossy:#}");
        assert_eq!(number(&report, "sent"), 3500);
        assert_eq!(doubts(&report).contains(&"socket-sender"), sender == "socket");
    }
    let results = Results::read(&kept).unwrap();
    assert!(results.complete);
    for name in
        ["offered slow", "sent slow", "loss slow", "latency p99 slow", "received plain", "reordering lossy"]
    {
        assert_eq!(results.readings[name].runs.len(), 2, "{name}");
    }
    // The devices have their old settings.
    assert!(!bench.host.run("ip -details link show").contains("xdp"));
}

#[test]
fn streams_of_both_directions_and_of_several_cpus_pass_a_router_of_the_lab() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let file = bench.shunt.file(
        "s.toml",
        "[common]\ncount = 300\nrate = \"3kpps\"\nwarm-up = \"0s\"\n\
         [[stream]]\nname = \"a\"\nipv6 = true\ntcp = true\nsize = 128\n\
         [[stream]]\nname = \"b\"\nreverse = true\nsize = 1518\nsport = \"10-12\"\n\
         [[stream]]\nname = \"c\"\nsize = 64\nburst = 4\ndelay = \"50ms\"\n\
         [[stream]]\nname = \"d\"\nsize = 200\nramp-from = \"500pps\"\nramp-time = \"100ms\"\ntime = \"1m\"\n",
    );
    let report = json(&bench.shunt.run(&format!("gen --json --cpus 2 --streams {}", file.display())));
    for (name, from, to, flows) in [
        ("a", "lan0", "wan0", 1),
        ("b", "wan0", "lan0", 3),
        ("c", "lan0", "wan0", 1),
        ("d", "lan0", "wan0", 1),
    ] {
        let one = stream(&report, name);
        assert_eq!((one["from"].as_str(), one["to"].as_str()), (Some(from), Some(to)));
        let counts =
            ["sent", "received", "lost", "duplicated", "reordered", "flows"].map(|of| number(one, of));
        assert_eq!(counts, [300, 300, 0, 0, 0, flows], "{one:#}");
    }
    let text = bench.shunt.done(&format!("gen --streams {}", file.display()));
    let table =
        text.lines().filter(|line| ["a ", "b ", "all ", "stream "].iter().any(|at| line.starts_with(at)));
    assert!(table.clone().count() == 6 && table.clone().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn impossible_streams_are_refused_in_one_line() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let one = |keys: &str| format!("[[stream]]\nname = \"a\"\n{keys}\n");
    for (text, code, why) in [
        (one("rate = \"50%\""), 2, "stream `a`: 50% of a link of unknown speed: set --speed"),
        (one("ipv6 = true"), 2, "stream `a`: t0: the device has no IPv6 address"),
        (one("tcp = true\nsize = 64"), 18, "stream 1 (`a`): size: IPv4/TCP: a frame of 64 bytes has no room"),
        (one("ramp-from = \"1pps\"\nramp-time = \"3s\""), 2, "stream `a`: a ramp of 3s does not fit into 2s"),
        (one("rate = \"max\"\nramp-from = \"1pps\"\nramp-time = \"1s\""), 2, "a ramp needs two rates"),
        (one("flows = 5"), 2, "stream `a`: 5 flows, but only 1 combinations"),
        (one("") + &one(""), 2, "stream `a`: the name occurs twice"),
        (one("size = 9018"), 2, "t0: the MTU is 1500, but packets have 9000 bytes"),
        ("[[stream]]\nname = \"a b\"".to_owned(), 2, "`a b`: the name of a stream has 1 to 16 letters"),
        ("[[stream]]\nname = 7\nrate = true".to_owned(), 18, "s.toml: stream 1: rate: expected a value"),
        (String::new(), 18, "s.toml: no stream; add one as [[stream]]"),
    ] {
        let file = bench.shunt.file("s.toml", &text);
        let output = bench.shunt.run(&format!("gen --tx t0 --rx t1 --streams {}", file.display()));
        assert_eq!(output.code, Some(code), "{text}: {}{}", output.err, output.out);
        assert!(output.err.contains(why), "{text}: {}", output.err);
        assert_eq!(output.err.lines().count(), 1, "{text}: {}", output.err);
    }
    let output = bench.shunt.run("gen --tx t0 --rx t1 --streams nosuch.toml");
    assert_eq!((output.code, output.err.lines().count()), (Some(18), 1), "{}", output.err);
}

/// `shunt gen --script -`, and its two pipes.
struct Session {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Session {
    fn start(bench: &Bench, words: &str) -> Self {
        let mut command = bench.host.command(&Shunt::program());
        command.args("gen --script -".split(' ')).args(words.split_whitespace());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { requests: child.stdin.take(), answers, child }
    }

    fn ask(&mut self, request: &str) -> Value {
        writeln!(self.requests.as_mut().unwrap(), "{request}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{request}: {e}: {answer}"))
    }

    fn done(&mut self, request: &str) -> Value {
        let answer = self.ask(request);
        assert_eq!(answer["ok"], true, "{request}: {answer}");
        answer
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_script_starts_changes_and_stops_streams() {
    if !require_root() {
        return;
    }
    let bench = bench();
    for sender in ["xdp", "socket"] {
        let words =
            format!("--tx t0 --rx t1 --gateway 192.0.2.1 --rx-gateway 198.51.100.1 --sender {sender}");
        let mut session = Session::start(&bench, &words);
        let started = session.done(
            r#"{"id": "x", "request": "start", "streams": [{"name": "a", "rate": "1kpps", "sport": "1-4"}, {"name": "b", "rate": "100pps", "reverse": true}]}"#,
        );
        assert_eq!(started, json!({"id": "x", "ok": true, "started": ["a", "b"]}));
        let counted = |session: &mut Session, name: &str| {
            let answer = session.done(&format!(r#"{{"request": "counters", "stream": "{name}"}}"#));
            answer["streams"][0].clone()
        };
        wait_until("both send", || {
            number(&counted(&mut session, "a"), "received") > 20
                && number(&counted(&mut session, "b"), "received") > 2
        });
        // A wrong request is answered, and changes nothing.
        for (request, why) in [
            ("nonsense", "not a JSON object on one line"),
            (r#"{"request": "rate", "stream": "c", "rate": "1pps"}"#, "no stream `c`: there are a, b"),
            (r#"{"request": "rate", "stream": "a", "rate": "quick"}"#, "rate: `quick` is not a rate"),
            (
                r#"{"request": "start", "streams": [{"name": "c"}, {"name": "a"}]}"#,
                "stream `a` is running; stop it first",
            ),
            (r#"{"request": "start", "streams": [{"name": "c", "size": 9018}]}"#, "stream `c`: "),
            (r#"{"request": "stop", "stream": "c"}"#, "no stream `c`"),
            (r#"{"request": "wait"}"#, "stream `a` has no end: give `time`, or stop it"),
        ] {
            let answer = session.ask(request);
            assert!(
                answer["error"]["message"].as_str().is_some_and(|said| said.contains(why)),
                "{request}: {answer}"
            );
            assert_eq!(
                (&answer["ok"], &answer["error"]["code"]),
                (&false.into(), &"usage".into()),
                "{answer}"
            );
        }
        // At one packet an hour nothing is sent any more, except for the first packet of that rate.
        session.done(r#"{"request": "rate", "stream": "a", "rate": "0.001pps"}"#);
        let mut before = 0;
        wait_until("nothing is sent any more", || {
            session.done(r#"{"request": "wait", "time": "50ms"}"#);
            let sent = number(&counted(&mut session, "a"), "sent");
            std::mem::replace(&mut before, sent) == sent
        });
        // A faster rate does not wait for the packet that was due in a quarter of an hour.
        session.done(r#"{"request": "rate", "stream": "a", "rate": "2kpps", "ramp-time": "50ms"}"#);
        wait_until("it sends again", || number(&counted(&mut session, "a"), "received") > before + 100);
        let last = session.done(r#"{"request": "stop", "stream": "a"}"#)["streams"][0].clone();
        let counts = ["lost", "duplicated", "reordered", "flows"].map(|of| number(&last, of));
        assert_eq!((counts, &last["running"]), ([0, 0, 0, 4], &false.into()), "{last:#}");
        // The name is free, and its counters start again.
        session.done(r#"{"request": "start", "streams": [{"name": "a", "count": 5, "rate": "1kpps"}]}"#);
        let back = session.done(r#"{"request": "stop", "stream": "b"}"#);
        assert_eq!(number(stream(&back, "b"), "lost"), 0, "{back:#}");
        session.done(r#"{"request": "wait"}"#);
        assert_eq!(counted(&mut session, "a")["running"], false);
        let rest = session.done(r#"{"request": "stop"}"#);
        let again = stream(&rest, "a");
        assert_eq!(["sent", "received", "lost"].map(|of| number(again, of)), [5, 5, 0], "{again:#}");
        assert_eq!(session.done(r#"{"request": "counters"}"#)["streams"], json!([]));
        // The end of standard input ends the session, and what still runs.
        session.done(r#"{"request": "start", "streams": [{"name": "z"}]}"#);
        drop(session.requests.take());
        assert!(session.child.wait().unwrap().success());
        assert!(!bench.host.run("ip -details link show").contains("xdp"));
    }
}

/// The program of the guide, on devices of the test.
#[test]
fn the_python_program_of_the_guide_runs() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let guide = fs::read_to_string(root().join("docs/guide/streams.md")).unwrap();
    let program = guide.split_once("```python\n").unwrap().1.split_once("```").unwrap().0;
    let program = program
        .replace("\"shunt\", \"gen\"", &format!("\"{}\", \"gen\"", Shunt::program()))
        .replace("eth1", "t0")
        .replace("eth2", "t1");
    let file = bench.shunt.file("guide.py", &program);
    let output = bench.host.run(&format!("python3 {}", file.display()));
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines.len() == 5 && lines[0].starts_with("load 5kpps: voice p99 "), "{output}");
    assert!(lines[3].starts_with("voice: ") && lines[3].ends_with(" sent, 0 lost"), "{output}");
    // The example of a file is one.
    let example = guide.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let example = example.replace("[100]", "[]").replace("10s", "100ms").replace("5s", "50ms");
    let file = bench.shunt.file("guide.toml", &example);
    let report = json(&bench.shunt.run(&format!("gen {NICS} --streams {}", file.display())));
    assert_eq!(report["streams"].as_array().unwrap().len(), 3);
}
