//! The data plane: the objects, their shared maps, and the ports they are attached to.

use crate::{
    Error,
    abi::{self, Cold, Counters, Edit, Flow, Key4, Key6, Plain, Port, Sweep},
    attach::{self, Attachment, Hook, Means},
    control::ControlBlock,
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput, ProgramMut, RingBuffer,
    RingBufferBuilder,
};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::mpsc,
    time::Duration,
};
use tokio::io::{Interest, unix::AsyncFd};

macro_rules! object {
    ($name:literal) => {
        Source { name: $name, bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".o")) }
    };
}

struct Source {
    name: &'static str,
    bytes: &'static [u8],
}

const TC_FORWARD: Source = object!("tc_forward");
const TC_WATCH: Source = object!("tc_watch");
const XDP_FORWARD: Source = object!("xdp_forward");
const TABLE: Source = object!("table");

/// How large the data plane is made.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Flows of each family.
    pub max_flows: u32,
    /// Seed of the tables' hash, so that nobody can choose tuples that collide.
    pub seed: u64,
}

/// One element for two buckets.
const TAGS: [&str; 2] = ["shunt_tags4", "shunt_tags6"];
const TABLES: [&str; 4] = ["shunt_table4", "shunt_table6", "shunt_cold4", "shunt_cold6"];

impl Size {
    /// A power of two that leaves a third of the entries free: a key has eight places, and one of them must be.
    fn buckets(self) -> u32 {
        let entries = u64::from(self.max_flows) * 3 / 2;
        u32::try_from(entries.div_ceil(abi::WAYS as u64).next_power_of_two()).unwrap_or(1 << 31)
    }
}

/// A flow as it is kept: its action, the addresses it translates to, and the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    /// The action and the counts.
    pub flow: Flow,
    /// New source and then new destination address: 4 or 16 bytes each.
    pub to: [u8; 32],
    /// Counts of other CPUs, and the time of learning.
    pub cold: Cold,
}

impl Entry {
    /// Packets forwarded.
    pub fn pkts(&self) -> u64 {
        self.flow.pkts.wrapping_add(self.cold.away_pkts)
    }

    /// Bytes forwarded, from the L3 header on.
    pub fn bytes(&self) -> u64 {
        self.flow.bytes.wrapping_add(self.cold.away_bytes)
    }
}

/// What a flow is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// IPv4.
    V4(Key4),
    /// IPv6.
    V6(Key6),
}

struct AttachedPort {
    slot: u16,
    means: Means,
    _ingress: Attachment,
    _egress: Option<Attachment>,
    xdp: Option<Attachment>,
}

/// The loaded data plane. Dropping it detaches everything.
pub struct DataPlane {
    ports: BTreeMap<u32, AttachedPort>,
    maps: BTreeMap<String, MapHandle>,
    tc: Object,
    watch: Option<Object>,
    xdp: Option<Object>,
    table: Object,
    control: ControlBlock,
    filter_handle: u32,
}

// SAFETY: libbpf objects are not tied to a thread; the type is used from one thread at a time.
unsafe impl Send for DataPlane {}

fn load(source: &Source, size: Size, shared: &mut BTreeMap<String, MapHandle>) -> Result<Object, Error> {
    let failed = |e| Error::Load { object: source.name, source: e };
    let mut open = ObjectBuilder::default().open_memory(source.bytes).map_err(failed)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(have) = shared.get(&name) {
            map.reuse_fd(have.as_fd()).map_err(failed)?;
        } else if TABLES.contains(&name.as_str()) {
            map.set_max_entries(size.buckets()).map_err(failed)?;
        } else if TAGS.contains(&name.as_str()) {
            map.set_max_entries(size.buckets().div_ceil(2)).map_err(failed)?;
        }
    }
    let object = open.load().map_err(failed)?;
    for map in object.maps() {
        let name = map.name().to_string_lossy().into_owned();
        if let std::collections::btree_map::Entry::Vacant(place) = shared.entry(name) {
            place.insert(MapHandle::try_from(&map).map_err(failed)?);
        }
    }
    Ok(object)
}

