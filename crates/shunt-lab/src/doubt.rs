//! Reasons why a number may be wrong.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A reason why a number may be wrong. Reports print its text above the number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Doubt {
    /// The generator could not send more, so the rate is the generator's limit.
    GeneratorBound,
    /// The sender shares CPUs with the router and was slowed by it, but nothing was lost.
    SharedCpu,
    /// The links are virtual: veth, bridge, tun.
    VirtualLinks,
    /// The machine is a virtual machine.
    VirtualMachine {
        /// The name of the hypervisor; `unnamed` if it has none.
        hypervisor: String,
    },
    /// The run was too short for this figure.
    TooShort {
        /// Duration of the run in seconds.
        seconds: f64,
        /// Least duration in seconds.
        wanted: f64,
    },
    /// The runs differ by more than the effect to be shown.
    Noisy {
        /// The difference of the runs in percent.
        percent: f64,
    },
    /// Something else ran on a CPU that had to be idle.
    Disturbed {
        /// Number of the CPU.
        cpu: usize,
        /// Share of the CPU's time that was taken.
        percent: f64,
    },
    /// A CPU ran at another speed than during its calibration, because of its frequency, a sibling thread or another
    /// virtual machine.
    Clock {
        /// Number of the CPU.
        cpu: usize,
        /// Speed in percent of the calibrated speed.
        percent: f64,
    },
    /// The calibration of a CPU varied.
    Calibration {
        /// Number of the CPU.
        cpu: usize,
        /// Median deviation of the calibration windows in percent.
        percent: f64,
    },
    /// A CPU was throttled because of its temperature.
    Throttled {
        /// Number of the CPU.
        cpu: usize,
    },
    /// The hypervisor gave a CPU to another guest.
    Stolen {
        /// Number of the CPU.
        cpu: usize,
        /// Share of the CPU's time.
        percent: f64,
    },
    /// Some CPUs are threads of the same core.
    SiblingThreads,
    /// Generator, router and receiver shared one CPU.
    OneCore,
    /// The load of some CPUs is unknown.
    CpusLeftOut {
        /// Numbers of these CPUs.
        cpus: Vec<usize>,
    },
    /// The soaker may take CPU time from what it measures: its control group or autogroup has the same weight as
    /// others.
    GroupWeight,
    /// The control group has a CPU quota.
    Quota,
    /// The value comes from a model.
    Simulated,
    /// The generator sent less than it was asked to.
    SentLess {
        /// Share of the requested packets that were sent.
        percent: f64,
    },
    /// No packet arrived.
    NothingArrived,
    /// The run was interrupted.
    Interrupted,
    /// Packets were sent through a socket: they are stamped before the system call, whose time counts as latency.
    SocketSender,
    /// Arrivals are stamped in the network stack instead of the driver.
    GenericReceiver,
    /// The sender was held up, and left out the packets that were overdue. A sender that was asked for a number of
    /// packets or for a capture sent them later.
    SentLate {
        /// The longest delay of a packet in microseconds.
        microseconds: f64,
    },
    /// Frames arrived that were not recorded in the capture file.
    NotRecorded {
        /// Number of these frames.
        frames: u64,
    },
    /// Packets arrived so late that they may be duplicates.
    BeyondWindow {
        /// Number of these packets.
        packets: u64,
    },
    /// The value is above what the line can carry.
    AboveLine,
    /// Most packets took the slow path although a fast path was up.
    SlowPath {
        /// Share of the packets on the fast path.
        percent: f64,
    },
    /// Packets were lost although the test bed is set up to lose none.
    Lost {
        /// Share of the packets sent.
        percent: f64,
    },
    /// The router's threads were ready to run and waited for their CPU.
    RouterWaited {
        /// Share of the measuring time.
        percent: f64,
    },
    /// The router polled fewer packets at a time than were sent at a time.
    SmallBatches {
        /// Packets per poll, on average.
        packets: f64,
        /// Packets sent at a time.
        sent: u32,
    },
    /// Connections failed, and are not counted in the rate.
    ConnectionsFailed {
        /// Number of failed connections.
        connections: u64,
    },
    /// Conntrack counted another number of connections than were established.
    ConntrackDiffers {
        /// The difference in percent of the connections established.
        percent: f64,
    },
    /// The lab itself lost frames that the router had delivered.
    ReceiverOverrun {
        /// Number of these frames.
        frames: u64,
    },
    /// A doubt of a newer version, which this version cannot name.
    #[serde(other)]
    Unknown,
}

