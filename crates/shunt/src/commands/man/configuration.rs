//! The manual page of the configuration file, shunt.toml(5), from the comments of the file that is installed.

use super::{SOURCE, see_also, words};
use clap_mangen::roff::{Roff, bold, roman};

const CONFIGURATION: &str = include_str!("../../../../../packaging/shunt.toml");

pub(super) fn page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["shunt.toml", "5", "", SOURCE]);
    page.control("SH", ["NAME"]).text([roman("shunt.toml - the configuration of shuntd")]);
    for (nth, block) in CONFIGURATION.trim_end().split("\n\n").enumerate() {
        let (comment, keys): (Vec<&str>, Vec<&str>) = block.lines().partition(|line| line.starts_with('#'));
        let comment: Vec<&str> = comment.iter().map(|line| line.trim_start_matches("# ")).collect();
        // An example comes behind an empty line of the comment.
        let mut parts = comment.splitn(2, |line| *line == "#");
        match (nth, &keys[..]) {
            (0, []) => page.control("SH", ["DESCRIPTION"]),
            (1.., [key]) => {
                if nth == 1 {
                    page.control("SH", ["KEYS"]);
                }
                let (key, value) = key.split_once(" = ").unwrap_or((key, ""));
                let value = if value.is_empty() { String::new() } else { format!(" = {value}") };
                page.control("TP", []).text([bold(key), roman(value)])
            }
            _ => panic!("not a comment with a key below it:\n{block}"),
        };
        page.text(words(&parts.next().unwrap_or_default().join(" ")));
        if let Some(example) = parts.next() {
            page.control("nf", []);
            for line in example {
                page.text([roman(line.trim_start_matches('#'))]);
            }
            page.control("fi", []);
        }
    }
    see_also(&mut page, "shuntd(8), shunt-up(1)");
    page.render()
}
