//! Traffic of the lab: what is generated, what is accounted, and the command.

#![expect(clippy::unwrap_used, reason = "a test fails where what it expects is not there")]

mod agent;
mod bench;
mod campaign;
mod command;
mod connections;
mod goodput;
mod iperf;
mod ndr;
mod neighbours;
mod pcap;
mod receiver;
mod sizes;
mod sweep;
