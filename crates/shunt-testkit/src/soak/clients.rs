//! Clients and services, and the numbers of their exchanges.

use super::Report;
use crate::{TcpEcho, Topology, UdpEcho, backlog, tcp_exchange};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, Scope},
    time::{Duration, Instant},
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two exchanges of a client.
const REST: Duration = Duration::from_millis(1);
/// Port to which the ruleset refuses packets at times.
const REFUSED_PORT: u16 = 7000;
/// Number of clients, all of which can be paused.
const CLIENTS: usize = 8;

/// State shared by all clients.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    ended: AtomicBool,
    paused: AtomicBool,
    parked: AtomicUsize,
    packets: AtomicU64,
    connections: AtomicU64,
    lost: AtomicU64,
    excused: AtomicU64,
    wrong: AtomicU64,
    excuse: Mutex<Option<Instant>>,
}

/// When an exchange began, and how many packets the machine's backlogs had dropped by then.
#[derive(Debug, Clone, Copy)]
struct Begun {
    at: Instant,
    dropped: u64,
}

impl Begun {
    fn now() -> Self {
        Self { at: Instant::now(), dropped: backlog::dropped() }
    }
}

/// Ends the clients when dropped.
pub(super) struct End<'a>(&'a Traffic);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

impl Traffic {
    pub(super) fn end_on_drop(&self) -> End<'_> {
        End(self)
    }

    /// Pauses all clients between two exchanges; returns whether all have paused in time.
    pub(super) fn pause(&self) -> bool {
        self.paused.store(true, Ordering::Relaxed);
        let all =
            crate::wait_for(PATIENCE * 2, || (self.parked.load(Ordering::Relaxed) == CLIENTS).then_some(()));
        all.is_some()
    }

    pub(super) fn resume(&self) {
        self.paused.store(false, Ordering::Relaxed);
    }

    /// Runs `work`, during which Linux alone would lose packets, too: exchanges that began before its end are excused.
    pub(super) fn excusing<T>(&self, work: impl FnOnce() -> T) -> T {
        let set = |until| *self.excuse.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        set(Instant::now() + Duration::from_secs(3600));
        let done = work();
        set(Instant::now());
        done
    }

    /// Sets the numbers of exchanges in a report.
    pub(super) fn add_to(&self, report: &mut Report) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        report.packets = count(&self.packets);
        report.connections = count(&self.connections);
        report.lost = count(&self.lost);
        report.excused = count(&self.excused);
        report.wrong = count(&self.wrong);
    }

    /// Whether a client goes on. Waits while the clients are paused.
    fn goes_on(&self) -> bool {
        thread::sleep(REST);
        if self.paused.load(Ordering::Relaxed) {
            self.parked.fetch_add(1, Ordering::Relaxed);
            while self.paused.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed) {
                thread::sleep(REST);
            }
            self.parked.fetch_sub(1, Ordering::Relaxed);
        }
        !self.ended.load(Ordering::Relaxed)
    }

    fn is_excused(&self, begun: Begun) -> bool {
        let until = *self.excuse.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| begun.at < until) || backlog::dropped() != begun.dropped
    }

    fn count(&self, what: &str, begun: Begun, sent: &[u8], answer: io::Result<Vec<u8>>) -> bool {
        match answer {
            Ok(answer) if answer == sent => {
                self.packets.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Ok(_) => {
                eprintln!("soak: {what}: wrong answer");
                self.wrong.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) if self.is_excused(begun) => {
                self.excused.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) if self.ended.load(Ordering::Relaxed) => {}
            Err(e) => {
                eprintln!("soak: {what}: no answer: {e}");
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        false
    }
}

/// The echo services of the hosts.
#[derive(Debug)]
pub(super) struct Services {
    _udp: Vec<UdpEcho>,
    _tcp: Vec<TcpEcho>,
    refused: UdpEcho,
}

impl Services {
    #[track_caller]
    pub(super) fn start(lab: &Topology) -> Self {
        let (lan, wan) = (lab.lan(), lab.wan());
        let udp = [wan.at(9000), wan.at6(9001), wan.at(9002)];
        let tcp = [wan.at(9003), wan.at6(9004), wan.at(9005), wan.at6(9006)];
        let mut services: Vec<UdpEcho> = udp.map(|at| UdpEcho::start(&wan.ns, at)).into();
        services.push(UdpEcho::start(&lan.ns, lan.at(8080)));
        Self {
            _udp: services,
            _tcp: tcp.map(|at| TcpEcho::start(&wan.ns, at)).into(),
            refused: UdpEcho::start(&wan.ns, wan.at(REFUSED_PORT)),
        }
    }

    /// Number of packets that arrived at the refused port.
    pub(super) fn heard(&self) -> u64 {
        self.refused.answered()
    }

    /// Starts all clients.
    pub(super) fn clients<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        lab: &'scope Topology,
        traffic: &'scope Traffic,
        seed: u64,
    ) {
        let (lan, wan) = (lab.lan(), lab.wan());
        let outside = SocketAddr::from((wan.gateway_v4, 8080));
        for (n, (host, to, life)) in [
            (lan, wan.at(9000), u32::MAX),
            (lan, wan.at6(9001), u32::MAX),
            (lan, wan.at(9002), 20),
            (wan, outside, 1000),
        ]
        .into_iter()
        .enumerate()
        {
            scope.spawn(move || {
                host.ns.enter();
                datagrams(traffic, to, life, &mut fastrand::Rng::with_seed(seed ^ n as u64));
            });
        }
        for to in [wan.at(9005), wan.at6(9006)] {
            scope.spawn(move || {
                lan.ns.enter();
                stream(traffic, to, &mut fastrand::Rng::with_seed(seed ^ u64::from(to.port())));
            });
        }
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed ^ 77);
            while traffic.goes_on() {
                let to = if random.bool() { wan.at(9003) } else { wan.at6(9004) };
                let data = bytes(&mut random, 60_000);
                let begun = Begun::now();
                let answer = tcp_exchange(&lan.ns, to, &data, PATIENCE);
                traffic.count("short TCP", begun, &data, answer);
                traffic.connections.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(move || {
            lan.ns.enter();
            let socket = bound(wan.at(REFUSED_PORT));
            while traffic.goes_on() {
                // The ruleset may refuse the packet.
                let _ = socket.as_ref().map(|socket| socket.send(b"may I?"));
            }
        });
    }
}

/// Exchanges one datagram after the other, with a new source port after `life` datagrams.
fn datagrams(traffic: &Traffic, to: SocketAddr, life: u32, random: &mut fastrand::Rng) {
    let mut number = 0_u64;
    while traffic.goes_on() {
        let Ok(socket) = bound(to) else { continue };
        traffic.connections.fetch_add(1, Ordering::Relaxed);
        for _ in 0..life {
            if !traffic.goes_on() {
                return;
            }
            number += 1;
            let mut data = number.to_be_bytes().to_vec();
            data.extend(bytes(random, 1200));
            let begun = Begun::now();
            let answer = answer_to(&socket, &data);
            traffic.count(&format!("UDP to {to}"), begun, &data, answer);
        }
    }
}

/// Sends a datagram and waits for the answer with the same number.
fn answer_to(socket: &UdpSocket, data: &[u8]) -> io::Result<Vec<u8>> {
    socket.send(data)?;
    let mut answer = vec![0; 65_536];
    loop {
        let length = socket.recv(&mut answer)?;
        if answer[..length].starts_with(&data[..8]) {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

/// Exchanges one piece of a TCP stream after the other.
fn stream(traffic: &Traffic, to: SocketAddr, random: &mut fastrand::Rng) {
    while traffic.goes_on() {
        let begun = Begun::now();
        let mut stream = match connected(to) {
            Ok(stream) => stream,
            Err(e) => {
                traffic.count("long TCP", begun, &[], Err(e));
                continue;
            }
        };
        traffic.connections.fetch_add(1, Ordering::Relaxed);
        let mut whole = true;
        while whole && traffic.goes_on() {
            let data = bytes(random, 8000);
            let begun = Begun::now();
            let mut answer = vec![0; data.len()];
            let done = stream.write_all(&data).and_then(|()| stream.read_exact(&mut answer));
            whole = traffic.count("long TCP", begun, &data, done.map(|()| answer));
        }
    }
}

fn connected(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE * 2))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn bound(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn bytes(random: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    let mut data = vec![0; random.usize(1..=most)];
    random.fill(&mut data);
    data
}
