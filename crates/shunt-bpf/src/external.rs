//! The external engine: what the daemon keeps of it, and what the engine's process does with the same maps and
//! programs.

use crate::{
    Error,
    abi::{self, Counters, External, ExternalPort, Injected},
    attach,
    control::ticks_per_s,
    heartbeat::Heartbeat,
    maps::{CONTROL_MAP, GROUPS, Maps},
    object::{INDEXES, Size, TABLES, XDP_EXTERNAL, load, program},
    shared::{Mapping, Shared},
};
use libbpf_rs::{Object, ProgramMut};
use std::{
    io,
    mem::offset_of,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
    time::Duration,
};

const EXTERNAL: &str = ".bss.external";
const INJECTED: &str = "shunt_injected";
const SOCKETS: &str = "shunt_sockets";
/// How old the engine's heartbeat may be before XDP passes packets by it.
const BEAT_MAX: Duration = Duration::from_millis(300);

/// The number of descriptors that the engine's process gets.
const HANDLES: usize = 13;

/// The maps and programs of the external engine in the daemon.
pub(crate) struct ExternalSide {
    object: Object,
    shared: Shared<External>,
}

impl ExternalSide {
    pub(crate) fn load(size: Size, maps: &mut Maps) -> Result<Self, Error> {
        let object = load(&XDP_EXTERNAL, size, maps)?;
        let shared = Shared::map(maps.get(EXTERNAL)?.as_fd())?;
        let ticks = BEAT_MAX.as_millis() as u32 * ticks_per_s()? / 1000;
        shared.u32(offset_of!(External, beat_max_ticks)).store(ticks.max(1), Ordering::Relaxed);
        Ok(Self { object, shared })
    }

    pub(crate) fn program(&self, name: &'static str) -> Result<ProgramMut<'_>, Error> {
        program(&self.object, &XDP_EXTERNAL, name)
    }

    pub(crate) fn program_id(&self) -> Option<u32> {
        attach::program_id(self.program("shunt_xdp_ext").ok()?.as_fd())
    }

    /// Adds what the engine has counted for a port.
    pub(crate) fn add_counters(&self, slot: u16, to: &mut Counters) {
        if u32::from(slot) >= abi::EXTERNAL_PORTS_MAX {
            return;
        }
        let counted = |field| self.shared.u64(port_offset(slot, field)).load(Ordering::Relaxed);
        to.external_pkts += counted(offset_of!(ExternalPort, pkts));
        to.external_bytes += counted(offset_of!(ExternalPort, bytes));
        for (number, field) in [
            (abi::reason::ENGINE_FULL, offset_of!(ExternalPort, full_pkts)),
            (abi::reason::QUEUE, offset_of!(ExternalPort, queue_pkts)),
            (abi::reason::POLICED, offset_of!(ExternalPort, policed_pkts)),
        ] {
            to.dropped_pkts += counted(field);
            to.reasons[number] += counted(field);
        }
    }

    /// The engine's last heartbeat, in jiffies; 0 if there was none.
    pub(crate) fn beat(&self) -> u64 {
        self.shared.u64(offset_of!(External, beat_ticks)).load(Ordering::Relaxed)
    }

    /// The descriptors for the engine's process, in the order that [`EngineSide::open`] expects.
    pub(crate) fn handles<'p>(&'p self, shared_maps: &'p Maps) -> Result<Vec<BorrowedFd<'p>>, Error> {
        let maps = [CONTROL_MAP, GROUPS]
            .into_iter()
            .chain(INDEXES)
            .chain(TABLES)
            .chain([EXTERNAL, INJECTED, SOCKETS]);
        let mut handles =
            maps.map(|name| Ok(shared_maps.get(name)?.as_fd())).collect::<Result<Vec<_>, Error>>()?;
        for name in ["shunt_ext_beat", "shunt_inject"] {
            let fd = self.program(name)?.as_fd().as_raw_fd();
            // SAFETY: the object, and so its program's descriptor, lives as long as `self`.
            handles.push(unsafe { BorrowedFd::borrow_raw(fd) });
        }
        Ok(handles)
    }

    /// Zeroes the counters of a slot.
    pub(crate) fn clear(&self, slot: u16) {
        if u32::from(slot) >= abi::EXTERNAL_PORTS_MAX {
            return;
        }
        for at in (0..size_of::<ExternalPort>()).step_by(8) {
            self.shared.u64(port_offset(slot, at)).store(0, Ordering::Relaxed);
        }
    }
}

fn port_offset(slot: u16, field: usize) -> usize {
    offset_of!(External, ports) + usize::from(slot) * size_of::<ExternalPort>() + field
}

/// The memory of the flow tables, mapped: pointers to the first byte of each.
#[derive(Debug, Clone, Copy)]
pub struct Tables {
    /// The control block.
    pub control: *mut abi::Control,
    /// How often the stations of each group have changed.
    pub groups: *mut u32,
    /// The indexes of IPv4 and IPv6.
    pub index: [*mut u8; 2],
    /// The entries of IPv4 and IPv6.
    pub entries: [*mut u8; 2],
    /// Their rarely used parts.
    pub cold: [*mut abi::Cold; 2],
}

/// The maps and programs in the engine's process.
pub struct EngineSide {
    control: Shared<abi::Control>,
    groups: Mapping,
    index: [Mapping; 2],
    entries: [Mapping; 2],
    cold: [Mapping; 2],
    shared: Shared<External>,
    injected: Mapping,
    sockets: OwnedFd,
    beat: Heartbeat,
    inject: OwnedFd,
}

impl EngineSide {
    /// Maps the memory behind the descriptors of [`crate::DataPlane::external_handles`].
    ///
    /// # Errors
    /// If there are too few descriptors, or one cannot be mapped.
    pub fn open(handles: Vec<OwnedFd>, size: Size) -> Result<Self, Error> {
        let handles: [OwnedFd; HANDLES] =
            handles.try_into().map_err(|_| Error::Memory(io::Error::from(io::ErrorKind::InvalidInput)))?;
        let [
            control,
            groups,
            index4,
            index6,
            table4,
            table6,
            cold4,
            cold6,
            external,
            injected,
            sockets,
            beat,
            inject,
        ] = handles;
        let (buckets, flows) = (size.buckets() as usize, size.max_flows as usize);
        let map = |fd: &OwnedFd, bytes| Mapping::map(fd, bytes);
        Ok(Self {
            control: Shared::map(&control)?,
            groups: map(&groups, size_of::<u32>() * abi::GROUPS)?,
            index: [map(&index4, buckets * abi::WAYS * 4)?, map(&index6, buckets * abi::WAYS * 4)?],
            entries: [map(&table4, flows * 128)?, map(&table6, flows * 192)?],
            cold: [
                map(&cold4, flows * size_of::<abi::Cold>())?,
                map(&cold6, flows * size_of::<abi::Cold>())?,
            ],
            shared: Shared::map(external)?,
            injected: map(&injected, abi::INJECTED_MAX as usize * size_of::<Injected>())?,
            sockets,
            beat: Heartbeat::by(beat),
            inject,
        })
    }

