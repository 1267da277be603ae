//! The worker of a router: a thread that sends, captures and makes changes. It stays on one CPU, so that packets of a
//! wire are forwarded in the order of sending.

use crate::site::Site;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use shunt_api::{Tracked, TrackedDirection};
use shunt_kernel::conntrack_table;
use shunt_testkit::{NetNs, Tap};
use shunt_wire::{Packet, Tag, Transport, encap, ones_complement_sum};
use std::{
    collections::BTreeMap,
    io::Write,
    net::SocketAddr,
    panic::resume_unwind,
    process::{Command, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

/// A frame on a wire.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) site: Site,
    pub(crate) bytes: Vec<u8>,
}

/// A request to a worker.
#[derive(Debug)]
pub(crate) enum Request {
    /// Send frames, and wait until the router has handled them.
    Send(Arc<Vec<Frame>>),
    /// Note the new site of the LAN host.
    Move(Site),
    /// Wait until the router answers this site, whose wire has come up.
    Reach(Site),
    /// Capture until no frame has come for this time.
    Linger(Duration),
    /// Read the states of all TCP connections in conntrack.
    TcpStates,
    /// Run command lines.
    Change(Arc<Vec<String>>),
    /// Run command lines, and send these frames repeatedly until this time after the commands have ended.
    ChangeWhileSending(Arc<Vec<String>>, Arc<Vec<Frame>>, Duration),
}

/// Conntrack's states of TCP connections, by the original direction's addresses and ports.
pub(crate) type TcpStates = BTreeMap<[SocketAddr; 2], String>;

/// A worker's reply.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) frames: Vec<Frame>,
    /// Errors of the command lines.
    pub(crate) failures: Vec<String>,
    /// How many times the frames were sent.
    pub(crate) rounds: usize,
    pub(crate) tcp_states: TcpStates,
}

/// A wire to a host. The tag of its VLAN is removed from captured frames, and added to frames without one, which stand
/// out then.
#[derive(Debug)]
pub(crate) struct Wire {
    tap: Tap,
    tags: Vec<Tag>,
}

impl Wire {
    pub(crate) fn new(tap: Tap, tags: &[Tag]) -> Self {
        Self { tap, tags: tags.to_vec() }
    }

    fn offer(&self, frame: &[u8]) {
        if self.tags.is_empty() {
            return self.tap.offer(frame);
        }
        let mut tagged = frame.to_vec();
        encap::push_tags(&mut tagged, &self.tags);
        self.tap.offer(&tagged);
    }

    fn waiting(&self) -> Option<Vec<u8>> {
        let mut frame = self.tap.waiting()?.bytes;
        if !encap::pop_tags(&mut frame, &self.tags) {
            encap::push_tags(&mut frame, &self.tags);
        }
        Some(frame)
    }
}

/// Marks the payload of echo requests that are sent to wait for the router.
const MARK: &[u8; 4] = b"MARK";
const ICMP: u8 = 1;
const TCP: u8 = 6;
/// How long to wait for the answer to a marker; there is none if the link is down.
const UNANSWERED: Duration = Duration::from_millis(30);

/// The external engine works next to the kernel, so a marker's answer may overtake its packets. A router with that
/// engine has handled all frames when none has left for this time.
pub(crate) const EXTERNAL_IDLE: Duration = Duration::from_millis(30);

/// How long a wire may take to come up.
const UNREACHED: Duration = Duration::from_secs(3);

