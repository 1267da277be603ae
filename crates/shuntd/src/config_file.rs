//! Reads the configuration file.

use shunt_api::{Config, Failure, FailureCode};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Reads the named file, or the default file if none is named. The defaults apply if the default file does not exist.
pub(crate) fn load(named: Option<&Path>) -> Result<Config, Failure> {
    let path = named.map_or_else(|| PathBuf::from(Config::PATH), Path::to_path_buf);
    let bad = |why: String| Failure::new(FailureCode::BadConfig, format!("{}: {why}", path.display()));
    match fs::read_to_string(&path) {
        Ok(text) => Config::parse(&text).map_err(bad),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => Err(bad(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_that_does_not_exist_is_a_failure_with_its_path() {
        let failure = load(Some(Path::new("/nonexistent/shunt.toml"))).unwrap_err();
        assert_eq!(failure.code, FailureCode::BadConfig);
        assert!(failure.message.starts_with("/nonexistent/shunt.toml: No such file"), "{failure}");
    }
}
