//! Handing a data plane over to the next daemon: the maps, with flows and counters, and what is attached to the ports.
//! The next daemon loads programs of its own on the same maps, and puts them in the place of the attached ones.

use crate::{
    DataPlane, Error, Size,
    abi::{self, Control, Plain, Port, REASONS, Slots},
    attach::{AttachMode, Attachment, DeviceLink, Hook},
    former_ports::FormerPorts,
    maps::{CONTROL_MAP, Maps, PATH, SETS},
    object::{TC_WATCH, XDP_FORWARD, program},
    pending::{AttachedPort, AttachedTc, AttachedXdp, FreeSlot, XdpChange, XdpProgram},
    plane::LoadOptions,
    ports::{PORTS, UPPERS},
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// Maps that a program uses while it runs and at no other time: their layout is the program's own.
const PRIVATE: [&str; 3] = ["shunt_scratch", "shunt_chunk", "shunt_edit"];

/// The Rust twin of `bpf/abi`: every structure, size and constant that programs and daemons share.
const ABI: &str = include_str!(concat!(env!("OUT_DIR"), "/shunt_abi.rs"));

/// Identifies the layout of what a data plane's maps contain. Two daemons with the same number can use the same maps,
/// if the maps have the sizes that the programs expect, which loading verifies.
///
/// Computed by the compiler, so that no program contains the text.
pub const LAYOUT: u64 = {
    let mut hash = fnv_1a(0xcbf2_9ce4_8422_2325, ABI.as_bytes());
    let mut number = 0;
    while number < REASONS.len() {
        hash = fnv_1a(hash, REASONS[number].name.as_bytes());
        number += 1;
    }
    fnv_1a(hash, &abi::ABI_VERSION.to_ne_bytes())
};

const fn fnv_1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

/// What is attached to a port, without its descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedPort {
    /// Interface index of the device.
    pub ifindex: u32,
    /// Slot of the port, `0..PORTS_MAX`.
    pub slot: u16,
    /// How the tc programs are attached.
    pub mode: AttachMode,
    /// Whether there is a tc program on egress.
    pub egress: bool,
    /// The XDP program and its id, if there is one.
    pub xdp: Option<(XdpProgram, u32)>,
}

impl HandedPort {
    /// The number of descriptors that come with it: one for each link.
    pub fn links(&self) -> usize {
        let tc = if self.mode == AttachMode::Tcx { 1 + usize::from(self.egress) } else { 0 };
        tc + usize::from(self.xdp.is_some())
    }
}

/// The maps of a data plane, received from the daemon before this one.
pub struct HandedMaps {
    maps: Maps,
    /// The most flows of each address family.
    pub max_flows: u32,
    /// The seed of the tables' hash.
    pub seed: u64,
}

impl HandedMaps {
    /// Opens the maps behind these descriptors.
    ///
    /// # Errors
    /// If a descriptor is not that of a map.
    pub fn open(named: Vec<(String, OwnedFd)>, max_flows: u32, seed: u64) -> Result<Self, Error> {
        let mut maps = Maps::default();
        for (name, fd) in named {
            let opened = map_id(fd.as_fd()).map_err(Error::Descriptor)?;
            maps.add(name, || MapHandle::from_map_id(opened))
                .map_err(|source| Error::Map { map: "handed over", source })?;
        }
        Ok(Self { maps, max_flows, seed })
    }

    /// Whether the control block is of this version and describes these tables.
    pub fn control_agrees(&self) -> bool {
        let size = Size { max_flows: self.max_flows, seed: self.seed };
        let value =
            self.maps.find(CONTROL_MAP).and_then(|map| map.lookup(&[0; 4], MapFlags::ANY).ok().flatten());
        value.as_deref().and_then(Control::from_bytes).is_some_and(|control| {
            control.abi == abi::ABI_VERSION
                && control.bucket_mask == size.buckets() - 1
                && (control.max_flows, control.seed) == (self.max_flows, self.seed)
        })
    }

    /// The ports that the programs know: ifindex and slot.
    pub fn ports(&self) -> BTreeMap<u32, u16> {
        let Some(map) = self.maps.find(PORTS) else { return BTreeMap::new() };
        let port = |key: Vec<u8>| map.lookup(&key, MapFlags::ANY).ok().flatten();
        let ports = map.keys().filter_map(|key| Port::from_bytes(&port(key)?));
        ports.map(|port| (port.ifindex, port.slot)).collect()
    }
}

