use super::{remote::Remote, *};
use nix::{sched::sched_getaffinity, unistd::Pid};
use serde_json::Value;
use shunt_lab::dut::Dut;
use std::{
    io::{Read, Write},
    net::{self, TcpStream},
    thread,
    time::Instant,
};

const TOKEN: &str = "0123456789abcdef";
const SOON: Duration = Duration::from_secs(2);

fn token(text: &str) -> Token {
    Token::of(text).unwrap()
}

/// An agent on a thread of its own, which measures one CPU; its address.
fn served() -> SocketAddr {
    let affinity = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpu = (0..1024).rev().find(|cpu| affinity.is_set(*cpu).unwrap_or(false)).unwrap();
    // Two that calibrate at once on one CPU disturb each other.
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let meter = Meter::start(Some(&[cpu])).unwrap();
    drop(one);
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            answer(TcpListener::from_std(listener).unwrap(), Desk::of(meter).router(), token(TOKEN)).await
        });
    });
    address
}

/// The status and the body of what is answered to these lines of a request.
fn ask(address: SocketAddr, lines: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "{lines}\r\nhost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

fn find(url: &str, text: &str) -> Result<Remote, Failure> {
    Remote::find(url, token(text))
}

#[test]
fn whoever_knows_the_token_is_told_of_load_and_counters() {
    let address = served();
    let remote = find(&format!("http://{address}/"), TOKEN).unwrap();
    assert_eq!((remote.about().version.as_str(), remote.about().cpus.len()), (env!("CARGO_PKG_VERSION"), 1));
    let (first, second) = (remote.mark().unwrap(), remote.mark().unwrap());
    assert!(first < second);
    thread::sleep(Duration::from_millis(300));
    let load = remote.load_since(first).unwrap();
    assert!((0.3..10.0).contains(&load.seconds) && (0.0..=100.0).contains(&load.load_percent), "{load:?}");
    assert_eq!(load.cpus[0].cpu, remote.about().cpus[0]);
    let why = remote.load_since(Mark(7)).unwrap_err().to_string();
    assert!(why.contains("since: mark 7 is unknown: the agent was started anew"), "{why}");
    let counters = remote.counters().unwrap();
    assert!(counters.0["cpu0"].contains_key("processed") && !counters.0.contains_key("lo"), "{counters:?}");
}

#[test]
fn whoever_does_not_know_it_is_told_nothing() {
    let address = served();
    let bearer = |token: &str| format!("GET /v1/counters HTTP/1.1\r\nauthorization: Bearer {token}");
    for request in
        ["GET /v1/counters HTTP/1.1", "GET /nothing HTTP/1.1", &bearer("0123456789abcdeF"), &bearer("")]
    {
        let (status, body) = ask(address, request);
        assert_eq!((status, &body["error"]["code"]), (401, &"unauthorized".into()), "{request}");
    }
    let failure = find(&format!("http://{address}"), "fedcba9876543210").unwrap_err();
    assert_eq!(failure.code, FailureCode::Unauthorized);
    assert_eq!(failure.message, format!("http://{address}: the token is wrong; both sides need the same"));
    // It reads, and does nothing else.
    let authorized = format!("authorization: Bearer {TOKEN}");
    assert_eq!(ask(address, &format!("POST /v1/counters HTTP/1.1\r\n{authorized}")).0, 405);
    assert_eq!(ask(address, &format!("GET /v1/status HTTP/1.1\r\n{authorized}")).0, 404);
    assert_eq!(ask(address, &format!("GET /v1/load?till=1 HTTP/1.1\r\n{authorized}")).0, 400);
    assert_eq!(ask(address, "hello").0, 400);
}

#[test]
fn clients_that_say_nothing_keep_nobody_waiting() {
    let address = served();
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut slow = TcpStream::connect(address).unwrap();
    write!(slow, "GET /v1/co").unwrap();
    let began = Instant::now();
    find(&format!("http://{address}"), TOKEN).unwrap().mark().unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    drop(silent);
}

/// What is found where somebody answers with this.
fn found(answer: String) -> Failure {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        write!(stream, "HTTP/1.1 {answer}").unwrap();
    });
    let failure = find(&url, TOKEN).unwrap_err();
    serving.join().unwrap();
    failure
}

#[test]
fn what_is_no_agent_of_ours_is_told_apart() {
    let about = About { version: "0.0.9".to_owned(), cpus: vec![0], conditions: Conditions::default() };
    let body = serde_json::to_string(&about).unwrap();
    let other = found(format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let here = env!("CARGO_PKG_VERSION");
    let why = format!("its Shunt is version 0.0.9, and this one {here}: install the same on both");
    assert!(other.code == FailureCode::DutUnavailable && other.message.ends_with(&why), "{other}");
    for (answer, why) in [
        ("200 OK\r\ncontent-length: 2\r\n\r\nhi", "its answer is not understood"),
        ("404 Not Found\r\ncontent-length: 0\r\n\r\n", "it is no agent of Shunt: it answers 404 Not Found"),
        ("", "it ended the conversation"),
    ] {
        let failure = found(answer.to_owned());
        assert!(failure.message.contains(why), "{failure}");
    }
    // Bound and closed again, so that nobody is there.
    let free = net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = find(&format!("http://{free}"), TOKEN).unwrap_err();
    assert!(nobody.message.contains("nobody answers there (Connection refused"), "{nobody}");
    for url in ["127.0.0.1:7411", "https://127.0.0.1:7411", "http://127.0.0.1", "http://127.0.0.1:1/x", "x"] {
        assert_eq!(find(url, TOKEN).unwrap_err().code, FailureCode::Usage, "{url}");
    }
}
