//! The generic netlink family `ethtool`: reads offloads of devices.

use crate::{
    Error,
    generic_netlink::{Family, HEADER_BYTES},
    netlink_channel::Channel,
    netlink_message::{Attrs, Message, u32_at},
};
use shunt_core::Event;

const ETHTOOL_MSG_STRSET_GET: u8 = 1;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_NTF: u8 = 13;

const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_COMPACT_BITSETS: u32 = 1;

const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_VALUE: u16 = 4;

const ETHTOOL_A_STRSET_HEADER: u16 = 1;
const ETHTOOL_A_STRSET_STRINGSETS: u16 = 2;
const ETHTOOL_A_STRINGSETS_STRINGSET: u16 = 1;
const ETHTOOL_A_STRINGSET_ID: u16 = 1;
const ETHTOOL_A_STRINGSET_STRINGS: u16 = 3;
const ETHTOOL_A_STRING_INDEX: u16 = 1;
const ETHTOOL_A_STRING_VALUE: u16 = 2;
const ETH_SS_FEATURES: u32 = 4;

/// The `ethtool` family (Linux 5.6). A kernel without CONFIG_ETHTOOL_NETLINK lacks it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ethtool {
    /// The number of the family.
    pub family: u16,
    /// The number of its multicast group `monitor`.
    pub monitor: u32,
    features: Features,
}

/// The numbers of features, which differ between kernels; `None` for features that a kernel lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Features {
    gro_hw: Option<u32>,
    vlan_parse: Option<u32>,
    stag_parse: Option<u32>,
}

impl Ethtool {
    /// Looks the family and its features up; `None` if the kernel does not have them.
    pub fn find(channel: &mut Channel) -> Result<Option<Self>, Error> {
        let Some(found) = Family::find(channel, "ethtool", "genl family ethtool")? else { return Ok(None) };
        let (Some(family), Some(monitor)) = (found.number(), found.group("monitor")) else { return Ok(None) };
        let names = [ETHTOOL_MSG_STRSET_GET, 1, 0, 0];
        let answers = channel.request("ethtool strset-get", family, &names, |batch| {
            // Without a device: the names are the same for all.
            batch.nest(ETHTOOL_A_STRSET_HEADER, |_| ());
            batch.nest(ETHTOOL_A_STRSET_STRINGSETS, |sets| {
                sets.nest(ETHTOOL_A_STRINGSETS_STRINGSET, |set| {
                    set.put(ETHTOOL_A_STRINGSET_ID, &ETH_SS_FEATURES.to_ne_bytes());
                });
            });
        });
        let answers = match answers {
            Err(Error::Refused { .. }) => return Ok(None),
            answers => answers?,
        };
        let features = answers.first().map(|answer| Features::named(&answer.payload)).unwrap_or_default();
        // Without the number, tags would seem to stay in the frames.
        Ok(features.vlan_parse.map(|_| Self { family, monitor, features }))
    }

    /// Reads the offloads of a device.
    pub fn offloads(self, channel: &mut Channel, ifindex: u32) -> Result<Option<Event>, Error> {
        let command = [ETHTOOL_MSG_FEATURES_GET, 1, 0, 0];
        let answers = channel.request("ethtool features-get", self.family, &command, |batch| {
            batch.nest(ETHTOOL_A_FEATURES_HEADER, |header| {
                header.put(ETHTOOL_A_HEADER_DEV_INDEX, &ifindex.to_ne_bytes());
                header.put(ETHTOOL_A_HEADER_FLAGS, &ETHTOOL_FLAG_COMPACT_BITSETS.to_ne_bytes());
            });
        })?;
        Ok(answers.iter().find_map(|answer| self.features.offloads(&answer.payload)))
    }

    /// The event of a message of the group `monitor`.
    pub fn event(self, message: &Message) -> Option<Event> {
        let is_about_features = message.payload.first() == Some(&ETHTOOL_MSG_FEATURES_NTF);
        is_about_features.then(|| self.features.offloads(message.payload))?
    }
}

/// Parses a message as the list of names and as offloads, for fuzzing.
pub(crate) fn parse(message: &Message) -> Option<Event> {
    Features::named(message.payload).offloads(message.payload)
}

