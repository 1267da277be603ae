//! Packets that ingress has passed to Linux, as far as their slots are not used again: which packets arrive, and
//! whether they leave.

use crate::{
    DataPlane, Error,
    abi::{self, Candidate, Plain},
    maps::COUNTERS,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const CANDIDATES: &str = "shunt_candidates";
/// State bits that change while a packet is in its slot.
const MOVING: u64 = abi::CANDIDATE_BUSY | abi::CANDIDATE_LEFT | abi::CANDIDATE_EMPTY;

/// Handles for reading the candidates, also from another thread.
#[derive(Debug)]
pub struct Candidates {
    slots: MapHandle,
    counters: MapHandle,
    /// The slots of the ports.
    ports: Vec<u16>,
}

/// A packet as it arrived on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Differs between packets.
    pub id: u64,
    /// The IP protocol number: 6 or 17.
    pub protocol: u8,
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// The port by which it came.
    pub ifindex: u32,
    /// Time of arrival, in ticks of the kernel.
    pub at_ticks: u32,
    /// Whether it, or a copy of it, has left through a port.
    pub left: bool,
}

impl DataPlane {
    /// The candidates; `None` if the programs that learn are not loaded.
    pub fn candidates(&self) -> Result<Option<Candidates>, Error> {
        let Some(slots) = self.maps.find(CANDIDATES) else { return Ok(None) };
        let own = |map, from| MapHandle::try_from(from).map_err(|source| Error::Map { map, source });
        Ok(Some(Candidates {
            slots: own(CANDIDATES, slots)?,
            counters: own(COUNTERS, self.maps.get(COUNTERS)?)?,
            ports: self.ports.values().map(|port| port.slot).collect(),
        }))
    }
}

impl Candidates {
    /// The packets in all slots. One that arrives meanwhile may be missing, or have a part of the one before.
    pub fn read(&self) -> Result<Vec<Arrival>, Error> {
        let failed = |source| Error::Map { map: CANDIDATES, source };
        let slots = self.slots.lookup_batch(abi::CANDIDATES, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
        Ok(slots.filter_map(|(_, slot)| arrival(&Candidate::from_bytes(&slot)?)).collect())
    }

    /// How many packets the ports have counted under this reason.
    pub fn counted(&self, reason: usize) -> Result<u64, Error> {
        let failed = |source| Error::Map { map: COUNTERS, source };
        let mut sum = 0;
        for slot in &self.ports {
            let values = self
                .counters
                .lookup_percpu(&u32::from(*slot).to_ne_bytes(), MapFlags::ANY)
                .map_err(failed)?;
            let counters = values.iter().flatten().filter_map(|value| abi::Counters::from_bytes(value));
            sum += counters.map(|counters| counters.reasons[reason]).sum::<u64>();
        }
        Ok(sum)
    }
}

fn arrival(candidate: &Candidate) -> Option<Arrival> {
    let Candidate { headers, state, at_ticks, ifindex, family, l4_proto, .. } = *candidate;
    if state == 0 || state & (abi::CANDIDATE_BUSY | abi::CANDIDATE_EMPTY) != 0 {
        return None;
    }
    let (l3, l4) = (&headers.l3, &headers.l4);
    let addresses: [IpAddr; 2] = if family == 4 {
        let at =
            |from: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(l3.get(from..from + 4)?).ok()?).into());
        [at(12)?, at(16)?]
    } else {
        let at =
            |from: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(l3.get(from..from + 16)?).ok()?).into());
        [at(8)?, at(24)?]
    };
    let port = |from: usize| Some(u16::from_be_bytes(l4.get(from..from + 2)?.try_into().ok()?));
    Some(Arrival {
        id: state & !MOVING,
        protocol: l4_proto,
        src: (addresses[0], port(0)?).into(),
        dst: (addresses[1], port(2)?).into(),
        ifindex,
        at_ticks,
        left: state & abi::CANDIDATE_LEFT != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_tells_what_arrived_and_whether_it_has_left() {
        let mut slot = Candidate { state: (5 * abi::CANDIDATE_WRITES) | 0x1003, ..Candidate::default() };
        (slot.family, slot.l4_proto, slot.ifindex, slot.at_ticks) = (4, 17, 3, 99);
        slot.headers.l3[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 2]);
        slot.headers.l4[..4].copy_from_slice(&[0x10, 0, 0, 53]);
        let seen = arrival(&slot).unwrap();
        assert_eq!(
            (seen.src, seen.dst),
            ("192.0.2.1:4096".parse().unwrap(), "198.51.100.2:53".parse().unwrap())
        );
        assert_eq!((seen.protocol, seen.ifindex, seen.at_ticks, seen.left), (17, 3, 99, false));
        slot.state |= abi::CANDIDATE_LEFT;
        assert_eq!(arrival(&slot), Some(Arrival { left: true, ..seen }));
        for unusable in [abi::CANDIDATE_BUSY, abi::CANDIDATE_EMPTY] {
            assert_eq!(arrival(&Candidate { state: slot.state | unusable, ..slot }), None);
        }
        assert_eq!(arrival(&Candidate::default()), None);

        slot.family = 6;
        slot.headers.l3[8..40].copy_from_slice(&[7; 32]);
        assert_eq!(arrival(&slot).unwrap().src.to_string(), "[707:707:707:707:707:707:707:707]:4096");
    }
}
