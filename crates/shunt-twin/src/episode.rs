//! Carries out a plan on two routers at once.

use crate::{
    change::{Change, Subject},
    compare::{Comparison, Discrepancy, Side},
    flow::Speech,
    mid_change::{self, ExpectedFrames},
    packet::{FlowState, Identity, Intent, Shape, changes_state, is_reset},
    plan::{EpisodePlan, Step},
    router::{Daemon, Router},
    site::Site,
    worker::{self, Frame, Reply, Request},
};
use fastrand::Rng;
use shunt_wire::Mac;
use std::{
    collections::BTreeMap,
    mem,
    net::SocketAddr,
    panic::resume_unwind,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// The conditions of an episode; see [`crate::Options`].
#[derive(Debug, Clone)]
pub(crate) struct EpisodeOptions {
    /// Shunt's engine; with `None`, Shunt is on neither router.
    pub(crate) engine: Option<String>,
    pub(crate) program: Option<String>,
    pub(crate) reaction: Duration,
    /// Whether changes of rules and sets are made on the reference only.
    pub(crate) one_sided: bool,
}

/// The result of an episode, or of its part so far.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) packets: u64,
    pub(crate) eligible: u64,
    pub(crate) compared: u64,
    pub(crate) unasked: u64,
    pub(crate) fast: u64,
    /// Fast packets that were sent during changes; they are not part of `fast`.
    fast_mid_change: u64,
    pub(crate) changes: BTreeMap<Subject, u64>,
    pub(crate) shapes: BTreeMap<crate::packet::Shape, u64>,
    pub(crate) found: Vec<(usize, Discrepancy)>,
    /// Connections without resets and forged packets that conntrack shows in another state than without Shunt.
    pub(crate) other_states: Vec<String>,
    /// Number of connections with resets or forged packets that conntrack shows in another state than without Shunt.
    pub(crate) other_resets: u64,
    /// Errors of command lines that failed on one router only.
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

/// How long the wires must be silent before frames without a counterpart are judged: at first, and then once more for
/// machines that are busy.
const IDLE: Duration = Duration::from_millis(40);
const LATE: Duration = Duration::from_millis(400);
/// Marks the numbers of packets that are sent during changes.
const PROBE: u32 = 1 << 31;
/// Longer than the time between two proofs of a flow.
const UNTIL_PROOF: Duration = Duration::from_millis(2500);
/// Longer than conntrack may take to show a connection as closed that a genuine RST has closed, or as open if a reset
/// that fits less well has closed it in conntrack only (docs/limitations.md).
const UNTIL_CLOSED: Duration = Duration::from_millis(150);
/// How long conntrack's states may differ before they count as other states.
const STATES_LATE: Duration = Duration::from_secs(1);
/// After this number of differences the routers' states have diverged, and the episode ends.
const ENOUGH: usize = 20;
/// Time between two calls of the observer.
const OBSERVE: Duration = Duration::from_secs(1);

/// Channels to the worker of one router.
struct WorkerHandle {
    orders: Sender<Request>,
    answers: Receiver<Reply>,
}

impl WorkerHandle {
    fn send(&self, order: Request) {
        self.orders.send(order).unwrap_or_else(|_| panic!("the worker of a router has ended"));
    }

    fn receive(&self) -> Reply {
        self.answers.recv().unwrap_or_else(|_| panic!("the worker of a router has ended"))
    }
}

/// Carries out a plan on two new routers; stops early at too many differences. Calls `observe` about once a second with
/// the outcome so far.
pub(crate) fn carry_out(
    plan: &EpisodePlan,
    options: &EpisodeOptions,
    observe: &mut dyn FnMut(&Outcome),
) -> Outcome {
    let [reference, subject] = thread::scope(|scope| {
        let reference = scope.spawn(|| Router::new(&plan.flows, plan.wires));
        let subject = Router::new(&plan.flows, plan.wires);
        [reference.join().unwrap_or_else(|panic| resume_unwind(panic)), subject]
    });
    let daemon = options
        .engine
        .as_ref()
        .map(|engine| Daemon::start(subject.netns(), engine, options.program.as_deref()));
    thread::scope(|scope| {
        let workers: Vec<WorkerHandle> = [&reference, &subject]
            .into_iter()
            .enumerate()
            .map(|(cpu, router)| {
                let ((orders, ordered), (answer, answers)) = (channel(), channel());
                let wires = router.wires();
                let is_external = cpu == 1 && options.engine.as_deref() == Some("external");
                let idle = is_external.then_some(worker::EXTERNAL_IDLE);
                scope.spawn(move || worker::serve(router.netns(), wires, cpu, idle, &ordered, &answer));
                WorkerHandle { orders, answers }
            })
            .collect();
        let run = Run {
            plan,
            options,
            workers: &workers,
            daemon,
            states: vec![FlowState::default(); plan.flows.len()],
            comparison: Comparison::default(),
            lan_at: Site::Lan,
            recent: Vec::new(),
            outcome: Outcome::default(),
        };
        run.all(observe)
    })
}

struct Run<'a> {
    plan: &'a EpisodePlan,
    options: &'a EpisodeOptions,
    workers: &'a [WorkerHandle],
    daemon: Option<Daemon<'a>>,
    states: Vec<FlowState>,
    comparison: Comparison,
    lan_at: Site,
    /// The packets of the last round.
    recent: Vec<Intent>,
    outcome: Outcome,
}

