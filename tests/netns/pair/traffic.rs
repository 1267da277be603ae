//! Conversations with echo services, and a witness that compares their packets.

use shunt_testkit::{NetNs, Tap};
use shunt_wire::{Checksum, Packet, Tcp};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Time between two packets of a conversation.
const PACE: Duration = Duration::from_millis(5);
/// How long TCP may be without an answer. Its retransmissions come in intervals that double.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the last answers may take.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Bytes of a message.
const MESSAGE: usize = 200;
/// The port of an echo service. Others of the same test have the ports after it.
pub const ECHO: u16 = 7;
const ECHO_PORTS: std::ops::Range<u16> = ECHO..ECHO + 100;

/// The byte at this position of the stream of a conversation.
fn byte(position: usize) -> u8 {
    let word = (position as u32 / 4).wrapping_mul(0x9e37_79b9).rotate_left(7);
    word.to_le_bytes()[position % 4]
}

fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

/// Datagram number `number` of a conversation.
fn datagram(number: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &bytes(number as usize * MESSAGE, MESSAGE)].concat()
}

/// What has happened to a conversation.
#[derive(Debug, Default)]
pub struct Record {
    /// Messages sent.
    pub sent: u32,
    /// When the answer to each message arrived.
    pub answers: BTreeMap<u32, Instant>,
    /// Answers that came twice or differ from the message, and errors of the socket.
    pub faults: Vec<String>,
}

impl Record {
    /// The longest time without an answer after `since`, and when it ended.
    pub fn longest_gap(&self, since: Instant) -> (Duration, Instant) {
        let times: Vec<Instant> = self.answers.values().copied().filter(|at| *at >= since).collect();
        let before = self.answers.values().copied().filter(|at| *at < since).max().unwrap_or(since);
        let mut last = before;
        let mut longest = (Duration::ZERO, since);
        for at in times {
            if at.saturating_duration_since(last) > longest.0 {
                longest = (at - last, at);
            }
            last = at;
        }
        longest
    }
}

/// A client that sends a message every five milliseconds to an echo service, by UDP or TCP, until dropped.
pub struct Conversation {
    /// The client's port.
    pub port: u16,
    record: Arc<Mutex<Record>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Conversation {
    pub fn udp(client: &NetNs, server: SocketAddr) -> Self {
        let socket =
            client.within(|| UdpSocket::bind("0.0.0.0:0").and_then(|s| s.connect(server).map(|()| s)));
        let socket = socket.unwrap();
        Self::start(socket.local_addr().unwrap().port(), move |record, stop| say_udp(&socket, record, stop))
    }

