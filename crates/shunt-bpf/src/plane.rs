//! The data plane: the objects, their shared maps, and the ports they are attached to.

use crate::{
    Error,
    abi::{self, Counters, Edit, Key4, Plain, Port, Sweep},
    attach::{self, Attachment, Hook, Means},
    control::ControlBlock,
    filter,
    flows::{Entry, FlowTable, Key, variable},
    ring::Ring,
    shared::Shared,
    verifier,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput, ProgramMut};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    mem::offset_of,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

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
/// For kernels without BTF: does not know whether a checksum is finished.
const TC_FORWARD_WITHOUT_BTF: Source = object!("tc_forward_without_btf");
const TC_WATCH: Source = object!("tc_watch");
const XDP_FORWARD: Source = object!("xdp_forward");
const TABLE: Source = object!("table");
const CT_GONE: Source = object!("ct_gone");
const CHANGES: Source = object!("changes");

/// How large the data plane is made.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Flows of each family.
    pub max_flows: u32,
    /// Seed of the tables' hash, so that nobody can choose tuples that collide.
    pub seed: u64,
}

/// Which programs are loaded: the verifier takes its time for each.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Those that need BTF of the kernel.
    pub btf: bool,
    /// What learns. It needs BTF, too.
    pub learning: bool,
    /// The `xdp` engine.
    pub xdp: bool,
}

// Variables of the programs are maps by the names of their sections.
/// `struct shunt_control`.
pub(crate) const CONTROL: &str = ".bss.control";
const PLACES: &str = ".bss.places";
pub(crate) const USAGE: &str = ".bss.usage";
const INDEXES: [&str; 2] = ["shunt_index4", "shunt_index6"];
/// Takes memory for what is in it only.
const PAST: &str = "shunt_past";
/// What there is of each entry.
const TABLES: [&str; 4] = ["shunt_table4", "shunt_table6", "shunt_cold4", "shunt_cold6"];

impl Size {
    /// A power of two that leaves a third of the slots free: a key has eight, and one of them must be.
    fn buckets(self) -> u32 {
        let slots = u64::from(self.max_flows) * 3 / 2;
        u32::try_from(slots.div_ceil(abi::WAYS as u64).next_power_of_two()).unwrap_or(1 << 31)
    }
}

/// What a socket hears of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Links, addresses, routes, ...
    Route,
    /// nftables.
    Ruleset,
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
    xdp: Result<Object, Arc<Error>>,
    table: Object,
    control: ControlBlock,
    places: Shared<abi::Places>,
    filter_handle: u32,
    size: Size,
    conntrack: Option<OwnedFd>,
}

// SAFETY: libbpf objects are not tied to a thread; the type is used from one thread at a time.
unsafe impl Send for DataPlane {}

