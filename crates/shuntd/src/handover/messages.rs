//! What the two daemons tell each other. The descriptors that a message brings are listed with it.

use crate::off_rules::KeptRule;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shunt_api::{Config, Failure};
use shunt_bpf::{HandedPort, XdpProgram, attach::AttachMode};
use shunt_core::Findings;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::unix::fs::MetadataExt,
};

/// A message of the next daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromNext {
    /// What must agree.
    Hello {
        /// The layout of what maps contain ([`shunt_bpf::layout`]).
        layout: u64,
        /// The configuration with the command line, by key.
        config: BTreeMap<String, Value>,
        /// The inode number of the network namespace.
        netns: u64,
    },
    /// Its programs are loaded, and it hears of all changes.
    Ready,
    /// It has read what is kept across restarts.
    Loaded,
    /// It has the state, and can take over.
    Commit,
    /// It has taken over.
    Done,
    /// It cannot take over.
    Failed(Failure),
}

/// A message of the running daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToNext {
    /// The next daemon must begin without flows, when the running one has ended.
    Clean {
        /// Why flows cannot be taken over.
        why: String,
    },
    /// What the next daemon needs to load its programs. Descriptors: the maps.
    Offer(Box<Offer>),
    /// What is kept across restarts is in its files.
    Settled,
    /// All the rest. Descriptors: the control socket, the listeners on TCP, and the links of the ports.
    State(Box<HandedState>),
    /// More of the descriptors of the message before.
    More,
    /// The next daemon owns the data plane.
    Go,
}

/// What the next daemon needs to load its programs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// The names of the maps.
    pub(crate) maps: Vec<String>,
    /// The most flows of each address family.
    pub(crate) max_flows: u32,
    /// The seed of the tables' hash.
    pub(crate) seed: u64,
    /// The ids of the running daemon's XDP programs.
    pub(crate) programs: Vec<u32>,
    pub(crate) findings: Findings,
}

/// What the next daemon takes over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedState {
    /// The number of hand-overs since the data plane was loaded.
    pub(crate) generation: u64,
    /// Since when packets are counted, on the monotonic clock; absent if that is not known.
    #[serde(default)]
    pub(crate) counting_since_ns: Option<u64>,
    /// When the running daemon stopped working, on the monotonic clock.
    pub(crate) since_ns: u64,
    /// How many messages with more descriptors follow.
    pub(crate) more: usize,
    /// Whether there is a listener for metrics.
    pub(crate) metrics: bool,
    /// Whether there is a listener for the page.
    pub(crate) page: bool,
    pub(crate) ports: Vec<PortMessage>,
    /// The devices whose clsact qdisc Shunt has made.
    pub(crate) clsacts: BTreeSet<u32>,
    /// The rules of `shunt off`.
    pub(crate) off: Vec<KeptRule>,
    /// The names of the descriptors that the service manager keeps.
    #[serde(default)]
    pub(crate) stored: BTreeSet<String>,
    /// Stands for the rules of legacy iptables that the running daemon knows; absent if it knows none.
    #[serde(default)]
    pub(crate) legacy_rules: Option<u64>,
}

/// A port, as [`HandedPort`] has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortMessage {
    ifindex: u32,
    slot: u16,
    tcx: bool,
    egress: bool,
    xdp: Option<(XdpName, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum XdpName {
    Forward,
    ForwardTags,
    External,
}

impl From<HandedPort> for PortMessage {
    fn from(port: HandedPort) -> Self {
        let HandedPort { ifindex, slot, mode, egress, xdp } = port;
        let named = |(program, id)| {
            let name = match program {
                XdpProgram::Forward => XdpName::Forward,
                XdpProgram::ForwardTags => XdpName::ForwardTags,
                XdpProgram::External => XdpName::External,
            };
            (name, id)
        };
        Self { ifindex, slot, tcx: mode == AttachMode::Tcx, egress, xdp: xdp.map(named) }
    }
}

impl From<&PortMessage> for HandedPort {
    fn from(message: &PortMessage) -> Self {
        let PortMessage { ifindex, slot, tcx, egress, xdp } = *message;
        let program = |(name, id)| {
            let program = match name {
                XdpName::Forward => XdpProgram::Forward,
                XdpName::ForwardTags => XdpProgram::ForwardTags,
                XdpName::External => XdpProgram::External,
            };
            (program, id)
        };
        let mode = if tcx { AttachMode::Tcx } else { AttachMode::Clsact };
        Self { ifindex, slot, mode, egress, xdp: xdp.map(program) }
    }
}

impl FromNext {
    /// The first message.
    ///
    /// # Errors
    /// If the network namespace cannot be read.
    pub(crate) fn hello(config: &Config, layout: u64) -> io::Result<Self> {
        Ok(Self::Hello { layout, config: by_key(config), netns: netns()? })
    }
}

/// The inode number of this thread's network namespace.
///
/// # Errors
/// Without /proc.
pub(crate) fn netns() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// The values of a configuration, by key.
pub(crate) fn by_key(config: &Config) -> BTreeMap<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(keys)) => keys.into_iter().collect(),
        _ => BTreeMap::new(),
    }
}

