//! Loads the programs of `bpf/inspect/quality.bpf.c`, attaches them, and reads what they have counted.
//!
//! Attachments are links: the kernel detaches the programs when this process ends, however it ends.

use super::{Side, abi, times::Histogram};
use crate::{
    probes::{self, ObjectFile, ProgramError, failed, program},
    trace::machine::netns,
};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use shunt_bpf::abi::Plain;
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

const QUALITY: ObjectFile = probes::object!("quality");
/// The section of the programs' constants: the network namespace whose devices they watch.
const CONSTANTS: &str = ".rodata.quality";
const PORTS: &str = "quality_ports";
const HOSTS: &str = "quality_hosts";
const ROUTER: &str = "quality_router";
const UNSEEN: &str = "quality_unseen";
const MAPS: [&str; 4] = [PORTS, HOSTS, ROUTER, UNSEEN];
const PROGRAMS: [&str; 2] = ["quality_entering", "quality_leaving"];

/// Whose packets were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sender {
    /// A host, or the router.
    Host(IpAddr),
    /// The address of packets whose connection is not known: that of a host, or of the router, which NAT uses.
    Assumed(IpAddr),
    /// Hosts for which there was no room.
    NoRoom,
}

/// What was counted, by host.
pub(super) type HostTally = ((Sender, Side), abi::QualityTally);

/// What was counted besides hosts.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Time inside the router, for packets that leave by a side.
    pub(super) transit: BTreeMap<Side, Histogram>,
    pub(super) unseen: abi::QualityUnseen,
}

/// The programs, attached until this is dropped.
pub(super) struct Programs {
    // In the order in which they are dropped: detach first.
    links: Vec<Link>,
    maps: BTreeMap<String, MapHandle>,
    object: Object,
}

impl Programs {
    /// Loads and attaches the programs, for these ports, by ifindex, of the calling thread's network namespace.
    pub(super) fn attach(ports: &[(u32, Side)]) -> Result<Self, ProgramError> {
        let namespace = netns().map_err(|e| said("reading the network namespace", &e))?;
        let mut maps = BTreeMap::new();
        let constants = (CONSTANTS, &namespace.to_ne_bytes()[..]);
        let object =
            probes::load(QUALITY, constants, &mut maps, |name| MAPS.contains(&name), &[], |_| Ok(()))?;
        let mut loaded = Self { links: Vec::new(), maps, object };
        for (index, side) in ports {
            loaded.write(PORTS, &index.to_ne_bytes(), &side.number().to_ne_bytes())?;
        }
        // Hosts for which there is no room.
        for side in Side::ALL {
            let others = abi::QualityHost { side: side.number(), ..abi::QualityHost::default() };
            loaded.write(HOSTS, others.bytes(), abi::QualityTally::default().bytes())?;
        }
        for name in PROGRAMS {
            let link = program(&loaded.object, name)?.attach_trace();
            loaded.links.push(link.map_err(|e| failed(&format!("attaching {name}"), &e))?);
        }
        Ok(loaded)
    }

    /// Detaches the programs, and reads what they have counted.
    pub(super) fn finish(mut self) -> Result<(Vec<HostTally>, Counted), ProgramError> {
        self.links.clear();
        let mut tallies = Vec::new();
        let hosts = &self.maps[HOSTS];
        for key in hosts.keys() {
            let found =
                hosts.lookup(&key, MapFlags::ANY).map_err(|e| failed("reading the map of hosts", &e))?;
            let tally = found.as_deref().and_then(abi::QualityTally::from_bytes);
            if let (Some(host), Some(tally)) = (abi::QualityHost::from_bytes(&key), tally) {
                let side = Side::ALL.into_iter().find(|side| side.number() == host.side);
                tallies.extend(side.map(|side| ((sender(&host), side), tally)));
            }
        }
        let mut counted = Counted::default();
        for side in Side::ALL {
            let router = self.read::<abi::QualityRouter>(ROUTER, side.number())?;
            counted.transit.insert(side, Histogram::from(&router.transit));
        }
        counted.unseen = self.read(UNSEEN, 0)?;
        Ok((tallies, counted))
    }

    /// Reads an entry of an array; zeros if it is absent.
    fn read<T: Plain + Default>(&self, name: &str, key: u32) -> Result<T, ProgramError> {
        let found = self.maps[name].lookup(&key.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(|e| failed(&format!("reading the map {name}"), &e))?;
        Ok(found.as_deref().and_then(T::from_bytes).unwrap_or_default())
    }

    fn write(&self, name: &str, key: &[u8], value: &[u8]) -> Result<(), ProgramError> {
        let written = self.maps[name].update(key, value, MapFlags::ANY);
        written.map_err(|e| failed(&format!("writing the map {name}"), &e))
    }
}

fn sender(host: &abi::QualityHost) -> Sender {
    let bytes = host.addr_be;
    let address = match host.family {
        4 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        6 => Ipv6Addr::from(bytes).into(),
        _ => return Sender::NoRoom,
    };
    if host.is_assumed == 0 { Sender::Host(address) } else { Sender::Assumed(address) }
}

fn said(doing: &str, error: &io::Error) -> ProgramError {
    ProgramError {
        doing: doing.to_owned(),
        why: error.to_string(),
        forbidden: error.kind() == io::ErrorKind::PermissionDenied,
    }
}