fn load(source: &Source, size: Size, shared: &mut BTreeMap<String, MapHandle>) -> Result<Object, Error> {
    let failed = |e| Error::loading(source.name, e);
    let mut open = ObjectBuilder::default().open_memory(source.bytes).map_err(failed)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(have) = shared.get(&name) {
            map.reuse_fd(have.as_fd()).map_err(failed)?;
        } else if TABLES.contains(&name.as_str()) {
            map.set_max_entries(size.max_flows).map_err(failed)?;
        } else if INDEXES.contains(&name.as_str()) {
            map.set_max_entries(size.buckets()).map_err(failed)?;
        } else if name == PAST {
            map.set_max_entries(size.max_flows.saturating_mul(4)).map_err(failed)?;
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
    /// Loads the programs that are wanted and creates the maps. Where conntrack's kfuncs are missing, learning is off and
    /// static flows still work: `learns()` tells.
    pub fn load(size: Size, wanted: Wanted) -> Result<Self, Error> {
        // What goes wrong comes back as an error; libbpf would print it besides, and things that are no errors too.
        verifier::listen();
        let mut maps = BTreeMap::new();
        let forward = if wanted.btf { &TC_FORWARD } else { &TC_FORWARD_WITHOUT_BTF };
        let tc = load(forward, size, &mut maps)?;
        let watch = if wanted.btf && wanted.learning { load(&TC_WATCH, size, &mut maps).ok() } else { None };
        let xdp = if wanted.xdp {
            load(&XDP_FORWARD, size, &mut maps)
        } else {
            Err(Error::Lacks { object: XDP_FORWARD.name, name: "shunt_xdp" })
        };
        let xdp = xdp.map_err(Arc::new);
        let table = load(&TABLE, size, &mut maps)?;
        let variable = |name| maps.get(name).ok_or(Error::Lacks { object: forward.name, name });
        let control = ControlBlock::map(variable(CONTROL)?.as_fd())?;
        let places = Shared::map(variable(PLACES)?.as_fd())?;
        control.set_tables(size.buckets() - 1, size.max_flows, size.seed);
        Ok(Self {
            ports: BTreeMap::new(),
            maps,
            tc,
            watch,
            xdp,
            table,
            control,
            places,
            filter_handle: 1,
            size,
            conntrack: None,
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

    /// The names of the TCX programs of others on a device, in the order in which they run.
    pub fn programs_of_others(&self, ifindex: u32, hook: Hook) -> Vec<String> {
        let ids = attach::tcx_ids(ifindex, hook);
        if ids.is_empty() {
            return Vec::new();
        }
        let own = self.program_fd(hook).and_then(attach::program_id);
        // A program without a name has its id, and so has one that went a moment ago: it is missed at the next look.
        let name = |id| attach::program_name(id).filter(|name| !name.is_empty());
        let others = ids.into_iter().filter(|id| Some(*id) != own);
        others.map(|id| name(id).unwrap_or_else(|| format!("id {id}"))).collect()
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
        let written = self.write_port(ifindex, Port { slot, flags, ifindex });
        match written.and_then(|()| self.attach_tc(ifindex, slot, tcx)) {
            Ok(port) => {
                let means = port.means;
                self.ports.insert(ifindex, port);
                Ok(means)
            }
            Err(error) => {
                self.erase_port(ifindex, slot)?;
                Err(error)
            }
        }
    }

    fn attach_tc(&self, ifindex: u32, slot: u16, tcx: bool) -> Result<AttachedPort, Error> {
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
        Ok(AttachedPort { slot, means, _ingress: ingress, _egress: egress, xdp: None })
    }

    /// Attaches or detaches the XDP program of a port that has the tc programs.
    pub fn set_xdp(&mut self, ifindex: u32, on: bool) -> Result<(), Error> {
        let Some(port) = self.ports.get_mut(&ifindex) else { return Ok(()) };
        if !on {
            port.xdp = None;
        } else if port.xdp.is_none() {
            let object = self.xdp.as_ref().map_err(|why| Error::Earlier(Arc::clone(why)))?;
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
            self.erase_port(ifindex, port.slot)?;
        }
        Ok(())
    }

    /// What a port can do; nothing where there is none.
    pub fn flags(&self, ifindex: u32) -> u16 {
        let map = self.map("shunt_ports").ok();
        let port = map.and_then(|map| map.lookup(&ifindex.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        port.as_deref().and_then(Port::of).unwrap_or_default().flags
    }

    /// Changes what a port can do.
    pub fn set_flags(&self, ifindex: u32, flags: u16) -> Result<(), Error> {
        match self.slot(ifindex) {
            Some(slot) => self.write_port(ifindex, Port { slot, flags, ifindex }),
            None => Ok(()),
        }
    }

    fn write_port(&self, ifindex: u32, port: Port) -> Result<(), Error> {
        self.update("shunt_ports", &ifindex.to_ne_bytes(), port.bytes())?;
        self.place(ifindex, port.slot, port);
        if self.xdp.is_ok() {
            self.update("shunt_devmap", &u32::from(port.slot).to_ne_bytes(), &ifindex.to_ne_bytes())?;
        }
        Ok(())
    }

    fn erase_port(&self, ifindex: u32, slot: u16) -> Result<(), Error> {
        self.delete("shunt_ports", &ifindex.to_ne_bytes())?;
        self.place(ifindex, slot, Port::default());
        if self.xdp.is_ok() {
            self.delete("shunt_devmap", &u32::from(slot).to_ne_bytes())?;
        }
        Ok(())
    }

    /// Puts a port where the programs look first, or nothing.
    fn place(&self, ifindex: u32, slot: u16, port: Port) {
        // Of two ports with the same low bits the last one has the place, and the other is found by the hash.
        let near = offset_of!(abi::Places, near) + (ifindex % abi::PORTS_MAX) as usize * size_of::<Port>();
        let by_slot = offset_of!(abi::Places, ifindex) + usize::from(slot) * size_of::<u32>();
        let mut whole = [0; size_of::<Port>()];
        whole.copy_from_slice(port.bytes());
        let whole = u64::from_ne_bytes(whole);
        self.places.u32(by_slot).store(port.ifindex, Ordering::Relaxed);
        self.places.u64(near).store(whole, Ordering::Relaxed);
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

    /// Reads the flow tables, apart from this: on another thread, if need be.
    pub fn flows(&self) -> Result<FlowTable, Error> {
        FlowTable::of(|name| self.map(name))
    }

    /// Shows every flow to `see`, as [`FlowTable::each`] does.
    pub fn each_flow(&self, see: impl FnMut(Key, Entry)) -> Result<(), Error> {
        self.flows()?.each(see)
    }

    fn edit(&self, op: u32, key: &Key, entry: &Entry) -> Result<Option<Entry>, Error> {
        let done = self.on_desk(op, key, entry)?;
        match -done.result {
            0 => Ok(Some(Entry { flow: done.flow, to: done.to, cold: done.cold })),
            nix::libc::ENOENT => Ok(None),
            nix::libc::ENOSPC => Err(Error::Full),
            error => {
                let source = libbpf_rs::Error::from_raw_os_error(error);
                Err(Error::Map { map: "shunt_table", source })
            }
        }
    }

    fn on_desk(&self, op: u32, key: &Key, entry: &Entry) -> Result<Edit, Error> {
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
        Ok(done.as_deref().and_then(Edit::of).unwrap_or_default())
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

    /// What was seen of packets of this tuple, on whatever port.
    pub fn sighting(&self, key: &Key) -> Result<abi::Sighting, Error> {
        self.on_desk(abi::EDIT_SIGHTING, key, &Entry::default()).map(|done| done.sighting)
    }

    /// Says that the daemon is alive.
    pub fn beat(&self) -> Result<(), Error> {
        program(&self.table, TABLE.name, "shunt_beat")?
            .test_run(ProgramInput::default())
            .map(|_| ())
            .map_err(|source| Error::Map { map: CONTROL, source })
    }

    /// Walks the tables inside the kernel: retires what is idle (or everything learned), removes what was retired.
    pub fn sweep(&self, idle: Duration, all: bool) -> Result<Sweep, Error> {
        self.sweep_part(idle, all, 0, u32::MAX)
    }

    /// The same for some entries of [`DataPlane::entries`]; with none, it only tells the time.
    pub fn sweep_part(&self, idle: Duration, all: bool, from: u32, entries: u32) -> Result<Sweep, Error> {
        let failed = |source| Error::Map { map: "shunt_table", source };
        let idle_ticks = self.control.ticks(idle);
        let ask = Sweep { idle_ticks, all: u32::from(all), from, entries, ..Sweep::default() };
        let mut context = ask.bytes().to_vec();
        let program = program(&self.table, TABLE.name, "shunt_sweep_flows")?;
        loop {
            let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
            program.test_run(input).map_err(failed)?;
            let found = Sweep::of(&context).unwrap_or_default();
            if found.entries == 0 {
                return Ok(found);
            }
        }
    }

    /// How many entries both tables have together.
    pub fn entries(&self) -> u32 {
        self.size.max_flows.saturating_mul(2)
    }

    /// The stream of events, none where nothing is learned. To be called within a runtime.
    pub fn events(&self) -> Result<Option<Ring<abi::Event>>, Error> {
        self.watch.as_ref().map(|_| Ring::open("shunt_events", self.map("shunt_events")?)).transpose()
    }

    /// The stream of traces. They are written while [`ControlBlock::set_tracing`] is on. To be called within a runtime.
    pub fn traces(&self) -> Result<Ring<abi::Trace>, Error> {
        Ring::open("shunt_traces", self.map("shunt_traces")?)
    }

    /// Has the kernel move the epoch as it tells of changes on a socket that hears rtnetlink, or nftables.
    pub fn meet_changes(&mut self, of: Changes, on: BorrowedFd<'_>) -> Result<(), Error> {
        let object = load(&CHANGES, self.size, &mut self.maps)?;
        let name = match of {
            Changes::Route => "shunt_route_changes",
            Changes::Ruleset => "shunt_ruleset_changes",
        };
        filter::attach(program(&object, CHANGES.name, name)?.as_fd(), on).map_err(Error::Filter)
    }

    /// Has flows end with their connections in conntrack, of the calling thread's network namespace, until this is
    /// dropped.
    pub fn end_with_conntrack(&mut self) -> Result<(), Error> {
        let object = load(&CT_GONE, self.size, &mut self.maps)?;
        let program = program(&object, CT_GONE.name, "shunt_ct_gone")?;
        self.conntrack = Some(filter::hear_conntrack(program.as_fd()).map_err(Error::Filter)?);
        Ok(())
    }

    /// Whether they do.
    pub fn ends_with_conntrack(&self) -> bool {
        self.conntrack.is_some()
    }

    /// Shows what flows had counted that are gone, as [`FlowTable::each_past`] does.
    pub fn each_past(&self, see: impl FnMut(abi::Tuple, abi::Past)) -> Result<(), Error> {
        self.flows()?.each_past(see)
    }

    /// What the programs keep count of as a whole.
    pub fn usage(&self) -> Result<abi::Usage, Error> {
        variable(self.map(USAGE)?, USAGE)
    }

    /// A program, for tests that run it on packets of their own.
    pub fn program_fd(&self, hook: Hook) -> Option<BorrowedFd<'_>> {
        let (object, name) = match hook {
            Hook::Ingress => (Some(&self.tc), "shunt_in"),
            Hook::Egress => (self.watch.as_ref(), "shunt_out"),
            Hook::Xdp | Hook::GenericXdp => (self.xdp.as_ref().ok(), "shunt_xdp"),
        };
        let program = object?.progs().find(|p| p.name() == OsStr::new(name))?;
        // SAFETY: the object, and so its program's descriptor, lives as long as `self`.
        Some(unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&program.as_fd())) })
    }
}

fn cpus() -> Result<usize, Error> {
    libbpf_rs::num_possible_cpus().map_err(|source| Error::Map { map: "shunt_counters", source })
}