    pub fn tcp(client: &NetNs, server: SocketAddr) -> Self {
        let stream = client.within(|| TcpStream::connect_timeout(&server, PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let port = stream.local_addr().unwrap().port();
        Self::start(port, move |record, stop| say_tcp(stream, record, stop))
    }

    fn start(port: u16, work: impl FnOnce(&Mutex<Record>, &AtomicBool) + Send + 'static) -> Self {
        let (record, stop) = (Arc::<Mutex<Record>>::default(), Arc::<AtomicBool>::default());
        let (theirs, ends) = (Arc::clone(&record), Arc::clone(&stop));
        let thread = Some(thread::spawn(move || work(&theirs, &ends)));
        Self { port, record, stop, thread }
    }

    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    /// Stops sending, waits for the answers to what was sent, and returns the whole record.
    pub fn finish(mut self) -> Record {
        self.end();
        std::mem::take(&mut *self.record())
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
    }

    /// Number of answers so far.
    pub fn answers(&self) -> usize {
        self.record().answers.len()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.end();
    }
}

fn say_udp(socket: &UdpSocket, record: &Mutex<Record>, stop: &AtomicBool) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let next = Instant::now() + PACE;
        record.lock().unwrap().sent = number + 1;
        if let Err(e) = socket.send(&datagram(number)) {
            record.lock().unwrap().faults.push(format!("sending datagram {number}: {e}"));
        }
        while hear_answer(socket, record, next) {}
    }
    let last = Instant::now() + LAST_ANSWERS;
    let is_open = || {
        let record = record.lock().unwrap();
        record.answers.len() < record.sent as usize
    };
    while is_open() && hear_answer(socket, record, last) {}
}

/// Waits until a time for an answer. Returns whether there is time left.
fn hear_answer(socket: &UdpSocket, record: &Mutex<Record>, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    let mut room = [0; 2 * MESSAGE];
    socket.set_read_timeout(Some(left)).unwrap();
    match socket.recv(&mut room) {
        Ok(length) => answer(&mut record.lock().unwrap(), &room[..length]),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
        Err(e) => record.lock().unwrap().faults.push(format!("waiting for an answer: {e}")),
    }
    true
}

fn answer(record: &mut Record, text: &[u8]) {
    let number = text.first_chunk().map_or(u32::MAX, |number| u32::from_be_bytes(*number));
    if number >= record.sent || text != datagram(number) {
        record.faults.push(format!("an answer to no datagram: {text:02x?}"));
    } else if record.answers.insert(number, Instant::now()).is_some() {
        record.faults.push(format!("a second answer to datagram {number}"));
    }
}

fn say_tcp(mut stream: TcpStream, record: &Mutex<Record>, stop: &AtomicBool) {
    let mut room = vec![0; MESSAGE];
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let next = Instant::now() + PACE;
        let text = bytes(number as usize * MESSAGE, MESSAGE);
        record.lock().unwrap().sent = number + 1;
        let read = stream.write_all(&text).and_then(|()| stream.read_exact(&mut room));
        let mut record = record.lock().unwrap();
        match read {
            Ok(()) if room == text => drop(record.answers.insert(number, Instant::now())),
            Ok(()) => record.faults.push(format!("the echo of message {number} differs")),
            Err(e) => return record.faults.push(format!("message {number}: {e}")),
        }
        drop(record);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Compares every packet that a server receives from conversations with what they sent.
#[derive(Debug, Default)]
pub struct Testimony {
    /// Number of packets.
    pub packets: u64,
    /// Sources of the packets, as the server sees them.
    pub sources: BTreeSet<SocketAddr>,
    /// Packets that are not as they were sent.
    pub wrong: Vec<String>,
    /// Sequence number of the first byte of each TCP connection.
    first: BTreeMap<SocketAddr, u32>,
}

impl Testimony {
    /// Checks a packet to the echo services: headers, checksums and payload.
    fn hear(&mut self, packet: &Packet, hops: u8) {
        let Some(source) = packet.source() else { return };
        if packet.destination().is_none_or(|to| !ECHO_PORTS.contains(&to.port())) {
            return;
        }
        self.packets += 1;
        self.sources.insert(source);
        let headers = packet.hop_limit() == Some(64 - hops)
            && packet.l4_checksum() == Some(Checksum::Good)
            && packet.ipv4().is_some_and(|ip| ip.checksum == Checksum::Good);
        let payload = match packet.tcp() {
            Some(tcp) if tcp.flags & Tcp::SYN != 0 => {
                self.first.insert(source, tcp.sequence.wrapping_add(1));
                packet.payload.is_empty()
            }
            Some(tcp) => self.first.get(&source).is_some_and(|first| {
                let position = tcp.sequence.wrapping_sub(*first) as usize;
                packet.payload == bytes(position, packet.payload.len())
            }),
            None => packet
                .payload
                .first_chunk()
                .is_some_and(|number| packet.payload == datagram(u32::from_be_bytes(*number))),
        };
        if !(headers && payload) && self.wrong.len() < 10 {
            self.wrong.push(format!("{packet:?}"));
        }
    }
}

/// Listens at the interface of a server until dropped.
pub struct Witness {
    testimony: Arc<Mutex<Testimony>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    /// `hops` is the number of routers on the way. Hosts must not leave checksums or segments to their NICs.
    pub fn listen(server: &NetNs, nic: &str, hops: u8) -> Self {
        let tap = Tap::open(server, nic);
        let (testimony, stop) = (Arc::<Mutex<Testimony>>::default(), Arc::<AtomicBool>::default());
        let (theirs, ends) = (Arc::clone(&testimony), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                if let Some(packet) = tap.next(Duration::from_millis(20)).and_then(|frame| frame.packet()) {
                    theirs.lock().unwrap().hear(&packet, hops);
                }
            }
        });
        Self { testimony, stop, thread: Some(thread) }
    }

    pub fn testimony(&self) -> MutexGuard<'_, Testimony> {
        self.testimony.lock().unwrap()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_changed_packet_is_noticed() {
    let (from, to) = ("198.51.100.2:4000".parse().unwrap(), "198.51.100.1:7".parse().unwrap());
    let sent = |number| {
        Packet::parse(&Packet::udp_between(from, to).payload(datagram(number)).with_hop_limit(63).to_bytes())
    };
    let mut testimony = Testimony::default();
    testimony.hear(&sent(3).unwrap(), 1);
    assert_eq!((testimony.packets, testimony.wrong.len()), (1, 0), "{:?}", testimony.wrong);
    let mut changed = sent(4).unwrap();
    changed.payload[100] ^= 1;
    testimony.hear(&changed, 1);
    testimony.hear(&sent(5).unwrap(), 2);
    assert_eq!((testimony.packets, testimony.wrong.len()), (3, 2), "{:?}", testimony.wrong);
}
