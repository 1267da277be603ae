//! Attaches the data plane to ports, changes what it does there, and detaches it.

use super::{Daemon, blocking::BlockingThread};
use crate::{failures::attach_failure, kernel_types::pretends_missing, start};
use shunt_api::{Engine, EngineChoice};
use shunt_bpf::{
    AttachedTc, HandedPort, LeavingPort, TcPrograms, XdpChange, XdpProgram, abi, attach::AttachMode,
};
use shunt_core::{Action, Bridged, Cause, ChangeDetails, Event, PortSetting, SurveyCounts};
use shunt_kernel::Linux;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Changes of ports that wait for the RTNL lock, and the ones that wait for these.
#[derive(Debug, Default)]
pub(super) struct PendingPorts {
    /// The changes to make after the one that is being made, by ifindex.
    waiting: BTreeMap<u32, VecDeque<Action>>,
    /// The settings of devices that become ports as soon as a port that leaves has freed its slot.
    for_slots: Vec<PortSetting>,
}

impl PendingPorts {
    /// Whether no port is being changed.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.for_slots.is_empty()
    }

    /// Whether a change of the port is being made.
    pub(super) fn is_changing(&self, ifindex: u32) -> bool {
        self.waiting.contains_key(&ifindex)
    }

    /// Whether no change is being made or waits.
    pub(super) fn are_settled(&self) -> bool {
        self.waiting.is_empty() && self.for_slots.is_empty()
    }
}

