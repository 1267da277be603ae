//! An Ethernet address.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// An Ethernet address, in wire order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Mac(pub [u8; 6]);

/// A text that is not six pairs of hexadecimal digits, separated by colons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseMacError(String);

impl Mac {
    /// Whether the address is a group address: multicast or broadcast.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let bad = || ParseMacError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            // from_str_radix accepts a sign as well.
            let digits = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
            let part = parts.next().filter(digits).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(bytes)) }
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = ParseMacError;

    fn try_from(text: String) -> Result<Self, ParseMacError> {
        text.parse()
    }
}

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a MAC address; write it as 02:00:00:00:00:01", self.0)
    }
}

impl std::error::Error for ParseMacError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_parsed_and_formatted() {
        let mac: Mac = "02:00:5e:10:fF:01".parse().unwrap();
        assert_eq!(mac, Mac([0x02, 0, 0x5e, 0x10, 0xff, 0x01]));
        assert_eq!(mac.to_string(), "02:00:5e:10:ff:01");
    }

    #[test]
    fn other_text_is_refused_with_the_text_in_the_error() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "2:0:0:0:0:0",
            "02-00-00-00-00-00",
            "zz:00:00:00:00:00",
            "+1:00:00:00:00:00",
            "02:00:00:00:00:-1",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(ParseMacError(text.to_owned())));
        }
    }
}
