//! Instances: several daemons on one machine, each with its control socket and log.

use crate::failure::{Failure, FailureCode};
use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The environment variable with the directory of control sockets and logs.
pub const RUNTIME_DIR_VARIABLE: &str = "SHUNT_RUNTIME_DIR";

/// The environment variable with the directory of what an instance keeps across restarts.
pub const STATE_DIR_VARIABLE: &str = "SHUNT_STATE_DIR";

/// The name of an instance: 1 to 32 characters of `a-z`, `0-9`, `_` and `-`, so that it is a valid file name
/// everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(String);

/// The directory of control sockets and logs: the value of [`RUNTIME_DIR_VARIABLE`], or `/run/shunt` if it is not set
/// or empty.
pub fn runtime_dir(variable: Option<OsString>) -> PathBuf {
    variable.filter(|dir| !dir.is_empty()).map_or_else(|| PathBuf::from("/run/shunt"), PathBuf::from)
}

/// The directory of what instances keep: the value of [`STATE_DIR_VARIABLE`]; if it is not set or empty, that of
/// [`RUNTIME_DIR_VARIABLE`]; if neither is, `/var/lib/shunt`.
pub fn state_dir(state: Option<OsString>, runtime: Option<OsString>) -> PathBuf {
    let set = [state, runtime].into_iter().flatten().find(|dir| !dir.is_empty());
    set.map_or_else(|| PathBuf::from("/var/lib/shunt"), PathBuf::from)
}

impl Instance {
    /// The name, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of the control socket. `runtime_dir` is the directory that [`runtime_dir`] returns.
    pub fn socket_path(&self, runtime_dir: &Path) -> PathBuf {
        runtime_dir.join(format!("{self}.sock"))
    }

    /// The path of the file with the rules of `shunt off`. `state_dir` is the directory that [`state_dir`] returns.
    pub fn off_path(&self, state_dir: &Path) -> PathBuf {
        state_dir.join(format!("{self}.off"))
    }

    /// The path of the file with the history. `state_dir` is the directory that [`state_dir`] returns.
    pub fn history_path(&self, state_dir: &Path) -> PathBuf {
        state_dir.join(format!("{self}.history"))
    }

    /// The path of the file with the ledger of hosts. `state_dir` is the directory that [`state_dir`] returns.
    pub fn usage_path(&self, state_dir: &Path) -> PathBuf {
        state_dir.join(format!("{self}.usage"))
    }

    /// The path of the file with what the fast path saves. `state_dir` is the directory that [`state_dir`] returns.
    pub fn savings_path(&self, state_dir: &Path) -> PathBuf {
        state_dir.join(format!("{self}.savings"))
    }

    /// The path of the log, to which a daemon in the background writes its standard error.
    pub fn log_path(&self, runtime_dir: &Path) -> PathBuf {
        runtime_dir.join(format!("{self}.log"))
    }
}

impl Default for Instance {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Instance {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if (1..=32).contains(&name.len()) && name.bytes().all(plain) {
            Ok(Self(name.to_owned()))
        } else {
            Err(Failure::new(
                FailureCode::Usage,
                format!("`{name}` is not an instance name; use 1 to 32 of a-z, 0-9, _ and -"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_valid_file_name() {
        for good in ["default", "x", "a-b_9", &"z".repeat(32)] {
            assert_eq!(good.parse::<Instance>().unwrap().as_str(), good);
        }
        for bad in ["", "A", "a/b", "..", "a b", "ä", &"z".repeat(33)] {
            assert_eq!(bad.parse::<Instance>().unwrap_err().code, FailureCode::Usage, "{bad}");
        }
    }

    #[test]
    fn each_instance_has_its_own_files_in_the_runtime_directory() {
        let name: Instance = "lab".parse().unwrap();
        assert_eq!(name.socket_path(&runtime_dir(None)), Path::new("/run/shunt/lab.sock"));
        assert_eq!(name.log_path(&runtime_dir(Some("/tmp/x".into()))), Path::new("/tmp/x/lab.log"));
        assert_eq!(runtime_dir(Some(OsString::new())), Path::new("/run/shunt"));
        let state = |state: Option<&str>, runtime: Option<&str>| {
            name.off_path(&state_dir(state.map(Into::into), runtime.map(Into::into)))
        };
        assert_eq!(state(None, None), Path::new("/var/lib/shunt/lab.off"));
        assert_eq!(state(Some(""), Some("/tmp/x")), Path::new("/tmp/x/lab.off"));
        assert_eq!(state(Some("/tmp/y"), Some("/tmp/x")), Path::new("/tmp/y/lab.off"));
    }
}
