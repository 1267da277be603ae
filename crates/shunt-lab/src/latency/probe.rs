//! UDP probes that the far host answers, and the bytes that arrive at both hosts meanwhile.

use super::stamps::{self, Stamps};
use crate::{goodput::iperf_rig::End, net::NetNs, traffic::Error};
use nix::unistd::Pid;
use shunt_traffic::schedule;
use std::{
    fs,
    io::{self, ErrorKind},
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Time between two probes.
const GAP: Duration = Duration::from_millis(5);
/// Port of the host that answers.
pub(super) const PORT: u16 = 5202;
/// Port of both hosts if probes are PTP event messages (IEEE 1588, annex C).
const PTP_EVENT_PORT: u16 = 319;
/// Message type Delay_Req and version 2, the first bytes of a PTP message.
const PTP_DELAY_REQUEST: [u8; 2] = [1, 2];
/// Longest time that a thread waits for a probe before it looks whether it must end.
const PATIENCE: Duration = Duration::from_millis(20);
/// Probes that are answered later than this count as lost.
const LATEST: Duration = Duration::from_secs(1);
/// Time between two looks at the received bytes. It is short against the intervals of the curves, whose bounds lie
/// between two looks.
const COUNTED_EACH: Duration = Duration::from_millis(20);
const PROBE_BYTES: usize = 64;
/// The number of a probe is at its end, behind any PTP header.
const NUMBER_BYTES: usize = size_of::<u64>();
/// Bytes of the headers of PTP version 2 and of Delay_Req.
const PTP_HEADER_BYTES: usize = 44;
const _: () = assert!(PTP_HEADER_BYTES + NUMBER_BYTES <= PROBE_BYTES);

/// What was seen from the start to the end of a run. Times are since the start.
#[derive(Debug, Default)]
pub(super) struct ProbedRun {
    /// The probes, in the order in which they were sent.
    pub(super) probes: Vec<Probe>,
    /// Bytes that the LAN host has received, headers included.
    pub(super) lan: Vec<Counted>,
    /// Bytes that the WAN host has received, headers included.
    pub(super) wan: Vec<Counted>,
}

/// A UDP packet that the WAN host sends back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    /// Time from the start of the run until it was sent.
    pub(super) at: Duration,
    /// The time until the program had the answer; None if there was none.
    pub(super) rtt: Option<Duration>,
    /// The round trip by the kernel's time stamps; None if one is missing.
    pub(super) kernel_rtt: Option<Duration>,
    /// The round trip by the clocks of both NICs; None if a stamp is missing.
    pub(super) nic_rtt: Option<Duration>,
}

/// The form of the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeForm {
    Plain,
    /// PTP event messages: some NICs stamp no other packet.
    Ptp,
}

/// What one host saw of the probes, by their numbers.
#[derive(Debug, Default)]
struct Seen {
    received: Vec<(usize, Duration, Stamps)>,
    sent: Vec<(usize, Stamps)>,
}

impl ProbeForm {
    /// The port of the host that answers.
    pub(super) const fn port(self) -> u16 {
        match self {
            Self::Plain => PORT,
            Self::Ptp => PTP_EVENT_PORT,
        }
    }

    fn probe(self, number: usize) -> [u8; PROBE_BYTES] {
        let mut probe = [0; PROBE_BYTES];
        if self == Self::Ptp {
            probe[..2].copy_from_slice(&PTP_DELAY_REQUEST);
            probe[2..4].copy_from_slice(&(PROBE_BYTES as u16).to_be_bytes());
            probe[30..32].copy_from_slice(&(number as u16).to_be_bytes());
        }
        probe[PROBE_BYTES - NUMBER_BYTES..].copy_from_slice(&(number as u64).to_be_bytes());
        probe
    }
}

impl Seen {
    fn has_received(&mut self, probe: &[u8; PROBE_BYTES], at: Duration, stamps: Stamps) {
        if let Some(number) = probe.last_chunk().and_then(number) {
            self.received.push((number, at, stamps));
        }
    }

