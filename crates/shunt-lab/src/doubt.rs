//! Why a number may be wrong.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One reason. Its text goes above the number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Doubt {
    /// The generator was the limit.
    GeneratorBound,
    /// The sender was held up by what it sends to, and lost nothing: they share CPUs.
    SharedCpu,
    /// The links are virtual.
    VirtualLinks,
    /// The machine is virtual.
    VirtualMachine {
        /// As what.
        hypervisor: String,
    },
    /// The run was too short for what it shows.
    TooShort {
        /// How long it was.
        seconds: f64,
        /// How long it should have been.
        wanted: f64,
    },
    /// The runs differ by more than what is to be shown.
    Noisy {
        /// By how much.
        percent: f64,
    },
    /// Something else ran on a CPU that had to be quiet.
    Disturbed {
        /// Which.
        cpu: usize,
        /// The share that it took.
        percent: f64,
    },
    /// A CPU did not run at the speed at which it was calibrated: frequency, a sibling thread or another virtual machine.
    Clock {
        /// Which.
        cpu: usize,
        /// At which share of that speed it ran.
        percent: f64,
    },
    /// The calibration of a CPU is uncertain.
    Calibration {
        /// Which.
        cpu: usize,
        /// The median deviation of its windows.
        percent: f64,
    },
    /// A CPU was too hot for its speed.
    Throttled {
        /// Which.
        cpu: usize,
    },
    /// The hypervisor gave a CPU to somebody else.
    Stolen {
        /// Which.
        cpu: usize,
        /// How much of it.
        percent: f64,
    },
    /// Two CPUs are threads of one core.
    SiblingThreads,
    /// Everything shared one CPU.
    OneCore,
    /// The load of these CPUs is unknown.
    CpusLeftOut {
        /// Which.
        cpus: Vec<usize>,
    },
    /// The soaker may take much from what it measures, since control groups or autogroups share CPUs as if it were ordinary.
    GroupWeight,
    /// The control group may not use all of the time of its CPUs.
    Quota,
    /// It is of a model.
    Simulated,
    /// Less was sent than was asked for.
    SentLess {
        /// So much of it.
        percent: f64,
    },
    /// Nothing arrived at all.
    NothingArrived,
    /// It was ended before its time.
    Interrupted,
    /// Packets went in system calls of a socket: they are stamped before that, and it counts as latency.
    SocketSender,
    /// Arrivals are stamped in the stack and not in the driver.
    GenericReceiver,
    /// The sender was held up, and caught up in a burst.
    SentLate {
        /// For so long.
        microseconds: f64,
    },
    /// Frames came that are not in the file of what came.
    NotRecorded {
        /// Frames.
        frames: u64,
    },
    /// So many packets came so late that they may be duplicates.
    BeyondWindow {
        /// Packets.
        packets: u64,
    },
    /// It is more than the line can carry.
    AboveLine,
    /// Most packets went through Linux though a fast path was up.
    SlowPath {
        /// The share of those that did not.
        percent: f64,
    },
    /// One that this version has no name for.
    #[serde(other)]
    Unknown,
}

/// A fast path that takes less than this of the packets is not what was measured.
const FAST_WANTED: f64 = 0.5;

impl Doubt {
    /// Where too little went the fast path.
    pub(crate) fn slow_path(fast_share: f64) -> Option<Self> {
        (fast_share < FAST_WANTED).then_some(Self::SlowPath { percent: fast_share * 100.0 })
    }

    /// Adds it, unless there is one of its kind: of those that differ by a figure, the first is enough.
    pub(crate) fn add_kind(self, doubts: &mut Vec<Self>) {
        let same = |other: &Self| std::mem::discriminant(other) == std::mem::discriminant(&self);
        if !doubts.iter().any(same) {
            doubts.push(self);
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GeneratorBound => write!(f, "the generator was the limit, not what is measured"),
            Self::SharedCpu => write!(
                f,
                "the sender was held up by the router, with which it shares CPUs: the rate is that of both together"
            ),
            Self::VirtualLinks => write!(f, "virtual links: no wire, no NIC and no driver took part"),
            Self::VirtualMachine { hypervisor } => {
                write!(f, "a virtual machine ({hypervisor}): others share its CPUs")
            }
            Self::TooShort { seconds, wanted } => {
                write!(f, "too short: {seconds:.1} s, where {wanted:.1} s are wanted")
            }
            Self::Noisy { percent } => write!(f, "noisy: runs differ by {percent:.1} %"),
            Self::Disturbed { cpu, percent } => {
                write!(f, "CPU {cpu} was not quiet: something else took {percent:.1} % of it")
            }
            Self::Clock { cpu, percent } => write!(
                f,
                "CPU {cpu} ran at {percent:.1} % of its calibrated speed: frequency, a sibling thread or another virtual machine"
            ),
            Self::Calibration { cpu, percent } => {
                write!(f, "CPU {cpu}: its calibration varies by {percent:.1} %")
            }
            Self::Throttled { cpu } => write!(f, "CPU {cpu} was throttled by its temperature"),
            Self::Stolen { cpu, percent } => {
                write!(f, "the hypervisor took {percent:.1} % of CPU {cpu}, which counts as load")
            }
            Self::SiblingThreads => write!(f, "CPUs are threads that share cores, and slow each other"),
            Self::OneCore => write!(f, "everything shared one CPU"),
            Self::CpusLeftOut { cpus } => {
                write!(f, "the load of CPUs {cpus:?} is unknown: no measuring there (cpuset)")
            }
            Self::GroupWeight => write!(
                f,
                "its control group or autogroup weighs as much as others: the meter may take CPU from what it measures"
            ),
            Self::Quota => write!(f, "its control group has a CPU quota, so the load reads too high"),
            Self::Simulated => write!(f, "simulated: no packet was sent"),
            Self::SentLess { percent } => {
                write!(
                    f,
                    "the generator sent {percent:.2} % of what was asked for: the machine could not do more"
                )
            }
            Self::NothingArrived => write!(
                f,
                "nothing arrived: the DUT loses all, has no route, or the receiver is on the wrong port"
            ),
            Self::Interrupted => write!(f, "interrupted: these are the packets until then"),
            Self::SocketSender => {
                write!(
                    f,
                    "packets went through a socket: the system call counts as latency, and limits the rate"
                )
            }
            Self::GenericReceiver => {
                write!(f, "the receiver is not in the driver: making an skb counts as latency")
            }
            Self::SentLate { microseconds } => write!(
                f,
                "the sender was held up for {microseconds:.0} us and caught up in a burst, which may cost packets"
            ),
            Self::NotRecorded { frames } => {
                write!(f, "{frames} frames came faster than they could be recorded, and are not in the file")
            }
            Self::BeyondWindow { packets } => {
                write!(f, "{packets} packets came so late that they may be duplicates")
            }
            Self::AboveLine => write!(f, "more than the line can carry: the value or its limit is wrong"),
            Self::SlowPath { percent } => {
                write!(f, "only {percent:.1} % of the packets took the fast path")
            }
            Self::Unknown => write!(f, "a doubt that this version has no name for"),
        }
    }
}
