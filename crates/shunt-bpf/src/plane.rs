//! The data plane: the objects, their shared maps, and the ports they are attached to.

use crate::{
    Error,
    abi::{self, Counters, Flow, Key4, Key6, Plain, Port, Sweep},
    attach::{self, Attachment, Hook, Means},
    control::{ControlBlock, coarse_ns},
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput, ProgramMut, RingBuffer, RingBufferBuilder,
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
const SWEEP: Source = object!("sweep");

/// How large the data plane is made.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Flows of each family.
    pub max_flows: u32,
}

/// A flow and where it is kept.
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
    sweep: Object,
    control: ControlBlock,
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
        } else if name == "shunt_flows4" || name == "shunt_flows6" {
            map.set_max_entries(size.max_flows).map_err(failed)?;
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
        let mut maps = BTreeMap::new();
        let tc = load(&TC_FORWARD, size, &mut maps)?;
        let watch = load(&TC_WATCH, size, &mut maps);
        let xdp = load(&XDP_FORWARD, size, &mut maps).ok();
        let sweep = load(&SWEEP, size, &mut maps)?;
        let control = maps.get("shunt_control").ok_or(Error::Lacks { object: TC_FORWARD.name, name: "shunt_control" })?;
        let control = ControlBlock::map(control.as_fd())?;
        Ok(Self { ports: BTreeMap::new(), maps, tc, watch: watch.ok(), xdp, sweep, control })
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

    /// Attaches the tc programs to a port.
    pub fn attach(&mut self, ifindex: u32, flags: u16, tcx: bool) -> Result<Means, Error> {
        let slot = (0..abi::PORTS_MAX as u16)
            .find(|slot| self.ports.values().all(|p| p.slot != *slot))
            .ok_or(Error::TooManyPorts(abi::PORTS_MAX))?;
        self.write_port(ifindex, Port { slot, flags, pad: 0 })?;
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
                (Means::Clsact, attach::filter(&ingress, ifindex, Hook::Ingress)?)
            }
            Err(e) => return Err(failed(Hook::Ingress)(e)),
        };
        let egress = match &self.watch {
            None => None,
            Some(watch) => {
                let out = program(watch, TC_WATCH.name, "shunt_out")?;
                Some(match means {
                    Means::Tcx => attach::link(&out, ifindex, Hook::Egress).map_err(failed(Hook::Egress))?,
                    Means::Clsact => attach::filter(&out, ifindex, Hook::Egress)?,
                })
            }
        };
        self.ports.insert(ifindex, AttachedPort { slot, means, _ingress: ingress, _egress: egress, xdp: None });
        Ok(means)
    }

    /// Attaches or detaches the XDP program of a port that has the tc programs.
    pub fn set_xdp(&mut self, ifindex: u32, on: bool) -> Result<(), Error> {
        let Some(port) = self.ports.get_mut(&ifindex) else { return Ok(()) };
        if !on {
            port.xdp = None;
        } else if port.xdp.is_none() {
            let object = self.xdp.as_ref().ok_or(Error::Lacks { object: XDP_FORWARD.name, name: "shunt_xdp" })?;
            let program = program(object, XDP_FORWARD.name, "shunt_xdp")?;
            let link = attach::link(&program, ifindex, Hook::Xdp)
                .map_err(|source| Error::Attach { ifindex, hook: Hook::Xdp, source })?;
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

    /// Detaches from a device and forgets it.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        if let Some(port) = self.ports.remove(&ifindex) {
            let zero = vec![Counters::default().bytes().to_vec(); cpus()?];
            self.map("shunt_counters")?
                .update_percpu(&u32::from(port.slot).to_ne_bytes(), &zero, MapFlags::ANY)
                .map_err(|source| Error::Map { map: "shunt_counters", source })?;
            self.delete("shunt_ports", &ifindex.to_ne_bytes())?;
            if self.xdp.is_some() {
                self.delete("shunt_devmap", &u32::from(port.slot).to_ne_bytes())?;
            }
        }
        Ok(())
    }

    /// Changes what a port can do.
    pub fn set_flags(&self, ifindex: u32, flags: u16) -> Result<(), Error> {
        match self.slot(ifindex) {
            Some(slot) => self.write_port(ifindex, Port { slot, flags, pad: 0 }),
            None => Ok(()),
        }
    }

    fn write_port(&self, ifindex: u32, port: Port) -> Result<(), Error> {
        self.update("shunt_ports", &ifindex.to_ne_bytes(), port.bytes())?;
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
    pub fn each_flow(&self, mut see: impl FnMut(Key, Flow)) -> Result<(), Error> {
        for (name, v4) in [("shunt_flows4", true), ("shunt_flows6", false)] {
            let map = self.map(name)?;
            let batch = map
                .lookup_batch(1024, MapFlags::ANY, MapFlags::ANY)
                .map_err(|source| Error::Map { map: name, source })?;
            for (key, value) in batch {
                let key = if v4 { Key4::of(&key).map(Key::V4) } else { Key6::of(&key).map(Key::V6) };
                if let (Some(key), Some(flow)) = (key, Flow::of(&value)) {
                    see(key, flow);
                }
            }
        }
        Ok(())
    }

    /// Puts a flow in, or replaces it.
    pub fn put_flow(&self, key: &Key, flow: &Flow) -> Result<(), Error> {
        match key {
            Key::V4(key) => self.update("shunt_flows4", key.bytes(), flow.bytes()),
            Key::V6(key) => self.update("shunt_flows6", key.bytes(), flow.bytes()),
        }
    }

    /// A flow that is there.
    pub fn flow(&self, key: &Key) -> Result<Option<Flow>, Error> {
        let (map, bytes) = match key {
            Key::V4(key) => ("shunt_flows4", key.bytes()),
            Key::V6(key) => ("shunt_flows6", key.bytes()),
        };
        let value = self.map(map)?.lookup(bytes, MapFlags::ANY).map_err(|source| Error::Map { map, source })?;
        Ok(value.as_deref().and_then(Flow::of))
    }

    /// Takes a flow out.
    pub fn remove_flow(&self, key: &Key) -> Result<(), Error> {
        match key {
            Key::V4(key) => self.delete("shunt_flows4", key.bytes()),
            Key::V6(key) => self.delete("shunt_flows6", key.bytes()),
        }
    }

    /// Walks the tables inside the kernel: retires what is idle (or everything learned), removes what was retired.
    pub fn sweep(&self, idle: Duration, all: bool) -> Result<Sweep, Error> {
        let failed = |source| Error::Map { map: "shunt_flows", source };
        let ask = Sweep {
            now_ns: coarse_ns(),
            idle_ns: u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX),
            all: u32::from(all),
            ..Sweep::default()
        };
        let mut context = ask.bytes().to_vec();
        let program = program(&self.sweep, SWEEP.name, "shunt_sweep_flows")?;
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
        let epoll = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) }.try_clone_to_owned().map_err(Error::Ring)?;
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
