//! The testbed of a measurement: a router in a namespace or between two devices of this machine, its engines, and the
//! agent on the DUT.

use crate::{
    client::{
        agent::{AgentUse, RemoteAgent},
        candidates,
    },
    failure::traffic_failed,
};
use anyhow::Context;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use shunt_api::Failure;
use shunt_lab::{
    dut::Dut,
    throughput::Engine,
    traffic::{Error, Nics, Testbed},
};
use shunt_wire::line::LinkSpeed;
use std::{
    env,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// What can be measured in a router of our own. `slow` is Linux without Shunt.
pub(super) const ENGINES: [&str; 4] = ["slow", "tc", "xdp", "external"];
/// Those that are measured unless others are named: the external engine takes a core from the others.
const DEFAULT_ENGINES: [&str; 3] = ["slow", "tc", "xdp"];

/// The time that a trial or a step takes in addition to its duration: warm-up packets, and packets under way at its
/// end.
pub(super) const TRIAL_OVERHEAD: Duration = Duration::from_millis(600);

/// The heading of options that name the router to measure.
pub(super) const ROUTER: &str = "The router to measure";

/// Without --tx and --rx, a LAN host, a router with a stateful firewall and a WAN host are made in network namespaces.
#[derive(Debug, Args)]
pub(crate) struct TestbedArgs {
    /// The sending device: measure whatever connects it to --rx, instead of a router in a namespace.
    #[arg(help_heading = ROUTER, long, value_name = "DEV", requires = "rx", conflicts_with = "engines", add = ArgValueCandidates::new(candidates::devices))]
    pub(super) tx: Option<String>,
    /// The receiving device.
    #[arg(help_heading = ROUTER, long, value_name = "DEV", requires = "tx", add = ArgValueCandidates::new(candidates::devices))]
    rx: Option<String>,
    /// The router's address on the link of --tx. Without it, frames are addressed to the MAC of --rx.
    #[arg(help_heading = ROUTER, long, value_name = "ADDRESS", requires = "tx")]
    gateway: Option<IpAddr>,
    /// The router's address on the link of --rx, for frames that --rx sends.
    #[arg(help_heading = ROUTER, long, value_name = "ADDRESS", requires = "rx")]
    rx_gateway: Option<IpAddr>,
    /// The speed of the link, such as 1G, if the device does not report it; no more than this is offered.
    #[arg(help_heading = ROUTER, long, value_name = "SPEED")]
    pub(super) speed: Option<LinkSpeed>,
    /// The router, as ssh://[USER@]HOST[:PORT]: ssh starts `shunt lab agent` there; the load of the router is measured
    /// too, and `sweep` reads its counters. Or an agent that already runs there, as http://ADDRESS:PORT.
    #[arg(help_heading = ROUTER, long, value_name = "URL", requires = "tx")]
    pub(super) dut_agent: Option<String>,
    /// Also measure the CPU load of the router in the namespace, with its daemon: the time of the threads that then
    /// poll the devices of router and hosts, which changes the rates. The load of another router needs --dut-agent.
    #[arg(help_heading = ROUTER, long, conflicts_with = "tx")]
    pub(super) cpu: bool,
    /// The file with the token of an agent at http:// [default: the variable SHUNT_AGENT_TOKEN].
    #[arg(help_heading = ROUTER, long, value_name = "FILE", requires = "dut_agent")]
    dut_token_file: Option<PathBuf>,
}

/// The engines to measure, by name. None: Linux without Shunt, or whatever is between the devices.
pub(super) type Engines = Vec<(String, Option<Engine>)>;

impl TestbedArgs {
    /// The devices on both sides of the router; none if the router is in a namespace.
    pub(super) fn nics(&self) -> Option<Nics> {
        let (tx, rx) = self.tx.clone().zip(self.rx.clone())?;
        Some(Nics { tx, rx, gateway: self.gateway, rx_gateway: self.rx_gateway, next_hop: None })
    }

    /// Whether the router has an address on the links of both devices.
    pub(super) fn has_both_gateways(&self) -> bool {
        self.gateway.is_some() && self.rx_gateway.is_some()
    }

    /// Whether the router has an address on at least one link.
    pub(super) fn has_one_gateway(&self) -> bool {
        self.gateway.is_some() || self.rx_gateway.is_some()
    }

    /// The agent on the DUT, connected; none if the options name none.
    pub(super) fn dut(&self) -> Result<Option<Dut>, Failure> {
        connect_dut(self.dut_agent.as_deref(), self.dut_token_file.as_deref())
    }
}

/// Connects to the agent at this URL; none without a URL.
pub(super) fn connect_dut(url: Option<&str>, token_file: Option<&Path>) -> Result<Option<Dut>, Failure> {
    let Some(url) = url else { return Ok(None) };
    Ok(Some(Arc::new(RemoteAgent::open(url, token_file, AgentUse::Measure)?)))
}

/// The place of the router and the engines to measure there, in turn. `names` is empty for the default engines.
pub(super) fn resolve(nics: Option<Nics>, names: &[String]) -> anyhow::Result<(Testbed, Engines)> {
    if let Some(nics) = nics {
        for name in [&nics.tx, &nics.rx] {
            require_device(name)?;
        }
        return Ok((Testbed::Nics(nics), vec![("dut".to_owned(), None)]));
    }
    let program = env::current_exe().context("cannot find the program shunt itself")?;
    let names = if names.is_empty() { DEFAULT_ENGINES.map(str::to_owned).to_vec() } else { names.to_vec() };
    let engine = |name: &String| Engine { program: program.clone(), name: name.clone() };
    let engines = names.iter().map(|name| (name.clone(), (name != "slow").then(|| engine(name))));
    Ok((Testbed::Own, engines.collect()))
}

/// Fails if this network namespace has no such device.
pub(super) fn require_device(name: &str) -> Result<(), Failure> {
    match Path::new("/sys/class/net").join(name).exists() {
        true => Ok(()),
        false => Err(traffic_failed(Error::NoDevice(name.to_owned()))),
    }
}
