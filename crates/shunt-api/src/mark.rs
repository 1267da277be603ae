//! Packet marks, written as `nft`, `ip rule` and `conntrack` write them: VALUE or VALUE/MASK.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{fmt, str::FromStr};

/// Matches marks whose bits under `mask` equal `value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkMatch {
    /// The value of the bits under the mask; all other bits are 0.
    pub value: u32,
    /// The bits that are compared; never 0.
    pub mask: u32,
}

impl FromStr for MarkMatch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
        let [Some(value), Some(mask)] = [value, mask].map(number) else {
            return Err(format!("`{text}` is not a mark; expected a form such as 0x10, 16 or 0x10/0xf0"));
        };
        if mask == 0 {
            return Err(format!("`{text}`: the mask is 0, so the mark would match every packet"));
        }
        if value & !mask != 0 {
            return Err(format!(
                "`{text}`: the value has bits outside of the mask, so it would match no packet"
            ));
        }
        Ok(Self { value, mask })
    }
}

impl fmt::Display for MarkMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mask {
            u32::MAX => write!(f, "{:#x}", self.value),
            mask => write!(f, "{:#x}/{mask:#x}", self.value),
        }
    }
}

impl Serialize for MarkMatch {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MarkMatch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

fn number(text: &str) -> Option<u32> {
    // from_str_radix accepts a sign; a mark has none.
    if !text.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// For the configuration file, where an empty string means no mark.
pub(crate) fn serialize<S: Serializer>(mark: &Option<MarkMatch>, out: S) -> Result<S::Ok, S::Error> {
    mark.map(|mark| mark.to_string()).unwrap_or_default().serialize(out)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<MarkMatch>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(D::Error::custom) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_nft_and_ip_write_them() {
        for (text, value, mask) in [
            ("0x10/0xf0", 0x10, 0xf0),
            ("16/240", 16, 240),
            ("0x00000010", 16, u32::MAX),
            ("0", 0, u32::MAX),
            ("0x0/0x1", 0, 1),
            ("4294967295", u32::MAX, u32::MAX),
        ] {
            assert_eq!(text.parse(), Ok(MarkMatch { value, mask }), "{text}");
        }
        assert_eq!(MarkMatch { value: 16, mask: 240 }.to_string(), "0x10/0xf0");
        assert_eq!(MarkMatch { value: 16, mask: u32::MAX }.to_string(), "0x10");
    }

    #[test]
    fn a_mark_that_matches_never_or_always_is_refused_with_the_reason() {
        let refusal = |text: &str| text.parse::<MarkMatch>().unwrap_err();
        for text in
            ["", "/", "1/", "/1", "+1", "-1", "0x", "0x1_0", "ten", "1/2/3", "4294967296", " 1", "1 / 1"]
        {
            assert!(refusal(text).contains("is not a mark"), "{text}: {}", refusal(text));
        }
        assert!(refusal("0/0").contains("the mask is 0"));
        assert!(refusal("0x11/0xf0").contains("bits outside of the mask"));
    }
}
