//! The verdict on one direction of a connection: fast, or slow and why.

mod facts;
mod obstacle;
mod turned_off;
mod unforwarded;

pub use facts::{
    DirectionFacts, FlowFacts, LastUse, LearningBlocked, Look, Obstacle, PortFacts, Reason, Stayed,
    TurnedOff, WINDOW_S,
};

use shunt_api::{DirectionName, FlowState, Idle, Tracked};

/// Whether an answer could be another one after a second look at the packets.
pub fn is_doubtful(slow: Option<&str>, idle: Option<Idle>) -> bool {
    idle.is_some() || slow.is_some_and(|why| DOUBTFUL.contains(&why))
}

/// Reasons that a direction without packets, or with packets that Linux drops, may have, too. Behind the last five,
/// Shunt keeps nothing of packets.
const DOUBTFUL: [Reason; 16] = [
    "helper",
    "protocol",
    "no-conntrack",
    "off",
    "excluded",
    "miss",
    "stale",
    "pending",
    "retiring",
    "not-proved",
    "not-liberal",
    "ruleset",
    "capture",
    "egress-capture",
    "ingress-filter",
    "egress-filter",
];

/// Reasons that are so from the last fast packet on.
const LASTING: [Reason; 13] = [
    "no-conntrack",
    "not-proved",
    "not-routed",
    "ruleset",
    "off",
    "ttl",
    "options",
    "fragment",
    "capture",
    "egress-capture",
    "ingress-filter",
    "egress-filter",
    "excluded",
];

/// Reasons that are over as soon as nothing blocks learning any more.
const BLOCKS: [Reason; 5] = ["ruleset", "capture", "egress-capture", "ingress-filter", "egress-filter"];

/// Whether a direction is fast or slow, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why packets of the direction are slow, or were slow until they ceased; `None` if they are fast, or were fast.
    pub slow: Option<Reason>,
    /// Why some packets of a direction that is fast are slow; `None` if few are, or if the cause is not known.
    pub partly: Option<Reason>,
    /// For how long no packet has come; `None` if packets come, or if that is not known.
    pub idle: Option<Idle>,
    /// Details about this direction, in addition to the general text of the reason; may be empty.
    pub detail: String,
    /// Seconds since this became so; `None` if unknown.
    pub since_s: Option<u64>,
    /// The remedy, if it differs from the general text of the reason.
    pub remedy: Option<String>,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

fn slow(reason: Reason, detail: impl Into<String>) -> Verdict {
    Verdict { slow: Some(reason), detail: detail.into(), ..Verdict::default() }
}

/// A pause of this many seconds is worth telling.
const IDLE_S: u64 = 2;

/// What to do if conntrack counts no packets.
const NO_PACKETS: &str = "nothing to do: no packets come";

/// What to do about a SYN without an answer.
const UNANSWERED: &str = "see whether the other end is on, listens on this port and has a route back, and whether a \
                          firewall on the way drops its packets";

/// Nobody knows since when, and what was before.
const UNKNOWN: Idle = Idle { for_s: None, at_least: false, was_fast: None };
const NOT_FAST: Idle = Idle { was_fast: Some(false), ..UNKNOWN };

fn idle(for_s: Option<u64>, was_fast: Option<bool>) -> Verdict {
    Verdict { idle: Some(Idle { for_s, was_fast, ..UNKNOWN }), ..Verdict::default() }
}