    /// Takes the stamps of probes that the socket sent.
    fn take_sent(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let back = stamps::sent::<NUMBER_BYTES>(socket)?;
        self.sent.extend(back.iter().filter_map(|(tail, stamps)| Some((number(tail)?, *stamps))));
        Ok(())
    }
}

fn number(tail: &[u8; NUMBER_BYTES]) -> Option<usize> {
    u64::from_be_bytes(*tail).try_into().ok()
}

/// A device's count of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) at: Duration,
    pub(super) bytes: u64,
}

/// Sends probes from the LAN host to the WAN host while `work` runs; then waits for late answers.
pub(super) fn during<T>(
    [lan, wan]: &[End<'_>; 2],
    v6: bool,
    form: ProbeForm,
    start: Instant,
    work: impl FnOnce() -> T,
) -> Result<(T, ProbedRun), Error> {
    let to = SocketAddr::new(wan.address(v6)?, form.port());
    let failed = |what: &str, host: &End<'_>, e: io::Error| {
        Error::Machine(format!("{what} of the probes at {}: {e}", host.nic))
    };
    let answering = wan.ns.within(|| socket(to)).map_err(|e| failed("receiver", wan, e))?;
    // The answers are event messages, too.
    let own_port = if form == ProbeForm::Ptp { form.port() } else { 0 };
    let own = SocketAddr::new(lan.address(v6)?, own_port);
    let sending = lan.ns.within(|| socket(own)).map_err(|e| failed("sender", lan, e))?;
    sending.connect(to).map_err(|e| failed("sender", lan, e))?;
    let (sent_all, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (stop_sending, stop) = (&sent_all, &over);
    thread::scope(|scope| {
        // The threads must end even if `work` panics.
        let _ends = [Ends(stop_sending), Ends(stop)];
        let [mut lan_counter, mut wan_counter] = [lan.nic, wan.nic].map(|nic| Counter::new(nic, start));
        let (answering, sending, wan_ns, lan_ns) = (&answering, &sending, wan.ns, lan.ns);
        let answers = scope.spawn(move || {
            enter(wan_ns);
            answer(answering, start, &mut wan_counter, stop).map(|seen| (seen, wan_counter.counts))
        });
        let replies = scope.spawn(move || {
            enter(lan_ns);
            collect(sending, start, &mut lan_counter, stop).map(|seen| (seen, lan_counter.counts))
        });
        let sender = scope.spawn(move || send(sending, form, start, stop_sending));
        let done = work();
        stop_sending.store(true, Ordering::Relaxed);
        let sent = joined(sender);
        thread::sleep(LATEST);
        stop.store(true, Ordering::Relaxed);
        let (replies, answered) = (joined(replies), joined(answers));
        let sent = sent.map_err(|e| failed("sender", lan, e))?;
        let (near, lan) = replies.map_err(|e| failed("sender", lan, e))?;
        let (far, wan) = answered.map_err(|e| failed("receiver", wan, e))?;
        Ok((done, ProbedRun { probes: matched(&sent, &near, &far), lan, wan }))
    })
}

/// Sets a flag when dropped.
struct Ends<'f>(&'f AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The probes and the answers to them. A second answer to the same probe does not count.
fn matched(sent: &[Duration], near: &Seen, far: &Seen) -> Vec<Probe> {
    let unanswered = |at: &Duration| Probe { at: *at, rtt: None, kernel_rtt: None, nic_rtt: None };
    let mut probes: Vec<Probe> = sent.iter().map(unanswered).collect();
    let [left, answered] = [near, far].map(|seen| first_stamps(probes.len(), seen.sent.iter().copied()));
    let received = far.received.iter().map(|(number, _, stamps)| (*number, *stamps));
    let received = first_stamps(probes.len(), received);
    for (number, arrived, stamps) in &near.received {
        let Some(probe) = probes.get_mut(*number).filter(|probe| probe.rtt.is_none()) else { continue };
        probe.rtt = Some(arrived.saturating_sub(probe.at)).filter(|rtt| *rtt <= LATEST);
        if probe.rtt.is_some() {
            let by = |clock: fn(&Stamps) -> Option<Duration>| {
                let near = [clock(&left[*number]), clock(stamps)];
                stamps::round_trip(near, [clock(&received[*number]), clock(&answered[*number])])
            };
            probe.kernel_rtt = by(|stamps| stamps.kernel);
            probe.nic_rtt = by(|stamps| stamps.nic);
        }
    }
    probes
}

/// The first stamp of each clock for each number.
fn first_stamps(numbers: usize, stamped: impl Iterator<Item = (usize, Stamps)>) -> Vec<Stamps> {
    let mut all = vec![Stamps::default(); numbers];
    for (number, stamps) in stamped {
        if let Some(first) = all.get_mut(number) {
            first.kernel = first.kernel.or(stamps.kernel);
            first.nic = first.nic.or(stamps.nic);
        }
    }
    all
}

/// Priority over the traffic: the wait for a CPU is not the router's latency. Without the right, the thread goes on as
/// it is.
fn go_first() {
    let _ = schedule::go_until_waiting(Pid::from_raw(0));
}

fn enter(ns: &NetNs) {
    ns.enter();
    go_first();
}

fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    stamps::request(&socket)?;
    Ok(socket)
}

