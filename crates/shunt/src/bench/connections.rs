//! `shunt bench ndr --what connections` and `tcp-connections`, and what is common to it and `--what concurrent`.

use crate::cli::{NdrArgs, NdrOf};
use shunt_api::{Failure, FailureCode};
use shunt_gen::{FLOWS_MAX, Ports};
use shunt_lab::traffic::Wanted;
use shunt_wire::Tcp;
use std::fs;

/// What a trial has beyond its load: the last packet, and what rounding adds.
const SPARE: f64 = 16.0;
/// Those that are not assigned to a service.
const PORTS: Ports = Ports { first: 1024, count: 64512 };

/// The greatest rate at which the connections of a trial fit into the table, or that was given.
pub(super) fn most(given: Option<f64>, trial_s: f64) -> Result<f64, Failure> {
    let table = table().unwrap_or(FLOWS_MAX);
    let most = (f64::from(table.min(FLOWS_MAX)) - SPARE) / trial_s;
    match given {
        Some(given) if given > most => Err(Failure::new(
            FailureCode::Usage,
            format!(
                "--max-load {given}: conntrack tracks {table} connections (nf_conntrack_max), and {FLOWS_MAX} can be told \
                 apart, so {most:.0}/s are the most in trials of {trial_s} s"
            ),
        )),
        given => Ok(given.unwrap_or(most)),
    }
}

/// How many connections conntrack tracks on this machine.
pub(super) fn table() -> Option<u32> {
    fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").ok()?.trim().parse().ok()
}

/// Makes each packet of a trial, which has so many, one of another connection.
pub(super) fn ask_for(wanted: &mut Wanted, typed: &NdrArgs, packets: f64) -> Result<(), Failure> {
    if typed.both || typed.place.tx.is_some() {
        let why = "--what connections, tcp-connections and concurrent: only through our own router and in one direction, since it must forget its connections \
                   before each trial; leave out --both and --tx";
        return Err(Failure::new(FailureCode::Usage, why));
    }
    wanted.answered = true;
    wanted.shape.tcp = (typed.what == NdrOf::TcpConnections).then_some(Tcp::SYN);
    (wanted.shape.source_ports, wanted.shape.destination_ports) = (PORTS, PORTS);
    wanted.shape.flows = Some((packets + SPARE).min(f64::from(FLOWS_MAX)) as u32);
    Ok(())
}
