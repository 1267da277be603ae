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
    collections::BTreeSet,
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

/// The rules at the time of a read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegacyRules {
    /// The statements that forwarded packets may meet.
    pub statements: Vec<Statement>,
    /// A number that is another one if any rule differs. Other processes find the same number.
    pub digest: u64,
    /// The tables that have changed since the last read, as `iptables -t filter`.
    pub changed: Vec<String>,
}

impl LegacyIptables {
    /// Returns the rules of the calling thread's network namespace if any of them has changed since the last call;
    /// `None` if not. The first call always returns them.
    ///
    /// # Errors
    /// When the rules cannot be read.
    pub fn read_if_changed(&mut self) -> Result<Option<LegacyRules>, Error> {
        let before = self.seen.take();
        let mut tables = Vec::new();
        for family in [Family::V4, Family::V6] {
            for name in family.tables() {
                // Skips a table that has gone meanwhile. `iptables -L` creates a table that does nothing.
                tables.extend(self.read(family, name)?.filter(|table| !table.is_empty()));
            }
        }
        let has_changed = before.as_ref() != Some(&tables);
        let rules = has_changed.then(|| rules(&tables, before.as_deref().unwrap_or_default())).transpose()?;
        self.seen = Some(tables);
        Ok(rules)
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

/// The rules of these tables, which were others before.
fn rules(tables: &[Table], before: &[Table]) -> Result<LegacyRules, Error> {
    let found: Result<Vec<_>, _> = tables.iter().map(Table::statements).collect();
    let differing = |these: &[Table], others: &[Table]| -> BTreeSet<String> {
        these.iter().filter(|table| !others.contains(table)).map(Table::command).collect()
    };
    let changed = &differing(tables, before) | &differing(before, tables);
    Ok(LegacyRules {
        statements: found?.concat(),
        digest: digest(tables),
        changed: changed.into_iter().collect(),
    })
}

/// FNV-1a.
fn digest(tables: &[Table]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let of_table = |hash: u64, table: &Table| {
        let (command, Table { info, entries, .. }) = (table.command(), table);
        command.as_bytes().iter().chain(&info.0).chain(entries).fold(hash, step)
    };
    tables.iter().fold(0xcbf2_9ce4_8422_2325, of_table)
}

impl Table {
    /// The command that lists the table.
    fn command(&self) -> String {
        format!("{} -t {}", self.family.command(), self.name)
    }

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
