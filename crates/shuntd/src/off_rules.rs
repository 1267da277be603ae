//! The rules of `shunt off`: a few, kept in a file across restarts of the daemon and of the machine.

use crate::kept_file::{KeptFile, Replacement};
use serde::{Deserialize, Serialize};
use shunt_api::{
    EndNames, Failure, FailureCode, OffBy, OffEnd, OffRequest, OffRule, Proto, Selection, Tuple,
};
use shunt_bpf::OffMatch;
use shunt_core::TurnedOff;
use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// More than [`OffRule::MOST`] rules take.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A rule, as the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptRule {
    which: Selection,
    /// Seconds since 1970 at which the rule ends; none if it does not end by itself.
    until: Option<u64>,
    /// Seconds since 1970 at which it was added; none in a file of a version that did not keep it.
    #[serde(default)]
    since: Option<u64>,
    #[serde(default, skip_serializing_if = "OffBy::is_owner")]
    by: OffBy,
    #[serde(default, skip_serializing_if = "EndNames::are_none")]
    names: EndNames,
}

/// What became of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OffChange {
    /// The connections, in words of `shunt off`.
    pub(crate) which: String,
    pub(crate) by: OffBy,
    /// Seconds until its end, if `shunt off` added it with an end.
    pub(crate) for_s: Option<u64>,
    /// Why the rule ended; `None` if it was added.
    pub(crate) end: Option<OffEnd>,
}

/// The rules, and the file that keeps them.
#[derive(Debug)]
pub(crate) struct OffRules {
    rules: Vec<KeptRule>,
    file: KeptFile,
    /// What has changed since [`OffRules::take_changes`].
    changes: Vec<OffChange>,
}