/// A fast path that takes less than this of the packets is not what was measured.
const FAST_WANTED: f64 = 0.5;

impl Doubt {
    /// The doubt that too small a share took the fast path; None if the share is large enough.
    pub(crate) fn slow_path(fast_share: f64) -> Option<Self> {
        (fast_share < FAST_WANTED).then_some(Self::SlowPath { percent: fast_share * 100.0 })
    }

    /// Whether the sender was held up, so that nothing follows from the figure.
    pub fn is_held_up(&self) -> bool {
        matches!(self, Self::SentLate { .. })
    }

    /// Adds it. Of those that differ by a figure only, the one with the worst figure is kept.
    pub(crate) fn add_to(self, doubts: &mut Vec<Self>) {
        match doubts.iter_mut().find(|other| other.subject() == self.subject()) {
            Some(other) if self.severity() > other.severity() => *other = self,
            Some(_) => {}
            None => doubts.push(self),
        }
    }

    /// What the doubt is about, apart from its figure: its kind, and the CPU or the hypervisor.
    fn subject(&self) -> (std::mem::Discriminant<Self>, Option<usize>, &[usize], &str) {
        let (cpu, cpus, name): (_, &[usize], &str) = match self {
            Self::Disturbed { cpu, .. }
            | Self::Clock { cpu, .. }
            | Self::Calibration { cpu, .. }
            | Self::Throttled { cpu }
            | Self::Stolen { cpu, .. } => (Some(*cpu), &[], ""),
            Self::CpusLeftOut { cpus } => (None, cpus, ""),
            Self::VirtualMachine { hypervisor } => (None, &[], hypervisor),
            _ => (None, &[], ""),
        };
        (std::mem::discriminant(self), cpu, cpus, name)
    }

