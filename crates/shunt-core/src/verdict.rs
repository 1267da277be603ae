//! The verdict on one direction of a connection: fast, or slow and why.

mod facts;
mod obstacle;
mod turned_off;

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
const DOUBTFUL: [Reason; 13] = [
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
const LASTING: [Reason; 10] = [
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

/// What to do about packets that arrive and do not leave.
const DROPPED: &str = "see whether a rule drops them (the counters in `nft list ruleset`), whether they have a route \
                       (`ip route get ADDRESS`), and whether the next hop answers (`ip neigh`)";

/// What to do about a next hop that does not answer.
const SILENT: &str =
    "see whether it is on, and connected (`ip neigh` says FAILED or INCOMPLETE until it answers)";

/// What to do about packets that pass a device that is not a port.
fn make_port(device: &str) -> String {
    format!(
        "make {device} a port (`--port`, or `ports` in the configuration); `shunt probe` says whether it can be one"
    )
}

/// Nobody knows since when, and what was before.
const UNKNOWN: Idle = Idle { for_s: None, was_fast: None };
const NOT_FAST: Idle = Idle { for_s: None, was_fast: Some(false) };

fn idle(for_s: Option<u64>, was_fast: Option<bool>) -> Verdict {
    Verdict { idle: Some(Idle { for_s, was_fast }), ..Verdict::default() }
}

impl DirectionFacts<'_> {
    /// Explains the direction. Lasting causes (protocol, helper, configuration) are reported before the latest event.
    pub fn verdict(&self) -> Verdict {
        let checks = [
            Self::check_in_use,
            Self::check_eligible,
            Self::check_ended,
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
        if let Some(Idle { for_s: for_s @ None, .. }) = &mut verdict.idle {
            *for_s = self.idle_by_conntrack_s();
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

    /// Seconds since conntrack last saw a packet of either direction, which is not too long for this one. A SYN that is
    /// sent again is none, and a direction without a packet so far is not idle since one.
    fn idle_by_conntrack_s(&self) -> Option<u64> {
        let has_begun = self.tcp_state() != Some("SYN_SENT") && !self.is_unanswered();
        self.tracked_ago_s.filter(|ago_s| has_begun && *ago_s >= IDLE_S)
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
        (!come).then(|| idle(Some(ago_s), Some(fast)))
    }

    fn check_still_in_use(&self) -> Option<Verdict> {
        let flow = self.flow.filter(|flow| flow.state >= FlowState::Active)?;
        Some(Verdict { since_s: Some(flow.since_s), ..Verdict::default() })
    }

    fn check_eligible(&self) -> Option<Verdict> {
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
                idle: self.none_come().then_some(NOT_FAST),
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
        Some(Verdict { idle: Some(Idle { for_s, was_fast }), ..over })
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
        self.look.as_ref().is_some_and(|look| look.counted == Some(0))
    }

    /// The members of a bridge to the sender (0) or the receiver (1) that are not ports, and what to do; `None` without
    /// such members.
    fn members_off_ports(&self, end: usize) -> Option<(String, String)> {
        let members = self.bridged_off_ports[end].join(", ");
        let which = format!("; these devices of the bridge are not ports: {members}");
        (!members.is_empty()).then(|| (which, make_port(&members)))
    }

    /// What may keep packets from leaving, and what to do.
    fn dropped(&self) -> (String, String) {
        match (&self.silent_hop, self.no_route_to) {
            (Some(hop), _) => (format!("; the next hop, {hop}, does not answer"), SILENT.to_owned()),
            (None, Some(to)) => {
                let down = match self.down_ports.as_slice() {
                    [] => String::new(),
                    [port] => format!(", and {port} is down"),
                    ports => format!(", and {} are down", ports.join(", ")),
                };
                (
                    format!("; Linux has no route to {to}{down}"),
                    format!("see `ip route get {to}`, and whether the links are up (`ip link`)"),
                )
            }
            (None, None) => (String::new(), DROPPED.to_owned()),
        }
    }

    /// Packets of a sender that Linux routes by another device than a port, while no port sees any.
    fn check_off_ports(&self) -> Option<Verdict> {
        let device = self.off_ports[0].as_ref()?;
        let seen = self.packets_seen > 0 || self.look.as_ref().is_some_and(|look| look.arrived > 0);
        (!seen && self.flow.is_none()).then(|| Verdict {
            idle: self.none_come().then_some(NOT_FAST),
            remedy: Some(make_port(device)),
            ..slow("miss", format!("its packets arrive by {device}, which is not a port"))
        })
    }

    /// What arrives on a port and leaves by none teaches nothing: a rule drops it, or it has no route, or it leaves by
    /// another device.
    fn check_stayed(&self) -> Option<Verdict> {
        // What was refused has been seen to leave. What conntrack has forgotten cannot become liberal.
        let is_over = self.refused == Some("not-liberal") && self.tracked.is_none();
        // What was off may have been dropped since.
        let was_off = matches!(self.refused, Some("off" | "excluded"));
        let look = self.look.as_ref().filter(|_| self.refused.is_none() || is_over || was_off)?;
        // Later packets were fast, or proved.
        let is_last = |stayed: &&Stayed| self.last_use.is_none_or(|last| stayed.ago_s <= last.ago_s + 1);
        let Stayed { port, ago_s } = look.stayed.as_ref().filter(is_last)?;
        let arrived = if look.arrived > 0 {
            format!("packets arrive on {port}, and the last of them")
        } else {
            format!("a packet arrived on {port} {ago_s} s ago, and")
        };
        let reason = if self.flow.is_some() { "stale" } else { "miss" };
        let idle = self.has_ceased(*ago_s);
        let (why, remedy) = match &self.off_ports[1] {
            Some(device) => (format!("{arrived} left by {device}, which is not a port"), make_port(device)),
            None => {
                let (which, remedy) = self.members_off_ports(1).unwrap_or_else(|| self.dropped());
                (format!("{arrived} was not seen to leave through a port{which}"), remedy)
            }
        };
        let remedy = if idle.is_some() {
            format!("nothing to do if the exchange is over; else {remedy}")
        } else {
            remedy
        };
        Some(Verdict { remedy: Some(remedy), idle, since_s: self.cut_off_s(), ..slow(reason, why) })
    }

    /// Whether no packet has come since the one that did not leave, so long ago. TCP sends again what is dropped.
    fn has_ceased(&self, ago_s: u64) -> Option<Idle> {
        // While a capture or the like keeps ports from noting packets, only conntrack tells whether any come.
        let are_noted = self.learning_blocked.is_none();
        let none_come = |look: &Look| match look.counted {
            Some(packets) => look.arrived == 0 && packets == 0,
            None => look.arrived == 0 && are_noted,
        };
        let none_come = self.look.as_ref().is_some_and(none_come);
        let was_fast = self.last_use.map(|last| last.fast);
        (none_come && ago_s >= WINDOW_S).then_some(Idle { for_s: Some(ago_s), was_fast })
    }

    /// Seconds since a change in Linux, if the last fast packet came right before it.
    fn cut_off_s(&self) -> Option<u64> {
        let last = self.last_use.filter(|last| last.fast)?;
        let (ago_s, _) = self.epoch_moved.as_ref()?;
        (last.ago_s + 1 >= *ago_s && last.ago_s <= ago_s + 2).then_some(*ago_s)
    }

    /// What a second look has seen, if conntrack counts packets and none of them was looked up at a port; and how many.
    fn look_past_candidates(&self) -> Option<(&Look, u64)> {
        let look = self.look.as_ref().filter(|look| look.arrived == 0)?;
        Some((look, look.counted.filter(|packets| *packets > 0)?))
    }

    /// The same, if no port has seen a packet of this connection before either.
    fn look_past_ports(&self) -> Option<(&Look, u64)> {
        let is_unseen = if self.is_turned_off() {
            // Of packets that were refused lately, nothing is noted for a while.
            self.window_age_s >= 2 * WINDOW_S
        } else {
            self.packets_seen == 0 && self.refused.is_none()
        };
        self.look_past_candidates().filter(|_| is_unseen)
    }

    fn check_fragments(&self) -> Option<Verdict> {
        let (Look { mean_bytes, mtu, passed, .. }, counted) = self.look_past_ports()?;
        // Conntrack puts fragments together.
        let has_fragments = passed.iter().any(|(why, packets)| *why == "fragment" && *packets >= counted);
        let is_fragmented = self.protocol == UDP && *mean_bytes > u64::from(*mtu) && has_fragments;
        let detail = || format!("conntrack counts packets of {mean_bytes} bytes, and the MTU is {mtu}");
        is_fragmented.then(|| slow("fragment", detail()))
    }

    /// What conntrack counts, and ports have passed to Linux without a look-up.
    fn check_passed(&self) -> Option<Verdict> {
        let looked = if self.is_turned_off() { self.look_past_ports() } else { self.look_past_candidates() };
        let (look, counted) = looked?;
        // The counters are read one after the other.
        let (why, packets) = look.passed.iter().find(|(why, packets)| {
            *why != "fragment" && *packets > 0 && packets + packets / 8 + 1 >= counted
        })?;
        let over_ms = look.over_ms;
        let detail = format!(
            "conntrack counted {counted} packets in {over_ms} ms; of all packets that ports received meanwhile, {packets} were so"
        );
        Some(slow(why, detail))
    }

    /// What conntrack counts and no port has seen as a packet of this connection.
    fn check_unseen(&self) -> Option<Verdict> {
        let (Look { over_ms, .. }, counted) = self.look_past_ports()?;
        let (which, remedy) = self.members_off_ports(0).unwrap_or_else(|| {
            let remedy = "`ip route get ADDRESS` shows the device of each end; name it with --port";
            (String::new(), remedy.to_owned())
        });
        let detail = format!(
            "conntrack counted {counted} packets in {over_ms} ms, and no port has seen one of them{which}"
        );
        Some(Verdict { remedy: Some(remedy), ..slow("miss", detail) })
    }

    /// The next packet of a stale flow that leaves proves the flow. TCP sends data that a rule drops again, after ever
    /// longer pauses.
    fn check_not_left(&self) -> Option<Verdict> {
        let ago_s = self.later_packets_s?;
        // What came before a change may have left: while a port is captured, for one, nothing is proved.
        let moved_s = self.epoch_moved.as_ref().map(|(moved_s, _)| *moved_s);
        if moved_s.is_some_and(|moved_s| ago_s > moved_s)
            || self.unblocked_s.is_some_and(|at_s| ago_s >= at_s)
        {
            return None;
        }
        let is_stale = self.flow.is_some_and(|flow| flow.state == FlowState::Stale);
        (is_stale && self.refused.is_none()).then(|| {
            let (which, remedy) = self.dropped();
            let detail =
                format!("a packet arrived {ago_s} s ago, and was not seen to leave through a port{which}");
            // Of its window, the first packet is known.
            let idle =
                self.has_ceased(ago_s).filter(|_| self.none_come()).map(|idle| Idle { for_s: None, ..idle });
            Verdict { remedy: Some(remedy), idle, since_s: self.cut_off_s(), ..slow("stale", detail) }
        })
    }

    fn check_pending_or_retired(&self) -> Option<Verdict> {
        let flow = self.flow?;
        match flow.state {
            FlowState::Pending => {
                let LastUse { ago_s, fast } = self.last_use.unwrap_or(LastUse { ago_s: 0, fast: false });
                let comes = self.packets_seen > 0 && self.window_age_s < ago_s;
                let idle =
                    (!comes && ago_s >= IDLE_S).then_some(Idle { for_s: Some(ago_s), was_fast: Some(fast) });
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
        let idle = is_silent.then_some(Idle { for_s: None, was_fast });
        let detail = "its state in conntrack is SYN_SENT: the other end has not answered";
        Some(Verdict { idle, ..slow("not-established", detail) })
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
                let silent_s = self.tracked_ago_s.filter(|ago_s| *ago_s >= IDLE_S);
                let was_fast = self.last_use.map(|last| last.fast);
                let idle = silent_s.map(|for_s| Idle { for_s: Some(for_s), was_fast });
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
            _ => self.leaves_beside_ports(),
        };
        Verdict { remedy, ..slow("miss", detail) }
    }

    fn leaves_beside_ports(&self) -> (String, Option<String>) {
        let seen = self.packets_seen;
        let detail =
            format!("packets seen in the last {WINDOW_S} s: {seen}; none of them left through a port");
        if let Some(device) = &self.off_ports[1] {
            return (format!("{detail}, but by {device}, which is not a port"), Some(make_port(device)));
        }
        if self.beside_ports.is_empty() {
            return (
                detail,
                Some("check that Linux forwards them: the firewall's counters, `ip route get`".to_owned()),
            );
        }
        let remedy = format!(
            "`ip route get ADDRESS` shows their egress device; these devices are not ports: {}; `shunt status` says why",
            self.beside_ports.join(", ")
        );
        (detail, Some(remedy))
    }
}

#[cfg(test)]
mod tests;
