//! Quantities as people read them, with their units.

use std::fmt::Write;

/// `950 bit/s`, `9.50 Mbit/s`.
pub fn bits_per_second(rate: u64) -> String {
    scaled(rate, "bit/s")
}

/// `812 pps`, `1.49 Mpps`.
pub fn packets_per_second(rate: u64) -> String {
    scaled(rate, "pps")
}

/// `950 B`, `9.50 MB`: SI prefixes, as for rates.
pub fn bytes(count: u64) -> String {
    scaled(count, "B")
}

/// `1 flow`, `2 flows`, `2 entries`.
pub fn count(count: u64, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if count == 1 => format!("1 {noun}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {noun}s"),
    }
}

/// Three significant digits, with a prefix.
fn scaled(value: u64, unit: &str) -> String {
    if value < 1000 {
        return format!("{value} {unit}");
    }
    // Count in thousandths of the next unit, rounded to three digits: 999950 becomes 1.00 M, not 1000 k.
    let mut value = value;
    for prefix in ["k", "M", "G", "T"] {
        let step = match value {
            0..10_000 => 10,
            10_000..100_000 => 100,
            _ => 1000,
        };
        let rounded = value.saturating_add(step / 2) / step * step;
        if rounded < 1_000_000 || prefix == "T" {
            let (whole, part) = (rounded / 1000, rounded % 1000);
            return match rounded {
                0..10_000 => format!("{whole}.{:02} {prefix}{unit}", part / 10),
                10_000..100_000 => format!("{whole}.{} {prefix}{unit}", part / 100),
                _ => format!("{whole} {prefix}{unit}"),
            };
        }
        value = rounded / 1000;
    }
    format!("{value} {unit}")
}

/// `12s`, `2m 5s`, `1d 2h 3m 4s`.
pub fn time(seconds: u64) -> String {
    let parts =
        [(seconds / 86400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let mut text = String::new();
    for (value, unit) in parts {
        if value > 0 || (unit == 's' && text.is_empty()) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{value}{unit}", if text.is_empty() { "" } else { " " });
        }
    }
    text
}

/// A share from 0 to 1 as `98.7 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", rounded(share * 100.0))
}

/// One decimal: `98.7`.
pub fn rounded(value: f64) -> String {
    unsigned_zero(format!("{value:.1}"))
}

/// `+1.2 %`; a change that rounds to zero has no sign.
pub fn change_percent(percent: f64) -> String {
    format!("{} %", unsigned_zero(format!("{percent:+.1}")))
}

/// Removes the sign of a number that was rounded to zero.
pub fn unsigned_zero(number: String) -> String {
    match number.strip_prefix(['-', '+']) {
        Some(digits) if digits.bytes().all(|digit| matches!(digit, b'0' | b'.')) => digits.to_owned(),
        _ => number,
    }
}

/// About four significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e15.. => format!("{value:.3e}"),
        1000.0.. => format!("{value:.0}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => unsigned_zero(format!("{value:.3}")),
    }
}

/// A quantity with its unit, for a page: prefixes for rates, and thousands in groups. The unit `1` means a ratio.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "pps" | "bit/s" if (1e3..1e15).contains(&value) => {
            scaled(value.round() as u64, unit).replace(' ', "\u{a0}")
        }
        "1" | "" => grouped(&number(value)),
        _ => format!("{}\u{a0}{unit}", grouped(&number(value))),
    }
}

/// Digits before the point in groups of three, if there are more than four.
fn grouped(number: &str) -> String {
    let whole = number.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
    let start = number.len() - number.trim_start_matches('-').len();
    let mut text = number.to_owned();
    if whole > 4 && !number.contains('e') {
        (1..whole)
            .rev()
            .filter(|left| (whole - left) % 3 == 0)
            .for_each(|left| text.insert(start + left, '\u{202f}'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_significant_digits() {
        for (rate, text) in [
            (0, "0 bit/s"),
            (999, "999 bit/s"),
            (1000, "1.00 kbit/s"),
            (9_994, "9.99 kbit/s"),
            (9_995, "10.0 kbit/s"),
            (99_950, "100 kbit/s"),
            (999_499, "999 kbit/s"),
            (999_500, "1.00 Mbit/s"),
            (9_500_000, "9.50 Mbit/s"),
            (941_000_000, "941 Mbit/s"),
            (10_000_000_000, "10.0 Gbit/s"),
            (1_234_000_000_000_000, "1234 Tbit/s"),
        ] {
            assert_eq!(bits_per_second(rate), text);
        }
        assert_eq!(packets_per_second(14_880_952), "14.9 Mpps");
    }

    #[test]
    fn quantities_on_a_page_are_short() {
        for (value, unit, text) in [
            (1_700_980.4, "pps", "1.70 Mpps"),
            (950.0, "pps", "950.0 pps"),
            (2141.087, "Mbit/s", "2141 Mbit/s"),
            (39_600.0, "Mbit/s", "39\u{202f}600 Mbit/s"),
            (-1_234_567.0, "ns", "-1\u{202f}234\u{202f}567 ns"),
            (2.1912, "1", "2.191"),
            (3e300, "ns", "3.000e300 ns"),
        ] {
            assert_eq!(quantity(value, unit).replace('\u{a0}', " "), text);
        }
    }

    #[test]
    fn parts_of_a_time_that_are_zero_are_left_out() {
        for (seconds, text) in
            [(0, "0s"), (12, "12s"), (60, "1m"), (125, "2m 5s"), (3600, "1h"), (93_784, "1d 2h 3m 4s")]
        {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn zero_has_no_sign_in_shares_and_changes() {
        assert_eq!(percent(0.98712), "98.7 %");
        for nothing in [0.0, -0.0, 0.0004, -0.0004] {
            assert_eq!(percent(nothing), "0.0 %");
            assert_eq!(change_percent(nothing), "0.0 %");
        }
        assert_eq!((percent(-0.0006), change_percent(0.06)), ("-0.1 %".to_owned(), "+0.1 %".to_owned()));
        assert_eq!((number(-0.0001), number(-0.001)), ("0.000".to_owned(), "-0.001".to_owned()));
    }
}
