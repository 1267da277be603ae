//! The loaded data plane: its objects, their shared maps, and hooks that belong to no port.
//!
//! `ports.rs` attaches it to devices, `table.rs` edits the flow tables.

use crate::{
    Error,
    abi::{self, PortCache, Slots},
    attach::{self, Hook, INGRESS},
    control::ControlBlock,
    external::ExternalSide,
    filter,
    former_ports::FormerPorts,
    ingress::{IngressIds, IngressPrograms},
    kernel_types::TypesSource,
    maps::{CONTROL_MAP, FINALS, GROUPS, Maps, PORT_CACHE},
    object::{
        CHANGES, CT_GONE, Loading, Size, TABLE, TC_FORWARD, TC_FORWARD_WITHOUT_BTF,
        TC_FORWARD_WITHOUT_KFUNCS, TC_WATCH, TC_WATCH_WITHOUT_KFUNCS, XDP_DROPS, XDP_FORWARD, load, load_for,
        load_only, named, program,
    },
    owner::Owner,
    pending::AttachedPort,
    ring::Ring,
    shared::Shared,
    verifier,
    xdp_form::XdpForm,
};
use libbpf_rs::{Link, Object};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    sync::{Arc, atomic::Ordering},
};

/// Optional programs to load. Each costs verification time.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the layout of the kernel's structures is known from.
    pub types: TypesSource,
    /// Load `tc_watch`, which learns. It needs the layout of the kernel's structures.
    pub learning: bool,
    /// Load the `xdp` engine.
    pub xdp: bool,
    /// Load the `xdp` engine that can verify L4 checksums (`CONTROL_VERIFY_XDP`).
    pub verify_xdp: bool,
    /// Load what the external engine needs.
    pub external: bool,
}

/// The kind of change that a netlink socket receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// rtnetlink: links, addresses, routes, neighbours, tc filters.
    Route,
    /// nftables.
    Ruleset,
    /// XFRM: IPsec policies, not their states.
    Ipsec,
}

/// The ids of a data plane's tc programs.
#[derive(Debug, Clone)]
pub struct OwnPrograms {
    ingress: IngressIds,
    /// `None` if there is no program on egress.
    egress: Option<u32>,
}

impl OwnPrograms {
    /// The names of TCX programs on a device that do not belong to the data plane, in execution order. Waits for the
    /// RTNL lock.
    pub fn others_at(&self, ifindex: u32, hook: Hook) -> Vec<String> {
        let there = attach::tcx_ids(ifindex, hook);
        // Read behind the query: a program has its id here before it is attached.
        let own: Vec<u32> = match hook {
            Hook::Egress => self.egress.into_iter().collect(),
            _ => self.ingress.iter().map(|id| id.load(Ordering::Acquire)).collect(),
        };
        // A program without a name is listed by its id. So is one that was unloaded since the query; the next query
        // will not list it.
        let name = |id| attach::program_name(id).filter(|name| !name.is_empty());
        let foreign = there.into_iter().filter(|id| !own.contains(id));
        foreign.map(|id| name(id).unwrap_or_else(|| format!("id {id}"))).collect()
    }
}

/// The loaded data plane. Dropping it detaches everything.
pub struct DataPlane {
    /// By ifindex.
    pub(crate) ports: BTreeMap<u32, AttachedPort>,
    /// The slots that ports may not use.
    pub(crate) reserved: BTreeSet<u16>,
    /// The slots of former ports whose programs are being detached.
    pub(crate) leaving: BTreeSet<u16>,
    pub(crate) former: FormerPorts,
    /// Runs for each frame that XDP sends to a port.
    pub(crate) exit_program: Option<OwnedFd>,
    pub(crate) maps: Maps,
    pub(crate) tc: IngressPrograms,
    pub(crate) watch: Option<Object>,
    pub(crate) xdp: Result<Object, Arc<Error>>,
    pub(crate) verify_xdp: bool,
    pub(crate) external: Option<ExternalSide>,
    pub(crate) table: Object,
    pub(crate) control: ControlBlock,
    pub(crate) port_cache: Shared<PortCache>,
    pub(crate) filter_handle: u32,
    /// Names the instance of clsact filters.
    pub(crate) owner: Option<Arc<Owner>>,
    pub(crate) size: Size,
    /// The contents of the map `shunt_uppers`.
    pub(crate) uppers: BTreeMap<u32, Slots>,
    /// The names in the map `shunt_sets`.
    pub(crate) sets: BTreeSet<Vec<u8>>,
    /// The names in the map `shunt_path`.
    pub(crate) path: BTreeSet<Vec<u8>>,
    conntrack: Option<OwnedFd>,
    tx_drops: Vec<Link>,
}

