mod page;

use super::{
    admission::PageAccess, page as page_files, socket::bind_at, stored_reports::ReportsDirectory, *,
};
use serde_json::{Value, json};
use shunt_api::FailureCode;
use shunt_bpf::abi::Counters;
use shunt_http::HEADER_TIME;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

const SOON: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct NoFlows;

impl FlowSource for NoFlows {
    fn sample(&mut self) {}

    fn list(self: Box<Self>) -> Result<Listing, Failure> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// A server on a socket of its own, with a stub event loop that answers every call at once.
struct Served {
    path: PathBuf,
    _dir: TempDir,
}

fn status(instance: &str) -> Status {
    Status { version: "1.2.3".to_owned(), instance: instance.to_owned(), ..Status::default() }
}

async fn answer_calls(mut calls: mpsc::Receiver<Call>) {
    while let Some(call) = calls.recv().await {
        // Sending fails if the client has gone away, which does not matter.
        let _gone = match call {
            Call::Status(reply) => reply.send(status("fake")).is_err(),
            Call::Metrics(reply) => {
                let ports =
                    BTreeMap::from([("eth0".to_owned(), Counters { tc_pkts: 5, ..Counters::default() })]);
                reply
                    .send(MetricsSource {
                        status: status("fake"),
                        ports,
                        queues: Vec::new(),
                        hosts: HostTotals::default(),
                        started_at: Duration::from_secs(1),
                    })
                    .is_err()
            }
            Call::Flows(reply) => reply.send(Box::new(NoFlows)).is_err(),
            Call::Slow(_, reply) => {
                reply.send(Job::new(|| Ok(Job::new(|| Ok(SlowTable::default()))))).is_err()
            }
            Call::Find(_, reply) => reply.send(Job::new(|| Ok(Found::default()))).is_err(),
            Call::FindNamed(_, reply) => reply.send(Job::new(|| Ok(Found::default()))).is_err(),
            Call::Explain(_, reply) => reply.send(Ok(Vec::new())).is_err(),
            Call::Conntrack(reply) => {
                let none = || TrackedEntries { counted: true, entries: Box::new(std::iter::empty()) };
                reply.send(Job::new(move || Ok(none()))).is_err()
            }
            Call::History(_, reply) => reply.send(Job::new(|| Ok(HistoryTable::default()))).is_err(),
            Call::Verified(_, reply) => reply.send(()).is_err(),
            Call::MeasurePrograms(reply) => reply.send(()).is_err(),
            Call::Watch(reply) => {
                let (events, watcher) = broadcast::channel(1);
                tokio::spawn(async move { events.closed().await });
                reply.send(Ok(watcher)).is_err()
            }
            Call::Usage(_, reply) => reply.send(Ok(Job::new(|| Ok(Usage::default())))).is_err(),
            Call::Flush(reply) => reply.send(3).is_err(),
            Call::Reload(request, reply) => {
                let answer = Reload { dry_run: request.dry_run, ..Reload::default() };
                let busy = || Failure::new(FailureCode::Busy, "another reload is in progress");
                reply.send((!request.partial).then_some(answer).ok_or_else(busy)).is_err()
            }
            Call::Restart(reply) => reply.send(Ok(Restart::default())).is_err(),
            Call::RestartProgress(reply) => reply.send(Restart::default()).is_err(),
            Call::Stop(reply) => reply.send(()).is_err(),
            Call::AddStatic(table, reply) => {
                let full = || Failure::new(FailureCode::TableFull, "the table is full");
                let count = table.flow.len() as u64;
                reply.send((count < 9).then_some(count).ok_or_else(full)).is_err()
            }
            Call::DelStatic(removal, reply) => reply.send(Ok(removal.flow.len() as u64)).is_err(),
            Call::ListStatic(reply) => reply.send(StaticTable::default()).is_err(),
            Call::AddOff(_, reply) => reply.send(Ok((1, Job::new(|| Ok(()))))).is_err(),
            Call::DelOff(_, reply) => reply.send(Ok((0, Job::new(|| Ok(()))))).is_err(),
            Call::ListOff(reply) => reply.send(Vec::new()).is_err(),
            Call::AddTaps(request, reply) => reply.send(Ok(request.entering.len() as u64)).is_err(),
            Call::DelTaps(reply) => reply.send(0).is_err(),
            Call::Qos(reply) => reply.send(Vec::new()).is_err(),
            Call::SetQos(table, reply) => reply.send(Ok(table.len() as u64)).is_err(),
            Call::DelQos(removal, reply) => reply.send(Ok(removal.ports.len() as u64)).is_err(),
        };
    }
}

fn listeners(path: &Path) -> Listeners {
    Listeners::at(path).unwrap()
}

impl Served {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("test.sock");
        let (calls, asked) = mpsc::channel(4);
        tokio::spawn(serve(listeners(&path), calls));
        tokio::spawn(answer_calls(asked));
        Self { path, _dir: dir }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).await.unwrap()
    }

    /// Sends bytes and returns everything the server sends until it closes the connection.
    async fn exchange(&self, bytes: &[u8]) -> String {
        let (mut read, mut write) = self.connect().await.into_split();
        let sent = async move {
            // The server may close before it has read everything.
            let _ = write.write_all(bytes).await;
            write
        };
        let got = async {
            let mut text = Vec::new();
            let _ = read.read_to_end(&mut text).await;
            text
        };
        let (_write, text) = timeout(SOON, async { tokio::join!(sent, got) }).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    async fn request(&self, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        parts(&self.exchange(text.as_bytes()).await)
    }

    async fn assert_alive(&self) {
        let (code, status) = self.request("GET", "/v1/status", "").await;
        assert_eq!((code, &status["instance"]), (200, &"fake".into()));
    }
}

