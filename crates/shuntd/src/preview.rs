//! `--dry-run` and `--probe`: take the steps of a start up to the first attachment, with the same policy, and report
//! the result.

use crate::{
    control,
    failures::{attach_failure, internal},
    foreign_programs::foreign_programs,
    kernel_probes::{probe, probes, tcx_probe, tx_drops_probe},
    queue_settings,
    start::{self, Machine},
};
use shunt_api::{
    Attach, Config, DeviceReport, DryRun, Engine, EngineChoice, Failure, FailureCode, Family, Instance,
    PlannedPort, Probe, ProbeAnswer, ProbeReport, RulesetStatus,
};
use shunt_bpf::{DataPlane, TypesSource, attach};
use shunt_core::{
    Action, Core, Event, Sessions, TrackedCounts, has_bridge_with_two_ports, untracked_by_rules,
};
use shunt_kernel::{LegacyIptables, Linux};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Instant,
};

/// Names of Shunt's programs, as the kernel reports them.
const OWN_PROGRAMS: [&str; 7] = [
    "shunt_in",
    "shunt_in_l3",
    "shunt_in_rest",
    "shunt_out",
    "shunt_xdp",
    "shunt_xdp_usual",
    "shunt_xdp_ext",
];

/// The answer of `--dry-run`: the ports and engines of a start with these options. Fails where a start would fail,
/// except that the instance may run: then the answer is for a start after its end.
pub(crate) async fn dry_run(instance: &Instance, config: &Config) -> Result<DryRun, Failure> {
    let running = match control::check(instance, config) {
        Err(failure) if failure.code == FailureCode::AlreadyRunning => true,
        checked => checked.map(|()| false)?,
    };
    let mut machine = Machine::read(config)?;
    if running {
        leave_out_own_programs(&mut machine.state);
    }
    start::refuse(machine.obstacles(config))?;
    let plane = load(&machine, config)?;
    let mut core = start::core(config, plane.xdp_program_ids());
    core.handle(Instant::now(), Event::Dump(machine.state.clone()));
    start::suppose_external_engine(&mut core);
    let mut of_ports = start::port_obstacles(instance, &core, &mut machine.kernel, config, &|_| false)?;
    // Most likely this instance itself is attached there.
    of_ports.retain(|obstacle| !running || obstacle.code != FailureCode::PortTaken);
    start::refuse(of_ports)?;
    start::refuse(egress_obstacles(&core, &machine.state))?;
    observe(&mut core, &mut machine.kernel, Some(&plane), &|name| !running || !is_own(name)).await;
    let mut slow_causes = core.slow_causes(TrackedCounts::default());
    if config.learn && machine.conntrack && tracks_routed(&machine.kernel).await == Some(false) {
        slow_causes.push(untracked_by_rules());
    }
    Ok(DryRun {
        running,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: instance.to_string(),
        ports: planned_ports(&core),
        slow_causes,
        unused_queues: queue_settings::unused(&core, &config.qos),
        unused_keys: config.unused_keys(),
        ruleset: core.ruleset(),
        kernel: kernel_probes(&machine, Some(&plane), config),
        reload: None,
    })
}

