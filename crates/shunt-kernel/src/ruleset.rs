//! The nftables ruleset: which statements a packet may meet on its way through the router.

mod message;
mod path;

#[cfg(test)]
mod tests;

use crate::{
    Error,
    channel::Channel,
    wire::{AF_UNSPEC, Message},
};
use message::{Chain, FIXED_BYTES, Rule, Set};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::libc;
use shunt_core::Statement;
use std::collections::HashMap;

const SUBSYSTEM: u16 = 10 << 8;
const NEWCHAIN: u16 = SUBSYSTEM | 3;
const GETCHAIN: u16 = SUBSYSTEM | 4;
const NEWRULE: u16 = SUBSYSTEM | 6;
const GETRULE: u16 = SUBSYSTEM | 7;
const NEWSET: u16 = SUBSYSTEM | 9;
const GETSET: u16 = SUBSYSTEM | 10;
const NEWSETELEM: u16 = SUBSYSTEM | 12;
const GETSETELEM: u16 = SUBSYSTEM | 13;
const DELSETELEM: u16 = SUBSYSTEM | 14;
pub(crate) const NEWGEN: u16 = SUBSYSTEM | 15;
const GETGEN: u16 = SUBSYSTEM | 16;
const NEWOBJ: u16 = SUBSYSTEM | 18;
const DELFLOWTABLE: u16 = SUBSYSTEM | 24;

const ATTEMPTS: usize = 16;

/// Everything that nftables has, as far as it matters.
#[derive(Debug, Default)]
struct Parts {
    chains: Vec<Chain>,
    rules: Vec<Rule>,
    sets: HashMap<Place, Set>,
    /// The generation that all of it is of.
    generation: Option<u16>,
    /// It is of two.
    torn: bool,
}

/// Where a chain or a set is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    family: u8,
    table: String,
    name: String,
}

/// Reads the ruleset of the calling thread's network namespace, in small steps with room for other tasks in between:
/// there may be tens of thousands of rules. Elements are read of those maps only that lead to chains.
///
/// # Errors
/// When the kernel refuses, or the ruleset changes faster than it can be read.
pub async fn read_ruleset() -> Result<Vec<Statement>, Error> {
    let mut channel = match Channel::open(NETLINK_NETFILTER, "NETLINK_NETFILTER") {
        Ok(channel) => channel,
        Err(Error::Socket { source, .. }) if is_missing(&source) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    for _ in 0..ATTEMPTS {
        match Parts::read(&mut channel).await {
            Ok(parts) if !parts.torn => return Ok(path::statements(&parts)),
            // A set that was listed is gone, and so the ruleset has changed.
            Err(Error::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {}
            Ok(_) => {}
            Err(Error::Refused { request: "NFT_MSG_GETCHAIN", source }) if is_missing(&source) => {
                return Ok(Vec::new());
            }
            Err(e) => return Err(e),
        }
    }
    Err(Error::Unsettled { request: "the nftables ruleset" })
}

/// What a kernel answers that was built without nftables, or without nfnetlink.
fn is_missing(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::EINVAL | libc::EOPNOTSUPP))
}

/// Whether a notification is of a change that [`read_ruleset`] may answer otherwise for.
pub(crate) fn concerns_rules(message: &Message) -> bool {
    match message.kind {
        NEWSETELEM | DELSETELEM => message::leads_to_chains(message.payload),
        NEWGEN | GETGEN => false,
        // Counters, quotas and the like; what uses them are rules.
        NEWOBJ..=DELFLOWTABLE => false,
        kind => kind & 0xff00 == SUBSYSTEM,
    }
}

impl Parts {
    async fn read(channel: &mut Channel) -> Result<Self, Error> {
        let mut parts = Self::default();
        let everything = [AF_UNSPEC, 0, 0, 0];
        for (request, kind) in
            [("NFT_MSG_GETCHAIN", GETCHAIN), ("NFT_MSG_GETRULE", GETRULE), ("NFT_MSG_GETSET", GETSET)]
        {
            parts.torn |=
                channel.dump_in_steps(request, kind, &everything, |_| {}, |m| parts.take(&m)).await?;
        }
        let maps: Vec<Place> =
            parts.sets.iter().filter(|(_, set)| set.has_verdicts).map(|(at, _)| at.clone()).collect();
        for map in maps {
            let which = message::of_set(&map.table, &map.name);
            let fixed = [map.family, 0, 0, 0];
            parts.torn |= channel
                .dump_in_steps("NFT_MSG_GETSETELEM", GETSETELEM, &fixed, which, |m| parts.take(&m))
                .await?;
        }
        Ok(parts)
    }

    /// Takes one message of an answer in.
    fn take(&mut self, message: &Message) {
        let payload = message.payload;
        if payload.len() < FIXED_BYTES {
            return;
        }
        // nfgenmsg.res_id
        let generation = u16::from_be_bytes([payload[2], payload[3]]);
        self.torn |= *self.generation.get_or_insert(generation) != generation;
        match message.kind {
            NEWCHAIN => self.chains.extend(message::chain(payload)),
            NEWRULE => self.rules.extend(message::rule(payload)),
            NEWSET => self.sets.extend(message::set(payload)),
            NEWSETELEM => {
                if let Some((at, leads)) = message::elements(payload) {
                    if let Some(set) = self.sets.get_mut(&at) {
                        set.does.extend(leads);
                    }
                }
            }
            _ => {}
        }
    }
}
