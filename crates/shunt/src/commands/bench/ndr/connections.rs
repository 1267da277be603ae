//! Traffic in which each packet opens a connection, for `shunt bench ndr --what connections` and `tcp-connections`.

use super::args::{NdrArgs, NdrTarget};
use crate::{
    commands::bench::traffic::{UNRESERVED_PORTS, conntrack_max, unfit},
    failure::usage,
};
use shunt_api::Failure;
use shunt_gen::FLOWS_MAX;
use shunt_lab::traffic::TrafficSpec;
use shunt_wire::{Tcp, line::IpVersion};

/// Packets of a trial beyond its load: the last packet, and those that rounding adds.
const SPARE: f64 = 16.0;

/// The highest load: `given`, or the highest rate at which the connections of a trial fit into conntrack's table.
pub(super) fn max_load(given: Option<f64>, trial_s: f64) -> Result<f64, Failure> {
    let table = conntrack_max().unwrap_or(FLOWS_MAX);
    let most = (f64::from(table.min(FLOWS_MAX)) - SPARE) / trial_s;
    match given {
        Some(given) if given > most => Err(usage(format!(
            "--max-load {given}: at most {most:.0} connections/s are possible in trials of {trial_s} s: conntrack tracks {table} \
             (nf_conntrack_max), and the generator has {FLOWS_MAX} flows"
        ))),
        given => Ok(given.unwrap_or(most)),
    }
}

/// Makes each packet of a trial open another connection. `packets` is the number of packets in a trial.
pub(super) fn one_connection_per_packet(
    spec: &mut TrafficSpec,
    typed: &NdrArgs,
    packets: f64,
) -> Result<(), Failure> {
    if typed.both || typed.testbed.tx.is_some() {
        let why = "--what connections and tcp-connections work only with the router in a namespace, which must forget its \
                   connections before each trial, and in one direction; leave out --both and --tx. For a router between \
                   two devices, see `shunt bench nat`";
        return Err(usage(why));
    }
    if typed.traffic.flows.is_some()
        || typed.traffic.nat.is_some()
        || typed.traffic.ip == IpVersion::V6
        || typed.traffic.vlan.is_some()
        || typed.traffic.tcp
    {
        let why = "--what connections and tcp-connections open a connection of IPv4 with each packet, and always masquerade; \
                   leave out --flows, --nat, --ip, --vlan and --tcp";
        return Err(usage(why));
    }
    spec.answered = true;
    spec.shape.tcp = (typed.what == NdrTarget::TcpConnections).then_some(Tcp::SYN);
    (spec.shape.source_ports, spec.shape.destination_ports) = (UNRESERVED_PORTS, UNRESERVED_PORTS);
    spec.shape.sizes = spec.shape.fit(typed.size.as_ref()).map_err(unfit)?;
    spec.shape.flows = Some((packets + SPARE).min(f64::from(FLOWS_MAX)) as u32);
    Ok(())
}
