//! Queues of the ports that the external engine serves: the configuration, and the messages about it.

use crate::{duration::Readable, mark::MarkMatch, port_name::check_port_name, range::within};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use shunt_wire::quantity;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

/// Queues by the name of the port, as the tables `[qos.PORT]` of the configuration file.
pub type QosTable = BTreeMap<String, PortQos>;

/// The queues of a port: a shaper and classes for packets that leave, and a policer for packets that arrive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PortQos {
    /// The rate of the shaper, in bit/s of frames; 0 does not shape.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub rate: BitRate,
    /// The number of bytes that the shaper lets leave at once after a pause.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub burst: Bytes,
    /// The number of bytes that the shaper adds to the size of each packet: what framing on the line adds to the
    /// Ethernet frame. Negative if the line's header is the shorter one.
    pub overhead: i32,
    /// The rate of the policer, in bit/s of frames; 0 lets all packets in.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub police: BitRate,
    /// The number of bytes that the policer lets in at once after a pause.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub police_burst: Bytes,
    /// The name of the class for packets that no class names; if empty, the last class.
    pub default_class: String,
    /// The classes; without any, there is one queue.
    pub class: Vec<QosClass>,
}

/// A class: a queue, and the packets that go there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct QosClass {
    /// The name, unique in the port.
    pub name: String,
    /// Classes with a lower number are served first; 0 to 15.
    pub priority: u32,
    /// The weight among the classes of one priority: the bytes that the class may send in its turn (DRR), 256 to 16
    /// MiB.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub quantum: Bytes,
    /// The most bytes that may wait in the queue.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub limit: Bytes,
    /// CoDel: the delay in the queue that is acceptable; 0 turns CoDel off.
    #[serde(with = "crate::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, default = "5ms"))]
    pub target: Duration,
    /// CoDel: how long the delay may exceed the target before packets are dropped.
    #[serde(with = "crate::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, default = "100ms"))]
    pub interval: Duration,
    /// DSCPs, by number (0 to 63) or name (`ef`, `af41`, `cs1`).
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub dscp: Vec<Dscp>,
    /// Marks that packets leave with, as `VALUE` or `VALUE/MASK`; the first class whose mark matches takes a packet,
    /// whatever its DSCP.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub mark: Vec<MarkMatch>,
}

/// The queues of a port, and what they have counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QosStatus {
    /// The name of the port.
    pub port: String,
    /// Why the queues are not in use; absent if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
    /// The queues as configured.
    pub qos: PortQos,
    /// Packets that the policer let in.
    pub policer_passed: u64,
    /// Packets that the policer dropped.
    pub policer_dropped: u64,
    /// The counters of each class, in the order of the configuration.
    pub classes: Vec<QosCounters>,
}

/// Queues of the configuration that no packet passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnusedQueues {
    /// The name of the port, as in `[qos.PORT]`.
    pub port: String,
    /// Why they are not in use.
    pub why: String,
    /// The remedy, as an instruction to the operator.
    pub remedy: String,
}

/// What the queue of a class has counted since the external engine started. Bytes are those of frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QosCounters {
    /// The name of the class.
    pub name: String,
    /// Packets that left the queue for the port.
    pub sent_packets: u64,
    /// Bytes that left the queue for the port.
    pub sent_bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped_full: u64,
    /// Packets dropped by CoDel.
    pub dropped_codel: u64,
    /// Mean delay of the packets that left, in microseconds.
    pub delay_mean_us: u64,
    /// Longest delay of the packets that left, in microseconds.
    pub delay_max_us: u64,
    /// Packets that wait now.
    pub backlog_packets: u64,
    /// Bytes that wait now.
    pub backlog_bytes: u64,
}

/// Which ports are to have no queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct QosRemoval {
    /// The names of the ports.
    pub ports: Vec<String>,
}

/// A rate in bit/s. As text, it has a unit: `100M`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(pub u64);

/// A number of bytes. As text, it may have a unit: `64k`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u32);

/// A DSCP: the upper six bits of the traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dscp(u8);

