//! Traffic through a device under test: sent at a rate, and accounted for as it arrives.

mod figures;
mod floor;
mod kept;
mod lane;
mod membership;
mod neighbour;
mod record;
mod replay;
mod sender;
mod session;
mod station;

pub use figures::{Directed, Figures, Floor, LatencyUs, Report};
pub use record::{PcapOut, Recorded};
pub use replay::Replay;
pub use sender::{Means, MeansChoice};
pub use session::{Session, session};
pub use station::{Nics, Place};

use crate::{Conditions, Results};
use shunt_api::Failure;
use shunt_gen::{Rate, Schedule, Shape, Wrong};
use shunt_wire::line::LinkSpeed;
use std::{
    fmt, io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// The sender's threads and the kernel need this to get ready.
const LEAD_NS: u64 = 50_000_000;
/// A packet this late makes a burst of those behind it.
const LATE_NS: u64 = 1_000_000;

/// What is to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The packets, as they go from the first port to the second. Ends that are none are those of the ports.
    pub shape: Shape,
    /// How much is offered, in each direction.
    pub rate: Rate,
    /// Of the link, where it does not say so itself.
    pub speed: Option<LinkSpeed>,
    /// How long.
    pub duration: Option<Duration>,
    /// How many packets in each direction.
    pub packets: Option<u64>,
    /// Traffic before that, which is not counted.
    pub warm_up: Duration,
    /// Packets that go without an interval between them.
    pub burst: u32,
    /// The second port sends too.
    pub both: bool,
    /// Who sends.
    pub means: MeansChoice,
    /// Measure what the generator adds by itself.
    pub floor: bool,
    /// Send this, from the first port to the second, instead of packets that are made.
    pub replay: Option<Replay>,
    /// The second port sends each packet back, and the first one receives.
    pub answered: bool,
    /// Keep what the second port receives.
    pub pcap_out: Option<PcapOut>,
}

/// Why nothing was measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for cannot be.
    Asked(String),
    /// It takes root.
    NotRoot,
    /// There is no such device.
    NoDevice(String),
    /// Another XDP program is there.
    Busy(String),
    /// The DUT was to tell of itself, and does not.
    Dut(Failure),
    /// The machine refused.
    Machine(String),
}

/// The name of what is measured, in files of results.
pub const WHAT: &str = "traffic";

/// Measures. When `stop` is set it ends at once, with what there is.
///
/// # Errors
/// When it cannot be as asked, or the machine refuses. What was set up is undone.
pub fn measure(
    wanted: &Wanted,
    place: &Place,
    mut conditions: Conditions,
    stop: &AtomicBool,
) -> Result<Report, Error> {
    let schedule = wanted.schedule(place.speed(wanted.speed))?;
    // Before anything is sent, so that a wrong directory shows at once.
    let recording = wanted.pcap_out.as_ref().map(record::Recording::begin).transpose()?;
    session(wanted, place, stop, |session| {
        conditions.seed = wanted.shape.shuffled;
        conditions.nics = session.nics().to_vec();
        let measure_floor = wanted.floor && !stop.load(Ordering::Relaxed);
        let floor = measure_floor.then(|| session.floor(&schedule)).transpose()?;
        if !wanted.warm_up.is_zero() {
            session.run(&Schedule { duration: Some(wanted.warm_up), packets: None, ..schedule })?;
        }
        let results = Results::new(WHAT, conditions);
        let (runs, recorded) = match recording {
            Some(recording) => {
                session.record(&schedule, recording).map(|(runs, there)| (runs, Some(there)))?
            }
            None => (session.run(&schedule)?, None),
        };
        let interrupted = stop.load(Ordering::Relaxed);
        Ok(Report::of(runs, &schedule, floor, recorded, results, interrupted))
    })
}

/// Whether this process may measure.
///
/// # Errors
/// When it is not root.
pub fn require_root() -> Result<(), Error> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(Error::NotRoot) }
}

impl Wanted {
    /// As many of these as can be, one way, until what measures says that it is enough.
    pub fn of(shape: Shape) -> Self {
        Self {
            shape,
            rate: Rate::Max,
            speed: None,
            duration: None,
            packets: None,
            warm_up: Duration::ZERO,
            burst: 1,
            both: false,
            means: MeansChoice::Auto,
            floor: false,
            replay: None,
            answered: false,
            pcap_out: None,
        }
    }

    /// When packets go.
    ///
    /// # Errors
    /// When the rate cannot be.
    pub fn schedule(&self, speed: Option<LinkSpeed>) -> Result<Schedule, Error> {
        let schedule = match &self.replay {
            Some(replay) => replay.schedule(self, speed)?,
            None => Schedule {
                pps: self.rate.packets_per_second(self.shape.sizes.mean_bytes(), speed)?,
                burst: self.burst.max(1),
                packets: self.packets,
                duration: self.duration,
            },
        };
        if schedule.offered() == Some(0) {
            return Err(Error::Asked("no packet is due in that time; give more time, or a count".to_owned()));
        }
        Ok(schedule)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => f.write_str("it takes root: raw frames and XDP; use sudo"),
            Self::NoDevice(name) => {
                write!(f, "{name}: no such device in this network namespace; see `ip link`")
            }
            Self::Dut(failure) => failure.fmt(f),
            Self::Asked(why) | Self::Busy(why) | Self::Machine(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<Wrong> for Error {
    fn from(wrong: Wrong) -> Self {
        Self::Asked(wrong.to_string())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Machine(error.to_string())
    }
}

impl From<shunt_bpf::traffic::Error> for Error {
    fn from(error: shunt_bpf::traffic::Error) -> Self {
        Self::Machine(error.to_string())
    }
}

impl Error {
    /// A program cannot be put onto a device.
    fn attaching(device: &str, error: &shunt_bpf::traffic::Error) -> Self {
        match error.raw_os_error() {
            Some(nix::libc::EBUSY | nix::libc::EEXIST) => Self::Busy(format!(
                "{device}: another XDP program is there: end what put it there, or `ip link set {device} xdp off`"
            )),
            _ => Self::Machine(format!("{device}: {error}")),
        }
    }
}
