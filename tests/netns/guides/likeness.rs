//! Whether a command printed what a guide shows, apart from numbers, addresses and units.

/// The first line that `shown` has and `printed` lacks; the others are there, in the same order. A line `...` stands
/// for any lines, and `...` at the end of a line for the rest of it.
pub fn missing<'a>(shown: &'a [String], printed: &str) -> Option<&'a str> {
    let mut lines = printed.lines().map(outline);
    let is_missing = |line: &&String| {
        let wanted = outline(line);
        match wanted.strip_suffix("...") {
            Some(begin) => !begin.is_empty() && !lines.any(|line| line.starts_with(begin)),
            None => !wanted.is_empty() && !lines.any(|line| line == wanted),
        }
    };
    shown.iter().find(is_missing).map(String::as_str)
}

/// The words of a line. Numbers, addresses and durations become `0`, and units lose their prefixes.
fn outline(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_matches(['(', ')', ',', ';', '[', ']', '"']);
        let word = if is_number(bare) { "0" } else { unit(bare) };
        // `2m 5s` is as long as `8s`.
        if word != "0" || words.last() != Some(&"0") {
            words.push(word);
        }
    }
    words.join(" ")
}

fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(['+', '-', '<']);
    let is_mac = word.len() == 17 && word.bytes().filter(|&byte| byte == b':').count() == 5;
    digits.starts_with(|first: char| first.is_ascii_digit()) || is_mac
}

fn unit(word: &str) -> &str {
    const UNITS: [&str; 6] = ["bit/s", "pps", "bits/sec", "Bytes", "iB", "B"];
    let known = |unit: &&&str| {
        word.strip_suffix(**unit).is_some_and(|prefix| matches!(prefix, "" | "k" | "K" | "M" | "G" | "T"))
    };
    UNITS.iter().find(known).copied().unwrap_or(word)
}

#[test]
fn words_and_their_order_matter_and_numbers_do_not() {
    let shown: Vec<String> =
        ["fast 3 (99.8 %), slow 2", "...", "up 2m 5s, 31 kbit/s by tc", "port ..."].map(str::to_owned).into();
    assert_eq!(missing(&shown, "fast 17 (0.1 %), slow 0\nother\nup 8s, 4.2 Gbit/s by tc\nport lan0\n"), None);
    assert_eq!(
        missing(&shown, "up 8s, 4.2 Gbit/s by tc\nfast 17 (0.1 %), slow 0\n"),
        Some("up 2m 5s, 31 kbit/s by tc")
    );
    assert_eq!(missing(&shown, "up 8s, 4.2 Gbit/s by xdp\n"), Some("fast 3 (99.8 %), slow 2"));
    assert_eq!(outline("via f2:a2:4a:10:32:26 fade"), "via 0 fade");
}