fn program<'o>(object: &'o Object, of: &'static str, name: &'static str) -> Result<ProgramMut<'o>, Error> {
    object.progs_mut().find(|p| p.name() == OsStr::new(name)).ok_or(Error::Lacks { object: of, name })
}

impl DataPlane {
    /// Loads all programs and creates the maps. Where conntrack's kfuncs are missing, learning is off and static
    /// flows still work: `learns()` tells.
    pub fn load(size: Size) -> Result<Self, Error> {
        // What goes wrong comes back as an error; libbpf would print it besides, and things that are no errors too.
        let _ = libbpf_rs::set_print(None);
        let mut maps = BTreeMap::new();
        let tc = load(&TC_FORWARD, size, &mut maps)?;
        let watch = load(&TC_WATCH, size, &mut maps);
        let xdp = load(&XDP_FORWARD, size, &mut maps).ok();
        let table = load(&TABLE, size, &mut maps)?;
        let control = maps
            .get("shunt_control")
            .ok_or(Error::Lacks { object: TC_FORWARD.name, name: "shunt_control" })?;
        let control = ControlBlock::map(control.as_fd())?;
        control.set_tables(size.buckets() - 1, size.max_flows, size.seed);
        Ok(Self {
            ports: BTreeMap::new(),
            maps,
            tc,
            watch: watch.ok(),
            xdp,
            table,
            control,
            filter_handle: 1,
        })
    }

    /// Whether flows can be learned, which needs conntrack's kfuncs.
    pub fn learns(&self) -> bool {
        self.watch.is_some()
    }

    /// The id of our XDP program, to tell it from others on a device.
    pub fn xdp_program_id(&self) -> Option<u32> {
        let fd = self.program_fd(Hook::Xdp)?;
        attach::program_id(fd)
    }

    /// The block that is shared with the programs.
    pub fn control(&self) -> &ControlBlock {
        &self.control
    }

    fn map(&self, name: &'static str) -> Result<&MapHandle, Error> {
        self.maps.get(name).ok_or(Error::Lacks { object: "loaded", name })
    }

    /// Whose clsact filters are, where there is no TCX: not 0, and another one for each instance.
    pub fn set_filter_handle(&mut self, handle: u32) {
        self.filter_handle = handle;
    }

    /// Attaches the tc programs to a port.
    pub fn attach(&mut self, ifindex: u32, flags: u16, tcx: bool) -> Result<Means, Error> {
        let slot = (0..abi::PORTS_MAX as u16)
            .find(|slot| self.ports.values().all(|p| p.slot != *slot))
            .ok_or(Error::TooManyPorts(abi::PORTS_MAX))?;
        self.write_port(ifindex, Port { slot, flags, ifindex })?;
        let ingress = program(&self.tc, TC_FORWARD.name, "shunt_in")?;
        let failed = |hook| move |source| Error::Attach { ifindex, hook, source };
        let by_link = if tcx {
            attach::link(&ingress, ifindex, Hook::Ingress)
        } else {
            Err(std::io::Error::from_raw_os_error(nix::libc::EINVAL))
        };
        let (means, ingress) = match by_link {
            Ok(link) => (Means::Tcx, link),
            // Kernels before 6.6 do not know the attach type.
            Err(e) if e.raw_os_error() == Some(nix::libc::EINVAL) => {
                (Means::Clsact, attach::filter(&ingress, ifindex, Hook::Ingress, self.filter_handle)?)
            }
            Err(e) => return Err(failed(Hook::Ingress)(e)),
        };
        let egress = match &self.watch {
            None => None,
            Some(watch) => {
                let out = program(watch, TC_WATCH.name, "shunt_out")?;
                Some(match means {
                    Means::Tcx => attach::link(&out, ifindex, Hook::Egress).map_err(failed(Hook::Egress))?,
                    Means::Clsact => attach::filter(&out, ifindex, Hook::Egress, self.filter_handle)?,
                })
            }
        };
        self.ports
            .insert(ifindex, AttachedPort { slot, means, _ingress: ingress, _egress: egress, xdp: None });
        Ok(means)
    }

