//! Collects the answer to `shunt status`.

use super::Daemon;
use crate::{
    kernel_probes::{self, tx_drops_probe},
    log_writer,
    off_rules::unix_time,
    reasons,
};
use shunt_api::{
    API, Attach, ByteTotals, Engine, EngineChoice, FlowCounts, PacketTotals, PortPackets, PortStatus, Probe,
    Status, UnstableStation,
};
use shunt_bpf::{
    XdpForm,
    abi::{Counters, REASONS, Reason, ReasonKind},
    attach::AttachMode,
};
use shunt_core::{Cause, TrackedCounts};
use shunt_wire::Mac;
use std::collections::BTreeMap;

pub(super) fn collect(daemon: &Daemon) -> Status {
    let mut total = Counters::default();
    let mut ports = Vec::new();
    for (link, view) in daemon.core.ports() {
        let counters = daemon.plane.counters(link.ifindex).unwrap_or_default();
        total.add(&counters);
        ports.push(PortStatus {
            name: link.name.clone(),
            ifindex: link.ifindex,
            engine: daemon.engine_in_use(view.setting),
            engine_reason: view.reason.clone(),
            af_xdp_mode: daemon.external.mode().filter(|_| view.setting.engine == Engine::External),
            attach: match daemon.plane.attach_mode(link.ifindex) {
                Some(AttachMode::Clsact) => Attach::Clsact,
                Some(AttachMode::Tcx) | None => Attach::Tcx,
            },
            captured: view.setting.captured,
            filters: view.filters.clone(),
            xdp_attached: daemon.plane.has_xdp(link.ifindex),
            looks_ahead: matches!(daemon.plane.xdp_form(link.ifindex), Some(XdpForm::LookingAhead(_))),
            rests: daemon.plane.rests(link.ifindex),
            up: view.setting.up,
            mtu: link.mtu,
            mac: link.mac,
            packets: PortPackets {
                xdp: counters.xdp_pkts,
                tc: counters.tc_pkts,
                external: counters.external_pkts,
                slow: counters.slow_pkts,
                dropped: counters.dropped_pkts,
            },
            bytes: bytes(&counters),
            reasons: counts_by_name(&counters, ReasonKind::Punt),
            refusals: counts_by_name(&counters, ReasonKind::Refusal),
            drops: counts_by_name(&counters, ReasonKind::Drop),
        });
    }
    let swept = daemon.sweeper.totals();
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api: API,
        instance: daemon.instance.to_string(),
        pid: std::process::id(),
        uptime_s: daemon.started.elapsed().as_secs(),
        counted_s: daemon.hand_over.counted_s(),
        start: daemon.hand_over.start.clone(),
        epoch: daemon.plane.control().epoch(),
        epoch_moves: epoch_moves(daemon),
        ports,
        packets: packets(&total),
        bytes: bytes(&total),
        flows: FlowCounts {
            active: swept.active.into(),
            pending: swept.pending.into(),
            retired: swept.retired.into(),
            static_: swept.statics.into(),
            max: daemon.config.max_flows.into(),
        },
        learned: total.learned,
        proved: total.proved,
        retired: total.retired,
        counts_lost: daemon.plane.usage().unwrap_or_default().expired_lost,
        log_lines_lost: log_writer::lost_lines(),
        reasons: counts_by_name(&total, ReasonKind::Punt),
        refusals: counts_by_name(&total, ReasonKind::Refusal),
        drops: counts_by_name(&total, ReasonKind::Drop),
        slow_causes: daemon.core.slow_causes(TrackedCounts {
            untracked: refused(&total, "no-conntrack"),
            learned: total.learned,
        }),
        off: daemon.off_rules.list(unix_time()),
        unused_queues: daemon.unused_queues(),
        unused_keys: daemon.config.unused_keys(),
        not_kept: daemon.not_kept.values().cloned().collect(),
        top_reasons: reasons::top(&total),
        ruleset: daemon.core.ruleset(),
        kernel: probes(daemon),
        unstable_stations: unstable_stations(daemon),
        longest_step: daemon.steps.longest(),
        costs: Some(daemon.recorder.costs()),
        config: Some(daemon.reloads.status()),
        savings: Some(daemon.recorder.savings()),
    }
}

/// The most unstable stations that are named.
const UNSTABLE_NAMED: usize = 16;

fn epoch_moves(daemon: &Daemon) -> BTreeMap<String, u64> {
    let mut moves = daemon.epoch_moves.clone();
    // The daemon does not hear of these.
    let stations = daemon.plane.control().station_moves();
    if stations > 0 {
        *moves.entry(Cause::Fdb).or_default() += u64::from(stations);
    }
    moves.into_iter().map(|(cause, count)| (cause.to_string(), count)).collect()
}

fn unstable_stations(daemon: &Daemon) -> Vec<UnstableStation> {
    let all = daemon.plane.unstable_stations().unwrap_or_default();
    let named = all.into_iter().take(UNSTABLE_NAMED).map(|(mac, changes)| {
        let mac = Mac(mac);
        UnstableStation { mac, addresses: daemon.core.neighbours_with(mac), changes }
    });
    named.collect()
}

/// The packets that were counted under a reason.
fn refused(counters: &Counters, reason: &str) -> u64 {
    Reason::named(reason).map_or(0, |reason| counters.reasons[reason.number])
}

fn packets(counters: &Counters) -> PacketTotals {
    let fast = counters.xdp_pkts + counters.tc_pkts + counters.external_pkts;
    let all = fast + counters.slow_pkts + counters.dropped_pkts;
    PacketTotals {
        fast,
        slow: counters.slow_pkts,
        dropped: counters.dropped_pkts,
        fast_share: share(fast, all),
    }
}

fn bytes(counters: &Counters) -> ByteTotals {
    let (fast, slow) =
        (counters.xdp_bytes + counters.tc_bytes + counters.external_bytes, counters.slow_bytes);
    ByteTotals { fast, slow, fast_share: share(fast, fast + slow) }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// The reasons of a kind that have occurred, with their counts.
fn counts_by_name(counters: &Counters, kind: ReasonKind) -> BTreeMap<String, u64> {
    let of_kind = REASONS.iter().filter(|reason| reason.kind == kind);
    let counts = of_kind.map(|reason| (reason.name.to_owned(), counters.reasons[reason.number]));
    counts.filter(|(_, count)| *count > 0).collect()
}

fn probes(daemon: &Daemon) -> Vec<Probe> {
    let Daemon { plane, config, missing, core, .. } = daemon;
    let tcx = core.ports().all(|(link, _)| plane.attach_mode(link.ifindex) != Some(AttachMode::Clsact));
    let drops = tx_drops_probe(
        plane.counts_tx_drops() || config.engine == EngineChoice::Tc,
        "redirected frames that a driver drops count as fast",
    );
    kernel_probes::probes(plane, config, missing, tcx, drops)
}
