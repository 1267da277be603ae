//! Takes over from the running daemon, which has started this process, or from one that has left its descriptors to
//! the service manager.

use super::{
    Daemon, Ended, Reloads, Signals,
    beats::Beats,
    hand_over::monotonic_ns,
    ruleset_reader::{RulesetRead, RulesetReader},
};
use crate::{
    control::Listeners,
    descriptor_store::{Record, Store, Stored},
    failures::{failure, internal, load_failure},
    handover::{Channel, FromNext, HandedState, Offer, ToNext, fault_point},
    iptables_poll::{self, LegacyRead},
    kernel_types::pretends_missing,
    priority::Priority,
    signals::StopSignals,
    start::{self, Kept, Machine, Parts},
};
use shunt_api::{Config, Failure, FailureCode, Instance, RestartKind};
use shunt_bpf::{DataPlane, HandedMaps, HandedPort, LAYOUT, StoredLink, abi};
use shunt_core::{Action, Cause, ChangeDetails, Core, Event};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// How long the running daemon may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long it may take to write what is kept across restarts.
const FILES: Duration = Duration::from_secs(60);
/// How long it may take to find a moment without changes in progress.
const CALM: Duration = Duration::from_secs(20);

/// What the running daemon's answer is.
pub(crate) enum Prepared {
    /// This daemon must begin without flows, when the running one has ended; and why.
    Clean(String, Box<Reloads>),
    /// This daemon owns the data plane.
    Over(Box<Owner>),
}

/// A daemon that owns the data plane of the one before, and has not begun to work.
pub(crate) struct Owner {
    daemon: Daemon,
    listeners: Listeners,
    findings: Findings,
    since_ns: u64,
    before: Before,
}

/// The daemon before this one.
#[derive(Debug, Clone, Copy)]
enum Before {
    /// It ran until this one took over. The number stands for the rules of legacy iptables that it knew.
    Ran { legacy_rules: Option<u64> },
    /// It had ended, so nobody knows which changes have been missed.
    HadEnded,
}

/// A daemon that can take over what another one has left, and has no sockets for its clients yet.
pub(crate) struct Resumed {
    parts: Parts,
    findings: Findings,
    inherited: Inherited,
    clsacts: BTreeSet<u32>,
    generation: u64,
    counting_since_ns: Option<u64>,
    since_ns: u64,
}

/// What this daemon has read before it owns the data plane, and does not tell the policy before.
struct Findings {
    ruleset: RulesetRead,
    legacy: Option<LegacyRead>,
    /// Changes of legacy iptables from then on.
    iptables: mpsc::Receiver<LegacyRead>,
    counts_drops: bool,
}

/// The parts of this daemon, on the maps of the running one.
struct Loaded {
    machine: Machine,
    plane: DataPlane,
    core: Core,
    actions: Vec<Action>,
    findings: Findings,
}

/// The ports that were handed over, and are not ports of this daemon yet.
#[derive(Debug, Default)]
pub(super) struct Inherited(BTreeMap<u32, (HandedPort, Vec<OwnedFd>)>);

impl Inherited {
    /// Assigns descriptors to the ports. `None` if the descriptors are not those of the ports, or ports share a slot.
    fn new(ports: impl Iterator<Item = HandedPort>, links: Vec<OwnedFd>) -> Option<Self> {
        let mut links = links.into_iter();
        let mut inherited = BTreeMap::new();
        for port in ports {
            let own: Vec<OwnedFd> = links.by_ref().take(port.links()).collect();
            let is_sound = own.len() == port.links()
                && u32::from(port.slot) < abi::PORTS_MAX
                && inherited.values().all(|(other, _): &(HandedPort, _)| other.slot != port.slot);
            if !is_sound || inherited.insert(port.ifindex, (port, own)).is_some() {
                return None;
            }
        }
        links.next().is_none().then_some(Self(inherited))
    }

    pub(super) fn take(&mut self, ifindex: u32) -> Option<(HandedPort, Vec<OwnedFd>)> {
        self.0.remove(&ifindex)
    }

