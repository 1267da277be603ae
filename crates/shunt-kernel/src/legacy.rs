//! The rules of legacy iptables and ip6tables, which only a socket option gives, and whose changes nobody tells.

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
use sockopt::Question;
use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

/// So often is a table asked for that changes while it is read.
const ATTEMPTS: usize = 16;

/// One of the two.
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

    /// The tables that exist. The kernel makes one when it is first looked at, so no other may be asked for.
    fn tables(self) -> Vec<String> {
        let file = match self {
            Self::V4 => "/proc/thread-self/net/ip_tables_names",
            Self::V6 => "/proc/thread-self/net/ip6_tables_names",
        };
        // Without legacy iptables in the kernel there is no file.
        fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// A table as it was read, with all counters at 0.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    family: Family,
    name: String,
    info: Info,
    entries: Vec<u8>,
}

/// The rules of legacy iptables in one network namespace.
#[derive(Debug, Default)]
pub struct Legacy {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
    /// None where the last look failed.
    seen: Option<Vec<Table>>,
}

impl Legacy {
    /// What packets may meet on their way through the router, where any rule of the calling thread's network namespace
    /// is another than at the last look. That of the first look is always told.
    ///
    /// # Errors
    /// When the kernel does not give the rules.
    pub fn look(&mut self) -> Result<Option<Vec<Statement>>, Error> {
        let before = self.seen.take();
        let mut tables = Vec::new();
        for family in [Family::V4, Family::V6] {
            for name in family.tables() {
                // A table that is gone by now is none.
                tables.extend(self.read(family, name)?);
            }
        }
        let news = (before.as_ref() != Some(&tables)).then(|| {
            let found: Result<Vec<_>, _> = tables.iter().map(Table::statements).collect();
            found.map(|found| found.concat())
        });
        let news = news.transpose()?;
        self.seen = Some(tables);
        Ok(news)
    }

    fn read(&mut self, family: Family, name: String) -> Result<Option<Table>, Error> {
        let failed = |source| Error::Legacy { command: family.command(), table: name.clone(), source };
        let socket = self.socket(family).map_err(|e| failed(e.into()))?;
        for _ in 0..ATTEMPTS {
            let mut info = Info::question(&name);
            match sockopt::get(socket.as_fd(), family, Question::Info, &mut info.0) {
                Err(e) if e.raw_os_error() == Some(Errno::ENOENT as i32) => return Ok(None),
                answer => answer.map_err(failed)?,
            }
            let mut entries = entries::question(&name, info.size());
            match sockopt::get(socket.as_fd(), family, Question::Entries, &mut entries) {
                // It has another size by now.
                Err(e) if e.raw_os_error() == Some(Errno::EAGAIN as i32) => {}
                answer => {
                    answer.map_err(failed)?;
                    let entries = entries.split_off(entries::HEAD_BYTES);
                    let mut table = Table { family, name: name.clone(), info, entries };
                    table.forget_counters().ok_or_else(|| failed(malformed()))?;
                    return Ok(Some(table));
                }
            }
        }
        Err(failed(io::Error::other("it changes faster than it can be read")))
    }

    fn socket(&mut self, family: Family) -> Result<&OwnedFd, Errno> {
        let (place, domain) = match family {
            Family::V4 => (&mut self.v4, AddressFamily::Inet),
            Family::V6 => (&mut self.v6, AddressFamily::Inet6),
        };
        match place {
            Some(socket) => Ok(socket),
            // Any socket of the family will do; this one sends and receives nothing.
            None => Ok(place.insert(socket(domain, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)),
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

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its entries cannot be read")
}