/// The number of a map, which no other map has.
///
/// # Errors
/// If the descriptor is not that of a map.
pub fn map_id(map: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is zeroed, `len` is its size, and both outlive the call.
    let err = unsafe { libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut len) };
    if err == 0 { Ok(info.id) } else { Err(io::Error::from_raw_os_error(-err)) }
}

fn handed(ifindex: u32, port: &AttachedPort) -> Option<(HandedPort, Vec<BorrowedFd<'_>>)> {
    let AttachedTc { mode, ingress, egress, .. } = port.tc.as_ref()?;
    let xdp = port.xdp.as_ref();
    let attachments = [Some(ingress), egress.as_ref(), xdp.map(|xdp| &xdp.attachment)];
    let links = attachments.into_iter().flatten().filter_map(Attachment::link).collect();
    let described = HandedPort {
        ifindex,
        slot: port.slot,
        mode: *mode,
        egress: egress.is_some(),
        xdp: xdp.map(|xdp| (xdp.program, xdp.id)),
    };
    Some((described, links))
}

impl DataPlane {
    /// Loads the programs on the maps of another daemon. Until [`DataPlane::adopt_port`], nothing that the other daemon
    /// writes is written: not the control block either.
    ///
    /// # Errors
    /// As for [`DataPlane::load`]; [`Error::Layout`] if a map has another shape than the programs expect.
    pub fn load_on(handed: HandedMaps, options: LoadOptions) -> Result<Self, Error> {
        let HandedMaps { maps, max_flows, seed } = handed;
        let mut plane = Self::load_with(maps, Size { max_flows, seed }, options)?;
        plane.uppers = plane.entries_of(UPPERS, |key, value| {
            Some((u32::from_ne_bytes(key.try_into().ok()?), Slots::from_bytes(value)?))
        });
        plane.sets = plane.entries_of(SETS, |key, _| Some(key.to_vec()));
        plane.path = plane.entries_of(PATH, |key, _| Some(key.to_vec()));
        Ok(plane)
    }

