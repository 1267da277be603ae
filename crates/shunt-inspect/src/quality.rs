//! Whether a slow connection is the fault of the LAN side, of the router or of the WAN side: round trips and losses of
//! TCP beyond the ports of each side, by host, from the packets that pass the router
//! (docs/adr/0029-quality-is-measured-at-each-port.md).

mod abi;
mod default_route;
mod programs;
mod report;
mod times;

pub use default_route::default_route_devices;
pub use report::{Finding, HostReport, Loss, Part, Report, Share, SideReport, Symptom, Unseen, Verdict};
pub use times::{Quantile, Times};

use crate::probes::ProgramError;
use nix::{ifaddrs::getifaddrs, net::if_::if_nametoindex};
use programs::{HostTally, Programs};
use report::Course;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

/// How often a signal is looked for.
const INTERVAL: Duration = Duration::from_millis(50);

/// A side of the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The hosts of the owner.
    Lan,
    /// The line, the provider and the servers behind it.
    Wan,
}

impl Side {
    /// Both sides.
    pub const ALL: [Self; 2] = [Self::Lan, Self::Wan];

    const fn number(self) -> u32 {
        match self {
            Self::Lan => abi::QUALITY_LAN,
            Self::Wan => abi::QUALITY_WAN,
        }
    }
}

/// What to observe, and for how long.
#[derive(Debug, Clone)]
pub struct Request {
    /// The ports, by name.
    pub ports: BTreeMap<String, Side>,
    /// For how long.
    pub time: Duration,
}

/// The quality of the sides cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QualityError {
    /// The kernel refuses the programs.
    #[error("{0}")]
    Programs(String),
    /// The caller may not load programs.
    #[error("{0}; shunt quality needs root")]
    NotAllowed(String),
    /// A port is gone.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl From<ProgramError> for QualityError {
    fn from(error: ProgramError) -> Self {
        let why = error.to_string();
        if error.forbidden { Self::NotAllowed(why) } else { Self::Programs(why) }
    }
}

/// What was counted.
#[derive(Debug)]
pub struct Observation {
    tallies: Vec<HostTally>,
    course: Course,
}

/// Observes in the calling thread's network namespace, until the time is over or `stop` is set. Calls `started` when
/// packets are counted.
///
/// # Errors
/// If the kernel refuses the programs, or a port is gone.
pub fn observe(
    request: &Request,
    stop: &AtomicBool,
    started: impl FnOnce(),
) -> Result<Observation, QualityError> {
    let mut ports = Vec::new();
    for (name, side) in &request.ports {
        let index = if_nametoindex(name.as_str()).map_err(|error| QualityError::System {
            doing: format!("finding the port {name}"),
            source: error.into(),
        })?;
        ports.push((index, *side));
    }
    let programs = Programs::attach(&ports)?;
    let began = Instant::now();
    started();
    while began.elapsed() < request.time && !stop.load(Ordering::Relaxed) {
        sleep(INTERVAL.min(request.time));
    }
    let seconds = began.elapsed().as_secs_f64();
    let (tallies, counted) = programs.finish()?;
    Ok(Observation { tallies, course: Course { seconds, counted, own: own_addresses() } })
}

impl Observation {
    /// Judges what was counted of the hosts that are `wanted`; without an address, of those that had no room or are not
    /// known. `name` is the name of a host. With packets that other engines forwarded unseen, there are no figures:
    /// they would be those of a few special packets.
    pub fn report(
        &self,
        unseen: Option<Unseen>,
        wanted: impl Fn(Option<IpAddr>) -> bool,
        name: impl Fn(IpAddr) -> Option<String>,
    ) -> Report {
        report::report(&self.tallies, &self.course, unseen, wanted, name)
    }
}

/// The addresses of this machine. Without them, the router is listed as a host.
fn own_addresses() -> BTreeSet<IpAddr> {
    let all = getifaddrs().into_iter().flatten().filter_map(|one| one.address);
    let address = |one: nix::sys::socket::SockaddrStorage| {
        let v4 = one.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| one.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    };
    all.filter_map(address).collect()
}
