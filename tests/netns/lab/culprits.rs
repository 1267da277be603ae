//! `shunt trace` names who delays or drops packets. Each test hides a culprit, and compares names only.

mod cgroups;
mod softirqs;

use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::socket::{setsockopt, sockopt},
    unistd::{Pid, gettid},
};
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, is_guest, require_qdiscs, require_root};
use std::{
    net::{SocketAddr, UdpSocket},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Scope, sleep},
    time::{Duration, Instant},
};

/// What each culprit takes: much more than a busy machine does.
const LONG: Duration = Duration::from_millis(20);
const SERVER: &str = "192.0.2.1:7";

/// A host that is traced, and a client next to it.
struct Hosts {
    traced: NetNs,
    client: NetNs,
    /// Set when threads must end.
    over: AtomicBool,
}

impl Hosts {
    fn new() -> Self {
        let (traced, client) = (NetNs::new("traced"), NetNs::new("client"));
        traced.run(&format!("ip link add s0 type veth peer name c0 netns {}", client.name()));
        traced.run("ip address add 192.0.2.1/24 dev s0 && ip link set s0 up");
        client.run("ip address add 192.0.2.2/24 dev c0 && ip link set c0 up");
        Self { traced, client, over: AtomicBool::new(false) }
    }

    fn go_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Starts a thread with a name that the kernel shows.
    fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, name: &str, work: impl FnOnce() + Send + 's) {
        thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).unwrap();
    }

    /// Starts a server that does some work for each datagram, and sends it back.
    fn serve<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        name: &str,
        prepare: impl FnOnce(&UdpSocket) + Send + 's,
        mut work: impl FnMut() + Send + 's,
    ) {
        let address: SocketAddr = SERVER.parse().unwrap();
        let socket = self.traced.within(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        self.start(scope, name, move || {
            prepare(&socket);
            let mut buffer = [0; 2000];
            while self.go_on() {
                if let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
                    work();
                    // Nobody listens any more when the client has ended.
                    let _ = socket.send_to(&buffer[..bytes], from);
                }
            }
        });
    }

    /// Starts a client that sends a datagram of 1000 bytes, and the next one when it has the answer.
    fn ask<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        self.send(scope, "client", Duration::from_secs(1));
    }

    /// Starts a client that waits this long for each answer.
    fn send<'s>(&'s self, scope: &'s Scope<'s, '_>, name: &str, patience: Duration) {
        self.start(scope, name, move || {
            real_time(1);
            let mut buffer = [0; 2000];
            while self.go_on() {
                // A new port each time: a new connection.
                let socket = self.client.within(|| UdpSocket::bind("192.0.2.2:0")).unwrap();
                socket.set_read_timeout(Some(patience)).unwrap();
                for _ in 0..10 {
                    let _ = socket.send_to(&[0; 1000], SERVER);
                    let _ = socket.recv(&mut buffer);
                }
            }
        });
    }

    /// Traces for a second, and ends all threads.
    fn trace(&self) -> Value {
        let output = Shunt::on(&self.traced).run("trace --seconds 1 --sample 1 --dport 7 --rows 0 --json");
        self.over.store(true, Ordering::Relaxed);
        serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {} {}", output.err, output.out))
    }
}

/// The cause that is named first.
#[track_caller]
fn likely(report: &Value) -> &Value {
    let cause = &report["diagnosis"]["likely"];
    assert!(!cause.is_null(), "{:#} {:#} {:#}", report["diagnosis"], report["paths"], report["missing"]);
    cause
}

/// Traces a server that does this for each datagram, at real-time priority, so that other work on this machine does not
/// delay it. Returns the cause.
fn traced_server(name: &str, work: impl FnMut() + Send) -> Value {
    let hosts = Hosts::new();
    let report = thread::scope(|scope| {
        hosts.serve(scope, name, |_| real_time(1), work);
        hosts.ask(scope);
        hosts.trace()
    });
    likely(&report).clone()
}

