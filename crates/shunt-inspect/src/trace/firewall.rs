//! The base chains of nftables, and which of them, and which rule, can have dropped packets.
//!
//! The kernel tells which chain dropped a packet only where programs can follow its functions. Elsewhere, the chain is
//! known if no other one at its hook can drop anything.

use super::machine::has_legacy_tables;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
};

/// Chains and rules, in the form of `nft --json list ruleset`.
#[derive(Debug, Default)]
pub(super) struct Firewall {
    base: Vec<BaseChain>,
    rules: BTreeMap<ChainId, Vec<Rule>>,
    /// Whether something else than a chain of nftables can have dropped packets.
    others: bool,
}

/// The part of a chain that drops packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChainPart {
    /// The handle of a rule, as `nft -a list ruleset` prints it.
    Rule(u64),
    /// The policy of the chain.
    Policy,
}

/// A chain by family, table and name.
type ChainId = (String, String, String);

/// A chain that packets enter by a hook.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct BaseChain {
    family: String,
    table: String,
    name: String,
    hook: String,
    #[serde(default)]
    policy: String,
}

#[derive(Debug, Deserialize)]
struct Rule {
    family: String,
    table: String,
    chain: String,
    handle: u64,
    #[serde(default)]
    expr: Vec<Value>,
}

