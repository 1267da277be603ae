//! What the fast path saves: a part of the answer of `GET /v1/status`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// CPU time that the fast path saves: that of Linux without Shunt for the same packets, minus that of the fast path.
/// Both were measured on this machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Savings {
    /// Cores that are saved now, over the last ten seconds or so; absent if nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_cores: Option<Bounds>,
    /// Why nobody can tell what is saved now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_unknown: Option<CannotTell>,
    /// Core hours that were saved in the last seven days; absent if nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub week_core_hours: Option<Bounds>,
    /// The share of the fast packets of these days that `week_core_hours` is about, from 0 to 1: those of traffic whose
    /// costs were measured.
    #[serde(default)]
    pub week_known_share: f64,
    /// Hours in which the daemon counted, within the last seven days.
    #[serde(default)]
    pub week_counted_hours: f64,
    /// The costs behind `now_cores`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<PathCosts>,
    /// What the measurement itself costs; absent before the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingCosts>,
}

/// What the measurement of savings has cost within the last hour, or since the daemon started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SamplingCosts {
    /// The hour, or the time since the start, in seconds.
    pub period_s: f64,
    /// Rounds in that time, failed ones included.
    pub rounds: u32,
    /// Packets that went through Linux for them.
    pub packets: u64,
    /// The part of a core that the daemon's thread used for the rounds, over the whole time.
    pub daemon_cores: f64,
    /// The part of a core that these packets took more than fast ones would have, at most; absent while no round has
    /// measured their cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_cores: Option<f64>,
}

/// A figure with its doubt. From `low` to `high` is the confidence interval of 95 % over the measurements, extended by
/// the largest time that only Linux with Shunt spends, which cannot be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bounds {
    /// The middle of the interval.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// What a packet costs on both paths, in nanoseconds of CPU time, from its arrival to its transmission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PathCosts {
    /// By Linux without Shunt: the middle of the interval. What both paths share is in it: the driver, the interrupt,
    /// and whatever else Linux receives meanwhile.
    pub slow_ns: f64,
    /// On the fast path, with the same share.
    pub fast_ns: f64,
    /// `slow_ns` less `fast_ns`, with its doubt.
    pub saved_ns: Bounds,
    /// How often both were measured.
    pub rounds: u32,
    /// Seconds since they were last measured.
    pub measured_ago_s: f64,
}

/// Why nobody can tell what the fast path saves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "because", rename_all = "kebab-case")]
pub enum CannotTell {
    /// `savings = false`.
    Off,
    /// Too few packets take the fast path.
    FewPackets {
        /// Fast packets in a second that a measurement needs.
        least_pps: u32,
    },
    /// The daemon has just started, and has not counted packets for long enough.
    TooEarly,
    /// The costs were measured too few times under such traffic.
    FewRounds {
        /// How often they were measured.
        have: u32,
        /// How often they must be.
        need: u32,
        /// Seconds until then, if the traffic stays as it is; 0 if an older daemon says nothing.
        #[serde(default)]
        wait_s: u32,
    },
    /// The measurements differ too much.
    Uncertain {
        /// Cores: the lower bound.
        low: f64,
        /// Cores: the upper bound.
        high: f64,
        /// Seconds until further measurements should leave less doubt, if they differ as much as those so far. Absent
        /// if as many as are kept would not suffice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_s: Option<u32>,
    },
    /// XDP keeps a driver from merging packets. Linux alone may forward merged ones, for less.
    Merging {
        /// Cores: the upper bound.
        high: f64,
    },
    /// Linux could not carry all of the traffic for the time of a measurement.
    Loaded {
        /// The share of the busiest core that packets take.
        busy: f64,
    },
    /// The traffic changed while it was measured.
    Unsteady,
    /// Samples of the slow path ended before their time.
    Interrupted,
    /// Packets take the engine `external`.
    External,
    /// The kernel cannot be measured.
    Kernel {
        /// What it lacks.
        why: String,
    },
}

impl Savings {
    /// The time that `week_core_hours` covers, in seconds.
    pub const WEEK_S: u64 = 7 * 86_400;
}

impl Bounds {
    /// Half of the interval in parts of the value.
    pub fn relative(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.value.abs().max(f64::MIN_POSITIVE)
    }
}

impl fmt::Display for CannotTell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("`savings = false`; set `savings = true` in the configuration, then `shunt restart`"),
            Self::FewPackets { least_pps } => {
                write!(f, "fewer than {least_pps} packets/s on the fast path; more traffic would tell")
            }
            Self::TooEarly => f.write_str("packets are counted over ten seconds, and the first ten have not passed"),
            Self::FewRounds { have, need, wait_s } => {
                let wait = match wait_s {
                    0 => "a minute".to_owned(),
                    _ => format!("about {wait_s} s"),
                };
                write!(
                    f,
                    "{have} of {need} measurements under such traffic are made; {wait} of it would tell, or half as long with `shunt top` open"
                )
            }
            Self::Uncertain { low, high, wait_s } => {
                write!(f, "between {low:.4} and {high:.4} cores by the measurements so far; ")?;
                match wait_s {
                    Some(wait_s) => {
                        let minutes = wait_s.div_ceil(60);
                        write!(f, "about {minutes} min more of such traffic would tell, or steadier traffic")
                    }
                    None => f.write_str("more packets/s would tell, or an idle machine"),
                }
            }
            Self::Merging { high } => write!(
                f,
                "at most {high:.3} cores: without XDP, a port's driver may merge packets, which cost Linux less; `engine = \"tc\"` would tell"
            ),
            Self::Loaded { busy } => write!(
                f,
                "packets take {:.0} % of a core by the fast path; Linux takes several times that, and could lose packets during a measurement; less traffic, or less other work for this machine, would tell",
                busy * 100.0
            ),
            Self::Unsteady => {
                f.write_str("the traffic changed while it was measured; look when it is steadier")
            }
            Self::Interrupted => {
                f.write_str("measurements ended early, since the machine or the daemon was busy; wait")
            }
            Self::External => f.write_str(
                "the engine `external` keeps a core of its own busy whatever it forwards; `shunt load` shows the other cores",
            ),
            Self::Kernel { why } => write!(f, "{why}"),
        }
    }
}