// SAFETY: libbpf objects are not tied to a thread; the type is used from one thread at a time.
unsafe impl Send for DataPlane {}

impl DataPlane {
    /// Loads the programs and creates the maps. If conntrack's structures are unknown, nothing is learned but static
    /// flows work: see [`DataPlane::learns`]. If the `xdp` engine fails to load, [`DataPlane::set_xdp`] reports the
    /// error.
    ///
    /// # Errors
    /// If the kernel refuses a program or a map.
    pub fn load(size: Size, options: LoadOptions) -> Result<Self, Error> {
        Self::load_with(Maps::default(), size, options)
    }

    /// The form that is loaded at the start, and that a port gets first.
    pub fn first_xdp_form(&self) -> XdpForm {
        XdpForm::first(self.verify_xdp)
    }

    /// As [`DataPlane::load`], on maps that are there already.
    pub(crate) fn load_with(mut maps: Maps, size: Size, options: LoadOptions) -> Result<Self, Error> {
        // libbpf prints errors, which are returned here, and messages that are no errors.
        verifier::capture_log();
        let (forward, watch) = match &options.types {
            TypesSource::Kernel => (&TC_FORWARD, Some(&TC_WATCH)),
            TypesSource::File(_) => (&TC_FORWARD_WITHOUT_KFUNCS, Some(&TC_WATCH_WITHOUT_KFUNCS)),
            TypesSource::Unknown => (&TC_FORWARD_WITHOUT_BTF, None),
        };
        let how = Loading { types: options.types.path(), ..Loading::default() };
        let tc = IngressPrograms::load(forward, options.types.clone(), size, &mut maps)?;
        let watch = watch.filter(|_| options.learning);
        let watch = match watch.map(|watch| load_for(watch, size, &mut maps, &how)) {
            Some(Ok(watch)) => Some(watch),
            Some(Err(refused @ (Error::Refused { .. } | Error::Layout { .. }))) => return Err(refused),
            // Most likely the kernel lacks conntrack's structures.
            Some(Err(_)) | None => None,
        };
        let (engine, name) = XdpForm::first(options.verify_xdp).program(options.verify_xdp);
        let xdp = if options.xdp {
            load_only(engine, size, &mut maps, name)
        } else {
            Err(Error::Missing { object: XDP_FORWARD.name, name: "shunt_xdp" })
        };
        let xdp = match xdp {
            Err(other @ Error::Layout { .. }) => return Err(other),
            loaded => loaded.map_err(Arc::new),
        };
        let external = options.external.then(|| ExternalSide::load(size, &mut maps)).transpose()?;
        let table = load(&TABLE, size, &mut maps)?;
        let control = ControlBlock::map(maps.get(CONTROL_MAP)?.as_fd(), maps.get(GROUPS)?.as_fd())?;
        let port_cache = Shared::map(maps.get(PORT_CACHE)?.as_fd())?;
        control.set_tables(size.buckets() - 1, size.max_flows, size.seed);
        control.set_mark_lines(size.mark_lines());
        Ok(Self {
            ports: BTreeMap::new(),
            reserved: BTreeSet::new(),
            leaving: BTreeSet::new(),
            former: FormerPorts::default(),
            exit_program: None,
            maps,
            tc,
            watch,
            xdp,
            verify_xdp: options.verify_xdp,
            external,
            table,
            control,
            port_cache,
            filter_handle: 1,
            owner: None,
            size,
            uppers: BTreeMap::new(),
            sets: BTreeSet::new(),
            path: BTreeSet::new(),
            conntrack: None,
            tx_drops: Vec::new(),
        })
    }

    /// Whether flows can be learned. Learning needs the layout of conntrack's structures.
    pub fn learns(&self) -> bool {
        self.watch.is_some()
    }

    /// The id of the program of the engine `xdp`. None if the engine is not loaded.
    pub fn xdp_program_id(&self) -> Option<u32> {
        let fd = self.program_fd(Hook::Xdp)?;
        attach::program_id(fd)
    }

    /// The ids of Shunt's XDP programs, to tell them from other programs on a device.
    pub fn xdp_program_ids(&self) -> Vec<u32> {
        let external = self.external.as_ref().and_then(ExternalSide::program_id);
        let bound = self.ports.values().filter_map(|port| Some(port.xdp.as_ref()?.id));
        self.xdp_program_id().into_iter().chain(external).chain(bound).collect()
    }

    /// The external engine's last heartbeat, in jiffies; 0 if there was none.
    pub fn external_beat(&self) -> u64 {
        self.external.as_ref().map_or(0, ExternalSide::beat)
    }