    /// Detaches everything that is attached by links.
    fn detach(self) {
        let links = self.0.into_values().flat_map(|(_, links)| links);
        links.filter_map(StoredLink::open).for_each(StoredLink::detach);
    }
}

/// Loads the programs on the running daemon's maps, and takes over everything. Until the running daemon gives up the
/// ownership, nothing that is shared is written.
///
/// # Errors
/// If this daemon cannot run, or the running one ends or fails. That one goes on if it can.
pub(crate) async fn prepare(
    instance: &Instance,
    config: &Config,
    reloads: Reloads,
    channel: &Channel,
) -> Result<Prepared, Failure> {
    let machine = Machine::read(config)?;
    start::refuse(machine.obstacles(config))?;
    let layout = LAYOUT ^ u64::from(pretends_missing("same-layout"));
    tell(channel, &FromNext::hello(config, layout).map_err(internal)?)?;
    fault_point("next-hello");
    let (offer, maps) = match ask(channel, ANSWER).await? {
        (ToNext::Clean { why }, _) => return Ok(Prepared::Clean(why, Box::new(reloads))),
        (ToNext::Offer(offer), maps) => (*offer, maps),
        _ => return Err(unexpected()),
    };
    let Loaded { machine, plane, core, actions, findings } =
        load_offered(instance, config, machine, offer, maps).await?;
    tell(channel, &FromNext::Ready)?;
    fault_point("next-ready");
    let (ToNext::Settled, _) = ask(channel, FILES).await? else { return Err(unexpected()) };
    let mut kept = Kept::read(instance, config);
    tell(channel, &FromNext::Loaded)?;
    fault_point("next-loaded");
    let (ToNext::State(state), mut handles) = ask(channel, CALM).await? else { return Err(unexpected()) };
    fault_point("next-state");
    let HandedState {
        generation,
        counting_since_ns,
        since_ns,
        more,
        metrics,
        page,
        ports,
        clsacts,
        off,
        stored,
        legacy_rules,
    } = *state;
    for _ in 0..more {
        let (ToNext::More, more) = ask(channel, ANSWER).await? else { return Err(unexpected()) };
        handles.extend(more);
    }
    let broken = || internal("the running daemon has handed over too few descriptors");
    let (listeners, links) = Listeners::adopt(config, handles, metrics, page)?.ok_or_else(broken)?;
    let inherited = Inherited::new(ports.iter().map(HandedPort::from), links).ok_or_else(broken)?;
    // Those of the file may be older, if it cannot be written.
    kept.off_rules.replace(off);
    let Machine { subscription, kernel, .. } = machine;
    let parts = Parts { kernel, subscription, plane, core, actions, kept };
    let priority = Priority::raise();
    let mut daemon = Daemon::new(instance.clone(), config.clone(), parts, priority, reloads);
    daemon.inherited = inherited;
    daemon.clsacts.extend(clsacts);
    (daemon.hand_over.generation, daemon.hand_over.reported) = (generation, true);
    daemon.hand_over.counting_since_ns = counting_since_ns;
    daemon.store = Store::open(stored, channel.peer_process().map_err(internal)?);
    tell(channel, &FromNext::Commit)?;
    fault_point("next-commit");
    let (ToNext::Go, _) = ask(channel, ANSWER).await? else { return Err(unexpected()) };
    fault_point("next-go");
    // Before anything else: the last heartbeat is some milliseconds old.
    daemon.beat();
    let before = Before::Ran { legacy_rules };
    Ok(Prepared::Over(Box::new(Owner { daemon, listeners, findings, since_ns, before })))
}

fn tell(channel: &Channel, message: &FromNext) -> Result<(), Failure> {
    let gone = |error| internal(format!("cannot reach the running daemon: {error}"));
    channel.send(message, &[]).map_err(gone)
}

async fn ask(channel: &Channel, within: Duration) -> Result<(ToNext, Vec<OwnedFd>), Failure> {
    let failed = |error| internal(format!("the running daemon does not hand over: {error}"));
    channel.expect(within).await.map_err(failed)
}

