//! Brings the ports from their present state to the planned one.

use super::Core;
use crate::{
    Action, Cause, PortSetting, PortView, Scope,
    changes::{ChangeDetails, Told},
    ports,
};
use shunt_api::Engine;
use std::{collections::BTreeMap, mem, time::Instant};

type Ports = BTreeMap<u32, PortView>;

impl Core {
    /// Plans the ports, and returns the actions that bring them from their present to the planned state; none if these
    /// agree.
    pub(super) fn settle_ports(&mut self, now: Instant) -> Vec<Action> {
        let want = self.plan_ports(now);
        let captured = ports::newly_captured(&self.ports, &want);
        let released = ports::newly_captured(&want, &self.ports);
        let (mut actions, moved) = self.differences(&want);
        let own = &self.own_programs;
        let for_external = self.choice.for_external(&self.network, &want, &|prog| own.contains(&prog));
        if for_external != self.for_external {
            self.for_external.clone_from(&for_external);
            actions.push(Action::Serve(for_external));
        }
        let uppers = self.network.uppers(want.keys().copied());
        if uppers != self.uppers {
            self.uppers.clone_from(&uppers);
            actions.push(Action::SetUppers(uppers));
        }
        // After the settings have been changed: flows learned from now on respect them.
        if let Some((cause, ifindex)) = moved {
            self.note_moved_port(cause, ifindex, &captured);
            actions.push(Action::MoveEpoch(cause));
        }
        if !released.is_empty() {
            self.changes.note_told(Told::CaptureEnded { ports: self.names(&released) });
        }
        self.ports = want;
        actions.extend(self.update_hold());
        actions
    }

    fn plan_ports(&mut self, now: Instant) -> Ports {
        self.plans += 1;
        let own = &self.own_programs;
        let unchosen = mem::take(&mut self.unchosen);
        let kept = (!unchosen.is_empty()).then(|| {
            let mut kept = self.ports.clone();
            kept.retain(|ifindex, _| !unchosen.contains(ifindex));
            kept
        });
        let mut want = self.choice.plan(
            &self.network,
            &self.captures,
            &self.programs,
            &self.external,
            &|prog| own.contains(&prog),
            kept.as_ref().unwrap_or(&self.ports),
        );
        if self.ports.keys().any(|ifindex| !want.contains_key(ifindex)) {
            // There may be room for these devices now.
            self.refused.clear();
        }
        want.retain(|ifindex, _| !self.refused.contains(ifindex));
        self.beyond = ports::leave_beyond(self.ports_max(), &self.ports, &mut want);
        self.surveys.set_ports(now, &self.choice.surveyed(&self.network, &want));
        self.choice.apply_surveys(&self.network, &self.surveys, &mut want);
        self.choice.serve_sessions(&self.network, &mut want);
        if self.rests {
            ports::take_programs_off(&self.network, &mut want);
        }
        let (seen, tracking) = (self.network.stacks(want.keys().copied()), self.tracking());
        for (ifindex, view) in &mut want {
            view.setting.bridged = self.network.bridged(*ifindex, &seen, tracking);
            view.setting.floods_unseen = self.network.floods_unseen(*ifindex, &seen);
        }
        want
    }

    /// The actions about single ports, and why the epoch moves and for which port; `None` if it does not.
    fn differences(&self, want: &Ports) -> (Vec<Action>, Option<(Cause, u32)>) {
        // Programs of tc find no port where a flow leads, and hand its packets to Linux; other engines do not look.
        let by_tc_alone = |view: &PortView| view.setting.engine == Engine::Tc && !view.setting.xdp_in;
        let gone = || self.ports.iter().filter(|(ifindex, _)| !want.contains_key(ifindex));
        let mut moved =
            gone().find(|(_, view)| !by_tc_alone(view)).map(|(ifindex, _)| (Cause::Engine, *ifindex));
        let mut actions: Vec<Action> =
            gone().map(|(ifindex, _)| Action::Detach { ifindex: *ifindex }).collect();
        for (ifindex, PortView { setting, .. }) in want {
            match self.ports.get(ifindex).map(|view| view.setting) {
                None => actions.push(Action::Attach(*setting)),
                // Another program sees its packets.
                Some(have) if have.no_l2 != setting.no_l2 => {
                    actions.extend([Action::Detach { ifindex: *ifindex }, Action::Attach(*setting)]);
                    moved = Some((Cause::Engine, *ifindex));
                }
                Some(have) if have != *setting => {
                    actions.push(Action::Set(*setting));
                    let why = why_moved(&have, setting).map(|cause| (cause, *ifindex));
                    let is_engine = matches!(why, Some((Cause::Engine, _)));
                    moved = if is_engine { why } else { moved.or(why) };
                }
                Some(_) => {}
            }
        }
        (actions, moved)
    }

    fn note_moved_port(&mut self, cause: Cause, ifindex: u32, captured: &[u32]) {
        let moves = (cause, Scope::Everything);
        let change = match captured {
            [_, _, ..] if cause == Cause::Capture => {
                ChangeDetails { device: None, object: Some(self.names(captured).join(", ")) }
            }
            _ => ChangeDetails { device: self.network.name(ifindex), object: None },
        };
        match cause {
            // The filter, qdisc or program is told.
            Cause::Filter => self.changes.follow(moves),
            _ => self.changes.note(moves, Some(change), false),
        }
    }

    /// How often the ports have been planned, which is the most expensive step. For tests.
    pub fn plans_made(&self) -> u64 {
        self.plans
    }
}

/// Why flows that were learned with the one setting are not right with the other; `None` if they are.
fn why_moved(have: &PortSetting, want: &PortSetting) -> Option<Cause> {
    if have.engine != want.engine {
        Some(Cause::Engine)
    } else if want.captured && !have.captured {
        Some(Cause::Capture)
    } else if want.filtered && !have.filtered || want.filtered_out && !have.filtered_out {
        Some(Cause::Filter)
    } else if want.bridged != have.bridged || want.floods_unseen && !have.floods_unseen {
        Some(Cause::Bridge)
    } else {
        None
    }
}