impl Run<'_> {
    fn all(mut self, observe: &mut dyn FnMut(&Outcome)) -> Outcome {
        let mut observed = Instant::now();
        self.hello(&[Site::Lan, Site::Lan2].map(|site| (site, site.mac())));
        for (number, step) in self.plan.steps.iter().enumerate() {
            match step {
                Step::Round(intents) => self.round(number, intents),
                Step::Change(change) => self.change(number, change),
            }
            self.settle(number);
            if self.outcome.found.len() >= ENOUGH {
                break;
            }
            if observed.elapsed() > OBSERVE {
                self.sum_up();
                observe(&self.outcome);
                observed = Instant::now();
            }
        }
        self.sum_up();
        self.outcome
    }

    /// Brings the outcome's totals up to date.
    fn sum_up(&mut self) {
        self.outcome.compared = self.comparison.compared;
        self.outcome.eligible = self.comparison.eligible;
        self.outcome.unasked = self.comparison.unasked;
        if let Some(daemon) = &self.daemon {
            self.outcome.fast = daemon.fast() - self.outcome.fast_mid_change;
            self.outcome.reasons = daemon.reasons();
        }
    }

    fn round(&mut self, step: usize, intents: &[Intent]) {
        self.recent = intents.to_vec();
        let mut frames = Vec::new();
        for intent in intents {
            let flow = &self.plan.flows[usize::from(intent.flow)];
            let state = &mut self.states[usize::from(intent.flow)];
            // Seeded per packet, so that leaving out others does not change it.
            let mut rng = Rng::with_seed(self.plan.seed ^ u64::from(intent.number) << 20);
            let mut made = intent.frames(flow, state, self.lan_at, &mut rng);
            // If only one direction is fast, conntrack may not recognise a reset as genuine (docs/limits/tcp.md).
            let is_doubtful = |frame: &Frame| {
                is_reset(frame) && self.daemon.as_ref().is_some_and(|daemon| daemon.has_one_direction(frame))
            };
            if intent.shape == Shape::Reset && made.last().is_some_and(is_doubtful) {
                made.pop();
            }
            if !made.is_empty() {
                self.outcome.packets += 1;
                *self.outcome.shapes.entry(intent.shape).or_default() += 1;
            }
            frames.extend(made);
        }
        let frames = Arc::new(frames);
        self.both(|| Request::Send(Arc::clone(&frames)));
        if self.options.engine.is_some() && frames.iter().any(is_reset) {
            thread::sleep(UNTIL_CLOSED);
        }
        if self.options.engine.is_some() && frames.iter().any(changes_state) {
            self.compare_states(step);
        }
    }

    /// Waits until conntrack shows the same TCP states on both routers. Deletes connections whose states stay
    /// different, so that one difference does not cause others.
    fn compare_states(&mut self, step: usize) {
        let since = Instant::now();
        let (reference, other) = loop {
            self.workers.iter().for_each(|worker| worker.send(Request::TcpStates));
            let [reference, mut subject] = [0, 1].map(|at| self.workers[at].receive().tcp_states);
            subject.retain(|connection, state| {
                reference.get(connection).is_some_and(|without| without != state)
            });
            if subject.is_empty() || since.elapsed() > STATES_LATE {
                break (reference, subject);
            }
            thread::sleep(Duration::from_millis(20));
        };
        for ([from, to], state) in &other {
            let ports = [from.port(), to.port()];
            let flow = self.plan.flows.iter().position(|flow| ports.contains(&flow.port()));
            let flow_state = flow.map(|at| &mut self.states[at]);
            if flow_state.is_none_or(FlowState::start_again) {
                self.outcome.other_resets += 1;
            } else {
                let without = &reference[&[*from, *to]];
                let text = format!(
                    "episode {}, step {step}, {from} > {to}: {without} without Shunt, {state} with it",
                    self.plan.seed
                );
                self.outcome.other_states.push(text);
            }
        }
        if !other.is_empty() {
            let commands = Arc::new(other.keys().map(delete_connection).collect::<Vec<_>>());
            self.both(|| Request::Change(Arc::clone(&commands)));
        }
    }

    fn change(&mut self, step: usize, change: &Change) {
        *self.outcome.changes.entry(change.subject).or_default() += 1;
        if let Some(daemon) = self.daemon.as_mut().filter(|_| change.subject == Subject::Daemon) {
            daemon.crash();
        }
        if matches!(change.subject, Subject::Conntrack | Subject::Link) {
            self.states.iter_mut().for_each(FlowState::forbid_jumps);
        }
        let commands = Arc::new(change.commands.clone());
        let one_sided = self.options.one_sided && matches!(change.subject, Subject::Rule | Subject::Set);
        let of_subject = if one_sided { Arc::default() } else { Arc::clone(&commands) };
        let reaction = self.options.reaction;
        let probes = if change.is_at_once() { self.probes() } else { Vec::new() };
        let failures = if probes.is_empty() || one_sided {
            self.workers[0].send(Request::Change(commands));
            self.workers[1].send(Request::Change(of_subject));
            self.workers.iter().map(|worker| worker.receive().failures).collect()
        } else {
            self.change_while_sending(step, probes, commands, reaction)
        };
        if failures[0] != failures[1] && !one_sided {
            self.outcome.uneven.push(format!("{failures:?}"));
        }
        if let Some(site) = change.raises {
            self.both(|| Request::Reach(site));
        }
        if let Some(site) = change.moves {
            self.lan_at = site;
            self.both(|| Request::Move(site));
            self.hello(&[(site, Site::Lan.mac())]);
        }
        if let Some(host) = change.announces {
            self.hello(&[host]);
        }
        self.both(|| Request::Linger(Duration::ZERO));
        thread::sleep(if change.is_silent { UNTIL_PROOF } else { reaction });
    }

    /// Makes a change while packets pass through the subject. Each frame that leaves must be one that the reference
    /// sends before the change or after it. The packets are sent twice after it, since the first may only end the old
    /// state.
    fn change_while_sending(
        &mut self,
        step: usize,
        probes: Vec<(u32, Frame)>,
        commands: Arc<Vec<String>>,
        reaction: Duration,
    ) -> Vec<Vec<String>> {
        let (numbers, frames): (Vec<u32>, Vec<Frame>) = probes.into_iter().unzip();
        let frames = Arc::new(frames);
        let reference = &self.workers[0];
        let way = || {
            reference.send(Request::Send(Arc::clone(&frames)));
            let mut left = reference.receive().frames;
            reference.send(Request::Linger(Duration::from_millis(2)));
            left.extend(reference.receive().frames);
            ExpectedFrames::from_frames(left)
        };
        let fast = || self.daemon.as_ref().map_or(0, Daemon::fast);
        let (before, fast_before) = (way(), fast());
        reference.send(Request::Change(Arc::clone(&commands)));
        self.workers[1].send(Request::ChangeWhileSending(commands, Arc::clone(&frames), reaction));
        let failed = reference.receive().failures;
        let ways = [before, way(), way()];
        let answer = self.workers[1].receive();
        let found =
            mid_change::judge(&ways, &numbers, answer.rounds, &ExpectedFrames::from_frames(answer.frames));
        self.outcome.fast_mid_change += fast() - fast_before;
        self.outcome.within_reaction += (numbers.len() * answer.rounds) as u64;
        self.outcome.found.extend(found.into_iter().map(|discrepancy| (step, discrepancy)));
        vec![failed, answer.failures]
    }

    /// A UDP packet of each flow of the last round, in one direction per flow, so that no packet finds the conntrack
    /// state of another.
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
            let state = &mut self.states[usize::from(intent.flow)];
            let frames = intent.frames(flow, state, self.lan_at, &mut rng);
            probes.extend(frames.into_iter().map(|frame| (number, frame)));
        }
        probes.dedup_by_key(|(_, frame)| Identity::find(&frame.bytes).map(|identity| identity.flow));
        probes
    }

    /// Sends a broadcast from each host, from which bridges learn where the host is.
    fn hello(&mut self, hosts: &[(Site, Mac)]) {
        let frame = |(site, mac): &(Site, Mac)| {
            let mut bytes = vec![0xff; 60];
            bytes[6..12].copy_from_slice(&mac.0);
            bytes[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
            Frame { site: *site, bytes }
        };
        let frames = Arc::new(hosts.iter().map(frame).collect());
        self.both(|| Request::Send(Arc::clone(&frames)));
    }

    /// Sends a request to both workers, and takes their replies.
    fn both(&mut self, order: impl Fn() -> Request) {
        for worker in self.workers {
            worker.send(order());
        }
        for (side, worker) in [Side::Reference, Side::Subject].into_iter().zip(self.workers) {
            for frame in worker.receive().frames {
                if side == Side::Reference {
                    self.learn(&frame);
                }
                self.comparison.add(side, frame);
            }
        }
    }

    /// Remembers a flow's packet as it left the router, for replies to it.
    fn learn(&mut self, frame: &Frame) {
        let Some(identity) = Identity::find(&frame.bytes).filter(|identity| identity.shows || identity.ends)
        else {
            return;
        };
        let Some(state) = self.states.get_mut(usize::from(identity.flow)) else { return };
        if is_about_itself(&frame.bytes) {
            state.learn(identity, frame.clone());
        }
    }

    /// Waits until each frame has its counterpart, and judges those that have none.
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
            self.both(|| Request::Linger(idle));
        }
        if !self.comparison.is_even() {
            let found = self.comparison.judge();
            self.outcome.found.extend(found.into_iter().map(|discrepancy| (step, discrepancy)));
        }
    }
}

fn delete_connection([from, to]: &[SocketAddr; 2]) -> String {
    format!(
        "conntrack -D -p tcp -s {} -d {} --sport {} --dport {} || true",
        from.ip(),
        to.ip(),
        from.port(),
        to.port()
    )
}

/// Whether a frame is neither an ICMP error nor a fragment.
fn is_about_itself(frame: &[u8]) -> bool {
    shunt_wire::Packet::parse(frame).is_ok_and(|packet| {
        packet.ports().is_some()
            || packet.payload.first().is_some_and(|kind| matches!(kind, 0 | 8 | 128 | 129))
    })
}
