//! Turns serde's messages about a document into words that its author knows.

/// Keys, and the words that others have for what each of them sets.
const SAME: [(&str, &[&str]); 6] = [
    ("ports", &["interface", "interfaces", "iface", "ifaces", "device", "devices", "nics", "lan", "wan"]),
    ("qos", &["shape", "shaper", "shaping", "bandwidth", "rate", "queues"]),
    ("idle", &["timeout", "expire", "lifetime", "ttl"]),
    ("page", &["web", "http", "ui", "dashboard", "listen"]),
    ("max_flows", &["table_size", "flows", "connections", "size"]),
    ("exclude_mark", &["mark", "skip_mark", "ignore_mark"]),
];
/// The least likeness (0 to 1, by Jaro and Winkler) of a known word that is suggested for an unknown one.
const ALIKE: f64 = 0.8;

/// How a format calls its values.
struct Words {
    map: &'static str,
    list: &'static str,
    text: &'static str,
}

const TOML: Words = Words { map: "a table", list: "a list in [ ]", text: "a string in quotes" };
const JSON: Words = Words { map: "an object", list: "a list in [ ]", text: "a string" };

/// A message of serde about a TOML document. A message that is not about a type, a key or a value stays as it is.
#[must_use]
pub fn reword_toml(why: &str) -> String {
    reword(why, None, &TOML)
}

/// As [`reword_toml`], with the text of the value that the message is about.
pub(crate) fn reword_toml_value(why: &str, typed: &str) -> String {
    reword(why, Some(typed), &TOML)
}

/// A message of serde_json about a JSON text, without its position.
#[must_use]
pub fn reword_json(why: &str) -> String {
    // "... at line 1 column 5"
    let why = why.rsplit_once(" at line ").map_or(why, |(why, _)| why);
    json_syntax(why).map_or_else(|| reword(why, None, &JSON), str::to_owned)
}

fn reword(why: &str, typed: Option<&str>, words: &Words) -> String {
    let why = why.trim().replace('\n', " ");
    let reworded = wrong_type(&why, typed, words).or_else(|| wrong_number(&why, typed));
    let reworded = reworded.or_else(|| wrong_address(&why, typed));
    let reworded = reworded.or_else(|| unknown(&why)).or_else(|| wrong_keys(&why));
    reworded.or_else(|| syntax(&why).map(str::to_owned)).unwrap_or(why)
}

/// The one of `known` that a person who typed `typed` probably meant.
#[must_use]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let likeness = |word: &&str| {
        let word = word.to_lowercase();
        // One letter too many, too few or another, or two letters in another order.
        let is_slip = typed.len() > 2 && strsim::osa_distance(&typed, &word) == 1;
        if is_slip { 1.0 } else { strsim::jaro_winkler(&typed, &word) }
    };
    known.into_iter().filter(|word| likeness(word) > ALIKE).max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

/// A number of TOML with other characters in it, or with too many digits.
fn wrong_number(why: &str, typed: Option<&str>) -> Option<String> {
    let typed = typed.filter(|_| why == "integer number overflowed")?;
    let is_number = typed.chars().all(|c| c.is_ascii_digit() || "+-_".contains(c));
    Some(format!("expected a {}number, got {typed}", if is_number { "smaller " } else { "" }))
}

/// What is no IP address; one with a port, perhaps.
fn wrong_address(why: &str, typed: Option<&str>) -> Option<String> {
    let typed = typed.filter(|_| why == "invalid IP address syntax")?.trim_matches('"');
    Some(match typed.parse::<std::net::SocketAddr>() {
        Ok(both) => format!(
            "`{typed}` has a port, which is a key of its own (`sport`, `dport`); expected an address such as {}",
            both.ip()
        ),
        Err(_) => format!("`{typed}` is not an IP address; expected one such as 192.0.2.1 or 2001:db8::1"),
    })
}

