use super::*;
use crate::client::agent::{AgentUse, RemoteAgent};
use nix::{sched::sched_getaffinity, unistd::Pid};
use serde_json::Value;
use shunt_lab::dut::DutAgent;
use std::{
    io::{Read, Write},
    net::{self, TcpStream},
    thread,
    time::Instant,
};

const TOKEN: &str = "0123456789abcdef";
const SOON: Duration = Duration::from_secs(2);

fn token(text: &str) -> Token {
    Token::parse(text, "test").unwrap()
}

/// Starts an agent on its own thread, which measures one CPU, and returns its address.
fn start_agent() -> SocketAddr {
    let affinity = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpu = (0..1024).rev().find(|cpu| affinity.is_set(*cpu).unwrap_or(false)).unwrap();
    // Meters that calibrate at the same time on one CPU disturb each other.
    static CALIBRATION: Mutex<()> = Mutex::new(());
    let turn = CALIBRATION.lock().unwrap_or_else(PoisonError::into_inner);
    let meter = Meter::start(Some(&[cpu])).unwrap();
    drop(turn);
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            serve(TcpListener::from_std(listener).unwrap(), AppState::new(meter).router(), token(TOKEN)).await
        });
    });
    address
}

/// Starts an agent that lends `lo`, and returns its address.
fn start_lender() -> SocketAddr {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let port = Arc::new(LentPort::new("lo", LEASE).unwrap());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            serve(TcpListener::from_std(listener).unwrap(), lending::router(port), token(TOKEN)).await
        });
    });
    address
}

/// Sends these lines of a request; returns the status and the body of the answer.
fn send(address: SocketAddr, lines: &str) -> (u16, Value) {
    send_to_host(address, "localhost", lines)
}

fn send_to_host(address: SocketAddr, host: &str, lines: &str) -> (u16, Value) {
    exchange(address, &format!("{lines}\r\nhost: {host}\r\n\r\n"))
}

fn send_with_body(address: SocketAddr, lines: &str, body: &str) -> (u16, Value) {
    exchange(address, &format!("{lines}\r\nhost: localhost\r\n\r\n{body}"))
}

