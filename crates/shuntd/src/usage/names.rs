//! Names of hosts, from the files of this machine.

use shunt_api::HostNames;
use std::{
    fs::File,
    io::{self, Read},
};

/// Reads the files that exist. A file that cannot be read has no names.
pub(super) fn names_of_this_machine() -> HostNames {
    HostNames::read(|path| read_start(path).unwrap_or_default())
}

fn read_start(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(HostNames::FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
