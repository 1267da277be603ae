//! `shunt reg`: registers by name.
//!
//! Registers are found by name in definitions: Shunt's own for the Ethernet MACs of i.MX, Zynq, SAMA5 and AVR32 chips
//! and for PHYs, or files (--defs). Nothing is written without --write.

mod args;
mod change;
mod set;
pub(crate) mod view;

use super::arguments::duration;
use crate::{
    command::{Command, Context},
    failure::{bad_json, unreadable, unwritable, usage},
    output::Show,
    signals::Signals,
};
use args::{Target, number};
pub(crate) use args::{TargetArgs, chips};
use change::Write;
use clap::{Args, Subcommand};
pub(crate) use set::RegisterSet;
use set::chosen;
use shunt_inspect::reg::{Decoded, Difference, Problem, Register, Selector, Snapshot, diff};
use std::{fs, path::PathBuf, time::Duration};
use tokio::{select, time::sleep};
use view::{Listed, Registers, Value};

/// Decode, read, compare and change registers by name.
#[derive(Debug, Args)]
pub(crate) struct RegArgs {
    #[command(subcommand)]
    command: RegCommand,
}

#[derive(Debug, Subcommand)]
enum RegCommand {
    /// Show the fields of a value, without reading anything.
    Decode(DecodeArgs),
    /// List registers with their addresses.
    List(ListArgs),
    /// Read registers and show their fields.
    Read(ReadArgs),
    /// Change a register or a field of it; without --write, only show what would be written.
    Write(WriteArgs),
    /// Read many registers and print the values as JSON, for `shunt reg diff`.
    Snapshot(SnapshotArgs),
    /// Show which registers and fields differ between two snapshots, and how far counters rose.
    Diff(DiffArgs),
    /// Read registers again and again, and show what changes.
    Watch(WatchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// The register.
    register: Selector,
    /// Its value: 0x05ee0264, or a decimal number.
    #[arg(value_parser = number)]
    value: u64,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only these registers: names, or patterns such as ENET_RMON_*.
    registers: Vec<Selector>,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// The registers: ENET_RCR, ENET_RCR.FCE, ENET_R*, or an address of a register.
    #[arg(required = true)]
    registers: Vec<Selector>,
    /// Also read registers that reading clears, if a pattern matches them.
    #[arg(long)]
    clear_on_read: bool,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// The register or the field: ENET_RCR or ENET_RCR.FCE. It must be only one.
    register: Selector,
    /// The new value.
    #[arg(value_parser = number)]
    value: u64,
    /// Write it.
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// The registers [default: all that reading does not change].
    registers: Vec<Selector>,
    /// Also read registers that reading clears.
    #[arg(long)]
    clear_on_read: bool,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The earlier snapshot.
    before: PathBuf,
    /// The later snapshot [default: the registers of the first, read now].
    after: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The registers.
    #[arg(required = true)]
    registers: Vec<Selector>,
    /// The time between readings.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// End after this many readings.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Also read registers that reading clears, if a pattern matches them.
    #[arg(long)]
    clear_on_read: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// A resolved `shunt reg`.
#[derive(Debug)]
pub(crate) enum RegPlan {
    Decode(Box<Decoded>),
    List(Vec<Listed>, Vec<Problem>),
    Read {
        target: Target,
        registers: Vec<(Selector, bool)>,
        clear_on_read: bool,
    },
    Write {
        target: Target,
        write: Write,
    },
    Snapshot {
        target: Target,
        registers: Vec<(Selector, bool)>,
        clear_on_read: bool,
        output: Option<PathBuf>,
    },
    Diff {
        target: Target,
        before: Snapshot,
        after: Option<Snapshot>,
    },
    Watch {
        target: Target,
        registers: Vec<(Selector, bool)>,
        clear_on_read: bool,
        interval: Duration,
        count: u64,
    },
}

impl Command for RegArgs {
    type Plan = RegPlan;
    const EXAMPLES: &str = "
        [shunt reg]
        shunt reg decode --soc imx6q ENET_RCR 0x05ee0264 # the fields of a value, without hardware
        shunt reg read 'ENET_R*' # on the board: registers whose names match
        [shunt reg decode]
        shunt reg decode --soc imx6q ENET_RCR 0x05ee0264 # with the definitions that come with Shunt
        shunt reg decode --defs soc.svd ENET_RCR 0x05ee0264 # with definitions of your own
        [shunt reg list]
        shunt reg list --soc imx6q 'ENET_RMON_*' # the counters of a MAC
        [shunt reg read]
        shunt reg read ENET_RCR 'ENET_R*FL' # from /dev/mem, at the addresses of the device tree
        shunt reg read --from ethtool:eth0 ENET_RCR # from the driver's dump
        shunt reg read --from mdio:eth0 PHY_BMSR PHY_ANLPAR # from a PHY
        [shunt reg write]
        shunt reg write ENET_RCR.FCE 1 # what would be written to the register
        shunt reg write ENET_RCR.FCE 1 --write # write it, and read it back
        [shunt reg snapshot]
        shunt reg snapshot --output before.json # all that reading does not change
        [shunt reg diff]
        shunt reg diff before.json # what has changed since
        shunt reg diff before.json after.json # between two snapshots
        [shunt reg watch]
        shunt reg watch 'ENET_IEEE_R_*' --interval 5s # how counters rise, every five seconds
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<RegPlan> {
        RegPlan::resolve(self.command)
    }

    async fn run(plan: RegPlan, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        plan.run(show).await
    }
}

impl RegPlan {
    fn resolve(typed: RegCommand) -> anyhow::Result<Self> {
        match typed {
            RegCommand::Decode(DecodeArgs { register, value, target }) => {
                let target = target.resolve()?;
                let one =
                    register.only(&target.definitions).map_err(|error| target.not_found(error))?.register;
                if value > one.max() {
                    return Err(usage(format!(
                        "{value:#x} has more than the {} bits of {}",
                        one.width, one.name
                    ))
                    .into());
                }
                Ok(Self::Decode(Box::new(Decoded::new(&target.definitions, one, value))))
            }
            RegCommand::List(ListArgs { registers, target }) => {
                let target = target.resolve()?;
                let registers = if registers.is_empty() { vec![args::everything()] } else { registers };
                let mut all = Vec::new();
                for selector in registers {
                    let found =
                        selector.select(&target.definitions).map_err(|error| target.not_found(error))?;
                    all.extend(found.iter().map(|one| Listed::new(&target.definitions, one.register)));
                }
                Ok(Self::List(all, target.definitions.warnings))
            }
            RegCommand::Read(ReadArgs { registers, clear_on_read, target }) => {
                let target = target.resolve()?;
                let registers = target.checked(registers)?;
                Ok(Self::Read { target, registers, clear_on_read })
            }
            RegCommand::Write(WriteArgs { register, value, write, target }) => {
                let target = target.resolve()?;
                let write = Write::resolve(&target, &register, value, write)?;
                Ok(Self::Write { target, write })
            }
            RegCommand::Snapshot(SnapshotArgs { registers, clear_on_read, output, target }) => {
                let target = target.resolve()?;
                let registers = if registers.is_empty() { vec![args::everything()] } else { registers };
                let registers = target.checked(registers)?;
                Ok(Self::Snapshot { target, registers, clear_on_read, output })
            }
            RegCommand::Diff(DiffArgs { before, after, target }) => {
                let target = target.resolve()?;
                let after = after.map(read_snapshot).transpose()?;
                Ok(Self::Diff { target, before: read_snapshot(before)?, after })
            }
            RegCommand::Watch(WatchArgs { registers, interval, count, clear_on_read, target }) => {
                let target = target.resolve()?;
                let registers = target.checked(registers)?;
                let count = count.unwrap_or(u64::MAX);
                Ok(Self::Watch { target, registers, clear_on_read, interval, count })
            }
        }
    }

    async fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        let answer = match self {
            Self::Decode(decoded) => Registers::Decoded(decoded),
            Self::List(list, warnings) => Registers::List(list, warnings),
            Self::Read { target, registers, clear_on_read } => {
                let chosen = chosen(&target, &registers, clear_on_read)?;
                let readings = target.read(&chosen)?;
                let values: Vec<Value> = chosen
                    .iter()
                    .zip(readings)
                    .map(|(register, reading)| Value::new(&target.definitions, register, reading))
                    .map(|value| value.only(&registers))
                    .collect();
                let lacking =
                    values.iter().find_map(|value| Some((value.register.clone(), value.unread.clone()?)));
                // One register that cannot be read is a failure; of many, the others are worth showing.
                if let (1, Some((register, why))) = (values.len(), lacking) {
                    return Err(usage(format!("{register}: {why}")).into());
                }
                Registers::Values(values)
            }
            Self::Write { target, write } => Registers::Written(Box::new(write.run(&target)?)),
            Self::Snapshot { target, registers, clear_on_read, output } => {
                let snapshot = target.snapshot(&chosen(&target, &registers, clear_on_read)?)?;
                match output {
                    None => Registers::Snapshot(snapshot),
                    Some(path) => {
                        let count = snapshot.readings.iter().filter(|one| one.value.is_some()).count();
                        let json = serde_json::to_string_pretty(&snapshot)? + "\n";
                        fs::write(&path, json).map_err(|error| unwritable(&path, &error))?;
                        Registers::Saved { path, registers: count }
                    }
                }
            }
            Self::Diff { target, before, after } => {
                let after = match after {
                    Some(after) => after,
                    None => {
                        let known = before.readings.iter().filter(|one| one.value.is_some());
                        let registers: Vec<&Register> =
                            known.filter_map(|one| target.definitions.register(&one.register)).collect();
                        target.snapshot(&registers)?
                    }
                };
                Registers::Differences(diff(&target.definitions, &before, &after))
            }
            Self::Watch { target, registers, clear_on_read, interval, count } => {
                return watch(&target, &chosen(&target, &registers, clear_on_read)?, (interval, count), show)
                    .await;
            }
        };
        show(&answer)
    }
}

/// Shows the first values, then what changes from each reading to the next.
async fn watch(
    target: &Target,
    registers: &[&Register],
    (interval, count): (Duration, u64),
    show: Show<'_>,
) -> anyhow::Result<()> {
    let mut signals = Signals::install()?;
    let mut last = target.snapshot(registers)?;
    let values = registers.iter().zip(last.readings.clone());
    let values =
        values.map(|(register, reading)| Value::new(&target.definitions, register, reading)).collect();
    show(&Registers::Values(values))?;
    for _ in 1..count {
        select! {
            () = sleep(interval) => {}
            signal = signals.next() => {
                return if count == u64::MAX { Ok(()) } else { Err(crate::failure::cut_short(signal).into()) };
            }
        }
        let now = target.snapshot(registers)?;
        let changes: Vec<Difference> = diff(&target.definitions, &last, &now);
        if !changes.is_empty() {
            show(&Registers::Changed { at: now.at.clone(), changes })?;
        }
        last = now;
    }
    Ok(())
}

fn read_snapshot(path: PathBuf) -> Result<Snapshot, shunt_api::Failure> {
    let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
    serde_json::from_str(&text).map_err(|error| bad_json(&path, "a snapshot of `shunt reg`", &error))
}

#[cfg(test)]
mod tests;
