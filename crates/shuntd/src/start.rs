//! Prepares the data plane from a configuration, or fails with one line that names the cause and what to type.

use crate::{
    control,
    failures::{failure, internal, load_failure},
    history::{Clock, FILE_BYTES_MAX, History},
    kept_file::KeptFile,
    kernel_types::{self, pretends_missing},
    loaded::Loaded,
    off_rules::{OffRules, unix_time},
    savings::{self, SavingsBook},
    signals::without_hangups,
    usage::KeptLedger,
};
use shunt_api::{
    ChecksumChoice, Config, EngineChoice, Failure, FailureCode, Instance, RUNTIME_DIR_VARIABLE,
    STATE_DIR_VARIABLE, no_device, state_dir,
};
use shunt_bpf::{Changes, DataPlane, HandedMaps, LoadOptions, Size, TypesSource, abi, attach};
use shunt_core::{Action, Choice, Core, Event, EventSource, ExternalState, Link};
use shunt_kernel::{Forwarding, Linux, NetlinkSubscription};
use std::{
    env,
    path::{Path, PathBuf},
    time::Instant,
};

// The subscription ignores the filters that the data plane attaches, by their priority.
const _: () = assert!(attach::FILTER_PRIORITY == shunt_kernel::OWN_FILTER_PRIORITY);
const _: () = assert!(abi::PORTS_MAX as usize == Config::PORTS_MAX);

/// The parts that the daemon is built from.
pub(crate) struct Parts {
    pub(crate) kernel: Linux,
    pub(crate) subscription: NetlinkSubscription,
    pub(crate) plane: DataPlane,
    pub(crate) core: Core,
    /// The policy's first actions.
    pub(crate) actions: Vec<Action>,
    pub(crate) kept: Kept,
}

/// What is kept across restarts.
pub(crate) struct Kept {
    /// The rules of `shunt off`.
    pub(crate) off_rules: OffRules,
    pub(crate) history: History,
    pub(crate) savings: SavingsBook,
    /// The ledger of hosts; `None` if it is off.
    pub(crate) ledger: Option<KeptLedger>,
}

impl Kept {
    /// Reads the files. Waits for the disk.
    pub(crate) fn read(instance: &Instance, config: &Config) -> Self {
        let state = state_directory();
        let off_rules = OffRules::load(instance.off_path(&state), unix_time());
        let file = KeptFile::new(instance.history_path(&state), FILE_BYTES_MAX);
        let history = History::load(file, Clock::read(), env!("CARGO_PKG_VERSION"));
        let file = KeptFile::new(instance.savings_path(&state), savings::FILE_BYTES_MAX);
        let savings = SavingsBook::load(file, savings::machine(), config.savings);
        Self { off_rules, history, savings, ledger: config.usage.then(|| kept_ledger(instance)) }
    }
}

/// Reads the ledger of hosts. Waits for the disk.
pub(crate) fn kept_ledger(instance: &Instance) -> KeptLedger {
    KeptLedger::load(instance.usage_path(&state_directory()))
}

/// The directory of what instances keep.
pub(crate) fn state_directory() -> PathBuf {
    state_dir(env::var_os(STATE_DIR_VARIABLE), env::var_os(RUNTIME_DIR_VARIABLE))
}

pub(crate) fn require_root() -> Result<(), Failure> {
    if nix::unistd::geteuid().is_root() {
        Ok(())
    } else {
        Err(failure(FailureCode::NotRoot, "not root: loading programs into the kernel needs root; use sudo"))
    }
}

/// Removes what a killed daemon leaves behind: its socket, and tc filters on kernels without TCX.
pub(crate) fn clean_up(instance: &Instance) -> Result<(), Failure> {
    control::clean_up(instance)?;
    let mut kernel = Linux::open().map_err(internal)?;
    let state = kernel.dump().map_err(internal)?;
    remove_filters(instance, &mut kernel, &state);
    Ok(())
}

/// Removes the clsact filters that a killed daemon of this instance has left, and the qdiscs that are empty without
/// them.
fn remove_filters(instance: &Instance, kernel: &mut Linux, state: &[Event]) {
    for event in state {
        let Event::Link(link) = event else { continue };
        if attach::remove_filters(link.ifindex, filter_handle(instance), instance.as_str()) {
            remove_clsact(kernel, link.ifindex);
        }
    }
}

