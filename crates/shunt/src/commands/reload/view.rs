//! The text of `shunt reload`, and its lines in `shunt status`.

use crate::render::{Answer, Format, clock, columns::align, json, style};
use shunt_api::{
    ChangeEffect, ConfigStatus, Failure, FailureCode, KeyChange, LastReload, Reload, UnusedQueues,
};

/// The longest value in a table, in characters.
const VALUE_CHARS: usize = 40;

/// A reload of an instance.
#[derive(Debug)]
pub(crate) struct Reloaded {
    pub(crate) reload: Reload,
    pub(crate) instance: String,
}

impl Answer for Reloaded {
    fn text(&self, format: Format) -> String {
        let Reload { file, changes, overridden, ports_added, ports_removed, unused_queues, failures, .. } =
            &self.reload;
        let mut text = table(changes);
        for change in changes {
            if format.verbose || change.effect == ChangeEffect::Restart {
                text += &format!("{}: {}\n", change.key, lower(&change.why));
            }
        }
        text.extend(
            overridden
                .iter()
                .map(|key| format!("{key}: an option of the command line counts, not the file\n")),
        );
        text.extend(ports_added.iter().map(|port| format!("{port}: becomes a port\n")));
        text.extend(ports_removed.iter().map(|port| format!("{port}: is no longer a port\n")));
        text.extend(unused_queues.iter().map(|UnusedQueues { port, why, remedy }| {
            format!("{} not in use: {why}\n    {remedy}\n", style::warning(format!("qos.{port}:")))
        }));
        text.extend(failures.iter().map(|why| format!("{} {why}\n", style::bad("failed:"))));
        text + &match self.outcome() {
            Outcome::Nothing => format!("{file}: nothing differs from what runs\n"),
            Outcome::WouldApply(what) => format!("{file} would be applied: {what}; nothing was changed\n"),
            Outcome::WouldNot => format!("{file} would not be applied; nothing was changed\n"),
            Outcome::Applied(what) => format!("{file} was applied: {what}\n"),
            Outcome::Refused => format!("{file} was not applied; nothing was changed\n"),
        }
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.reload)
    }

    fn failure(&self) -> Option<Failure> {
        let restarts: Vec<&str> = self.reload.restarts().map(|change| change.key.as_str()).collect();
        match self.outcome() {
            Outcome::Refused | Outcome::WouldNot => {
                let instance = &self.instance;
                let why = format!(
                    "{} {} a restart: `shunt restart`, or `systemctl restart shuntd@{instance}` if systemd runs it; \
                     `shunt reload --partial` applies the other keys",
                    restarts.join(", "),
                    if restarts.len() == 1 { "needs" } else { "need" }
                );
                Some(Failure::new(FailureCode::NeedsRestart, why))
            }
            _ => self.reload.failures.first().map(|why| Failure::new(FailureCode::Internal, why.clone())),
        }
    }
}

fn count_of_keys(keys: usize) -> String {
    format!("{keys} {}", if keys == 1 { "key" } else { "keys" })
}

enum Outcome {
    Nothing,
    WouldApply(String),
    WouldNot,
    Applied(String),
    Refused,
}

impl Reloaded {
    fn outcome(&self) -> Outcome {
        let Reload { dry_run, applied, changes, .. } = &self.reload;
        if changes.is_empty() {
            return Outcome::Nothing;
        }
        match (dry_run, applied) {
            (true, true) => Outcome::WouldApply(self.applied()),
            (true, false) => Outcome::WouldNot,
            (false, true) => Outcome::Applied(self.applied()),
            (false, false) => Outcome::Refused,
        }
    }

    /// How many keys, and what becomes of flows.
    fn applied(&self) -> String {
        let restarts = self.reload.restarts().count();
        let keys = self.reload.changes.len() - restarts;
        let relearn = self.reload.changes.iter().any(|change| change.effect == ChangeEffect::Relearn);
        let flows = if relearn { "flows prove themselves again" } else { "flows go on" };
        let rest = match restarts {
            0 => String::new(),
            1 => "; 1 key waits for a restart".to_owned(),
            _ => format!("; {restarts} keys wait for a restart"),
        };
        format!("{}, {flows}{rest}", count_of_keys(keys))
    }
}

fn table(changes: &[KeyChange]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut rows = vec![["key", "runs", "file", "needs"].map(str::to_owned).to_vec()];
    rows.extend(changes.iter().map(|change| {
        let effect = match change.effect {
            ChangeEffect::Restart => style::warning("restart"),
            other => other.to_string(),
        };
        vec![change.key.clone(), short(&change.from), short(&change.to), effect]
    }));
    align("<<<<", &rows) + "\n"
}

fn short(value: &str) -> String {
    let one_line = value.replace('\n', " ");
    match one_line.char_indices().nth(VALUE_CHARS) {
        Some((end, _)) => format!("{}...", &one_line[..end]),
        None => one_line,
    }
}