    /// The entries of a map, if there is such a map.
    fn entries_of<T, C: FromIterator<T>>(&self, name: &str, entry: impl Fn(&[u8], &[u8]) -> Option<T>) -> C {
        let Some(map) = self.maps.find(name) else { return std::iter::empty().collect() };
        let entries = map.keys().filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok().flatten()?;
            entry(&key, &value)
        });
        entries.collect()
    }

    /// The maps for the next daemon, by name.
    pub fn handed_maps(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        // Those of one object alone begin with the name of the object.
        let is_shared =
            |name: &str| !PRIVATE.contains(&name) && !name.contains(".rodata") && !name.contains(".data");
        self.maps.named().filter(move |(name, _)| is_shared(name))
    }

    /// The seed of the tables' hash.
    pub fn seed(&self) -> u64 {
        self.size.seed
    }

    /// What is attached to the ports, with the descriptors of the links. `None` while a port is being changed.
    pub fn handed_ports(&self) -> Option<Vec<(HandedPort, Vec<BorrowedFd<'_>>)>> {
        self.ports.iter().map(|(ifindex, port)| handed(*ifindex, port)).collect()
    }

    /// Keeps new ports from using a slot, until [`DataPlane::release_slots`].
    pub fn keep_slot(&mut self, slot: u16) {
        self.reserved.insert(slot);
    }

    /// Expects that flows name former ports of another daemon, which has handed over.
    pub fn expect_former_ports(&mut self) {
        self.former = FormerPorts::unknown(self.control.epoch());
    }

    /// Makes a port of what another daemon has attached, and puts the programs of this data plane in the place of the
    /// attached ones: each packet meets one of them. Waits for the RTNL lock.
    ///
    /// # Errors
    /// If a link is missing, or the kernel does not exchange a program. Then nothing is attached to the device.
    pub fn adopt_port(
        &mut self,
        port: HandedPort,
        links: Vec<OwnedFd>,
        flags: u16,
    ) -> Result<AttachMode, Error> {
        let adopted = self.exchange(port, links, flags);
        if adopted.is_err() {
            self.forget_port(port, Vec::new())?;
        }
        adopted
    }

    /// Detaches what another daemon has attached to a device that is no port any more, and moves the epoch.
    ///
    /// # Errors
    /// If a map cannot be written.
    pub fn forget_port(&mut self, port: HandedPort, links: Vec<OwnedFd>) -> Result<(), Error> {
        drop(links.into_iter().map(DeviceLink::new).collect::<Vec<_>>());
        if port.mode == AttachMode::Clsact {
            for hook in [Hook::Ingress, Hook::Egress] {
                drop(Attachment::filter(port.ifindex, hook, self.filter_handle));
            }
        }
        self.erase_port(port.ifindex, port.slot)?;
        // Actions name their ports by slot.
        self.control.move_epoch();
        self.detached(FreeSlot(port.slot))
    }

    fn exchange(&mut self, port: HandedPort, links: Vec<OwnedFd>, flags: u16) -> Result<AttachMode, Error> {
        let HandedPort { ifindex, slot, mode, egress, xdp } = port;
        let failed = |hook| move |source| Error::Attach { ifindex, hook, source };
        let missing = || io::Error::from(io::ErrorKind::InvalidInput);
        let slot_is_free = u32::from(slot) < abi::PORTS_MAX && self.ifindex_at(slot).is_none();
        if links.len() != port.links() || !slot_is_free {
            return Err(failed(Hook::Ingress)(missing()));
        }
        let mut links = links.into_iter().map(|link| Attachment::Link(DeviceLink::new(link)));
        let mut tc = |hook, there: bool| match (there, mode) {
            (false, _) => None,
            (true, AttachMode::Tcx) => links.next(),
            (true, AttachMode::Clsact) => Attachment::filter(ifindex, hook, self.filter_handle),
        };
        let (ingress, egress) = (tc(Hook::Ingress, true), tc(Hook::Egress, egress));
        let ingress = ingress.ok_or_else(missing).map_err(failed(Hook::Ingress))?;
        let attached = AttachedTc { mode, ingress, egress, rests: false };
        let former = links.next();
        self.exchange_tc(ifindex, flags, &attached)?;
        let xdp = match (xdp, former) {
            (Some((which, id)), Some(attachment)) => Some(self.exchanged_xdp(
                ifindex,
                AttachedXdp { program: which, id, attachment, form: self.first_xdp_form() },
            )?),
            _ => None,
        };
        self.ports.insert(ifindex, AttachedPort { slot, tc: Some(attached), xdp });
        self.set_flags(ifindex, flags)?;
        Ok(mode)
    }

    fn exchange_tc(&mut self, ifindex: u32, flags: u16, attached: &AttachedTc) -> Result<(), Error> {
        let ingress = self.ingress(flags, false)?;
        self.put(ifindex, Hook::Ingress, &attached.ingress, ingress.as_fd())?;
        match (&attached.egress, &self.watch) {
            (Some(egress), Some(watch)) => {
                let program = program(watch, &TC_WATCH, "shunt_out")?;
                self.put(ifindex, Hook::Egress, egress, program.as_fd())
            }
            (None, None) => Ok(()),
            _ => Err(Error::Attach {
                ifindex,
                hook: Hook::Egress,
                source: io::Error::from(io::ErrorKind::InvalidInput),
            }),
        }
    }

    /// Puts a program in the place of an attached one.
    fn put(
        &self,
        ifindex: u32,
        hook: Hook,
        attached: &Attachment,
        program: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let failed = |source| Error::Attach { ifindex, hook, source };
        match attached {
            Attachment::Link(_) => attached.replace(&program).map_err(failed),
            Attachment::Filter(filter) => {
                if let Some(owner) = &self.owner {
                    owner.bind(program).map_err(failed)?;
                }
                filter.replace(&program)
            }
        }
    }

    fn exchanged_xdp(&self, ifindex: u32, former: AttachedXdp) -> Result<AttachedXdp, Error> {
        let next = self.next_xdp(former.program)?;
        let change = XdpChange {
            ifindex,
            former: Some(former.attachment),
            next: Some(next),
            form: self.first_xdp_form(),
        };
        let missing = Error::Missing { object: XDP_FORWARD.name, name: "shunt_xdp" };
        change.make()?.ok_or(missing)
    }

    /// Leaves everything as it is, for the next daemon: nothing is detached. To be called by a process that ends, since
    /// only that closes the descriptors.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_depends_on_structures_and_constants() {
        assert!(ABI.contains("struct Control") && ABI.contains("PORTS_MAX"));
        // The vectors of the algorithm's authors.
        assert_eq!(fnv_1a(0xcbf2_9ce4_8422_2325, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(0xcbf2_9ce4_8422_2325, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_port_has_a_descriptor_for_each_link() {
        let port = |mode, egress, xdp| HandedPort { ifindex: 1, slot: 0, mode, egress, xdp };
        let xdp = Some((XdpProgram::Forward, 7));
        assert_eq!(port(AttachMode::Tcx, true, xdp).links(), 3);
        assert_eq!(port(AttachMode::Tcx, false, None).links(), 1);
        assert_eq!(port(AttachMode::Clsact, true, xdp).links(), 1);
    }
}
