//! Random frames and steps of the scheduler, and this machine's results. The format is that of
//! `bpf/external/companion/vectors.c`.

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use shunt_bpf::{
    Entry, Key, Size,
    abi::{self, Plain},
    wire::flow_between,
};
use shunt_wire::{Packet, Tag, Tcp};
use shunt_xsk::{
    Outcome, Tables,
    sched::{ClassConfig, MarkRule, Next, Policer, SchedConfig, Scheduler},
};
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

const OP_CONTROL: u32 = 1;
const OP_FLOW: u32 = 2;
const OP_FRAME: u32 = 3;
const OP_SCHEDULER: u32 = 4;
const OP_ENQUEUE: u32 = 5;
const OP_DEQUEUE: u32 = 6;
const OP_CONFIGURE: u32 = 7;
const OP_POLICE: u32 = 8;
/// Steps of the scheduler between changes of its configuration, and packets of the policer between changes of its rate.
const CHANGES: u32 = 500;
/// Sizes of the program's tables.
const SIZE: Size = Size { max_flows: 1024, seed: 0x1234_5678_9abc_def0 };
const ITEMS: u32 = 256;
const FLOWS: u32 = 400;
const IFINDEX: u32 = 7;
const OUT: u8 = 40;
const NOW: u64 = 0x1_ffff_fff0;

/// An answer, and what was asked.
struct Expected {
    question: String,
    bytes: Vec<u8>,
}

/// The input of the program, and what it must answer.
pub struct Vectors {
    pub input: Vec<u8>,
    expected: Vec<Expected>,
    forwarded: u32,
    frames: u32,
    steps: u32,
}

impl Vectors {
    /// Random vectors.
    pub fn new(seed: u64, count: u32) -> anyhow::Result<Self> {
        let mut vectors =
            Self { input: Vec::new(), expected: Vec::new(), forwarded: 0, frames: count, steps: count };
        let mut random = Rng::with_seed(seed);
        vectors.add_frames(&mut random)?;
        vectors.add_steps(&mut random)?;
        vectors.add_policed(&mut random)?;
        ensure!(vectors.forwarded * 3 > count, "only {} frames are forwarded", vectors.forwarded);
        Ok(vectors)
    }

    /// Compares all answers.
    pub fn compare(&self, mut got: &[u8]) -> anyhow::Result<()> {
        for (number, Expected { question, bytes }) in self.expected.iter().enumerate() {
            let (answer, rest) =
                got.split_at_checked(bytes.len()).context("the program answers too little")?;
            if answer != bytes {
                bail!("vector {number}, {question}: {answer:02x?}, but here {bytes:02x?}");
            }
            got = rest;
        }
        ensure!(got.is_empty(), "the program answers {} bytes too many", got.len());
        Ok(())
    }

    fn ask(&mut self, op: u32, parts: &[&[u8]]) {
        self.input.extend_from_slice(&op.to_le_bytes());
        parts.iter().for_each(|part| self.input.extend_from_slice(part));
    }