fn parts(answer: &str) -> (u16, serde_json::Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body) } else { body.to_owned() };
    (code, serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body:?}")))
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return text;
        }
        text.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

fn bad_request_message(answer: &(u16, serde_json::Value), code: u16) -> String {
    assert_eq!((answer.0, &answer.1["error"]["code"]), (code, &"bad-request".into()), "{answer:?}");
    let message = answer.1["error"]["message"].as_str().unwrap();
    assert!(!message.is_empty() && !message.contains('\n'));
    message.to_owned()
}

#[tokio::test]
async fn every_path_is_answered() {
    let served = Served::start();
    served.assert_alive().await;
    assert_eq!(served.request("GET", "/v1/flows", "").await, (200, serde_json::json!([])));
    assert_eq!(served.request("GET", "/v1/flows?rate_over_ms=10", "").await, (200, serde_json::json!([])));
    assert_eq!(served.request("POST", "/v1/flush", "").await, (200, serde_json::json!({"count": 3})));
    let none = serde_json::json!({"route": [], "flow": []});
    assert_eq!(served.request("GET", "/v1/static", "").await, (200, none));
    let (code, count) = served.request("POST", "/v1/static", &flows(2)).await;
    assert_eq!((code, count), (200, serde_json::json!({"count": 2})));
    let (code, count) = served.request("DELETE", "/v1/static", r#"{"all": true}"#).await;
    assert_eq!((code, count), (200, serde_json::json!({"count": 0})));
    assert_eq!(served.request("POST", "/v1/stop", "").await, (200, serde_json::json!({"count": 0})));
}

fn flows(count: u16) -> String {
    let flow = |sport| {
        serde_json::json!({"in_port": "eth0", "proto": "udp", "src": "192.0.2.1", "sport": sport,
            "dst": "192.0.2.2", "dport": 2, "route": {"out_port": "eth1", "dmac": "02:00:00:00:00:01"}})
    };
    serde_json::json!({"flow": (1..=count).map(flow).collect::<Vec<_>>()}).to_string()
}

#[tokio::test]
async fn a_reload_needs_no_body_and_passes_on_what_it_has() {
    let served = Served::start();
    for (body, dry_run) in [("", false), ("{}", false), ("{\"dry_run\":true}", true)] {
        let (code, answer) = served.request("POST", "/v1/reload", body).await;
        assert_eq!((code, &answer["dry_run"]), (200, &serde_json::json!(dry_run)), "{body}");
    }
    let (code, answer) = served.request("POST", "/v1/reload", "{\"partial\":true}").await;
    assert_eq!((code, &answer["error"]["code"]), (409, &serde_json::json!("busy")));
}

#[tokio::test]
async fn a_failure_of_the_event_loop_reaches_the_client() {
    let served = Served::start();
    let (code, body) = served.request("POST", "/v1/static", &flows(9)).await;
    assert_eq!(code, 409);
    assert_eq!(body, serde_json::json!({"error": {"code": "table-full", "message": "the table is full"}}));
}

#[tokio::test]
async fn invalid_http_requests_are_refused_in_json() {
    let served = Served::start();
    for (method, path, body, code, names) in [
        ("GET", "/v1", "", 404, "/v1"),
        ("GET", "/v2/status", "", 404, "/v2/status"),
        ("POST", "/v1/status", "", 405, "POST"),
        ("BREW", "/v1/flows", "", 405, "BREW"),
        ("GET", "/v1/flows?rate_over_ms=x", "", 400, "rate_over_ms"),
        ("GET", "/v1/flows?rate_over_ms=10001", "", 400, "rate_over_ms"),
        ("GET", "/v1/flows?rat=1", "", 400, "rat"),
        ("GET", "/v1/flows?most=0", "", 400, "most: 0 is not within 1 to 10000"),
        ("GET", "/v1/flows?most=10001", "", 400, "most"),
        ("GET", "/v1/slow?most=1", "", 400, "most"),
        ("POST", "/v1/static", "", 400, "EOF"),
        ("POST", "/v1/static", "{", 400, "EOF"),
        ("POST", "/v1/static", "[1]", 400, "line 1"),
        ("POST", "/v1/static", r#"{"flows": []}"#, 400, "flows"),
        ("POST", "/v1/static", "\u{7f}\u{0}", 400, "line 1"),
        ("POST", "/v1/static", r#"{"a\nb": []}"#, 400, r"`a\nb`"),
        (
            "POST",
            "/v1/static",
            r#"{"route":[{"name":"","out_port":"a","dmac":"02:00:00:00:00:01"}]}"#,
            400,
            "name",
        ),
        ("DELETE", "/v1/static", r#"{"all": 3}"#, 400, "boolean"),
        ("POST", "/v1/qos", r#"{"wan0": {"rate": "1"}}"#, 400, "qos.wan0: rate: expected 8k or more"),
        ("POST", "/v1/qos", r#"{"wan0": {"rat": 1}}"#, 400, "rat"),
        ("DELETE", "/v1/qos", r#"{"port": []}"#, 400, "port"),
        ("POST", "/v1/reload", r#"{"dry": true}"#, 400, "dry"),
        ("GET", "/v1/reload", "", 405, "GET"),
    ] {
        let message = bad_request_message(&served.request(method, path, body).await, code);
        assert!(message.contains(names), "{method} {path} {body}: {message}");
    }
    served.assert_alive().await;
}

#[tokio::test]
async fn bytes_that_are_not_http_are_refused_in_json() {
    let served = Served::start();
    for bytes in [
        &b"\x00\x01\x02\xff\xfe\r\n\r\n"[..],
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/status HTTP/9.9\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nno colon here\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/static HTTP/1.1\r\ncontent-length: minus one\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello",
    ] {
        bad_request_message(&parts(&served.exchange(bytes).await), 400);
    }
    served.assert_alive().await;
}

#[tokio::test]
async fn random_bytes_never_stop_the_server() {
    let served = Served::start();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    println!("seed {state:#x}");
    for _ in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        let mut client = served.connect().await;
        let _ = client.write_all(&bytes).await;
    }
    served.assert_alive().await;
}

#[tokio::test]
async fn endless_headers_are_refused() {
    let served = Served::start();
    let mut text = b"GET /v1/status HTTP/1.1\r\n".to_vec();
    for _ in 0..10_000 {
        text.extend_from_slice(b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n");
    }
    bad_request_message(&parts(&served.exchange(&text).await), 431);
    served.assert_alive().await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let served = Served::start();
    let head = "POST /v1/static HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let announced = format!("{head}content-length: 99999999\r\n\r\n");
    bad_request_message(&parts(&served.exchange(announced.as_bytes()).await), 413);
    let chunk = format!("100000\r\n{}\r\n", "[".repeat(0x10_0000));
    let unannounced = format!("{head}transfer-encoding: chunked\r\n\r\n{}", chunk.repeat(5));
    bad_request_message(&parts(&served.exchange(unannounced.as_bytes()).await), 400);
    let deep = "[".repeat(1_000_000);
    bad_request_message(&served.request("POST", "/v1/static", &deep).await, 400);
    served.assert_alive().await;
}

#[tokio::test]
async fn an_incomplete_body_times_out_with_an_answer_in_json() {
    let served = Served::start();
    let half = "POST /v1/static HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"flow\":";
    bad_request_message(&parts(&served.exchange(half.as_bytes()).await), 408);
    served.assert_alive().await;
}

#[tokio::test]
async fn an_incomplete_request_times_out_with_an_answer_in_json() {
    let served = Served::start();
    let started = std::time::Instant::now();
    bad_request_message(&parts(&served.exchange(b"GET /v1/sta").await), 408);
    assert!(started.elapsed() < HEADER_TIME + LINGER + Duration::from_secs(2));
}

#[tokio::test]
async fn a_daemon_that_shuts_down_answers_the_stop_and_fails_other_requests() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("end.sock");
    let (calls, mut asked) = mpsc::channel(4);
    let serving = tokio::spawn(serve(listeners(&path), calls));
    let served = Served { path, _dir: dir };
    let end = async {
        let Some(Call::Stop(reply)) = asked.recv().await else { panic!("no stop was requested") };
        // The call of another client, which comes before the loop ends, is never answered.
        let late = served.request("GET", "/v1/status", "");
        let last = async {
            let Some(Call::Status(unanswered)) = asked.recv().await else {
                panic!("no status was requested")
            };
            drop(unanswered);
            reply.send(()).unwrap();
            drop(asked);
        };
        tokio::join!(late, last).0
    };
    let (stopped, late) = tokio::join!(served.request("POST", "/v1/stop", ""), end);
    assert_eq!(stopped.0, 200);
    assert_eq!((late.0, &late.1["error"]["code"]), (500, &"internal".into()));
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn only_the_owner_can_use_the_socket() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("new/run/x.sock");
    let _listener = bind_at(&path, None).unwrap().unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o755);
    let left: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["x.sock"]);
}

#[tokio::test]
async fn a_socket_with_a_listener_is_kept_and_a_dead_one_is_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.sock");
    let first = bind_at(&path, None).unwrap().unwrap();
    assert!(bind_at(&path, None).unwrap().is_none());
    drop(first);
    assert!(path.exists());
    let second = bind_at(&path, None).unwrap();
    assert!(second.is_some());
    assert!(bind_at(&path, None).unwrap().is_none());
}

#[tokio::test]
async fn a_daemon_that_hangs_keeps_its_socket() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.sock");
    let _never_accepts = bind_at(&path, None).unwrap().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..2000 {
        assert!(bind_at(&path, None).unwrap().is_none());
        match UnixStream::connect(&path).await {
            Ok(client) => waiting.push(client),
            Err(_) => break,
        }
    }
    assert!(waiting.len() < 2000, "the backlog never filled");
    assert!(bind_at(&path, None).unwrap().is_none());
}

#[tokio::test]
async fn a_file_at_the_path_of_the_socket_is_kept() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.sock");
    fs::write(&path, "precious").unwrap();
    let error = bind_at(&path, None).unwrap_err();
    assert!(error.to_string().contains("not a socket"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn curl_can_use_the_socket() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("SKIP curl_can_use_the_socket: curl is not installed");
        return;
    }
    let served = Served::start();
    const JSON: &str = "Content-Type: application/json";
    let path = served.path.clone();
    let curl = move |args: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "10", "--unix-socket"]).arg(&path).args(args);
        serde_json::from_slice::<serde_json::Value>(&curl.output().unwrap().stdout).unwrap()
    };
    let requests = tokio::task::spawn_blocking(move || {
        assert_eq!(curl(&["http://localhost/v1/status"])["version"], "1.2.3");
        assert_eq!(curl(&["-H", JSON, "-X", "POST", "http://localhost/v1/flush"])["count"], 3);
        assert_eq!(curl(&["-H", JSON, "-d", &flows(4), "http://localhost/v1/static"])["count"], 4);
        // What a page can send: the message says what to add.
        let refused = curl(&["-d", &flows(4), "http://localhost/v1/static"]);
        assert!(refused["error"]["message"].as_str().unwrap().contains(JSON), "{refused}");
        assert_eq!(curl(&["http://localhost/nowhere"])["error"]["code"], "bad-request");
    });
    requests.await.unwrap();
}

