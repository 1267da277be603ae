//! Keys that have no effect because of other keys.

use super::Config;
use serde::{Deserialize, Serialize};

/// A key of the configuration that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnusedKey {
    /// The name of the key.
    pub key: String,
    /// Why it has no effect.
    pub why: String,
    /// What to set, or to remove.
    pub remedy: String,
}

const NO_PAGE: &str = "no address for the page is set";
const SET_PAGE: &str = "set `page`, such as `page = \"127.0.0.1:9470\"`";
const NO_EXTERNAL: &str = "no port uses the external engine";
const SET_EXTERNAL: &str = "set `engine = \"external\"` or `external_ports`";

impl Config {
    /// The keys that are set and have no effect, in the order of the file.
    pub fn unused_keys(&self) -> Vec<UnusedKey> {
        let default = Self::default();
        let external = !self.uses_external();
        let page = self.page.is_none();
        let reports = &self.page_reports;
        let keys = [
            ("external_core", external && self.external_core.is_some(), NO_EXTERNAL, SET_EXTERNAL),
            (
                "external_wait",
                external && self.external_wait != default.external_wait,
                NO_EXTERNAL,
                SET_EXTERNAL,
            ),
            ("external_copy_vlan", external && self.external_copy_vlan != 0, NO_EXTERNAL, SET_EXTERNAL),
            ("page_token_file", page && !self.page_token_file.is_empty(), NO_PAGE, SET_PAGE),
            (
                "page_reports",
                page && !reports.is_empty() && *reports != default.page_reports,
                NO_PAGE,
                SET_PAGE,
            ),
            (
                "hosts",
                page && self.metrics.is_none() && !self.hosts.is_empty(),
                "no address for the page or for metrics is set",
                "set `page` or `metrics`",
            ),
        ];
        let unused = keys.into_iter().filter(|(_, is_unused, ..)| *is_unused);
        unused
            .map(|(key, _, why, set)| UnusedKey {
                key: key.to_owned(),
                why: why.to_owned(),
                remedy: format!("{set}, or remove `{key}`"),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(text: &str) -> Vec<String> {
        Config::parse(text).unwrap().unused_keys().into_iter().map(|unused| unused.key).collect()
    }

    #[test]
    fn a_key_without_the_one_that_it_belongs_to_is_named() {
        assert_eq!(unused(""), [""; 0]);
        let all = "external_core = 0\nexternal_wait = \"poll\"\nexternal_copy_vlan = 7\n\
                   page_token_file = \"/etc/token\"\npage_reports = \"/srv\"\nhosts = [\"router\"]\n";
        let external = ["external_core", "external_wait", "external_copy_vlan"];
        let page = ["page_token_file", "page_reports", "hosts"];
        assert_eq!(unused(all), [external, page].concat());
        assert_eq!(unused(&format!("{all}page = 9470\n")), external);
        assert_eq!(unused(&format!("{all}external_ports = [\"wan0\"]\n")), page);
        assert_eq!(unused("page_reports = \"\"\n"), [""; 0]);
        assert_eq!(unused("metrics = 9469\nhosts = [\"router\"]\n"), [""; 0]);
    }
}
