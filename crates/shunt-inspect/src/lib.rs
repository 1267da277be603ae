//! Inspection of a port: registers by name, settings and counters of the link, rules that find what slows it, and where
//! the time of packets goes.
//!
//! Parsers and rules are pure functions. The page of each module says whether it reads the machine.

pub mod check;
pub mod doctor;
pub mod link;
mod probes;
pub mod quality;
pub mod reg;
pub mod trace;
pub mod verify;
