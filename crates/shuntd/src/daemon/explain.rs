//! Explains why connections are fast or slow: collects the facts from which the policy decides.

use super::{Daemon, settings::hold_flags};
use crate::{
    connection_search::{self, Candidate},
    flow_engine::engine_before_tc,
    flow_entry::{entry_state, flow_key, key_ingress, read_clock},
    off_rules::unix_time,
    reasons,
};
use shunt_api::{Because, DirectionName, Engine, Explained, Family, FlowState, MarkMatch, Tuple, Why};
use shunt_bpf::{
    Entry, Epochs, Key,
    abi::{self, Reason, Sighting},
};
use shunt_core::{
    DirectionFacts, FlowFacts, LastUse, LearningBlocked, Link, Look, Obstacle, PortFacts, Stayed, TickClock,
    Traffic, WINDOW_S,
};
use std::collections::BTreeSet;

/// A host that tries a connection again does so within this time, in seconds.
const TRIES_S: u64 = 60;
const DIRECTIONS: [DirectionName; 2] = [DirectionName::Orig, DirectionName::Reply];

/// Explains connections; leaves out those about which nothing is known. Runs on the event loop, so callers pass only a
/// few.
pub(super) fn explain(daemon: &Daemon, candidates: &[Candidate]) -> Result<Vec<Explained>, shunt_bpf::Error> {
    let clock = read_clock(&daemon.plane)?;
    let epochs = daemon.plane.control().epochs();
    let mut explained = Vec::new();
    for candidate in candidates {
        let mut known = candidate.tracked.is_some();
        let mut lives = known || candidate.looks.iter().all(Option::is_none);
        let mut directions = Vec::new();
        // Nobody answers from the address of a group.
        let directions_of = if candidate.to_group { &DIRECTIONS[..1] } else { &DIRECTIONS[..] };
        for (at, dir) in directions_of.iter().copied().enumerate() {
            let flow = flow_of(candidate, at, epochs, clock);
            // Sightings are kept by tuple only: ifindex and tags do not matter.
            let key = flow_key(&candidate.tuples[at], 0, [0; 2], candidate.protocol.into());
            let sighting = daemon.plane.sighting(&key)?;
            let facts = direction_facts(daemon, candidate, dir, flow, &sighting, clock);
            let stayed = |look: &Look| look.stayed.as_ref().is_some_and(|last| last.ago_s <= TRIES_S);
            let has_come = facts.look.as_ref().is_some_and(|look| look.arrived > 0 || stayed(look));
            known |= flow.is_some() || facts.refused.is_some() || has_come;
            let is_fast = facts.flow.is_some_and(|flow| flow.state >= FlowState::Active);
            lives |= is_fast || has_come || candidate.protocol == 17 && facts.packets_seen > 0;
            directions.push(explain_direction(daemon, candidate.tuples[at], flow, &facts));
        }
        // Of a connection that conntrack has forgotten, the remains say nothing that anybody needs.
        if known && lives {
            let state = candidate.tracked.as_ref().and_then(|tracked| tracked.state.clone());
            let (protocol, tracked) = (candidate.protocol, candidate.tracked.is_some());
            explained.push(Explained { protocol, tracked, state, directions });
        }
    }
    Ok(explained)
}

