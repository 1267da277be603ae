//! The generic netlink family `netdev`: reads the XDP features of devices.

use crate::{
    Error, XdpSupport,
    generic_netlink::{Family, HEADER_BYTES},
    netlink_channel::Channel,
    netlink_message::{Attrs, Message},
};
use shunt_core::Event;

const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_CMD_DEV_ADD_NTF: u8 = 2;
const NETDEV_CMD_DEV_DEL_NTF: u8 = 3;
const NETDEV_CMD_DEV_CHANGE_NTF: u8 = 4;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;

const ACT_BASIC: u64 = 1;
const ACT_REDIRECT: u64 = 2;
const ACT_NDO_XMIT: u64 = 4;
const ACT_XSK_ZEROCOPY: u64 = 8;
const ACT_NDO_XMIT_SG: u64 = 64;

/// NETDEV_XDP_RX_METADATA_VLAN_TAG (Linux 6.8).
const METADATA_VLAN_TAG: u64 = 4;

/// The `netdev` family (Linux 6.3, commit d3d854fd6a1d).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Netdev {
    /// The number of the family.
    family: u16,
    /// The number of its multicast group `mgmt`.
    pub mgmt: u32,
}

impl Netdev {
    /// Looks the family up; `None` if the kernel does not have it.
    pub fn find(channel: &mut Channel) -> Result<Option<Self>, Error> {
        let found = Family::find(channel, "netdev", "genl family netdev")?;
        Ok(found.and_then(|found| Some(Self { family: found.number()?, mgmt: found.group("mgmt")? })))
    }

    pub fn features(self, channel: &mut Channel, ifindex: u32) -> Result<XdpSupport, Error> {
        let request = "netdev dev-get";
        let answers = channel.request(request, self.family, &[NETDEV_CMD_DEV_GET, 1, 0, 0], |batch| {
            batch.put(NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes());
        })?;
        answers
            .iter()
            .find_map(|answer| features(&answer.payload))
            .map(|features| support(features.xdp))
            .ok_or(Error::Malformed { request })
    }

    pub fn dump(self, channel: &mut Channel) -> Result<Vec<Event>, Error> {
        let answers = channel.dump("netdev dev-get", self.family, &[NETDEV_CMD_DEV_GET, 1, 0, 0])?;
        Ok(answers.iter().filter_map(|answer| xdp_event(&answer.payload)).collect())
    }
}

/// The event of a message of the group `mgmt`.
pub(crate) fn event(message: &Message) -> Option<Event> {
    match *message.payload.first()? {
        NETDEV_CMD_DEV_ADD_NTF | NETDEV_CMD_DEV_CHANGE_NTF => xdp_event(message.payload),
        // RTM_DELLINK reports the same.
        NETDEV_CMD_DEV_DEL_NTF => None,
        command => {
            tracing::debug!(command, "ignoring a netdev notification of an unknown kind");
            None
        }
    }
}

fn xdp_event(payload: &[u8]) -> Option<Event> {
    let Features { ifindex, xdp, metadata } = features(payload)?;
    match support(xdp) {
        XdpSupport::Known { native, target, target_frags, zero_copy } => {
            let vlan_tags = metadata & METADATA_VLAN_TAG != 0;
            Some(Event::XdpFeatures { ifindex, native, target, target_frags, vlan_tags, zero_copy })
        }
        XdpSupport::Unknown(_) => None,
    }
}

/// The features of a device.
struct Features {
    ifindex: u32,
    xdp: u64,
    metadata: u64,
}

fn features(payload: &[u8]) -> Option<Features> {
    let attrs = Attrs::after(payload, HEADER_BYTES);
    Some(Features {
        ifindex: attrs.u32(NETDEV_A_DEV_IFINDEX)?,
        xdp: attrs.u64(NETDEV_A_DEV_XDP_FEATURES)?,
        metadata: attrs.u64(NETDEV_A_DEV_XDP_RX_METADATA_FEATURES).unwrap_or(0),
    })
}

fn support(bits: u64) -> XdpSupport {
    const NATIVE: u64 = ACT_BASIC | ACT_REDIRECT;
    XdpSupport::Known {
        native: bits & NATIVE == NATIVE,
        target: bits & ACT_NDO_XMIT != 0,
        target_frags: bits & ACT_NDO_XMIT_SG != 0,
        zero_copy: bits & ACT_XSK_ZEROCOPY != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink_message::{Batch, Messages};

    fn event_of_notification(command: u8, bits: u64, metadata: u64) -> Option<Event> {
        let mut batch = Batch::default();
        batch.message(30, 0, 0, &[command, 1, 0, 0]);
        batch.put(NETDEV_A_DEV_IFINDEX, &7u32.to_ne_bytes());
        batch.put(NETDEV_A_DEV_XDP_FEATURES, &bits.to_ne_bytes());
        batch.put(NETDEV_A_DEV_XDP_RX_METADATA_FEATURES, &metadata.to_ne_bytes());
        event(&Messages(batch.bytes()).next().unwrap().unwrap())
    }

    #[test]
    fn native_xdp_needs_both_running_and_redirecting() {
        for (bits, native, target, target_frags, zero_copy) in [
            (0, false, false, false, false),
            (1, false, false, false, false),
            (3, true, false, false, false),
            (7, true, true, false, false),
            (4, false, true, false, false),
            (0x47, true, true, true, false),
            (0x27, true, true, false, false),
            (0xf, true, true, false, true),
        ] {
            for (metadata, vlan_tags) in [(0, false), (3, false), (7, true)] {
                let expected = Some(Event::XdpFeatures {
                    ifindex: 7,
                    native,
                    target,
                    target_frags,
                    vlan_tags,
                    zero_copy,
                });
                assert_eq!(
                    event_of_notification(NETDEV_CMD_DEV_CHANGE_NTF, bits, metadata),
                    expected,
                    "{bits}"
                );
            }
        }
    }

    #[test]
    fn a_device_that_goes_is_reported_by_its_link_message_only() {
        assert!(event_of_notification(NETDEV_CMD_DEV_ADD_NTF, 3, 0).is_some());
        assert_eq!(event_of_notification(NETDEV_CMD_DEV_DEL_NTF, 3, 0), None);
    }
}