/// The answer of `--probe`: features of this machine. Obstacles to a start are part of the answer.
pub(crate) async fn probe_machine(instance: &Instance, config: &Config) -> Result<ProbeReport, Failure> {
    let mut machine = Machine::read(config)?;
    let mut obstacles: Vec<Failure> = control::check(instance, config).err().into_iter().collect();
    obstacles.extend(machine.obstacles(config));
    let plane = match load(&machine, config) {
        Ok(plane) => Some(plane),
        Err(failure) => {
            // Without BTF, nothing that learns can be loaded.
            let is_known = obstacles.iter().any(|obstacle| obstacle.code == FailureCode::NoBtf);
            obstacles.extend((!is_known).then_some(failure));
            None
        }
    };
    // A daemon that runs already does not count as somebody else's program.
    let attached = machine.state.iter().filter_map(|event| match event {
        Event::Link(link) => link.xdp_prog,
        _ => None,
    });
    let own = attached.filter(|id| attach::program_name(*id).is_some_and(|name| is_own(&name)));
    let mut core = start::core(config, own.chain(plane.iter().flat_map(DataPlane::xdp_program_ids)));
    core.handle(Instant::now(), Event::Dump(machine.state.clone()));
    start::suppose_external_engine(&mut core);
    let runs = obstacles.iter().any(|obstacle| obstacle.code == FailureCode::AlreadyRunning);
    let mut of_ports = start::port_obstacles(instance, &core, &mut machine.kernel, config, &|_| false)?;
    // Most likely this instance itself is attached there.
    of_ports.retain(|obstacle| !runs || obstacle.code != FailureCode::PortTaken);
    obstacles.extend(of_ports);
    obstacles.extend(egress_obstacles(&core, &machine.state));
    observe(&mut core, &mut machine.kernel, plane.as_ref(), &|name| !is_own(name)).await;
    let ports = planned_ports(&core);
    Ok(ProbeReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel_release: kernel_release(),
        kernel: kernel_probes(&machine, plane.as_ref(), config),
        router: router_probes(&machine, config).await,
        devices: devices(&core, &machine.state, &ports),
        slow_causes: core.slow_causes(TrackedCounts::default()),
        ruleset: core.ruleset(),
        gain: gain(&ports, &obstacles, &core.ruleset()),
        obstacles,
    })
}

/// The names of the devices that Shunt would attach to. Needs no root.
pub(crate) fn port_names(config: &Config) -> Result<Vec<String>, Failure> {
    let state = Linux::open().and_then(|mut kernel| kernel.dump()).map_err(internal)?;
    let mut core = start::core(config, None);
    core.handle(Instant::now(), Event::Dump(state));
    Ok(core.ports().map(|(link, _)| link.name.clone()).collect())
}

/// Forgets the XDP programs of a daemon that runs: after its end, they are gone.
fn leave_out_own_programs(state: &mut [Event]) {
    for event in state {
        if let Event::Link(link) = event
            && link.xdp_prog.and_then(attach::program_name).is_some_and(|name| is_own(&name))
        {
            link.xdp_prog = None;
        }
    }
}

fn is_own(program: &str) -> bool {
    OWN_PROGRAMS.contains(&program)
}

/// Loads the programs, so that the kernel's verifier checks them, and attaches some of them to sockets of this process.
fn load(machine: &Machine, config: &Config) -> Result<DataPlane, Failure> {
    let mut plane = start::load(machine, config)?;
    if config.learn {
        start::attach_change_hooks(&mut plane, &machine.subscription);
    }
    Ok(plane)
}

/// The failures of an attachment that can be foreseen.
fn egress_obstacles(core: &Core, state: &[Event]) -> Vec<Failure> {
    if start::has_tcx() {
        return Vec::new();
    }
    let has_ingress = |ifindex: u32| {
        let is_it =
            |event: &Event| matches!(event, Event::Qdisc(q) if q.ifindex == ifindex && q.kind == "ingress");
        state.iter().any(is_it)
    };
    let ports = core.ports().filter(|(link, _)| has_ingress(link.ifindex));
    ports.map(|(link, _)| attach_failure(&link.name, &shunt_bpf::Error::NoEgress)).collect()
}

/// Reads what the daemon reads after its start and at its first tick, and reports it to the policy. `counts` tells
/// which TCX programs belong to others.
async fn observe(
    core: &mut Core,
    kernel: &mut Linux,
    plane: Option<&DataPlane>,
    counts: &dyn Fn(&str) -> bool,
) {
    let ruleset = match shunt_kernel::read_ruleset().await {
        Ok(ruleset) => Event::RulesetRead(ruleset.statements),
        Err(error) => Event::RulesetUnread(error.to_string()),
    };
    let legacy = match LegacyIptables::default().read_if_changed() {
        Ok(rules) => Event::LegacyRead(rules.unwrap_or_default().statements),
        Err(error) => Event::LegacyUnread(error.to_string()),
    };
    core.handle_all(Instant::now(), [ruleset, legacy]);
    for action in core.handle(Instant::now(), Event::Tick) {
        let event = match action {
            Action::FindCaptures => kernel.captured().ok().map(Event::Captures),
            Action::FindBridgeCalls => Some(Event::BridgeCalls(kernel.bridge_calls())),
            Action::FindSessions => {
                let devices = kernel.session_devices();
                Some(Event::Sessions(Sessions { devices, ..Sessions::default() }))
            }
            Action::FindPrograms(devices) => plane.map(|plane| {
                let found = foreign_programs(plane.own_programs(), &devices).into_iter();
                Event::Programs(found.filter(|program| counts(&program.name)).collect())
            }),
            _ => None,
        };
        if let Some(event) = event {
            core.handle(Instant::now(), event);
        }
    }
}

