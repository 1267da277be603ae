//! From a configuration to a loaded data plane, or to one line that says what is in the way and what to do about it.

use crate::{control, daemon::pretends_missing};
use shunt_api::{Config, EngineChoice, Failure, FailureCode, Instance};
use shunt_bpf::{
    Changes, DataPlane, Size, Wanted, abi,
    attach::{self, Hook},
};
use shunt_core::{Action, Choice, Core, Event, Source};
use shunt_kernel::{Linux, Watcher};
use std::{path::Path, time::Instant};

// What the data plane attaches is what the watcher overlooks.
const _: () = assert!(attach::FILTER_PRIORITY == shunt_kernel::OWN_FILTER_PRIORITY);
const _: () = assert!(abi::PORTS_MAX as usize == Config::PORTS_MAX);

/// What the daemon runs on.
pub(crate) struct Parts {
    pub(crate) kernel: Linux,
    pub(crate) watcher: Watcher,
    pub(crate) plane: DataPlane,
    pub(crate) core: Core,
    /// What the policy wants first.
    pub(crate) actions: Vec<Action>,
}

fn failure(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::new(code, message)
}

pub(crate) fn internal(error: impl std::fmt::Display) -> Failure {
    failure(FailureCode::Internal, error.to_string())
}

pub(crate) fn require_root() -> Result<(), Failure> {
    if nix::unistd::geteuid().is_root() {
        Ok(())
    } else {
        Err(failure(FailureCode::NotRoot, "not root: loading programs into the kernel needs it; use sudo"))
    }
}

/// Removes what outlives a killed daemon: its socket, and filters on kernels without TCX.
pub(crate) fn clean_up(instance: &Instance) -> Result<(), Failure> {
    control::clean_up(instance)?;
    let mut kernel = Linux::open().map_err(internal)?;
    let state = kernel.dump().map_err(internal)?;
    remove_filters(instance, &mut kernel, &state);
    Ok(())
}

/// Removes the clsact filters that a killed daemon of this instance has left, and the qdiscs that are empty then.
fn remove_filters(instance: &Instance, kernel: &mut Linux, state: &[Event]) {
    for event in state {
        let Event::Link(link) = event else { continue };
        if attach::remove_filters(link.ifindex, filter_handle(instance)) {
            remove_clsact(kernel, link.ifindex);
        }
    }
}

/// Removes a clsact qdisc that has no filters any more.
pub(crate) fn remove_clsact(kernel: &mut Linux, ifindex: u32) {
    if let Err(error) = kernel.remove_empty_clsact(ifindex) {
        tracing::warn!("device {ifindex}: its clsact qdisc stays: {error}");
    }
}