fn exchange(address: SocketAddr, request: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

fn connect(url: &str, text: &str) -> Result<RemoteAgent, Failure> {
    RemoteAgent::connect(url, token(text), AgentUse::Measure)
}

#[test]
fn a_client_with_the_token_reads_load_and_counters() {
    let address = start_agent();
    let remote = connect(&format!("http://{address}/"), TOKEN).unwrap();
    assert_eq!((remote.about().version.as_str(), remote.about().cpus.len()), (env!("CARGO_PKG_VERSION"), 1));
    let (first, second) = (remote.mark().unwrap(), remote.mark().unwrap());
    assert!(first < second);
    thread::sleep(Duration::from_millis(300));
    let load = remote.load_since(first).unwrap();
    assert!((0.3..10.0).contains(&load.seconds) && (0.0..=100.0).contains(&load.load_percent), "{load:?}");
    assert_eq!(load.cpus[0].cpu, remote.about().cpus[0]);
    let why = remote.load_since(Mark(7)).unwrap_err().to_string();
    assert!(why.contains("since: unknown mark 7: the agent was restarted"), "{why}");
    let counters = remote.counters().unwrap();
    assert!(counters.0["cpu0"].contains_key("processed") && !counters.0.contains_key("lo"), "{counters:?}");
}

#[test]
fn a_client_without_the_token_gets_401_on_every_path() {
    let address = start_agent();
    let bearer = |token: &str| format!("GET /v1/counters HTTP/1.1\r\nauthorization: Bearer {token}");
    for request in
        ["GET /v1/counters HTTP/1.1", "GET /nothing HTTP/1.1", &bearer("0123456789abcdeF"), &bearer("")]
    {
        let (status, body) = send(address, request);
        assert_eq!((status, &body["error"]["code"]), (401, &"unauthorized".into()), "{request}");
    }
    let failure = connect(&format!("http://{address}"), "fedcba9876543210").unwrap_err();
    assert_eq!(failure.code, FailureCode::Unauthorized);
    assert_eq!(
        failure.message,
        format!("http://{address}: the token is wrong; use the same token on both sides")
    );
    // The agent has GET only.
    let authorized = format!("authorization: Bearer {TOKEN}\r\ncontent-type: application/json");
    assert_eq!(send(address, &format!("POST /v1/counters HTTP/1.1\r\n{authorized}")).0, 405);
    assert_eq!(send(address, &format!("GET /v1/status HTTP/1.1\r\n{authorized}")).0, 404);
    assert_eq!(send(address, &format!("GET /v1/load?till=1 HTTP/1.1\r\n{authorized}")).0, 400);
    assert_eq!(send(address, "hello").0, 400);
}

#[test]
fn an_agent_either_measures_or_lends_a_port() {
    let (meter, lender) = (format!("http://{}", start_agent()), format!("http://{}", start_lender()));
    let open = |url: &str, of| RemoteAgent::connect(url, token(TOKEN), of).map(drop).map_err(|f| f.message);
    assert_eq!(open(&lender, AgentUse::Lend("lo")), Ok(()));
    for (url, of, why) in [
        (&meter, AgentUse::Lend("lo"), "it lends no port; start it with `shunt lab agent --lend lo`"),
        (&lender, AgentUse::Lend("p1"), "it lends lo; start it with `shunt lab agent --lend p1`"),
        (&lender, AgentUse::Measure, "it lends lo to `shunt check`; start one without --lend"),
    ] {
        assert_eq!(open(url, of), Err(format!("the agent at {url}: {why}")));
    }
}

#[test]
fn a_lent_port_is_for_clients_with_the_token_and_for_steps_of_a_check_only() {
    let address = start_lender();
    let post = |headers: &str, body: &str| {
        let head = format!("POST /v1/partner HTTP/1.1\r\ncontent-length: {}{headers}", body.len());
        send_with_body(address, &head, body)
    };
    let token = format!("\r\nauthorization: Bearer {TOKEN}");
    let json = format!("{token}\r\ncontent-type: application/json");
    let begin = r#"{"check":1,"port":"lo","request":"begin"}"#;
    let run = r#"{"check":1,"port":"lo","request":{"run":"promisc"}}"#;
    assert_eq!(post("\r\ncontent-type: application/json", begin).0, 401);
    assert_eq!(post(&token, begin).0, 415);
    for (wrong, status) in [
        (run, 409),
        (r#"{"check":1,"port":"eth0","request":"begin"}"#, 409),
        (r#"{"check":1,"port":"lo","request":{"run":"reboot"}}"#, 400),
        (r#"{"check":1,"port":"lo","request":{"run":{"line":"reboot"}}}"#, 400),
        ("{}", 400),
        ("begin", 400),
    ] {
        let (answered, body) = post(&json, wrong);
        assert_eq!(answered, status, "{wrong}: {body}");
    }
    for path in ["load", "counters"] {
        assert_eq!(send(address, &format!("GET /v1/{path} HTTP/1.1{token}")).0, 404);
    }
}

#[test]
fn a_page_of_another_site_is_refused_even_with_the_token() {
    let address = start_agent();
    let get = format!("GET /v1/agent HTTP/1.1\r\nauthorization: Bearer {TOKEN}");
    assert_eq!(send_to_host(address, &address.to_string(), &get).0, 200);
    for host in ["attacker.example", "attacker.example:7411", ""] {
        let (status, body) = send_to_host(address, host, &get);
        assert_eq!(status, 403, "{host}: {body}");
    }
    for header in ["origin: http://attacker.example", "sec-fetch-site: cross-site"] {
        assert_eq!(send(address, &format!("{get}\r\n{header}")).0, 403, "{header}");
    }
    let by_name = format!("http://localhost:{}", address.port());
    assert!(connect(&by_name, TOKEN).is_ok(), "a client that resolves a name calls the agent by its address");
}

#[test]
fn silent_clients_do_not_delay_others() {
    let address = start_agent();
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut slow = TcpStream::connect(address).unwrap();
    write!(slow, "GET /v1/co").unwrap();
    let began = Instant::now();
    connect(&format!("http://{address}"), TOKEN).unwrap().mark().unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    drop(silent);
}

/// The failure of a client that gets this answer from the server.
fn failure_for(answer: String) -> Failure {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        write!(stream, "HTTP/1.1 {answer}").unwrap();
    });
    let failure = connect(&url, TOKEN).unwrap_err();
    serving.join().unwrap();
    failure
}

#[test]
fn each_kind_of_wrong_server_has_its_own_message() {
    let about =
        About { version: "0.0.9".to_owned(), cpus: vec![0], lends: None, conditions: Conditions::default() };
    let body = serde_json::to_string(&about).unwrap();
    let other = failure_for(format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let here = env!("CARGO_PKG_VERSION");
    let why = format!("it runs Shunt 0.0.9, and this machine {here}; install the same version on both");
    assert!(other.code == FailureCode::DutUnavailable && other.message.ends_with(&why), "{other}");
    for (answer, why) in [
        ("200 OK\r\ncontent-length: 2\r\n\r\nhi", "unexpected answer"),
        ("404 Not Found\r\ncontent-length: 0\r\n\r\n", "not a Shunt agent: it answered 404 Not Found"),
        ("", "it closed the connection"),
    ] {
        let failure = failure_for(answer.to_owned());
        assert!(failure.message.contains(why), "{failure}");
    }
    // A port that was bound and closed again, so nothing listens on it.
    let free = net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = connect(&format!("http://{free}"), TOKEN).unwrap_err();
    assert!(refused.message.contains("cannot connect (Connection refused"), "{refused}");
    for url in ["127.0.0.1:7411", "https://127.0.0.1:7411", "http://127.0.0.1", "http://127.0.0.1:1/x", "x"] {
        assert_eq!(connect(url, TOKEN).unwrap_err().code, FailureCode::Usage, "{url}");
    }
}
