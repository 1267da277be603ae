//! Where the package and its program are now: somebody may have moved the tree together with its target directory.

use std::{env, path::PathBuf};

/// The directory of this package.
pub fn package() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this test").into()
}

/// The program `shunt`, in the directory above this test's.
pub fn shunt() -> PathBuf {
    env::current_exe().expect("/proc").parent().expect("a directory").with_file_name("shunt")
}