/// Serves the requests for one router until the channel is closed. `idle` is how long no frame leaves a router that has
/// handled all frames; None if its markers come last.
pub(crate) fn serve(
    router: &NetNs,
    wires: Vec<Wire>,
    cpu: usize,
    idle: Option<Duration>,
    orders: &Receiver<Request>,
    answers: &Sender<Reply>,
) {
    // Command lines run in the router's namespace; the taps stay in those of the hosts.
    router.enter();
    pin(cpu);
    let mut worker = Worker { wires, idle, marked: 0, lan_at: Site::Lan };
    for order in orders {
        let answer = match order {
            Request::Send(frames) => worker.send(&frames),
            Request::Reach(site) => worker.reach(site),
            Request::Move(site) => {
                worker.lan_at = site;
                Reply::default()
            }
            Request::Linger(idle) => worker.linger(idle),
            Request::TcpStates => Reply { tcp_states: tcp_states(), ..Reply::default() },
            Request::ChangeWhileSending(lines, frames, time) => {
                worker.change_while_sending(&lines, &frames, time)
            }
            Request::Change(lines) => Reply { failures: run(&lines), ..Reply::default() },
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

fn tcp_states() -> TcpStates {
    let table = conntrack_table().unwrap_or_else(|error| panic!("{error}"));
    let entries = table.map(|entry| entry.unwrap_or_else(|error| panic!("{error}")));
    let state = |entry: Tracked| {
        let TrackedDirection { src, dst, sport, dport, .. } = entry.orig;
        Some(([SocketAddr::new(src, sport?), SocketAddr::new(dst, dport?)], entry.state?))
    };
    entries.filter(|entry| entry.protocol == TCP).filter_map(state).collect()
}

struct Worker {
    wires: Vec<Wire>,
    idle: Option<Duration>,
    marked: u32,
    lan_at: Site,
}

impl Worker {
    /// A device that is up sends nothing until a work queue has processed its carrier, at either end.
    fn reach(&mut self, site: Site) -> Reply {
        let (mut answer, since) = (Reply::default(), Instant::now());
        while self.is_there(site) && since.elapsed() < UNREACHED {
            let mut open = vec![self.mark(site)];
            let sent = Instant::now();
            while !open.is_empty() && sent.elapsed() < UNANSWERED {
                if !self.collect(&mut answer, &mut open) {
                    thread::sleep(Duration::from_micros(200));
                }
            }
            if open.is_empty() {
                break;
            }
        }
        answer
    }

    /// Whether a host is at this site. The LAN host moves between two sites.
    fn is_there(&self, site: Site) -> bool {
        site != Site::Lan || self.lan_at == Site::Lan
    }

    fn mark(&mut self, site: Site) -> (Site, u32) {
        self.marked += 1;
        self.wires[site as usize].offer(&marker(site, self.marked));
        (site, self.marked)
    }

    fn send(&mut self, frames: &[Frame]) -> Reply {
        for frame in frames {
            self.wires[frame.site as usize].offer(&frame.bytes);
        }
        // Send a marker from every site with a host: the answer comes after the frames that the router has sent there.
        let there: Vec<Site> = Site::ALL.into_iter().filter(|site| self.is_there(*site)).collect();
        let mut open: Vec<(Site, u32)> = there.into_iter().map(|site| self.mark(site)).collect();
        let mut answer = Reply::default();
        let mut last = Instant::now();
        while !open.is_empty() && last.elapsed() < UNANSWERED {
            if self.collect(&mut answer, &mut open) {
                last = Instant::now();
            } else {
                thread::sleep(Duration::from_micros(30));
            }
        }
        while self.collect(&mut answer, &mut open) {}
        if let Some(idle) = self.idle {
            answer.frames.extend(self.linger(idle).frames);
        }
        answer
    }

    fn change_while_sending(&mut self, lines: &[String], frames: &[Frame], time: Duration) -> Reply {
        thread::scope(|scope| {
            let change = scope.spawn(|| run(lines));
            let (mut answer, mut end) = (Reply::default(), None);
            while end.is_none_or(|end| Instant::now() < end) {
                if change.is_finished() {
                    end.get_or_insert_with(|| Instant::now() + time);
                }
                answer.frames.extend(self.send(frames).frames);
                answer.rounds += 1;
                thread::sleep(Duration::from_micros(500));
            }
            answer.frames.extend(self.linger(Duration::from_millis(2)).frames);
            answer.failures = change.join().unwrap_or_else(|panic| resume_unwind(panic));
            answer
        })
    }

    fn linger(&mut self, idle: Duration) -> Reply {
        let (mut answer, mut open) = (Reply::default(), Vec::new());
        let mut last = Instant::now();
        while last.elapsed() < idle {
            if self.collect(&mut answer, &mut open) {
                last = Instant::now();
            } else {
                thread::sleep(Duration::from_micros(200));
            }
        }
        answer
    }

    /// Takes all captured frames; returns whether there were any.
    fn collect(&self, answer: &mut Reply, open: &mut Vec<(Site, u32)>) -> bool {
        let mut any = false;
        for (site, wire) in Site::ALL.into_iter().zip(&self.wires) {
            while let Some(bytes) = wire.waiting() {
                any = true;
                match answered(&bytes) {
                    Some(number) => open.retain(|mark| *mark != (site, number)),
                    None => answer.frames.push(Frame { site, bytes }),
                }
            }
        }
        any
    }
}

fn marker(site: Site, number: u32) -> Vec<u8> {
    let mut echo = [&[8, 0, 0, 0, 0, 1, 0, 1], &MARK[..], &number.to_be_bytes()].concat();
    let sum = !ones_complement_sum(&echo);
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    Packet::between(site.address(false), site.gateway(false), Transport::Other(ICMP))
        .macs(site.mac(), site.gateway_mac())
        .payload(echo)
        .to_bytes()
}

/// The number of the marker that a frame answers.
fn answered(frame: &[u8]) -> Option<u32> {
    let marked = frame.len() == 50 && frame[23] == ICMP && frame[34] == 0 && &frame[42..46] == MARK;
    marked.then(|| u32::from_be_bytes([frame[46], frame[47], frame[48], frame[49]]))
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    let count = thread::available_parallelism().map_or(1, usize::from);
    if cpus.set(cpu % count).is_ok() {
        // If the machine does not permit it, packets may be reordered, and the oracle reports that.
        let _ = sched_setaffinity(Pid::from_raw(0), &cpus);
    }
}

/// Runs command lines, consecutive lines of one tool in one process. Returns the errors.
fn run(lines: &[String]) -> Vec<String> {
    let mut failures = Vec::new();
    for group in lines.chunk_by(|a, b| tool(a).0 == tool(b).0) {
        let (name, _) = tool(&group[0]);
        let input: Vec<&str> = group.iter().map(|line| tool(line).1).collect();
        let text = match name {
            "nft" => run_tool(&["nft", "-f", "-"], &input),
            "ip" => run_tool(&["ip", "-force", "-batch", "-"], &input),
            "ip -6" => run_tool(&["ip", "-6", "-force", "-batch", "-"], &input),
            "tc" => run_tool(&["tc", "-force", "-batch", "-"], &input),
            "bridge" => run_tool(&["bridge", "-force", "-batch", "-"], &input),
            _ => run_tool(&["sh"], &group.iter().map(String::as_str).collect::<Vec<_>>()),
        };
        failures.extend(text);
    }
    failures
}

fn tool(line: &str) -> (&str, &str) {
    match line.strip_prefix("ip -6 ") {
        Some(rest) => ("ip -6", rest),
        None => line.split_once(' ').unwrap_or((line, "")),
    }
}

fn run_tool(command: &[&str], input: &[&str]) -> Option<String> {
    let run = || {
        let mut process = Command::new(command[0]);
        process.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = process.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(format!("{}\n", input.join("\n")).as_bytes())?;
        }
        child.wait_with_output()
    };
    match run() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("{input:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) => Some(format!("{command:?}: {e}")),
    }
}