fn direction_facts<'c>(
    daemon: &Daemon,
    candidate: &'c Candidate,
    dir: DirectionName,
    flow: Option<&(Key, Entry)>,
    sighting: &Sighting,
    clock: TickClock,
) -> DirectionFacts<'c> {
    let config = &daemon.config;
    let at = usize::from(dir == DirectionName::Reply);
    // Of the sender and of the receiver.
    let hosts = [&candidate.devices[at], &candidate.devices[1 - at]];
    let tracked = candidate.tracked.as_ref();
    let is_excluded = |MarkMatch { value, mask }: MarkMatch| {
        mask != 0 && tracked.and_then(|t| t.mark).is_some_and(|mark| mark & mask == value)
    };
    let window_age_s = window_age_s(sighting, clock);
    let epochs = daemon.plane.control().epochs();
    let uses = [0, 1].map(|at| last_use_ticks(candidate, at, flow_of(candidate, at, epochs, clock)));
    let used = uses[at];
    // A refusal before the last use has been overcome.
    let is_overcome = used.is_some_and(|(ticks, _)| clock.is_before(sighting.quiet_until_ticks, ticks));
    let last_use = used.map(|(ticks, fast)| LastUse { ago_s: clock.seconds_since(ticks), fast });
    let is_after_both =
        |ago_s: &u64| uses.iter().flatten().all(|(ticks, _)| ago_s + 1 < clock.seconds_since(*ticks));
    let family = if candidate.tuples[0].src.is_ipv4() { Traffic::V4 } else { Traffic::V6 };
    let traffic = family & if candidate.protocol == 6 { Traffic::TCP } else { Traffic::UDP };
    DirectionFacts {
        protocol: candidate.protocol,
        dir,
        tracked,
        flow: flow.map(|(_, entry)| flow_facts(&entry.flow, entry.cold.learned_ticks, epochs, clock)),
        refused: reasons::name(sighting.refused_why).filter(|_| !is_overcome),
        refused_after_retirement: flow.is_some_and(|(_, entry)| {
            !clock.is_before(sighting.quiet_until_ticks, entry.flow.retired_ticks())
        }),
        packets_seen: if window_age_s < WINDOW_S { sighting.pkts } else { 0 },
        window_age_s,
        last_use,
        packets_needed: if candidate.protocol == 6 { config.tcp_packets } else { config.udp_packets },
        learning_blocked: learning_blocked(daemon, traffic - Traffic::UNANSWERED, &hosts),
        excluded: config.exclude_ct_mark.is_some_and(is_excluded),
        off: daemon.off_rules.naming(candidate.protocol, &candidate.tuples, unix_time()),
        needs_reply: needs_reply(daemon, traffic),
        learns: config.learn,
        local: candidate.local,
        to_group: candidate.to_group,
        beside_ports: daemon.core.links_beside_ports().map(|link| link.name.clone()).collect(),
        off_ports: hosts.map(|devices| off_port(daemon, devices)),
        bridged_off_ports: hosts.map(|devices| members_off_ports(daemon, devices)),
        tracked_ago_s: candidate.tracked_ago_s,
        later_ago_s: candidate.tracked_ago_s.filter(is_after_both),
        up_s: unix_time().saturating_sub(daemon.started_at.as_secs()),
        reprove_s: config.reprove.as_secs(),
        no_route_to: Some(candidate.tuples[1 - at].src).filter(|_| {
            let is_bridged = daemon.core.ports().any(|(port, _)| port.master.is_some());
            candidate.devices[1 - at].is_empty() && !candidate.local && !is_bridged
        }),
        later_packets_s: later_packets_s(candidate, sighting, window_age_s, last_use.map(|last| last.ago_s)),
        silent_hop: candidate.silent_hops[1 - at]
            .map(|hop| format!("{} on {}", hop.addr, daemon.name(hop.ifindex))),
        down_ports: {
            let down = daemon.core.ports().filter(|(link, _)| !link.up || !link.carrier);
            down.map(|(link, _)| link.name.clone()).collect()
        },
        obstacle: obstacle(daemon, candidate, flow, at),
        look: candidate.looks[at].as_ref().map(|look| look_facts(daemon, look, clock)),
        epoch_moved: daemon.last_move.map(|(at, cause)| (at.elapsed().as_secs(), cause.to_string())),
        unblocked_s: daemon.unblocked.map(|at| at.elapsed().as_secs()),
    }
}

/// The flow of a direction that says most: the one in use, if there is one.
fn flow_of<'c>(
    candidate: &'c Candidate,
    at: usize,
    epochs: &Epochs,
    clock: TickClock,
) -> Option<&'c (Key, Entry)> {
    candidate.flows[at].iter().max_by_key(|(_, entry)| entry_state(&entry.flow, epochs).flow_state(clock))
}