    fn add_frames(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let mut tables = Tables::new(SIZE);
        tables.change_control(|control| {
            (control.epoch, control.heartbeat_ticks, control.heartbeat_max_ticks) = (7, NOW, 1000);
            (control.reprove_ticks, control.prove_ticks) = (100, 200);
            control.flags = abi::CONTROL_STATICS | abi::CONTROL_VERIFY_XDP | abi::CONTROL_VERIFY_LONG;
        });
        self.ask(OP_CONTROL, &[tables.control().bytes()]);
        let packets: Vec<_> = (0..FLOWS).map(|number| packet(number, random)).collect();
        for before in &packets {
            let (key, entry) = learned(before, random).context("a flow cannot be expressed")?;
            tables.put(&key, &entry)?;
            let (family, mut bytes) = match &key {
                Key::V4(key) => (4u32, key.bytes().to_vec()),
                Key::V6(key) => (6, key.bytes().to_vec()),
            };
            bytes.resize(48 + 4, 0);
            // The home CPU that `put` sets.
            let flow = abi::Flow { home_cpu: abi::ENGINE_CPU, ..entry.flow };
            self.ask(OP_FLOW, &[&family.to_le_bytes(), &bytes, flow.bytes(), &entry.to]);
        }
        for number in 0..self.frames {
            let mut frame = packets[random.usize(..packets.len())].to_bytes();
            if random.u8(..3) == 0 {
                let at = random.usize(..frame.len().min(80));
                frame[at] ^= 1 << random.u8(..8);
            }
            if random.u8(..8) == 0 {
                frame.truncate(random.usize(..=frame.len()));
            }
            if random.u8(..8) == 0 {
                frame.resize(frame.len() + random.usize(..20), 0);
            }
            let reachable = if random.u8(..20) == 0 { 0 } else { 1u64 << OUT };
            let now = NOW + u64::from(number / 50);
            self.ask(
                OP_FRAME,
                &[
                    &reachable.to_le_bytes(),
                    &now.to_le_bytes(),
                    &IFINDEX.to_le_bytes(),
                    &(frame.len() as u32).to_le_bytes(),
                    &frame,
                ],
            );
            let answer = match tables.forward(&[&frame], IFINDEX, reachable, now).remove(0) {
                Outcome::Forwarded(_, sent) => {
                    self.forwarded += 1;
                    [&0u32.to_le_bytes()[..], &(sent.len() as u32).to_le_bytes(), &sent].concat()
                }
                Outcome::Slow(why) => [(why as u32).to_le_bytes(), [0; 4]].concat(),
            };
            self.expected.push(Expected { question: format!("frame {frame:02x?}"), bytes: answer });
        }
        Ok(())
    }

    fn add_steps(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let config = scheduler_config();
        let mut scheduler = Scheduler::new(&config, ITEMS)?;
        self.ask(OP_SCHEDULER, &[config.bytes()]);
        let mut now_ns = 1u64 << 33;
        for step in 0..self.steps {
            now_ns += random.u64(..200_000);
            if step % CHANGES == CHANGES - 1 {
                let config = changed_config(random);
                self.ask(OP_CONFIGURE, &[config.bytes()]);
                scheduler.configure(&config)?;
                self.expected.push(Expected {
                    question: format!("new configuration at step {step}"),
                    bytes: 1u32.to_le_bytes().to_vec(),
                });
            }
            let question = format!("step {step} of the scheduler at {now_ns} ns");
            let bytes = if random.u8(..5) < 3 {
                let (bytes, dscp, mark) = (random.u32(60..1515), random.u8(..64), random.u32(..4));
                self.ask(
                    OP_ENQUEUE,
                    &[
                        &u64::from(step).to_le_bytes(),
                        &now_ns.to_le_bytes(),
                        &bytes.to_le_bytes(),
                        &u32::from(dscp).to_le_bytes(),
                        &mark.to_le_bytes(),
                        &[0; 4],
                    ],
                );
                u32::from(scheduler.enqueue(step.into(), bytes, dscp, mark, now_ns)).to_le_bytes().to_vec()
            } else {
                self.ask(OP_DEQUEUE, &[&now_ns.to_le_bytes()]);
                let (handle, wake_ns, verdict) = match scheduler.dequeue(now_ns) {
                    Next::Empty => (0, 0, 0u32),
                    Next::Wait(until_ns) => (0, until_ns, 1),
                    Next::Send(item) => (item.handle, 0, 2),
                    Next::Dropped(item) => (item.handle, 0, 3),
                };
                [&handle.to_le_bytes()[..], &wake_ns.to_le_bytes(), &verdict.to_le_bytes(), &[0; 4]].concat()
            };
            self.expected.push(Expected { question, bytes });
        }
        let dropped: u64 = (0..4).map(|class| scheduler.counters(class).dropped_codel).sum();
        ensure!(self.steps < 1000 || dropped > 0, "CoDel drops nothing");
        Ok(())
    }

    fn add_policed(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let mut policer = Policer::new(1_000_000, 10_000);
        let (mut now_ns, mut passed) = (1u64 << 33, 0);
        for number in 0..self.steps {
            now_ns += random.u64(..1_500_000);
            let (mut rate, mut burst) = (0, 0);
            if number % CHANGES == 0 {
                (rate, burst) = (random.u64(500_000..1_500_000), random.u32(2_000..20_000));
                policer.set(rate, burst);
            }
            let bytes = random.u32(60..1515);
            self.ask(
                OP_POLICE,
                &[&rate.to_le_bytes(), &now_ns.to_le_bytes(), &burst.to_le_bytes(), &bytes.to_le_bytes()],
            );
            let passes = policer.passes(bytes, now_ns);
            passed += u32::from(passes);
            let question = format!("policed packet {number} at {now_ns} ns");
            self.expected.push(Expected { question, bytes: u32::from(passes).to_le_bytes().to_vec() });
        }
        let some = self.steps / 20..self.steps - self.steps / 20;
        ensure!(some.contains(&passed), "{passed} of {} packets pass the policer", self.steps);
        Ok(())
    }
}

