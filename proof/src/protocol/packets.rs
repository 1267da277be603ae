//! Steps of packets: ingress, the way through Linux, and egress, which learns.

use super::*;

impl Bounds {
    pub(super) fn arrive(
        &self,
        old: &State,
        key: Key,
        aggregate: bool,
    ) -> Option<Result<State, &'static str>> {
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

    pub(super) fn packet_steps(&self, old: &State, at: usize, p: Packet, out: &mut Successors<Step, State>) {
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
}
