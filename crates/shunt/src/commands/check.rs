//! `shunt check`: checks of a NIC and its driver.

pub(crate) mod view;

use super::{arguments::port_name, measure::measure_and_show};
use crate::{
    client::{candidates, partner::RemotePartner},
    command::{Command, Context},
    failure::{no_device, unwritable, usage},
    output::Show,
};
use clap::{Args, builder::PossibleValuesParser};
use clap_complete::engine::ArgValueCandidates;
use nix::{net::if_::if_nametoindex, unistd::geteuid};
use shunt_api::{Failure, FailureCode};
use shunt_inspect::check::{self, End, Port, junit};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Check a NIC and its driver: seventeen cases with evidence, on a port and the port at the other end of its cable.
///
/// Each case puts back what it changed. While it runs, settings of both ports change and links may go down: run it on
/// ports without other traffic. The exit code is 30 if a case failed.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The port to check.
    #[arg(value_parser = port_name, add = ArgValueCandidates::new(candidates::devices))]
    port: String,
    /// The port at the other end of its cable [default: the other end of a veth pair in the same namespace].
    #[arg(long, value_name = "PORT2", value_parser = port_name, add = ArgValueCandidates::new(candidates::devices))]
    peer: Option<String>,
    /// The network namespace of the other end, as `ip netns` lists it [default: that of this command].
    #[arg(long, value_name = "NETNS", conflicts_with = "peer_agent")]
    peer_netns: Option<String>,
    /// The machine of the other end, as ssh://[USER@]HOST[:PORT]: ssh starts `shunt lab agent --lend PORT2` there. Or
    /// an agent that already runs there, as http://ADDRESS:PORT.
    #[arg(long, value_name = "URL", requires = "peer")]
    peer_agent: Option<String>,
    /// The file with the token of an agent at http:// [default: the variable SHUNT_AGENT_TOKEN].
    #[arg(long, value_name = "FILE", requires = "peer_agent")]
    peer_token_file: Option<PathBuf>,
    /// Only this case; may be given several times.
    #[arg(long = "only", value_name = "CASE", value_parser = PossibleValuesParser::new(check::names()))]
    only: Vec<String>,
    /// Write the results as JUnit's XML to this file, too.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// A resolved `shunt check`.
#[derive(Debug)]
pub(crate) struct Checking {
    port: Port,
    peer: Option<Peer>,
    only: Vec<String>,
    junit: Option<PathBuf>,
}

/// The other end of the cable, as it was typed.
#[derive(Debug, PartialEq, Eq)]
enum Peer {
    Here(Port),
    /// A port on another machine, and how its agent is reached.
    Far {
        name: String,
        url: String,
        token_file: Option<PathBuf>,
    },
}

impl Command for CheckArgs {
    type Plan = Checking;
    const EXAMPLES: &str = "
        [shunt check]
        shunt check eth0 --peer eth1 # two ports that a cable connects
        shunt check eth0 --peer eth1 --peer-agent ssh://root@10.0.0.2 # the other end is a port of another machine
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Checking> {
        Checking::resolve(self)
    }

    async fn run(plan: Checking, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        plan.run(show).await
    }
}

impl Checking {
    fn resolve(typed: CheckArgs) -> anyhow::Result<Self> {
        let CheckArgs { port, peer, peer_netns, peer_agent, peer_token_file, only, junit } = typed;
        if let Some(netns) = &peer_netns {
            require_netns(netns, peer.as_deref())?;
        }
        if peer.as_ref() == Some(&port) && peer_netns.is_none() && peer_agent.is_none() {
            return Err(usage(format!(
                "{port} cannot be its own peer: give the port at the other end of its cable"
            ))
            .into());
        }
        // ssh hands the name to a shell.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:@-".contains(c);
        if let Some(name) = peer.as_ref().filter(|name| peer_agent.is_some() && !name.chars().all(is_plain)) {
            return Err(usage(format!(
                "--peer {name}: expected letters, digits and `._:@-` with --peer-agent"
            ))
            .into());
        }
        let peer = peer.map(|name| match peer_agent {
            Some(url) => Peer::Far { name, url, token_file: peer_token_file },
            None => Peer::Here(Port { netns: peer_netns, name }),
        });
        Ok(Self { port: Port { netns: None, name: port }, peer, only, junit })
    }

    async fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        if !geteuid().is_root() {
            return Err(Failure::new(
                FailureCode::NotRoot,
                "shunt check needs root: it opens raw sockets; use sudo",
            )
            .into());
        }
        let Self { port, peer, only, junit: path } = self;
        require_here(&port)?;
        if let Some(Peer::Here(peer)) = &peer {
            require_here(peer)?;
        }
        measure_and_show(show, move |stop| {
            let peer = peer.map(Peer::reach).transpose()?;
            let report = check::run(&port, peer.as_ref(), &only, stop)
                .map_err(|why| Failure::new(FailureCode::PortMissing, why))?;
            if let Some(path) = path {
                fs::write(&path, junit(&report)).map_err(|error| unwritable(&path, &error))?;
            }
            Ok(report)
        })
        .await
    }
}

/// Fails if `--peer-netns` stands without the port, or names no network namespace.
fn require_netns(netns: &str, peer: Option<&str>) -> Result<(), Failure> {
    if !Path::new("/run/netns").join(netns).exists() {
        return Err(usage(format!("--peer-netns: no network namespace `{netns}`; `ip netns` lists them")));
    }
    if peer.is_none() {
        return Err(usage(format!("--peer-netns {netns}: name the port in it, too: --peer PORT2")));
    }
    Ok(())
}

/// Fails if a port of this namespace does not exist.
fn require_here(port: &Port) -> Result<(), Failure> {
    let exists = port.netns.is_some() || if_nametoindex(port.name.as_str()).is_ok();
    if exists { Ok(()) } else { Err(no_device(&port.name)) }
}

impl Peer {
    /// The port, with its agent if it is on another machine.
    fn reach(self) -> Result<End, Failure> {
        Ok(match self {
            Self::Here(port) => End::Here(port),
            Self::Far { name, url, token_file } => {
                End::Far(Arc::new(RemotePartner::open(&url, token_file.as_deref(), name)?))
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn a_port_is_checked_against_another_one() {
        let resolve = |words: &str| Checking::resolve(parse_args::<CheckArgs>(words)?);
        let typed = resolve("eth0 --peer eth1 --only vlan --only mtu").expect("valid");
        let near = Port { netns: None, name: "eth1".to_owned() };
        assert_eq!(typed.peer, Some(Peer::Here(near)));
        assert_eq!(typed.only, ["vlan", "mtu"]);
        let typed = resolve("eth0 --peer eth0 --peer-agent ssh://far").expect("valid");
        assert!(matches!(typed.peer, Some(Peer::Far { url, .. }) if url == "ssh://far"));
        for wrong in [
            "eth0 --peer eth0",
            "eth0 --only nothing",
            "eth0 --peer-netns far",
            "a/b",
            "eth0 --peer-agent ssh://far",
            "eth0 --peer eth1 --peer-token-file f",
            "eth0 --peer eth1 --peer-netns far --peer-agent ssh://far",
            "eth0 --peer eth1;reboot --peer-agent ssh://far",
            "eth0 --peer $(reboot) --peer-agent ssh://far",
        ] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }
}
