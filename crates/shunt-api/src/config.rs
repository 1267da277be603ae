//! The configuration file.

mod keys;
mod parts;
mod unused;

pub use keys::KeyAnswer;
pub use unused::UnusedKey;

use crate::{
    document,
    duration::{self, Readable},
    engine::Engine,
    mark::{self, MarkMatch},
    port_name::check_port_name,
    qos::{QosTable, check_qos},
    range::within,
};
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr, ops::RangeInclusive, str::FromStr, time::Duration};

/// The configuration of the daemon, as in `/etc/shunt/shunt.toml`. Absent keys have their defaults; unknown keys are
/// refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The engine that sends packets of the fast path.
    pub engine: EngineChoice,
    /// The ports that the external engine serves, if `engine` is another one; the external engine then serves these
    /// alone.
    pub external_ports: Vec<String>,
    /// The core on which the external engine runs; any if absent.
    #[serde(with = "core")]
    pub external_core: Option<u32>,
    /// What the external engine does while no packets come.
    pub external_wait: WaitChoice,
    /// The VLAN whose frames the external engine copies from one of its two ports to the other, past Linux; 0 for none.
    pub external_copy_vlan: u16,
    /// The names of the ports; if empty, the devices that forwarding uses.
    pub ports: Vec<String>,
    /// Whether flows are learned. If false, only static flows are forwarded, and conntrack is not needed.
    pub learn: bool,
    /// The path of a file with the types of the running kernel, which `shuntd --reduce-btf` makes; if empty, the
    /// kernel's own BTF, or the file in /etc/shunt/btf or /usr/share/shunt/btf that is named after the kernel's build
    /// ID.
    pub btf: String,
    /// The most flows of each address family, 64 to 4194304; 0 lets the daemon choose. IPv4 and IPv6 have a table of
    /// this size each; a connection has up to two flows.
    pub max_flows: u32,
    /// How often one packet of an active flow takes the slow path, to prove the action again.
    #[serde(with = "duration")]
    pub reprove: Duration,
    /// A flow without packets for this long is removed from the table.
    #[serde(with = "duration")]
    pub idle: Duration,
    /// The number of packets of a UDP direction that take the slow path before the direction is fast.
    pub udp_packets: u32,
    /// The number of packets of a TCP direction that take the slow path before the direction is fast, counted after the
    /// handshake.
    pub tcp_packets: u32,
    /// Whether a UDP direction is learned before the other side has answered.
    pub udp_unreplied: bool,
    /// Packets that leave with this mark stay on the slow path.
    #[serde(with = "mark")]
    pub exclude_mark: Option<MarkMatch>,
    /// Connections with this conntrack mark stay on the slow path.
    #[serde(with = "mark")]
    pub exclude_ct_mark: Option<MarkMatch>,
    /// Whether flows of a port take the slow path while a packet socket captures on it.
    pub captures: CaptureChoice,
    /// Whether traffic takes the slow path while a rule drops some of it by its rate, its amount, its connections or at
    /// random.
    pub limits: LimitChoice,
    /// The packets whose TCP or UDP checksum is verified before they are forwarded.
    pub verify_checksums: ChecksumChoice,
    /// The number of flows in use from which on the engine `xdp` loads the flows of waiting packets ahead, where it
    /// knows the driver's ring (veth); 0 never does. With few flows, that costs more than it saves.
    pub look_ahead_flows: u32,
    /// The time without flows after which the data plane rests: until there is something to learn, ports have no hook
    /// that is not needed. 0 never does.
    #[serde(with = "duration")]
    pub rest_after: Duration,
    /// The receive buffer of each netlink socket, in bytes. If more changes are queued, the kernel drops some.
    pub netlink_buffer: u32,
    /// The name or number of the group whose members may read from the control socket; if empty, only root may.
    pub read_group: String,
    /// The TCP address for metrics; if absent, only the control socket serves them.
    #[serde(with = "address")]
    pub metrics: Option<SocketAddr>,
    /// The TCP address for the web page; if absent, only the control socket serves it.
    #[serde(with = "address")]
    pub page: Option<SocketAddr>,
    /// The path of the file with the token that the page asks for; if empty, it asks for none.
    pub page_token_file: String,
    /// The path of the directory with reports of the lab that the page offers; if empty, it offers none.
    pub page_reports: String,
    /// Names by which clients call this machine, in the addresses of the page and of the metrics.
    pub hosts: Vec<String>,
    /// Whether the daemon keeps a ledger of what each host of the local side sends and receives, for `shunt usage`.
    pub usage: bool,
    /// Whether the daemon measures what the fast path saves: for some milliseconds a minute, all packets take the slow
    /// path.
    pub savings: bool,
    /// The least severe messages that are logged.
    pub log: LogLevel,
    /// The queues of ports that the external engine serves.
    pub qos: QosTable,
}