/// The keys of another configuration that differ, apart from those that no flow depends on.
pub(crate) fn differences(config: &Config, other: &BTreeMap<String, Value>) -> Vec<String> {
    let own = by_key(config);
    let keys: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
    let differs = |key: &&String| key.as_str() != "log" && own.get(*key) != other.get(*key);
    keys.into_iter().filter(differs).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor_store::link_name;
    use shunt_api::{EngineChoice, LogLevel};
    use shunt_bpf::abi;
    use shunt_xsk::protocol::MESSAGE_MAX;

    #[test]
    fn configurations_differ_by_the_keys_that_flows_depend_on() {
        let config = Config::default();
        let other = |change: &dyn Fn(&mut Config)| {
            let mut other = config.clone();
            change(&mut other);
            differences(&config, &by_key(&other))
        };
        assert_eq!(other(&|_| ()), Vec::<String>::new());
        assert_eq!(other(&|other| other.log = LogLevel::Debug), Vec::<String>::new());
        let changed = other(&|other| (other.max_flows, other.engine) = (64, EngineChoice::Tc));
        assert_eq!(changed, ["engine", "max_flows"]);
        // A key that only one of two versions knows.
        let mut newer = by_key(&config);
        newer.insert("next".to_owned(), Value::Bool(true));
        assert_eq!(differences(&config, &newer), ["next"]);
    }

    #[test]
    fn a_port_survives_the_way() {
        for (mode, xdp) in [
            (AttachMode::Tcx, None),
            (AttachMode::Clsact, Some((XdpProgram::Forward, 7))),
            (AttachMode::Tcx, Some((XdpProgram::ForwardTags, 8))),
            (AttachMode::Tcx, Some((XdpProgram::External, 9))),
        ] {
            let port = HandedPort { ifindex: 3, slot: 5, mode, egress: true, xdp };
            let text = serde_json::to_string(&PortMessage::from(port)).unwrap();
            let message: PortMessage = serde_json::from_str(&text).unwrap();
            assert_eq!(HandedPort::from(&message), port);
        }
    }

    #[test]
    fn the_state_of_all_ports_fits_a_message() {
        let xdp = Some((XdpProgram::ForwardTags, u32::MAX));
        let port = |slot| HandedPort { ifindex: u32::MAX, slot, mode: AttachMode::Tcx, egress: true, xdp };
        let ports: Vec<PortMessage> = (0..abi::PORTS_MAX as u16).map(|slot| port(slot).into()).collect();
        let links = ports.iter().map(|port| HandedPort::from(port).links()).sum::<usize>() as u32;
        let state = HandedState {
            generation: u64::MAX,
            counting_since_ns: Some(u64::MAX),
            since_ns: u64::MAX,
            more: links as usize,
            metrics: true,
            page: true,
            clsacts: BTreeSet::new(),
            off: Vec::new(),
            stored: (0..links + 100).map(|id| link_name(u32::MAX - id)).collect(),
            legacy_rules: Some(u64::MAX),
            ports,
        };
        let text = serde_json::to_vec(&ToNext::State(Box::new(state))).unwrap();
        assert!(text.len() < MESSAGE_MAX - 8192, "{}: no room for rules of `shunt off`", text.len());
    }
}
