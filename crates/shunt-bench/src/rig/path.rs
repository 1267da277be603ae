//! The paths that a packet can take through the router.

use super::peer_paths::{FlowTable, Mode, XdpForward};
use crate::rig::shunt;
use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
use serde::{Deserialize, Serialize};
use shunt_api::Status;
use shunt_bpf::attach::Hook;
use shunt_testkit::{NetNs, Shuntd};
use shunt_traffic::{BareRedirect, BareTcRedirect, Hooks};
use std::{
    fmt,
    os::fd::{AsRawFd, OwnedFd},
};

/// NFNLGRP_CONNTRACK_DESTROY, as a bit of the groups that a bind can name.
const CONNTRACK_DESTROY: u32 = 1 << 2;

/// A path through the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// Linux without Shunt.
    Slow,
    /// An XDP program that redirects every frame without reading it.
    Bare,
    /// A tc program on each port that redirects every packet to the other without reading it.
    BareTc,
    /// Linux with an XDP program on each port that returns at once.
    HookXdp,
    /// Linux with a program at tc ingress of each port that returns at once.
    HookIngress,
    /// Linux with a program at tc egress of each port that returns at once.
    HookEgress,
    /// Linux with all three.
    Hooks,
    /// Linux with a program at tc ingress of each port that parses packets and counts their tuples.
    HookCount,
    /// Linux with programs at tc ingress and egress that return at once, and with a socket that subscribes to the ends
    /// of connections: what Shunt's tc engine needs from the kernel.
    Listener,
    /// Shunt's xdp engine.
    Xdp,
    /// Shunt's tc engine.
    Tc,
    /// Shunt with the engine that it chooses itself.
    Auto,
    /// Linux with Shunt up, which learns nothing, with every hook.
    Idle,
    /// The same after a while without flows, when only the hooks are left that look for something to learn.
    Rest,
    /// Linux's nf_flowtable in software.
    FlowTable,
    /// `xdp-forward` with the lookup in nf_flowtable.
    XdpForwardFlowTable,
    /// `xdp-forward` with the route lookup only.
    XdpForwardFib,
}

/// An open path: packets take it until this value is dropped.
#[derive(Debug)]
pub enum Open<'a> {
    /// Nothing to set up.
    Slow,
    /// An attached XDP program.
    Bare {
        #[expect(dead_code, reason = "attached as long as it lives")]
        program: BareRedirect,
    },
    /// Attached tc programs.
    BareTc {
        #[expect(dead_code, reason = "attached as long as they live")]
        programs: [BareTcRedirect; 2],
    },
    /// Attached programs that return at once.
    Hooks {
        #[expect(dead_code, reason = "attached as long as they live")]
        programs: Hooks,
        #[expect(dead_code, reason = "subscribed as long as it is open")]
        listener: Option<OwnedFd>,
    },
    /// A running daemon.
    Shunt(Shuntd),
    /// nf_flowtable, xdp-forward, or both.
    #[expect(dead_code, reason = "there as long as it lives")]
    Peers(Option<XdpForward<'a>>, Option<FlowTable<'a>>),
}

/// The table has room for all flows in both directions, and no flow leaves the table or is due for a proof during a
/// run.
const CONFIG: &str = "max_flows = 262144\nidle = \"600s\"\nreprove = \"30s\"\n";
/// No packet of a run teaches a flow.
const NOTHING_LEARNED: &str = "udp_packets = 1000000\ntcp_packets = 1000000\n";