#[test]
fn the_description_is_openapi_3_1_and_names_only_schemas_that_it_has() {
    fn references<'d>(value: &'d Value, found: &mut Vec<&'d str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = serde_json::to_value(openapi_document()).unwrap();
    assert_eq!((&document["openapi"], &document["info"]["title"]), (&json!("3.1.0"), &json!("shuntd")));
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference}"));
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_path_that_is_served_is_described() {
    let (calls, _asked) = mpsc::channel(1);
    // The files of the page, and the paths of axum's fallback handlers.
    const OTHERS: [&str; 3] = [page_files::DOCUMENT, page_files::FILES, "/{*__private__axum_fallback}"];
    // The router has no list of its paths except in its Debug output.
    let shown = format!("{:?}", routes::router(calls, ReportsDirectory::default()));
    let answered: BTreeSet<&str> =
        shown.split('"').filter(|word| word.starts_with('/') && !OTHERS.contains(word)).collect();
    let document = openapi_document();
    let described: BTreeSet<&str> = document.paths.paths.keys().map(String::as_str).collect();
    assert!(described.contains("/v1/status"));
    assert_eq!(answered, described);
}

#[tokio::test]
async fn mutated_requests_are_answered_or_refused_and_never_stop_the_server() {
    let served = Served::start();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    println!("seed {state:#x}");
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let good = [
        "GET /v1/flows?rate_over_ms=0 HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /v1/status HTTP/1.0\r\nhost: localhost\r\naccept: */*\r\n\r\n".to_owned(),
        format!("POST /v1/static HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}", flows(2).len(), flows(2)),
        "DELETE /v1/static HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nd\r\n{\"all\": true}\r\n0\r\n\r\n"
            .to_owned(),
    ];
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..2000 {
        let mut bytes = good[random(good.len())].clone().into_bytes();
        for _ in 0..random(4) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b" \r\n:;%\0\xff"[random(8)]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let (mut read, mut write) = served.connect().await.into_split();
        let _ = write.write_all(&bytes).await;
        // The closed half tells the server that the request is complete.
        drop(write);
        let mut text = Vec::new();
        let _ = timeout(SOON, read.read_to_end(&mut text)).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        match text.get(9..10) {
            Some("2") => answered += 1,
            Some("4") => refused += 1,
            // The request was cut short, so there is no answer.
            None => {}
            other => panic!("{other:?} for {:?}: {text}", String::from_utf8_lossy(&bytes)),
        }
    }
    assert!(answered > 100 && refused > 100, "{answered} answered, {refused} refused");
    served.assert_alive().await;
}