/// The names of DSCPs, as in `nft` and iproute2.
const DSCP_NAMES: &[(&str, u8)] = &[
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

impl Default for PortQos {
    fn default() -> Self {
        Self {
            rate: BitRate(0),
            burst: Bytes(16_000),
            overhead: 0,
            police: BitRate(0),
            police_burst: Bytes(128_000),
            default_class: String::new(),
            class: Vec::new(),
        }
    }
}

impl Default for QosClass {
    fn default() -> Self {
        Self {
            name: String::new(),
            priority: 0,
            quantum: Bytes(1514),
            limit: Bytes(256_000),
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            dscp: Vec::new(),
            mark: Vec::new(),
        }
    }
}

impl PortQos {
    /// The most classes of a port.
    pub const CLASSES_MAX: usize = 16;
    /// The most marks of a port.
    pub const MARKS_MAX: usize = 16;

    const PRIORITIES: RangeInclusive<u32> = 0..=15;
    const QUANTUM: RangeInclusive<Bytes> = Bytes(256)..=Bytes(1 << 24);
    const OVERHEAD: RangeInclusive<i32> = -64..=512;
    const INTERVAL: RangeInclusive<Readable> =
        Readable(Duration::from_micros(1))..=Readable(Duration::from_secs(60));
    /// No rate below this is of use, and the time of a packet stays below a quarter of an hour.
    const RATE_MIN: BitRate = BitRate(8_000);
    /// A packet of a usual MTU, with tags.
    const PACKET: Bytes = Bytes(1_600);

    /// The classes; if none are configured, one that takes every packet.
    pub fn classes(&self) -> Vec<QosClass> {
        if self.class.is_empty() {
            return vec![QosClass { name: "all".to_owned(), ..QosClass::default() }];
        }
        self.class.clone()
    }

    /// The number of the class for packets that no class names.
    pub fn default_class(&self) -> usize {
        let last = self.class.len().saturating_sub(1);
        self.class.iter().position(|class| class.name == self.default_class).unwrap_or(last)
    }

    /// Checks the queues of a port. The message names the key, the value, and what is possible.
    pub fn check(&self) -> Result<(), String> {
        for (key, rate) in [("rate", self.rate), ("police", self.police)] {
            if rate.0 != 0 && rate < Self::RATE_MIN {
                return Err(format!(
                    "{key}: expected {} or more, or 0 for no limit, got {rate}",
                    Self::RATE_MIN
                ));
            }
        }
        holds_a_packet("burst", self.burst)?;
        holds_a_packet("police_burst", self.police_burst)?;
        within("overhead", self.overhead, Self::OVERHEAD)?;
        if self.class.len() > Self::CLASSES_MAX {
            return Err(format!("{} classes; a port has {} at most", self.class.len(), Self::CLASSES_MAX));
        }
        let (mut names, mut dscps, mut marks) = (BTreeSet::new(), BTreeSet::new(), 0);
        for class in &self.class {
            if class.name.is_empty() {
                return Err("a class has no name: expected a line such as name = \"voice\"".to_owned());
            }
            class.check().map_err(|why| format!("class `{}`: {why}", class.name))?;
            if !names.insert(&class.name) {
                return Err(format!("two classes have the name `{}`", class.name));
            }
            if let Some(twice) = class.dscp.iter().find(|dscp| !dscps.insert(**dscp)) {
                return Err(format!(
                    "class `{}`: another class, or this one, already has the DSCP {twice}",
                    class.name
                ));
            }
            marks += class.mark.len();
        }
        if marks > Self::MARKS_MAX {
            return Err(format!("{marks} marks; the classes of a port have {} at most", Self::MARKS_MAX));
        }
        if !self.default_class.is_empty() && !names.contains(&self.default_class) {
            let known: Vec<&str> = self.class.iter().map(|class| class.name.as_str()).collect();
            return Err(format!(
                "default_class: no class has the name `{}`; the classes: {}",
                self.default_class,
                known.join(", ")
            ));
        }
        Ok(())
    }
}

impl QosClass {
    fn check(&self) -> Result<(), String> {
        within("priority", self.priority, PortQos::PRIORITIES)?;
        within("quantum", self.quantum, PortQos::QUANTUM)?;
        holds_a_packet("limit", self.limit)?;
        within("interval", Readable(self.interval), PortQos::INTERVAL)?;
        if self.target >= self.interval {
            return Err(format!(
                "target: expected less than the interval, which is {}, got {}",
                Readable(self.interval),
                Readable(self.target)
            ));
        }
        Ok(())
    }
}

/// Checks that a packet of a usual MTU fits.
fn holds_a_packet(key: &str, bytes: Bytes) -> Result<(), String> {
    if bytes >= PortQos::PACKET {
        return Ok(());
    }
    Err(format!("{key}: expected {} or more, the size of a packet, got {bytes}", PortQos::PACKET))
}

/// Checks the queues of all ports of a table.
///
/// # Errors
/// The message begins with the name of the port.
pub fn check_qos(table: &QosTable) -> Result<(), String> {
    for (port, qos) in table {
        check_port_name(port).and_then(|()| qos.check()).map_err(|why| format!("qos.{port}: {why}"))?;
    }
    Ok(())
}

/// A number with the largest prefix that keeps it whole.
fn with_prefix(number: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fits = |(factor, _): &(u64, &str)| number >= *factor && number.is_multiple_of(*factor);
    let prefixes = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let (factor, prefix) = prefixes.into_iter().find(fits).unwrap_or((1, ""));
    f.pad(&format!("{}{prefix}", number / factor))
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_prefix(self.0, f)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_prefix(self.0.into(), f)
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DSCP_NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.pad(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        quantity::bit_rate(text).map(|rate| Self(rate as u64)).map_err(|why| why.to_string())
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = quantity::bytes(text).map_err(|why| why.to_string())?;
        number.try_into().map(Self).map_err(|_| format!("`{text}` is too large; at most 4 GiB"))
    }
}

impl FromStr for Dscp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let by_name = DSCP_NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        let number = by_name.map(|(_, number)| *number).or_else(|| text.parse().ok());
        let wrong = || {
            format!(
                "`{text}` is not a DSCP; expected a number from 0 to 63, or a name such as ef, af41 or cs1"
            )
        };
        number.filter(|number| *number < 64).map(Self).ok_or_else(wrong)
    }
}

impl Dscp {
    /// The number, below 64.
    pub fn number(self) -> u8 {
        self.0
    }
}

/// Text, or a number without a unit, which TOML may have without quotes.
macro_rules! text_or_number {
    ($type:ty, $expected:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct TextOrNumber;

                impl de::Visitor<'_> for TextOrNumber {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                        self.visit_str(&number.to_string())
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                        self.visit_str(&number.to_string())
                    }
                }

                from.deserialize_any(TextOrNumber)
            }
        }
    };
}

text_or_number!(BitRate, "a rate in bit/s such as \"100M\"");
text_or_number!(Bytes, "a number of bytes such as \"64k\"");
text_or_number!(Dscp, "a DSCP: a number from 0 to 63, or a name such as \"ef\"");

#[cfg(test)]
mod tests;