/// What the file is to have.
#[derive(Debug)]
pub(crate) struct OffFile(Replacement);

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl OffRules {
    /// Reads the rules that have not ended. If the file is damaged, there are none, and the log says so.
    pub(crate) fn load(path: PathBuf, now: u64) -> Self {
        let file = KeptFile::new(path, FILE_BYTES_MAX);
        let decode = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|error| error.to_string());
        let rules = file.load("the rules of `shunt off` are lost: type them again", decode);
        let mut loaded = Self { rules: rules.unwrap_or_default(), file, changes: Vec::new() };
        loaded.end(OffEnd::TimeWithoutDaemon, |rule| rule.has_ended(now));
        loaded.rules.truncate(OffRule::MOST);
        loaded
    }

    /// The rules, for the next daemon.
    pub(crate) fn kept(&self) -> Vec<KeptRule> {
        self.rules.clone()
    }

    /// Takes over the rules of the daemon before.
    pub(crate) fn replace(&mut self, rules: Vec<KeptRule>) {
        self.rules = rules;
        self.rules.truncate(OffRule::MOST);
        self.changes.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules as clients see them.
    pub(crate) fn list(&self, now: u64) -> Vec<OffRule> {
        let left = |rule: &KeptRule| rule.until.map(|until| until.saturating_sub(now));
        let view = |rule: &KeptRule| OffRule {
            which: rule.which.clone(),
            left_s: left(rule),
            by: rule.by,
            names: rule.names.clone(),
        };
        self.rules.iter().map(view).collect()
    }

    /// The rules as the programs know them.
    pub(crate) fn matches(&self) -> Vec<OffMatch> {
        self.rules.iter().map(|rule| to_match(&rule.which)).collect()
    }

    /// Adds a rule, or replaces that for the same connections.
    ///
    /// # Errors
    /// If it names no connection, lasts too long, or is one too many.
    pub(crate) fn add(&mut self, request: OffRequest, now: u64) -> Result<(), Failure> {
        let OffRequest { which, for_s, by, names } = request;
        let refused = |code, why: String| Err(Failure::new(code, why));
        if which == Selection::default() {
            let why =
                "no condition: name a host, a port or a connection; `shunt down` ends the fast path for all";
            return refused(FailureCode::Usage, why.to_owned());
        }
        if for_s.is_some_and(|seconds| seconds == 0 || seconds > OffRule::LONGEST_S) {
            return refused(FailureCode::Usage, format!("for_s: expected 1 to {}", OffRule::LONGEST_S));
        }
        let until = for_s.map(|seconds| now + seconds);
        let same = self.rules.iter().position(|rule| rule.which == which);
        let since = same.map_or(Some(now), |at| self.rules[at].since);
        let rule = KeptRule { which, until, since, by, names };
        match same {
            Some(at) if self.rules[at].is_like(&rule) => self.rules[at] = rule,
            Some(at) => {
                let before = std::mem::replace(&mut self.rules[at], rule);
                self.note(&before, None, Some(OffEnd::Replaced));
                self.note(&self.rules[at].clone(), for_s, None);
            }
            None if self.rules.len() >= OffRule::MOST => {
                let why = format!(
                    "there are {} rules already, which is the most: remove some with `shunt on`, or name a network \
                     instead of its hosts",
                    OffRule::MOST
                );
                return refused(FailureCode::TableFull, why);
            }
            None => {
                self.note(&rule, for_s, None);
                self.rules.push(rule);
            }
        }
        Ok(())
    }

    /// Removes the rule for these connections, or all rules. Returns how many.
    ///
    /// # Errors
    /// If there is no such rule.
    pub(crate) fn remove(&mut self, which: Option<&Selection>) -> Result<u64, Failure> {
        let removed = self.end(OffEnd::Removed, |rule| which.is_none_or(|which| rule.which == *which));
        if let Some(which) = which.filter(|_| removed == 0) {
            let known: Vec<String> =
                self.rules.iter().map(|rule| format!("`{}`", rule.which.words())).collect();
            let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            let why = format!("no rule `{}`; rules of `shunt off`: {known}", which.words());
            return Err(Failure::new(FailureCode::NoConnection, why));
        }
        Ok(removed)
    }

    /// Removes the rules that have ended. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: u64) -> bool {
        self.end(OffEnd::Time, |rule| rule.has_ended(now)) > 0
    }

    /// Removes rules for this cause. Returns how many.
    fn end(&mut self, cause: OffEnd, ends: impl Fn(&KeptRule) -> bool) -> u64 {
        let ended: Vec<KeptRule> = self.rules.extract_if(.., |rule| ends(rule)).collect();
        ended.iter().for_each(|rule| self.note(rule, None, Some(cause)));
        ended.len() as u64
    }

    fn note(&mut self, rule: &KeptRule, for_s: Option<u64>, end: Option<OffEnd>) {
        let for_s = for_s.filter(|_| rule.by.is_owner());
        self.changes.push(OffChange { which: rule.words(), by: rule.by, for_s, end });
    }

    /// What has changed since the last call, oldest first. The daemon takes it at each change, so it is short.
    pub(crate) fn take_changes(&mut self) -> Vec<OffChange> {
        std::mem::take(&mut self.changes)
    }

    /// The first rule that names a connection.
    pub(crate) fn naming(&self, protocol: u8, tuples: &[Tuple; 2], now: u64) -> Option<TurnedOff> {
        let names = |rule: &&KeptRule| {
            rule.which.proto.is_none_or(|proto| proto.number() == protocol)
                && tuples.iter().any(|tuple| rule.which.has_ends(tuple))
        };
        let rule = self.rules.iter().find(names)?;
        let left = rule.until.map_or_else(String::new, |until| {
            format!(", {} left", shunt_wire::units::time(until.saturating_sub(now)))
        });
        let words = format!("by the rule `{}` of `{}`{left}", rule.which.words(), rule.by.command());
        Some(TurnedOff { rule: words, for_s: rule.since.map(|since| now.saturating_sub(since)) })
    }

    /// What the file is to have now, for a client that waits for it.
    pub(crate) fn file(&mut self) -> OffFile {
        OffFile(self.replacement())
    }

    /// What the file is to have now.
    pub(crate) fn replacement(&mut self) -> Replacement {
        let rules = self.rules.clone();
        self.file.replace(move |out| {
            serde_json::to_writer_pretty(&mut *out, &rules)?;
            writeln!(out)
        })
    }
}