/// Traces a server that answers at once, after this command in its namespace. Returns the cause.
fn traced_host(command: &str) -> Value {
    let hosts = Hosts::new();
    hosts.traced.run(command);
    let report = thread::scope(|scope| {
        hosts.serve(scope, "server", |_| real_time(1), || ());
        hosts.send(scope, "client", Duration::from_millis(100));
        hosts.trace()
    });
    likely(&report).clone()
}

/// Gives the calling thread a real-time priority.
fn real_time(priority: u32) {
    change_thread("chrt", &["-f", "-p", &priority.to_string()]);
}

fn change_thread(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).arg(gettid().to_string()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Lets the calling thread run on this CPU only.
fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
}

fn last_cpu() -> usize {
    thread::available_parallelism().unwrap().get() - 1
}

fn compute(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
#[ignore = "needs the machine for itself; in make test-long"]
fn nobody_is_blamed_if_nothing_is_wrong() {
    if !require_root() {
        return;
    }
    let reports = (0..3).map(|_| {
        let hosts = Hosts::new();
        thread::scope(|scope| {
            hosts.serve(scope, "server", |_| real_time(1), || ());
            hosts.ask(scope);
            hosts.trace()
        })
    });
    // Another program may really be in the way, but not each time.
    let mut named = Vec::new();
    for report in reports {
        assert!(report["packets"].as_u64() > Some(0), "{report:#}");
        if report["diagnosis"]["likely"].is_null() {
            return;
        }
        named.push(report["diagnosis"].clone());
    }
    panic!("{named:#?}");
}

#[test]
fn a_qdisc_that_delays_is_named() {
    if !require_root() || !require_qdiscs(&["netem delay 1ms"]) {
        return;
    }
    let cause = traced_host("tc qdisc add dev s0 root netem delay 20ms");
    assert_eq!((&cause["kind"], &cause["qdisc"]), (&"qdisc".into(), &"netem".into()), "{cause:#}");
}

#[test]
fn a_qdisc_that_loses_is_named() {
    if !require_root() || !require_qdiscs(&["netem loss 40%"]) {
        return;
    }
    let cause = traced_host("tc qdisc add dev s0 root netem loss 40%");
    assert_eq!((&cause["kind"], &cause["qdisc"]), (&"qdisc".into(), &"netem".into()), "{cause:#}");
    assert!(cause["device"] == "s0" && cause["mean_ns"].is_null(), "{cause:#}");
}

#[test]
fn a_qdisc_that_is_full_is_named() {
    if !require_root() {
        return;
    }
    // A second for each answer, and room for one.
    let cause = traced_host("tc qdisc add dev s0 root tbf rate 8kbit burst 1600 limit 1600");
    assert_eq!((&cause["kind"], &cause["qdisc"]), (&"qdisc".into(), &"tbf".into()), "{cause:#}");
    assert!(cause["device"] == "s0" && cause["mean_ns"].is_null(), "{cause:#}");
}

#[test]
fn qdiscs_that_shape_are_named() {
    if !require_root() {
        return;
    }
    let htb = "tc qdisc add dev s0 root handle 1: htb default 1 && \
               tc class add dev s0 parent 1: classid 1:1 htb rate 400kbit burst 1500 cburst 1500";
    for (qdisc, command) in
        [("tbf", "tc qdisc add dev s0 root tbf rate 400kbit burst 1600 limit 100000"), ("htb", htb)]
    {
        let cause = traced_host(command);
        assert_eq!((&cause["kind"], &cause["qdisc"]), (&"qdisc".into(), &qdisc.into()), "{cause:#}");
        assert_eq!(cause["device"], "s0");
    }
}

#[test]
fn a_thread_that_has_the_cpu_is_named() {
    if !require_root() {
        return;
    }
    let hosts = Hosts::new();
    let report = thread::scope(|scope| {
        hosts.serve(scope, "server", |_| pin(last_cpu()), || ());
        hosts.start(scope, "cpu-hog", || {
            pin(last_cpu());
            real_time(2);
            while hosts.go_on() {
                compute(LONG);
                sleep(LONG / 4);
            }
        });
        hosts.ask(scope);
        hosts.trace()
    });
    let cause = likely(&report);
    assert_eq!((&cause["kind"], &cause["thread"]), (&"cpu".into(), &"server".into()), "{cause:#}");
    assert_eq!(cause["holder"], "cpu-hog", "{cause:#}");
}

#[test]
fn a_server_that_sleeps_is_named() {
    if !require_root() {
        return;
    }
    let cause = traced_server("sleeper", || sleep(LONG));
    assert_eq!((&cause["kind"], &cause["thread"]), (&"sleep".into(), &"sleeper".into()), "{cause:#}");
    assert_eq!(cause["call"], "clock_nanosleep");
}

#[test]
fn a_server_that_copies_is_named() {
    if !require_root() {
        return;
    }
    let data = vec![1u8; 32 << 20];
    let cause = traced_server("copier", || assert_eq!(data.clone().last(), Some(&1)));
    assert_eq!((&cause["kind"], &cause["thread"]), (&"program".into(), &"copier".into()), "{cause:#}");
}

#[test]
fn a_thread_that_has_the_lock_is_named() {
    if !require_root() {
        return;
    }
    let (hosts, lock) = (Hosts::new(), Mutex::new(0));
    let report = thread::scope(|scope| {
        hosts.serve(scope, "server", |_| real_time(1), || *lock.lock().unwrap() += 1);
        hosts.start(scope, "lock-holder", || {
            real_time(1);
            while hosts.go_on() {
                let held = lock.lock().unwrap();
                sleep(LONG);
                drop(held);
                // Enough for a few packets; the others meet the lock.
                sleep(LONG / 400);
            }
        });
        hosts.ask(scope);
        hosts.trace()
    });
    let cause = likely(&report);
    assert_eq!((&cause["kind"], &cause["thread"]), (&"lock".into(), &"server".into()), "{cause:#}");
    assert_eq!(cause["holder"], "lock-holder");
}

#[test]
fn a_chain_that_counts_connections_is_named() {
    if !require_root() {
        return;
    }
    let cause = traced_host(
        "nft 'table inet guard { chain few { type filter hook input priority 0; udp dport 7 ct count over 1 drop; }; }'",
    );
    assert_eq!((&cause["kind"], &cause["hook"]), (&"rule".into(), &"input".into()), "{cause:#}");
    assert!(cause["chain"] == "guard few" && cause["part"]["rule"].is_u64(), "{cause:#}");
}

#[test]
fn a_table_of_iptables_is_named_where_the_kernel_shows_it() {
    if !require_root() {
        return;
    }
    let cause = traced_host("iptables-legacy -A INPUT -p udp --dport 7 -j DROP");
    assert_eq!(cause["hook"], "input", "{cause:#}");
    // Elsewhere, any chain of the hook may have dropped the packets.
    if is_guest() || cause["kind"] == "table" {
        assert_eq!((&cause["kind"], &cause["table"]), (&"table".into(), &"filter".into()), "{cause:#}");
    } else {
        assert_eq!((&cause["kind"], &cause["chain"]), (&"rule".into(), &Value::Null), "{cause:#}");
    }
}

#[test]
fn a_small_receive_buffer_is_named() {
    if !require_root() {
        return;
    }
    let hosts = Hosts::new();
    let report = thread::scope(|scope| {
        let small = |socket: &UdpSocket| setsockopt(socket, sockopt::RcvBuf, &1).unwrap();
        hosts.serve(scope, "server", small, || sleep(LONG));
        hosts.send(scope, "client", LONG / 20);
        hosts.trace()
    });
    let cause = likely(&report);
    let expected = (&"socket-buffer".into(), &"udp 192.0.2.1:7".into());
    assert_eq!((&cause["kind"], &cause["socket"]), expected, "{cause:#}");
}