fn send(socket: &UdpSocket, form: ProbeForm, start: Instant, over: &AtomicBool) -> io::Result<Vec<Duration>> {
    go_first();
    let (mut sent, mut due) = (Vec::new(), start);
    while !over.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let probe = form.probe(sent.len());
        sent.push(start.elapsed());
        // A full queue or a router that is gone for a moment loses the probe, which then counts as lost.
        match socket.send(&probe) {
            Err(e) if !is_passing(&e) => return Err(e),
            _ => {}
        }
        // A probe that is late must not make a burst of those behind it.
        due = (due + GAP).max(Instant::now());
    }
    Ok(sent)
}

fn collect(
    socket: &UdpSocket,
    start: Instant,
    counter: &mut Counter<'_>,
    over: &AtomicBool,
) -> io::Result<Seen> {
    let (mut seen, mut buffer) = (Seen::default(), [0; PROBE_BYTES]);
    while !over.load(Ordering::Relaxed) {
        counter.count()?;
        match stamps::receive(socket, &mut buffer) {
            Ok(reply) if reply.bytes == PROBE_BYTES => {
                seen.has_received(&buffer, start.elapsed(), reply.stamps);
            }
            Err(e) if !is_passing(&e) => return Err(e),
            _ => {}
        }
        seen.take_sent(socket)?;
    }
    Ok(seen)
}

fn answer(
    socket: &UdpSocket,
    start: Instant,
    counter: &mut Counter<'_>,
    over: &AtomicBool,
) -> io::Result<Seen> {
    let (mut seen, mut buffer) = (Seen::default(), [0; PROBE_BYTES]);
    while !over.load(Ordering::Relaxed) {
        counter.count()?;
        let answered = stamps::receive(socket, &mut buffer).and_then(|probe| {
            let Some(from) = probe.from.filter(|_| probe.bytes == PROBE_BYTES) else { return Ok(0) };
            seen.has_received(&buffer, start.elapsed(), probe.stamps);
            socket.send_to(&buffer, from)
        });
        match answered {
            Err(e) if !is_passing(&e) => return Err(e),
            _ => {}
        }
        seen.take_sent(socket)?;
    }
    Ok(seen)
}

/// Whether a later packet can still pass: the error is a timeout, a full queue or an ICMP message of the router.
fn is_passing(error: &io::Error) -> bool {
    use ErrorKind::{
        ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock,
    };
    let no_buffers = error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32);
    let passing = [ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock];
    no_buffers || passing.contains(&error.kind())
}

/// Reads the bytes that a device has received, again and again.
struct Counter<'n> {
    device: &'n str,
    start: Instant,
    due: Duration,
    counts: Vec<Counted>,
}

impl<'n> Counter<'n> {
    fn new(device: &'n str, start: Instant) -> Self {
        Self { device, start, due: Duration::ZERO, counts: Vec::new() }
    }

