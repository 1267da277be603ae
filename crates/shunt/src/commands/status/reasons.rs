//! Reasons of ports, each once with all ports that have it.

use crate::render::columns::align;
use shunt_api::Engine;

/// A row for each engine and reason.
pub(crate) fn engine_rows<'p>(ports: impl Iterator<Item = (&'p str, Engine, &'p str)>) -> String {
    let all = ports.map(|(name, engine, reason)| (name, (engine, for_any_port(reason, name))));
    let row = |((engine, reason), names): ((Engine, String), Vec<&str>)| {
        vec![names.join(", "), engine.to_string(), for_ports(&reason, &names)]
    };
    align("<", &by_text(all).into_iter().map(row).collect::<Vec<_>>())
}

/// A line for each reason.
pub(crate) fn reason_lines<'p>(reasons: impl Iterator<Item = (&'p str, String)>) -> String {
    let all = by_text(reasons.map(|(name, why)| (name, for_any_port(&why, name))));
    all.iter().map(|(why, names)| format!("{}: {}\n", names.join(", "), for_ports(why, names))).collect()
}

/// The names that have the same text, in the order of the first ones.
fn by_text<'p, T: PartialEq>(named: impl Iterator<Item = (&'p str, T)>) -> Vec<(T, Vec<&'p str>)> {
    let mut by_text: Vec<(T, Vec<&str>)> = Vec::new();
    for (name, text) in named {
        match by_text.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(name),
            None => by_text.push((text, vec![name])),
        }
    }
    by_text
}

/// What stands for the name of a port in a text that is about several.
const ANY_PORT: &str = "PORT";

/// The reason with `PORT` instead of the name, as in `ethtool -K lan0 rxvlan off`, so that ports with the same reason
/// are found.
fn for_any_port(reason: &str, name: &str) -> String {
    with_word(reason, name, ANY_PORT)
}

/// The reason for these ports: with the name, if there is one.
fn for_ports(reason: &str, names: &[&str]) -> String {
    if let [name] = names { with_word(reason, ANY_PORT, name) } else { reason.to_owned() }
}

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
        let rows = engine_rows(
            [("a", Engine::Tc, "why a"), ("b", Engine::Tc, "why b"), ("c", Engine::Xdp, "x")].into_iter(),
        );
        assert_eq!(Format::default().finish(&rows), "a, b  tc   why PORT\nc     xdp  x\n");
    }
}