/// Packets that conntrack has dropped in this network namespace.
pub(super) fn dropped_by_conntrack() -> Option<u64> {
    conntrack_drops(&fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack").ok()?)
}

/// The sum over all CPUs. The first line has the names of the columns, the others hexadecimal numbers.
fn conntrack_drops(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split_whitespace().collect();
    let columns = ["drop", "insert_failed"].map(|name| names.iter().position(|column| *column == name));
    let [Some(dropped), Some(failed)] = columns else { return None };
    let sum = lines.map(|line| {
        let values: Vec<&str> = line.split_whitespace().collect();
        [dropped, failed].iter().filter_map(|at| u64::from_str_radix(values.get(*at)?, 16).ok()).sum::<u64>()
    });
    Some(sum.sum())
}

impl Firewall {
    /// Reads the rules of this network namespace with the program `nft`. `conntrack_before` is what conntrack had
    /// dropped when the trace began. None without the program.
    pub(super) fn read(conntrack_before: Option<u64>) -> Option<Self> {
        let mut nft = Command::new("nft");
        let output = nft.args(["--json", "--terse", "list", "ruleset"]).stdin(Stdio::null()).output().ok()?;
        let mut firewall = Self::from_json(&String::from_utf8_lossy(&output.stdout))?;
        // Without counters, conntrack may have dropped them, if it is there.
        firewall.others = dropped_by_conntrack() != conntrack_before
            || conntrack_before.is_none()
            || ["ip_tables_names", "ip6_tables_names"].into_iter().any(has_legacy_tables);
        Some(firewall)
    }

    fn from_json(text: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(text).ok()?;
        let mut firewall = Self::default();
        for entry in all["nftables"].as_array()? {
            if let Some(rule) = entry.get("rule") {
                let rule = Rule::deserialize(rule).ok()?;
                let id = (rule.family.clone(), rule.table.clone(), rule.chain.clone());
                firewall.rules.entry(id).or_default().push(rule);
            } else if let Some(chain) = entry.get("chain").filter(|chain| chain.get("hook").is_some()) {
                firewall.base.push(BaseChain::deserialize(chain).ok()?);
            }
        }
        Some(firewall)
    }

    /// The base chains that packets of this family meet at a hook.
    fn at(&self, hook: &str, is_v6: bool) -> impl Iterator<Item = &BaseChain> {
        let families = ["inet", if is_v6 { "ip6" } else { "ip" }];
        let meets = move |chain: &&BaseChain| chain.hook == hook && families.contains(&chain.family.as_str());
        self.base.iter().filter(meets)
    }

    /// The base chain with this table and name; None if there are several.
    pub(super) fn chain(&self, hook: &str, is_v6: bool, title: &str) -> Option<&BaseChain> {
        only(self.at(hook, is_v6).filter(|chain| chain.title() == title))
    }

    /// The only base chain at a hook that has rules, or drops by its policy. None if something else can drop, too.
    pub(super) fn only_chain(&self, hook: &str, is_v6: bool) -> Option<&BaseChain> {
        let can_drop = |chain: &&BaseChain| chain.policy == "drop" || self.rules.contains_key(&chain.id());
        only(self.at(hook, is_v6).filter(can_drop)).filter(|_| !self.others)
    }

    /// What drops in a chain, or in the chains to which it jumps; None if more than one rule can.
    pub(super) fn part(&self, chain: &BaseChain) -> Option<ChainPart> {
        let mut found = Vec::new();
        if chain.policy == "drop" {
            found.push(ChainPart::Policy);
        }
        let (mut seen, mut next) = (BTreeSet::new(), vec![chain.id()]);
        while let Some(id) = next.pop() {
            if !seen.insert(id.clone()) {
                continue;
            }
            for rule in self.rules.get(&id).into_iter().flatten() {
                for statement in rule.expr.iter().filter_map(Value::as_object) {
                    match statement.keys().next().map(String::as_str) {
                        Some("drop" | "reject") => found.push(ChainPart::Rule(rule.handle)),
                        Some(word @ ("jump" | "goto")) => {
                            let target = statement[word]["target"].as_str()?;
                            next.push((id.0.clone(), id.1.clone(), target.to_owned()));
                        }
                        // A map of verdicts, and everything that is not known to pass packets on.
                        Some(word) if !PASSING.contains(&word) => return None,
                        _ => {}
                    }
                }
            }
        }
        only(found.into_iter())
    }
}

/// Statements that neither drop a packet nor send it to another chain, in the JSON of nft.
const PASSING: [&str; 16] = [
    "match",
    "counter",
    "accept",
    "return",
    "continue",
    "mangle",
    "limit",
    "quota",
    "ct count",
    "ct helper",
    "ct timeout",
    "notrack",
    "log",
    "set",
    "meter",
    "flow",
];

fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

impl BaseChain {
    /// Table and name.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.table, self.name)
    }

    fn id(&self) -> ChainId {
        (self.family.clone(), self.table.clone(), self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ruleset as nft prints it: chains with a hook and a policy, and rules with a handle and statements.
    fn ruleset(chains: &[(&str, &str, &str)], rules: &[(&str, u64, &str)]) -> Firewall {
        let head = |name: &str| format!(r#""family": "inet", "table": "fw", "{name}""#);
        let chain = |(name, hook, policy): &(&str, &str, &str)| match *hook {
            "" => format!(r#"{{"chain": {{{}: "{name}", "handle": 1}}}}"#, head("name")),
            _ => format!(
                r#"{{"chain": {{{}: "{name}", "handle": 1, "type": "filter", "hook": "{hook}", "prio": 0,
                    "policy": "{policy}"}}}}"#,
                head("name")
            ),
        };
        let rule = |(chain, handle, statements): &(&str, u64, &str)| {
            format!(
                r#"{{"rule": {{{}: "{chain}", "handle": {handle}, "expr": [{statements}]}}}}"#,
                head("chain")
            )
        };
        let metainfo = r#"{"metainfo": {"version": "1.0.6", "json_schema_version": 1}}"#.to_owned();
        let entries = [metainfo].into_iter().chain(chains.iter().map(chain)).chain(rules.iter().map(rule));
        let json = format!(r#"{{"nftables": [{}]}}"#, entries.collect::<Vec<_>>().join(","));
        Firewall::from_json(&json).unwrap_or_else(|| panic!("{json}"))
    }

    fn part_of(firewall: &Firewall) -> Option<ChainPart> {
        firewall.part(firewall.only_chain("input", false).unwrap())
    }

    const FEW: &str = r#"{"ct count": {"val": 1, "inv": true}}, {"drop": null}"#;
    const JUMP: &str = r#"{"jump": {"target": "x"}}"#;
    const MAP: &str = r#"{"vmap": {"key": "a", "data": {"set": [[22, {"drop": null}]]}}}"#;

    #[test]
    fn the_only_chain_at_a_hook_with_its_only_dropping_rule_is_found() {
        let input = ("few", "input", "accept");
        let other = ("out", "output", "accept");
        let firewall = ruleset(&[input, other], &[("few", 3, FEW), ("out", 9, r#"{"drop": null}"#)]);
        assert_eq!(firewall.only_chain("input", true).unwrap().title(), "fw few");
        assert_eq!(part_of(&firewall), Some(ChainPart::Rule(3)));
        assert!(firewall.only_chain("forward", false).is_none());
        // A chain without rules passes everything on.
        let second = ("second", "input", "accept");
        assert!(ruleset(&[input, second], &[("few", 3, FEW)]).only_chain("input", false).is_some());
        let both = ruleset(&[input, second], &[("few", 3, FEW), ("second", 4, FEW)]);
        assert!(both.only_chain("input", false).is_none());
        // Where the kernel tells the chain, others do not matter.
        assert_eq!(both.part(both.chain("input", false, "fw second").unwrap()), Some(ChainPart::Rule(4)));
        assert!(Firewall { others: true, ..firewall }.only_chain("input", false).is_none());
    }

    #[test]
    fn rules_of_other_chains_count_where_a_jump_leads_and_maps_are_unknown() {
        let chains = [("few", "input", "accept"), ("x", "", "")];
        let jumps = ruleset(&chains, &[("few", 3, JUMP), ("x", 4, r#"{"reject": null}"#)]);
        assert_eq!(part_of(&jumps), Some(ChainPart::Rule(4)));
        let loops = ruleset(&chains, &[("few", 3, JUMP), ("x", 4, JUMP), ("x", 5, FEW)]);
        assert_eq!(part_of(&loops), Some(ChainPart::Rule(5)));
        let two = ruleset(&chains, &[("few", 3, JUMP), ("x", 4, FEW), ("few", 5, FEW)]);
        assert_eq!(part_of(&two), None);
        assert_eq!(part_of(&ruleset(&chains, &[("few", 3, MAP)])), None);
        let policy = ruleset(&[("few", "input", "drop")], &[("few", 3, r#"{"accept": null}"#)]);
        assert_eq!(part_of(&policy), Some(ChainPart::Policy));
        assert_eq!(part_of(&ruleset(&[("few", "input", "drop")], &[("few", 3, FEW)])), None);
    }

    #[test]
    fn drops_by_conntrack_are_the_sum_of_their_columns() {
        let text = "entries  clashres insert_failed drop early_drop\n00000010 0 0000000a 00000001 7\n00000010 0 0 1 0\n";
        assert_eq!(conntrack_drops(text), Some(12));
        assert_eq!(conntrack_drops("entries searched\n1 2\n"), None);
    }
}
