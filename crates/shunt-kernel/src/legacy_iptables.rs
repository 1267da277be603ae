//! The rules of legacy iptables and ip6tables. They can be read only by a socket option, and the kernel reports no
//! changes of them.

mod entries;
mod sockopt;

#[cfg(test)]
mod tests;

use crate::Error;
use entries::Info;
use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};
use shunt_core::Statement;
use sockopt::Request;
use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

/// How often a table is read again because it changed meanwhile.
const ATTEMPTS: usize = 16;

/// iptables or ip6tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn command(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }

    /// The tables that exist. Reading another table would make the kernel create it.
    fn tables(self) -> Vec<String> {
        let file = match self {
            Self::V4 => "/proc/thread-self/net/ip_tables_names",
            Self::V6 => "/proc/thread-self/net/ip6_tables_names",
        };
        // The file does not exist if the kernel lacks legacy iptables.
        fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// A table as it was read, with all counters set to 0.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    family: Family,
    name: String,
    info: Info,
    entries: Vec<u8>,
}

/// The rules of legacy iptables in one network namespace.
#[derive(Debug, Default)]
pub struct LegacyIptables {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
    /// The tables of the last read; `None` if it failed.
    seen: Option<Vec<Table>>,
}

impl LegacyIptables {
    /// Returns the statements that forwarded packets may meet, if any rule of the calling thread's network namespace
    /// has changed since the last call; `None` if not. The first call always returns them.
    ///
    /// # Errors
    /// When the rules cannot be read.
    pub fn read_if_changed(&mut self) -> Result<Option<Vec<Statement>>, Error> {
        let before = self.seen.take();
        let mut tables = Vec::new();
        for family in [Family::V4, Family::V6] {
            for name in family.tables() {
                // Skips a table that has gone meanwhile.
                tables.extend(self.read(family, name)?);
            }
        }
        let changed = (before.as_ref() != Some(&tables)).then(|| {
            let found: Result<Vec<_>, _> = tables.iter().map(Table::statements).collect();
            found.map(|found| found.concat())
        });
        let changed = changed.transpose()?;
        self.seen = Some(tables);
        Ok(changed)
    }

    fn read(&mut self, family: Family, name: String) -> Result<Option<Table>, Error> {
        let failed = |source| Error::Legacy { command: family.command(), table: name.clone(), source };
        let socket = self.socket(family).map_err(|e| failed(e.into()))?;
        for _ in 0..ATTEMPTS {
            let mut info = Info::request(&name);
            match sockopt::get(socket.as_fd(), family, Request::Info, &mut info.0) {
                Err(e) if e.raw_os_error() == Some(Errno::ENOENT as i32) => return Ok(None),
                answer => answer.map_err(failed)?,
            }
            let mut entries = entries::entries_request(&name, info.size());
            match sockopt::get(socket.as_fd(), family, Request::Entries, &mut entries) {
                // The table has another size by now.
                Err(e) if e.raw_os_error() == Some(Errno::EAGAIN as i32) => {}
                answer => {
                    answer.map_err(failed)?;
                    let entries = entries.split_off(entries::HEAD_BYTES);
                    let mut table = Table { family, name: name.clone(), info, entries };
                    table.clear_counters().ok_or_else(|| failed(malformed()))?;
                    return Ok(Some(table));
                }
            }
        }
        Err(failed(io::Error::other("the table changed during every attempt to read it")))
    }

    fn socket(&mut self, family: Family) -> Result<&OwnedFd, Errno> {
        let (slot, domain) = match family {
            Family::V4 => (&mut self.v4, AddressFamily::Inet),
            Family::V6 => (&mut self.v6, AddressFamily::Inet6),
        };
        match slot {
            Some(socket) => Ok(socket),
            // Any socket of the family will do; no packets are sent or received.
            None => Ok(slot.insert(socket(domain, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)),
        }
    }
}

impl Table {
    fn statements(&self) -> Result<Vec<Statement>, Error> {
        let command = self.family.command();
        entries::statements(self).ok_or_else(|| Error::Legacy {
            command,
            table: self.name.clone(),
            source: malformed(),
        })
    }
}

pub use entries::INFO_BYTES;

/// Parses a table from bytes: the family, the kernel's description of the table, and its entries.
pub(crate) fn parse(bytes: &[u8]) {
    let Some((&family, rest)) = bytes.split_first() else { return };
    let Some((info, entries)) = rest.split_first_chunk() else { return };
    let family = if family & 1 == 0 { Family::V4 } else { Family::V6 };
    let info = Info(*info);
    let mut table = Table { family, name: "filter".to_owned(), info, entries: entries.to_vec() };
    let _ = (table.clear_counters(), entries::statements(&table));
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "unexpected format of its entries")
}
