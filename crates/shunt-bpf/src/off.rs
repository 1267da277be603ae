//! The connections that a person has turned off.

use crate::{
    DataPlane, Error,
    abi::{self, OffRule, Plain},
    maps::OFF,
};
use std::net::IpAddr;

/// A connection is named if one of its directions matches. Absent conditions match all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffMatch {
    /// Source address and prefix length.
    pub src: Option<(IpAddr, u8)>,
    /// Destination address and prefix length.
    pub dst: Option<(IpAddr, u8)>,
    /// Source port.
    pub sport: Option<u16>,
    /// Destination port.
    pub dport: Option<u16>,
    /// The IP protocol number.
    pub protocol: Option<u8>,
}

/// An address in two words, and its prefix in two.
type Words = [u64; 4];

fn words(network: Option<(IpAddr, u8)>) -> Words {
    let (bits, len) = match network {
        None => return [0; 4],
        Some((IpAddr::V4(addr), len)) => (u128::from(addr.to_bits()) << 96, len),
        Some((IpAddr::V6(addr), len)) => (addr.to_bits(), len),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    let bits = bits & mask;
    [(bits >> 64) as u64, bits as u64, (mask >> 64) as u64, mask as u64]
}

impl From<OffMatch> for OffRule {
    fn from(rule: OffMatch) -> Self {
        let OffMatch { src, dst, sport, dport, protocol } = rule;
        let [src_hi, src_lo, src_mask_hi, src_mask_lo] = words(src);
        let [dst_hi, dst_lo, dst_mask_hi, dst_mask_lo] = words(dst);
        let port = |port: Option<u16>| port.unwrap_or(0).to_be_bytes();
        let mask = |port: Option<u16>| if port.is_some() { u16::MAX } else { 0 };
        let family = src.or(dst).map_or(0, |(addr, _)| if addr.is_ipv4() { 4 } else { 6 });
        Self {
            src_hi,
            src_lo,
            src_mask_hi,
            src_mask_lo,
            dst_hi,
            dst_lo,
            dst_mask_hi,
            dst_mask_lo,
            sport_be: port(sport),
            dport_be: port(dport),
            sport_mask: mask(sport),
            dport_mask: mask(dport),
            family,
            l4_proto: protocol.unwrap_or(0),
            ..Self::default()
        }
    }
}

impl DataPlane {
    /// Teaches the programs these rules, and no others: nothing is learned from their connections. Flows that were
    /// learned before stay in use until the epoch moves.
    ///
    /// # Errors
    /// If there are more than [`abi::OFF_MAX`] rules, or the map cannot be changed.
    pub fn set_off(&self, rules: &[OffMatch]) -> Result<(), Error> {
        if rules.len() > abi::OFF_MAX as usize {
            return Err(Error::Full);
        }
        // Without learning, there is no such map, and no need of it.
        if self.maps.find(OFF).is_none() {
            return Ok(());
        }
        for (at, rule) in (0u32..).zip(rules) {
            self.maps.update(OFF, &at.to_ne_bytes(), OffRule::from(*rule).bytes())?;
        }
        self.control.set_off_rules(rules.len() as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_under_their_prefix_and_ports_match_as_a_whole() {
        let host = |text: &str, len| Some((text.parse().unwrap(), len));
        let rule = OffRule::from(OffMatch {
            src: host("192.0.2.77", 24),
            dport: Some(443),
            protocol: Some(6),
            ..OffMatch::default()
        });
        assert_eq!((rule.src_hi, rule.src_mask_hi), (0xc000_0200 << 32, 0xffff_ff00 << 32));
        assert_eq!((rule.src_lo, rule.src_mask_lo, rule.dst_mask_hi), (0, 0, 0));
        assert_eq!((rule.dport_be, rule.dport_mask, rule.sport_mask), ([1, 187], u16::MAX, 0));
        assert_eq!((rule.family, rule.l4_proto), (4, 6));
        let v6 = OffRule::from(OffMatch { dst: host("2001:db8::1", 128), ..OffMatch::default() });
        assert_eq!((v6.dst_hi, v6.dst_lo, v6.family), (0x2001_0db8 << 32, 1, 6));
        assert_eq!((v6.dst_mask_hi, v6.dst_mask_lo), (u64::MAX, u64::MAX));
        let all = OffRule::from(OffMatch { src: host("0.0.0.0", 0), ..OffMatch::default() });
        assert_eq!((all.src_mask_hi, all.family), (0, 4));
    }
}