/// When a flow of the direction was last used or proved, and whether it has forwarded packets.
fn last_use_ticks(candidate: &Candidate, at: usize, flow: Option<&(Key, Entry)>) -> Option<(u32, bool)> {
    flow.map(|(_, entry)| (entry.flow.seen_ticks, entry.pkts() > 0))
        .or_else(|| candidate.expired[at].map(|past| (past.seen_ticks, past.pkts > 0)))
}

/// Since when packets have come after the last fast one; `None` if that is not sure: the time of the window wraps.
fn later_packets_s(
    candidate: &Candidate,
    sighting: &Sighting,
    window_age_s: u64,
    last_use_s: Option<u64>,
) -> Option<u64> {
    let is_counted = sighting.pkts > 0 && sighting.fingerprint != 0;
    let is_later = |ago_s: u64| last_use_s.is_some_and(|last_use_s| ago_s + 1 < last_use_s);
    let is_sure = is_counted && is_later(window_age_s) && candidate.tracked_ago_s.is_some_and(is_later);
    is_sure.then_some(window_age_s)
}

/// Seconds since the window began in which the packets of a tuple are counted.
fn window_age_s(sighting: &Sighting, clock: TickClock) -> u64 {
    let units = ((clock.now / abi::SIGHTING_TICKS) as u16).wrapping_sub(sighting.since);
    u64::from(u32::from(units) * abi::SIGHTING_TICKS / clock.ticks_per_s.max(1))
}

fn flow_facts(flow: &abi::Flow, learned_ticks: u32, epochs: &Epochs, clock: TickClock) -> FlowFacts {
    let state = entry_state(flow, epochs).flow_state(clock);
    let since = if state == FlowState::Retired { flow.retired_ticks() } else { learned_ticks };
    FlowFacts {
        state,
        retired_why: flow.retired_why().and_then(reasons::name),
        current: epochs.is_current(flow),
        since_s: clock.seconds_since(since),
    }
}

/// The traffic that the data plane does not learn.
fn held(daemon: &Daemon) -> Traffic {
    let flags = daemon.plane.control().held();
    let held = hold_flags().into_iter().filter(|(flag, _)| flags & flag != 0);
    held.fold(Traffic::NONE, |held, (_, traffic)| held | traffic)
}

/// Why UDP without a reply is not learned although the rest of this traffic is.
fn needs_reply(daemon: &Daemon, traffic: Traffic) -> Option<String> {
    if !daemon.config.udp_unreplied {
        return Some("the configuration has `udp_unreplied = false`".to_owned());
    }
    let (unanswered, held) = (traffic & Traffic::UNANSWERED, held(daemon));
    let alone = held.meets(unanswered) && !held.meets(traffic - unanswered);
    alone.then(|| daemon.core.holding_rule(unanswered))
}

/// What keeps every packet of this direction from being forwarded. Routes of a device that is down are gone, so that
/// only the flow knows the device.
fn obstacle(
    daemon: &Daemon,
    candidate: &Candidate,
    flow: Option<&(Key, Entry)>,
    at: usize,
) -> Option<Obstacle> {
    let in_port = flow.map(|(key, _)| key_ingress(key).0);
    let out_port = flow.and_then(|(_, entry)| daemon.plane.ifindex_at(entry.flow.out_slot));
    let stops = |devices: &BTreeSet<u32>, port: Option<u32>| {
        let is_of_host = |link: &&Link| devices.contains(&link.ifindex) || port == Some(link.ifindex);
        daemon.core.links().filter(is_of_host).find_map(|link| match (link.up, link.carrier) {
            (false, _) => Some(Obstacle::Down(link.name.clone())),
            (true, false) => Some(Obstacle::NoCarrier(link.name.clone())),
            (true, true) => None,
        })
    };
    let look = candidate.looks[at].as_ref()?;
    let at_sender = stops(&candidate.devices[at], in_port).filter(|_| look.arrived == 0);
    let is_bridged = daemon.core.ports().any(|(port, _)| port.master.is_some());
    let family = if candidate.tuples[0].src.is_ipv4() { Family::V4 } else { Family::V6 };
    let is_off = candidate.is_forwarding == Some(false) && !candidate.local && !is_bridged;
    let not_forwarding = is_off.then_some(Obstacle::NotForwarding(family));
    at_sender.or(not_forwarding).or_else(|| stops(&candidate.devices[1 - at], out_port))
}

