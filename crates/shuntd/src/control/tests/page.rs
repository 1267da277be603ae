//! The page in a browser: what it shows at the widths of a phone, a tablet and a desktop, what it asks, and what must
//! not happen. `page.cjs` has the requirements; the server is the real one, with a stub of the event loop.

use super::*;
use shunt_api::{Because, DirectionName, Explained, SlowConnection, SlowCount, SlowDirection, Tuple, Why};
use std::{
    env,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
};
use tokio::time::Instant;

const TOKEN: &str = "0123456789abcdef";
/// Packets per second that arrive through each of the first two ports, on the fast path.
const RATE: u64 = 80_000;
const CONNECTIONS: u32 = 500;

/// The status, with counts that grow.
fn growing_status(seconds: f64) -> Status {
    let mut status: Status = serde_json::from_str(include_str!("page/status.json")).unwrap();
    let [fast, slow] = [RATE, RATE / 50].map(|rate| (rate as f64 * seconds) as u64);
    status.ports[0].packets.xdp += fast;
    status.ports[1].packets.tc += fast;
    for port in &mut status.ports[..2] {
        port.packets.slow += slow;
        port.bytes.fast += 1400 * fast;
        port.bytes.slow += 200 * slow;
    }
    status.packets.fast += 2 * fast;
    status.packets.slow += 2 * slow;
    status.bytes.fast += 2 * 1400 * fast;
    status.bytes.slow += 2 * 200 * slow;
    status.top_reasons[2].packets += slow;
    status
}

fn tuple(nth: u32) -> Tuple {
    let client = Ipv4Addr::from(0xc0a8_0102 + nth % 200);
    Tuple { src: client.into(), dst: "203.0.113.7".parse().unwrap(), sport: 40_000 + nth as u16, dport: 443 }
}

fn reversed(tuple: Tuple) -> Tuple {
    Tuple { src: tuple.dst, dst: tuple.src, sport: tuple.dport, dport: tuple.sport }
}

fn connection(nth: u32) -> Connection {
    let orig = tuple(nth);
    let value = json!({
        "family": 4, "proto": if nth.is_multiple_of(5) { "udp" } else { "tcp" }, "orig": orig, "reply": reversed(orig),
        "state": "active", "engine": if nth.is_multiple_of(3) { "tc" } else { "xdp" }, "packets": 1000 * nth, "bytes": 1_200_000_u64 * u64::from(nth),
        "rate_bps": 901_000_000 / (nth + 1), "rate_pps": 80_000 / (nth + 1), "age_s": 100 + nth, "idle_s": 0, "directions": [],
    });
    serde_json::from_value(value).unwrap()
}

fn slow_table() -> SlowTable {
    let count = SlowCount { packets: 900, bytes: 1_000_000, rate_bps: 310_000_000, rate_pps: 410 };
    let orig = Tuple { dport: 1194, ..tuple(600) };
    let connection = SlowConnection {
        family: shunt_api::Family::V4,
        protocol: 17,
        orig,
        reply: reversed(orig),
        state: shunt_api::FlowState::Slow,
        conntrack_state: None,
        count: Some(count),
        age_s: None,
        directions: vec![SlowDirection { dir: DirectionName::Orig, count: Some(count), because: None }],
    };
    SlowTable { counted: true, connections: vec![connection], more: 3 }
}

fn explained() -> Explained {
    let because = Because {
        reason: "egress-filter".to_owned(),
        meaning: "the egress port has TCX programs that are not Shunt's".to_owned(),
        detail: "<img src=x>".to_owned(),
        remedy: "remove them: `bpftool net show dev eth1` lists them".to_owned(),
    };
    let why = Why {
        dir: DirectionName::Orig,
        tuple: tuple(0),
        fast: false,
        idle: None,
        since_s: Some(75),
        engine: None,
        in_port: Some("eth0".to_owned()),
        out_port: Some("eth1".to_owned()),
        because: Some(because),
    };
    Explained { protocol: 6, tracked: true, state: Some("ESTABLISHED".to_owned()), directions: vec![why] }
}

