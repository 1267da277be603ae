//! Steps of changes: the task that makes one, the filters in the kernel, the daemon, and faults of all three.

use super::*;

impl Bounds {
    pub(super) fn change_steps(&self, old: &State, out: &mut Successors<Step, State>) {
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

    pub(super) fn daemon_steps(&self, old: &State, out: &mut Successors<Step, State>) {
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

    pub(super) fn fault_steps(&self, old: &State, out: &mut Successors<Step, State>) {
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
