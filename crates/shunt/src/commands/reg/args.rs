//! Options that all commands of `shunt reg` share: definitions, and the source of values.

use crate::failure::{bad_config, bad_file, no_device, unreadable, usage};
use clap::Args;
use clap_complete::{CompletionCandidate, engine::ArgValueCandidates};
use shunt_api::{Failure, FailureCode};
use shunt_inspect::reg::{
    Definitions, Reading, Register, RegisterSource, SelectError, Selector, SourceError, Unreadable, builtin,
    device_tree::DeviceTree, parse_definitions, soc_of_machine, socs,
};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// The chip, such as imx6q, imx8mq, zynqmp or at32ap7000, for the definitions that come with Shunt [default: as the
    /// device tree says].
    #[arg(long, value_name = "CHIP", add = chips())]
    soc: Option<String>,
    /// Definitions of registers: a .dat file of devregs, a CMSIS-SVD file (.svd), or Shunt's own format (.toml). May be
    /// given several times.
    #[arg(long, value_name = "FILE")]
    defs: Vec<PathBuf>,
    /// Where values are: mem (/dev/mem), file:PATH[@ADDRESS], regmap:NAME, ethtool:PORT, dump:PATH (the output of
    /// ethtool -d PORT hex on), or mdio:PORT[@PHY].
    #[arg(long, value_name = "SOURCE", default_value = "mem")]
    from: RegisterSource,
}

/// Definitions with their addresses on this machine, and the source of values.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) definitions: Definitions,
    pub(super) source: RegisterSource,
    /// Blocks that must not be touched, with the reason.
    off: BTreeMap<String, String>,
    has_chip: bool,
}

/// The chips whose definitions come with Shunt, for a shell to complete.
pub(crate) fn chips() -> ArgValueCandidates {
    ArgValueCandidates::new(|| socs().into_iter().map(CompletionCandidate::new).collect())
}

impl TargetArgs {
    /// As the options of `shunt reg` would give it; values are in memory without a source.
    pub(crate) fn new(soc: Option<String>, defs: Vec<PathBuf>, from: Option<RegisterSource>) -> Self {
        Self { soc, defs, from: from.unwrap_or(RegisterSource::Memory("/dev/mem".into())) }
    }

    pub(super) fn resolve(self) -> Result<Target, Failure> {
        if let RegisterSource::Ethtool(port) | RegisterSource::Mdio(port, _) = &self.from
            && !Path::new("/sys/class/net").join(port).exists()
        {
            return Err(no_device(port));
        }
        let tree = DeviceTree::of_this_machine();
        let mut definitions = Definitions::default();
        for path in &self.defs {
            let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
            let text = String::from_utf8(bytes).map_err(|error| {
                let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count()
                    + 1;
                bad_file(path, format!("line {line}: not UTF-8"))
            })?;
            let all = parse_definitions(path, &text).map_err(|problems| bad_file(path, problems))?;
            definitions.extend(all);
        }
        let found = || tree.as_ref().and_then(soc_of_machine);
        let soc = self.soc.clone().or_else(|| if self.defs.is_empty() { found() } else { None });
        if let Some(soc) = &soc {
            if !socs().contains(soc) {
                let known = socs().join(", ");
                return Err(usage(format!(
                    "--soc {soc}: no definitions; known are {known}; for another chip, use --defs"
                )));
            }
            definitions.extend(of_chip(soc)?);
        }
        let off = match &tree {
            Some(tree) => definitions.locate(tree).into_iter().collect(),
            None => BTreeMap::new(),
        };
        let has_chip = soc.is_some() || !self.defs.is_empty();
        if soc.as_deref() != Some("mdio") {
            definitions.extend(of_chip("mdio")?);
        }
        Ok(Target { definitions, source: self.from, off, has_chip })
    }
}

fn of_chip(soc: &str) -> Result<Definitions, Failure> {
    builtin(soc).map_err(|problems| bad_config(format!("definitions of {soc}: {problems}")))
}

impl Target {
    /// Whether the source has registers of this kind.
    pub(super) fn reaches(&self, register: &Register) -> bool {
        let bus = self.definitions.block(register).map(|block| block.bus).unwrap_or_default();
        bus == self.source.bus()
    }

    /// Fails if a register that was named does not exist. The flag says whether a pattern was typed.
    pub(super) fn checked(&self, typed: Vec<Selector>) -> Result<Vec<(Selector, bool)>, Failure> {
        for selector in &typed {
            selector.select(&self.definitions).map_err(|error| self.not_found(error))?;
        }
        Ok(typed
            .into_iter()
            .map(|selector| (selector.is_pattern(), selector))
            .map(|(is, one)| (one, is))
            .collect())
    }

    pub(super) fn not_found(&self, error: SelectError) -> Failure {
        let hint = match (&error, self.has_chip) {
            (SelectError::None { .. }, false) => {
                "; unknown chip: no device tree names it; give --soc CHIP or --defs FILE"
            }
            _ => "",
        };
        usage(format!("{error}{hint}"))
    }

    /// The reason why a register must not be accessed; None if it may be.
    pub(super) fn refusal(&self, register: &Register) -> Option<&String> {
        if !matches!(self.source, RegisterSource::Memory(_)) {
            return None;
        }
        self.off.get(register.block.as_ref()?)
    }

    /// Reads registers, except those of blocks that are off.
    pub(super) fn read(&self, registers: &[&Register]) -> Result<Vec<Reading>, Failure> {
        let on: Vec<&Register> =
            registers.iter().filter(|register| self.refusal(register).is_none()).copied().collect();
        let values = if on.is_empty() {
            Vec::new()
        } else {
            self.source.read(&self.definitions, &on).map_err(source_failed)?
        };
        let mut values = values.into_iter();
        let reading = |register: &&Register| match self.refusal(register) {
            Some(why) => Reading::new(register, Err(why.clone())),
            None => {
                let value = values.next().unwrap_or_else(|| Err(Unreadable("not read".to_owned())));
                Reading::new(register, value.map_err(|why| why.0))
            }
        };
        Ok(registers.iter().map(reading).collect())
    }
}

pub(super) fn source_failed(error: SourceError) -> Failure {
    let code = match &error {
        SourceError::File { error, .. } => match error.kind() {
            io::ErrorKind::PermissionDenied => FailureCode::NotRoot,
            _ => FailureCode::BadConfig,
        },
        SourceError::Dump { .. } => FailureCode::BadConfig,
        _ => FailureCode::Usage,
    };
    Failure::new(code, error.to_string())
}

/// The pattern that matches all registers.
pub(super) fn everything() -> Selector {
    // A pattern of one star is always valid.
    "*".parse().unwrap_or_else(|_| unreachable!())
}

/// 0x, 0b or decimal, with `_` between digits.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let radix =
        |prefix: &str, radix| digits.strip_prefix(prefix).map(|digits| u64::from_str_radix(digits, radix));
    let value = radix("0x", 16).or_else(|| radix("0b", 2)).unwrap_or_else(|| digits.parse());
    value.map_err(|_| "expected a number of up to 64 bits: 0x05ee0264, 0b101 or 1518".to_owned())
}
