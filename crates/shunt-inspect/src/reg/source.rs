//! Reads and writes registers: memory, files, debugfs, ethtool and MDIO.

use super::{
    Bus, Definitions, EthtoolLayout, Register,
    dump::{parse_ethtool_dump, parse_regmap},
    mdio::MdioBus,
    memory,
};
use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
};

const DEBUGFS_REGMAP: &str = "/sys/kernel/debug/regmap";

/// A source of register values, in the form of `--from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterSource {
    /// Loads and stores by physical address: `mem`, or `mem:PATH` for another file than `/dev/mem`.
    Memory(PathBuf),
    /// A file with an image of a block, or of the memory from an address on: `file:PATH[@ADDRESS]`.
    File(PathBuf, Option<u64>),
    /// A regmap in debugfs: `regmap:NAME`, or a path to a copy of its `registers`.
    Regmap(PathBuf),
    /// The dump of a driver: `ethtool:PORT`.
    Ethtool(String),
    /// A file with the output of `ethtool -d PORT hex on`: `dump:PATH`.
    Dump(PathBuf),
    /// A PHY on the MDIO bus of a port: `mdio:PORT[@ADDRESS]`.
    Mdio(String, Option<u16>),
}

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A file cannot be opened or read.
    #[error("{path}: {error}{hint}")]
    File {
        /// Path of the file.
        path: String,
        /// The error of the system call.
        error: io::Error,
        /// The remedy, to follow the error; may be empty.
        hint: &'static str,
    },
    /// A dump cannot be parsed.
    #[error("{from}: {error}")]
    Dump {
        /// Path or port that the dump came from.
        from: String,
        /// The error in the dump.
        error: super::DumpError,
    },
    /// ethtool failed.
    #[error("ethtool -d {port}: {message}")]
    Ethtool {
        /// Name of the port.
        port: String,
        /// What ethtool printed.
        message: String,
    },
    /// The source cannot be written.
    #[error("{0} can only be read; `mem` and `mdio:PORT` can be written")]
    ReadOnly(String),
}

/// Why a register was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// Values in memory, by the way in which registers find theirs.
enum Image {
    /// Bytes from this address on; None for those of a block, from its base on.
    Bytes(Vec<u8>, Option<u64>),
    /// Bytes in the layout of a driver's `ethtool -d`.
    Driver(Vec<u8>),
    /// Values by offset.
    Values(BTreeMap<u64, Option<u64>>),
}

impl FromStr for RegisterSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let (access, at) = match rest.rsplit_once('@') {
            Some((access, at)) => (access, Some(at)),
            None => (rest, None),
        };
        let number = |text: &str| {
            let digits = text.strip_prefix("0x");
            digits.map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
        };
        let named = |what: &str| match rest.is_empty() {
            true => Err(format!("expected {kind}:{what}")),
            false => Ok(rest.to_owned()),
        };
        match kind {
            "mem" if rest.is_empty() => Ok(Self::Memory("/dev/mem".into())),
            "mem" => Ok(Self::Memory(rest.into())),
            "file" => {
                named("PATH")?;
                let base =
                    at.map(|at| number(at).ok_or_else(|| format!("`{at}` is not an address"))).transpose()?;
                Ok(Self::File(access.into(), base))
            }
            "regmap" => {
                let name = named("NAME")?;
                let path = if name.contains('/') {
                    name.into()
                } else {
                    Path::new(DEBUGFS_REGMAP).join(name).join("registers")
                };
                Ok(Self::Regmap(path))
            }
            "ethtool" => Ok(Self::Ethtool(named("PORT")?)),
            "dump" => Ok(Self::Dump(named("PATH")?.into())),
            "mdio" => {
                named("PORT")?;
                let phy = at.map(|at| {
                    let phy = number(at).and_then(|phy| u16::try_from(phy).ok()).filter(|phy| *phy < 32);
                    phy.ok_or_else(|| format!("`{at}` is not the address of a PHY, 0 to 31"))
                });
                Ok(Self::Mdio(access.to_owned(), phy.transpose()?))
            }
            _ => Err(
                "expected mem, file:PATH[@ADDRESS], regmap:NAME, ethtool:PORT, dump:PATH or mdio:PORT[@PHY]"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for RegisterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(path) if path == Path::new("/dev/mem") => write!(f, "mem"),
            Self::Memory(path) => write!(f, "mem:{}", path.display()),
            Self::File(path, None) => write!(f, "file:{}", path.display()),
            Self::File(path, Some(base)) => write!(f, "file:{}@{base:#x}", path.display()),
            Self::Regmap(path) => write!(f, "regmap:{}", path.display()),
            Self::Ethtool(port) => write!(f, "ethtool:{port}"),
            Self::Dump(path) => write!(f, "dump:{}", path.display()),
            Self::Mdio(port, None) => write!(f, "mdio:{port}"),
            Self::Mdio(port, Some(phy)) => write!(f, "mdio:{port}@{phy}"),
        }
    }
}