fn candidate() -> Candidate {
    let orig = tuple(0);
    Candidate {
        protocol: 6,
        tuples: [orig, reversed(orig)],
        tracked: None,
        flows: [Vec::new(), Vec::new()],
        expired: [None, None],
        local: false,
        to_group: false,
        devices: Default::default(),
        looks: [None, None],
        silent_hops: [None, None],
        is_forwarding: None,
        tracked_ago_s: None,
    }
}

#[derive(Debug)]
struct SampleFlows;

impl FlowSource for SampleFlows {
    fn sample(&mut self) {}

    fn list(self: Box<Self>) -> Result<Listing, Failure> {
        Ok(Box::new((0..CONNECTIONS).map(|nth| Ok(connection(nth)))))
    }
}

/// Answers what the page asks with a busy router, and everything else as the other tests do.
async fn answer_as_a_router(mut calls: mpsc::Receiver<Call>) {
    let start = Instant::now();
    let (others, rest) = mpsc::channel(4);
    tokio::spawn(answer_calls(rest));
    while let Some(call) = calls.recv().await {
        let _gone = match call {
            Call::Status(reply) => reply.send(growing_status(start.elapsed().as_secs_f64())).is_err(),
            Call::Flows(reply) => reply.send(Box::new(SampleFlows)).is_err(),
            Call::Slow(_, reply) => reply.send(Job::new(|| Ok(Job::new(|| Ok(slow_table()))))).is_err(),
            Call::Explain(_, reply) => reply.send(Ok(vec![explained()])).is_err(),
            Call::Find(_, reply) => reply
                .send(Job::new(|| Ok(Found { candidates: vec![candidate()], ..Found::default() })))
                .is_err(),
            other => others.send(other).await.is_err(),
        };
    }
}

/// Serves the page at an address of its own, for those who have the token, with a report. The page may be called by the
/// name `router.test`, too.
async fn serve_page<F>(answer: impl FnOnce(mpsc::Receiver<Call>) -> F) -> (SocketAddr, TempDir)
where
    F: Future<Output = ()> + Send + 'static,
{
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let config =
        shunt_api::Config { page_token_file: file.display().to_string(), ..shunt_api::Config::default() };
    let access = PageAccess::from_config(&config).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let mut listeners = listeners(&dir.path().join("test.sock"));
    listeners.page = Some((listener, access));
    listeners.hosts = Hosts::new(["router.test".to_owned()], "");
    fs::create_dir(dir.path().join("reports")).unwrap();
    fs::write(dir.path().join("reports/a.html"), include_str!("page/report.html")).unwrap();
    let (calls, asked) = mpsc::channel(4);
    tokio::spawn(serve(listeners, calls));
    tokio::spawn(answer(asked));
    (address, dir)
}

/// The head and the body of the answer to a request.
async fn exchange(address: SocketAddr, request: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let text = format!("{request} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere_and_makes_no_markup_of_texts() {
    let (address, _dir) = serve_page(answer_calls).await;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let mut scripts = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let (head, text) = exchange(address, &format!("GET /page/{name}"), "").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{name}: {head}");
        for header in
            ["default-src 'none'", "base-uri 'none'", "form-action 'none'", "no-referrer", "nosniff"]
        {
            assert!(head.contains(header), "{name}: {header}: {head}");
        }
        for elsewhere in ["https://", "@import", "url("] {
            assert!(!text.contains(elsewhere), "{name}: {elsewhere}");
        }
        // The names of XML namespaces look like addresses.
        assert!(
            text.match_indices("http://").all(|(at, _)| text[at..].starts_with("http://www.w3.org/")),
            "{name}"
        );
        // The script does not make markup of what the daemon answers, such as device names.
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc", "eval(", "new Function"] {
            assert!(!text.contains(sink), "{name}: {sink}");
        }
        let is_script = name.ends_with(".js");
        assert_eq!(head.contains("text/javascript"), is_script, "{name}: {head}");
        assert_eq!(
            head.contains("frame-ancestors 'none'") && head.contains("script-src 'self'"),
            name != "report.html"
        );
        scripts += usize::from(is_script);
    }
    assert!(scripts > 10, "{scripts}");
    let (_, document) = exchange(address, "GET /", "").await;
    let sources = ["src=\"", "href=\""].into_iter().flat_map(|of| document.split(of).skip(1));
    for source in sources {
        assert!(["/page/", "#", "data:,"].iter().any(|own| source.starts_with(own)), "{source}");
    }
    assert!(!document.contains("style=") && document.matches("<script").count() == 1);
}

