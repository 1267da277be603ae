//! Which Shunt of several on one machine, and where it keeps its socket and log.

use crate::failure::{Failure, FailureCode};
use std::{env, fmt, path::PathBuf, str::FromStr};

/// The name of an instance: 1 to 32 of `a-z`, `0-9`, `_`, `-`, so that it is a file name everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(String);

/// Where sockets and logs are: `$SHUNT_RUNTIME_DIR`, or `/run/shunt`.
pub fn runtime_dir() -> PathBuf {
    env::var_os("SHUNT_RUNTIME_DIR")
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| PathBuf::from("/run/shunt"), PathBuf::from)
}

impl Instance {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The control socket.
    pub fn socket_path(&self) -> PathBuf {
        runtime_dir().join(format!("{self}.sock"))
    }

    /// Where a daemon in the background writes what it would say on its standard error.
    pub fn log_path(&self) -> PathBuf {
        runtime_dir().join(format!("{self}.log"))
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
    fn a_name_is_a_plain_file_name() {
        for good in ["default", "x", "a-b_9", &"z".repeat(32)] {
            assert_eq!(good.parse::<Instance>().unwrap().as_str(), good);
        }
        for bad in ["", "A", "a/b", "..", "a b", "ä", &"z".repeat(33)] {
            assert_eq!(bad.parse::<Instance>().unwrap_err().code, FailureCode::Usage, "{bad}");
        }
    }

    #[test]
    fn instances_have_files_of_their_own() {
        let name: Instance = "lab".parse().unwrap();
        assert!(name.socket_path().ends_with("lab.sock"));
        assert!(name.log_path().ends_with("lab.log"));
    }
}
