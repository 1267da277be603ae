//! Settings and counters of a port.
//!
//! [`Link`] is one screen of `shunt link` and the input of the doctor's rules. [`Link::read`] reads settings by ethtool
//! netlink and the rest from sysfs and procfs. [`Setting`] changes settings.

mod ethtool;
mod partner;
mod rates;
mod setting;
mod system;

pub use rates::{Interval, Rate};
pub use setting::{Applied, Group, Setting, SettingError, undo};
pub use system::{Irq, interrupts};

use serde::{Deserialize, Serialize};
use shunt_lab::{Nic, counters};
use std::{collections::BTreeMap, path::Path};

/// A port: its settings, and its counters at one time. A field is absent if the driver does not offer it;
/// [`Link::lacking`] then says why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Name, driver, speed, MTU.
    pub nic: Nic,
    /// Whether the device is administratively up.
    pub up: bool,
    /// Whether the link is up.
    pub carrier: bool,
    /// `full` or `half`; absent if the link is down or virtual.
    pub duplex: Option<String>,
    /// Whether speed and duplex are negotiated.
    pub autoneg: Option<bool>,
    /// Link modes that we advertise, as ethtool names them.
    pub advertised: Vec<String>,
    /// Link modes that the partner advertises; empty if unknown.
    pub partner: Vec<String>,
    /// Whether [`Link::partner`] was read from the registers of the PHY, because the driver does not tell.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partner_by_mdio: bool,
    /// Flow control.
    pub pause: Option<Pause>,
    /// Sizes of the rings.
    pub rings: Option<Rings>,
    /// Interrupt coalescing, as ethtool names it: `rx-usecs`, `adaptive-rx`.
    pub coalesce: BTreeMap<String, u32>,
    /// Numbers of queues, as ethtool names them: `rx`, `tx`, `combined`, with `-max` for the most.
    pub channels: BTreeMap<String, u32>,
    /// Features, by the kernel's names: `rx-checksum`, `rx-gro`.
    pub offloads: BTreeMap<String, Offload>,
    /// Energy-Efficient Ethernet: `enabled - active`, `disabled`.
    pub eee: Option<String>,
    /// Forward error correction.
    pub fec: Option<Fec>,
    /// The PHY's signal quality.
    pub sqi: Option<Sqi>,
    /// Receive and transmit queues.
    pub queues: Queues,
    /// Interrupts.
    pub irqs: Vec<Irq>,
    /// NAPI.
    pub napi: Napi,
    /// Queueing disciplines, as `tc` names them, with their parents.
    pub qdiscs: Vec<String>,
    /// Counters of the device, its driver and its MAC, by name.
    pub counters: BTreeMap<String, u64>,
    /// Fields that the driver does not offer, with the reason.
    pub lacking: BTreeMap<String, String>,
}

/// Flow control by pause frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether it is negotiated.
    pub autoneg: bool,
    /// Whether we obey pause frames.
    pub rx: bool,
    /// Whether we send pause frames.
    pub tx: bool,
}

/// Descriptors in the rings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// Current size of the receive ring.
    pub rx: Option<u32>,
    /// Largest size of the receive ring.
    pub rx_max: Option<u32>,
    /// Current size of the transmit ring.
    pub tx: Option<u32>,
    /// Largest size of the transmit ring.
    pub tx_max: Option<u32>,
}

/// State of an offload feature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// Whether it is on.
    pub on: bool,
    /// Whether it cannot be changed.
    pub fixed: bool,
}

/// Forward error correction, and its blocks since the link came up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fec {
    /// Codes in use, such as `RS`.
    pub active: Vec<String>,
    /// Blocks with errors that were corrected.
    pub corrected: u64,
    /// Blocks with more errors than can be corrected.
    pub uncorrectable: u64,
}

/// Signal quality index of the PHY.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sqi {
    /// The present one.
    pub now: u32,
    /// The best that this PHY reports.
    pub max: u32,
}

/// The kernel's receive and transmit queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queues {
    /// Number of receive queues.
    pub rx: usize,
    /// Number of transmit queues.
    pub tx: usize,
    /// CPUs to which each receive queue is spread in software (RPS), as masks.
    pub rps: Vec<String>,
    /// CPUs that use each transmit queue (XPS), as masks; empty if not offered.
    pub xps: Vec<String>,
}

/// NAPI's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Napi {
    /// Whether each NAPI instance polls in a thread of its own.
    pub threaded: Option<bool>,
    /// Most packets per round of polls.
    pub budget: Option<u64>,
    /// Longest time of one round of polls, in microseconds.
    pub budget_usecs: Option<u64>,
    /// Number of empty polls before the interrupt is enabled again.
    pub defer_hard_irqs: Option<u64>,
    /// Time after which GRO passes on incomplete aggregates, in nanoseconds.
    pub gro_flush_timeout_ns: Option<u64>,
}

impl Link {
    /// Reads a port of the caller's network namespace; None if there is none of this name.
    pub async fn read(port: &str) -> Option<Self> {
        if !Path::new("/sys/class/net").join(port).exists() || port.contains('/') {
            return None;
        }
        let mut link = Self { nic: Nic::read(port), ..Self::default() };
        link.read_system(Path::new("/"), port);
        ethtool::read(&mut link, port).await;
        link.ask_phy(port);
        link.qdiscs = system::qdiscs(port).unwrap_or_else(|why| {
            link.lacking.insert("qdisc".to_owned(), why);
            Vec::new()
        });
        link.counters = Self::counters(port);
        Some(link)
    }

    /// Reads what the partner advertises from the PHY, if the link is up and the driver has not told.
    fn ask_phy(&mut self, port: &str) {
        if self.carrier && self.partner.is_empty() {
            let gigabit = self.advertised.iter().any(|mode| mode.starts_with("1000baseT/"));
            self.partner = partner::advertised(port, gigabit);
            self.partner_by_mdio = !self.partner.is_empty();
        }
    }

    /// The counters of a port, without its settings.
    pub fn counters(port: &str) -> BTreeMap<String, u64> {
        let all = counters::Snapshot::read(&[counters::Device::here(port)]).0;
        all.into_iter()
            .filter(|((device, _), _)| device == port)
            .map(|((_, counter), value)| (counter, value))
            .collect()
    }

    /// The names of all ports but the loopback.
    pub fn all() -> Vec<String> {
        counters::Device::all_here().iter().map(|device| device.name().to_owned()).collect()
    }

    /// Whether the partner advertises pause frames; None if what it advertises is unknown.
    pub fn partner_pauses(&self) -> Option<bool> {
        (!self.partner.is_empty()).then(|| self.partner.iter().any(|mode| mode.contains("Pause")))
    }

    /// Whether a feature is on; None if there is none of this name.
    pub fn offload(&self, name: &str) -> Option<bool> {
        self.offloads.get(name).map(|offload| offload.on)
    }

    /// The largest of the counters whose names contain one of these parts, ignoring case: a driver counts one event
    /// under several names.
    pub fn counted(&self, parts: &[&str]) -> u64 {
        let named = |name: &str| parts.iter().any(|part| name.to_ascii_lowercase().contains(part));
        self.counters.iter().filter(|(name, _)| named(name)).map(|(_, value)| *value).max().unwrap_or(0)
    }
}