#[tokio::test]
async fn the_address_of_the_page_serves_what_the_page_reads() {
    let (address, _dir) = serve_page(answer_calls).await;
    let code = async |request: &str, headers: &str| {
        let (head, _) = exchange(address, request, headers).await;
        head.split(' ').nth(1).unwrap().to_owned()
    };
    let right = "authorization: Bearer 0123456789abcdef\r\n";
    for path in [
        "/v1/status",
        "/v1/flows?rate_over_ms=0",
        "/v1/slow?rate_over_ms=0",
        "/v1/why",
        "/v1/reports",
        "/v1/reports/a.html",
    ] {
        let (head, _) = exchange(address, &format!("GET {path}"), right).await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("nosniff"), "{path}: {head}");
        for wrong in ["", "cookie: token=0123456789abcdef\r\n", "authorization: Bearer 0123456789abcdeg\r\n"]
        {
            assert_eq!(code(&format!("GET {path}"), wrong).await, "401", "{path} {wrong}");
        }
    }
    for path in ["/", "/?token=0123456789abcdef", "/page/main.js", "/page/page.css"] {
        assert_eq!(code(&format!("GET {path}"), "").await, "200", "{path}");
    }
    assert_eq!(code("GET /?token=0123456789abcdeg", "").await, "401");
    assert_eq!(code("GET /page/none.js", right).await, "404");
    for foreign in ["origin: http://evil.example", "sec-fetch-site: cross-site", "sec-fetch-site: same-site"]
    {
        for path in ["/", "/page/main.js", "/v1/status"] {
            assert_eq!(code(&format!("GET {path}"), &format!("{right}{foreign}\r\n")).await, "403", "{path}");
        }
    }
    assert_eq!(code("GET /v1/reports/b.html", right).await, "404");
    for path in ["/v1/watch", "/v1/conntrack", "/v1/static", "/metrics"] {
        assert_eq!(code(&format!("GET {path}"), right).await, "404", "{path}");
    }
    for request in ["POST /v1/flush", "POST /v1/reload", "POST /v1/stop", "DELETE /v1/static"] {
        assert_eq!(code(request, right).await, "403", "{request}");
    }
}

/// The programs that drive a browser; None after a message if they are missing.
fn browser() -> Option<(PathBuf, PathBuf)> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let modules = root.join("target/browser/node_modules");
    let programs = ["chromium-headless-shell", "chromium"].map(|name| Path::new("/usr/bin").join(name));
    let program = programs.into_iter().find(|path| path.exists() && modules.exists());
    if program.is_none() {
        let why = "no browser, or no library to drive it; `make browser-test` installs both";
        assert!(
            !env::var("SHUNT_BROWSER_TEST").is_ok_and(|v| v == "1"),
            "SHUNT_BROWSER_TEST=1 forbids skipping: {why}"
        );
        writeln!(io::stderr(), "SKIP the page in a browser: {why}").unwrap();
    }
    Some((program?, modules))
}

#[tokio::test]
async fn a_browser_shows_the_page_to_those_who_may_see_it() {
    let Some((browser, modules)) = browser() else { return };
    let (address, _dir) = serve_page(answer_as_a_router).await;
    let pictures = modules.with_file_name("pictures");
    fs::create_dir_all(&pictures).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/control/tests/page/page.cjs");
    let mut look = Command::new("node");
    look.arg(script)
        .args([address.to_string(), TOKEN.to_owned()])
        .args([browser, pictures])
        .env("NODE_PATH", modules);
    let looked = tokio::task::spawn_blocking(move || look.output().unwrap()).await.unwrap();
    let faults = String::from_utf8_lossy(&looked.stdout);
    assert!(looked.status.success(), "{faults}{}", String::from_utf8_lossy(&looked.stderr));
}