    /// Attaches or detaches the XDP program of a port that has the tc programs.
    pub fn set_xdp(&mut self, ifindex: u32, on: bool) -> Result<(), Error> {
        let Some(port) = self.ports.get_mut(&ifindex) else { return Ok(()) };
        if !on {
            port.xdp = None;
        } else if port.xdp.is_none() {
            let object =
                self.xdp.as_ref().ok_or(Error::Lacks { object: XDP_FORWARD.name, name: "shunt_xdp" })?;
            let program = program(object, XDP_FORWARD.name, "shunt_xdp")?;
            let link = attach::link(&program, ifindex, Hook::Xdp).map_err(|source| Error::Attach {
                ifindex,
                hook: Hook::Xdp,
                source,
            })?;
            port.xdp = Some(link);
        }
        Ok(())
    }

    /// Whether XDP runs on a port.
    pub fn has_xdp(&self, ifindex: u32) -> bool {
        self.ports.get(&ifindex).is_some_and(|p| p.xdp.is_some())
    }

    /// How a port's tc programs are attached; none when it is no port.
    pub fn means(&self, ifindex: u32) -> Option<Means> {
        self.ports.get(&ifindex).map(|p| p.means)
    }

    /// A port's slot.
    pub fn slot(&self, ifindex: u32) -> Option<u16> {
        self.ports.get(&ifindex).map(|p| p.slot)
    }

    /// The port of a slot.
    pub fn ifindex_at(&self, slot: u16) -> Option<u32> {
        self.ports.iter().find(|(_, port)| port.slot == slot).map(|(ifindex, _)| *ifindex)
    }

