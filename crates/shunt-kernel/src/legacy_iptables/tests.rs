//! Parses tables that are built here in the format that iptables passes to the kernel.

use super::{
    Family, Table,
    entries::{self, Info},
};

const ACCEPT: i32 = -2;
const QUEUE: i32 = -4;
const RETURN: i32 = -5;

/// struct xt_entry_match or xt_entry_target.
fn extension(name: &str, data: &[u8]) -> Vec<u8> {
    let length = (32 + data.len()).next_multiple_of(8);
    let mut bytes = (length as u16).to_ne_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.resize(32, 0);
    bytes.extend(data);
    bytes.resize(length, 0);
    bytes
}

/// Builds a table.
struct TableBuilder {
    family: Family,
    hooks: Vec<(usize, usize)>,
    entries: Vec<u8>,
}

impl TableBuilder {
    fn new(family: Family) -> Self {
        Self { family, hooks: Vec::new(), entries: Vec::new() }
    }

    /// Begins the chain of a hook.
    fn hook(mut self, number: usize) -> Self {
        self.hooks.push((number, self.entries.len()));
        self
    }

    /// Begins a user's chain, or ends the table.
    fn chain(self, name: &str) -> Self {
        let mut data = name.as_bytes().to_vec();
        data.resize(30, 0);
        self.entry(&[], extension("ERROR", &data))
    }

    fn rule(self, matches: &[&str], target: &str) -> Self {
        self.entry(matches, extension(target, &[0; 4]))
    }

    fn verdict(self, matches: &[&str], verdict: i32) -> Self {
        self.entry(matches, extension("", &verdict.to_ne_bytes()))
    }

    fn entry(mut self, matches: &[&str], target: Vec<u8>) -> Self {
        let (offsets, bytes) = if self.family == Family::V4 { (88, 112) } else { (140, 168) };
        let mut entry = vec![0; bytes];
        entry[bytes - 16..].fill(self.entries.len() as u8 | 1);
        entry.extend(matches.iter().flat_map(|name| extension(name, &[1; 12])));
        let target_at = entry.len() as u16;
        entry.extend(target);
        let next = entry.len() as u16;
        entry[offsets..offsets + 2].copy_from_slice(&target_at.to_ne_bytes());
        entry[offsets + 2..offsets + 4].copy_from_slice(&next.to_ne_bytes());
        self.entries.extend(entry);
        self
    }

    fn table(self, name: &str) -> Table {
        let mut info = Info::request(name);
        let valid = self.hooks.iter().fold(0u32, |valid, (hook, _)| valid | 1 << hook);
        info.0[32..36].copy_from_slice(&valid.to_ne_bytes());
        for (hook, at) in &self.hooks {
            info.0[36 + 4 * hook..40 + 4 * hook].copy_from_slice(&(*at as u32).to_ne_bytes());
        }
        let size = (self.entries.len() as u32).to_ne_bytes();
        info.0[80..84].copy_from_slice(&size);
        Table { family: self.family, name: name.to_owned(), info, entries: self.entries }
    }
}

/// `family table chain number statement`, in their order.
fn found(table: &Table) -> Option<Vec<String>> {
    let line = |s: &shunt_core::Statement| {
        assert!(s.legacy && s.devices.is_empty());
        format!("{} {} {} {} {}", s.family, s.table, s.chain, s.handle, s.name)
    };
    let mut found: Vec<String> = entries::statements(table)?.iter().map(line).collect();
    found.sort();
    Some(found)
}

/// INPUT, FORWARD with a rule of each kind and a jump to a chain, POSTROUTING, and two user's chains.
fn mangle(family: Family) -> Table {
    let base_chains = |builder: TableBuilder, to: i32| {
        builder
            .hook(1)
            .rule(&[], "NFQUEUE")
            .verdict(&[], ACCEPT)
            .hook(2)
            .verdict(&["conntrack"], ACCEPT)
            .rule(&["udp", "limit"], "LOG")
            .verdict(&["udp"], to)
            .verdict(&[], QUEUE)
            .verdict(&[], ACCEPT)
            .hook(4)
            .rule(&[], "DSCP")
            .verdict(&[], ACCEPT)
            .chain("copies")
    };
    let copies = base_chains(TableBuilder::new(family), 0).entries.len() as i32;
    base_chains(TableBuilder::new(family), copies)
        .rule(&["udp"], "TEE")
        .verdict(&[], RETURN)
        .chain("unused")
        .rule(&[], "TPROXY")
        .verdict(&[], RETURN)
        .chain("ERROR")
        .table("mangle")
}

#[test]
fn rules_on_the_path_are_named_by_table_chain_and_number() {
    for (family, name) in [(Family::V4, "ip"), (Family::V6, "ip6")] {
        let expected = [
            "mangle FORWARD 2 LOG",
            "mangle FORWARD 2 limit",
            "mangle FORWARD 4 QUEUE",
            "mangle POSTROUTING 1 DSCP",
            "mangle copies 1 TEE",
        ];
        assert_eq!(found(&mangle(family)).unwrap(), expected.map(|words| format!("{name} {words}")));
    }
}

