//! Loads the programs of `bpf/inspect/verify.bpf.c` and `verify_xdp.bpf.c`, attaches the former, and reads their
//! records.
//!
//! Attachments are links: the kernel detaches the programs when this process ends, however it ends. The programs for
//! frames that XDP forwards are attached by the owner of the ports, for a time.

use super::{abi, segment::Frame};
use crate::{
    probes::{self, ObjectFile, ProgramError, failed, program},
    trace::{
        abi::TraceTuple,
        machine::{netns, xdp_program},
    },
};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, PerfBuffer, PerfBufferBuilder};
use shunt_bpf::{
    abi::Plain,
    attach::{program_by_id, program_id, program_misses},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, AsRawFd},
    rc::Rc,
};

const VERIFY: ObjectFile = probes::object!("verify");
const VERIFY_XDP: ObjectFile = probes::object!("verify_xdp");
/// The section of the programs' constants: the network namespace whose devices they watch.
const CONSTANTS: &str = ".rodata.verify";
const ENTERS: &str = "verify_enters";
const LEAVES: &str = "verify_leaves";
const WINDOW: &str = "verify_window";
const LOST: &str = "verify_lost";
const RECORDS: &str = "verify_records";
/// The programs of the engine, and where each port's is among them.
const ENGINES: &str = "verify_engines";
const ENGINE_OF: &str = "verify_engine_of";
const MAPS: [&str; 7] = [ENTERS, LEAVES, WINDOW, LOST, RECORDS, ENGINES, ENGINE_OF];
/// What leaves is watched first, so that no packet enters that cannot be seen leaving.
const PROGRAMS: [&str; 3] = ["verify_leaving", "verify_dropped", "verify_entering"];
/// The buffer of a CPU, in pages of 4 KiB: 2 MiB.
const PAGES: usize = 512;

/// A packet at a place.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) record: abi::VerifyRecord,
    pub(super) frame: Frame,
}

#[derive(Debug, Default)]
struct Received {
    records: Vec<Observed>,
    lost: u64,
}

/// The programs, attached until this is dropped.
pub(super) struct Programs {
    received: Rc<RefCell<Received>>,
    // In the order in which they are dropped: detach first.
    _links: Vec<Link>,
    buffer: PerfBuffer<'static>,
    maps: BTreeMap<String, MapHandle>,
    objects: Vec<Object>,
}

/// The programs that see the frames which XDP forwards, by the numbers that the kernel gave them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taps {
    /// Runs for each frame that XDP has sent to a port, from an entry of a devmap.
    pub leaving: u32,
    /// Takes the place of a port's XDP program, and calls that program.
    pub entering: u32,
    /// Ports by interface index, and the programs that they have.
    pub ports: BTreeMap<u32, u32>,
}

impl Programs {
    /// Loads and attaches the programs, for packets of the calling thread's network namespace.
    pub(super) fn attach() -> Result<Self, ProgramError> {
        let namespace = netns().map_err(|e| said("reading the network namespace", &e))?;
        let mut maps = BTreeMap::new();
        let constants = (CONSTANTS, &namespace.to_ne_bytes()[..]);
        let object =
            probes::load(VERIFY, constants, &mut maps, |name| MAPS.contains(&name), &[], |_| Ok(()))?;
        let received = Rc::<RefCell<Received>>::default();
        let buffer = buffer(&maps, &received).map_err(|e| failed("opening the buffer of records", &e))?;
        let mut links = Vec::new();
        for name in PROGRAMS {
            let link = program(&object, name)?.attach_trace();
            links.push(link.map_err(|e| failed(&format!("attaching {name}"), &e))?);
        }
        Ok(Self { received, _links: links, buffer, maps, objects: vec![object] })
    }

    /// Loads the programs for frames that XDP forwards, for these ports. They are still to be attached.
    pub(super) fn load_taps(&mut self, ports: &BTreeSet<u32>) -> Result<Taps, ProgramError> {
        let object = probes::load(
            VERIFY_XDP,
            (CONSTANTS, &[][..]),
            &mut self.maps,
            |name| MAPS.contains(&name),
            &[],
            |_| Ok(()),
        )?;
        let mut taps = Taps { leaving: 0, entering: 0, ports: BTreeMap::new() };
        for (name, id) in
            [("verify_xdp_leaving", &mut taps.leaving), ("verify_xdp_entering", &mut taps.entering)]
        {
            *id = program_id(program(&object, name)?.as_fd()).unwrap_or_default();
        }
        for (at, ifindex) in ports.iter().enumerate() {
            let at = (at as u32).to_ne_bytes();
            let id = xdp_program(*ifindex).unwrap_or_default();
            let engine = program_by_id(id).map_err(|e| said("opening the XDP program of a port", &e))?;
            self.write(ENGINES, &at, &engine.as_raw_fd().to_ne_bytes())?;
            self.write(ENGINE_OF, &ifindex.to_ne_bytes(), &at)?;
            taps.ports.insert(*ifindex, id);
        }
        self.objects.push(object);
        Ok(taps)
    }

