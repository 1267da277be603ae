//! Rates and sizes as people type them: one parser of each, for every option and key.

use std::fmt;

/// A rate as typed. A number without a unit is bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TypedRate {
    /// Bit/s of frames: `1G`, `300Mbit`, `1Gbps`, `1Gbit/s`.
    Bits(f64),
    /// Bit/s on the line, with preamble and gap: `1GbitL1`.
    LineBits(f64),
    /// Packets/s: `100kpps`.
    Packets(f64),
    /// Percent of the link's speed: `80%`.
    Percent(f64),
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAQuantity(String);

impl fmt::Display for NotAQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAQuantity {}

/// Reads a rate.
///
/// # Errors
/// If there is no number, or the unit is not one of a rate. Bytes/s are refused, because `MBps` is easily taken for
/// `Mbps`.
pub fn rate(text: &str) -> Result<TypedRate, NotAQuantity> {
    const WANTED: &str =
        "a rate: expected bit/s such as 300M, 1G or 1Gbit/s, packets/s such as 100kpps, or 80% of the link";
    typed_rate(text, &not(text, WANTED))
}

/// Reads a rate in bit/s of frames, where a rate of another kind makes no sense.
///
/// # Errors
/// As [`rate`], and if the rate is of another kind.
pub fn bit_rate(text: &str) -> Result<f64, NotAQuantity> {
    let wrong = not(text, "a rate in bit/s: expected a form such as 300M, 2.5G or 1Gbit/s");
    match typed_rate(text, &wrong)? {
        TypedRate::Bits(bits) => Ok(bits),
        _ => Err(wrong),
    }
}

fn not(text: &str, wanted: &str) -> NotAQuantity {
    NotAQuantity(format!("`{text}` is not {wanted}"))
}

fn typed_rate(text: &str, wrong: &NotAQuantity) -> Result<TypedRate, NotAQuantity> {
    let wrong = || wrong.clone();
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    if unit == "%" {
        return Ok(TypedRate::Percent(number));
    }
    let (factor, unit) = prefix(unit);
    let value = number * factor;
    if matches!(unit, "B" | "Bps" | "B/s") {
        let bits = fmt_short(value * 8.0);
        return Err(NotAQuantity(format!("`{text}`: rates are in bits, not bytes: write {bits}bit/s")));
    }
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "bit" | "bits" | "bps" | "bit/s" | "bits/s" | "b/s" | "bitl2" => {
            Ok(TypedRate::Bits(value))
        }
        "bitl1" => Ok(TypedRate::LineBits(value)),
        "pps" | "p/s" | "packets/s" => Ok(TypedRate::Packets(value)),
        _ => Err(wrong()),
    }
}

/// Reads a number of bytes: `1500`, `9k`, `64KiB`. `k` is 1000, `Ki` is 1024.
///
/// # Errors
/// If the text is not a whole number of bytes.
pub fn bytes(text: &str) -> Result<u64, NotAQuantity> {
    let wrong = || NotAQuantity(format!("`{text}` is not a size: expected bytes such as 1500, 9k or 64KiB"));
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let (factor, unit) = prefix(unit);
    let (factor, unit) = match unit.strip_prefix('i') {
        // 1e3 is 1024, 1e6 is 1024 * 1024, ...
        Some(unit) if factor > 1.0 => (1024_f64.powf(factor.log10() / 3.0).round(), unit),
        _ => (factor, unit),
    };
    let value = number * factor;
    let is_unit = matches!(unit, "" | "B" | "byte" | "bytes");
    if !is_unit || value.fract() != 0.0 || value > 2_f64.powi(53) {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// Reads a number of things: `5000`, `100k`, `4M`. `k` is 1000.
///
/// # Errors
/// If the text is not a whole number.
pub fn count(text: &str) -> Result<u64, NotAQuantity> {
    let wrong = || NotAQuantity(format!("`{text}` is not a number: expected one such as 5000, 100k or 4M"));
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let (factor, unit) = prefix(unit);
    let value = number * factor;
    if !unit.is_empty() || value.fract() != 0.0 || value > 2_f64.powi(53) {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// The number before the first other character. A point may be inside it.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

/// The factor of a prefix, and the unit behind it. Nothing is counted in thousandths, so `m` is a million.
fn prefix(unit: &str) -> (f64, &str) {
    let factor = match unit.as_bytes().first() {
        Some(b'k' | b'K') => 1e3,
        Some(b'm' | b'M') => 1e6,
        Some(b'g' | b'G') => 1e9,
        Some(b't' | b'T') => 1e12,
        _ => return (1.0, unit),
    };
    (factor, &unit[1..])
}

fn fmt_short(value: f64) -> String {
    let scale = [(1e9, "G"), (1e6, "M"), (1e3, "k")].into_iter().find(|(factor, _)| value >= *factor);
    let (factor, letter) = scale.unwrap_or((1.0, ""));
    format!("{}{letter}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_units_that_people_type() {
        for (text, wanted) in [
            ("1G", TypedRate::Bits(1e9)),
            ("1Gbps", TypedRate::Bits(1e9)),
            ("1Gbit/s", TypedRate::Bits(1e9)),
            ("2.5gbit", TypedRate::Bits(2.5e9)),
            ("100k", TypedRate::Bits(1e5)),
            ("300MbitL2", TypedRate::Bits(3e8)),
            ("1GbitL1", TypedRate::LineBits(1e9)),
            ("100kpps", TypedRate::Packets(1e5)),
            ("1.5Mp/s", TypedRate::Packets(1.5e6)),
            ("80%", TypedRate::Percent(80.0)),
            ("7", TypedRate::Bits(7.0)),
        ] {
            assert_eq!(rate(text), Ok(wanted), "{text}");
        }
        for text in ["", "fast", "1x", "1 G", "-1G", "1..2G", "1e3", "k", "1GiB", "1Gpp"] {
            assert!(rate(text).unwrap_err().to_string().contains("expected bit/s such as 300M"), "{text}");
        }
        let why = "`125MBps`: rates are in bits, not bytes: write 1Gbit/s";
        assert_eq!(rate("125MBps").unwrap_err().to_string(), why);
    }

    #[test]
    fn numbers_of_things_are_whole() {
        for (text, wanted) in [("7", 7), ("100k", 100_000), ("1.5k", 1500), ("4M", 4_000_000)] {
            assert_eq!(count(text), Ok(wanted), "{text}");
        }
        for text in ["", "k", "1.5", "100kB", "-1", "4Mi"] {
            assert!(count(text).unwrap_err().to_string().contains("is not a number"), "{text}");
        }
    }

    #[test]
    fn sizes_are_whole_bytes() {
        for (text, wanted) in [
            ("64", 64),
            ("1500B", 1500),
            ("9k", 9000),
            ("1.5kB", 1500),
            ("4M", 4_000_000),
            ("64KiB", 65536),
            ("4MiB", 4_194_304),
        ] {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for text in ["", "big", "1.5", "64i", "-1", "1Gbit", "1e3", "99999999999999T"] {
            assert!(bytes(text).unwrap_err().to_string().contains("expected bytes such as 1500"), "{text}");
        }
    }
}
