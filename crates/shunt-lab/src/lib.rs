//! Measuring: a number travels with its conditions and its doubts.
//!
//! A measurement begins with [`Conditions::of_this_machine`] and [`Kept::begin`], adds each run as soon as it is there, and ends
//! with [`Kept::finish`]. What was interrupted is still on disk, and says that it is not complete.

mod compare;
mod conditions;
mod distribution;
mod doubt;
pub mod dut;
pub mod frame_size;
pub mod goodput;
pub mod iperf;
pub mod load;
pub mod net;
mod progress;
mod reading;
mod results;
pub mod search;
pub mod statistics;
pub mod sweep;
pub mod throughput;
pub mod traffic;

pub use compare::{Compared, Comparison, Differing, PAIRS_WANTED, Pairing, Side, Verdict};
pub use conditions::{CampaignStep, Conditions, Cpus, Nic};
pub use distribution::{Distribution, Quantile};
pub use doubt::Doubt;
pub use progress::Progress;
pub use reading::{Limit, Position, Reading, Run, Spread, SpreadKind};
pub use results::{Kept, ReadError, Results};
