//! The registers of `shunt bench sweep --reg`.

use crate::commands::reg::{RegisterSet, TargetArgs, chips};
use clap::Args;
use shunt_inspect::reg::{RegisterSource, Selector, diff};
use shunt_lab::{
    counters::{Change, is_trouble},
    registers::{DEVICE, RegisterChange, RegisterChanges, Registers},
    traffic::Error,
};
use std::{path::PathBuf, sync::Arc};

/// The heading of these options.
const HEADING: &str = "Registers";

#[derive(Debug, Args)]
pub(super) struct RegisterArgs {
    /// Also read these registers before and after each step: names, or patterns such as ENET_RMON_*, as for `shunt reg
    /// read`. May be given several times. Registers that count are listed with the counters.
    #[arg(help_heading = HEADING, long = "reg", value_name = "REGISTER")]
    registers: Vec<Selector>,
    /// Where the registers are, as --from of `shunt reg read`: mem, file:PATH[@ADDRESS], regmap:NAME, ethtool:PORT,
    /// dump:PATH or mdio:PORT[@PHY] [default: mem].
    #[arg(help_heading = HEADING, long, value_name = "SOURCE", requires = "registers")]
    reg_from: Option<RegisterSource>,
    /// The chip whose definitions are used [default: as the device tree says].
    #[arg(help_heading = HEADING, long, value_name = "CHIP", requires = "registers", add = chips())]
    reg_soc: Option<String>,
    /// A file with definitions of registers: .dat, .svd or .toml. May be given several times.
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "registers")]
    reg_defs: Vec<PathBuf>,
}

/// Chosen registers with their source.
#[derive(Debug)]
struct Chosen(RegisterSet);

impl RegisterArgs {
    /// The registers to read; none if no option names one. Fails if one does not exist or cannot be read now.
    pub(super) fn resolve(&self) -> anyhow::Result<Option<Arc<dyn Registers>>> {
        if self.registers.is_empty() {
            return Ok(None);
        }
        let target = TargetArgs::new(self.reg_soc.clone(), self.reg_defs.clone(), self.reg_from.clone());
        let chosen = RegisterSet::resolve(target, self.registers.clone())?;
        // Find a source that cannot be read before anything is sent.
        chosen.snapshot()?;
        Ok(Some(Arc::new(Chosen(chosen))))
    }
}

impl Registers for Chosen {
    fn values(&self) -> Result<Vec<Option<u64>>, Error> {
        let snapshot = self.0.snapshot().map_err(|failure| Error::Asked(failure.to_string()))?;
        Ok(snapshot.readings.into_iter().map(|reading| reading.value).collect())
    }

    fn changes(&self, before: &[Option<u64>], after: &[Option<u64>]) -> RegisterChanges {
        let [before, after] = [before, after].map(|values| self.0.with_values(values));
        let mut changes = RegisterChanges::default();
        for one in diff(self.0.definitions(), &before, &after) {
            match (one.rise, one.before.zip(one.after)) {
                (Some(rise), Some((before, after))) => changes.counters.push(Change {
                    device: DEVICE.to_owned(),
                    trouble: is_trouble(&one.register),
                    bits: (after < before).then(|| self.0.counter_bits(&one.register)).flatten(),
                    counter: one.register,
                    before,
                    after,
                    rise,
                    reset: false,
                }),
                _ => changes.others.push(RegisterChange {
                    register: one.register,
                    before: one.before,
                    after: one.after,
                    fields: one.fields.into_iter().map(|it| (it.name, it.before, it.after)).collect(),
                }),
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::parse_args;
    use std::fs;

    fn resolve(words: &str) -> Result<Option<Arc<dyn Registers>>, String> {
        parse_args::<RegisterArgs>(words)
            .map_err(|error| error.to_string())?
            .resolve()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_recorded_pair_of_pause_counters_wraps_at_16_bits() {
        // The image of a MAC: all registers are 0.
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("enet.bin");
        fs::write(&image, [0; 0x800]).unwrap();
        let from = format!("--reg-from file:{}", image.display());
        let words = format!("--reg ENET_IEEE_T_FDXFC --reg ENET_RCR --reg-soc imx6q {from}");
        let registers = resolve(&words).unwrap().unwrap();
        assert_eq!(registers.values().unwrap(), [Some(0), Some(0)]);
        // Pause frames of an i.MX6 before and after a run, and flow control switched on meanwhile.
        let changes = registers.changes(&[Some(0xf544), Some(0x0244)], &[Some(0x0310), Some(0x0264)]);
        let [counter] = &changes.counters[..] else { panic!("{changes:?}") };
        assert_eq!((counter.rise, counter.bits, counter.trouble), (3532, Some(16), true));
        assert_eq!((counter.device.as_str(), counter.counter.as_str()), ("registers", "ENET_IEEE_T_FDXFC"));
        let [other] = &changes.others[..] else { panic!("{changes:?}") };
        assert_eq!(other.fields, [("FCE".to_owned(), 0, 1)]);
        assert_eq!(registers.changes(&[Some(1), Some(2)], &[Some(1), Some(2)]), RegisterChanges::default());
    }

    #[test]
    fn wrong_registers_are_refused_with_the_name() {
        for (words, why) in [
            ("--reg ENET_NOPE --reg-soc imx6q", "no register `ENET_NOPE`"),
            ("--reg ENET_RCR --reg-soc nope", "--soc nope: no definitions"),
            ("--reg ENET_RCR --reg-soc imx6q --reg-from file:/nonexistent", "/nonexistent"),
            ("--reg-from mem", "--reg"),
        ] {
            let error = resolve(words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
        }
        assert!(resolve("").unwrap().is_none());
    }
}
