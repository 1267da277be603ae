//! The configuration: a file, overridden by options of the command line.

use nix::{fcntl::OFlag, sys::stat::SFlag};
use shunt_api::{Config, DaemonArguments, EngineChoice, Failure, FailureCode, cannot_read};
use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// A larger file is no configuration.
const BYTES_MAX: u64 = 1 << 20;
/// The longest description of what is wrong with the file, in characters.
const WHY_CHARS: usize = 400;
/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSource {
    /// The file that was named; the default file if none was.
    named: Option<PathBuf>,
    engine: Option<EngineChoice>,
    ports: Vec<String>,
    external_ports: Vec<String>,
    core: Option<u32>,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl ConfigSource {
    /// Checks the options.
    ///
    /// # Errors
    /// If an engine or a port cannot be one.
    pub(crate) fn from_arguments(arguments: &DaemonArguments) -> Result<Self, Failure> {
        let usage = |why: String| Failure::new(FailureCode::Usage, why);
        let engine = arguments.engine.as_ref().map(|engine| engine.parse().map_err(usage)).transpose()?;
        Config::check_ports(&arguments.ports).map_err(|why| usage(format!("--port: {why}")))?;
        Config::check_ports(&arguments.external_ports)
            .map_err(|why| usage(format!("--external-port: {why}")))?;
        Ok(Self {
            named: arguments.config.clone(),
            engine,
            ports: arguments.ports.clone(),
            external_ports: arguments.external_ports.clone(),
            core: arguments.core,
        })
    }

    /// The same options with another file.
    pub(crate) fn with_file(&self, path: PathBuf) -> Self {
        Self { named: Some(path), ..self.clone() }
    }

    /// The configuration for a start. The defaults apply if the default file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read, or is wrong.
    pub(crate) fn load(&self) -> Result<Config, Failure> {
        let text = std::fs::read_to_string(self.path());
        self.parse(text.map_err(Trouble::from).map_err(|trouble| self.named(&trouble)))
    }

    /// The configuration as the file has it now, and the state of the file; `None` for a default file that does not
    /// exist. Half of a file that is being written is not read.
    ///
    /// # Errors
    /// As [`Self::load`], and if the file is no regular one, or does not stop changing.
    pub(crate) fn load_again(&self) -> Result<(Config, Option<FileState>), Failure> {
        let settled = read_settled(self.path(), &mut |_| ());
        let state = settled.as_ref().ok().map(|(_, state)| *state);
        let text = settled.map(|(text, _)| text).map_err(|trouble| self.named(&trouble));
        Ok((self.parse(text)?, state))
    }

    /// The state of the file; `None` if there is none.
    pub(crate) fn state(&self) -> Option<FileState> {
        std::fs::metadata(self.path()).ok().map(|file| FileState::of(&file))
    }

    pub(crate) fn path(&self) -> &Path {
        self.named.as_deref().unwrap_or(Path::new(Config::PATH))
    }

    /// The keys that options override.
    pub(crate) fn overridden(&self) -> Vec<String> {
        let keys = [
            (self.engine.is_some(), "engine"),
            (!self.external_ports.is_empty(), "external_ports"),
            (self.core.is_some(), "external_core"),
            (!self.ports.is_empty(), "ports"),
        ];
        keys.iter().filter(|(is_given, _)| *is_given).map(|(_, key)| (*key).to_owned()).collect()
    }

    fn parse(&self, text: Result<String, (io::ErrorKind, Failure)>) -> Result<Config, Failure> {
        let mut config = match text {
            Ok(text) => Config::parse(&text).map_err(|why| self.bad(&why))?,
            Err((io::ErrorKind::NotFound, _)) if self.named.is_none() => Config::default(),
            Err((_, failure)) => return Err(failure),
        };
        config.engine = self.engine.unwrap_or(config.engine);
        if !self.ports.is_empty() {
            config.ports.clone_from(&self.ports);
        }
        if !self.external_ports.is_empty() {
            config.external_ports.clone_from(&self.external_ports);
        }
        config.external_core = self.core.or(config.external_core);
        Ok(config)
    }

    fn named(&self, trouble: &Trouble) -> (io::ErrorKind, Failure) {
        match trouble {
            Trouble::Read(error) => (error.kind(), self.bad(&cannot_read(error))),
            Trouble::Unfit(why) => (io::ErrorKind::Other, self.bad(why)),
        }
    }

    fn bad(&self, why: &str) -> Failure {
        Failure::new(FailureCode::BadConfig, format!("{}: {}", self.path().display(), shortened(why)))
    }
}

/// Leaves out the middle of a long text: a wrong value may be as long as the file, and the history keeps what is wrong.
fn shortened(why: &str) -> String {
    let chars = why.chars().count();
    if chars <= WHY_CHARS {
        return why.to_owned();
    }
    let begin: String = why.chars().take(WHY_CHARS / 2).collect();
    let end: String = why.chars().skip(chars - WHY_CHARS / 2).collect();
    format!("{begin}...{end}")
}

/// Why a file cannot be read.
#[derive(Debug)]
enum Trouble {
    Read(io::Error),
    Unfit(&'static str),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Reads a file that is the same before and after. `between` is called with the number of the attempt after each.
fn read_settled(path: &Path, between: &mut dyn FnMut(usize)) -> Result<(String, FileState), Trouble> {
    for attempt in 0..ATTEMPTS {
        let file = open_regular(path)?;
        let before = FileState::of(&file.metadata()?);
        let mut text = String::new();
        (&file).take(BYTES_MAX).read_to_string(&mut text)?;
        between(attempt);
        // A file that has taken the place of this one counts, too.
        let (same, now) = (FileState::of(&file.metadata()?), FileState::of(&std::fs::metadata(path)?));
        if before == same && before == now && before.bytes == text.len() as u64 {
            return Ok((text, before));
        }
    }
    Err(Trouble::Unfit("the file changed while it was read; reload again when it is complete"))
}

fn open_regular(path: &Path) -> Result<File, Trouble> {
    // Opening a FIFO would wait for its other end.
    let flags = OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
    }
    if SFlag::from_bits_truncate(found.mode()) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(Trouble::Unfit(
            "not a regular file, so it cannot be read again; restart the daemon instead",
        ));
    }
    if found.len() > BYTES_MAX {
        return Err(Trouble::Unfit("larger than 1 MiB"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs;

    fn source(words: &[&str]) -> Result<ConfigSource, Failure> {
        let words = std::iter::once("shuntd").chain(words.iter().copied());
        ConfigSource::from_arguments(&DaemonArguments::parse_from(words))
    }

    #[test]
    fn a_named_file_that_does_not_exist_is_a_failure_with_its_path() {
        let source = source(&["--config", "/nonexistent/shunt.toml"]).unwrap();
        for failure in [source.load().unwrap_err(), source.load_again().unwrap_err()] {
            assert_eq!(failure.code, FailureCode::BadConfig);
            assert!(
                failure.message.starts_with("/nonexistent/shunt.toml: there is no such file"),
                "{failure}"
            );
        }
        assert_eq!(source.state(), None);
    }

    #[test]
    fn a_long_wrong_value_is_not_repeated_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shunt.toml");
        fs::write(&path, format!("engine = \"{}\"", "x".repeat(900_000))).unwrap();
        let failure = source(&["--config", path.to_str().unwrap()]).unwrap().load().unwrap_err();
        assert!(failure.message.chars().count() < 1000, "{failure}");
        assert!(failure.message.contains("engine") && failure.message.contains("auto"), "{failure}");
    }

    #[test]
    fn options_override_the_file_and_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shunt.toml");
        fs::write(&path, "engine = \"xdp\"\nports = [\"a\"]\nidle = \"10s\"").unwrap();
        let file = path.to_str().unwrap();
        let source = source(&["--config", file, "--engine", "tc", "--port", "b"]).unwrap();
        let (config, state) = source.load_again().unwrap();
        assert_eq!((config.engine, config.ports.as_slice()), (EngineChoice::Tc, &["b".to_owned()][..]));
        assert_eq!((source.load().unwrap(), source.state()), (config, state));
        assert_eq!(source.overridden(), ["engine", "ports"]);
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shunt.toml");
        fs::write(&path, "idle = \"10s\"").unwrap();
        // Another file takes its place once.
        let mut replaced = |attempt| {
            if attempt == 0 {
                fs::write(directory.path().join("new"), "idle = \"20s\"").unwrap();
                fs::rename(directory.path().join("new"), &path).unwrap();
            }
        };
        let (text, state) = read_settled(&path, &mut replaced).unwrap();
        assert_eq!((text.as_str(), state), ("idle = \"20s\"", FileState::of(&fs::metadata(&path).unwrap())));
        // It grows and grows.
        let mut grows = |attempt| fs::write(&path, "#".repeat(20 + attempt)).unwrap();
        let Err(Trouble::Unfit(why)) = read_settled(&path, &mut grows) else { panic!() };
        assert!(why.contains("changed while it was read"), "{why}");
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, said) in [
            (fifo.to_str().unwrap(), "not a regular file"),
            ("/dev/zero", "not a regular file"),
            (directory.path().to_str().unwrap(), ": this is a directory: name a file"),
        ] {
            let failure = source(&["--config", path]).unwrap().load_again().unwrap_err();
            assert!(failure.message.contains(said), "{failure}");
        }
        let large = directory.path().join("large");
        fs::write(&large, vec![b'#'; BYTES_MAX as usize + 1]).unwrap();
        let failure = source(&["--config", large.to_str().unwrap()]).unwrap().load_again().unwrap_err();
        assert!(failure.message.ends_with("larger than 1 MiB"), "{failure}");
    }
}