    /// Observes a flow: packets that enter with the first tuple at a device, before XDP or behind it, and leave with
    /// the second one by another.
    pub(super) fn observe(
        &self,
        number: u32,
        before_xdp: bool,
        enters: (u32, &TraceTuple),
        leaves: (u32, &TraceTuple),
    ) -> Result<(), ProgramError> {
        for (name, (ifindex, tuple)) in [(ENTERS, enters), (LEAVES, leaves)] {
            let before_xdp = before_xdp.into();
            let flow = abi::VerifyFlow { number, ifindex, before_xdp, ..abi::VerifyFlow::default() };
            self.write(name, tuple.bytes(), flow.bytes())?;
        }
        Ok(())
    }

    /// Lets packets of this many bytes enter from now on. Those that are on their way may leave if the window is
    /// `open`.
    pub(super) fn set_window(&self, left: u64, open: bool) -> Result<(), ProgramError> {
        let window = abi::VerifyWindow { left, open: open.into(), ..abi::VerifyWindow::default() };
        self.write(WINDOW, &0u32.to_ne_bytes(), window.bytes())
    }

    /// Whether no further packet may enter.
    pub(super) fn is_full(&self) -> bool {
        let window = self.read(WINDOW).and_then(|bytes| abi::VerifyWindow::from_bytes(&bytes));
        window.is_none_or(|window| window.left.cast_signed() <= 0)
    }

    /// Takes the records of all CPUs.
    pub(super) fn take(&self) -> Vec<Observed> {
        // Only a broken buffer fails, and then there are no records.
        let _ = self.buffer.consume();
        std::mem::take(&mut self.received.borrow_mut().records)
    }

    /// Records that were lost: without room for them, or never written, since the kernel skips a tracing program that
    /// interrupts a run of itself.
    pub(super) fn lost(&self) -> u64 {
        let lost = self.read(LOST).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
        // The kernel tells of a full buffer with the next record, the programs at once.
        lost.max(self.received.borrow().lost) + self.misses()
    }

    fn misses(&self) -> u64 {
        let all = self.objects.iter().flat_map(|object| object.progs());
        all.filter_map(|program| program_misses(program.as_fd())).sum()
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        self.maps.get(name)?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?
    }

    fn write(&self, name: &str, key: &[u8], value: &[u8]) -> Result<(), ProgramError> {
        let Some(map) = self.maps.get(name) else { return Ok(()) };
        map.update(key, value, MapFlags::ANY).map_err(|e| failed(&format!("writing the map {name}"), &e))
    }
}

fn buffer(
    maps: &BTreeMap<String, MapHandle>,
    received: &Rc<RefCell<Received>>,
) -> Result<PerfBuffer<'static>, libbpf_rs::Error> {
    let (records, losses) = (received.clone(), received.clone());
    PerfBufferBuilder::new(&maps[RECORDS])
        .pages(PAGES)
        .sample_cb(move |_, bytes| records.borrow_mut().records.extend(observed(bytes)))
        .lost_cb(move |_, count| losses.borrow_mut().lost += count)
        .build()
}

/// A record, and the frame behind it; None if it is too short.
fn observed(bytes: &[u8]) -> Option<Observed> {
    let record = abi::VerifyRecord::from_bytes(bytes)?;
    let from = size_of::<abi::VerifyRecord>();
    let frame = Frame {
        // The kernel pads records.
        bytes: bytes.get(from..from + record.captured as usize)?.to_vec(),
        total: record.bytes as usize,
        l3_at: usize::from(record.l3_at),
        segment_bytes: usize::from(record.segment_bytes),
        is_unfinished: record.sum_from != 0,
        tag: (record.tag_tpid_be != [0; 2]).then(|| (u16::from_be_bytes(record.tag_tpid_be), record.tag_tci)),
    };
    Some(Observed { record, frame })
}

fn said(doing: &str, error: &io::Error) -> ProgramError {
    ProgramError {
        doing: doing.to_owned(),
        why: error.to_string(),
        forbidden: error.kind() == io::ErrorKind::PermissionDenied,
    }
}