    /// The flow tables. The pointers are valid as long as `self`.
    pub fn tables(&self) -> Tables {
        Tables {
            control: self.control.address(),
            groups: self.groups.address().cast(),
            index: [self.index[0].address(), self.index[1].address()],
            entries: [self.entries[0].address(), self.entries[1].address()],
            cold: [self.cold[0].address().cast(), self.cold[1].address().cast()],
        }
    }

    /// The kernel's HZ.
    pub fn ticks_per_s(&self) -> u32 {
        self.control.u32(offset_of!(abi::Control, ticks_per_s)).load(Ordering::Relaxed)
    }

    /// Lets XDP give frames of a VLAN to the engine; with 0, of none.
    pub fn copy_vlan(&self, vlan: u16) {
        self.shared.u32(offset_of!(External, copy_vlan)).store(vlan.into(), Ordering::Relaxed);
    }

    /// Writes the heartbeat, and returns the kernel's clock: 64-bit jiffies.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn beat(&self) -> io::Result<u64> {
        self.beat.beat()?;
        Ok(self.shared.u64(offset_of!(External, beat_ticks)).load(Ordering::Relaxed))
    }

    /// Adds to the counters of a port.
    pub fn count(&self, slot: u16, more: &ExternalPort) {
        let add = |field, more: u64| {
            if more != 0 {
                self.shared.u64(port_offset(slot, field)).fetch_add(more, Ordering::Relaxed);
            }
        };
        add(offset_of!(ExternalPort, pkts), more.pkts);
        add(offset_of!(ExternalPort, bytes), more.bytes);
        add(offset_of!(ExternalPort, passed_pkts), more.passed_pkts);
        add(offset_of!(ExternalPort, full_pkts), more.full_pkts);
        add(offset_of!(ExternalPort, queue_pkts), more.queue_pkts);
        add(offset_of!(ExternalPort, policed_pkts), more.policed_pkts);
    }

    /// Gives the packets of a port's queue to a socket; with `None`, to Linux.
    ///
    /// # Errors
    /// If the kernel refuses the socket.
    pub fn set_socket(&self, slot: u16, queue: u32, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let key = u32::from(slot) * abi::QUEUES_MAX + queue;
        let (map, key) = (self.sockets.as_raw_fd(), (&raw const key).cast());
        let err = match socket.map(|fd| fd.as_raw_fd()) {
            // SAFETY: the descriptor is open, and key and value have the size that the map has.
            Some(fd) => unsafe { libbpf_sys::bpf_map_update_elem(map, key, (&raw const fd).cast(), 0) },
            // SAFETY: as above.
            None => unsafe { libbpf_sys::bpf_map_delete_elem(map, key) },
        };
        if err == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-err)) }
    }

    /// Passes frames to Linux, at most [`abi::INJECTED_MAX`], as if the port `ifindex` had received them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn inject<'f>(&self, ifindex: u32, frames: impl Iterator<Item = &'f [u8]>) -> io::Result<()> {
        let mut count = 0;
        for frame in frames.take(abi::INJECTED_MAX as usize).filter(|f| f.len() <= abi::FRAME_MAX as usize) {
            let at = count * size_of::<Injected>();
            // SAFETY: `count` is below the number of elements; only this thread writes them, and the program reads them
            // in the call below.
            unsafe {
                let to = self.injected.address().add(at);
                to.cast::<u32>().write(frame.len() as u32);
                to.add(offset_of!(Injected, frame)).copy_from_nonoverlapping(frame.as_ptr(), frame.len());
            }
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        self.shared.u32(offset_of!(External, inject_next)).store(0, Ordering::SeqCst);
        let frame = [0u8; 64];
        let mut context = libbpf_sys::xdp_md {
            data_end: frame.len() as u32,
            ingress_ifindex: ifindex,
            ..Default::default()
        };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            ctx_in: (&raw mut context).cast(),
            ctx_size_in: size_of::<libbpf_sys::xdp_md>() as u32,
            repeat: count as i32,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            // One after the other: Linux takes the packets of a batch through tc before it forwards the first, and
            // candidates of one flow would overwrite each other.
            batch_size: 1,
            ..Default::default()
        };
        // SAFETY: the descriptor is open, input and context have the sizes given, there is no output, and libbpf reads
        // at most `sz` bytes of the options.
        let err = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.inject.as_raw_fd(), &raw mut options) };
        if err == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-err)) }
    }
}