impl RegisterSource {
    /// Whether registers are read from the device itself, so that reading may have side effects.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Mdio(..))
    }

    /// The kind of bus that the source gives access to.
    pub fn bus(&self) -> Bus {
        if matches!(self, Self::Mdio(..)) { Bus::Mdio } else { Bus::Memory }
    }

    /// Reads registers. Each result is the value or the reason why there is none.
    ///
    /// # Errors
    /// If the source as a whole cannot be read: no such file, no permission, an invalid dump.
    pub fn read(
        &self,
        all: &Definitions,
        registers: &[&Register],
    ) -> Result<Vec<Result<u64, Unreadable>>, SourceError> {
        let from = |bytes| Ok(Image::Bytes(bytes, None));
        let image = match self {
            Self::Memory(path) => return read_memory(path, all, registers),
            Self::Mdio(port, phy) => return self.read_mdio(port, *phy, registers),
            Self::File(path, None) => from(self.file(path)?)?,
            Self::File(path, base) => Image::Bytes(self.file(path)?, *base),
            Self::Regmap(path) => {
                let text = String::from_utf8_lossy(&self.file(path)?).into_owned();
                Image::Values(parse_regmap(&text).map_err(|error| self.wrong(error))?)
            }
            Self::Dump(path) => {
                let text = String::from_utf8_lossy(&self.file(path)?).into_owned();
                Image::Driver(parse_ethtool_dump(&text).map_err(|error| self.wrong(error))?)
            }
            Self::Ethtool(port) => {
                let text = ethtool_dump(port)?;
                Image::Driver(parse_ethtool_dump(&text).map_err(|error| self.wrong(error))?)
            }
        };
        Ok(registers.iter().map(|register| image.value(all, register)).collect())
    }

    /// Writes a register.
    ///
    /// # Errors
    /// If the source is read-only, or cannot be opened. The inner result is the outcome of the write itself.
    pub fn write(
        &self,
        all: &Definitions,
        register: &Register,
        value: u64,
    ) -> Result<Result<(), Unreadable>, SourceError> {
        match self {
            Self::Memory(path) => {
                let Some(address) = all.address(register) else {
                    return Ok(Err(Unreadable("its address is beyond 64 bits".to_owned())));
                };
                let done = memory::poke(path, (address, register.width), value)
                    .map_err(|error| file_error(path, error))?;
                Ok(done.map_err(Unreadable))
            }
            Self::Mdio(port, phy) => {
                let bus = MdioBus::open(port, *phy).map_err(|error| mdio_error(port, error))?;
                let done = bus.write(register.offset as u16, value as u16);
                Ok(done.map_err(|error| Unreadable(error.to_string())))
            }
            _ => Err(SourceError::ReadOnly(self.to_string())),
        }
    }

    fn file(&self, path: &Path) -> Result<Vec<u8>, SourceError> {
        fs::read(path).map_err(|error| file_error(path, error))
    }

    fn wrong(&self, error: super::DumpError) -> SourceError {
        SourceError::Dump { from: self.to_string(), error }
    }

    fn read_mdio(
        &self,
        port: &str,
        phy: Option<u16>,
        registers: &[&Register],
    ) -> Result<Vec<Result<u64, Unreadable>>, SourceError> {
        let bus = MdioBus::open(port, phy).map_err(|error| mdio_error(port, error))?;
        let read = |register: &&Register| {
            let number = u16::try_from(register.offset).ok().filter(|number| *number < 32);
            let number = number.ok_or_else(|| Unreadable("not a register of a PHY (0 to 31)".to_owned()))?;
            bus.read(number).map(u64::from).map_err(|error| Unreadable(error.to_string()))
        };
        Ok(registers.iter().map(read).collect())
    }
}