fn planned_ports(core: &Core) -> Vec<PlannedPort> {
    let tcx = start::has_tcx();
    core.ports()
        .map(|(link, view)| PlannedPort {
            name: link.name.clone(),
            ifindex: link.ifindex,
            engine: view.setting.engine,
            engine_reason: view.reason.clone(),
            attach: if tcx { Attach::Tcx } else { Attach::Clsact },
            xdp_attached: view.setting.xdp_in,
            captured: view.setting.captured,
            filters: view.filters.clone(),
        })
        .collect()
}

fn kernel_probes(machine: &Machine, plane: Option<&DataPlane>, config: &Config) -> Vec<Probe> {
    let is_known = machine.types != TypesSource::Unknown;
    let btf = probe("BTF", is_known, "only static flows are forwarded");
    let tcx = start::has_tcx();
    let Some(plane) = plane else { return vec![btf, tcx_probe(tcx)] };
    let xdp = probe(
        "XDP programs",
        plane.xdp_program_id().is_some()
            || matches!(config.engine, EngineChoice::Tc | EngineChoice::External),
        "the kernel refuses them, so all ports use tc",
    );
    let drops =
        tx_drops_probe(ProbeAnswer::Unknown, "known once Shunt runs, because nothing is attached now");
    [vec![btf, xdp], probes(plane, config, machine.subscription.missing(), tcx, drops)].concat()
}

/// Whether conntrack tracks routed packets, as far as rules and connections show; none if the rules cannot be read.
async fn tracks_routed(kernel: &Linux) -> Option<bool> {
    // NAT or connection states by legacy iptables show only in the number of connections.
    if kernel.conntrack_count() > 0 {
        return Some(true);
    }
    shunt_kernel::rules_track().await.ok()
}

/// The settings that Shunt depends on.
async fn router_probes(machine: &Machine, config: &Config) -> Vec<Probe> {
    let tracks = match tracks_routed(&machine.kernel).await {
        Some(true) => ProbeAnswer::Yes,
        Some(false) | None => ProbeAnswer::Unknown,
    };
    let mut found = vec![
        probe("IPv4 forwarding", machine.forwarding.v4, "sysctl net.ipv4.ip_forward=1 turns it on"),
        probe("IPv6 forwarding", machine.forwarding.v6, "sysctl net.ipv6.conf.all.forwarding=1 turns it on"),
        probe(
            "bridge of two ports",
            has_bridge_with_two_ports(&machine.state),
            "only routed packets can be fast",
        ),
        probe("connection tracking", machine.conntrack, "modprobe nf_conntrack loads it"),
    ];
    if machine.conntrack && config.learn {
        found.push(probe(
            "packets are tracked",
            tracks,
            "no rule of nftables needs conntrack, and conntrack has no connection yet; without a rule with `ct state`, or NAT, nothing is \
             learned from routed packets",
        ));
    }
    found
}

fn devices(core: &Core, state: &[Event], ports: &[PlannedPort]) -> Vec<DeviceReport> {
    let mut qdiscs: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for event in state {
        if let Event::Qdisc(qdisc) = event {
            qdiscs.entry(qdisc.ifindex).or_default().insert(&qdisc.kind);
        }
    }
    let report = |link: &shunt_core::Link| DeviceReport {
        name: link.name.clone(),
        ifindex: link.ifindex,
        kind: link.kind.clone(),
        up: link.up && link.carrier,
        xdp_native: core.xdp(link.ifindex).map(|(native, _)| native),
        xdp_target: core.xdp(link.ifindex).map(|(_, target)| target),
        qdiscs: qdiscs.get(&link.ifindex).into_iter().flatten().map(|kind| (*kind).to_owned()).collect(),
        port: ports.iter().find(|port| port.ifindex == link.ifindex).cloned(),
        no_port: core.why_no_port(link),
    };
    core.links().filter(|link| link.name != "lo").map(report).collect()
}