impl Daemon {
    /// Starts a change of a port, or lets it wait until the changes of that port before it are made. The kernel's part
    /// is made by a thread of its own: the RTNL lock can be held by others, and a driver can take seconds to accept an
    /// XDP program.
    pub(super) fn change_port(&mut self, ifindex: u32, action: Action) {
        if let Action::Set(setting) = &action {
            self.write_flags(*setting);
        }
        match self.pending_ports.waiting.entry(ifindex) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push_back(action),
            Entry::Vacant(vacant) => {
                vacant.insert(VecDeque::new());
                self.start_change(action);
            }
        }
    }

    fn start_change(&mut self, action: Action) {
        match action {
            Action::Attach(setting) => self.attach(setting),
            Action::Set(setting) => {
                self.write_flags(setting);
                self.set_xdp(setting, None);
            }
            Action::Detach { ifindex } => {
                tracing::info!("{}: detaching", self.name(ifindex));
                self.detach(ifindex);
            }
            _ => {}
        }
    }

    /// Lets changes of a port wait until [`Daemon::port_changed`].
    pub(super) fn begin_change(&mut self, ifindex: u32) {
        self.pending_ports.waiting.insert(ifindex, VecDeque::new());
    }

    /// Starts the next change of a port.
    pub(super) fn port_changed(&mut self, ifindex: u32) {
        match self.pending_ports.waiting.get_mut(&ifindex).and_then(VecDeque::pop_front) {
            Some(action) => self.start_change(action),
            None => drop(self.pending_ports.waiting.remove(&ifindex)),
        }
    }

    fn attach(&mut self, setting: PortSetting) {
        let ifindex = setting.ifindex;
        if let Some((port, links)) = self.inherited.take(ifindex) {
            return self.adopt(setting, port, links);
        }
        let epoch = self.plane.control().epoch();
        let programs = self.plane.add_port(ifindex, flags_until_xdp(setting), !pretends_missing("tcx"));
        if self.plane.control().epoch() != epoch {
            let device = self.name(ifindex);
            let change = ChangeDetails { device: Some(device), object: None };
            self.count_move(Cause::Engine, vec![change]);
        }
        let programs = match programs {
            Ok(programs) => programs,
            Err(shunt_bpf::Error::TooManyPorts(_)) if self.plane.frees_slots() => {
                return self.pending_ports.for_slots.push(setting);
            }
            Err(error) => return self.attach_failed(ifindex, error),
        };
        let clsacts = self.clsacts.clone();
        self.in_background(
            BlockingThread::Attachments,
            "attach",
            move |kernel| attach_tc(kernel, ifindex, programs, &clsacts),
            move |daemon, attached| match daemon.plane.attached(ifindex, attached) {
                Ok(mode) => daemon.set_xdp(setting, Some(mode)),
                Err(error) => daemon.attach_failed(ifindex, error),
            },
        );
    }

    /// Takes a port over from the daemon before this one, or attaches to it as to a new one if that fails.
    fn adopt(&mut self, setting: PortSetting, port: HandedPort, links: Vec<OwnedFd>) {
        let ifindex = setting.ifindex;
        let has_program = port.xdp.map(|(program, _)| program) == xdp_program(setting);
        let flags = if has_program { flags(setting) } else { flags_until_xdp(setting) };
        match self.plane.adopt_port(port, links, flags) {
            Ok(mode) => {
                self.core.add_own_programs(self.plane.xdp_program_ids());
                self.set_xdp(setting, Some(mode));
            }
            Err(error) => {
                tracing::warn!("{}; attaching again", attach_failure(&self.name(ifindex), &error));
                self.attach(setting);
            }
        }
    }

    fn attach_failed(&mut self, ifindex: u32, error: shunt_bpf::Error) {
        let failure = attach_failure(&self.name(ifindex), &error);
        if self.blocking.is_none() {
            self.first_failure.get_or_insert(failure);
        } else {
            tracing::warn!("{failure}");
            self.reloads.note_failure(&failure);
        }
        self.unattached.push(ifindex);
        self.detach(ifindex);
    }

    /// Changes the XDP program of a port to that of the setting. `attached` is how the tc programs were attached just
    /// now.
    fn set_xdp(&mut self, setting: PortSetting, attached: Option<AttachMode>) {
        let ifindex = setting.ifindex;
        match self.plane.xdp_change(ifindex, xdp_program(setting)) {
            Ok(None) => self.xdp_is_set(setting, attached, Ok(None)),
            Ok(Some(change)) => self.in_background(
                BlockingThread::Attachments,
                "load-xdp",
                move |_| change.load(),
                move |daemon, change| match change {
                    Ok(change) => daemon.attach_xdp(setting, attached, change),
                    Err(error) => daemon.xdp_is_set(setting, attached, Err(error)),
                },
            ),
            Err(error) => self.xdp_is_set(setting, attached, Err(error)),
        }
    }

    fn attach_xdp(&mut self, setting: PortSetting, attached: Option<AttachMode>, change: XdpChange) {
        // Before the kernel reports that the port has the program.
        self.core.add_own_programs(change.program_id());
        self.in_background(
            BlockingThread::Attachments,
            "attach-xdp",
            move |_| change.make(),
            move |daemon, xdp| {
                let set = daemon.plane.xdp_changed(setting.ifindex, xdp).map(Some);
                daemon.xdp_is_set(setting, attached, set);
            },
        );
    }

    /// Lets packets take the engine of the setting. With the engines auto and external, a port whose driver refuses the
    /// XDP program uses tc. `set` is `None` if nothing had to change.
    fn xdp_is_set(
        &mut self,
        setting: PortSetting,
        attached: Option<AttachMode>,
        set: Result<Option<()>, shunt_bpf::Error>,
    ) {
        let PortSetting { ifindex, engine, .. } = setting;
        let name = self.name(ifindex);
        let may_fall_back = setting.xdp_external || self.config.engine == EngineChoice::Auto;
        let refused = match set {
            Ok(changed) => {
                // Flows that were learned meanwhile do not use the engine. Those of a new port are few, and find out at
                // their next proof.
                if changed.is_some() && setting.xdp_in && attached.is_none() && self.blocking.is_some() {
                    self.perform(Action::MoveEpoch(Cause::Engine));
                }
                self.serve_new_queues();
                None
            }
            Err(shunt_bpf::Error::Attach { source, .. }) if may_fall_back => Some(source.to_string()),
            // The kernel may lack what only ports with VLANs need.
            Err(error) if setting.xdp_tags => Some(error.to_string()),
            Err(error) if attached.is_some() => return self.attach_failed(ifindex, error),
            Err(error) => {
                tracing::warn!("{}", attach_failure(&name, &error));
                return self.port_changed(ifindex);
            }
        };
        if let Some(error) = refused {
            tracing::warn!("{name}: its driver refuses the XDP program: {error}; the port uses tc");
            self.xdp_refusals.push(Event::XdpRefused { ifindex, error });
        } else if self.pending_ports.waiting.get(&ifindex).is_none_or(VecDeque::is_empty) {
            // Otherwise the flags are those of a later change.
            self.write_all_flags(setting);
        }
        if let Some(mode) = attached {
            tracing::info!("{name}: attached by {mode}, engine {engine}");
        } else {
            let captured = if setting.captured { "; a packet socket captures here" } else { "" };
            let port = self.core.ports().find(|(link, _)| link.ifindex == ifindex);
            let why = port.map(|(_, view)| view.reason.as_str()).unwrap_or_default();
            tracing::info!("{name}: engine {engine} ({why}){captured}");
        }
        self.port_changed(ifindex);
    }

    /// Writes the flags of a setting. No packets are sent by XDP or the external engine before its program is attached.
    fn write_flags(&mut self, setting: PortSetting) {
        if self.plane.xdp_program(setting.ifindex) == xdp_program(setting) {
            self.write_all_flags(setting);
        } else {
            self.write_port_flags(setting, flags_until_xdp(setting));
        }
    }

    fn write_all_flags(&mut self, setting: PortSetting) {
        self.write_port_flags(setting, flags(setting));
    }

    fn write_port_flags(&mut self, setting: PortSetting, flags: u16) {
        const BLOCKS: u16 = abi::PORT_CAPTURED | abi::PORT_FILTERED | abi::PORT_FILTERED_OUT;
        if self.plane.flags(setting.ifindex) & BLOCKS & !flags != 0 {
            self.unblocked = Some(Instant::now());
        }
        if let Err(error) = self.plane.set_flags(setting.ifindex, flags) {
            tracing::warn!("{}", attach_failure(&self.name(setting.ifindex), &error));
        }
    }

    fn detach(&mut self, ifindex: u32) {
        self.record_counters(ifindex);
        self.port_counters.remove(ifindex);
        if self.static_flows.may_name_ports() {
            self.plane.reserve_slot(ifindex);
        }
        let port = match self.plane.remove_port(ifindex) {
            Ok(port) => port,
            Err(error) => {
                tracing::warn!("{}: cannot detach: {error}", self.name(ifindex));
                None
            }
        };
        let clsacts = self.clsacts.clone();
        self.in_background(
            BlockingThread::Attachments,
            "detach",
            move |kernel| {
                let slot = port.map(LeavingPort::detach);
                if clsacts.devices().remove(&ifindex) {
                    start::remove_clsact(kernel, ifindex);
                }
                slot
            },
            move |daemon, slot| {
                if let Some(Err(error)) = slot.map(|slot| daemon.plane.detached(slot)) {
                    tracing::warn!("{}: cannot clear its counters: {error}", daemon.name(ifindex));
                }
                daemon.port_changed(ifindex);
                for setting in std::mem::take(&mut daemon.pending_ports.for_slots) {
                    daemon.attach(setting);
                }
            },
        );
    }

    /// The engine that sends packets to a port now: tc, until the XDP program of another engine is attached.
    pub(super) fn engine_in_use(&self, setting: PortSetting) -> Engine {
        let flags = self.plane.flags(setting.ifindex);
        if flags & (abi::PORT_XDP_OUT | abi::PORT_EXTERNAL) == 0 { Engine::Tc } else { setting.engine }
    }

    /// The counts of all surveys so far, by ifindex.
    pub(super) fn surveyed(&self) -> BTreeMap<u32, SurveyCounts> {
        let counts = |ifindex| {
            let counted = self.plane.counters(ifindex).ok()?;
            let packets = counted.surveyed_pkts;
            let (aggregated, copied) = (counted.aggregated_pkts, counted.copied_pkts);
            Some((ifindex, SurveyCounts { packets, aggregated, copied }))
        };
        self.core.ports().filter_map(|(link, _)| counts(link.ifindex)).collect()
    }

    /// Records the present counters of a port; keeps the last ones if they cannot be read.
    pub(super) fn record_counters(&mut self, ifindex: u32) {
        if let Ok(counters) = self.plane.counters(ifindex) {
            let name = self.name(ifindex);
            self.port_counters.record(ifindex, &name, &counters);
        }
    }
}