impl DirectionFacts<'_> {
    /// Explains the direction. Lasting causes (protocol, helper, configuration) are reported before the latest event.
    pub fn verdict(&self) -> Verdict {
        let checks = [
            Self::check_in_use,
            Self::check_ended,
            Self::check_eligible,
            Self::check_unanswered,
            Self::check_turned_off,
            Self::check_off_ports,
            Self::check_stayed,
            Self::check_retired_as_idle,
            Self::check_pending_or_retired,
            Self::check_conntrack_state,
            Self::check_fragments,
            Self::check_passed,
            Self::check_still_in_use,
            Self::check_learning_blocked,
            Self::check_unseen,
            Self::check_not_left,
            Self::check_idle,
            Self::check_stale,
            Self::check_refused,
        ];
        let found = checks.iter().find_map(|check| check(self));
        let mut verdict = found.unwrap_or_else(|| self.not_learned());
        if self.is_block_over(&verdict) {
            verdict.detail = "that was so when its last packet came, and is over".to_owned();
            verdict.remedy = Some("nothing to do: if more packets come, Shunt learns from them".to_owned());
        }
        if let Some(Idle { for_s: for_s @ None, at_least, .. }) = &mut verdict.idle {
            *for_s = self.idle_by_conntrack_s();
            *at_least = for_s.is_some_and(|ago_s| !self.is_own(ago_s));
            if *at_least {
                // Conntrack tells what is left of its timeout in whole seconds.
                *for_s = for_s.map(|ago_s| ago_s - 1);
            }
        }
        if verdict.slow.is_some() && verdict.idle.is_none() {
            let since_s = verdict.since_s.or_else(|| self.last_fast_s(&verdict));
            // A rule of `shunt off` may be younger than a connection that was never fast.
            verdict.since_s = since_s.or_else(|| self.never_fast_s().filter(|_| verdict.slow != Some("off")));
        }
        if verdict.idle.is_some() {
            verdict.since_s = None;
        }
        verdict.remedy = self.remedy(&verdict).map(str::to_owned).or(verdict.remedy);
        self.with_obstacle(verdict)
    }

    /// What to do if the general text of the reason does not fit: it asks for packets that may never come.
    fn remedy(&self, verdict: &Verdict) -> Option<&'static str> {
        let slow = verdict.slow?;
        let is_over = self.has_ended() || verdict.idle.is_some();
        if slow == "off" && self.off.is_some() {
            return is_over.then_some(
                "nothing to do if the connection has ended; new ones are slow, too, until `shunt on` removes the rule, \
                 which `shunt off` lists",
            );
        }
        if self.has_ended() {
            return Some("nothing to do: the connection ends or has ended");
        }
        match slow {
            "off" => Some("nothing to do: the rule has ended; if more packets come, Shunt learns from them"),
            "pending" if is_over => Some(
                "nothing to do if the exchange is over; if more packets come, the flow is fast from the next one on",
            ),
            _ => None,
        }
    }

    /// Whether a rule keeps the packets from conntrack, whose entry is of earlier ones.
    fn is_untracked(&self) -> bool {
        let is_in_zone = self.tracked.is_some_and(|tracked| tracked.zone.is_some());
        self.refused == Some("no-conntrack") && !is_in_zone
    }

    /// Seconds since conntrack last saw a packet of either direction. A SYN that is sent again is none, and a direction
    /// without a packet so far is not idle since one.
    fn idle_by_conntrack_s(&self) -> Option<u64> {
        let has_begun = self.tcp_state() != Some("SYN_SENT") && !self.is_unanswered() && !self.is_untracked();
        self.tracked_ago_s.filter(|ago_s| has_begun && *ago_s >= IDLE_S)
    }

    /// Whether a packet of this direction is known to have come so many seconds ago, or later.
    fn is_own(&self, ago_s: u64) -> bool {
        let is_then = |own_s: u64| own_s <= ago_s + 1;
        let is_noted = self.packets_seen > 0 || self.refused.is_some();
        is_noted && is_then(self.window_age_s) || self.last_use.is_some_and(|last| is_then(last.ago_s))
    }

    /// Whether the last packet was refused because of a capture, a filter or a rule that is not there any more.
    fn is_block_over(&self, verdict: &Verdict) -> bool {
        let is_block = verdict.slow.is_some_and(|why| BLOCKS.contains(&why));
        is_block && self.learning_blocked.is_none() && self.needs_reply.is_none()
    }

    /// Whether this is a TCP connection that ends or has ended.
    fn has_ended(&self) -> bool {
        self.tcp_state().is_some_and(|state| Tracked::ENDING.contains(&state))
    }

    fn tcp_state(&self) -> Option<&str> {
        self.tracked.filter(|_| self.protocol == TCP).and_then(|tracked| tracked.state.as_deref())
    }

    /// Seconds since the connection began, if the direction was never fast.
    fn never_fast_s(&self) -> Option<u64> {
        let has_been_fast = self.flow.is_some() || self.last_use.is_some();
        // Of the time before the daemon started, nobody knows.
        let age_s = self.tracked?.age_s.filter(|age_s| *age_s < self.up_s);
        age_s.filter(|_| !has_been_fast)
    }

    /// Seconds since the last fast packet, if what makes the direction slow lasts.
    fn last_fast_s(&self, verdict: &Verdict) -> Option<u64> {
        let lasts = verdict.slow.is_some_and(|why| LASTING.contains(&why));
        self.last_use.filter(|last| last.fast && lasts).map(|last| last.ago_s)
    }

    fn check_in_use(&self) -> Option<Verdict> {
        let flow = self.flow.filter(|flow| flow.state >= FlowState::Active)?;
        let paused = self.last_use.filter(|last| last.ago_s >= IDLE_S && flow.state == FlowState::Active);
        let Some(LastUse { ago_s, fast }) = paused else { return self.check_still_in_use() };
        // A flow stays active for a while after its last packet, also if what comes now cannot use it.
        let come = self.look.as_ref().is_some_and(Look::has_packets);
        if self.later_ago_s.is_some() && self.uncounted_s().is_some() {
            return Some(self.uncounted());
        }
        (!come).then(|| idle(Some(ago_s), Some(fast)))
    }

    /// Seconds since conntrack last saw a packet of the connection, if that is not long ago and it does not count them.
    fn uncounted_s(&self) -> Option<u64> {
        self.look.as_ref().filter(|look| look.counted.is_none() && look.arrived == 0)?;
        self.tracked_ago_s.filter(|ago_s| *ago_s < IDLE_S && self.tcp_state() != Some("SYN_SENT"))
    }

    /// Packets of a connection come, and nobody knows in which direction, nor why by the slow path.
    fn uncounted(&self) -> Verdict {
        let detail = "conntrack has just seen a packet of the connection that no port has looked up; \
                      it does not count packets, so neither the direction nor the cause is known";
        let remedy = "`sysctl -w net.netfilter.nf_conntrack_acct=1`, then ask again";
        Verdict { remedy: Some(remedy.to_owned()), ..slow("miss", detail) }
    }

    fn check_still_in_use(&self) -> Option<Verdict> {
        let flow = self.flow.filter(|flow| flow.state >= FlowState::Active)?;
        let beside = self.slow_beside().unwrap_or_default();
        Some(Verdict { slow: None, partly: beside.slow, since_s: Some(flow.since_s), ..beside })
    }

    /// What never becomes fast, whatever its packets are.
    fn check_eligible(&self) -> Option<Verdict> {
        let verdict = self.ineligible()?;
        Some(Verdict { idle: self.is_quiet().then_some(NOT_FAST), ..verdict })
    }

    fn ineligible(&self) -> Option<Verdict> {
        if !matches!(self.protocol, TCP | UDP) {
            return Some(slow("protocol", ""));
        }
        if let Some(tracked) = self.tracked {
            if tracked.helper.is_some() || tracked.is(Tracked::HELPER) {
                let helper = tracked.helper.as_ref().map(|helper| format!("the helper is {helper}"));
                return Some(slow("helper", helper.unwrap_or_default()));
            }
            let direction = if self.dir == DirectionName::Orig { &tracked.orig } else { &tracked.reply };
            if let Some(zone) = tracked.zone.or(direction.zone) {
                return Some(slow("no-conntrack", format!("the connection is in zone {zone}")));
            }
        }
        if self.to_group {
            return Some(Verdict {
                remedy: Some("nothing to do: such packets always go through Linux".to_owned()),
                ..slow("not-ours", "the destination is a broadcast or multicast address")
            });
        }
        if self.local {
            return Some(Verdict {
                remedy: Some("nothing to do: the router's own connections stay on the slow path".to_owned()),
                ..slow(
                    "miss",
                    "the connection begins or ends at the router itself; only forwarded traffic can be fast",
                )
            });
        }
        (!self.learns).then(|| Verdict {
            remedy: Some("set `learn = true`, or add the flow by hand: `shunt flow add`".to_owned()),
            ..slow("miss", "learning is off: the configuration has `learn = false`")
        })
    }

    /// A TCP connection that has ended sends nothing any more.
    fn check_ended(&self) -> Option<Verdict> {
        let state = self.tcp_state().filter(|state| ["TIME_WAIT", "CLOSE"].contains(state))?;
        let was_fast = self.last_use.map(|last| last.fast);
        // Its last packets were slow.
        let for_s = self.tracked_ago_s.filter(|ago| *ago >= IDLE_S);
        let over = slow("not-established", format!("its state in conntrack is {state}"));
        Some(Verdict { idle: Some(Idle { for_s, was_fast, ..UNKNOWN }), ..over })
    }

    fn is_unanswered(&self) -> bool {
        let is_reply = self.dir == DirectionName::Reply;
        is_reply && self.tracked.is_some_and(|tracked| !tracked.is(Tracked::SEEN_REPLY))
    }

    /// The reply direction of a connection that has had no reply is neither fast nor slow.
    fn check_unanswered(&self) -> Option<Verdict> {
        let has_come = self.packets_seen > 0 || self.look.as_ref().is_some_and(|look| look.arrived > 0);
        (self.is_unanswered() && self.flow.is_none() && !has_come).then(|| Verdict {
            slow: Some("miss"),
            detail: "no packet has come in this direction so far".to_owned(),
            remedy: Some(NO_PACKETS.to_owned()),
            ..idle(None, Some(false))
        })
    }

    /// Whether conntrack counted no packet during the second look.
    fn none_come(&self) -> bool {
        !self.is_untracked() && self.look.as_ref().is_some_and(|look| look.counted == Some(0))
    }

    /// Whether conntrack has seen no packet lately, by its counters or else by its timeout.
    fn is_quiet(&self) -> bool {
        let is_uncounted = self.look.as_ref().is_some_and(|look| look.counted.is_none());
        self.none_come() || is_uncounted && self.idle_by_conntrack_s().is_some()
    }

    fn check_pending_or_retired(&self) -> Option<Verdict> {
        let flow = self.flow?;
        match flow.state {
            FlowState::Pending => {
                let LastUse { ago_s, fast } = self.last_use.unwrap_or(LastUse { ago_s: 0, fast: false });
                let comes = self.packets_seen > 0 && self.window_age_s < ago_s;
                let idle = (!comes && ago_s >= IDLE_S).then_some(Idle {
                    for_s: Some(ago_s),
                    was_fast: Some(fast),
                    ..UNKNOWN
                });
                // Each of them proves the flow again.
                let is_rare = idle.is_none() && flow.since_s > 3 * self.reprove_s.max(1);
                let remedy = is_rare.then(|| {
                    format!(
                        "nothing to do: its packets are further apart than a proof holds ({} s), so Linux forwards them; \
                         with more packets, it is fast",
                        self.reprove_s
                    )
                });
                // If it was fast meanwhile, nobody knows since when it is not.
                let since_s = Some(flow.since_s).filter(|_| idle.is_none() && !fast);
                Some(Verdict { since_s, idle, remedy, ..slow("pending", "") })
            }
            FlowState::Retired => {
                let retired = flow.retired_why?;
                let refused = self.refused.filter(|why| self.refused_after_retirement && *why != "retiring");
                let reason = refused.unwrap_or(retired);
                let blocked = self.learning_blocked.as_ref().filter(|blocked| blocked.reason == reason);
                let place = blocked.map(|blocked| blocked.place.clone());
                let before =
                    refused.map(|_| format!("the flow was fast until {} s ago: {retired}", flow.since_s));
                let detail = place.into_iter().chain(before).collect::<Vec<_>>().join("; ");
                Some(Verdict { since_s: Some(flow.since_s), ..slow(reason, detail) })
            }
            _ => None,
        }
    }

    /// A TCP connection that the other end has not answered yet.
    fn check_opening(&self) -> Option<Verdict> {
        self.tcp_state().filter(|state| *state == "SYN_SENT")?;
        let was_fast = self.last_use.map(|last| last.fast);
        // Conntrack does not count a SYN that is sent again.
        let is_silent = self.tracked_ago_s.is_some_and(|ago_s| ago_s >= IDLE_S);
        let idle = is_silent.then_some(Idle { was_fast, ..UNKNOWN });
        let (cause, remedy) = self.not_forwarded().unwrap_or_else(|| (String::new(), UNANSWERED.to_owned()));
        let detail = format!("its state in conntrack is SYN_SENT: the other end has not answered{cause}");
        Some(Verdict { idle, remedy: Some(remedy), ..slow("not-established", detail) })
    }

    fn check_conntrack_state(&self) -> Option<Verdict> {
        let tracked = self.tracked?;
        if tracked.is(Tracked::DYING) {
            return Some(slow("dying", ""));
        }
        if !tracked.is(Tracked::CONFIRMED) {
            return Some(slow("unconfirmed", ""));
        }
        if self.protocol == UDP {
            let why = self.needs_reply.as_ref().filter(|_| !tracked.is(Tracked::SEEN_REPLY));
            return why.map(|why| slow("unreplied", why.clone()));
        }
        let state = tracked.state.as_deref().unwrap_or("NONE");
        if state != "ESTABLISHED" {
            return self.check_opening().or_else(|| {
                let is_silent = self.tracked_ago_s.is_some_and(|ago_s| ago_s >= IDLE_S);
                let was_fast = self.last_use.map(|last| last.fast);
                let idle = is_silent.then_some(Idle { was_fast, ..UNKNOWN });
                Some(Verdict {
                    idle,
                    ..slow("not-established", format!("its state in conntrack is {state}"))
                })
            });
        }
        (!tracked.is(Tracked::ASSURED))
            .then(|| slow("not-established", "conntrack has not marked the connection ASSURED"))
    }

    fn check_learning_blocked(&self) -> Option<Verdict> {
        let blocked = self.learning_blocked.as_ref()?;
        // Nothing is kept of packets that teach nothing, so only conntrack tells whether any come.
        let known = self.none_come().then(|| self.check_idle().and_then(|verdict| verdict.idle));
        let idle = known.map(|idle| idle.unwrap_or(UNKNOWN));
        let place = &blocked.place;
        let detail = if self.tracked.is_none() && self.flow.is_none() {
            format!("{place}; conntrack does not know the connection, so nobody knows whether packets come")
        } else {
            place.clone()
        };
        Some(Verdict { idle, ..slow(blocked.reason, detail) })
    }

    /// A direction without packets is neither fast nor slow.
    fn check_idle(&self) -> Option<Verdict> {
        if self.flow.is_some_and(|flow| flow.state != FlowState::Stale) {
            return None;
        }
        if let Some(ceased) = self.was_refused() {
            return Some(ceased);
        }
        let LastUse { ago_s, fast } = self.last_use?;
        // The next packet of a stale flow proves the flow again, and that of a removed one starts a window, unless one
        // has begun already; then conntrack tells.
        let is_later = self.window_age_s < ago_s || self.later_ago_s.is_some();
        let comes = self.refused.is_some() || (self.packets_seen > 0 && is_later);
        let for_s = Some(ago_s).filter(|_| self.later_ago_s.is_none());
        (!comes && ago_s >= IDLE_S).then(|| idle(for_s, Some(fast)))
    }

    /// A direction that was refused, and has had no packet since. The first packet after a window begins the
    /// next one.
    fn was_refused(&self) -> Option<Verdict> {
        let since_use = self.last_use.is_none_or(|last| last.ago_s >= self.window_age_s);
        let ceased = self.refused.is_some() && self.is_silent() && since_use;
        ceased.then(|| Verdict { slow: self.refused, ..idle(None, Some(false)) })
    }

    /// The sweep takes flows without packets out of use, and removes them.
    fn check_retired_as_idle(&self) -> Option<Verdict> {
        let flow =
            self.flow.filter(|flow| flow.state == FlowState::Retired && flow.retired_why == Some("idle"))?;
        let LastUse { ago_s, fast } = self.last_use.filter(|last| last.ago_s >= flow.since_s)?;
        self.refused.is_none().then(|| idle(Some(ago_s), Some(fast)))
    }

    fn check_stale(&self) -> Option<Verdict> {
        let flow = self.flow.filter(|flow| flow.state == FlowState::Stale)?;
        if self.look.as_ref().is_some_and(|look| look.arrived == 0 && look.counted.unwrap_or(0) == 0) {
            // A packet may have come after the last use.
            let is_last = |last: &LastUse| self.packets_seen == 0 || self.window_age_s >= last.ago_s;
            let for_s = self.last_use.filter(is_last).map(|last| last.ago_s).filter(|ago_s| *ago_s > 0);
            return Some(idle(for_s, self.last_use.map(|last| last.fast)));
        }
        Some(match &self.epoch_moved {
            Some((ago, cause)) if !flow.current => {
                Verdict { since_s: Some(*ago), ..slow("stale", format!("the last change was: {cause}")) }
            }
            _ => slow("stale", "the proof of its action is overdue"),
        })
    }

    fn check_refused(&self) -> Option<Verdict> {
        let mut verdict = slow(self.refused?, "");
        if self.none_come() && self.look.as_ref().is_some_and(|look| look.arrived == 0) {
            verdict.remedy = Some(NO_PACKETS.to_owned());
            verdict.idle = Some(NOT_FAST);
            return Some(verdict);
        }
        if verdict.slow == Some("not-liberal") && self.window_age_s >= IDLE_S {
            verdict.remedy = Some(
                "nothing to do: that was so when its last packet came; if more come, it is fast".to_owned(),
            );
        }
        Some(verdict)
    }

    fn not_learned(&self) -> Verdict {
        let (seen, needed) = (self.packets_seen, self.packets_needed);
        let (detail, remedy) = match seen {
            0 if self.uncounted_s().is_some() => return self.uncounted(),
            0 => {
                let detail = format!("no packet of this flow was seen on any port in the last {WINDOW_S} s");
                let is_unknown = self.tracked.is_none() && self.look.is_some();
                let remedy = if self.none_come() || is_unknown {
                    NO_PACKETS
                } else if self.protocol == UDP {
                    "nothing to do if the exchange is over, as after a DNS answer; if packets do arrive, their ingress device \
                     is not a port of Shunt"
                } else {
                    "nothing to do if it is idle; if packets do arrive, their ingress device is not a port of Shunt"
                };
                return Verdict {
                    slow: Some("miss"),
                    detail,
                    remedy: Some(remedy.to_owned()),
                    ..idle(None, None)
                };
            }
            _ if seen < needed => (
                format!(
                    "packets seen in the last {WINDOW_S} s: {seen}; the flow is learned from packet {needed}"
                ),
                (self.protocol == UDP).then(|| {
                    format!(
                        "nothing to do for a short exchange, such as DNS: Linux forwards it; a longer one is fast soon after \
                         packet {needed}"
                    )
                }),
            ),
            _ if self.may_have_left() => return self.taught_nothing(),
            _ => self.leaves_beside_ports(),
        };
        Verdict { remedy, ..slow("miss", detail) }
    }

    /// Whether no packet is known to have stayed, or to have left by a device that is not a port.
    fn may_have_left(&self) -> bool {
        self.off_ports[1].is_none() && self.look.as_ref().is_some_and(|look| look.stayed.is_none())
    }

    /// Packets of which nobody knows whether they left: after a rest, the programs on egress come later than those on
    /// ingress.
    fn taught_nothing(&self) -> Verdict {
        let seen = self.packets_seen;
        let detail =
            format!("packets seen in the last {WINDOW_S} s: {seen}; Shunt has learned nothing from them");
        Verdict {
            idle: self.is_quiet().then_some(NOT_FAST),
            remedy: Some("nothing to do: if more packets come, Shunt learns from them".to_owned()),
            ..slow("miss", detail)
        }
    }
}

#[cfg(test)]
mod tests;
