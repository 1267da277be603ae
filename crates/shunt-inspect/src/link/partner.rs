//! What the partner advertises, from the registers of the PHY (IEEE 802.3, clauses 28.2.4 and 40.5.1), for drivers that
//! do not tell ethtool.

use crate::reg::MdioBus;

/// Numbers of the registers, as in `definitions/mii.toml`.
const ANLPAR: u16 = 5;
const STAT1000: u16 = 10;

/// A bit of ANLPAR that says that the partner negotiates.
const ACKNOWLEDGE: u16 = 1 << 14;
/// The lowest bits of ANLPAR: 1 is IEEE 802.3. Other media use the other bits otherwise.
const SELECTOR: u16 = 0x1f;
const ETHERNET: u16 = 1;

/// Bits of ANLPAR, with ethtool's names.
const OFFERS: [(u16, &str); 6] = [
    (1 << 5, "10baseT/Half"),
    (1 << 6, "10baseT/Full"),
    (1 << 7, "100baseT/Half"),
    (1 << 8, "100baseT/Full"),
    (1 << 10, "Pause"),
    (1 << 11, "Asym_Pause"),
];
/// Bits of STAT1000, with ethtool's names.
const OFFERS_1000: [(u16, &str); 2] = [(1 << 10, "1000baseT/Half"), (1 << 11, "1000baseT/Full")];

/// The modes that the partner of a port advertises, as ethtool names them; empty if the port's PHY cannot be read.
///
/// `gigabit` says whether this end advertises 1000BASE-T: otherwise STAT1000 says nothing. Reading it clears the PHY's
/// count of idle errors, as the kernel's own polls do.
pub(super) fn advertised(port: &str, gigabit: bool) -> Vec<String> {
    let read = || {
        let bus = MdioBus::open(port, None)?;
        let gigabit = if gigabit { bus.read(STAT1000)? } else { 0 };
        Ok::<_, std::io::Error>((bus.read(ANLPAR)?, gigabit))
    };
    read().map(|(anlpar, stat1000)| decode(anlpar, stat1000)).unwrap_or_default()
}

/// The modes in the registers ANLPAR and STAT1000.
fn decode(anlpar: u16, stat1000: u16) -> Vec<String> {
    let negotiates = anlpar & ACKNOWLEDGE != 0;
    // An absent PHY reads as ones; without negotiation, the PHY puts only what it detected there.
    if anlpar == u16::MAX || negotiates && anlpar & SELECTOR != ETHERNET {
        return Vec::new();
    }
    let stat1000 = if negotiates && stat1000 != u16::MAX { stat1000 } else { 0 };
    let named = |bits: u16, offers: &[(u16, &'static str)]| {
        offers.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect::<Vec<_>>()
    };
    let autoneg = negotiates.then_some("Autoneg");
    let all = [named(anlpar, &OFFERS[..4]), named(stat1000, &OFFERS_1000), named(anlpar, &OFFERS[4..])];
    autoneg.into_iter().chain(all.concat()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers of a switch with 1000BASE-T and pause, of one with 100BASE-TX, and of PHYs without a partner.
    #[test]
    fn the_partner_offers_what_its_registers_say() {
        let gigabit = decode(0xcde1, 0x3800);
        let expected =
            "Autoneg 10baseT/Half 10baseT/Full 100baseT/Half 100baseT/Full 1000baseT/Full Pause Asym_Pause";
        assert_eq!(gigabit.join(" "), expected);
        assert_eq!(decode(0x4181, 0).join(" "), "Autoneg 100baseT/Half 100baseT/Full");
        assert_eq!(decode(0x45e1, 0xffff).last().map(String::as_str), Some("Pause"));
        // Parallel detection: the partner does not negotiate, so 1000BASE-T is impossible.
        assert_eq!(decode(0x0080, 0x0c00), ["100baseT/Half"]);
        for nothing in [0, 0xffff, 0x41a0] {
            assert_eq!(
                decode(nothing, 0x3800),
                Vec::<String>::new(),
                "{nothing:#x}: none, absent, 1000BASE-X"
            );
        }
    }

    #[test]
    fn a_port_without_a_phy_has_no_partner() {
        assert_eq!(advertised("lo", true), Vec::<String>::new());
        assert_eq!(advertised("nosuchdevice", false), Vec::<String>::new());
    }
}