impl fmt::Display for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{0} frames ({1} forwarded), {2} scheduler steps, {2} policed packets",
            self.frames, self.forwarded, self.steps
        )
    }
}

fn scheduler_config() -> SchedConfig {
    let mut config = SchedConfig {
        bytes_per_s: 4_000_003,
        burst_bytes: 3000,
        overhead_bytes: 24,
        classes: 4,
        default_class: 3,
        ..SchedConfig::default()
    };
    for (number, (priority, quantum)) in [(0, 1514), (1, 1514), (1, 4542), (2, 300)].into_iter().enumerate() {
        config.class_config[number] =
            ClassConfig { priority, quantum, limit_bytes: 60_000, target_us: 5000, interval_us: 20_000 };
    }
    for (dscp, class) in config.dscp_class.iter_mut().enumerate() {
        *class = (dscp % 5) as u8;
    }
    config.mark_rules[0] = MarkRule { mark: 3, mask: 0xff, class_id: 1 };
    config
}

/// Another configuration, with fewer classes or as many.
fn changed_config(random: &mut Rng) -> SchedConfig {
    let mut config = scheduler_config();
    config.classes = random.u32(2..=4);
    config.default_class = random.u32(..config.classes);
    config.bytes_per_s = random.u64(2_000_000..6_000_000);
    for dscp in &mut config.dscp_class {
        *dscp = random.u8(..=config.classes as u8);
    }
    config.mark_rules[0].class_id = random.u32(..config.classes);
    config
}

/// A packet of a flow of its own, with any tags.
fn packet(number: u32, random: &mut Rng) -> Packet {
    let port = 1024 + number as u16;
    let (from, to) = if random.bool() {
        let to = SocketAddr::from((Ipv4Addr::new(198, 18, 0, 2), 443));
        (SocketAddr::from((Ipv4Addr::from(random.u32(0x0a00_0000..0x0aff_ffff)), port)), to)
    } else {
        let to = SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2), 443));
        (SocketAddr::from((Ipv6Addr::from(random.u128(..)), port)), to)
    };
    let packet =
        if random.bool() { Packet::udp_between(from, to) } else { Packet::tcp_between(from, to, Tcp::ACK) };
    let payload: Vec<u8> = (0..random.usize(..300)).map(|_| random.u8(..)).collect();
    packet.payload(payload).with_tags(&tags(random))
}

fn tags(random: &mut Rng) -> Vec<Tag> {
    let all = [vec![], vec![], vec![Tag::vlan(10)], vec![Tag::service(20), Tag::vlan(30)]];
    all[random.usize(..all.len())].clone()
}

/// The flow that changes a packet in any way: routed or bridged, translated or not, static or learned.
fn learned(before: &Packet, random: &mut Rng) -> Option<(Key, Entry)> {
    let mut after = before.clone().with_tags(&tags(random));
    if random.bool() {
        after = after.with_hop_limit(before.hop_limit()? - 1);
    }
    if random.bool() {
        let source = before.source()?;
        let ip = if source.is_ipv4() {
            Ipv4Addr::from(random.u32(..)).into()
        } else {
            Ipv6Addr::from(random.u128(..)).into()
        };
        after = after.with_source(SocketAddr::new(ip, random.u16(..)));
    }
    let (key, mut entry) = flow_between(before, &after, IFINDEX)?;
    entry.flow.out_slot = OUT.into();
    if random.u8(..4) > 0 {
        entry.flow.flags &= !abi::FLOW_STATIC;
        entry.flow.epoch = if random.u8(..30) == 0 { 6 } else { 7 };
        entry.flow.reprove_at_ticks = (NOW as u32).wrapping_add(random.u32(20..300));
        entry.flow.prove_by_ticks = entry.flow.reprove_at_ticks.wrapping_add(100);
    }
    Some((key, entry))
}
