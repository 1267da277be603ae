//! Inspection of a port: registers by name, settings and counters of the link, rules that find what slows it, and where the time of
//! packets goes.
//!
//! Parsers and rules are pure functions; the modules that read the machine are named in each module's page.

pub mod check;
pub mod doctor;
pub mod link;
pub mod reg;
pub mod trace;