fn lower(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The lines of `shunt status` about the configuration file: what needs attention, and with `verbose` everything.
pub(crate) fn lines(config: Option<&ConfigStatus>, verbose: bool) -> String {
    let Some(ConfigStatus { file, differs, unusable, last_reload }) = config else { return String::new() };
    let mut text = String::new();
    if let Some(why) = unusable {
        text += &format!("{} cannot use the file any more: {why}\n", style::warning("config:"));
    } else if !differs.is_empty() {
        text += &format!(
            "{} {file} differs from what runs: {}; `shunt reload` applies it, or says what needs a restart\n",
            style::warning("config:"),
            differs.join(", ")
        );
    } else if verbose {
        text += &format!("config   {file}\n");
    }
    match last_reload {
        Some(LastReload { at, by, refused: Some(why), .. }) => {
            text +=
                &format!("{} refused at {} ({by}): {why}\n", style::warning("reload:"), clock::second(*at));
        }
        Some(LastReload { at, by, keys, .. }) => {
            let what = if keys.is_empty() { "nothing changed".to_owned() } else { keys.join(", ") };
            text += &format!("reload   {} ({by}): {what}\n", clock::second(*at));
        }
        None => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{JSON, TEXT, VERBOSE, assert_golden, sample, show};

    fn reloaded() -> Reloaded {
        Reloaded { reload: sample(include_str!("golden/reload.json")), instance: "default".to_owned() }
    }

    #[test]
    fn texts_match_their_golden_files() {
        assert_golden("golden/reload.json", &reloaded(), JSON);
        assert_golden("golden/reload.txt", &reloaded(), TEXT);
        assert_golden("golden/reload-verbose.txt", &reloaded(), VERBOSE);
    }

    #[test]
    fn what_needs_a_restart_is_a_failure_with_the_way_out() {
        let refused = Reloaded { reload: Reload { applied: false, ..reloaded().reload }, ..reloaded() };
        let failure = refused.failure().unwrap();
        assert_eq!((failure.code, failure.code.exit_code()), (FailureCode::NeedsRestart, 31));
        assert!(
            failure
                .message
                .starts_with("learn needs a restart: `shunt restart`, or `systemctl restart shuntd@default`"),
            "{failure}"
        );
        let asked = Reloaded { reload: Reload { dry_run: true, ..refused.reload }, ..reloaded() };
        assert_eq!(asked.failure(), Some(failure));
        assert!(show(&asked, TEXT).ends_with("would not be applied; nothing was changed\n"));
        let failed = Reload { failures: vec!["lan2: no such device".to_owned()], ..reloaded().reload };
        assert_eq!(
            Reloaded { reload: failed, ..reloaded() }.failure().unwrap().message,
            "lan2: no such device"
        );
    }

    #[test]
    fn nothing_to_do_is_no_failure() {
        let reload = Reload { file: "/etc/shunt/shunt.toml".to_owned(), applied: true, ..Reload::default() };
        let nothing = Reloaded { reload, instance: "default".to_owned() };
        assert_eq!(show(&nothing, TEXT), "/etc/shunt/shunt.toml: nothing differs from what runs\n");
        assert_eq!(nothing.failure(), None);
    }

    #[test]
    fn the_status_names_a_file_that_differs_and_the_last_reload() {
        let config = |differs: &[&str], unusable: Option<&str>, last: Option<LastReload>| ConfigStatus {
            file: "/etc/shunt/shunt.toml".to_owned(),
            differs: differs.iter().map(|key| (*key).to_owned()).collect(),
            unusable: unusable.map(str::to_owned),
            last_reload: last,
        };
        let said = |config: &ConfigStatus, verbose| style::plain(&lines(Some(config), verbose));
        assert_eq!(said(&config(&[], None, None), false), "");
        assert_eq!(said(&config(&[], None, None), true), "config   /etc/shunt/shunt.toml\n");
        let differs = said(&config(&["idle", "log"], None, None), false);
        assert_eq!(
            differs,
            "config: /etc/shunt/shunt.toml differs from what runs: idle, log; `shunt reload` applies it, or says what needs a restart\n"
        );
        let last = |refused: Option<&str>| LastReload {
            at: 1_795_968_312,
            by: "SIGHUP".to_owned(),
            keys: vec!["idle".to_owned()],
            refused: refused.map(str::to_owned),
        };
        let reloaded = said(&config(&[], None, Some(last(None))), false);
        assert_eq!(reloaded, "reload   2026-11-29 16:05:12 UTC (SIGHUP): idle\n");
        let refused =
            said(&config(&["idle"], Some("x.toml: line 3"), Some(last(Some("x.toml: line 3")))), false);
        assert!(
            refused.contains("cannot use the file any more: x.toml: line 3")
                && refused.contains("refused at")
        );
    }
}
