//! The generic netlink family `ethtool`: reads offloads of devices.

use crate::{
    Error,
    generic_netlink::{Family, HEADER_BYTES},
    netlink_channel::Channel,
    netlink_message::Attrs,
};

const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;

/// The `ethtool` family (Linux 5.6). A kernel without CONFIG_ETHTOOL_NETLINK lacks it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ethtool {
    /// The number of the family.
    family: u16,
}

impl Ethtool {
    /// Looks the family up; `None` if the kernel does not have it.
    pub fn find(channel: &mut Channel) -> Result<Option<Self>, Error> {
        let found = Family::find(channel, "ethtool", "genl family ethtool")?;
        Ok(found.and_then(|found| found.number()).map(|family| Self { family }))
    }

    /// Whether the NIC merges packets before Linux sees them. (LRO does, too, but is off where Linux forwards.)
    pub fn hardware_gro(self, channel: &mut Channel, ifindex: u32) -> Result<bool, Error> {
        let command = [ETHTOOL_MSG_FEATURES_GET, 1, 0, 0];
        let answers = channel.request("ethtool features-get", self.family, &command, |batch| {
            batch.nest(ETHTOOL_A_FEATURES_HEADER, |header| {
                header.put(ETHTOOL_A_HEADER_DEV_INDEX, &ifindex.to_ne_bytes());
            });
        })?;
        Ok(answers.iter().any(|answer| has_hardware_gro(&answer.payload)))
    }
}

/// Whether an answer lists `rx-gro-hw` among the active features. The kernel names them, unless the request asks for the
/// compact form.
fn has_hardware_gro(payload: &[u8]) -> bool {
    let active = Attrs::after(payload, HEADER_BYTES).nested(ETHTOOL_A_FEATURES_ACTIVE);
    let mut bits = active.nested(ETHTOOL_A_BITSET_BITS).into_iter();
    bits.any(|(_, bit)| Attrs::new(bit).text(ETHTOOL_A_BITSET_BIT_NAME).as_deref() == Some("rx-gro-hw"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink_message::{Batch, Messages};

    const ETHTOOL_A_FEATURES_HW: u16 = 2;
    const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;

    /// An answer with these features, as devices can have them and as they are active.
    fn answer(possible: &[&str], active: &[&str]) -> Vec<u8> {
        let mut batch = Batch::default();
        batch.message(30, 0, 0, &[ETHTOOL_MSG_FEATURES_GET, 1, 0, 0]);
        for (kind, names) in [(ETHTOOL_A_FEATURES_HW, possible), (ETHTOOL_A_FEATURES_ACTIVE, active)] {
            batch.nest(kind, |set| {
                set.nest(ETHTOOL_A_BITSET_BITS, |bits| {
                    for name in names {
                        let name = [name.as_bytes(), b"\0"].concat();
                        bits.nest(ETHTOOL_A_BITSET_BITS_BIT, |bit| bit.put(ETHTOOL_A_BITSET_BIT_NAME, &name));
                    }
                });
            });
        }
        Messages(batch.bytes()).next().unwrap().unwrap().payload.to_vec()
    }

    #[test]
    fn hardware_gro_counts_only_while_it_is_active() {
        assert!(has_hardware_gro(&answer(&["rx-gro-hw", "rx-lro"], &["rx-gro", "rx-gro-hw"])));
        assert!(!has_hardware_gro(&answer(&["rx-gro-hw", "rx-lro"], &["rx-gro"])));
        assert!(!has_hardware_gro(&[]));
    }
}