impl Path {
    /// Opens the path on a router.
    pub fn open(self, router: &NetNs) -> anyhow::Result<Open<'_>> {
        self.open_with(router, "")
    }

    /// As [`Path::open`], with these further lines of the daemon's configuration.
    pub fn open_with<'a>(self, router: &'a NetNs, further: &str) -> anyhow::Result<Open<'a>> {
        Ok(match self {
            Self::Slow => Open::Slow,
            Self::Bare => {
                let [r0, r1] = ports(router);
                Open::Bare { program: router.within(|| BareRedirect::attach(r0, r1))? }
            }
            Self::BareTc => {
                let [r0, r1] = ports(router);
                let attach =
                    || anyhow::Ok([BareTcRedirect::attach(r0, r1)?, BareTcRedirect::attach(r1, r0)?]);
                Open::BareTc { programs: router.within(attach)? }
            }
            Self::HookXdp => hooks(router, &[Hook::Xdp])?,
            Self::HookIngress => hooks(router, &[Hook::Ingress])?,
            Self::HookEgress => hooks(router, &[Hook::Egress])?,
            Self::Hooks => hooks(router, &[Hook::Xdp, Hook::Ingress, Hook::Egress])?,
            Self::HookCount => {
                Open::Hooks { programs: router.within(|| Hooks::count(&ports(router)))?, listener: None }
            }
            Self::Listener => Open::Hooks {
                programs: attach_hooks(router, &[Hook::Ingress, Hook::Egress])?,
                listener: Some(router.within(listen_to_ends)?),
            },
            Self::Xdp | Self::Tc | Self::Auto => {
                Open::Shunt(shunt::start(router, &self.to_string(), &format!("{CONFIG}{further}"))?)
            }
            Self::Idle => {
                let config = format!("{CONFIG}{NOTHING_LEARNED}rest_after = \"0s\"\n");
                Open::Shunt(shunt::start(router, "xdp", &config)?)
            }
            Self::Rest => {
                let config = format!("{CONFIG}{NOTHING_LEARNED}rest_after = \"1s\"\n");
                Open::Shunt(shunt::start_to_rest(router, &config)?)
            }
            Self::FlowTable => Open::Peers(None, Some(FlowTable::on(router)?)),
            Self::XdpForwardFlowTable => {
                let table = FlowTable::on(router)?;
                Open::Peers(Some(XdpForward::load(router, Mode::FlowTable)?), Some(table))
            }
            Self::XdpForwardFib => Open::Peers(Some(XdpForward::load(router, Mode::Fib)?), None),
        })
    }

    /// Whether packets must take Shunt's fast path.
    pub const fn is_fast(self) -> bool {
        matches!(self, Self::Xdp | Self::Tc | Self::Auto)
    }

    /// Whether all packets must take the slow path.
    pub const fn is_slow(self) -> bool {
        matches!(
            self,
            Self::Slow
                | Self::Idle
                | Self::Rest
                | Self::HookXdp
                | Self::HookIngress
                | Self::HookEgress
                | Self::Hooks
                | Self::HookCount
                | Self::Listener
        )
    }

    /// Whether an XDP program must redirect the packets.
    pub const fn is_redirect(self) -> bool {
        matches!(self, Self::Bare | Self::Xdp | Self::XdpForwardFlowTable | Self::XdpForwardFib)
    }
}

fn hooks<'a>(router: &NetNs, hooks: &[Hook]) -> anyhow::Result<Open<'a>> {
    Ok(Open::Hooks { programs: attach_hooks(router, hooks)?, listener: None })
}

fn attach_hooks(router: &NetNs, hooks: &[Hook]) -> anyhow::Result<Hooks> {
    Ok(router.within(|| Hooks::attach(&ports(router), hooks))?)
}

/// The ifindexes of the ports, LAN first.
fn ports(router: &NetNs) -> [u32; 2] {
    ["r0", "r1"].map(|port| router.ifindex(port))
}

/// Subscribes to the ends of connections. Nobody reads the messages: soon the queue is full, and the kernel makes them
/// and drops them, as it does for a socket whose filter drops all.
fn listen_to_ends() -> anyhow::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkNetFilter)?;
    bind(listener.as_raw_fd(), &NetlinkAddr::new(0, CONNTRACK_DESTROY))?;
    Ok(listener)
}

impl Open<'_> {
    /// Number of packets that Shunt's fast path has sent; None on other paths.
    pub fn fast_packets(&self) -> anyhow::Result<Option<u64>> {
        match self {
            Self::Shunt(shuntd) => shunt::fast_packets(shuntd).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether Shunt's XDP program is attached to this port.
    pub fn has_xdp(&self, name: &str) -> anyhow::Result<bool> {
        let ports = self.status()?.map_or_else(Vec::new, |status| status.ports);
        Ok(ports.iter().any(|port| port.name == name && port.xdp_attached))
    }

    /// The status of the running daemon; None on other paths.
    pub fn status(&self) -> anyhow::Result<Option<Status>> {
        match self {
            Self::Shunt(shuntd) => Ok(Some(shuntd.try_status()?)),
            _ => Ok(None),
        }
    }

    /// The daemon's process ID; None on other paths.
    pub fn daemon(&self) -> anyhow::Result<Option<u32>> {
        Ok(self.status()?.map(|status| status.pid))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Slow => "slow",
            Self::Bare => "bare",
            Self::BareTc => "bare-tc",
            Self::HookXdp => "hook-xdp",
            Self::HookIngress => "hook-ingress",
            Self::HookEgress => "hook-egress",
            Self::Hooks => "hooks",
            Self::HookCount => "hook-count",
            Self::Listener => "listener",
            Self::Xdp => "xdp",
            Self::Tc => "tc",
            Self::Auto => "auto",
            Self::Idle => "idle",
            Self::Rest => "rest",
            Self::FlowTable => "nf_flowtable",
            Self::XdpForwardFlowTable => "xdp-forward-flowtable",
            Self::XdpForwardFib => "xdp-forward-fib",
        })
    }
}