    /// Reads if it is time. Must be called by a thread in the namespace of the device.
    fn count(&mut self) -> io::Result<()> {
        if self.start.elapsed() < self.due {
            return Ok(());
        }
        let table = fs::read_to_string("/proc/thread-self/net/dev")?;
        let bytes = received_bytes(&table, self.device)
            .ok_or_else(|| io::Error::other(format!("{} is not in /proc/net/dev", self.device)))?;
        self.counts.push(Counted { at: self.start.elapsed(), bytes });
        self.due += COUNTED_EACH;
        Ok(())
    }
}

/// The received bytes of a device in the text of /proc/net/dev.
fn received_bytes(table: &str, device: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Stamps in ms by both clocks.
    fn stamps(kernel: u32, nic: u32) -> Stamps {
        Stamps { kernel: Some(kernel * MS), nic: Some(nic * MS) }
    }

    #[test]
    fn a_probe_has_the_time_of_its_first_answer() {
        let sent = [0, 5, 10, 15].map(|at| at * MS);
        let replies = [(0, MS), (2, 18 * MS), (0, 9 * MS), (3, 15 * MS + LATEST + MS), (99, 20 * MS)];
        let received = replies.map(|(number, at)| (number, at, Stamps::default())).to_vec();
        let near = Seen { received, ..Seen::default() };
        let rtts: Vec<_> = matched(&sent, &near, &Seen::default()).iter().map(|probe| probe.rtt).collect();
        assert_eq!(rtts, [Some(MS), None, Some(8 * MS), None]);
    }

    #[test]
    fn each_clock_gives_its_own_round_trip_and_a_missing_stamp_loses_no_probe() {
        // The program took 9 ms; the kernel's clock says 6, and the NICs' clocks, which differ by 990 ms, say 4.
        let near = Seen {
            received: vec![(0, 9 * MS, stamps(109, 58)), (1, 19 * MS, stamps(120, 70))],
            // The two clocks' stamps come back one after the other.
            sent: vec![
                (0, Stamps { nic: None, ..stamps(101, 0) }),
                (0, Stamps { kernel: None, ..stamps(0, 52) }),
                (1, Stamps { nic: None, ..stamps(110, 0) }),
            ],
        };
        let far = Seen {
            received: vec![(0, 4 * MS, stamps(104, 1042)), (1, 14 * MS, stamps(114, 1060))],
            sent: vec![(0, stamps(106, 1044)), (1, stamps(116, 1062)), (7, stamps(1, 1))],
        };
        let probes = matched(&[Duration::ZERO, 10 * MS], &near, &far);
        let by_clock: Vec<_> =
            probes.iter().map(|probe| [probe.rtt, probe.kernel_rtt, probe.nic_rtt]).collect();
        assert_eq!(by_clock[0], [9, 6, 4].map(|ms| Some(ms * MS)));
        assert_eq!(by_clock[1], [Some(9 * MS), Some(8 * MS), None]);
    }

    #[test]
    fn a_ptp_probe_is_an_event_message_that_keeps_its_number() {
        let number_70_000 = 70_000;
        let [plain, ptp] = [ProbeForm::Plain, ProbeForm::Ptp].map(|form| form.probe(number_70_000));
        for probe in [plain, ptp] {
            assert_eq!(probe.last_chunk().and_then(number), Some(number_70_000));
        }
        // Delay_Req, version 2, 64 bytes; the sequence number is the lower half of 70,000.
        assert_eq!((&ptp[..4], &ptp[30..32]), (&[1, 2, 0, 64][..], &[0x11, 0x70][..]));
        assert!(plain[..PTP_HEADER_BYTES].iter().all(|byte| *byte == 0));
        assert_eq!((ProbeForm::Plain.port(), ProbeForm::Ptp.port()), (5202, 319));
    }

    #[test]
    fn the_bytes_of_a_device_are_not_those_of_another_with_a_longer_name() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n  lan01: 7 1 0\n  lan0: 42 3 0\n";
        assert_eq!(received_bytes(table, "lan0"), Some(42));
        assert_eq!(received_bytes(table, "lan"), None);
    }
}