fn unexpected() -> Failure {
    internal("the running daemon sent an unexpected message")
}

/// Loads the programs on the maps that another daemon has left, and gets ready to take over. Writes nothing that the
/// attached programs use.
///
/// # Errors
/// If this daemon cannot run. Then the links are detached.
pub(crate) async fn resume(instance: &Instance, config: &Config, stored: Stored) -> Result<Resumed, Failure> {
    let Stored { maps, ports, programs, record, alive_ns: since_ns } = stored;
    let Record { findings, clsacts, generation, counting_since_ns, .. } = *record;
    let (ports, links): (Vec<HandedPort>, Vec<Vec<OwnedFd>>) = ports.into_iter().unzip();
    let links = links.into_iter().flatten().collect();
    let broken = || internal("the stored descriptors are not those of the ports");
    let inherited = Inherited::new(ports.into_iter(), links).ok_or_else(broken)?;
    let loaded = async {
        let machine = Machine::read(config)?;
        start::refuse(machine.obstacles(config))?;
        load(instance, config, machine, (maps, programs, findings)).await
    };
    let Loaded { machine, plane, core, actions, findings } = match loaded.await {
        Ok(loaded) => loaded,
        Err(failure) => {
            inherited.detach();
            return Err(failure);
        }
    };
    let Machine { subscription, kernel, .. } = machine;
    let parts = Parts { kernel, subscription, plane, core, actions, kept: Kept::read(instance, config) };
    Ok(Resumed { parts, findings, inherited, clsacts, generation, counting_since_ns, since_ns })
}

impl Resumed {
    /// The daemon, which owns the data plane from now on.
    pub(crate) fn own(
        self,
        instance: Instance,
        config: Config,
        reloads: Reloads,
        listeners: Listeners,
        stored: BTreeSet<String>,
    ) -> Owner {
        let Self { parts, findings, inherited, clsacts, generation, counting_since_ns, since_ns } = self;
        let mut daemon = Daemon::new(instance, config, parts, Priority::raise(), reloads).with_store(stored);
        daemon.inherited = inherited;
        daemon.clsacts.extend(clsacts);
        daemon.hand_over.generation = generation;
        daemon.hand_over.counting_since_ns = counting_since_ns;
        Owner { daemon, listeners, findings, since_ns, before: Before::HadEnded }
    }
}

/// Loads the programs on the maps that the running daemon offers.
async fn load_offered(
    instance: &Instance,
    config: &Config,
    machine: Machine,
    offer: Offer,
    maps: Vec<OwnedFd>,
) -> Result<Loaded, Failure> {
    let Offer { maps: names, max_flows, seed, programs, findings } = offer;
    if names.len() != maps.len() {
        return Err(internal("the running daemon has handed over too few maps"));
    }
    let maps = HandedMaps::open(names.into_iter().zip(maps).collect(), max_flows, seed);
    let maps = maps.map_err(|error| load_failure(&error, Some(max_flows)))?;
    load(instance, config, machine, (maps, programs, findings)).await
}

/// Loads the programs on the maps, and finds out what the policy must know. All changes are heard of since `machine`
/// was read. `programs` are the ids of the former daemon's XDP programs, and the findings are its policy's.
async fn load(
    instance: &Instance,
    config: &Config,
    mut machine: Machine,
    (maps, programs, findings): (HandedMaps, Vec<u32>, shunt_core::Findings),
) -> Result<Loaded, Failure> {
    let mut plane = start::load_on(maps, &machine, config)?;
    plane.set_filter_owner(start::filter_handle(instance), instance.as_str()).map_err(internal)?;
    if config.learn {
        start::attach_change_hooks(&mut plane, &machine.subscription);
    }
    let mut core = start::core(config, plane.xdp_program_ids().into_iter().chain(programs));
    core.begin_with(findings);
    let mut ruleset = RulesetReader::default();
    ruleset.start(Duration::ZERO, plane.control().rule_changes());
    let ruleset = ruleset.result().await;
    let mut iptables = iptables_poll::start();
    let legacy = iptables.recv().await;
    let mut events = vec![
        Event::Dump(std::mem::take(&mut machine.state)),
        Event::BridgeCalls(machine.kernel.bridge_calls()),
    ];
    events.extend(machine.kernel.captured().ok().map(Event::Captures));
    let actions = first_actions(&mut core, events);
    if core.ports().next().is_none() {
        return Err(failure(
            FailureCode::PortMissing,
            "no port found: no device that can be a port forwards",
        ));
    }
    let counts_drops = start::counts_tx_drops(&machine.types, config);
    let findings = Findings { ruleset, legacy, iptables, counts_drops };
    Ok(Loaded { machine, plane, core, actions, findings })
}