    /// Detaches from a device and forgets it.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        if let Some(port) = self.ports.remove(&ifindex) {
            let zero = vec![Counters::default().bytes().to_vec(); cpus()?];
            self.map("shunt_counters")?
                .update_percpu(&u32::from(port.slot).to_ne_bytes(), &zero, MapFlags::ANY)
                .map_err(|source| Error::Map { map: "shunt_counters", source })?;
            self.delete("shunt_ports", &ifindex.to_ne_bytes())?;
            self.update("shunt_near_ports", &near(ifindex), Port::default().bytes())?;
            self.update("shunt_slots", &u32::from(port.slot).to_ne_bytes(), &0u32.to_ne_bytes())?;
            if self.xdp.is_some() {
                self.delete("shunt_devmap", &u32::from(port.slot).to_ne_bytes())?;
            }
        }
        Ok(())
    }

    /// Changes what a port can do.
    pub fn set_flags(&self, ifindex: u32, flags: u16) -> Result<(), Error> {
        match self.slot(ifindex) {
            Some(slot) => self.write_port(ifindex, Port { slot, flags, ifindex }),
            None => Ok(()),
        }
    }

    fn write_port(&self, ifindex: u32, port: Port) -> Result<(), Error> {
        self.update("shunt_slots", &u32::from(port.slot).to_ne_bytes(), &ifindex.to_ne_bytes())?;
        self.update("shunt_ports", &ifindex.to_ne_bytes(), port.bytes())?;
        // Of two ports with the same low bits the last one has the place, and the other is found by the hash.
        self.update("shunt_near_ports", &near(ifindex), port.bytes())?;
        if self.xdp.is_some() {
            self.update("shunt_devmap", &u32::from(port.slot).to_ne_bytes(), &ifindex.to_ne_bytes())?;
        }
        Ok(())
    }

    fn update(&self, map: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.map(map)?.update(key, value, MapFlags::ANY).map_err(|source| Error::Map { map, source })
    }

    fn delete(&self, map: &'static str, key: &[u8]) -> Result<(), Error> {
        match self.map(map)?.delete(key) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => Err(Error::Map { map, source: e }),
            _ => Ok(()),
        }
    }

    /// A port's counters, summed over the CPUs.
    pub fn counters(&self, ifindex: u32) -> Result<Counters, Error> {
        let mut sum = Counters::default();
        let Some(slot) = self.slot(ifindex) else { return Ok(sum) };
        let map = "shunt_counters";
        let values = self
            .map(map)?
            .lookup_percpu(&u32::from(slot).to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| Error::Map { map, source })?;
        for value in values.iter().flatten() {
            if let Some(one) = Counters::of(value) {
                sum.add(&one);
            }
        }
        Ok(sum)
    }

    /// Shows every flow to `see`. Flows that come or go meanwhile may be missed or seen twice.
    pub fn each_flow(&self, mut see: impl FnMut(Key, Entry)) -> Result<(), Error> {
        self.each_entry("shunt_table4", "shunt_cold4", abi::ENTRY4, |bytes, cold| {
            let key = Key4::of(bytes).filter(|key| key.ifindex != 0).map(Key::V4);
            if let (Some(key), Some(entry)) = (key, entry_of(&bytes[size_of::<Key4>()..], 8, cold)) {
                see(key, entry);
            }
        })?;
        self.each_entry("shunt_table6", "shunt_cold6", abi::ENTRY6, |bytes, cold| {
            let key = Key6::of(bytes).filter(|key| key.ifindex != 0).map(Key::V6);
            if let (Some(key), Some(entry)) = (key, entry_of(&bytes[size_of::<Key6>()..], 32, cold)) {
                see(key, entry);
            }
        })
    }

    fn each_entry(
        &self,
        table: &'static str,
        cold: &'static str,
        size: usize,
        mut see: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        const BATCH: u32 = 256;
        let read = |map: &'static str| {
            self.map(map)?
                .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
                .map_err(|source| Error::Map { map, source })
        };
        for ((_, entries), (_, colds)) in read(table)?.zip(read(cold)?) {
            for (entry, cold) in entries.chunks_exact(size).zip(colds.chunks_exact(size_of::<Cold>())) {
                see(entry, cold);
            }
        }
        Ok(())
    }

    fn edit(&self, op: u32, key: &Key, entry: &Entry) -> Result<Option<Entry>, Error> {
        let map = "shunt_table";
        let mut ask = Edit { op, flow: entry.flow, to: entry.to, ..Edit::default() };
        match key {
            Key::V4(key) => {
                ask.family = 4;
                ask.key[..size_of::<Key4>()].copy_from_slice(key.bytes());
            }
            Key::V6(key) => {
                ask.family = 6;
                ask.key.copy_from_slice(key.bytes());
            }
        }
        let desk = 0u32.to_ne_bytes();
        self.update("shunt_desk", &desk, ask.bytes())?;
        program(&self.table, TABLE.name, "shunt_edit_flow")?
            .test_run(ProgramInput::default())
            .map_err(|source| Error::Map { map, source })?;
        let done = self
            .map("shunt_desk")?
            .lookup(&desk, MapFlags::ANY)
            .map_err(|source| Error::Map { map: "shunt_desk", source })?;
        let done = done.as_deref().and_then(Edit::of).unwrap_or_default();
        match -done.result {
            0 => Ok(Some(Entry { flow: done.flow, to: done.to, cold: done.cold })),
            nix::libc::ENOENT => Ok(None),
            nix::libc::ENOSPC => Err(Error::Full),
            error => Err(Error::Map { map, source: libbpf_rs::Error::from_raw_os_error(error) }),
        }
    }

    /// Puts a flow in, or replaces it.
    pub fn put_flow(&self, key: &Key, entry: &Entry) -> Result<(), Error> {
        self.edit(abi::EDIT_PUT, key, entry).map(|_| ())
    }

    /// A flow that is there.
    pub fn flow(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.edit(abi::EDIT_GET, key, &Entry::default())
    }

    /// Takes a flow out.
    pub fn remove_flow(&self, key: &Key) -> Result<(), Error> {
        self.edit(abi::EDIT_REMOVE, key, &Entry::default()).map(|_| ())
    }

    /// Says that the daemon is alive.
    pub fn beat(&self) -> Result<(), Error> {
        program(&self.table, TABLE.name, "shunt_beat")?
            .test_run(ProgramInput::default())
            .map(|_| ())
            .map_err(|source| Error::Map { map: "shunt_control", source })
    }

    /// Walks the tables inside the kernel: retires what is idle (or everything learned), removes what was retired.
    pub fn sweep(&self, idle: Duration, all: bool) -> Result<Sweep, Error> {
        let failed = |source| Error::Map { map: "shunt_table", source };
        let ask = Sweep { idle_ticks: self.control.ticks(idle), all: u32::from(all), ..Sweep::default() };
        let mut context = ask.bytes().to_vec();
        let program = program(&self.table, TABLE.name, "shunt_sweep_flows")?;
        program
            .test_run(ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() })
            .map_err(failed)?;
        Ok(Sweep::of(&context).unwrap_or_default())
    }

    /// The stream of events, none where nothing is learned. To be called within a runtime.
    pub fn events(&self) -> Result<Option<Events>, Error> {
        if self.watch.is_none() {
            return Ok(None);
        }
        let failed = |source| Error::Map { map: "shunt_events", source };
        let (tx, rx) = mpsc::channel();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(self.map("shunt_events")?, move |bytes: &[u8]| {
                // The receiver lives as long as the ring.
                let _ = abi::Event::of(bytes).map(|event| tx.send(event));
                0
            })
            .map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        // SAFETY: the ring has its epoll descriptor open as long as it lives.
        let epoll =
            unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) }.try_clone_to_owned().map_err(Error::Ring)?;
        // SAFETY: an OwnedFd is one descriptor, open until it is dropped.
        let ready = unsafe { AsyncFd::register_with_interest(epoll, Interest::READABLE) };
        let ready = ready.map_err(|e| Error::Ring(e.into()))?;
        Ok(Some(Events { ready, ring, rx }))
    }

    /// A program, for tests that run it on packets of their own.
    pub fn program_fd(&self, hook: Hook) -> Option<BorrowedFd<'_>> {
        let (object, name) = match hook {
            Hook::Ingress => (Some(&self.tc), "shunt_in"),
            Hook::Egress => (self.watch.as_ref(), "shunt_out"),
            Hook::Xdp => (self.xdp.as_ref(), "shunt_xdp"),
        };
        let program = object?.progs().find(|p| p.name() == OsStr::new(name))?;
        // SAFETY: the object, and so its program's descriptor, lives as long as `self`.
        Some(unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&program.as_fd())) })
    }
}

