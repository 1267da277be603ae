//! The ways a packet can take through the router.

use crate::shunt::Shunt;
use serde::Serialize;
use shunt_bpf::traffic::BareRedirect;
use shunt_testkit::NetNs;
use std::fmt;

/// A way through the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
}

/// The table has room for all flows of a run in both directions, and no flow leaves it during a run.
const CONFIG: &str = "max_flows = 131072\nidle = \"600s\"\n";

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
        })
    }

    /// Whether packets are to be on Shunt's fast path.
    pub const fn is_fast(self) -> bool {
        matches!(self, Self::Xdp | Self::Tc)
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
        })
    }
}
