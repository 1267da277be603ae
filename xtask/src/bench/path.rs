//! The ways a packet can take through the router.

use super::others::{FlowTable, Mode, XdpForward};
use crate::shunt::Shunt;
use serde::{Deserialize, Serialize};
use shunt_bpf::traffic::BareRedirect;
use shunt_testkit::NetNs;
use std::fmt;

/// A way through the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// Linux alone.
    Slow,
    /// A redirect of every frame, unread.
    Bare,
    /// Shunt's engine xdp.
    Xdp,
    /// Shunt's engine tc.
    Tc,
    /// Shunt is up and learns nothing.
    Idle,
    /// Linux's own fast path, in software.
    FlowTable,
    /// `xdp-forward`, which asks that flow table.
    XdpForwardFlowTable,
    /// `xdp-forward`, which asks for a route and for nothing else.
    XdpForwardFib,
}

/// What makes a path the one in use, until it is dropped.
#[derive(Debug)]
pub enum Open<'a> {
    /// Nothing.
    Slow,
    /// A program.
    Bare {
        #[expect(dead_code, reason = "attached as long as it lives")]
        program: BareRedirect,
    },
    /// A daemon.
    Shunt(Shunt<'a>),
    /// A flow table, and perhaps a program that asks it.
    #[expect(dead_code, reason = "there as long as it lives")]
    Others(Option<XdpForward<'a>>, Option<FlowTable<'a>>),
}

/// The table has room for all flows of a run in both directions, and no flow leaves it during a run or asks for another proof.
const CONFIG: &str = "max_flows = 262144\nidle = \"600s\"\nreprove = \"30s\"\n";

impl Path {
    /// Opens it on a router.
    pub fn open(self, router: &NetNs) -> anyhow::Result<Open<'_>> {
        Ok(match self {
            Self::Slow => Open::Slow,
            Self::Bare => {
                let (r0, r1) = (router.ifindex("r0"), router.ifindex("r1"));
                Open::Bare { program: router.within(|| BareRedirect::attach(r0, r1))? }
            }
            Self::Xdp | Self::Tc => Open::Shunt(Shunt::up(router, &self.to_string(), CONFIG)?),
            Self::Idle => {
                let config = format!("{CONFIG}udp_packets = 1000000\ntcp_packets = 1000000\n");
                Open::Shunt(Shunt::up(router, "xdp", &config)?)
            }
            Self::FlowTable => Open::Others(None, Some(FlowTable::on(router)?)),
            Self::XdpForwardFlowTable => {
                let table = FlowTable::on(router)?;
                Open::Others(Some(XdpForward::load(router, Mode::FlowTable)?), Some(table))
            }
            Self::XdpForwardFib => Open::Others(Some(XdpForward::load(router, Mode::Fib)?), None),
        })
    }

    /// Whether are to be on Shunt's fast path.
    pub const fn is_fast(self) -> bool {
        matches!(self, Self::Xdp | Self::Tc)
    }

    /// Whether all packets are to go the slow way.
    pub const fn is_slow(self) -> bool {
        matches!(self, Self::Slow | Self::Idle)
    }

    /// Whether an XDP program is to send them.
    pub const fn is_redirect(self) -> bool {
        matches!(self, Self::Bare | Self::Xdp | Self::XdpForwardFlowTable | Self::XdpForwardFib)
    }
}

impl Open<'_> {
    /// Packets that the fast path has sent.
    pub fn fast_packets(&self) -> anyhow::Result<Option<u64>> {
        match self {
            Self::Shunt(shunt) => shunt.number("/packets/fast").map(Some),
            _ => Ok(None),
        }
    }

    /// Whether Shunt's XDP program is on this port.
    pub fn has_xdp(&self, name: &str) -> anyhow::Result<bool> {
        let Self::Shunt(shunt) = self else { return Ok(false) };
        let status = shunt.status()?;
        let ports = status["ports"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(ports.iter().any(|port| port["name"] == name && port["xdp_attached"] == true))
    }

    /// The daemon's process.
    pub fn daemon(&self) -> anyhow::Result<Option<u32>> {
        match self {
            Self::Shunt(shunt) => Ok(u32::try_from(shunt.number("/pid")?).ok()),
            _ => Ok(None),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Slow => "slow",
            Self::Bare => "bare",
            Self::Xdp => "xdp",
            Self::Tc => "tc",
            Self::Idle => "idle",
            Self::FlowTable => "nf_flowtable",
            Self::XdpForwardFlowTable => "xdp-forward-flowtable",
            Self::XdpForwardFib => "xdp-forward-fib",
        })
    }
}