fn near(ifindex: u32) -> [u8; 4] {
    (ifindex % abi::PORTS_MAX).to_ne_bytes()
}

fn entry_of(bytes: &[u8], to_bytes: usize, cold: &[u8]) -> Option<Entry> {
    let mut to = [0; 32];
    let at = size_of::<Flow>();
    to[..to_bytes].copy_from_slice(bytes.get(at..at + to_bytes)?);
    Some(Entry { flow: Flow::of(bytes)?, to, cold: Cold::of(cold)? })
}

fn cpus() -> Result<usize, Error> {
    libbpf_rs::num_possible_cpus().map_err(|source| Error::Map { map: "shunt_counters", source })
}

/// The data plane's events.
pub struct Events {
    ready: AsyncFd<OwnedFd>,
    ring: RingBuffer<'static>,
    rx: mpsc::Receiver<abi::Event>,
}

// SAFETY: the ring's callback owns what it captures, and a ring is used from one thread at a time.
unsafe impl Send for Events {}

impl Events {
    /// Waits until there are events. May be dropped at any time.
    pub async fn wait(&self) -> std::io::Result<()> {
        self.ready.readable().await?.clear_ready();
        Ok(())
    }

    /// All events that are there now.
    pub fn take(&mut self) -> Vec<abi::Event> {
        // An error here is one of our callback's, which has none.
        let _ = self.ring.consume();
        self.rx.try_iter().collect()
    }
}
