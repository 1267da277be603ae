//! A model of NIC, driver and CPU: what a board would do, and what limits it.
//!
//! A run is a deterministic simulation of discrete events: the same case gives the same prediction on every machine.
//! Nothing here performs I/O or reads a clock. A [`Prediction`] is never a measurement, and has a type of its own for
//! that reason.

mod case;
mod explain;
mod fit;
mod flow_table;
mod optimum;
mod prediction;
mod send_times;
mod skill;
pub mod stories;
mod time;
mod world;

pub use case::{
    Bus, Case, CaseError, Cpu, Direction, Driver, Fifo, Forward, Impossible, Interrupt, Link, Memory, Pacing,
    Path, Protocol, Receive, Ring, Switch, Traffic, parse_number,
};
pub use explain::{Explanation, explain};
pub use fit::{Fit, FitProgress, Fitted, Observation, Quantity, fit, fit_watched};
pub use flow_table::{ExposedWait, FlowEffect, FlowOrder, LatencyCurve};
pub use prediction::{Drops, Part, Prediction, Times};
pub use skill::Skill;
pub use world::run;
