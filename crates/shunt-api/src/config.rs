//! The configuration file.

use crate::{
    document,
    failure::{Failure, FailureCode},
    mark::{self, MarkMatch},
    status::Engine,
};
use serde::{Deserialize, Serialize};
use std::{
    fmt, fs, io,
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

/// What `/etc/shunt/shunt.toml` says. Every key may be left out; other keys are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The engine.
    pub engine: EngineChoice,
    /// The ports; none means those that forwarding uses.
    pub ports: Vec<String>,
    /// Whether flows are learned; otherwise only static ones are forwarded, and no conntrack is needed.
    pub learn: bool,
    /// The size of the flow table; a connection has up to two flows.
    pub max_flows: u32,
    /// How often a packet of an active flow goes to Linux to prove the flow again.
    #[serde(with = "duration")]
    pub reprove: Duration,
    /// After this long without a packet a flow leaves the table.
    #[serde(with = "duration")]
    pub idle: Duration,
    /// Packets of a UDP direction that go to Linux before the direction is in use.
    pub udp_packets: u32,
    /// Packets of a TCP direction that go to Linux before the direction is in use.
    pub tcp_packets: u32,
    /// Whether a UDP direction is learned before the other side has answered.
    pub udp_unreplied: bool,
    /// Packets that leave with this mark stay on the slow path.
    #[serde(with = "mark")]
    pub exclude_mark: Option<MarkMatch>,
    /// Connections with this conntrack mark stay on the slow path.
    #[serde(with = "mark")]
    pub exclude_ct_mark: Option<MarkMatch>,
    /// What becomes of the flows of a port while somebody captures on it.
    pub captures: CaptureChoice,
    /// What the kernel may queue of its changes before it drops some, on each socket, in bytes.
    pub netlink_buffer: u32,
    /// The group whose members may read the control socket: its name or number. Without one, only root may.
    pub read_group: String,
    /// Where metrics are served over TCP, besides the control socket.
    #[serde(with = "address")]
    pub metrics: Option<SocketAddr>,
    /// What the daemon says.
    pub log: LogLevel,
}

/// What decides the engine of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// The port's driver and qdisc.
    #[default]
    Auto,
    /// Always tc.
    Tc,
    /// Always XDP.
    Xdp,
}

/// What becomes of the flows of a port while somebody captures on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureChoice {
    /// They take the slow path, so that the capture sees them.
    #[default]
    Slow,
    /// They stay as they are.
    Ignore,
}

/// The least important lines that are logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What failed.
    Error,
    /// What a person should do something about.
    Warn,
    /// What was changed on the machine, and why.
    #[default]
    Info,
    /// What was decided.
    Debug,
    /// What was heard.
    Trace,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: EngineChoice::Auto,
            ports: Vec::new(),
            learn: true,
            max_flows: 16384,
            reprove: Duration::from_secs(2),
            idle: Duration::from_secs(30),
            udp_packets: 2,
            tcp_packets: 4,
            udp_unreplied: true,
            exclude_mark: None,
            exclude_ct_mark: None,
            captures: CaptureChoice::Slow,
            netlink_buffer: 4 << 20,
            read_group: String::new(),
            metrics: None,
            log: LogLevel::Info,
        }
    }
}

impl Config {
    /// Where it is looked for when no other file is named.
    pub const PATH: &str = "/etc/shunt/shunt.toml";

    const MAX_FLOWS: RangeInclusive<u32> = 64..=4_194_304;
    const REPROVE: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(30);
    const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
    const PACKETS: RangeInclusive<u32> = 1..=1_000_000;
    const NETLINK_BUFFER: RangeInclusive<u32> = 4096..=256 << 20;

    /// So many ports an instance can have.
    pub const PORTS_MAX: usize = 64;

    /// The file's contents, or the defaults if no file was named and the usual one is not there.
    pub fn load(named: Option<&Path>) -> Result<Self, Failure> {
        let path = named.map_or_else(|| PathBuf::from(Self::PATH), Path::to_path_buf);
        let bad = |why: String| Failure::new(FailureCode::BadConfig, format!("{}: {why}", path.display()));
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).map_err(bad),
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(bad(error.to_string())),
        }
    }

    /// The contents of a file, or what is wrong with them in one line that names the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = document::read(text)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        within("max_flows", self.max_flows, Self::MAX_FLOWS)?;
        within("udp_packets", self.udp_packets, Self::PACKETS)?;
        within("tcp_packets", self.tcp_packets, Self::PACKETS)?;
        within("netlink_buffer", self.netlink_buffer, Self::NETLINK_BUFFER)?;
        let text = |range: RangeInclusive<Duration>| (Text(*range.start()), Text(*range.end()));
        within_text("reprove", Text(self.reprove), text(Self::REPROVE))?;
        within_text("idle", Text(self.idle), text(Self::IDLE))?;
        Self::check_ports(&self.ports).map_err(|why| format!("ports: {why}"))
    }

    /// What is wrong with a choice of ports, if anything.
    pub fn check_ports(ports: &[String]) -> Result<(), String> {
        Self::check_port_count(ports.len())?;
        for (index, port) in ports.iter().enumerate() {
            check_port_name(port)?;
            if ports[..index].contains(port) {
                return Err(format!("`{port}` is named twice"));
            }
        }
        Ok(())
    }

    /// The same for their number.
    pub fn check_port_count(count: usize) -> Result<(), String> {
        if count > Self::PORTS_MAX {
            return Err(format!(
                "{count} are more than the {} that an instance can have; name the busiest with --port, and others for \
                 another instance",
                Self::PORTS_MAX
            ));
        }
        Ok(())
    }
}

/// What the kernel takes as a device's name: 1 to 15 bytes without `/`, `:` or blanks.
pub(crate) fn check_port_name(name: &str) -> Result<(), String> {
    let good = (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if good { Ok(()) } else { Err(format!("`{name}` is not the name of a network device")) }
}

fn within<T: PartialOrd + fmt::Display>(key: &str, value: T, range: RangeInclusive<T>) -> Result<(), String> {
    within_text(key, value, range.into_inner())
}

fn within_text<T: PartialOrd + fmt::Display>(key: &str, value: T, (low, high): (T, T)) -> Result<(), String> {
    if value >= low && value <= high {
        Ok(())
    } else {
        Err(format!("{key}: {value} is not within {low} to {high}"))
    }
}

#[derive(PartialEq, PartialOrd)]
struct Text(Duration);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// An address with a port; a port alone is one of this machine. Empty is none.
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
                    "`{text}` is not an address with a port; write it as 127.0.0.1:9469 or 9469"
                ))
            })
        }

        fn visit_i64<E: Error>(self, port: i64) -> Result<Self::Value, E> {
            self.visit_str(&port.to_string())
        }
    }
}

mod duration {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&humantime::format_duration(*value))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_duration(&text)
            .map_err(|_| D::Error::custom(format!("`{text}` is not a duration; write it as 500ms, 2s or 1m")))
    }
}

impl From<Engine> for EngineChoice {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Tc => Self::Tc,
            Engine::Xdp => Self::Xdp,
        }
    }
}

impl EngineChoice {
    /// Every choice.
    pub const ALL: &[Self] = &[Self::Auto, Self::Tc, Self::Xdp];
}

impl LogLevel {
    /// As a filter of `tracing` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Tc => "tc",
            Self::Xdp => "xdp",
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
            .ok_or_else(|| format!("`{text}` is not an engine; auto, tc or xdp"))
    }
}

#[cfg(test)]
mod tests;