/// What the policy wants first, apart from what has been read already.
fn first_actions(core: &mut Core, events: Vec<Event>) -> Vec<Action> {
    let actions = core.handle_all(Instant::now(), events).into_iter();
    actions.filter(|action| !matches!(action, Action::ReadRuleset { .. } | Action::MoveEpoch(_))).collect()
}

impl Owner {
    /// Puts the programs in place, and serves until a signal or a client stops the daemon.
    ///
    /// # Errors
    /// If a port can neither be taken over nor attached to.
    pub(crate) async fn run(
        self,
        channel: Option<Channel>,
        (stopping, hangup): (StopSignals, Signals),
    ) -> Result<Ended, Failure> {
        let Self { mut daemon, listeners, findings, since_ns, before } = self;
        let was_alone = matches!(before, Before::HadEnded);
        // After a daemon that had ended, packets stay slow until everything is in place.
        let beats = (!was_alone).then(|| Beats::start(&daemon.plane, daemon.inherited.0.len())).flatten();
        let begun = daemon.begin_as_owner(findings, before).and_then(|iptables| {
            listeners.claim().map_err(internal)?;
            Ok(iptables)
        });
        drop(beats);
        let iptables = match begun {
            Ok(iptables) => iptables,
            Err(failure) => {
                daemon.undo_attachments();
                return Err(failure);
            }
        };
        let gap_ms = monotonic_ns().saturating_sub(since_ns) / 1_000_000;
        daemon.hand_over.start = Some(RestartKind::TakenOver { gap_ms });
        let generation = daemon.hand_over.generation;
        let from = if was_alone { " from the service manager's store" } else { "" };
        tracing::info!("restart: taken over{from} in {gap_ms} ms, hand-over {generation} of this data plane");
        fault_point("next-done");
        // The running daemon may have been killed meanwhile.
        if let Some(Err(error)) = channel.as_ref().map(|channel| channel.send(&FromNext::Done, &[])) {
            tracing::warn!("the daemon before this one has ended already: {error}");
        }
        drop(channel);
        daemon.run_attached(listeners, iptables, (stopping, hangup)).await
    }
}

impl Daemon {
    /// Does what a start does, on a data plane that is in use. Returns the changes of legacy iptables.
    fn begin_as_owner(
        &mut self,
        findings: Findings,
        before: Before,
    ) -> Result<mpsc::Receiver<LegacyRead>, Failure> {
        let Findings { ruleset, legacy, iptables, counts_drops } = findings;
        let was_alone = matches!(before, Before::HadEnded);
        if was_alone {
            self.begin_trial();
            // Nobody knows which changes have been missed: each flow is proved once more.
            self.move_epoch_since(Cause::Overrun, Some("no daemon ran for a while"));
        }
        self.write_configuration();
        self.plane.control().set_rest(false);
        self.plane.control().set_tracing(false);
        self.plane.control().set_survey(false);
        self.plane.set_off(&self.off_rules.matches()).map_err(internal)?;
        self.counted_epoch = self.plane.control().epoch();
        self.plane.expect_former_ports();
        // New ports must not get the slots of those that come later.
        self.inherited.0.values().for_each(|(port, _)| self.plane.keep_slot(port.slot));
        self.perform_first_actions()?;
        fault_point("next-exchanged");
        for (ifindex, (port, links)) in std::mem::take(&mut self.inherited.0) {
            tracing::info!("{}: no longer a port: detaching", self.name(ifindex));
            self.plane.forget_port(port, links).map_err(internal)?;
        }
        self.plane.release_slots();
        self.on_ruleset(ruleset);
        if let Some(read) = legacy {
            self.on_legacy_rules(read);
        }
        if let Before::Ran { legacy_rules } = before {
            self.compare_legacy_rules(legacy_rules);
        }
        if counts_drops {
            start::count_tx_drops(&mut self.plane);
        }
        let kept_ledger = self.kept_ledger.take();
        self.start_usage(kept_ledger)?;
        if was_alone {
            // What was learned meanwhile may have met the flags of the daemon before. Packets are fast from here on.
            self.move_epoch_since(Cause::Overrun, None);
            self.beat();
        }
        Ok(iptables)
    }