impl Image {
    fn value(&self, all: &Definitions, register: &Register) -> Result<u64, Unreadable> {
        let (bytes, at) = match self {
            Self::Values(values) => {
                return match values.get(&register.offset) {
                    Some(Some(value)) => Ok(*value),
                    Some(None) => Err(Unreadable("the kernel could not read it".to_owned())),
                    None => Err(Unreadable("not in the dump".to_owned())),
                };
            }
            Self::Bytes(bytes, None) => (bytes, Some(register.offset)),
            Self::Bytes(bytes, Some(base)) => {
                (bytes, all.address(register).and_then(|at| at.checked_sub(*base)))
            }
            Self::Driver(bytes) => (bytes, driver_offset(all, register)),
        };
        let missing = || Unreadable("not in the dump".to_owned());
        let at = usize::try_from(at.ok_or_else(missing)?).map_err(|_| missing())?;
        let end = at.checked_add(register.bytes() as usize).ok_or_else(missing)?;
        let value = bytes.get(at..end).ok_or_else(missing)?;
        Ok(value.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }
}

/// Offset of a register in the driver's dump.
fn driver_offset(all: &Definitions, register: &Register) -> Option<u64> {
    let block = register.block.as_ref()?;
    match &all.blocks.get(block)?.ethtool {
        None | Some(EthtoolLayout::Offsets) => Some(register.offset),
        Some(EthtoolLayout::Words(words)) => {
            let own = register.name.strip_prefix(&format!("{block}_"))?;
            Some(words.iter().position(|word| word == own)? as u64 * 4)
        }
    }
}

fn read_memory(
    path: &Path,
    all: &Definitions,
    registers: &[&Register],
) -> Result<Vec<Result<u64, Unreadable>>, SourceError> {
    let accesses: Vec<Option<memory::Access>> = registers
        .iter()
        .map(|register| {
            Some((all.address(register).filter(|at| at % register.bytes() == 0)?, register.width))
        })
        .collect();
    let known: Vec<memory::Access> = accesses.iter().flatten().copied().collect();
    let mut values = memory::peek(path, &known).map_err(|error| file_error(path, error))?.into_iter();
    let value = |access: Option<memory::Access>| match access {
        Some(_) => values.next().unwrap_or_else(|| Err("not read".to_owned())).map_err(Unreadable),
        None => Err(Unreadable("its address is not aligned to its width".to_owned())),
    };
    Ok(accesses.into_iter().map(value).collect())
}

fn file_error(path: &Path, error: io::Error) -> SourceError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "; this needs root, and CAP_SYS_RAWIO for /dev/mem",
        io::ErrorKind::NotFound if path.starts_with("/sys/kernel/debug") => {
            "; mount debugfs (mount -t debugfs none /sys/kernel/debug), and see its regmap directory for the names"
        }
        io::ErrorKind::NotFound if path == Path::new("/dev/mem") => "; the kernel needs CONFIG_DEVMEM",
        _ => "",
    };
    SourceError::File { path: path.display().to_string(), error, hint }
}

fn mdio_error(port: &str, error: io::Error) -> SourceError {
    let hint = match error.raw_os_error() {
        Some(nix::libc::EOPNOTSUPP | nix::libc::EINVAL) => "; its driver gives no access to a PHY",
        Some(nix::libc::EPERM) => "; this needs root",
        _ => "",
    };
    SourceError::File { path: port.to_owned(), error, hint }
}

fn ethtool_dump(port: &str) -> Result<String, SourceError> {
    let failed = |message: String| SourceError::Ethtool { port: port.to_owned(), message };
    let output = Command::new("ethtool").args(["-d", port, "hex", "on"]).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| failed(format!("{error}; install ethtool, or use another --from")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(failed(text.trim().lines().last().unwrap_or("failed").to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests;
