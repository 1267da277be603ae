//! From what is known of a direction to why it is fast or slow.

use shunt_api::{DirectionName, FlowState, Tracked};

/// Everything that is known of one direction.
#[derive(Debug, Clone)]
pub(super) struct Case<'c> {
    pub(super) protocol: u8,
    pub(super) dir: DirectionName,
    pub(super) tracked: Option<&'c Tracked>,
    pub(super) flow: Option<FlowFacts>,
    /// Why its packets taught nothing the last time.
    pub(super) refused: Option<&'static str>,
    /// That was after its flow was retired.
    pub(super) refused_since: bool,
    /// Packets that were seen within the window, and from which one on is learned.
    pub(super) seen: (u32, u32),
    /// Nothing is learned of its family, or on some port: the reason, and where.
    pub(super) held: Option<(&'static str, String)>,
    /// The connection's mark is excluded.
    pub(super) excluded: bool,
    pub(super) udp_unreplied: bool,
    pub(super) learns: bool,
    /// It begins or ends at the router itself.
    pub(super) local: bool,
    /// Seconds since the last move of the epoch, and its cause.
    pub(super) epoch_moved: Option<(u64, String)>,
}

/// Its flow in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowFacts {
    pub(super) state: FlowState,
    pub(super) retired_why: Option<&'static str>,
    /// It is of the present epoch.
    pub(super) current: bool,
    /// Since it was learned or, if it was, retired.
    pub(super) since_s: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// None where it is fast.
    pub(super) slow: Option<&'static str>,
    pub(super) detail: String,
    pub(super) since_s: Option<u64>,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

fn slow(reason: &'static str, detail: impl Into<String>) -> Verdict {
    Verdict { slow: Some(reason), detail: detail.into(), since_s: None }
}

/// What holds for good comes first, then what happened last.
pub(super) fn of(case: &Case) -> Verdict {
    let asked = [in_use, never, of_its_flow, of_its_connection, held, stale, refused];
    let found = asked.iter().find_map(|ask| ask(case));
    let mut verdict = found.unwrap_or_else(|| not_learned(case));
    // What never was fast has been slow since it began.
    if verdict.slow.is_some() && case.flow.is_none() {
        verdict.since_s = case.tracked.and_then(|tracked| tracked.age_s);
    }
    verdict
}

fn in_use(case: &Case) -> Option<Verdict> {
    let flow = case.flow.filter(|flow| flow.state >= FlowState::Active)?;
    Some(Verdict { since_s: Some(flow.since_s), ..Verdict::default() })
}

fn never(case: &Case) -> Option<Verdict> {
    if !matches!(case.protocol, TCP | UDP) {
        return Some(slow("protocol", ""));
    }
    if let Some(tracked) = case.tracked {
        if tracked.helper.is_some() || tracked.is(Tracked::HELPER) {
            let helper = tracked.helper.as_ref().map(|helper| format!("the helper is {helper}"));
            return Some(slow("helper", helper.unwrap_or_default()));
        }
        let direction = if case.dir == DirectionName::Orig { &tracked.orig } else { &tracked.reply };
        if let Some(zone) = tracked.zone.or(direction.zone) {
            return Some(slow("no-conntrack", format!("it is in zone {zone}")));
        }
    }
    if case.excluded {
        return Some(slow("excluded", "the mark of the connection"));
    }
    if case.local {
        return Some(slow("miss", "it begins or ends at the router itself, which stays with Linux"));
    }
    (!case.learns).then(|| slow("miss", "nothing is learned: `learn = false`"))
}

fn of_its_flow(case: &Case) -> Option<Verdict> {
    let flow = case.flow?;
    match flow.state {
        FlowState::Pending => Some(Verdict { since_s: Some(flow.since_s), ..slow("pending", "") }),
        FlowState::Retired => {
            let retired = flow.retired_why?;
            let (reason, detail) = match case.refused.filter(|why| case.refused_since && *why != "retiring") {
                Some(why) => (why, format!("it was fast until {} s ago: {retired}", flow.since_s)),
                None => (retired, String::new()),
            };
            Some(Verdict { since_s: Some(flow.since_s), ..slow(reason, detail) })
        }
        _ => None,
    }
}

fn of_its_connection(case: &Case) -> Option<Verdict> {
    let tracked = case.tracked?;
    if tracked.is(Tracked::DYING) {
        return Some(slow("dying", ""));
    }
    if !tracked.is(Tracked::CONFIRMED) {
        return Some(slow("unconfirmed", ""));
    }
    if case.protocol == UDP {
        let silent = !tracked.is(Tracked::SEEN_REPLY) && !case.udp_unreplied;
        return silent.then(|| slow("unreplied", ""));
    }
    let state = tracked.state.as_deref().unwrap_or("NONE");
    if state != "ESTABLISHED" {
        return Some(slow("not-established", format!("conntrack says {state}")));
    }
    (!tracked.is(Tracked::ASSURED)).then(|| slow("not-established", "conntrack does not say ASSURED"))
}

fn held(case: &Case) -> Option<Verdict> {
    case.held.as_ref().map(|(reason, place)| slow(reason, place.clone()))
}

fn stale(case: &Case) -> Option<Verdict> {
    let flow = case.flow.filter(|flow| flow.state == FlowState::Stale)?;
    Some(match &case.epoch_moved {
        Some((ago, cause)) if !flow.current => {
            Verdict { since_s: Some(*ago), ..slow("stale", format!("the last change: {cause}")) }
        }
        _ => slow("stale", "it was not proved for too long"),
    })
}

fn refused(case: &Case) -> Option<Verdict> {
    case.refused.map(|why| slow(why, ""))
}

fn not_learned(case: &Case) -> Verdict {
    let (seen, wanted) = case.seen;
    slow(
        "miss",
        match seen {
            0 => "no packet of it came in by a port within 10 s".to_owned(),
            _ if seen < wanted => {
                format!("{seen} packets were seen within 10 s, and it is learned from number {wanted}")
            }
            _ => format!("{seen} packets were seen within 10 s, and none that left by a port"),
        },
    )
}

#[cfg(test)]
mod tests;
