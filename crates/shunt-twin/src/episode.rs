//! A plan, carried out on two routers at once.

use crate::{
    amid::{self, Way},
    change::{Change, Subject},
    compare::{Comparison, Discrepancy, Side},
    flow::Speech,
    lane::{self, Answer, Frame, Order},
    packet::{Course, Identity, Intent, Shape},
    plan::{Plan, Step},
    router::{Daemon, Router},
    site::Site,
};
use fastrand::Rng;
use shunt_wire::Mac;
use std::{
    collections::BTreeMap,
    mem,
    panic::resume_unwind,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

/// How an episode is carried out.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    /// None leaves Shunt out.
    pub(crate) engine: Option<String>,
    pub(crate) reaction: Duration,
    /// The changes of rules and sets are made on the reference only.
    pub(crate) one_sided: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) packets: u64,
    pub(crate) eligible: u64,
    pub(crate) compared: u64,
    pub(crate) unasked: u64,
    pub(crate) fast: u64,
    /// Those that were sent during changes, which do not count.
    fast_amid: u64,
    pub(crate) changes: BTreeMap<Subject, u64>,
    pub(crate) shapes: BTreeMap<crate::packet::Shape, u64>,
    pub(crate) found: Vec<(usize, Discrepancy)>,
    /// Command lines that failed on one router only.
    pub(crate) uneven: Vec<String>,
    pub(crate) reordered: u64,
    pub(crate) reordered_reproof: u64,
    pub(crate) within_reaction: u64,
    pub(crate) reasons: BTreeMap<String, u64>,
}

impl Outcome {
    pub(crate) fn is_bad(&self) -> bool {
        !self.found.is_empty() || !self.uneven.is_empty()
    }
}

/// When nothing has come for so long, nothing will; what is missing then may be late on a busy machine.
const IDLE: Duration = Duration::from_millis(40);
const LATE: Duration = Duration::from_millis(400);
/// Marks the numbers of packets that are sent during changes.
const PROBE: u32 = 1 << 31;
/// After so many, the routers have gone different ways.
const ENOUGH: usize = 20;

/// A lane, from the outside.
struct Hand {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
}

impl Hand {
    fn tell(&self, order: Order) {
        self.orders.send(order).unwrap_or_else(|_| panic!("a lane has ended"));
    }

    fn hear(&self) -> Answer {
        self.answers.recv().unwrap_or_else(|_| panic!("a lane has ended"))
    }
}

/// Carries out a plan; stops early when too much is found.
pub(crate) fn carry_out(plan: &Plan, manner: &Manner) -> Outcome {
    let [reference, subject] = thread::scope(|scope| {
        let reference = scope.spawn(|| Router::new(&plan.flows, plan.wires));
        let subject = Router::new(&plan.flows, plan.wires);
        [reference.join().unwrap_or_else(|panic| resume_unwind(panic)), subject]
    });
    let daemon = manner.engine.as_ref().map(|engine| Daemon::start(subject.netns(), engine));
    thread::scope(|scope| {
        let hands: Vec<Hand> = [&reference, &subject]
            .into_iter()
            .enumerate()
            .map(|(cpu, router)| {
                let ((orders, ordered), (answer, answers)) = (channel(), channel());
                let wires = router.wires();
                scope.spawn(move || lane::serve(router.netns(), wires, cpu, &ordered, &answer));
                Hand { orders, answers }
            })
            .collect();
        let run = Run {
            plan,
            manner,
            hands: &hands,
            daemon,
            courses: vec![Course::default(); plan.flows.len()],
            comparison: Comparison::default(),
            lan_at: Site::Lan,
            recent: Vec::new(),
            outcome: Outcome::default(),
        };
        run.all()
    })
}

struct Run<'a> {
    plan: &'a Plan,
    manner: &'a Manner,
    hands: &'a [Hand],
    daemon: Option<Daemon<'a>>,
    courses: Vec<Course>,
    comparison: Comparison,
    lan_at: Site,
    /// The last round.
    recent: Vec<Intent>,
    outcome: Outcome,
}