impl KeptRule {
    /// The connections, with the names of hosts.
    fn words(&self) -> String {
        self.which.words_with(&self.names)
    }

    /// Whether both do the same.
    fn is_like(&self, other: &Self) -> bool {
        Self { names: other.names.clone(), ..self.clone() } == *other
    }

    fn has_ended(&self, now: u64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl OffFile {
    /// Writes the file, unless a later version is there already. Waits for the disk.
    ///
    /// # Errors
    /// If it cannot be written: the rules hold until the daemon ends.
    pub(crate) fn write(self) -> Result<(), Failure> {
        let failed = |why| format!("the rules hold now, but not after a restart: {why}");
        self.0.write().map_err(|why| Failure::new(FailureCode::Internal, failed(why)))
    }
}

fn to_match(which: &Selection) -> OffMatch {
    let Selection { src, dst, sport, dport, proto } = *which;
    OffMatch {
        src: src.map(shunt_api::Network::parts),
        dst: dst.map(shunt_api::Network::parts),
        sport,
        dport,
        protocol: proto.map(Proto::number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn which(src: &str) -> Selection {
        Selection { src: Some(src.parse().unwrap()), ..Selection::default() }
    }

    fn request(src: &str, for_s: Option<u64>) -> OffRequest {
        OffRequest { which: which(src), for_s, by: OffBy::Owner, names: EndNames::default() }
    }

    #[test]
    fn rules_are_kept_across_a_restart_until_they_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/default.off");
        let mut rules = OffRules::load(path.clone(), 1000);
        rules.add(request("192.0.2.1", None), 1000).unwrap();
        rules.add(request("192.0.2.2", Some(60)), 1000).unwrap();
        rules.file().write().unwrap();
        let again = OffRules::load(path.clone(), 1059);
        assert_eq!(
            again.list(1059),
            [
                OffRule {
                    which: which("192.0.2.1"),
                    left_s: None,
                    by: OffBy::Owner,
                    names: EndNames::default()
                },
                OffRule {
                    which: which("192.0.2.2"),
                    left_s: Some(1),
                    by: OffBy::Owner,
                    names: EndNames::default()
                },
            ]
        );
        assert_eq!(OffRules::load(path.clone(), 1060).list(1060).len(), 1);
        std::fs::write(&path, "[{").unwrap();
        assert!(OffRules::load(path, 1000).is_empty());
    }

    #[test]
    fn each_end_of_a_rule_has_its_cause() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("default.off");
        let mut rules = OffRules::load(path.clone(), 0);
        let changed = |rules: &mut OffRules| -> Vec<String> {
            let changes = rules.take_changes().into_iter();
            let words = |OffChange { which, for_s, end, .. }| {
                format!("{which} {end:?}{}", for_s.map_or_else(String::new, |for_s| format!(" {for_s}")))
            };
            changes.map(words).collect()
        };
        rules.add(request("192.0.2.1", Some(10)), 0).unwrap();
        rules.add(request("192.0.2.2", Some(10)), 0).unwrap();
        rules.add(request("192.0.2.2", Some(10)), 0).unwrap();
        assert_eq!(changed(&mut rules), ["192.0.2.1 None 10", "192.0.2.2 None 10"]);
        rules.add(request("192.0.2.2", Some(60)), 0).unwrap();
        assert_eq!(changed(&mut rules), ["192.0.2.2 Some(Replaced)", "192.0.2.2 None 60"]);
        rules.file().write().unwrap();
        assert!(rules.expire(10));
        rules.remove(None).unwrap();
        assert_eq!(changed(&mut rules), ["192.0.2.1 Some(Time)", "192.0.2.2 Some(Removed)"]);
        let mut again = OffRules::load(path, 30);
        assert_eq!(changed(&mut again), ["192.0.2.1 Some(TimeWithoutDaemon)"]);
    }

    #[test]
    fn a_rule_is_told_with_the_name_of_its_host_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("default.off");
        let mut rules = OffRules::load(path.clone(), 0);
        let named = |src: &str, name: &str| {
            let names = EndNames { src: name.to_owned().try_into().ok(), dst: None };
            OffRequest { names, ..request(src, None) }
        };
        let told = |rules: &mut OffRules| -> Vec<String> {
            rules.take_changes().into_iter().map(|change| change.which).collect()
        };
        rules.add(named("192.0.2.1", "laptop"), 0).unwrap();
        // The same by another name is the same.
        rules.add(named("192.0.2.1", "notebook"), 0).unwrap();
        assert_eq!(told(&mut rules), ["laptop (192.0.2.1)"]);
        rules.file().write().unwrap();
        let mut again = OffRules::load(path, 0);
        assert_eq!(String::from(again.list(0)[0].names.src.clone().unwrap()), "notebook");
        again.remove(Some(&which("192.0.2.1"))).unwrap();
        assert_eq!(told(&mut again), ["notebook (192.0.2.1)"]);
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("default.off");
        let mut rules = OffRules::load(path.clone(), 0);
        rules.add(request("192.0.2.1", None), 0).unwrap();
        let older = rules.file();
        rules.add(request("192.0.2.2", None), 0).unwrap();
        rules.file().write().unwrap();
        older.write().unwrap();
        assert_eq!(OffRules::load(path, 0).list(0).len(), 2);
    }

    #[test]
    fn rules_are_few_and_named_by_their_connections() {
        let mut rules = OffRules::load("/nonexistent/x.off".into(), 0);
        for number in 0..OffRule::MOST {
            rules.add(request(&format!("10.0.0.{number}"), None), 0).unwrap();
        }
        assert_eq!(rules.add(request("10.0.1.1", None), 0).unwrap_err().code, FailureCode::TableFull);
        rules.add(request("10.0.0.3", Some(5)), 10).unwrap();
        assert_eq!(rules.list(12)[3].left_s, Some(3));
        assert!(rules.expire(15) && !rules.expire(15));
        assert_eq!(rules.remove(Some(&which("10.0.0.4"))).unwrap(), 1);
        let why = rules.remove(Some(&which("10.0.0.4"))).unwrap_err();
        assert!(
            why.message.starts_with("no rule `10.0.0.4`; rules of `shunt off`: `10.0.0.0`, `10.0.0.1`"),
            "{why}"
        );
        assert_eq!(rules.remove(None).unwrap(), 30);
        assert!(rules.is_empty() && rules.matches().is_empty());
        let all = OffRequest { which: Selection::default(), ..request("192.0.2.1", None) };
        assert!(rules.add(all, 0).unwrap_err().message.contains("shunt down"));
        assert!(rules.add(request("10.0.0.1", Some(0)), 0).is_err());
    }

    #[test]
    fn a_rule_names_a_connection_by_either_direction() {
        let mut rules = OffRules::load("/nonexistent/x.off".into(), 0);
        rules.add(request("198.51.100.0/24", Some(90)), 0).unwrap();
        let there = Tuple::new(([192, 0, 2, 1], 4000).into(), ([198, 51, 100, 7], 443).into());
        let back = shunt_core::reversed(there);
        assert_eq!(
            rules.naming(6, &[there, back], 30),
            Some(TurnedOff {
                rule: "by the rule `198.51.100.0/24` of `shunt off`, 1m left".to_owned(),
                for_s: Some(30)
            })
        );
        let by_quality = OffRequest { by: OffBy::Quality, ..request("192.0.2.1", None) };
        rules.remove(None).unwrap();
        rules.add(by_quality, 0).unwrap();
        assert_eq!(
            rules.naming(6, &[there, back], 0).map(|off| off.rule).as_deref(),
            Some("by the rule `192.0.2.1` of `shunt quality --off`")
        );
        let other = Tuple { src: [203, 0, 113, 2].into(), dst: [203, 0, 113, 1].into(), ..there };
        assert_eq!(rules.naming(6, &[other, shunt_core::reversed(other)], 0), None);
    }
}
