//! UDP probes that the far host answers, and the bytes that arrive at both hosts meanwhile.

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
/// Longest time that a thread waits for a probe before it looks whether it must end.
const PATIENCE: Duration = Duration::from_millis(20);
/// Probes that are answered later than this count as lost.
const LATEST: Duration = Duration::from_secs(1);
/// Time between two looks at the received bytes. It is short against the intervals of the curves, whose bounds lie
/// between two looks.
const COUNTED_EACH: Duration = Duration::from_millis(20);
const PROBE_BYTES: usize = 64;

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
    /// The time until the answer; None if there was none.
    pub(super) rtt: Option<Duration>,
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
    start: Instant,
    work: impl FnOnce() -> T,
) -> Result<(T, ProbedRun), Error> {
    let to = SocketAddr::new(wan.address(v6)?, PORT);
    let failed = |what: &str, host: &End<'_>, e: io::Error| {
        Error::Machine(format!("{what} of the probes at {}: {e}", host.nic))
    };
    let answering = wan.ns.within(|| socket(to)).map_err(|e| failed("receiver", wan, e))?;
    let any = SocketAddr::new(lan.address(v6)?, 0);
    let sending = lan.ns.within(|| socket(any)).map_err(|e| failed("sender", lan, e))?;
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
            answer(answering, &mut wan_counter, stop).map(|()| wan_counter.counts)
        });
        let replies = scope.spawn(move || {
            enter(lan_ns);
            collect(sending, start, &mut lan_counter, stop).map(|replies| (replies, lan_counter.counts))
        });
        let sender = scope.spawn(move || send(sending, start, stop_sending));
        let done = work();
        stop_sending.store(true, Ordering::Relaxed);
        let sent = joined(sender);
        thread::sleep(LATEST);
        stop.store(true, Ordering::Relaxed);
        let (replies, answered) = (joined(replies), joined(answers));
        let sent = sent.map_err(|e| failed("sender", lan, e))?;
        let (replies, lan) = replies.map_err(|e| failed("sender", lan, e))?;
        let wan = answered.map_err(|e| failed("receiver", wan, e))?;
        Ok((done, ProbedRun { probes: matched(&sent, &replies), lan, wan }))
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
fn matched(sent: &[Duration], replies: &[(usize, Duration)]) -> Vec<Probe> {
    let mut probes: Vec<Probe> = sent.iter().map(|at| Probe { at: *at, rtt: None }).collect();
    for (number, arrived) in replies {
        if let Some(probe) = probes.get_mut(*number).filter(|probe| probe.rtt.is_none()) {
            probe.rtt = Some(arrived.saturating_sub(probe.at)).filter(|rtt| *rtt <= LATEST);
        }
    }
    probes
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
    Ok(socket)
}

fn send(socket: &UdpSocket, start: Instant, over: &AtomicBool) -> io::Result<Vec<Duration>> {
    go_first();
    let (mut sent, mut due) = (Vec::new(), start);
    while !over.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut probe = [0; PROBE_BYTES];
        probe[..8].copy_from_slice(&(sent.len() as u64).to_be_bytes());
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
) -> io::Result<Vec<(usize, Duration)>> {
    let (mut replies, mut buffer) = (Vec::new(), [0; PROBE_BYTES]);
    while !over.load(Ordering::Relaxed) {
        counter.count()?;
        match socket.recv(&mut buffer) {
            Ok(PROBE_BYTES) => {
                let number = u64::from_be_bytes(buffer[..8].try_into().unwrap_or_default());
                replies.push((number as usize, start.elapsed()));
            }
            Err(e) if !is_passing(&e) => return Err(e),
            _ => {}
        }
    }
    Ok(replies)
}

fn answer(socket: &UdpSocket, counter: &mut Counter<'_>, over: &AtomicBool) -> io::Result<()> {
    let mut buffer = [0; PROBE_BYTES];
    while !over.load(Ordering::Relaxed) {
        counter.count()?;
        let answered =
            socket.recv_from(&mut buffer).and_then(|(bytes, from)| socket.send_to(&buffer[..bytes], from));
        match answered {
            Err(e) if !is_passing(&e) => return Err(e),
            _ => {}
        }
    }
    Ok(())
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

    #[test]
    fn a_probe_has_the_time_of_its_first_answer() {
        let ms = Duration::from_millis;
        let sent = [ms(0), ms(5), ms(10), ms(15)];
        let replies = [(0, ms(1)), (2, ms(18)), (0, ms(9)), (3, ms(15) + LATEST + ms(1)), (99, ms(20))];
        let rtts: Vec<_> = matched(&sent, &replies).iter().map(|probe| probe.rtt).collect();
        assert_eq!(rtts, [Some(ms(1)), None, Some(ms(8)), None]);
    }

    #[test]
    fn the_bytes_of_a_device_are_not_those_of_another_with_a_longer_name() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n  lan01: 7 1 0\n  lan0: 42 3 0\n";
        assert_eq!(received_bytes(table, "lan0"), Some(42));
        assert_eq!(received_bytes(table, "lan"), None);
    }
}