impl Run<'_> {
    fn all(mut self) -> Outcome {
        self.hello(&[Site::Lan, Site::Lan2].map(|site| (site, site.mac())));
        for (number, step) in self.plan.steps.iter().enumerate() {
            match step {
                Step::Round(intents) => self.round(intents),
                Step::Change(change) => self.change(number, change),
            }
            self.settle(number);
            if self.outcome.found.len() >= ENOUGH {
                break;
            }
        }
        self.outcome.compared = self.comparison.compared;
        self.outcome.eligible = self.comparison.eligible;
        self.outcome.unasked = self.comparison.unasked;
        if let Some(daemon) = &self.daemon {
            self.outcome.fast = daemon.fast() - self.outcome.fast_amid;
            self.outcome.reasons = daemon.reasons();
        }
        self.outcome
    }

    fn round(&mut self, intents: &[Intent]) {
        self.recent = intents.to_vec();
        let mut frames = Vec::new();
        for intent in intents {
            let flow = &self.plan.flows[usize::from(intent.flow)];
            let course = &mut self.courses[usize::from(intent.flow)];
            // A packet of its own whatever was left out before it.
            let mut rng = Rng::with_seed(self.plan.seed ^ u64::from(intent.number) << 20);
            let made = intent.frames(flow, course, self.lan_at, &mut rng);
            if !made.is_empty() {
                self.outcome.packets += 1;
                *self.outcome.shapes.entry(intent.shape).or_default() += 1;
            }
            frames.extend(made);
        }
        let frames = Arc::new(frames);
        self.both(|| Order::Send(Arc::clone(&frames)));
    }

    fn change(&mut self, step: usize, change: &Change) {
        *self.outcome.changes.entry(change.subject).or_default() += 1;
        if let Some(daemon) = self.daemon.as_mut().filter(|_| change.subject == Subject::Daemon) {
            daemon.crash();
        }
        let commands = Arc::new(change.commands.clone());
        let one_sided = self.manner.one_sided && matches!(change.subject, Subject::Rule | Subject::Set);
        let of_subject = if one_sided { Arc::default() } else { Arc::clone(&commands) };
        let reaction = self.manner.reaction;
        let probes = if change.is_at_once() { self.probes() } else { Vec::new() };
        let failures = if probes.is_empty() || one_sided {
            self.hands[0].tell(Order::Change(commands));
            self.hands[1].tell(Order::Change(of_subject));
            self.hands.iter().map(|hand| hand.hear().failures).collect()
        } else {
            self.change_amid(step, probes, commands, reaction)
        };
        if failures[0] != failures[1] && !one_sided {
            self.outcome.uneven.push(format!("{failures:?}"));
        }
        if let Some(site) = change.raises {
            self.both(|| Order::Reach(site));
        }
        if let Some(site) = change.moves {
            self.lan_at = site;
            self.both(|| Order::Move(site));
            self.hello(&[(site, Site::Lan.mac())]);
        }
        if let Some(host) = change.announces {
            self.hello(&[host]);
        }
        self.both(|| Order::Linger(Duration::ZERO));
        thread::sleep(reaction);
    }

    /// Makes a change while packets are under way through the subject. What Linux alone makes of them before, and twice after
    /// (the first may only end what was before), is what they may become.
    fn change_amid(
        &mut self,
        step: usize,
        probes: Vec<(u32, Frame)>,
        commands: Arc<Vec<String>>,
        reaction: Duration,
    ) -> Vec<Vec<String>> {
        let (numbers, frames): (Vec<u32>, Vec<Frame>) = probes.into_iter().unzip();
        let frames = Arc::new(frames);
        let reference = &self.hands[0];
        let way = || {
            reference.tell(Order::Send(Arc::clone(&frames)));
            let mut left = reference.hear().frames;
            reference.tell(Order::Linger(Duration::from_millis(2)));
            left.extend(reference.hear().frames);
            Way::of(left)
        };
        let fast = || self.daemon.as_ref().map_or(0, Daemon::fast);
        let (before, fast_before) = (way(), fast());
        reference.tell(Order::Change(Arc::clone(&commands)));
        self.hands[1].tell(Order::Amid(commands, Arc::clone(&frames), reaction));
        let failed = reference.hear().failures;
        let ways = [before, way(), way()];
        let answer = self.hands[1].hear();
        let found = amid::judge(&ways, &numbers, answer.rounds, &Way::of(answer.frames));
        self.outcome.fast_amid += fast() - fast_before;
        self.outcome.within_reaction += (numbers.len() * answer.rounds) as u64;
        self.outcome.found.extend(found.into_iter().map(|discrepancy| (step, discrepancy)));
        vec![failed, answer.failures]
    }

    /// A UDP packet of each of the flows that were busy last. Of a flow one direction only: its packets must not meet
    /// each other's traces.
    fn probes(&mut self) -> Vec<(u32, Frame)> {
        let mut probes = Vec::new();
        for intent in mem::take(&mut self.recent) {
            let flow = &self.plan.flows[usize::from(intent.flow)];
            if !matches!(flow.speech, Speech::Udp | Speech::OneWay) || intent.shape != Shape::Plain {
                continue;
            }
            let number = intent.number | PROBE;
            let intent = Intent { number, size: 12, ..intent };
            let mut rng = Rng::with_seed(u64::from(number));
            let course = &mut self.courses[usize::from(intent.flow)];
            let frames = intent.frames(flow, course, self.lan_at, &mut rng);
            probes.extend(frames.into_iter().map(|frame| (number, frame)));
        }
        probes.dedup_by_key(|(_, frame)| Identity::of(&frame.bytes).map(|identity| identity.flow));
        probes
    }

    /// Broadcasts that only tell bridges where hosts are.
    fn hello(&mut self, hosts: &[(Site, Mac)]) {
        let frame = |(site, mac): &(Site, Mac)| {
            let mut bytes = vec![0xff; 60];
            bytes[6..12].copy_from_slice(&mac.0);
            bytes[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
            Frame { site: *site, bytes }
        };
        let frames = Arc::new(hosts.iter().map(frame).collect());
        self.both(|| Order::Send(Arc::clone(&frames)));
    }

    /// Gives both lanes an order, and takes what they answer.
    fn both(&mut self, order: impl Fn() -> Order) {
        for hand in self.hands {
            hand.tell(order());
        }
        for (side, hand) in [Side::Reference, Side::Subject].into_iter().zip(self.hands) {
            for frame in hand.hear().frames {
                if side == Side::Reference {
                    self.learn(&frame);
                }
                self.comparison.add(side, frame);
            }
        }
    }

    /// Remembers how a flow looks behind the router.
    fn learn(&mut self, frame: &Frame) {
        let Some(identity) = Identity::of(&frame.bytes).filter(|identity| identity.shows) else { return };
        let Some(course) = self.courses.get_mut(usize::from(identity.flow)) else { return };
        if is_about_itself(&frame.bytes) {
            course.seen[usize::from(identity.back)] = Some(frame.clone());
        }
    }

    /// Waits for counterparts, and judges what has none.
    fn settle(&mut self, step: usize) {
        self.match_all(step);
        let mut late = self.comparison.overtaken();
        late.sort_by_key(|identity| (identity.flow, identity.back));
        for of_one in late.chunk_by(|a, b| (a.flow, a.back) == (b.flow, b.back)) {
            match of_one.len() as u64 {
                1 => self.outcome.reordered_reproof += 1,
                more => self.outcome.reordered += more,
            }
        }
    }

    fn match_all(&mut self, step: usize) {
        for idle in [IDLE, LATE] {
            if self.comparison.is_even() {
                return;
            }
            self.both(|| Order::Linger(idle));
        }
        if !self.comparison.is_even() {
            let found = self.comparison.judge();
            self.outcome.found.extend(found.into_iter().map(|discrepancy| (step, discrepancy)));
        }
    }
}

/// Neither an error about a packet nor part of one.
fn is_about_itself(frame: &[u8]) -> bool {
    shunt_wire::Packet::parse(frame).is_ok_and(|packet| {
        packet.ports().is_some()
            || packet.payload.first().is_some_and(|kind| matches!(kind, 0 | 8 | 128 | 129))
    })
}
