//! The protocol that learns flows, between ingress, Linux, egress, the filters in the kernel and the daemon.
//!
//! Each step is atomic; `table` explores what happens inside steps on the table and on a candidate. Packets are as many
//! sk_buffs as there are addresses; what runs on two CPUs is the interleaving of their steps with each other and with the
//! task that makes a change. Fields named `was_` are known to the model only, and state what the claims need.

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

    fn arrive(&self, old: &State, key: Key, aggregate: bool) -> Option<Result<State, &'static str>> {
        let mut s = old.clone();
        let stamp = s.stamp(key.0, self);
        let fresh = s.beat_age < EXPIRED || self.has(Mutation::HeartbeatIgnored);
        if let Some(mut flow) = *s.flow(key)
            && flow.stamp == stamp
            && fresh
            && flow.age == 0
            && flow.state != FlowState::Inserted
        {
            if s.was_silent > EXPIRED {
                return Some(Err("S3: a packet is fast although the daemon is silent"));
            }
            if flow.state != FlowState::Active
                && s.skbs.iter().flatten().any(|p| p.was_duplicated && p.was_key == key)
            {
                // Not yet: the CPU that received the first packet is still sending its copies.
                return None;
            }
            flow.state = FlowState::Active;
            *s.flow(key) = Some(flow);
            if s.is_settled() && !s.as_linux(key, &flow) {
                return Some(Err("S1: a packet is handled the old way after the change"));
            }
            return Some(Ok(s));
        }
        let free = s.skbs.iter().position(Option::is_none)?;
        if s.skbs.iter().flatten().count() >= self.packets {
            return None;
        }
        let address = free as u8;
        if s.skbs.iter().flatten().any(|p| p.data == address) {
            return None;
        }
        let mut cookie = 0;
        if !s.hold {
            s.round = s.round % ROUNDS + 1;
            cookie = s.round;
            let changes = s.count;
            let c = Candidate { key, address, data: address, aggregate, cookie, left: false, stamp, changes };
            s.candidate = Some(c);
        }
        s.skbs[free] = Some(Packet {
            was_key: key,
            was_duplicated: false,
            way: 0,
            cookie,
            data: address,
            cloned: false,
            aggregate,
            stage: Stage::InLinux,
        });
        Some(Ok(s))
    }

    /// Egress finds the candidate of a packet that leaves, and asks conntrack.
    fn take(&self, old: &State, at: usize, p: Packet) -> State {
        let mut s = old.clone();
        s.skbs[at] = None;
        let Some(mut c) = s.candidate.filter(|c| c.cookie == p.cookie || self.has(Mutation::AddressAlone))
        else {
            return s;
        };
        let named = c.address == at as u8 || self.has(Mutation::CookieAlone);
        let data = !p.cloned || c.data == p.data || self.has(Mutation::CloneTeaches);
        let whole = c.aggregate == p.aggregate || self.has(Mutation::SegmentTeaches);
        let same = named && (data || self.has(Mutation::CookieAlone)) && whole;
        if !same && c.key.0 != p.was_key.0 {
            return s;
        }
        let first = !c.left;
        c.left = true;
        s.candidate = Some(c);
        if !same || !first || c.key.0 == 0 && s.dead {
            s.retire(c.key);
            return s;
        }
        if self.has(Mutation::StampAtEgress) {
            c.stamp = s.stamp(c.key.0, self);
        }
        if c.stamp != s.stamp(c.key.0, self) {
            return s;
        }
        let stage = if self.has(Mutation::MarkAfterCheck) { Stage::Marked(c) } else { Stage::Leaving };
        s.skbs[at] = Some(Packet { stage, ..p });
        if stage == Stage::Leaving {
            s.marks[c.key.0 as usize] = true;
            s.skbs[at] = Some(Packet { stage: Stage::Marked(c), ..p });
        }
        s
    }

    fn check(&self, old: &State, at: usize, p: Packet, c: Candidate) -> State {
        let mut s = old.clone();
        let unchanged = s.last[c.key.0 as usize] <= c.changes;
        s.skbs[at] = unchanged.then_some(Packet { stage: Stage::Checked(c), ..p });
        s
    }

    fn install(&self, old: &State, at: usize, p: Packet, c: Candidate) -> Result<State, &'static str> {
        let mut s = old.clone();
        if self.has(Mutation::MarkAfterCheck) {
            s.marks[c.key.0 as usize] = true;
        }
        let have = *s.flow(c.key);
        s.skbs[at] = Some(Packet { stage: Stage::Installed(c), ..p });
        if let Some(have) = have.filter(|have| have.stamp != RETIRED) {
            if have.way == p.way {
                let state = if have.stamp == c.stamp { have.state } else { self.inserted() };
                *s.flow(c.key) = Some(Flow { stamp: c.stamp, state, age: 0, ..have });
            } else {
                s.retire(c.key);
            }
            return Ok(s);
        }
        if have.is_some() && self.has(Mutation::RetiredForGood) {
            return Ok(s);
        }
        if c.key != p.was_key || c.aggregate != p.aggregate {
            return Err("S2: an action is installed that its packet did not prove");
        }
        let state = self.inserted();
        if state == FlowState::Active
            && s.skbs.iter().flatten().any(|q| q.was_duplicated && q.was_key == c.key)
        {
            return Err("S2: an action is active while a copy of its packet is still to leave");
        }
        *s.flow(c.key) = Some(Flow { way: p.way, stamp: c.stamp, state, age: 0 });
        Ok(s)
    }

    fn inserted(&self) -> FlowState {
        match self.mutation {
            Some(Mutation::ActiveAtOnce) => FlowState::Active,
            Some(Mutation::PendingAtOnce) => FlowState::Pending,
            _ => FlowState::Inserted,
        }
    }

    fn packet_steps(&self, old: &State, at: usize, p: Packet, out: &mut Successors<Step, State>) {
        let n = at as u8;
        let with = |stage| {
            let mut s = old.clone();
            s.skbs[at] = stage;
            s
        };
        match p.stage {
            Stage::InLinux => {
                if old.drops(p.was_key) {
                    out.push((Step::LinuxDrops(n), Ok(with(None))));
                } else {
                    let way = old.way[p.was_key.0 as usize];
                    let leaving = Packet { way, stage: Stage::Leaving, ..p };
                    out.push((Step::LinuxForwards(n), Ok(with(Some(leaving)))));
                }
                self.copy_steps(old, at, p, out);
            }
            Stage::Leaving => out.push((Step::EgressTakes(n), Ok(self.take(old, at, p)))),
            Stage::Marked(c) => out.push((Step::EgressChecks(n), Ok(self.check(old, at, p, c)))),
            Stage::Checked(c) => out.push((Step::EgressInstalls(n), self.install(old, at, p, c))),
            Stage::Installed(c) => {
                let mut s = with(None);
                if c.key.0 == 0 && s.dead && !self.has(Mutation::NoDyingRecheck) {
                    s.retire(c.key);
                } else if let Some(flow) = s.flow(c.key)
                    && flow.state == FlowState::Inserted
                {
                    flow.state = FlowState::Pending;
                }
                out.push((Step::EgressLooksForDying(n), Ok(s)));
            }
        }
    }

    /// Copies have the cookie of the packet. A clone shares its data, a full copy has data of its own.
    fn copy_steps(&self, old: &State, at: usize, p: Packet, out: &mut Successors<Step, State>) {
        let from = at as u8;
        if self.copies && p.aggregate {
            let mut s = old.clone();
            s.skbs[at] = Some(Packet { aggregate: false, ..p });
            out.push((Step::LinuxSplits(from), Ok(s)));
        }
        let Some(free) = old.skbs.iter().position(Option::is_none) else { return };
        if p.was_duplicated || p.cookie == 0 {
            return;
        }
        let to = free as u8;
        if self.copies {
            let mut s = old.clone();
            let copy = Packet { was_duplicated: true, cloned: true, ..p };
            s.skbs[at] = Some(copy);
            s.skbs[free] = Some(copy);
            out.push((Step::LinuxClones { from, to }, Ok(s)));
        }
        let taken = old.candidate.is_some_and(|c| c.address == to && c.cookie == p.cookie);
        if self.full_copies && (!taken || self.chance) {
            let mut s = old.clone();
            s.skbs[at] = Some(Packet { was_duplicated: true, ..p });
            s.skbs[free] = Some(Packet { was_duplicated: true, data: to, ..p });
            out.push((Step::LinuxCopies { from, to }, Ok(s)));
        }
    }

    fn change_steps(&self, old: &State, out: &mut Successors<Step, State>) {
        let mut s = old.clone();
        match old.task {
            Task::Idle if old.budget > 0 && old.is_settled() => {
                for change in self.changes {
                    let mut s = s.clone();
                    s.budget -= 1;
                    s.task = Task::InForce(*change);
                    match change {
                        Change::Rule => s.refused ^= true,
                        Change::Queue => s.queued ^= true,
                        Change::Station | Change::Neighbour => s.way[0] ^= 1,
                        Change::Delete => s.dead = true,
                        Change::Route => s.task = Task::Announced(*change),
                    }
                    out.push((Step::Begins(*change), Ok(s)));
                }
            }
            Task::Idle => {}
            Task::Announced(_) => {
                s.move_epoch(self);
                s.task = Task::HalfNoted;
                s.message = Some(Message::Route);
                out.push((Step::Filter, Ok(s)));
            }
            Task::InForce(Change::Station) => {
                if self.has(Mutation::TakeMarksBeforeRecord) {
                    s.take_marks();
                } else {
                    s.record();
                }
                s.task = Task::HalfNoted;
                out.push((Step::Filter, Ok(s)));
            }
            Task::InForce(change) => {
                self.filter(&mut s, change);
                let late = self.has(Mutation::HookAfterAck) && matches!(change, Change::Rule);
                if late {
                    let mut early = old.clone();
                    early.task = Task::Idle;
                    out.push((Step::Acknowledged, Ok(early)));
                }
                s.task = Task::Idle;
                out.push((Step::Filter, Ok(s)));
            }
            Task::HalfNoted => {
                s.task = Task::Idle;
                if s.message == Some(Message::Route) {
                    s.way[0] ^= 1;
                    if self.has(Mutation::NoSecondMove) {
                        s.message = None;
                    }
                    out.push((Step::TakesForce, Ok(s)));
                } else {
                    if self.has(Mutation::TakeMarksBeforeRecord) {
                        s.record();
                    } else {
                        s.take_marks();
                    }
                    out.push((Step::FilterSecondHalf, Ok(s)));
                }
            }
        }
    }

    /// What the filter of the daemon's socket does, and the message that goes on to the daemon.
    fn filter(&self, s: &mut State, change: Change) {
        match change {
            Change::Rule | Change::Queue => {
                s.move_epoch(self);
                s.message = Some(Message::Rules);
            }
            Change::Delete => s.retire_connection(0),
            Change::Neighbour => s.message = Some(Message::Neighbour(s.way[0])),
            Change::Station | Change::Route => {}
        }
    }

    fn daemon_steps(&self, old: &State, out: &mut Successors<Step, State>) {
        if old.hung {
            return;
        }
        let mut s = old.clone();
        match old.message.filter(|_| old.task == Task::Idle) {
            Some(Message::Rules) => {
                // Flags are set before the epoch moves.
                s.hold = !self.has(Mutation::LearnWhileUnknown);
                s.move_epoch(self);
                s.reading = true;
            }
            Some(Message::Neighbour(way)) if s.known[0] != way => {
                s.known[0] = way;
                s.move_epoch(self);
            }
            Some(Message::Neighbour(_)) | None => {}
            // The RTNL lock is free again, so the route is gone.
            Some(Message::Route) => s.move_epoch(self),
        }
        if old.message.is_some() && old.task == Task::Idle {
            s.message = None;
            out.push((Step::DaemonHandles, Ok(s)));
        }
        if old.reading {
            let mut s = old.clone();
            s.reading = false;
            s.hold = s.queued;
            out.push((Step::DaemonReadRules, Ok(s)));
        }
        if self.overruns && old.message.is_some_and(|m| matches!(m, Message::Neighbour(_))) {
            let mut s = old.clone();
            s.message = None;
            s.lost = !self.has(Mutation::OverrunIgnored);
            out.push((Step::MessagesLost, Ok(s)));
            // A dump for another reason may include the change before its message is read.
            let mut s = old.clone();
            self.dump(&mut s);
            out.push((Step::DaemonDumps, Ok(s)));
        }
        if old.lost {
            let mut s = old.clone();
            self.dump(&mut s);
            s.lost = false;
            out.push((Step::DaemonDumps, Ok(s)));
        }
    }

    fn dump(&self, s: &mut State) {
        if s.known[0] != s.way[0] && !self.has(Mutation::DumpMovesNothing) {
            s.move_epoch(self);
        }
        s.known[0] = s.way[0];
    }

    fn fault_steps(&self, old: &State, out: &mut Successors<Step, State>) {
        let mut push = |step, change: &dyn Fn(&mut State)| {
            let mut s = old.clone();
            change(&mut s);
            out.push((step, Ok(s)));
        };
        push(Step::Tick, &|s| {
            s.beat_age = (s.beat_age + 1).min(EXPIRED);
            if s.hung {
                s.was_silent = (s.was_silent + 1).min(EXPIRED + 1);
            }
            for flow in s.flows.iter_mut().flatten().flatten() {
                flow.age = (flow.age + 1).min(EXPIRED);
            }
        });
        if old.hung {
            push(Step::DaemonResumes, &|s| {
                s.hung = false;
                s.was_silent = 0;
            });
        } else {
            push(Step::Beat, &|s| s.beat_age = 0);
            push(Step::DaemonHangs, &|s| s.hung = true);
            if old.is_settled() && old.budget > 0 {
                // The kernel closes the maps; packets that are in Linux keep their cookies.
                push(Step::DaemonDiesAndStarts, &|s| {
                    let fresh = self.start();
                    *s = State {
                        refused: s.refused,
                        queued: s.queued,
                        way: s.way,
                        dead: s.dead,
                        budget: s.budget - 1,
                        known: s.way,
                        hold: s.queued,
                        skbs: s.skbs.map(|p| p.filter(|p| p.stage == Stage::InLinux)),
                        ..fresh
                    };
                });
            }
        }
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