/// Tells the filters of this instance from those of others: FNV-1a of its name.
pub(crate) fn filter_handle(instance: &Instance) -> u32 {
    let hash = instance
        .as_str()
        .bytes()
        .fold(0x811c_9dc5, |hash: u32, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// Checks everything that can be checked before the first program is attached, then loads.
pub(crate) fn prepare(instance: &Instance, config: &Config) -> Result<Parts, Failure> {
    let btf = Path::new("/sys/kernel/btf/vmlinux").exists() && !pretends_missing("btf");
    if config.learn && !btf {
        return Err(failure(
            FailureCode::NoBtf,
            "the kernel has no BTF (/sys/kernel/btf/vmlinux): build it with CONFIG_DEBUG_INFO_BTF=y, \
             or set learn = false for static flows only",
        ));
    }
    // Subscribed before anything is read, so that what changes meanwhile is told.
    let watcher = Watcher::open(config.netlink_buffer as usize).map_err(internal)?;
    let mut kernel = Linux::open().map_err(internal)?;
    let state = kernel.dump().map_err(internal)?;
    let forwarding = kernel.forwarding().map_err(internal)?;
    if !forwarding.v4 && !forwarding.v6 && !shunt_core::bridges(&state) {
        return Err(failure(
            FailureCode::ForwardingOff,
            "Linux does not forward here: set sysctl net.ipv4.ip_forward=1 or net.ipv6.conf.all.forwarding=1, \
             or make a bridge of two ports",
        ));
    }
    if config.learn && !kernel.conntrack_present() {
        return Err(failure(
            FailureCode::NoConntrack,
            "connection tracking is not loaded: modprobe nf_conntrack, or set learn = false for static flows only",
        ));
    }
    let size = Size { max_flows: config.max_flows, seed: seed() };
    let wanted = Wanted { btf, learning: config.learn, xdp: config.engine != EngineChoice::Tc };
    let mut plane = DataPlane::load(size, wanted).map_err(|e| refused_load(&e))?;
    if config.learn && !plane.learns() {
        return Err(failure(
            FailureCode::KernelTooOld,
            "the kernel lacks bpf_skb_ct_lookup (Linux 5.18, CONFIG_NF_CONNTRACK and CONFIG_DEBUG_INFO_BTF_MODULES): \
             update it, or set learn = false for static flows only",
        ));
    }
    plane.set_filter_handle(filter_handle(instance));
    if config.learn {
        listen(&mut plane, &watcher);
    }
    remove_filters(instance, &mut kernel, &state);
    let choice = Choice { ports: config.ports.clone(), engine: config.engine, captures: config.captures };
    let mut core = Core::new(choice, plane.xdp_program_id());
    let actions = core.handle(Instant::now(), Event::Dump(state));
    check_ports(&core, &mut kernel, config)?;
    Ok(Parts { kernel, watcher, plane, core, actions })
}

/// Has the kernel itself end the use of actions where it can.
fn listen(plane: &mut DataPlane, watcher: &Watcher) {
    if let Err(error) = plane.end_with_conntrack() {
        tracing::warn!("`conntrack -D` is met by the next proof only: {error}");
    }
    for (source, socket) in watcher.sockets() {
        let changes = match source {
            Source::Route => Changes::Route,
            Source::Nftables => Changes::Ruleset,
            _ => continue,
        };
        if let Err(error) = plane.meet_changes(changes, socket) {
            tracing::warn!("changes of {source:?} are met as soon as the daemon can: {error}");
        }
    }
}

/// Not a secret, only not the same everywhere: whoever wants flows to collide must not know how.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn refused_load(error: &shunt_bpf::Error) -> Failure {
    let code = match error.os_error() {
        Some(nix::libc::EPERM) => FailureCode::NotRoot,
        Some(nix::libc::ENOMEM) => FailureCode::Internal,
        _ => FailureCode::KernelTooOld,
    };
    let hint = match code {
        FailureCode::NotRoot => "CAP_BPF and CAP_NET_ADMIN are needed",
        FailureCode::Internal => "there is not enough memory; lower max_flows",
        // Where programs may be compiled, those that cannot be are not interpreted either.
        _ if cfg!(target_arch = "arm") => {
            "Linux 6.1 or later with CONFIG_BPF_SYSCALL is needed, and net.core.bpf_jit_enable=0: \
             the JIT for 32-bit ARM does not know atomic operations"
        }
        _ => "Linux 6.1 or later with CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT is needed",
    };
    failure(code, format!("{error}; {hint}"))
}

/// Ports that were asked for must be there and be free; otherwise some must have been found.
fn check_ports(core: &Core, kernel: &mut Linux, config: &Config) -> Result<(), Failure> {
    for name in &config.ports {
        let Some(link) = core.link(name) else {
            return Err(failure(FailureCode::PortMissing, format!("port {}", no_device(name))));
        };
        if let Some(why) = core.unfit(link) {
            return Err(failure(FailureCode::PortMissing, format!("port {name}: {why}")));
        }
    }
    Config::check_port_count(core.ports().count())
        .map_err(|why| failure(FailureCode::Usage, format!("ports that forwarding uses: {why}")))?;
    if core.ports().next().is_none() {
        return Err(failure(
            FailureCode::PortMissing,
            "no port found: no Ethernet device here has an address to forward from or is bridged to another; name ports with --port",
        ));
    }
    for (link, _) in core.ports() {
        let name = &link.name;
        let by_tcx = attach::tcx_programs(link.ifindex, Hook::Ingress).iter().any(|name| name == "shunt_in");
        if by_tcx || !kernel.own_filters(link.ifindex).map_err(internal)?.is_empty() {
            return Err(failure(
                FailureCode::PortTaken,
                format!(
                    "port {name}: another instance of Shunt has it; stop that one, or name other ports with --port"
                ),
            ));
        }
        if config.engine != EngineChoice::Xdp {
            continue;
        }
        if let Some(id) = link.xdp_prog {
            let program = attach::program_name(id).unwrap_or_else(|| format!("id {id}"));
            return Err(failure(
                FailureCode::PortBusy,
                format!(
                    "port {name}: XDP program `{program}` is already attached; detach it, or use --engine tc"
                ),
            ));
        }
        if core.xdp(link.ifindex).is_some_and(|(native, _)| !native) {
            return Err(failure(
                FailureCode::NoNativeXdp,
                format!("port {name}: its driver has no native XDP; use --engine tc, or auto"),
            ));
        }
    }
    Ok(())
}

pub(crate) fn no_device(name: &str) -> String {
    format!("{name}: no such device in this network namespace; see `ip link`")
}

/// What attaching to a port said, for the operator.
pub(crate) fn refused_attach(name: &str, error: &shunt_bpf::Error) -> Failure {
    if let shunt_bpf::Error::Earlier(why) = error {
        let Failure { code, message } = refused_load(why);
        return failure(code, format!("port {name}: {message}; or use --engine tc"));
    }
    match error.os_error() {
        Some(nix::libc::EBUSY | nix::libc::EEXIST) => failure(
            FailureCode::PortBusy,
            format!("port {name}: another XDP program is already attached; detach it, or use --engine tc"),
        ),
        Some(nix::libc::EOPNOTSUPP | nix::libc::ERANGE) => failure(
            FailureCode::NoNativeXdp,
            format!("port {name}: its driver refuses native XDP here ({error}); use --engine tc"),
        ),
        None if matches!(error, shunt_bpf::Error::NoEgress) => failure(
            FailureCode::KernelTooOld,
            format!(
                "port {name}: {error}, and this kernel has no TCX (Linux 6.6); have `clsact` in its place"
            ),
        ),
        Some(nix::libc::ENODEV) => failure(FailureCode::PortMissing, format!("port {name}: it is gone")),
        _ => internal(format!("port {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_port_says_why_the_program_that_it_needs_was_not_loaded() {
        let refused = shunt_bpf::Error::Refused { object: "xdp_forward", reason: "R3 invalid".to_owned() };
        let failure = refused_attach("eth0", &shunt_bpf::Error::Earlier(Arc::new(refused)));
        assert_eq!(failure.code, FailureCode::KernelTooOld);
        assert_eq!(
            failure.message,
            "port eth0: the kernel's verifier refused the xdp_forward programs: R3 invalid; Linux 6.1 or later with \
             CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT is needed; or use --engine tc"
        );
    }
}