/// Removes the clsact qdisc of a device if it has no filters.
pub(crate) fn remove_clsact(kernel: &mut Linux, ifindex: u32) {
    if let Err(error) = kernel.remove_empty_clsact(ifindex) {
        tracing::warn!("device {ifindex}: cannot remove its clsact qdisc: {error}");
    }
}

/// The handle of an instance's tc filters, which tells them from those of most other instances: FNV-1a of the
/// instance's name. The filters' programs have the whole name.
pub(crate) fn filter_handle(instance: &Instance) -> u32 {
    let hash = instance
        .as_str()
        .bytes()
        .fold(0x811c_9dc5, |hash: u32, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// State of the machine that is read before programs are loaded.
pub(crate) struct Machine {
    pub(crate) subscription: NetlinkSubscription,
    pub(crate) kernel: Linux,
    /// The state of the kernel: a dump.
    pub(crate) state: Vec<Event>,
    pub(crate) types: TypesSource,
    pub(crate) forwarding: Forwarding,
    /// Whether connection tracking is loaded.
    pub(crate) conntrack: bool,
}

impl Machine {
    pub(crate) fn read(config: &Config) -> Result<Self, Failure> {
        // Before anything is read, so that no change in between is missed.
        let subscription = NetlinkSubscription::open(config.netlink_buffer as usize).map_err(internal)?;
        let mut kernel = Linux::open().map_err(internal)?;
        let state = kernel.dump().map_err(internal)?;
        let forwarding = kernel.forwarding().map_err(internal)?;
        let conntrack = kernel.conntrack_present();
        let types = kernel_types::source(config)?;
        Ok(Self { subscription, kernel, state, types, forwarding, conntrack })
    }

    /// Obstacles to running on this machine, independent of the ports.
    pub(crate) fn obstacles(&self, config: &Config) -> Vec<Failure> {
        let mut found = Vec::new();
        if config.learn && self.types == TypesSource::Unknown {
            found.push(kernel_types::unknown());
        }
        found.extend(core_obstacle(config));
        let Forwarding { v4, v6 } = self.forwarding;
        if !v4 && !v6 && !shunt_core::has_bridge_with_two_ports(&self.state) {
            found.push(failure(
                FailureCode::ForwardingOff,
                "forwarding is off: set sysctl net.ipv4.ip_forward=1 or net.ipv6.conf.all.forwarding=1, \
                 or create a bridge with two ports",
            ));
        }
        if config.learn && !self.conntrack {
            found.push(failure(
                FailureCode::NoConntrack,
                "connection tracking is not loaded: modprobe nf_conntrack, or set learn = false for static flows only",
            ));
        }
        found
    }
}

/// Why the external engine cannot run on its core.
pub(crate) fn core_obstacle(config: &Config) -> Option<Failure> {
    let core = config.external_core.filter(|core| !has_core(*core))?;
    let why = format!("external_core (--core): this machine has no core {core}; see lscpu");
    Some(failure(FailureCode::Usage, why))
}

fn has_core(number: u32) -> bool {
    Path::new(&format!("/sys/devices/system/cpu/cpu{number}")).exists()
}

/// Fails with the first obstacle, if there is one.
pub(crate) fn refuse(obstacles: Vec<Failure>) -> Result<(), Failure> {
    obstacles.into_iter().next().map_or(Ok(()), Err)
}

/// Loads the programs, and attaches none.
pub(crate) fn load(machine: &Machine, config: &Config) -> Result<DataPlane, Failure> {
    let size = Size { max_flows: config.max_flows, seed: seed() };
    let load = || DataPlane::load(size, options(machine, config));
    checked(without_hangups(load).map_err(internal)?, config)
}

/// Loads the programs on the maps of another daemon, and attaches none.
pub(crate) fn load_on(maps: HandedMaps, machine: &Machine, config: &Config) -> Result<DataPlane, Failure> {
    let load = || DataPlane::load_on(maps, options(machine, config));
    checked(without_hangups(load).map_err(internal)?, config)
}

fn options(machine: &Machine, config: &Config) -> LoadOptions {
    let Loaded { xdp, external, .. } = Loaded::by(config);
    LoadOptions {
        types: machine.types.clone(),
        learning: config.learn,
        xdp,
        verify_xdp: config.verify_checksums == ChecksumChoice::Always,
        external,
    }
}

fn checked(plane: Result<DataPlane, shunt_bpf::Error>, config: &Config) -> Result<DataPlane, Failure> {
    let plane = plane.map_err(|e| load_failure(&e, Some(config.max_flows)))?;
    if config.learn && !plane.learns() {
        return Err(failure(
            FailureCode::KernelTooOld,
            "the BTF of the kernel lacks conntrack's structures: modprobe nf_conntrack, build the kernel with \
             CONFIG_DEBUG_INFO_BTF_MODULES=y, or set learn = false for static flows only",
        ));
    }
    Ok(plane)
}

/// The policy for a configuration.
pub(crate) fn core(config: &Config, own_programs: impl IntoIterator<Item = u32>) -> Core {
    Core::new(choice(config), own_programs)
}

/// Tells a policy that nothing carries out that the external engine serves each port that may have it.
pub(crate) fn suppose_external_engine(core: &mut Core) {
    let serves = core.links().map(|link| link.ifindex).collect();
    core.handle(Instant::now(), Event::External(ExternalState { serves, ..ExternalState::default() }));
}

/// The part of a configuration that the policy follows.
pub(crate) fn choice(config: &Config) -> Choice {
    Choice {
        ports: config.ports.clone(),
        engine: config.engine,
        external_ports: config.external_ports.clone(),
        captures: config.captures,
        limits: config.limits,
        ports_max: Some(shunt_bpf::ports_max() as usize),
    }
}

/// Checks everything that can be checked before the first program is attached, then loads the programs.
pub(crate) fn prepare(instance: &Instance, config: &Config) -> Result<Parts, Failure> {
    let machine = Machine::read(config)?;
    refuse(machine.obstacles(config))?;
    let mut plane = load(&machine, config)?;
    if !plane.tables_are_aligned().map_err(internal)? {
        tracing::warn!("flow tables do not begin on a cache line: two CPUs slow each other down");
    }
    let Machine { subscription, mut kernel, state, types, .. } = machine;
    plane.set_filter_owner(filter_handle(instance), instance.as_str()).map_err(internal)?;
    if config.learn {
        attach_change_hooks(&mut plane, &subscription);
    }
    if counts_tx_drops(&types, config) {
        count_tx_drops(&mut plane);
    }
    remove_filters(instance, &mut kernel, &state);
    let mut core = core(config, plane.xdp_program_ids());
    let actions = core.handle(Instant::now(), Event::Dump(state));
    refuse(port_obstacles(instance, &core, &mut kernel, config, &|_| false)?)?;
    let kept = Kept::read(instance, config);
    Ok(Parts { kernel, subscription, plane, core, actions, kept })
}

/// Whether redirected frames that drivers drop can be counted, and must be.
pub(crate) fn counts_tx_drops(types: &TypesSource, config: &Config) -> bool {
    *types == TypesSource::Kernel && (config.engine != EngineChoice::Tc || config.uses_external())
}

/// Counts the redirected frames that drivers drop. Without it, they count as fast.
pub(crate) fn count_tx_drops(plane: &mut DataPlane) {
    if let Err(error) = plane.count_tx_drops() {
        tracing::warn!(
            "cannot count the redirected frames that drivers drop: {error}; such frames count as fast"
        );
    }
}

/// Attaches the programs that invalidate flows inside the kernel, before a change is acknowledged. Without one of them,
/// changes of that kind take effect later.
pub(crate) fn attach_change_hooks(plane: &mut DataPlane, subscription: &NetlinkSubscription) {
    if let Err(error) = plane.attach_conntrack_filter() {
        tracing::warn!(
            "cannot watch conntrack deletions: {error}; a deleted connection stays on the fast path until it is proved again"
        );
    }
    for (source, socket) in subscription.sockets() {
        let (changes, name) = match source {
            EventSource::Route => (Changes::Route, "routes and links"),
            EventSource::Nftables => (Changes::Ruleset, "the nftables ruleset"),
            EventSource::Xfrm => (Changes::Ipsec, "IPsec policies"),
            _ => continue,
        };
        if let Err(error) = plane.attach_change_filter(changes, socket) {
            tracing::warn!(
                "no in-kernel hook for changes of {name}: {error}; the daemon invalidates flows from netlink instead (slower)"
            );
        }
    }
}

/// The seed of the flow table's hash. It differs from start to start, so that nobody can make flows collide on purpose.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Faults of the ports: configured ones that do not exist or cannot be ports, none at all, too many, or ports that are
/// in use, except by `is_own`, the present ports of this daemon. Filters left by a killed daemon of this instance are
/// no obstacle, since a start removes them.
///
/// # Errors
/// If the filters of a port cannot be read.
pub(crate) fn port_obstacles(
    instance: &Instance,
    core: &Core,
    kernel: &mut Linux,
    config: &Config,
    is_own: &dyn Fn(u32) -> bool,
) -> Result<Vec<Failure>, Failure> {
    let mut found = Vec::new();
    for name in &config.ports {
        match core.link(name) {
            None => found.push(failure(FailureCode::PortMissing, format!("port {}", no_device(name)))),
            Some(link) => found.extend(
                core.unfit(link).map(|why| failure(FailureCode::PortMissing, format!("port {name}: {why}"))),
            ),
        }
    }
    for name in config.external_ports.iter().filter(|name| !config.ports.contains(name)) {
        if core.link(name).is_none() {
            found.push(failure(FailureCode::PortMissing, format!("external port {}", no_device(name))));
        }
    }
    if config.ports.is_empty() && core.ports().next().is_none() {
        found.push(failure(
            FailureCode::PortMissing,
            "no port found: no device that can be a port has an address to forward from or is a member of a bridge; \
             name ports with --port",
        ));
    }
    for (link, _) in core.ports() {
        if !is_own(link.ifindex) {
            found.extend(attached_obstacle(instance, kernel, link)?);
        }
        found.extend(xdp_obstacle(core, config, link));
    }
    Ok(found)
}

/// The failure if another instance is attached to a port.
fn attached_obstacle(
    instance: &Instance,
    kernel: &mut Linux,
    link: &Link,
) -> Result<Option<Failure>, Failure> {
    let name = &link.name;
    let has_tcx = attach::is_port(link.ifindex);
    let filters = kernel.own_filters(link.ifindex).map_err(internal)?;
    let own = filter_handle(instance);
    if has_tcx
        || filters.iter().any(|handle| *handle != own)
        || attach::has_filter_of_another(link.ifindex, own, instance.as_str())
    {
        return Ok(Some(failure(
            FailureCode::PortTaken,
            format!(
                "port {name}: another instance of Shunt is attached; stop that instance, or name other ports with --port"
            ),
        )));
    }
    Ok(None)
}

/// The failure if a port must send by XDP and cannot.
fn xdp_obstacle(core: &Core, config: &Config, link: &Link) -> Option<Failure> {
    let name = &link.name;
    // Some devices use tc with every engine, but nobody may ask for XDP there.
    let is_left_to_tc = link.is_left_to_tc() && config.ports.is_empty();
    if config.engine != EngineChoice::Xdp || is_left_to_tc {
        return None;
    }
    if let Some(id) = link.xdp_prog.filter(|id| !core.is_own_program(*id)) {
        let program = attach::program_name(id).unwrap_or_else(|| format!("id {id}"));
        return Some(failure(
            FailureCode::PortBusy,
            format!(
                "port {name}: XDP program `{program}` is already attached; detach it, or use the engine tc"
            ),
        ));
    }
    core.lacks_xdp(link).map(|why| {
        failure(
            FailureCode::NoNativeXdp,
            format!("port {name} cannot have the engine xdp: {why}; use tc or auto"),
        )
    })
}

/// Whether the kernel has TCX. Attaches nothing.
pub(crate) fn has_tcx() -> bool {
    attach::has_tcx() && !pretends_missing("tcx")
}