impl Features {
    /// The numbers in the kernel's list of names.
    fn named(payload: &[u8]) -> Self {
        let sets = Attrs::after(payload, HEADER_BYTES).nested(ETHTOOL_A_STRSET_STRINGSETS);
        let names = sets.nested(ETHTOOL_A_STRINGSETS_STRINGSET).nested(ETHTOOL_A_STRINGSET_STRINGS);
        let mut features = Self::default();
        for (_, string) in names {
            let string = Attrs::new(string);
            let number = string.u32(ETHTOOL_A_STRING_INDEX);
            match string.text(ETHTOOL_A_STRING_VALUE).as_deref() {
                Some("rx-gro-hw") => features.gro_hw = number,
                Some("rx-vlan-hw-parse") => features.vlan_parse = number,
                Some("rx-vlan-stag-hw-parse") => features.stag_parse = number,
                _ => {}
            }
        }
        features
    }

    /// The offloads in an answer or a notification.
    fn offloads(self, payload: &[u8]) -> Option<Event> {
        let attrs = Attrs::after(payload, HEADER_BYTES);
        let active = attrs.nested(ETHTOOL_A_FEATURES_ACTIVE).get(ETHTOOL_A_BITSET_VALUE)?;
        // Words of 32 bits, in the byte order of the machine.
        let is_on = |number: Option<u32>| {
            let number = number.unwrap_or(u32::MAX);
            u32_at(active, number as usize / 32 * 4).is_some_and(|word| word >> (number % 32) & 1 != 0)
        };
        Some(Event::Offloads {
            ifindex: attrs.nested(ETHTOOL_A_FEATURES_HEADER).u32(ETHTOOL_A_HEADER_DEV_INDEX)?,
            merges: is_on(self.gro_hw),
            strips_tags: is_on(self.vlan_parse) || is_on(self.stag_parse),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink_message::{Batch, Messages};

    const FEATURES: Features = Features { gro_hw: Some(33), vlan_parse: Some(2), stag_parse: None };

    /// The payload of a message with these attributes.
    fn payload(command: u8, attrs: impl FnOnce(&mut Batch)) -> Vec<u8> {
        let mut batch = Batch::default();
        batch.message(30, 0, 0, &[command, 1, 0, 0]);
        attrs(&mut batch);
        Messages(batch.bytes()).next().unwrap().unwrap().payload.to_vec()
    }

    fn of_device(active: [u32; 2]) -> Vec<u8> {
        payload(ETHTOOL_MSG_FEATURES_NTF, |batch| {
            batch.nest(ETHTOOL_A_FEATURES_HEADER, |header| {
                header.put(ETHTOOL_A_HEADER_DEV_INDEX, &7u32.to_ne_bytes());
            });
            batch.nest(ETHTOOL_A_FEATURES_ACTIVE, |set| {
                set.put(ETHTOOL_A_BITSET_VALUE, &active.map(u32::to_ne_bytes).concat());
            });
        })
    }

    #[test]
    fn features_are_found_by_name() {
        let names = [(2, "rx-vlan-hw-parse"), (5, "rx-gro"), (33, "rx-gro-hw")];
        let answer = payload(ETHTOOL_MSG_STRSET_GET, |batch| {
            batch.nest(ETHTOOL_A_STRSET_STRINGSETS, |sets| {
                sets.nest(ETHTOOL_A_STRINGSETS_STRINGSET, |set| {
                    set.nest(ETHTOOL_A_STRINGSET_STRINGS, |strings| {
                        for (number, name) in names {
                            strings.nest(1, |string| {
                                string.put(ETHTOOL_A_STRING_INDEX, &u32::to_ne_bytes(number));
                                string.put(ETHTOOL_A_STRING_VALUE, &[name.as_bytes(), b"\0"].concat());
                            });
                        }
                    });
                });
            });
        });
        assert_eq!(Features::named(&answer), FEATURES);
        assert_eq!(Features::named(&[]), Features::default());
    }

    #[test]
    fn offloads_are_those_that_are_active() {
        let ethtool = Ethtool { family: 30, monitor: 1, features: FEATURES };
        let event = |payload: &[u8]| ethtool.event(&Message { kind: 30, flags: 0, seq: 0, payload });
        for (active, merges, strips_tags) in [
            ([0, 0], false, false),
            ([1 << 2, 0], false, true),
            ([1 << 1 | 1 << 3, 1 << 1], true, false),
            ([u32::MAX; 2], true, true),
        ] {
            let expected = Some(Event::Offloads { ifindex: 7, merges, strips_tags });
            assert_eq!(event(&of_device(active)), expected, "{active:?}");
        }
        assert_eq!(event(&[]), None);
        assert_eq!(event(&payload(ETHTOOL_MSG_FEATURES_NTF, |_| ())), None);
        assert_eq!(event(&payload(ETHTOOL_MSG_FEATURES_GET, |_| ())), None);
    }
}
