//! Packets that arrive and leave through no port, and packets that no port has noted.

use super::{
    NOT_FAST, UDP, UNKNOWN, Verdict,
    facts::{DirectionFacts, Look, Reason, Stayed, WINDOW_S},
    slow,
};
use shunt_api::{FlowState, Idle};

/// What to do about packets that arrive and do not leave.
const DROPPED: &str = "see whether a rule drops them (the counters in `nft list ruleset`), whether they have a route \
                       (`ip route get ADDRESS`), and whether the next hop answers (`ip neigh`)";

/// What to do about a next hop that does not answer.
const SILENT: &str =
    "see whether it is on, and connected (`ip neigh` says FAILED or INCOMPLETE until it answers)";

const FRAGMENT: Reason = "fragment";
/// Reasons for which packets are passed to Linux before they are looked up.
const BEFORE_LOOK_UP: [Reason; 4] = [FRAGMENT, "ttl", "options", "bad-header"];
/// So many packets of a fast direction go through Linux during a look, to prove its flow.
const PROOFS_IN_A_LOOK: u64 = 3;

/// A packet of at most so many bytes is hardly cut into fragments.
const SMALL: u64 = 576;

/// The reason that as many packets of any connection had during a look as conntrack counted of this direction; `None`
/// if there is none, or if it could be one of several.
fn explained(look: &Look, counted: u64, is_asked: impl Fn(Reason) -> bool) -> Option<Verdict> {
    let explains = |(why, packets): &&(Reason, u64)| {
        let is_fragment = *why == FRAGMENT;
        // Conntrack puts fragments together. The counters are read one after the other.
        let least = if is_fragment { 2 * counted } else { counted };
        let is_possible = is_asked(why) && (!is_fragment || look.mean_bytes > SMALL);
        is_possible && *packets > 0 && packets + packets / 8 + 1 >= least
    };
    let mut found = look.passed.iter().filter(explains);
    let (why, packets) = found.next().filter(|_| found.next().is_none())?;
    let over_ms = look.over_ms;
    let detail = format!(
        "conntrack counted {counted} packets in {over_ms} ms; of all packets that ports received meanwhile, {packets} were so"
    );
    Some(slow(why, detail))
}

/// What to do about packets that pass a device that is not a port.
fn make_port(device: &str) -> String {
    format!(
        "make {device} a port (`--port`, or `ports` in the configuration); `shunt probe` says whether it can be one"
    )
}

impl DirectionFacts<'_> {
    /// The members of a bridge to the sender (0) or the receiver (1) that are not ports, and what to do; `None` without
    /// such members.
    pub(super) fn members_off_ports(&self, end: usize) -> Option<(String, String)> {
        let members = self.bridged_off_ports[end].join(", ");
        let which = format!("; these devices of the bridge are not ports: {members}");
        (!members.is_empty()).then(|| (which, make_port(&members)))
    }

    /// What keeps packets from leaving, and what to do.
    pub(super) fn dropped(&self) -> (String, String) {
        self.not_forwarded().unwrap_or_else(|| (String::new(), DROPPED.to_owned()))
    }

    /// The next hop that does not answer, or the route that there is not, and what to do; `None` if there is neither.
    pub(super) fn not_forwarded(&self) -> Option<(String, String)> {
        if let Some(hop) = &self.silent_hop {
            return Some((format!("; the next hop, {hop}, does not answer"), SILENT.to_owned()));
        }
        let to = self.no_route_to?;
        let down = match self.down_ports.as_slice() {
            [] => String::new(),
            [port] => format!(", and {port} is down"),
            ports => format!(", and {} are down", ports.join(", ")),
        };
        Some((
            format!("; Linux has no route to {to}{down}"),
            format!("see `ip route get {to}`, and whether the links are up (`ip link`)"),
        ))
    }

    /// Packets of a sender that Linux routes by another device than a port, while no port sees any.
    pub(super) fn check_off_ports(&self) -> Option<Verdict> {
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
    pub(super) fn check_stayed(&self) -> Option<Verdict> {
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
        (none_come && ago_s >= WINDOW_S).then_some(Idle { for_s: Some(ago_s), was_fast, ..UNKNOWN })
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
    pub(super) fn look_past_ports(&self) -> Option<(&Look, u64)> {
        let is_unseen = if self.is_turned_off() {
            // Of packets that were refused lately, nothing is noted for a while.
            self.window_age_s >= 2 * WINDOW_S
        } else {
            self.packets_seen == 0 && self.refused.is_none()
        };
        self.look_past_candidates().filter(|_| is_unseen)
    }

    pub(super) fn check_fragments(&self) -> Option<Verdict> {
        let (Look { mean_bytes, mtu, passed, .. }, counted) = self.look_past_ports()?;
        let has_fragments = passed.iter().any(|(why, packets)| *why == FRAGMENT && *packets >= counted);
        let is_fragmented = self.protocol == UDP && *mean_bytes > u64::from(*mtu) && has_fragments;
        let detail = || format!("conntrack counts packets of {mean_bytes} bytes, and the MTU is {mtu}");
        is_fragmented.then(|| slow(FRAGMENT, detail()))
    }

    /// What conntrack counts, and ports have passed to Linux without a look-up.
    pub(super) fn check_passed(&self) -> Option<Verdict> {
        let looked = if self.is_turned_off() { self.look_past_ports() } else { self.look_past_candidates() };
        let (look, counted) = looked?;
        explained(look, counted, |why| BEFORE_LOOK_UP.contains(&why))
    }

    /// Why some packets of a direction that is fast go through Linux: more of them than prove it.
    pub(super) fn slow_beside(&self) -> Option<Verdict> {
        let look = self.look.as_ref()?;
        let counted = look.counted.filter(|packets| *packets > PROOFS_IN_A_LOOK)?;
        explained(look, counted, |_| true)
    }

    /// What conntrack counts and no port has seen as a packet of this connection.
    pub(super) fn check_unseen(&self) -> Option<Verdict> {
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
    pub(super) fn check_not_left(&self) -> Option<Verdict> {
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

    pub(super) fn leaves_beside_ports(&self) -> (String, Option<String>) {
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
