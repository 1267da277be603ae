//! The last MAC of each neighbour, also of those whose entry Linux has removed meanwhile: a host that comes back with
//! another network card is news, an entry that ages is none.

use shunt_wire::Mac;
use std::{collections::BTreeMap, net::IpAddr};

/// Neighbours that are remembered. A host of the network can invent more.
const MOST: usize = 1024;

type Neighbour = (u32, IpAddr);

/// The last MACs of neighbours, by device and address.
#[derive(Debug, Default)]
pub(crate) struct KnownMacs {
    macs: BTreeMap<Neighbour, (u64, Mac)>,
    /// The neighbours by the number of their last message.
    by_age: BTreeMap<u64, Neighbour>,
    messages: u64,
}

impl KnownMacs {
    /// Notes the MAC of a neighbour. Returns the one it had before, if that is another one.
    pub(crate) fn note(&mut self, ifindex: u32, addr: IpAddr, mac: Mac) -> Option<Mac> {
        // A device without addresses of layer 2 has such entries.
        if mac == Mac::default() {
            return None;
        }
        let neighbour = (ifindex, addr);
        self.messages += 1;
        let before = self.macs.insert(neighbour, (self.messages, mac));
        if let Some((message, _)) = before {
            self.by_age.remove(&message);
        } else if self.macs.len() > MOST
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.macs.remove(&oldest);
        }
        self.by_age.insert(self.messages, neighbour);
        before.map(|(_, before)| before).filter(|before| *before != mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u32) -> IpAddr {
        IpAddr::V4((0xc0a8_0000 + n).into())
    }

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn a_neighbour_with_another_mac_is_found_and_each_device_has_its_own() {
        let mut known = KnownMacs::default();
        assert_eq!(known.note(1, addr(1), A), None);
        assert_eq!(known.note(1, addr(1), A), None, "its state has changed");
        assert_eq!(known.note(2, addr(1), B), None);
        assert_eq!(known.note(1, addr(1), B), Some(A));
        assert_eq!(known.note(1, addr(1), Mac::default()), None);
        assert_eq!(known.note(1, addr(1), A), Some(B));
    }

    #[test]
    fn invented_neighbours_are_bounded_and_hide_none_that_is_in_use() {
        let mut known = KnownMacs::default();
        known.note(1, addr(0), A);
        for n in 1..10 * MOST as u32 {
            assert_eq!(known.note(1, addr(n), A), None);
            known.note(1, addr(0), A);
        }
        assert_eq!((known.macs.len(), known.by_age.len()), (MOST, MOST));
        assert_eq!(known.note(1, addr(0), B), Some(A));
    }
}
