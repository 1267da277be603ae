//! Marks as `nft`, `ip rule` and `conntrack` write them: a value, and a mask if not all bits count.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{fmt, str::FromStr};

/// Matches a mark whose bits under the mask are those of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkMatch {
    /// What the bits must be.
    pub value: u32,
    /// Which bits count; at least one.
    pub mask: u32,
}

impl FromStr for MarkMatch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
        let [Some(value), Some(mask)] = [value, mask].map(number) else {
            return Err(format!("`{text}` is not a mark; write it as 0x10, 16 or 0x10/0xf0"));
        };
        if mask == 0 {
            return Err(format!("`{text}` has an empty mask, so it would match every packet"));
        }
        if value & !mask != 0 {
            return Err(format!("`{text}` has bits that its mask leaves out, so it would match nothing"));
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

fn number(text: &str) -> Option<u32> {
    // from_str_radix would take a sign.
    if !text.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// In the configuration, where an empty text stands for no mark at all.
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
    fn what_nft_and_ip_write_is_read() {
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
    fn what_could_never_or_always_match_is_refused_with_its_reason() {
        let refusal = |text: &str| text.parse::<MarkMatch>().unwrap_err();
        for text in
            ["", "/", "1/", "/1", "+1", "-1", "0x", "0x1_0", "ten", "1/2/3", "4294967296", " 1", "1 / 1"]
        {
            assert!(refusal(text).contains("is not a mark"), "{text}: {}", refusal(text));
        }
        assert!(refusal("0/0").contains("an empty mask"));
        assert!(refusal("0x11/0xf0").contains("bits that its mask leaves out"));
    }
}