    /// The doubt's figure, such that a larger one is worse; 0 without a figure.
    fn severity(&self) -> f64 {
        match *self {
            Self::TooShort { seconds, .. } => -seconds,
            Self::SentLess { percent } | Self::SlowPath { percent } => -percent,
            Self::SmallBatches { packets, .. } => -packets,
            Self::Clock { percent, .. } => (percent - 100.0).abs(),
            Self::Noisy { percent }
            | Self::Disturbed { percent, .. }
            | Self::Calibration { percent, .. }
            | Self::Stolen { percent, .. }
            | Self::Lost { percent }
            | Self::RouterWaited { percent }
            | Self::ConntrackDiffers { percent } => percent,
            Self::SentLate { microseconds } => microseconds,
            Self::NotRecorded { frames: count }
            | Self::ReceiverOverrun { frames: count }
            | Self::BeyondWindow { packets: count }
            | Self::ConnectionsFailed { connections: count } => count as f64,
            Self::GeneratorBound
            | Self::SharedCpu
            | Self::VirtualLinks
            | Self::VirtualMachine { .. }
            | Self::Throttled { .. }
            | Self::SiblingThreads
            | Self::OneCore
            | Self::CpusLeftOut { .. }
            | Self::GroupWeight
            | Self::Quota
            | Self::Simulated
            | Self::NothingArrived
            | Self::Interrupted
            | Self::SocketSender
            | Self::GenericReceiver
            | Self::AboveLine
            | Self::Unknown => 0.0,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GeneratorBound => write!(f, "the generator was the limit, not the device under test"),
            Self::SharedCpu => {
                write!(f, "the sender shares CPUs with the router: the rate is that of both together")
            }
            Self::VirtualLinks => write!(f, "virtual links: no wire, no NIC and no driver took part"),
            Self::VirtualMachine { hypervisor } => {
                write!(f, "virtual machine ({hypervisor}): other guests share its CPUs")
            }
            Self::TooShort { seconds, wanted } => {
                write!(f, "run too short: {seconds:.1} s (at least {wanted:.1} s needed)")
            }
            Self::Noisy { percent } => write!(f, "noisy: runs differ by {percent:.1} %"),
            Self::Disturbed { cpu, percent } => {
                write!(f, "CPU {cpu} was not idle: something else took {percent:.1} % of it")
            }
            Self::Clock { cpu, percent } => write!(
                f,
                "CPU {cpu} ran at {percent:.1} % of its calibrated speed: frequency, a sibling thread or another virtual machine"
            ),
            Self::Calibration { cpu, percent } => {
                write!(f, "the calibration of CPU {cpu} varied by {percent:.1} %")
            }
            Self::Throttled { cpu } => write!(f, "CPU {cpu} was throttled because of its temperature"),
            Self::Stolen { cpu, percent } => {
                write!(f, "the hypervisor took {percent:.1} % of CPU {cpu}, which counts as load")
            }
            Self::SiblingThreads => write!(f, "some CPUs are threads of one core and slow each other"),
            Self::OneCore => write!(f, "generator, router and receiver shared one CPU"),
            Self::CpusLeftOut { cpus } => {
                write!(f, "the load of CPUs {cpus:?} is unknown: the cpuset excludes them")
            }
            Self::GroupWeight => write!(
                f,
                "the meter's control group or autogroup has the same weight as others: the meter may take CPU time from what it measures"
            ),
            Self::Quota => write!(f, "the meter's control group has a CPU quota: the load reads too high"),
            Self::Simulated => write!(f, "simulated: no packet was sent"),
            Self::SentLess { percent } => {
                write!(
                    f,
                    "the generator sent {percent:.2} % of the offered packets: the machine could not send more"
                )
            }
            Self::NothingArrived => write!(
                f,
                "no packet arrived: the DUT drops all, has no route, or the receiver is on the wrong port"
            ),
            Self::Interrupted => write!(f, "interrupted: the figures cover the packets until then"),
            Self::SocketSender => {
                write!(
                    f,
                    "packets were sent through a socket: the system call counts as latency and limits the rate"
                )
            }
            Self::GenericReceiver => {
                write!(
                    f,
                    "the receiver is in the stack, not in the driver: building the skb counts as latency"
                )
            }
            Self::SentLate { microseconds } => write!(
                f,
                "the sender was held up for {microseconds:.0} us: the load was not that which was asked for"
            ),
            Self::NotRecorded { frames } => {
                write!(
                    f,
                    "{frames} frames arrived faster than they could be recorded and are not in the capture file"
                )
            }
            Self::BeyondWindow { packets } => {
                write!(f, "{packets} packets arrived so late that they may be duplicates")
            }
            Self::AboveLine => {
                write!(f, "above what the line can carry: the value or the line's speed is wrong")
            }
            Self::SlowPath { percent } => {
                write!(f, "only {percent:.1} % of the packets took the fast path")
            }
            Self::Lost { percent } => write!(f, "{percent:.1} % of the packets were lost"),
            Self::RouterWaited { percent } => {
                write!(f, "the router waited {percent:.0} % of the time for its CPU")
            }
            Self::SmallBatches { packets, sent } => {
                write!(f, "batches of {packets:.0} packets (sent in batches of {sent})")
            }
            Self::ConnectionsFailed { connections } => write!(f, "{connections} connections failed"),
            Self::ConntrackDiffers { percent } => {
                write!(f, "conntrack counted {percent:.1} % more or fewer connections than were established")
            }
            Self::ReceiverOverrun { frames } => {
                write!(
                    f,
                    "the lab could not read {frames} frames in time: they count as arrived, and were repeated"
                )
            }
            Self::Unknown => write!(f, "a doubt of a newer version of Shunt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_doubts_about_the_same_thing_the_worst_is_kept() {
        let late = |microseconds| Doubt::SentLate { microseconds };
        let less = |percent| Doubt::SentLess { percent };
        let clock = |cpu, percent| Doubt::Clock { cpu, percent };
        let mut doubts = Vec::new();
        for doubt in [
            late(1_000.0),
            less(99.0),
            clock(0, 90.0),
            Doubt::OneCore,
            late(36_000.0),
            less(42.0),
            clock(0, 120.0),
            clock(1, 99.0),
            late(2_000.0),
            Doubt::OneCore,
        ] {
            doubt.add_to(&mut doubts);
        }
        assert_eq!(doubts, [late(36_000.0), less(42.0), clock(0, 120.0), Doubt::OneCore, clock(1, 99.0)]);
    }
}
