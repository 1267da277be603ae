//! The kinds of traffic that can be fast, as far as rules tell them apart.

use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

/// A set of kinds of traffic: TCP, UDP and UDP before its first answer, each over IPv4 and over IPv6.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traffic(u8);

impl Traffic {
    /// No traffic.
    pub const NONE: Self = Self(0);
    /// All traffic that can be fast.
    pub const ALL: Self = Self(0b11_1111);
    /// IPv4.
    pub const V4: Self = Self(0b01_0101);
    /// IPv6.
    pub const V6: Self = Self(0b10_1010);
    /// TCP connections, which are fast only once they are established.
    pub const TCP: Self = Self(0b00_0011);
    /// UDP, answered or not.
    pub const UDP: Self = Self(0b11_1100);
    /// The single kinds.
    pub const KINDS: [Self; 6] =
        [Self(1), Self(1 << 1), Self(1 << 2), Self(1 << 3), Self(1 << 4), Self(1 << 5)];
    /// UDP connections without an answer; `ct state new` to the rules.
    pub const UNANSWERED: Self = Self(0b11_0000);

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has all of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set has any of `other`.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The traffic that the rules of a table of this family (`ip`, `inet`, ...) can see.
    pub fn of_family(family: &str) -> Self {
        match family {
            "ip" => Self::V4,
            "ip6" => Self::V6,
            _ => Self::ALL,
        }
    }

    /// Names the traffic: `TCP and UDP over IPv4`.
    pub fn describe(self) -> String {
        let answered = Self::UDP - Self::UNANSWERED;
        let kinds = [
            ("TCP", Self::TCP),
            ("UDP", answered),
            ("UDP before its first answer", if self.meets(answered) { Self::NONE } else { Self::UNANSWERED }),
        ];
        let families = |kind: Self| match (self.meets(kind & Self::V4), self.meets(kind & Self::V6)) {
            (true, true) => "IPv4 and IPv6",
            (true, false) => "IPv4",
            (false, true) => "IPv6",
            (false, false) => "",
        };
        let mut parts: Vec<(String, &str)> = Vec::new();
        for (name, kind) in kinds {
            match (families(kind), parts.last_mut()) {
                ("", _) => {}
                (over, Some((names, same))) if over == *same => *names += &format!(" and {name}"),
                (over, _) => parts.push((name.to_owned(), over)),
            }
        }
        let parts: Vec<String> = parts.iter().map(|(names, over)| format!("{names} over {over}")).collect();
        parts.join(", ")
    }
}

impl BitOr for Traffic {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Traffic {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Traffic {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_named_by_protocol_and_family() {
        let named = |traffic: Traffic| traffic.describe();
        assert_eq!(named(Traffic::ALL), "TCP and UDP over IPv4 and IPv6");
        assert_eq!(named(Traffic::V4), "TCP and UDP over IPv4");
        assert_eq!(named(Traffic::UDP & Traffic::V6), "UDP over IPv6");
        assert_eq!(named(Traffic::UNANSWERED), "UDP before its first answer over IPv4 and IPv6");
        let mixed = Traffic::TCP | Traffic::UNANSWERED & Traffic::V4;
        assert_eq!(named(mixed), "TCP over IPv4 and IPv6, UDP before its first answer over IPv4");
        assert_eq!(named(Traffic::NONE), "");
    }

    #[test]
    fn a_family_of_tables_sees_its_own_traffic() {
        assert_eq!(Traffic::of_family("ip") | Traffic::of_family("ip6"), Traffic::ALL);
        assert!(!Traffic::of_family("ip").meets(Traffic::of_family("ip6")));
        assert!(["inet", "bridge", "netdev"].iter().all(|family| Traffic::of_family(family) == Traffic::ALL));
        assert!(Traffic::UDP.contains(Traffic::UNANSWERED) && !Traffic::TCP.contains(Traffic::UNANSWERED));
    }
}