/// The device by which Linux routes to a host, if it is neither a port nor on top of one.
fn off_port(daemon: &Daemon, devices: &BTreeSet<u32>) -> Option<String> {
    let beside = daemon.core.links_beside_ports().find(|link| devices.contains(&link.ifindex))?;
    Some(beside.name.clone())
}

/// The members of the bridge by which Linux routes to a host that are not ports.
fn members_off_ports(daemon: &Daemon, devices: &BTreeSet<u32>) -> Vec<String> {
    let is_port = |ifindex: u32| daemon.core.ports().any(|(port, _)| port.ifindex == ifindex);
    let members =
        daemon.core.links().filter(|link| link.master.is_some_and(|master| devices.contains(&master)));
    members.filter(|link| !is_port(link.ifindex)).map(|link| link.name.clone()).collect()
}

fn look_facts(daemon: &Daemon, look: &connection_search::Look, clock: TickClock) -> Look {
    Look {
        over_ms: look.over.as_millis() as u64,
        counted: look.counted.map(|counted| counted.packets),
        mean_bytes: look.counted.map_or(0, |counted| counted.bytes / counted.packets.max(1)),
        mtu: daemon.core.ports().map(|(link, _)| link.mtu).max().unwrap_or(0),
        arrived: look.arrived,
        stayed: look.stayed.map(|last| Stayed {
            port: daemon.name(last.ifindex),
            ago_s: clock.seconds_since(last.at_ticks),
        }),
        passed: look
            .passed
            .iter()
            .filter_map(|(reason, packets)| Some((reasons::name(*reason as u8)?, *packets)))
            .collect(),
    }
}

/// `hosts` are the devices by which Linux routes to the sender and to the receiver.
fn learning_blocked(
    daemon: &Daemon,
    traffic: Traffic,
    hosts: &[&BTreeSet<u32>; 2],
) -> Option<LearningBlocked> {
    let rule = held(daemon).meets(traffic).then(|| daemon.core.holding_rule(traffic));
    let ports = daemon.core.ports().map(|(link, view)| PortFacts {
        name: &link.name,
        captured: daemon.plane.flags(link.ifindex) & abi::PORT_CAPTURED != 0,
        filter: view.filters.first(),
        leaves: !hosts[0].contains(&link.ifindex) && hosts[1].contains(&link.ifindex),
    });
    LearningBlocked::find(rule, ports)
}

fn explain_direction(
    daemon: &Daemon,
    tuple: Tuple,
    flow: Option<&(Key, Entry)>,
    facts: &DirectionFacts,
) -> Why {
    let verdict = facts.verdict();
    let in_port = flow.map(|(key, _)| key_ingress(key).0);
    let out_port = flow.and_then(|(_, entry)| daemon.plane.ifindex_at(entry.flow.out_slot));
    let before_tc = in_port.and_then(|ifindex| engine_before_tc(&daemon.plane, ifindex));
    let engine = |flags: u8| before_tc.filter(|_| flags & abi::FLOW_XDP != 0).unwrap_or(Engine::Tc);
    let fast = verdict.slow.is_none() && verdict.idle.is_none();
    Why {
        dir: facts.dir,
        tuple,
        fast,
        idle: verdict.idle,
        since_s: verdict.since_s,
        engine: flow.filter(|_| fast).map(|(_, entry)| engine(entry.flow.flags)),
        in_port: in_port.map(|ifindex| daemon.name(ifindex)),
        out_port: out_port.map(|ifindex| daemon.name(ifindex)),
        because: verdict.slow.or(verdict.partly).map(|reason| {
            let text = Reason::named(reason);
            Because {
                reason: reason.to_owned(),
                meaning: text.map(|text| text.meaning).unwrap_or_default().to_owned(),
                detail: verdict.detail,
                remedy: verdict
                    .remedy
                    .unwrap_or_else(|| text.map(|text| text.remedy).unwrap_or_default().to_owned()),
            }
        }),
    }
}