/// What was expected and what was found.
fn wrong_type(why: &str, typed: Option<&str>, words: &Words) -> Option<String> {
    let rest = why.strip_prefix("invalid type: ").or_else(|| why.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let is_integer = found.starts_with("integer");
    let expected = match expected {
        "a boolean" => "true or false",
        "a string" => words.text,
        "a sequence" => words.list,
        "a map" => words.map,
        "u8" if is_integer => "a whole number from 0 to 255",
        "u16" if is_integer => "a whole number from 0 to 65535",
        "u32" if is_integer => "a whole number from 0 to 4294967295",
        "u8" | "u16" | "u32" | "u64" | "usize" | "f32" | "f64" => "a number",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        _ if expected.starts_with("struct ") || expected.starts_with("internally tagged") => words.map,
        other => other,
    };
    let found = match (found, typed) {
        ("map", _) => words.map,
        ("sequence", _) => "a list",
        ("null" | "unit value", _) => "nothing",
        (_, Some(typed)) if typed.is_empty() || typed.contains('\n') => words.map,
        (_, Some(typed)) => typed,
        // integer `5`, string "five", boolean `true`
        (found, None) => found.find(['`', '"']).map_or(found, |at| found[at..].trim_matches('`')),
    };
    // One string, where a list of them is expected.
    let example = typed.filter(|typed| expected == words.list && typed.starts_with('"'));
    let example = example.map_or_else(String::new, |typed| format!(", such as [{typed}]"));
    Some(format!("expected {expected}{example}, got {found}"))
}

/// An unknown key or value, with the one that was perhaps meant, or all of them.
fn unknown(why: &str) -> Option<String> {
    let (what, rest) = match why.strip_prefix("unknown field ") {
        Some(rest) => ("key", rest),
        None => ("value", why.strip_prefix("unknown variant ")?),
    };
    let (typed, known) = match rest.split_once(", expected ") {
        Some((typed, known)) => (typed, quoted(known)),
        None => (rest.split(',').next()?, Vec::new()),
    };
    let word = typed.trim_matches('`');
    let same = SAME.iter().find(|(key, others)| known.contains(key) && others.contains(&word));
    let guess = same.map(|(key, _)| *key).or_else(|| nearest(word, known.iter().copied()));
    Some(match guess {
        Some(guess) => format!("unknown {what} {typed}; did you mean `{guess}`?"),
        None if known.is_empty() => format!("unknown {what} {typed}: remove it"),
        None => format!("unknown {what} {typed}; known are {}", known.join(", ")),
    })
}

/// A key that is missing or is there twice.
fn wrong_keys(why: &str) -> Option<String> {
    if let Some(key) = why.strip_prefix("missing field ") {
        return Some(format!("the key {key} is missing"));
    }
    let key = why.strip_prefix("duplicate field ").or_else(|| why.strip_prefix("duplicate key"))?;
    Some(if key.is_empty() {
        "this key is there already: keep one of them".to_owned()
    } else {
        format!("the key {} is there twice", key.trim())
    })
}

/// A line of TOML without its `=`, or with a value that has no end.
fn syntax(why: &str) -> Option<&'static str> {
    Some(match why {
        "key with no value, expected `=`" => "expected a line such as `key = value`",
        _ if why.starts_with("unexpected key or value, expected newline") => {
            "one line has one key: begin a line for the next"
        }
        _ if why.starts_with("invalid basic string") => "the closing `\"` is missing",
        _ if why.starts_with("invalid literal string") => "the closing `'` is missing",
        _ => return None,
    })
}

/// A text that is not JSON, or JSON that is cut short.
fn json_syntax(why: &str) -> Option<&'static str> {
    Some(match why {
        "expected value" | "expected ident" | "trailing characters" | "invalid number" => "this is not JSON",
        "key must be a string" => "expected a key in quotes",
        _ if why.starts_with("EOF while parsing") => "the file ends early: copy it again",
        _ if why.starts_with("control character") => "the closing `\"` is missing",
        _ => return None,
    })
}

/// The words between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_type_is_told_in_words_of_the_format() {
        let toml = |why| reword_toml(why);
        assert_eq!(toml("invalid type: map, expected a sequence"), "expected a list in [ ], got a table");
        assert_eq!(toml("invalid type: integer `5`, expected a map"), "expected a table, got 5");
        assert_eq!(
            reword_toml_value("invalid type: string \"x\", expected u32", "\"x\""),
            "expected a number, got \"x\""
        );
        for (typed, said) in [("1_000x", "a number"), ("99999999999999999999", "a smaller number")] {
            let why = reword_toml_value("integer number overflowed", typed);
            assert_eq!(why, format!("expected {said}, got {typed}"));
        }
        assert_eq!(
            toml("invalid value: integer `-5`, expected u32"),
            "expected a whole number from 0 to 4294967295, got -5"
        );
        let json = "invalid type: map, expected a sequence at line 1 column 0";
        assert_eq!(reword_json(json), "expected a list in [ ], got an object");
        assert_eq!(reword_json("trailing characters at line 1 column 6"), "this is not JSON");
        assert_eq!(
            reword_json("EOF while parsing a list at line 2 column 0"),
            "the file ends early: copy it again"
        );
        let nothing = "invalid type: null, expected struct Nic at line 3 column 9";
        assert_eq!(reword_json(nothing), "expected an object, got nothing");
    }

    #[test]
    fn an_unknown_key_comes_with_the_one_that_was_meant_or_with_all() {
        for (why, text) in [
            (
                "unknown field `max_flow`, expected one of `engine`, `ports`, `max_flows`",
                "unknown key `max_flow`; did you mean `max_flows`?",
            ),
            ("unknown field `case`, expected `route` or `flow`", "unknown key `case`; known are route, flow"),
            (
                "unknown variant `fsat`, expected one of `fast`, `slow`",
                "unknown value `fsat`; did you mean `fast`?",
            ),
            ("unknown field `x`, there are no fields", "unknown key `x`: remove it"),
        ] {
            assert_eq!(reword_toml(why), text);
        }
        for (typed, meant) in
            [("interfaces", "`ports`"), ("shaper", "`qos`"), ("weather", "known are engine, ports")]
        {
            let why =
                reword_toml(&format!("unknown field `{typed}`, expected one of `engine`, `ports`, `qos`"));
            assert!(why.contains(meant), "{why}");
        }
    }

    #[test]
    fn keys_that_are_missing_or_doubled_are_named_and_other_messages_stay() {
        assert_eq!(reword_toml("missing field `out_port`"), "the key `out_port` is missing");
        assert_eq!(reword_toml("duplicate key"), "this key is there already: keep one of them");
        assert_eq!(reword_toml("key with no value, expected `=`"), "expected a line such as `key = value`");
        assert_eq!(reword_toml("invalid literal string, expected `'`"), "the closing `'` is missing");
        assert_eq!(reword_toml("unclosed array,\nexpected `]`"), "unclosed array, expected `]`");
    }
}