/// Devices whose clsact qdisc this daemon has created.
#[derive(Debug, Clone, Default)]
pub(super) struct Clsacts(Arc<Mutex<BTreeSet<u32>>>);

impl Clsacts {
    fn devices(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All devices.
    pub(super) fn list(&self) -> BTreeSet<u32> {
        self.devices().clone()
    }

    /// Adds the devices of the daemon before this one.
    pub(super) fn extend(&self, devices: BTreeSet<u32>) {
        self.devices().extend(devices);
    }

    /// Takes all devices.
    pub(super) fn take(&self) -> BTreeSet<u32> {
        std::mem::take(&mut *self.devices())
    }
}

fn attach_tc(
    kernel: &mut Linux,
    ifindex: u32,
    programs: TcPrograms,
    clsacts: &Clsacts,
) -> Result<AttachedTc, shunt_bpf::Error> {
    // A clsact qdisc that exists already is not Shunt's, and stays when Shunt detaches.
    let had_clsact = kernel.has_clsact(ifindex).unwrap_or(true);
    let attached = programs.attach();
    let mode = attached.as_ref().ok().map(AttachedTc::mode);
    let has_clsact = kernel.has_clsact(ifindex).unwrap_or(true);
    if !had_clsact && has_clsact && mode != Some(AttachMode::Tcx) {
        clsacts.devices().insert(ifindex);
    }
    // An `ingress` qdisc accepts filters for egress too, but runs them on ingress.
    if mode == Some(AttachMode::Clsact) && !has_clsact {
        return Err(shunt_bpf::Error::NoEgress);
    }
    attached
}

/// The XDP program of a port with this setting.
fn xdp_program(setting: PortSetting) -> Option<XdpProgram> {
    let program = if setting.xdp_external {
        XdpProgram::External
    } else if setting.xdp_tags {
        XdpProgram::ForwardTags
    } else {
        XdpProgram::Forward
    };
    setting.xdp_in.then_some(program)
}

/// The flags of a port whose XDP program is not attached yet: nothing is sent to the port but by tc.
fn flags_until_xdp(setting: PortSetting) -> u16 {
    flags(setting) & !(abi::PORT_XDP_OUT | abi::PORT_EXTERNAL)
}

fn flags(setting: PortSetting) -> u16 {
    let Bridged { learned, untracked4, untracked6 } = setting.bridged;
    let flags = [
        (setting.engine == Engine::Xdp, abi::PORT_XDP_OUT),
        (setting.engine == Engine::External, abi::PORT_EXTERNAL),
        (setting.xdp_in, abi::PORT_XDP_IN),
        (setting.xdp_frags, abi::PORT_XDP_FRAGS),
        (setting.partial, abi::PORT_PARTIAL),
        (setting.captured, abi::PORT_CAPTURED),
        (setting.filtered, abi::PORT_FILTERED),
        (setting.filtered_out, abi::PORT_FILTERED_OUT),
        (learned, abi::PORT_BRIDGED),
        (untracked4, abi::PORT_UNTRACKED4),
        (untracked6, abi::PORT_UNTRACKED6),
        (setting.floods_unseen, abi::PORT_FLOODS_UNSEEN),
        (setting.paced, abi::PORT_PACED),
        (setting.no_l2, abi::PORT_NO_L2),
    ];
    flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag)
}
