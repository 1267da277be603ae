//! The protocol that learns flows, between ingress, Linux, egress, the filters in the kernel and the daemon.
//!
//! Each step is atomic; `table` explores what happens inside steps on the table and on a candidate. Packets are as many
//! sk_buffs as there are addresses; what runs on two CPUs is the interleaving of their steps with each other and with
//! the task that makes a change. Fields named `was_` are known to the model only, and state what the claims need.

mod changes;
mod packets;

use crate::search::{Model, Successors};

/// Number of addresses of sk_buffs. All of them share one slot of candidates.
const SKBS: usize = 3;
/// Rounds of the cookie: its next-but-one holder has the same cookie.
const ROUNDS: u8 = 2;
/// Epochs and the counters of groups wrap here. No scenario moves them so often that a stamp comes back.
const WRAP: u8 = 32;
const RETIRED: u8 = 0;
/// Ticks after which an action that was not proved, and a heartbeat, no longer count.
const EXPIRED: u8 = 2;

/// A fault of the protocol that the model must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the table of proof/README.md explains each")]
pub enum Mutation {
    CookieAlone,
    AddressAlone,
    CloneTeaches,
    SegmentTeaches,
    ActiveAtOnce,
    StampAtEgress,
    MarkAfterCheck,
    TakeMarksBeforeRecord,
    GroupNotInStamp,
    HookAfterAck,
    NoSecondMove,
    LearnWhileUnknown,
    NoDyingRecheck,
    PendingAtOnce,
    DumpMovesNothing,
    OverrunIgnored,
    WrapToRetired,
    HeartbeatIgnored,
    RetiredForGood,
}

/// A change outside of Shunt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// A rule drops packets of connection 0 on port 0, or no longer does. The filter moves the epoch.
    Rule,
    /// A rule that must see every packet of every connection. The filter moves the epoch, the daemon holds learning.
    Queue,
    /// A station is behind another port. The filter moves the groups that marked the station.
    Station,
    /// An IPv4 route goes, which Linux announces before it is done.
    Route,
    /// A neighbour has another MAC, which the daemon alone tells from a mere refresh.
    Neighbour,
    /// `conntrack -D` of connection 0.
    Delete,
}

/// What a scenario may contain.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Kinds of changes that may happen.
    pub changes: &'static [Change],
    /// How many changes may happen.
    pub budget: u8,
    /// The packets that may arrive: connection and port. Linux drops those of connection 0 on port 1.
    pub arrivals: &'static [(u8, u8)],
    /// Number of sk_buffs at a time.
    pub packets: usize,
    /// Whether Linux may clone packets, and split aggregates in place.
    pub copies: bool,
    /// Whether Linux may copy packets with their data.
    pub full_copies: bool,
    /// Whether such a copy may get the memory and, by chance, have the cookie of another packet's candidate.
    pub chance: bool,
    /// Whether the daemon may hang, die and start again, and time passes.
    pub faults: bool,
    /// Whether messages to the daemon may be lost.
    pub overruns: bool,
    /// The first epoch.
    pub epoch: u8,
    /// The fault of the protocol, if any.
    pub mutation: Option<Mutation>,
}

