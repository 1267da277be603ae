//! Traffic through a device under test: sent at a rate, and checked and counted on arrival.

mod figures;
mod floor;
mod membership;
mod neighbour;
mod priority;
mod readings;
mod record;
mod replay;
mod ruleset;
mod sender;
mod session;
mod station;
mod stream;
mod streams;
mod testbed;
mod variant;
mod vlan;

pub use figures::{Directed, Figures, Floor, LatencyUs, Recorded, Report};
pub use record::PcapOut;
pub use replay::Replay;
pub(crate) use ruleset::{masquerade, track};
pub use sender::{SendMethod, SendMethodChoice};
pub use session::{Session, session};
pub(crate) use station::Station;
pub use streams::{
    LiveStreams, RampSpec, StreamReport, StreamSpec, StreamsReport, StreamsSpec, live_streams,
    measure_streams,
};
pub use testbed::{Nics, Testbed};
pub use variant::Variant;
pub(crate) use vlan::vlan_lacking;

use crate::{Conditions, Results};
use shunt_api::Failure;
use shunt_gen::{FrameSizes, Rate, Schedule, Shape, Sizes, Wrong};
use shunt_wire::{Tag, line::LinkSpeed};
use std::{
    fmt, io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Time from the call to the first packet: the sender's threads and the kernel get ready in the meantime.
const LEAD_NS: u64 = 50_000_000;

/// The traffic to send, and the figures to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct TrafficSpec {
    /// The packets from the first port to the second. Unspecified addresses are replaced by those of the ports.
    pub shape: Shape,
    /// VLAN tags of frames on the link of the second port, the outermost first; those of `shape` are on the link of the
    /// first port.
    pub far_tags: Vec<Tag>,
    /// The offered rate in each direction.
    pub rate: Rate,
    /// Speed of the link; only needed if the driver does not report it.
    pub speed: Option<LinkSpeed>,
    /// Duration; None if the run ends by the count of packets or when it is stopped.
    pub duration: Option<Duration>,
    /// Number of packets in each direction; None for no limit.
    pub packets: Option<u64>,
    /// Duration of the traffic before the run, which is not counted.
    pub warm_up: Duration,
    /// Number of packets that are sent without an interval between them.
    pub burst: u32,
    /// Whether the second port sends, too.
    pub both: bool,
    /// The way of sending.
    pub method: SendMethodChoice,
    /// Whether to measure the latency and the highest rate of the generator alone.
    pub floor: bool,
    /// A capture to send from the first port to the second in place of generated packets.
    pub replay: Option<Replay>,
    /// Whether the second port sends each packet back, so that the first port receives.
    pub answered: bool,
    /// Whether a router of our own masquerades traffic to the WAN; the second port then sends to the router's address.
    pub nat: bool,
    /// MTU of all links of a router of our own; None for 1500, or as much as the largest packet needs.
    pub mtu: Option<u32>,
    /// The file to record received packets in; None records nothing.
    pub pcap_out: Option<PcapOut>,
}

/// An error that prevents a measurement.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The request is not possible.
    Asked(String),
    /// The process is not root.
    NotRoot,
    /// No device has this name.
    NoDevice(String),
    /// Another XDP program is attached to the device.
    Busy(String),
    /// The agent of the DUT does not answer.
    Dut(Failure),
    /// An error of the operating system.
    Machine(String),
}

/// The name of this measurement in files of results.
pub const WHAT: &str = "traffic";

/// Measures. When `stop` is set, the run ends at once and its figures cover the packets until then.
///
/// # Errors
/// Fails if the request is not possible or the operating system returns an error. The setup is undone.
pub fn measure(
    spec: &TrafficSpec,
    testbed: &Testbed,
    mut conditions: Conditions,
    stop: &AtomicBool,
) -> Result<Report, Error> {
    let schedule = spec.schedule(testbed.speed(spec.speed))?;
    // Open the file before anything is sent, so that a wrong directory shows at once.
    let recording = spec.pcap_out.as_ref().map(record::Recording::begin).transpose()?;
    session(spec, testbed, stop, |session| {
        conditions.seed = spec.shape.shuffled;
        conditions.nics = session.nics().to_vec();
        let measure_floor = spec.floor && !stop.load(Ordering::Relaxed);
        let floor = measure_floor.then(|| session.floor(&schedule)).transpose()?;
        if !spec.warm_up.is_zero() {
            session.run(&Schedule { duration: Some(spec.warm_up), packets: None, ..schedule })?;
        }
        let results = Results::new(WHAT, conditions);
        let (runs, recorded) = match recording {
            Some(recording) => {
                session.record(&schedule, recording).map(|(runs, there)| (runs, Some(there)))?
            }
            None => (session.run(&schedule)?, None),
        };
        let interrupted = stop.load(Ordering::Relaxed);
        Ok(Report::new(runs, &schedule, floor, recorded, results, interrupted))
    })
}

/// Checks that this process may measure.
///
/// # Errors
/// Fails if the process is not root.
pub fn require_root() -> Result<(), Error> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(Error::NotRoot) }
}

impl TrafficSpec {
    /// Traffic of this shape in one direction, at the highest rate, without an end.
    pub fn for_shape(shape: Shape) -> Self {
        Self {
            far_tags: shape.tags.clone(),
            shape,
            rate: Rate::Max,
            speed: None,
            duration: None,
            packets: None,
            warm_up: Duration::ZERO,
            burst: 1,
            both: false,
            method: SendMethodChoice::Auto,
            floor: false,
            replay: None,
            answered: false,
            nat: false,
            mtu: None,
            pcap_out: None,
        }
    }

    /// These frame sizes, or the least without them, if they have room for the headers on both links.
    ///
    /// # Errors
    /// Fails if they have not.
    pub fn fit(&self, sizes: Option<&FrameSizes>) -> Result<Sizes, Wrong> {
        let tags =
            if self.far_tags.len() > self.shape.tags.len() { &self.far_tags } else { &self.shape.tags };
        Shape { tags: tags.clone(), ..self.shape.clone() }.fit(sizes)
    }

    /// The times at which packets are due.
    ///
    /// # Errors
    /// Fails if the rate is not possible.
    pub fn schedule(&self, speed: Option<LinkSpeed>) -> Result<Schedule, Error> {
        let schedule = match &self.replay {
            Some(replay) => replay.schedule(self, speed)?,
            None => Schedule {
                pps: self.rate.packets_per_second_for(self.shape.sizes.mean_bytes(), speed, self.duration)?,
                burst: self.burst.max(1),
                packets: self.packets,
                duration: self.duration,
            },
        };
        if schedule.offered() == Some(0) {
            return Err(Error::Asked(
                "no packet is due in that time; raise --time, or set a count".to_owned(),
            ));
        }
        Ok(schedule)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => f.write_str("root is needed for raw frames and XDP; use sudo"),
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

impl From<shunt_traffic::Error> for Error {
    fn from(error: shunt_traffic::Error) -> Self {
        Self::Machine(error.to_string())
    }
}

impl Error {
    /// The error of attaching an XDP program to a device.
    pub(crate) fn attaching(device: &str, error: &shunt_traffic::Error) -> Self {
        match error.raw_os_error() {
            Some(nix::libc::EBUSY | nix::libc::EEXIST) => Self::Busy(format!(
                "{device}: another XDP program is attached; stop its owner, or type `ip link set {device} xdp off`"
            )),
            _ => Self::Machine(format!("{device}: {error}")),
        }
    }
}