/// How the engine of a port is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// By the driver and the qdisc of the port.
    #[default]
    Auto,
    /// Always tc.
    Tc,
    /// Always XDP.
    Xdp,
    /// The external engine.
    External,
}

/// What the external engine does while no packets come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitChoice {
    /// It looks for packets for a moment, then sleeps until one comes.
    #[default]
    Adaptive,
    /// It looks for packets all the time, which takes a whole core.
    Poll,
    /// It sleeps until a packet comes.
    Interrupt,
}

/// Treatment of a port's flows while a packet socket captures on the port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureChoice {
    /// The flows take the slow path, so that the capture sees their packets.
    #[default]
    Slow,
    /// The flows stay fast, and the capture misses their packets.
    Ignore,
}

/// Treatment of traffic that a rule drops, or saves from a drop, by `limit`, `quota`, `ct count` or the like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitChoice {
    /// The traffic takes the slow path, so that the rule sees every packet.
    #[default]
    Slow,
    /// The traffic can be fast, and the rule sees one packet of a fast flow every `reprove`.
    Ignore,
}

/// The packets whose TCP or UDP checksum is verified before they are forwarded. A packet with a wrong checksum takes
/// the slow path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumChoice {
    /// With the engine tc, the checksums of short packets that the driver has not verified.
    #[default]
    Auto,
    /// All checksums that the driver has not verified.
    Always,
    /// No checksums.
    Never,
}

/// The severity of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Conditions that the operator should act on.
    Warn,
    /// Changes to the machine, with their reasons.
    #[default]
    Info,
    /// Decisions of the daemon.
    Debug,
    /// Events from the kernel.
    Trace,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: EngineChoice::Auto,
            external_ports: Vec::new(),
            external_core: None,
            external_wait: WaitChoice::Adaptive,
            external_copy_vlan: 0,
            ports: Vec::new(),
            learn: true,
            btf: String::new(),
            max_flows: 0,
            reprove: Duration::from_secs(2),
            idle: Duration::from_secs(30),
            udp_packets: 2,
            tcp_packets: 4,
            udp_unreplied: true,
            exclude_mark: None,
            exclude_ct_mark: None,
            captures: CaptureChoice::Slow,
            limits: LimitChoice::Slow,
            verify_checksums: ChecksumChoice::Auto,
            look_ahead_flows: 16384,
            rest_after: Duration::from_secs(60),
            netlink_buffer: 4 << 20,
            read_group: String::new(),
            metrics: None,
            page: None,
            page_token_file: String::new(),
            page_reports: "/var/lib/shunt/reports".to_owned(),
            hosts: Vec::new(),
            usage: true,
            savings: false,
            log: LogLevel::Info,
            qos: QosTable::new(),
        }
    }
}

/// The way out if the queues of a port stand in a table without its name.
fn with_port(text: &str, why: String) -> String {
    let is_unnamed = text.lines().any(|line| line.trim() == "[qos]") && why.contains("expected a table, got");
    if is_unnamed { format!("{why}; name the port in the heading: [qos.wan0]") } else { why }
}

/// Adds the default of the key that a message names, as an example of how to write its value.
fn with_example(why: String) -> String {
    let defaults = toml::to_string(&Config::default()).unwrap_or_default();
    let line = defaults
        .lines()
        .find(|line| line.split_once(" = ").is_some_and(|(key, _)| why.contains(&format!(": {key}: "))));
    // The default of some keys is empty, which shows nothing; their messages have an example of their own.
    match line.filter(|line| {
        !line.ends_with("\"\"")
            && !["such as", "known are", "did you mean"].iter().any(|part| why.contains(part))
    }) {
        Some(line) => format!("{why}; the default is {line}"),
        None => why,
    }
}

/// Adds the line of the key that a message begins with.
fn with_line(text: &str, why: String) -> String {
    let key = why.split(':').next().unwrap_or_default();
    let has_key = |line: &str| line.split_once('=').is_some_and(|(before, _)| before.trim() == key);
    match text.lines().position(has_key) {
        Some(at) => format!("line {}: {why}", at + 1),
        None => why,
    }
}

impl Config {
    /// The default path of the configuration file.
    pub const PATH: &str = "/etc/shunt/shunt.toml";

    const MAX_FLOWS: RangeInclusive<u32> = 64..=4_194_304;
    const REPROVE: RangeInclusive<Readable> =
        Readable(Duration::from_millis(200))..=Readable(Duration::from_secs(30));
    const IDLE: RangeInclusive<Readable> =
        Readable(Duration::from_secs(1))..=Readable(Duration::from_secs(86_400));
    const PACKETS: RangeInclusive<u32> = 1..=1_000_000;
    const NETLINK_BUFFER: RangeInclusive<u32> = 4096..=256 << 20;

    /// The most ports of an instance.
    pub const PORTS_MAX: usize = 1024;

