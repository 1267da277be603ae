//! The lab: its generator and receiver, searches, benches and the commands for them.

#![expect(clippy::unwrap_used, reason = "a test fails where what it expects is not there")]

mod agent;
mod bench;
mod campaign;
mod card;
mod check;
mod check_partner;
mod connections;
mod culprits;
mod gen_command;
mod goodput;
mod inspect;
mod iperf;
mod latency;
mod nat;
mod ndr;
mod next_hops;
mod pcap;
mod quality;
mod receiver;
mod sizes;
mod streams;
mod sweep;
mod tags;
mod tcp;
mod trace;
mod variants;
mod verify;
