//! The router that traffic goes through, made anew for each column and round.

use super::{Cell, Column};
use crate::{
    net::{Segment, Topology},
    throughput::{RULESET, Up},
    traffic::Error,
};
use shunt_wire::Tag;
use std::process::Stdio;

/// On the LAN side.
const VLANS: &[Tag] = &[Tag::vlan(5)];
/// What comes tagged is let through as what comes untagged.
const TAGGED_TOO: &str = "add rule inet filter forward iifname \"r0.5\" ct state new accept";
/// Of both families.
const MASQUERADE: &str = "table inet nat { chain postrouting { type nat hook postrouting priority srcnat; \
    oifname \"r1\" masquerade; }; }";

/// A LAN host, a router with a stateful firewall and what the traffic asks for, and a WAN host.
pub(super) fn topology(of: Cell) -> Result<Topology, Error> {
    let lan = if of.vlan { Segment::LAN.tagged(VLANS).with_tagged_host() } else { Segment::LAN };
    let topology = Topology::try_of(&[lan, Segment::WAN])?;
    topology.try_gather(true)?;
    let rules = [(RULESET, true), (TAGGED_TOO, of.vlan), (MASQUERADE, of.nat)];
    for (rules, wanted) in rules {
        if wanted {
            topology.router().try_run(&format!("nft '{rules}'"))?;
        }
    }
    Ok(topology)
}

/// What is special about a column, while it lasts.
pub(super) fn arrange<'n>(column: &'n Column, topology: &'n Topology) -> Result<Option<Up<'n>>, Error> {
    let router = topology.router();
    if let Some(line) = &column.command {
        let mut command = router.command("sh");
        command.args(["-c", line]).stdin(Stdio::null());
        for (name, ns) in
            [("SHUNT_ROUTER", router), ("SHUNT_LAN", &topology.lan().ns), ("SHUNT_WAN", &topology.wan().ns)]
        {
            command.env(name, ns.name());
        }
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Machine(format!("`{line}` ended with {}: {}", output.status, said.trim())));
        }
    }
    column.engine.as_ref().map(|engine| Up::new(engine, router)).transpose()
}