    /// Reads and checks the text of a configuration file. An error is one line that names the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = document::read(text).map_err(with_example).map_err(|why| with_port(text, why))?;
        config.check().map_err(|why| with_line(text, why))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.max_flows != 0 {
            within("max_flows", self.max_flows, Self::MAX_FLOWS)?;
        }
        within("udp_packets", self.udp_packets, Self::PACKETS)?;
        within("tcp_packets", self.tcp_packets, Self::PACKETS)?;
        within("netlink_buffer", self.netlink_buffer, Self::NETLINK_BUFFER)?;
        within("reprove", Readable(self.reprove), Self::REPROVE)?;
        within("idle", Readable(self.idle), Self::IDLE)?;
        if let Some(page) =
            self.page.filter(|page| !page.ip().is_loopback() && self.page_token_file.is_empty())
        {
            return Err(format!(
                "page: others can reach {page}: name a file with a token in `page_token_file`, or use an address such as 127.0.0.1:{}",
                page.port()
            ));
        }
        if self.external_copy_vlan > 4094 {
            return Err(format!(
                "external_copy_vlan: expected a VLAN ID, 1 to 4094, or 0 for none, got {}",
                self.external_copy_vlan
            ));
        }
        check_qos(&self.qos)?;
        Self::check_ports(&self.external_ports).map_err(|why| format!("external_ports: {why}"))?;
        Self::check_ports(&self.ports).map_err(|why| format!("ports: {why}"))
    }

    /// Whether the external engine serves a port.
    pub fn uses_external(&self) -> bool {
        self.engine == EngineChoice::External || !self.external_ports.is_empty()
    }

    /// Checks the number and the names of ports.
    pub fn check_ports(ports: &[String]) -> Result<(), String> {
        if ports.len() > Self::PORTS_MAX {
            return Err(format!(
                "{} ports; the most of an instance is {}: name the busiest, and the others for another instance",
                ports.len(),
                Self::PORTS_MAX
            ));
        }
        for (index, port) in ports.iter().enumerate() {
            check_port_name(port)?;
            if ports[..index].contains(port) {
                return Err(format!("`{port}` is named twice"));
            }
        }
        Ok(())
    }
}

/// An address with a port, or a port alone, which means that port of 127.0.0.1. An empty string means no address.
mod address {
    use serde::{
        Deserializer, Serializer,
        de::{Error, Visitor},
    };
    use std::{
        fmt,
        net::{Ipv4Addr, SocketAddr},
    };

    pub(super) fn serialize<S: Serializer>(value: &Option<SocketAddr>, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&value.map(|address| address.to_string()).unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
        from.deserialize_any(TextOrPort)
    }

    struct TextOrPort;

    impl Visitor<'_> for TextOrPort {
        type Value = Option<SocketAddr>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an address with a port as \"127.0.0.1:9469\", or a port")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            if text.is_empty() {
                return Ok(None);
            }
            let port = text.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            let address = port.or_else(|| text.parse().ok()).filter(|address| address.port() != 0);
            address.map(Some).ok_or_else(|| {
                E::custom(format!(
                    "`{text}` is not an address with a port; expected a form such as 127.0.0.1:9469 or 9469"
                ))
            })
        }

        fn visit_i64<E: Error>(self, port: i64) -> Result<Self::Value, E> {
            self.visit_str(&port.to_string())
        }
    }
}

/// The number of a core. An empty string means none.
mod core {
    use serde::{
        Deserializer, Serializer,
        de::{Error, Visitor},
    };
    use std::fmt;

    pub(super) fn serialize<S: Serializer>(value: &Option<u32>, out: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(core) => out.serialize_u32(*core),
            None => out.serialize_str(""),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
        from.deserialize_any(Core)
    }

    struct Core;

    impl Visitor<'_> for Core {
        type Value = Option<u32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the number of a core, or \"\" for any")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            if text.is_empty() {
                return Ok(None);
            }
            let core =
                text.parse().map_err(|_| E::custom(format!("`{text}` is not the number of a core")))?;
            Ok(Some(core))
        }

        fn visit_i64<E: Error>(self, core: i64) -> Result<Self::Value, E> {
            self.visit_str(&core.to_string())
        }
    }
}

impl From<Engine> for EngineChoice {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Tc => Self::Tc,
            Engine::Xdp => Self::Xdp,
            Engine::External => Self::External,
        }
    }
}

impl EngineChoice {
    /// Every choice.
    pub const ALL: &[Self] = &[Self::Auto, Self::Tc, Self::Xdp, Self::External];
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Tc => "tc",
            Self::Xdp => "xdp",
            Self::External => "external",
        })
    }
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .copied()
            .find(|choice| choice.to_string() == text)
            .ok_or_else(|| format!("`{text}` is not an engine; expected auto, tc, xdp or external"))
    }
}

#[cfg(test)]
mod tests;
