//! Reasons of ports, each once with all ports that have it.

use crate::render::columns::align;
use shunt_api::Engine;

/// A row for each engine and reason.
pub(crate) fn engine_rows<'p>(ports: impl Iterator<Item = (&'p str, Engine, &'p str)>) -> String {
    let groups = grouped(ports.map(|(name, engine, reason)| (name, engine, reason.to_owned())));
    let row = |group: Group<'_, Engine>| vec![group.names.join(", "), group.kind.to_string(), group.text];
    align("<", &groups.into_iter().map(row).collect::<Vec<_>>())
}

/// A line for each reason.
pub(crate) fn reason_lines<'p>(reasons: impl Iterator<Item = (&'p str, String)>) -> String {
    let groups = grouped(reasons.map(|(name, why)| (name, (), why)));
    groups.iter().map(|group| format!("{}: {}\n", group.names.join(", "), group.text)).collect()
}

/// Ports that have the same reason.
struct Group<'p, T> {
    names: Vec<&'p str>,
    kind: T,
    /// The reason, with [`ANY_PORT`] instead of their names if it names each port for itself.
    text: String,
    general: String,
}

/// Groups ports, in the order of the first ones.
fn grouped<'p, T: PartialEq>(ports: impl Iterator<Item = (&'p str, T, String)>) -> Vec<Group<'p, T>> {
    let mut groups: Vec<Group<'_, T>> = Vec::new();
    for (name, kind, text) in ports {
        let general = with_word(&text, name, ANY_PORT);
        let same = |group: &&mut Group<'_, T>| {
            group.kind == kind && (group.text == text || group.general == general)
        };
        match groups.iter_mut().find(same) {
            Some(group) => {
                if group.text != text {
                    group.text = general;
                }
                group.names.push(name);
            }
            None => groups.push(Group { names: vec![name], kind, text, general }),
        }
    }
    groups
}

/// What stands for the name of a port in a text that is about several, as in `ethtool -K PORT rxvlan off`.
const ANY_PORT: &str = "PORT";

/// The text with another word in the place of this one, wherever it stands alone.
fn with_word(text: &str, word: &str, instead: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let (mut result, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(word).filter(|_| !word.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_alone = !before.ends_with(is_part) && !after.starts_with(is_part);
        result += before;
        result += if is_alone { instead } else { word };
        rest = after;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Format;

    #[test]
    fn a_reason_that_names_its_port_is_said_once_for_all_ports() {
        let tags = |name: &str| format!("by tc (`ethtool -K {name} rxvlan off` leaves them in)");
        let reasons = ["lan0", "wan0", "lan01"].map(|name| (name, tags(name)));
        assert_eq!(
            reason_lines(reasons.clone().into_iter()),
            "lan0, wan0, lan01: by tc (`ethtool -K PORT rxvlan off` leaves them in)\n"
        );
        assert_eq!(reason_lines(reasons.into_iter().take(1)), format!("lan0: {}\n", tags("lan0")));
        let other = [("lan0", "see lan01".to_owned()), ("wan0", "see lan01".to_owned())];
        assert_eq!(reason_lines(other.into_iter()), "lan0, wan0: see lan01\n");
        let all = "lan0, wan0 have received too few packets".to_owned();
        let both = [("lan0", all.clone()), ("wan0", all.clone())];
        assert_eq!(reason_lines(both.into_iter()), format!("lan0, wan0: {all}\n"));
        let rows = engine_rows(
            [("a", Engine::Tc, "why a"), ("b", Engine::Tc, "why b"), ("c", Engine::Xdp, "x")].into_iter(),
        );
        assert_eq!(Format::default().finish(&rows), "a, b  tc   why PORT\nc     xdp  x\n");
    }
}