    /// The descriptors for the external engine's process, in the order that [`crate::EngineSide::open`] expects.
    ///
    /// # Errors
    /// Fails if the external engine was not loaded.
    pub fn external_handles(&self) -> Result<Vec<BorrowedFd<'_>>, Error> {
        self.external.as_ref().ok_or(Error::missing_external())?.handles(&self.maps)
    }

    /// The data plane's own tc programs, to tell them from others.
    pub fn own_programs(&self) -> OwnPrograms {
        let egress = self.program_fd(Hook::Egress).and_then(attach::program_id);
        OwnPrograms { ingress: self.tc.ids(), egress }
    }

    /// The control block that the programs read.
    pub fn control(&self) -> &ControlBlock {
        &self.control
    }

    /// The ring of events. None if no loaded program reports events. Call it within a tokio runtime.
    pub fn events(&self) -> Result<Option<Ring<abi::Event>>, Error> {
        self.maps.find("shunt_events").map(|map| Ring::open("shunt_events", map)).transpose()
    }

    /// The ring of traces. Programs write traces while [`ControlBlock::set_tracing`] is on. Call it within a tokio
    /// runtime.
    pub fn traces(&self) -> Result<Ring<abi::Trace>, Error> {
        Ring::open("shunt_traces", self.maps.get("shunt_traces")?)
    }

    /// The ring of final counters of flows. Programs write them while [`ControlBlock::set_finals`] is on. Call it
    /// within a tokio runtime.
    pub fn finals(&self) -> Result<Ring<abi::Final>, Error> {
        Ring::open(FINALS, self.maps.get(FINALS)?)
    }

    /// Attaches a socket filter that moves the epoch while the kernel reports a change to `socket`, a netlink socket
    /// of the given kind.
    pub fn attach_change_filter(&mut self, kind: Changes, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let name = match kind {
            Changes::Route => "shunt_route_changes",
            Changes::Ruleset => "shunt_ruleset_changes",
            Changes::Ipsec => "shunt_ipsec_changes",
        };
        let object = load_only(&CHANGES, self.size, &mut self.maps, name)?;
        filter::attach(program(&object, &CHANGES, name)?.as_fd(), socket).map_err(Error::Filter)
    }

    /// Retires flows when conntrack deletes their connections, in the calling thread's network namespace, until this
    /// is dropped.
    pub fn attach_conntrack_filter(&mut self) -> Result<(), Error> {
        let object = load(&CT_GONE, self.size, &mut self.maps)?;
        let program = program(&object, &CT_GONE, "shunt_ct_gone")?;
        self.conntrack = Some(filter::open_conntrack_listener(program.as_fd()).map_err(Error::Filter)?);
        Ok(())
    }

    /// The socket with the conntrack filter, if that is attached.
    pub fn conntrack_socket(&self) -> Option<BorrowedFd<'_>> {
        self.conntrack.as_ref().map(AsFd::as_fd)
    }

    /// Whether the conntrack filter is attached.
    pub fn has_conntrack_filter(&self) -> bool {
        self.conntrack.is_some()
    }

    /// Counts frames that XDP redirected and the egress driver did not accept, and reports drivers that refuse such
    /// frames as events, until this is dropped. The ports are in the calling thread's network namespace.
    pub fn count_tx_drops(&mut self) -> Result<(), Error> {
        let netns = std::fs::metadata("/proc/thread-self/ns/net").map_err(Error::Memory)?.ino();
        // The kernel numbers namespaces with 32 bits.
        self.control.set_netns(netns as u32);
        let object = load(&XDP_DROPS, self.size, &mut self.maps)?;
        let attach = |name| {
            let failed = |e| Error::loading(XDP_DROPS.name, e);
            program(&object, &XDP_DROPS, name)?.attach_trace().map_err(failed)
        };
        self.tx_drops = vec![attach("shunt_tx_drops")?, attach("shunt_redirect_errors")?];
        Ok(())
    }

    /// Whether such frames are counted.
    pub fn counts_tx_drops(&self) -> bool {
        !self.tx_drops.is_empty()
    }

    /// The program of a hook. None if it is not loaded.
    pub fn program_fd(&self, hook: Hook) -> Option<BorrowedFd<'_>> {
        let (object, name) = match hook {
            Hook::Ingress => return self.tc.loaded(INGRESS[0]),
            Hook::Egress => (self.watch.as_ref(), "shunt_out"),
            Hook::Xdp | Hook::GenericXdp => {
                (self.xdp.as_ref().ok(), self.first_xdp_form().program(self.verify_xdp).1)
            }
        };
        named(object?, name)
    }
}