/// Connection and port.
type Key = (u8, u8);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    InLinux,
    /// Linux has sent it; it is at egress.
    Leaving,
    Marked(Candidate),
    Checked(Candidate),
    Installed(Candidate),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Packet {
    was_key: Key,
    was_duplicated: bool,
    /// Which way Linux sent it.
    way: u8,
    cookie: u8,
    data: u8,
    cloned: bool,
    aggregate: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Candidate {
    key: Key,
    address: u8,
    data: u8,
    aggregate: bool,
    cookie: u8,
    left: bool,
    stamp: u8,
    changes: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum FlowState {
    Inserted,
    Pending,
    Active,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flow {
    way: u8,
    stamp: u8,
    state: FlowState,
    age: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Task {
    Idle,
    /// Not in force, announced.
    Announced(Change),
    /// In force, not announced.
    InForce(Change),
    /// As `InForce`; the filter has done the first half.
    HalfNoted,
}

/// One state of everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    // Linux.
    refused: bool,
    queued: bool,
    way: [u8; 2],
    dead: bool,
    skbs: [Option<Packet>; SKBS],
    task: Task,
    budget: u8,
    // The maps.
    candidate: Option<Candidate>,
    round: u8,
    flows: [[Option<Flow>; 2]; 2],
    epoch: u8,
    groups: [u8; 2],
    marks: [bool; 2],
    count: u8,
    last: [u8; 2],
    hold: bool,
    beat_age: u8,
    // The daemon.
    hung: bool,
    was_silent: u8,
    known: [u8; 2],
    message: Option<Message>,
    reading: bool,
    lost: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Message {
    Rules,
    Route,
    Neighbour(u8),
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "names of steps, read in traces")]
pub enum Step {
    Arrive { conn: u8, port: u8, aggregate: bool },
    LinuxDrops(u8),
    LinuxForwards(u8),
    LinuxClones { from: u8, to: u8 },
    LinuxCopies { from: u8, to: u8 },
    LinuxSplits(u8),
    EgressTakes(u8),
    EgressMarks(u8),
    EgressChecks(u8),
    EgressInstalls(u8),
    EgressLooksForDying(u8),
    Begins(Change),
    Filter,
    FilterSecondHalf,
    Acknowledged,
    TakesForce,
    DaemonHandles,
    DaemonReadRules,
    MessagesLost,
    DaemonDumps,
    DaemonHangs,
    DaemonResumes,
    DaemonDiesAndStarts,
    Beat,
    Tick,
}

impl State {
    /// Epochs are odd and groups even, so no sum is RETIRED.
    fn stamp(&self, conn: u8, model: &Bounds) -> u8 {
        let group = if model.has(Mutation::GroupNotInStamp) { 0 } else { self.groups[conn as usize] };
        (self.epoch + group) % WRAP
    }

    fn move_epoch(&mut self, model: &Bounds) {
        self.epoch = (self.epoch + if model.has(Mutation::WrapToRetired) { 1 } else { 2 }) % WRAP;
    }

    fn flow(&mut self, key: Key) -> &mut Option<Flow> {
        &mut self.flows[key.0 as usize][key.1 as usize]
    }

    fn retire(&mut self, key: Key) {
        if let Some(flow) = self.flow(key) {
            flow.stamp = RETIRED;
        }
    }

    fn retire_connection(&mut self, conn: u8) {
        self.retire((conn, 0));
        self.retire((conn, 1));
    }

    fn drops(&self, key: Key) -> bool {
        key == (0, 1) || key == (0, 0) && self.refused
    }

    /// Whether a fast packet of this flow would get what Linux does now.
    fn as_linux(&self, key: Key, flow: &Flow) -> bool {
        let dead = key.0 == 0 && self.dead;
        !self.drops(key) && !self.queued && !dead && flow.way == self.way[key.0 as usize]
    }

    /// Whether every change has been acknowledged, and the daemon has done what it has to.
    fn is_settled(&self) -> bool {
        self.task == Task::Idle && self.message.is_none() && !self.reading && !self.lost
    }
}

impl Bounds {
    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}

impl State {
    fn record(&mut self) {
        self.count += 1;
        self.last[0] = self.count;
    }

    /// The groups that marked the station take a step; both connections may share none.
    fn take_marks(&mut self) {
        if std::mem::take(&mut self.marks[0]) {
            self.groups[0] = (self.groups[0] + 2) % WRAP;
        }
    }
}

impl Model for Bounds {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            refused: false,
            queued: false,
            way: [0; 2],
            dead: false,
            skbs: [None; SKBS],
            task: Task::Idle,
            budget: self.budget,
            candidate: None,
            round: 0,
            flows: [[None; 2]; 2],
            epoch: self.epoch,
            groups: [0; 2],
            marks: [false; 2],
            count: 0,
            last: [0; 2],
            hold: false,
            beat_age: 0,
            hung: false,
            was_silent: 0,
            known: [0; 2],
            message: None,
            reading: false,
            lost: false,
        }
    }

    fn next(&self, old: &State) -> Successors<Step, State> {
        let mut out = Vec::new();
        for &(conn, port) in self.arrivals {
            for aggregate in [false, true].into_iter().take(1 + usize::from(self.copies)) {
                if let Some(next) = self.arrive(old, (conn, port), aggregate) {
                    out.push((Step::Arrive { conn, port, aggregate }, next));
                }
            }
        }
        for (at, packet) in old.skbs.iter().enumerate() {
            if let Some(packet) = packet {
                self.packet_steps(old, at, *packet, &mut out);
            }
        }
        self.change_steps(old, &mut out);
        self.daemon_steps(old, &mut out);
        if self.faults {
            self.fault_steps(old, &mut out);
        }
        out
    }

    fn is_change(&self, step: Step) -> bool {
        matches!(step, Step::Begins(_) | Step::DaemonHangs | Step::DaemonDiesAndStarts | Step::MessagesLost)
    }

    fn is_goal(&self, state: &State) -> bool {
        let key = self.arrivals[0];
        let flow = state.flows[key.0 as usize][key.1 as usize];
        let fast = flow.is_some_and(|f| {
            f.state == FlowState::Active && f.age == 0 && f.stamp == state.stamp(key.0, self)
        });
        fast || state.drops(key) || state.queued || key.0 == 0 && state.dead
    }
}
