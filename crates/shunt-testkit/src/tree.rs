//! The source tree and the programs built in it, found at run time: somebody may have moved or copied the tree together
//! with its target directory.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Root of the source tree: the nearest directory with `Cargo.lock` above the package that cargo runs, above this
/// program, or above the current directory. Without any, the current directory.
#[must_use]
pub fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let places = [package, env::current_exe().ok(), env::current_dir().ok()];
    let above = |place: PathBuf| {
        place.ancestors().find(|directory| directory.join("Cargo.lock").is_file()).map(Path::to_owned)
    };
    places.into_iter().flatten().find_map(above).unwrap_or_else(|| PathBuf::from("."))
}

/// Cargo's target directory.
#[must_use]
pub fn target() -> PathBuf {
    env::var("CARGO_TARGET_DIR").map_or_else(|_| root().join("target"), PathBuf::from)
}

/// Path of a program that `make build` has built, in `target/release` or in the directory that `SHUNT_BIN_DIR` names.
///
/// # Errors
/// If the program has not been built.
pub fn built(name: &str) -> io::Result<PathBuf> {
    let directory = env::var("SHUNT_BIN_DIR").map_or_else(|_| target().join("release"), PathBuf::from);
    let path = directory.join(name);
    path.canonicalize().map_err(|e| {
        let hint = if e.kind() == io::ErrorKind::NotFound { "; build it with `make build`" } else { "" };
        io::Error::new(e.kind(), format!("{}: {e}{hint}", path.display()))
    })
}

/// Builds `shunt` and `shuntd` in release mode and returns the path of one of them. Builds nothing if `SHUNT_BIN_DIR`
/// names a directory with programs.
///
/// # Errors
/// If cargo fails.
pub fn build(name: &str) -> io::Result<PathBuf> {
    if env::var_os("SHUNT_BIN_DIR").is_none() {
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--locked", "-p", "shunt", "-p", "shuntd"]);
        let status = command.current_dir(root()).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("cargo build: {status}")));
        }
    }
    built(name)
}
