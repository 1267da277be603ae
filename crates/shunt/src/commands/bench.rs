//! `shunt bench`: measures routers, one measurement at a time or a campaign of them.

mod campaign;
mod goodput;
mod latency;
mod measurement;
mod ndr;
mod size;
mod sweep;
mod testbed;

pub(crate) use campaign::{Campaign, RunArgs};
use clap::Subcommand;
pub(crate) use measurement::{MeasureCommand, Measurement};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    #[command(flatten)]
    Measure(Box<MeasureCommand>),
    /// Run a campaign: the measurements of a file, one after the other.
    ///
    /// Each [[step]] of the file names a command as `bench`. Its other keys are options of that command, with the same names and values:
    /// `--runs 3` is `runs = 3`, `--both` is `both = true`, and an option that may be given several times takes a list. Keys of [common]
    /// apply to every step whose command has such an option, unless the step sets the key itself. Before the steps, the file may set
    /// `output` and `report = false`. The output directory gets one file of results for each step, and a page with all of them. Ctrl-C ends
    /// the present step and keeps its results so far. Run the same command again to measure the steps that are missing; the results of an
    /// interrupted step are kept under another name.
    Run(RunArgs),
}
