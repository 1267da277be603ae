//! Measurement. Every number comes with its conditions and its doubts.
//!
//! A measurement begins with [`Conditions::of_this_machine`] and [`ResultsFile::begin`], adds the values of each run
//! and calls [`ResultsFile::save`] when the run is over, and ends with [`ResultsFile::finish`]. The file of an
//! interrupted measurement has the runs until then and `complete: false`.

pub mod card;
mod compare;
mod conditions;
pub mod counters;
mod distribution;
mod doubt;
pub mod dut;
pub mod frame_size;
pub mod goodput;
pub mod iperf;
mod labels;
pub mod latency;
pub mod load;
mod machine;
pub mod nat;
pub mod net;
mod progress;
mod reading;
pub mod registers;
mod results;
pub mod search;
mod spread;
pub mod statistics;
pub mod sweep;
pub mod tcp;
pub mod throughput;
pub mod traffic;
mod turns;

pub use compare::{Compared, Comparison, Differing, MARGIN, Obstacle, Pairing, SHARES_MARGIN, Side, Verdict};
pub use conditions::{CampaignStep, Conditions, Cpus, Nic};
pub use distribution::{Distribution, Quantile};
pub use doubt::Doubt;
pub use labels::{Labels, Measured, PathLabel, Protocol};
pub use machine::{MachineSample, MachineState};
pub use progress::Progress;
pub use reading::{Limit, Position, Reading, Run};
pub use results::{ReadError, Results, ResultsFile};
pub use spread::{Spread, SpreadKind};
