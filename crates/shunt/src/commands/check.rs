//! `shunt check`: checks of a NIC and its driver.

pub(crate) mod view;

use super::measure::measure_and_show;
use crate::{
    command::{Command, Context},
    failure::{bad_file, usage},
    output::Show,
};
use clap::{Args, builder::PossibleValuesParser};
use nix::unistd::geteuid;
use shunt_api::{Failure, FailureCode};
use shunt_inspect::check::{self, Port, junit};
use std::{fs, path::PathBuf};

/// Check a NIC and its driver: seventeen cases with evidence, on a port and the port at the other end of its cable.
///
/// Each case puts back what it changed. While it runs, settings of both ports change and links may go down: run it on
/// ports without other traffic. The exit code is 30 if a case failed.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The port to check.
    port: String,
    /// The port at the other end of its cable [default: the other end of a veth pair in the same namespace].
    #[arg(long, value_name = "PORT2")]
    peer: Option<String>,
    /// The network namespace of the other end, as `ip netns` lists it [default: that of this command].
    #[arg(long, value_name = "NETNS", requires = "peer")]
    peer_netns: Option<String>,
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
    peer: Option<Port>,
    only: Vec<String>,
    junit: Option<PathBuf>,
}

impl Command for CheckArgs {
    type Plan = Checking;
    const EXAMPLES: &str = "
        [shunt check]
        shunt check eth0 --peer eth1 # two ports that a cable connects
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
        let CheckArgs { port, peer, peer_netns, only, junit } = typed;
        for name in [&port].into_iter().chain(&peer) {
            if name.is_empty()
                || name.contains(|c: char| c.is_whitespace() || c == '/')
                || name.starts_with('-')
            {
                return Err(usage(format!("`{name}` is not the name of a port")).into());
            }
        }
        if peer.as_ref() == Some(&port) && peer_netns.is_none() {
            return Err(usage(format!(
                "{port} cannot be its own peer: give the port at the other end of its cable"
            ))
            .into());
        }
        let peer = peer.map(|name| Port { netns: peer_netns, name });
        Ok(Self { port: Port { netns: None, name: port }, peer, only, junit })
    }

    async fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        if !geteuid().is_root() {
            return Err(
                Failure::new(FailureCode::NotRoot, "shunt check needs root: it opens raw sockets").into()
            );
        }
        let Self { port, peer, only, junit: path } = self;
        measure_and_show(show, move |stop| {
            let report = check::run(&port, peer.as_ref(), &only, stop)
                .map_err(|why| Failure::new(FailureCode::PortMissing, why))?;
            if let Some(path) = path {
                fs::write(&path, junit(&report)).map_err(|error| bad_file(&path, error))?;
            }
            Ok(report)
        })
        .await
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
        let typed = resolve("eth0 --peer eth1 --peer-netns far --only vlan --only mtu").expect("valid");
        assert_eq!(typed.peer, Some(Port { netns: Some("far".to_owned()), name: "eth1".to_owned() }));
        assert_eq!(typed.only, ["vlan", "mtu"]);
        for wrong in ["eth0 --peer eth0", "eth0 --only nothing", "eth0 --peer-netns far", "a/b"] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }
}