#[test]
fn a_table_is_empty_if_it_is_as_listing_it_creates_it() {
    for family in [Family::V4, Family::V6] {
        let with = |policy: i32| {
            let builder = TableBuilder::new(family).hook(0).verdict(&[], ACCEPT);
            builder.hook(4).verdict(&[], policy)
        };
        assert!(with(ACCEPT).chain("ERROR").table("nat").is_empty());
        assert!(!with(-1).chain("ERROR").table("nat").is_empty(), "the policy is DROP");
        assert!(!with(ACCEPT).verdict(&[], ACCEPT).chain("ERROR").table("nat").is_empty(), "a rule");
        let chain = with(ACCEPT).chain("own").verdict(&[], RETURN).chain("ERROR");
        assert!(!chain.table("nat").is_empty(), "a chain");
        assert!(!mangle(family).is_empty());
    }
}

/// struct xt_ct_target_info begins with flags, zone and the mask of events.
#[test]
fn a_ct_target_is_named_if_it_chooses_events() {
    let raw = |events: u32| {
        let mut info = vec![0; 4];
        info.extend(events.to_ne_bytes());
        info.resize(72, 0);
        TableBuilder::new(Family::V4)
            .hook(0)
            .entry(&[], extension("CT", &info))
            .verdict(&[], ACCEPT)
            .chain("ERROR")
    };
    assert_eq!(found(&raw(0).table("raw")).unwrap(), [] as [&str; 0]);
    assert_eq!(found(&raw(1).table("raw")).unwrap(), ["ip raw PREROUTING 1 CT --ctevents"]);
}

#[test]
fn rules_of_nat_are_left_out() {
    let table =
        TableBuilder::new(Family::V4).hook(0).rule(&[], "NFQUEUE").verdict(&[], ACCEPT).chain("ERROR");
    assert_eq!(found(&table.table("nat")).unwrap(), [""; 0]);
}

#[test]
fn chains_that_jump_to_themselves_do_not_loop_for_ever() {
    let table = |to| {
        TableBuilder::new(Family::V4).hook(2).verdict(&["limit"], to).verdict(&[], ACCEPT).chain("ERROR")
    };
    for to in [0, 7, 1 << 20] {
        assert_eq!(found(&table(to).table("filter")).unwrap(), ["ip filter FORWARD 1 limit"]);
    }
}

#[test]
fn tables_differ_by_everything_except_counters() {
    let mut cleared = mangle(Family::V6);
    cleared.clear_counters().unwrap();
    let mut counted = mangle(Family::V6);
    counted.entries[160] ^= 0xff;
    counted.clear_counters().unwrap();
    assert_eq!(counted, cleared);
    let mut changed = mangle(Family::V6);
    changed.entries[0] ^= 0xff;
    changed.clear_counters().unwrap();
    assert_ne!(changed, cleared);
}

/// Truncated tables and wrong lengths cause neither a panic nor an endless loop.
#[test]
fn corrupt_tables_are_refused_or_parsed_as_another_table() {
    for family in [Family::V4, Family::V6] {
        let whole = mangle(family);
        let with = |entries| Table { entries, info: whole.info.clone(), name: "mangle".to_owned(), family };
        let ends: Vec<usize> = (1..whole.entries.len())
            .filter(|end| with(whole.entries[..*end].to_vec()).clear_counters().is_some())
            .collect();
        assert_eq!(ends.len(), 15, "a table can only end where an entry ends");
        for at in 0..whole.entries.len() {
            for value in [0, 33, 0xff] {
                let mut entries = whole.entries.clone();
                entries[at] = value;
                let mut table = with(entries);
                let _ = (table.clear_counters(), found(&table));
            }
        }
        for at in 0..whole.info.0.len() {
            let mut table = mangle(family);
            table.info.0[at] = 0xff;
            let _ = found(&table);
        }
    }
}

#[test]
fn impossible_lengths_are_refused() {
    let with_length = |offset: usize, length: u16| {
        let mut table = TableBuilder::new(Family::V4).hook(2).rule(&["udp"], "LOG").table("filter");
        table.entries[offset..offset + 2].copy_from_slice(&length.to_ne_bytes());
        found(&table)
    };
    assert_eq!(with_length(88, 112 + 48).unwrap(), ["ip filter FORWARD 1 LOG"], "the correct length");
    for length in [0, 111, 130, 200, u16::MAX] {
        assert_eq!(with_length(88, length), None, "the target's offset");
    }
    for length in [0, 111, 160, 191, 201, u16::MAX] {
        assert_eq!(with_length(90, length), None, "the next entry's offset");
    }
    for length in [0, 8, 30, 31, 47, 49, u16::MAX] {
        assert_eq!(with_length(112, length), None, "the length of a match");
    }
}

#[test]
fn a_request_has_the_name_and_the_size() {
    let request = entries::entries_request("mangle", 1000);
    assert_eq!((request.len(), &request[..8]), (entries::HEAD_BYTES + 1000, &b"mangle\0\0"[..]));
    assert_eq!(request[32..36], 1000_u32.to_ne_bytes());
    let long = Info::request(&"x".repeat(40));
    assert_eq!((long.0[30], long.0[31]), (b'x', 0));
}