    /// Compares the rules of legacy iptables with those that the former daemon knew. The last change of them may have
    /// been seen by neither daemon.
    fn compare_legacy_rules(&mut self, former: Option<u64>) {
        match legacy_change(former, self.legacy_rules) {
            Some(_) if former.is_none() && !has_legacy_iptables() => {}
            None => {}
            words => self.move_epoch_since(Cause::Ruleset, words),
        }
    }

    /// Moves the epoch for a change that this daemon has not seen; the history tells it in these words, if at all.
    fn move_epoch_since(&mut self, cause: Cause, words: Option<&str>) {
        self.plane.control().move_epoch();
        let object = words.map(|words| Some(words.to_owned()));
        let changes = object.into_iter().map(|object| ChangeDetails { device: None, object });
        self.count_move(cause, changes.collect());
    }
}

/// Why flows must be proved again, given what stands for the rules of legacy iptables that the former daemon knew, and
/// for those of now; `None` if they are the same.
fn legacy_change(former: Option<u64>, now: Option<u64>) -> Option<&'static str> {
    match (former, now) {
        (Some(former), Some(now)) if former == now => None,
        (Some(_), Some(_)) => Some("rules of legacy iptables changed during the restart"),
        _ => Some("rules of legacy iptables may have changed during the restart"),
    }
}

/// Whether tables of legacy iptables exist. The kernel reports no changes of them.
fn has_legacy_iptables() -> bool {
    let exists = |path| fs::read_to_string(path).is_ok_and(|names| !names.trim().is_empty());
    exists("/proc/net/ip_tables_names") || exists("/proc/net/ip6_tables_names")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_bpf::attach::AttachMode;
    use std::fs::File;

    #[test]
    fn rules_of_legacy_iptables_that_are_the_same_are_no_change() {
        assert_eq!(legacy_change(Some(1), Some(1)), None);
        assert!(legacy_change(Some(1), Some(2)).unwrap().contains("iptables changed"));
        // An older daemon tells nothing, and nothing is known of rules that cannot be read.
        for (former, now) in [(None, Some(1)), (Some(1), None), (None, None)] {
            assert!(legacy_change(former, now).unwrap().contains("may have changed"));
        }
    }

    #[test]
    fn descriptors_and_slots_must_be_those_of_the_ports() {
        let port =
            |ifindex, slot| HandedPort { ifindex, slot, mode: AttachMode::Tcx, egress: true, xdp: None };
        let inherited = |ports: &[HandedPort], links: usize| {
            let links = (0..links).map(|_| File::open("/dev/null").unwrap().into()).collect();
            Inherited::new(ports.iter().copied(), links).is_some()
        };
        assert!(inherited(&[port(2, 0), port(3, 1)], 4));
        assert!(!inherited(&[port(2, 0), port(3, 1)], 3), "too few");
        assert!(!inherited(&[port(2, 0), port(3, 1)], 5), "too many");
        assert!(!inherited(&[port(2, 0), port(3, 0)], 4), "one slot for two ports");
        assert!(!inherited(&[port(2, 0), port(2, 1)], 4), "one port twice");
        assert!(!inherited(&[port(2, abi::PORTS_MAX as u16)], 2), "no such slot");
    }
}