/// The expected gain, by the figures of docs/performance.md.
fn gain(ports: &[PlannedPort], obstacles: &[Failure], ruleset: &RulesetStatus) -> Vec<String> {
    if ports.is_empty() {
        return vec!["nothing: there is no port".to_owned()];
    }
    let mut gain = Vec::new();
    if obstacles.iter().any(|obstacle| obstacle.code != FailureCode::AlreadyRunning) {
        gain.push("nothing until `shunt up` can start; after that:".to_owned());
    }
    if [Family::V4, Family::V6].iter().all(|family| ruleset.held.contains(family)) {
        gain.push("nothing: rules keep all traffic slow".to_owned());
        return gain;
    }
    if ![&ruleset.stops, &ruleset.limits, &ruleset.rewrites].into_iter().all(Vec::is_empty) {
        gain.push("the traffic under `what would stay slow` gains nothing; other traffic:".to_owned());
    }
    for (engine, share) in [(Engine::Xdp, "a tenth"), (Engine::Tc, "half")] {
        let by_it: Vec<&str> =
            ports.iter().filter(|port| port.engine == engine).map(|port| port.name.as_str()).collect();
        if !by_it.is_empty() {
            gain.push(format!(
                "packets of established connections that leave through {}: about {share} of the CPU time that Linux takes (engine {engine})",
                by_it.join(", ")
            ));
        }
    }
    gain.push(
        "these are shares for small UDP packets on virtual machines; `shunt bench matrix` measures this router".to_owned(),
    );
    gain
}

fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::RuleNote;

    fn port(name: &str, engine: Engine) -> PlannedPort {
        PlannedPort {
            name: name.to_owned(),
            ifindex: 1,
            engine,
            engine_reason: String::new(),
            attach: Attach::Tcx,
            xdp_attached: false,
            captured: false,
            filters: Vec::new(),
        }
    }

    #[test]
    fn the_gain_names_the_ports_of_each_engine_and_what_must_come_first() {
        let ports = [port("a", Engine::Tc), port("b", Engine::Xdp), port("c", Engine::Tc)];
        let gain =
            |ports: &[PlannedPort], obstacles: &[Failure]| gain(ports, obstacles, &RulesetStatus::default());
        let lines = gain(&ports, &[]);
        assert!(
            lines[0].contains("leave through b: about a tenth")
                && lines[1].contains("leave through a, c: about half")
        );
        assert_eq!(lines.len(), 3);
        let off = Failure::new(FailureCode::ForwardingOff, "forwarding is off");
        assert!(gain(&ports, &[off])[0].starts_with("nothing until `shunt up` can start"));
        let running = Failure::new(FailureCode::AlreadyRunning, "already running");
        assert_eq!(gain(&ports, &[running]), lines);
        assert_eq!(gain(&[], &[]), ["nothing: there is no port"]);
    }

    #[test]
    fn no_gain_is_promised_to_traffic_that_rules_keep_slow() {
        let ports = [port("a", Engine::Tc)];
        let note = RuleNote { statement: "ip ttl set".to_owned(), ..RuleNote::default() };
        let rewrites = RulesetStatus { rewrites: vec![note], ..RulesetStatus::default() };
        assert!(gain(&ports, &[], &rewrites)[0].contains("gains nothing; other traffic:"));
        let held = RulesetStatus { held: vec![Family::V4, Family::V6], ..RulesetStatus::default() };
        assert_eq!(gain(&ports, &[], &held), ["nothing: rules keep all traffic slow"]);
        let half = RulesetStatus { held: vec![Family::V4], ..RulesetStatus::default() };
        assert!(gain(&ports, &[], &half).len() > 1);
    }
}
