//! A thread per router that sends, captures, and makes changes. It is on one CPU, so that packets of one wire are
//! forwarded in the order in which they were sent.

use crate::site::Site;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use shunt_testkit::{NetNs, Tap};
use shunt_wire::{Packet, Tag, Transport, ones_complement_sum};
use std::{
    io::Write,
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

/// What a lane is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send these, and wait until the router has dealt with them.
    Send(Arc<Vec<Frame>>),
    /// The LAN host is at this site from now on.
    Move(Site),
    /// Wait until the router answers this site, whose wire has been put up.
    Reach(Site),
    /// Capture until nothing has come for so long.
    Linger(Duration),
    /// Run these command lines.
    Change(Arc<Vec<String>>),
    /// Run these command lines, and send these frames again and again meanwhile and for so long after it.
    Amid(Arc<Vec<String>>, Arc<Vec<Frame>>, Duration),
}

/// What it answers.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) frames: Vec<Frame>,
    /// What failed of the command lines.
    pub(crate) failures: Vec<String>,
    /// How often the frames were sent.
    pub(crate) rounds: usize,
}

/// A wire to a host. Frames of its VLAN are known here without their tag, and those without one have one too many.
#[derive(Debug)]
pub(crate) struct Wire {
    tap: Tap,
    tag: Vec<u8>,
}

/// Behind both MACs.
const TAG_AT: usize = 12;

impl Wire {
    pub(crate) fn new(tap: Tap, tags: &[Tag]) -> Self {
        let tag = tags.iter().flat_map(|tag| [tag.tpid.to_be_bytes(), tag.vid.to_be_bytes()]);
        Self { tap, tag: tag.flatten().collect() }
    }

    fn offer(&self, frame: &[u8]) {
        if self.tag.is_empty() {
            return self.tap.offer(frame);
        }
        let (macs, rest) = frame.split_at(TAG_AT);
        self.tap.offer(&[macs, &self.tag, rest].concat());
    }

    fn waiting(&self) -> Option<Vec<u8>> {
        let mut frame = self.tap.waiting()?.bytes;
        let behind_tag = TAG_AT + self.tag.len();
        if frame.get(TAG_AT..behind_tag) == Some(&self.tag[..]) {
            frame.drain(TAG_AT..behind_tag);
        } else {
            frame.splice(TAG_AT..TAG_AT, self.tag.iter().copied());
        }
        Some(frame)
    }
}

/// The mark of an echo request that only tells the router's answer from others.
const MARK: &[u8; 4] = b"MARK";
const ICMP: u8 = 1;
/// A marker that is not answered (the link is down) is not waited for any longer.
const UNANSWERED: Duration = Duration::from_millis(30);

/// After so long a wire is broken.
const UNREACHED: Duration = Duration::from_secs(3);

/// Serves one router until nobody gives orders any more.
pub(crate) fn serve(
    router: &NetNs,
    wires: Vec<Wire>,
    cpu: usize,
    orders: &Receiver<Order>,
    answers: &Sender<Answer>,
) {
    // Its command lines run there; the wires' taps stay where they are.
    router.enter();
    pin(cpu);
    let mut lane = Lane { wires, marked: 0, lan_at: Site::Lan };
    for order in orders {
        let answer = match order {
            Order::Send(frames) => lane.send(&frames),
            Order::Reach(site) => lane.reach(site),
            Order::Move(site) => {
                lane.lan_at = site;
                Answer::default()
            }
            Order::Linger(idle) => lane.linger(idle),
            Order::Amid(lines, frames, time) => lane.amid(&lines, &frames, time),
            Order::Change(lines) => Answer { failures: run(&lines), ..Answer::default() },
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

struct Lane {
    wires: Vec<Wire>,
    marked: u32,
    lan_at: Site,
}

impl Lane {
    /// A device that is up sends nothing until a work queue has heard of its carrier, at either end.
    fn reach(&mut self, site: Site) -> Answer {
        let (mut answer, since) = (Answer::default(), Instant::now());
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

    /// Whether a host is at this site: that of the LAN may be elsewhere.
    fn is_there(&self, site: Site) -> bool {
        site != Site::Lan || self.lan_at == Site::Lan
    }

    fn mark(&mut self, site: Site) -> (Site, u32) {
        self.marked += 1;
        self.wires[site as usize].offer(&marker(site, self.marked));
        (site, self.marked)
    }

    fn send(&mut self, frames: &[Frame]) -> Answer {
        for frame in frames {
            self.wires[frame.site as usize].offer(&frame.bytes);
        }
        // From every site where a host is: the answer comes behind what the router has sent there, so that no wire fills up.
        let there: Vec<Site> = Site::ALL.into_iter().filter(|site| self.is_there(*site)).collect();
        let mut open: Vec<(Site, u32)> = there.into_iter().map(|site| self.mark(site)).collect();
        let mut answer = Answer::default();
        let mut last = Instant::now();
        while !open.is_empty() && last.elapsed() < UNANSWERED {
            if self.collect(&mut answer, &mut open) {
                last = Instant::now();
            } else {
                thread::sleep(Duration::from_micros(30));
            }
        }
        while self.collect(&mut answer, &mut open) {}
        answer
    }

    fn amid(&mut self, lines: &[String], frames: &[Frame], time: Duration) -> Answer {
        thread::scope(|scope| {
            let change = scope.spawn(|| run(lines));
            let (mut answer, mut end) = (Answer::default(), None);
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

    fn linger(&mut self, idle: Duration) -> Answer {
        let (mut answer, mut open) = (Answer::default(), Vec::new());
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

    /// Takes what is there; whether anything was.
    fn collect(&self, answer: &mut Answer, open: &mut Vec<(Site, u32)>) -> bool {
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
        // Where the machine does not allow it, order is at stake, and the oracle will say so.
        let _ = sched_setaffinity(Pid::from_raw(0), &cpus);
    }
}

/// Runs command lines; neighbours of one tool in one process. What it says of failures.
fn run(lines: &[String]) -> Vec<String> {
    let mut failures = Vec::new();
    for group in lines.chunk_by(|a, b| tool(a).0 == tool(b).0) {
        let (name, _) = tool(&group[0]);
        let input: Vec<&str> = group.iter().map(|line| tool(line).1).collect();
        let said = match name {
            "nft" => fed(&["nft", "-f", "-"], &input),
            "ip" => fed(&["ip", "-force", "-batch", "-"], &input),
            "ip -6" => fed(&["ip", "-6", "-force", "-batch", "-"], &input),
            "tc" => fed(&["tc", "-force", "-batch", "-"], &input),
            "bridge" => fed(&["bridge", "-force", "-batch", "-"], &input),
            _ => fed(&["sh"], &group.iter().map(String::as_str).collect::<Vec<_>>()),
        };
        failures.extend(said);
    }
    failures
}

fn tool(line: &str) -> (&str, &str) {
    match line.strip_prefix("ip -6 ") {
        Some(rest) => ("ip -6", rest),
        None => line.split_once(' ').unwrap_or((line, "")),
    }
}

fn fed(command: &[&str], input: &[&str]) -> Option<String> {
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
