//! The text of `shunt off`, and its lines in `shunt status`.

use crate::render::{Answer, Format, json, style, units};
use shunt_api::OffRule;

/// The rules of an instance.
#[derive(Debug)]
pub(crate) struct OffRules(pub(crate) Vec<OffRule>);

impl Answer for OffRules {
    fn text(&self, _: Format) -> String {
        if self.0.is_empty() {
            return "the fast path is off for no connection\n".to_owned();
        }
        describe(&self.0)
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.0)
    }
}

/// A line for each rule, with the words that remove it.
pub(crate) fn describe(rules: &[OffRule]) -> String {
    let line = |rule: &OffRule| {
        let (words, named) = (rule.which.words(), rule.which.words_with(&rule.names));
        let left = rule.left_s.map_or_else(String::new, |left| format!(" for {}", units::time(left)));
        let by = if rule.by.is_owner() { String::new() } else { format!(", by `{}`", rule.by.command()) };
        format!("{} {named}{left}{by}; `shunt on {words}` ends it\n", style::warning("off:"))
    };
    rules.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{JSON, TEXT, assert_golden, sample, show};

    #[test]
    fn texts_match_their_golden_files() {
        let rules = || OffRules(sample(include_str!("golden/off.json")));
        assert_golden("golden/off.txt", &rules(), TEXT);
        assert_golden("golden/off.json", &rules(), JSON);
        assert_eq!(show(&OffRules(Vec::new()), TEXT), "the fast path is off for no connection\n");
        assert_eq!(show(&OffRules(Vec::new()), JSON), "[]\n");
    }
}
