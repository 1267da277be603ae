//! Loads the programs of `bpf/inspect`, attaches them, and reads their records.
//!
//! Attachments are links: the kernel detaches the programs when this process ends, however it ends.
#![allow(unsafe_code, reason = "asks the kernel how often a program was skipped")]

use super::{
    abi::{self, TRACE_COOKIE_NUMBER_BITS},
    machine::{self, xdp_programs},
    tracepoints::{
        SKB_TRACEPOINTS, THREAD_STAGE, THREAD_TRACEPOINTS, Tracepoint, XDP_TRACEPOINTS, absent, exists,
    },
};
use crate::probes::{self, ObjectFile, ProgramError, failed, program};
use libbpf_rs::{
    ErrorKind, KprobeMultiOpts, Link, MapCore, MapFlags, MapHandle, NetfilterOpts, Object, OpenObject,
    ProgramType, RingBuffer, RingBufferBuilder,
};
use shunt_bpf::{abi::Plain, verifier};
use std::{cell::RefCell, collections::BTreeMap, io, mem::offset_of, os::fd::AsFd, rc::Rc};

const SKB: ObjectFile = probes::object!("trace_skb");
const XDP: ObjectFile = probes::object!("trace_xdp");
const PROBE: ObjectFile = probes::object!("trace_probe");
const THREAD: ObjectFile = probes::object!("trace_thread");
const VERDICT: ObjectFile = probes::object!("trace_verdict");

/// Maps that all objects share; the others are private to one object.
const SHARED: [&str; 10] = [
    KEYS,
    RECORDS,
    "trace_ring",
    "trace_losses",
    "trace_frames",
    "trace_arrivals",
    GATE,
    THREADS,
    WAITING,
    SWITCHES,
];
/// The sections with what programs are told.
const PLAN: &str = ".rodata";
const PROBES: &str = ".rodata.probes";
const GATE: &str = "trace_gate";
const RECORDS: &str = "trace_records";
const KEYS: &str = "trace_keys";
const SOCKETS: &str = "trace_sockets";
const THREADS: &str = "trace_threads";
const WAITING: &str = "trace_waiting";
const SWITCHES: &str = "trace_switches";
/// The programs of netfilter's functions, and what is missing without them.
const VERDICTS: [(&[&str], &str); 4] = [
    (&["trace_chain_first", "trace_chain_last"], "the chain that drops"),
    (&["trace_conntrack"], "drops by conntrack"),
    (&["trace_table4"], LEGACY4),
    (&["trace_table6"], LEGACY6),
];
const LEGACY4: &str = "drops by iptables";
const LEGACY6: &str = "drops by ip6tables";
/// The programs that see what XDP programs do, from outside.
const XDP_ENDS: [&str; 2] = ["trace_xdp_entry", "trace_xdp_exit"];

/// Hooks of netfilter, by NF_INET_ number.
const HOOKS: i32 = 5;
/// On loopback, a packet passes all hooks but FORWARD.
const HOOKS_ON_LOOPBACK: usize = 4;
const NFPROTO_IPV4: i32 = 2;
const NFPROTO_IPV6: i32 = 10;
/// The kernel allows everything between its own first and last priority, but each priority only once; a second trace
/// takes the next one.
const PRIORITIES: [(&str, i32, i32); 2] =
    [("trace_hook_first", i32::MIN + 1, 1), ("trace_hook_last", i32::MAX - 1, -1)];
/// Traces of one namespace at the same time.
const TRACES: i32 = 8;

/// A stage that cannot be seen on this machine, and why.
pub(super) type Missing = BTreeMap<String, String>;

/// Where a program is attached.
#[derive(Debug, Clone)]
enum Point {
    /// A tracepoint, or the entry or exit of another program, as the program says; the object is the one of this
    /// number.
    Trace(usize, &'static str),
    /// A function of the kernel, as the program says; without it, everything else is seen.
    Function(usize, &'static str),
    /// A hook of netfilter: the program, address family, hook, first priority and the step to the next one.
    Hook(&'static str, i32, i32, i32, i32),
}

/// The programs, loaded. They are attached between [`Programs::on`] and [`Programs::off`], or until this is dropped.
pub(super) struct Programs {
    records: Rc<RefCell<Vec<Vec<u8>>>>,
    switches: Rc<RefCell<Vec<abi::TraceSwitch>>>,
    // In the order in which they are dropped: detach first.
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    maps: BTreeMap<String, MapHandle>,
    objects: Vec<Object>,
    points: Vec<Point>,
    /// The stages that cannot be seen.
    pub(super) missing: Missing,
    /// Probes that a packet on the loopback device passes.
    pub(super) on_loopback: usize,
}

impl Programs {
    /// Loads all programs that this kernel takes.
    pub(super) fn load(mut plan: abi::TracePlan, ports: &[u32]) -> Result<Self, ProgramError> {
        // libbpf would print which tracepoints do not exist.
        verifier::capture_log();
        let mut maps = BTreeMap::new();
        let mut missing = Missing::new();
        let mut points = Vec::new();
        let has_hooks = ProgramType::Netfilter.is_supported().unwrap_or(true);
        let mut left_out = absent(&SKB_TRACEPOINTS);
        if !has_hooks {
            left_out.extend(PRIORITIES.map(|(name, ..)| name));
            without_hooks(&mut missing, "this kernel has none");
        }
        let skb = load(SKB, (PLAN, plan.bytes()), &mut maps, left_out, |_| Ok(()))?;
        let mut on_loopback = trace(0, &SKB_TRACEPOINTS, &mut points, &mut missing);
        let mut objects = vec![skb];

        plan.xdp_entry = 1;
        for (id, name) in xdp_programs(ports) {
            match follow_xdp(plan.bytes(), &mut maps, id, &name) {
                Ok(object) => {
                    points.extend(XDP_ENDS.map(|end| Point::Trace(objects.len(), end)));
                    objects.push(object);
                }
                Err(error) => {
                    let why = format!("fentry of the XDP program {name}: {}", error.why);
                    missing.insert("xdp-entry".to_owned(), why.clone());
                    missing.insert("xdp-decision".to_owned(), why);
                }
            }
        }
        plan.xdp_entry = (objects.len() > 1).into();
        let mut left_out = absent(&XDP_TRACEPOINTS);
        left_out.extend(XDP_ENDS);
        let xdp = load(XDP, (PLAN, plan.bytes()), &mut maps, left_out, |_| Ok(()))?;
        trace(objects.len(), &XDP_TRACEPOINTS, &mut points, &mut missing);
        objects.push(xdp);
        // Hooks come last, so that a kernel that refuses them has everything else.
        for (name, priority, step) in PRIORITIES.into_iter().filter(|_| has_hooks) {
            on_loopback += HOOKS_ON_LOOPBACK;
            for family in [NFPROTO_IPV4, NFPROTO_IPV6] {
                points.extend((0..HOOKS).map(|hook| Point::Hook(name, family, hook, priority, step)));
            }
        }

        follow_threads(plan.bytes(), &mut maps, &mut objects, &mut points, &mut missing);
        for (programs, stage) in VERDICTS {
            let is_absent = |wanted, names| stage == wanted && !machine::has_legacy_tables(names);
            if is_absent(LEGACY4, "ip_tables_names") || is_absent(LEGACY6, "ip6_tables_names") {
                continue;
            }
            match follow_verdict(&mut maps, programs) {
                Ok(object) => {
                    points.extend(programs.iter().map(|program| Point::Function(objects.len(), program)));
                    objects.push(object);
                }
                Err(error) => drop(missing.insert(stage.to_owned(), error.to_string())),
            }
        }

        let (records, switches) = <(Rc<RefCell<Vec<_>>>, Rc<RefCell<Vec<_>>>)>::default();
        let ring =
            rings(&maps, &records, &switches).map_err(|e| failed("opening the rings of records", &e))?;
        Ok(Self { records, switches, links: Vec::new(), ring, maps, objects, points, missing, on_loopback })
    }

    /// Attaches the programs, in the calling thread's network namespace where that matters, and starts tracing.
    pub(super) fn on(&mut self) -> Result<(), ProgramError> {
        let mut refused = None;
        for point in &self.points {
            match (attach(&self.objects, point), point) {
                (Ok(link), _) => self.links.push(link),
                (Err(error), Point::Hook(..)) => {
                    refused = Some(error);
                    break;
                }
                (Err(error), Point::Trace(..)) => return Err(error),
                (Err(error), Point::Function(_, program)) => {
                    let stage = VERDICTS.into_iter().find(|(names, _)| names.contains(program));
                    self.missing.extend(stage.map(|(_, stage)| (stage.to_owned(), error.to_string())));
                }
            }
        }
        if let Some(error) = refused {
            without_hooks(&mut self.missing, &error.why);
            self.points.retain(|point| !matches!(point, Point::Hook(..)));
            self.on_loopback -= PRIORITIES.len() * HOOKS_ON_LOOPBACK;
        }
        self.open_gate(true)
    }

    /// Traces no further packets; those that are traced are still followed.
    pub(super) fn close_gate(&self) -> Result<(), ProgramError> {
        self.open_gate(false)
    }

    /// Detaches the programs, and forgets packets that are on their way. Returns their number. Packets that were
    /// transmitted count as finished: their memory may be freed without a tracepoint.
    pub(super) fn off(&mut self) -> Result<usize, ProgramError> {
        self.links.clear();
        let mut unfinished = 0;
        for slot in self.slots_in_use() {
            let record =
                self.maps.get(RECORDS).and_then(|map| map.lookup(&slot.to_ne_bytes(), MapFlags::ANY).ok()?);
            let record = record.and_then(|bytes| abi::TraceRecord::from_bytes(&bytes));
            match record {
                Some(record) if record.flags & abi::TRACE_LEFT != 0 => {
                    let used = record.events as usize * size_of::<abi::TraceEvent>();
                    let bytes =
                        record.bytes().iter().copied().take(offset_of!(abi::TraceRecord, event) + used);
                    self.records.borrow_mut().push(bytes.collect());
                }
                _ => unfinished += 1,
            }
        }
        self.clear(KEYS)?;
        self.clear(SOCKETS)?;
        self.forget_waits()?;
        Ok(unfinished)
    }

    /// Threads are followed on, and what they did meanwhile is unknown.
    fn forget_waits(&self) -> Result<(), ProgramError> {
        self.clear(WAITING)?;
        let Some(threads) = self.maps.get(THREADS) else { return Ok(()) };
        for thread in threads.keys() {
            threads
                .update(&thread, &0u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(|e| failed("writing the map of threads", &e))?;
        }
        Ok(())
    }

    fn open_gate(&self, open: bool) -> Result<(), ProgramError> {
        self.write(GATE, &u32::from(open).to_ne_bytes())
    }

    /// Fills the only value of a map with zeros.
    fn clear(&self, name: &str) -> Result<(), ProgramError> {
        let size = self.maps.get(name).map_or(0, |map| map.value_size() as usize);
        self.write(name, &vec![0; size])
    }

    fn write(&self, name: &str, value: &[u8]) -> Result<(), ProgramError> {
        let Some(map) = self.maps.get(name) else { return Ok(()) };
        map.update(&0u32.to_ne_bytes(), value, MapFlags::ANY)
            .map_err(|e| failed(&format!("writing the map {name}"), &e))
    }

    /// Probes functions of the kernel, each with the index of its argument that is the skb, in the stage `window`. The
    /// kernel refuses all functions if it refuses one, so those that cannot be probed are found by halving, and left
    /// out.
    pub(super) fn probe(&mut self, functions: &[(String, u16)], window: u32) -> Result<(), ProgramError> {
        let probes = abi::TraceProbes { register_at: REGISTERS_AT, window };
        let object = load(PROBE, (PROBES, probes.bytes()), &mut self.maps, Vec::new(), |_| Ok(()))?;
        let numbered: Vec<(u64, &(String, u16))> = (0..).zip(functions).collect();
        let attached = self.links.len();
        let outcome = probe_all(&object, &numbered, &mut self.links);
        self.objects.push(object);
        match outcome {
            Err(error) if self.links.len() == attached => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the records that are in the ring.
    pub(super) fn take(&self) -> Vec<Vec<u8>> {
        // Only the callback could fail, and it does not.
        let _ = self.ring.consume();
        self.records.take()
    }

    /// Takes what threads did; [`Programs::take`] reads the rings.
    pub(super) fn take_switches(&self) -> Vec<abi::TraceSwitch> {
        self.switches.take()
    }

    /// What was lost: packets without a free slot, records without room, and runs that the kernel skipped.
    pub(super) fn losses(&self) -> (abi::TraceLosses, u64) {
        let read =
            |name: &str| self.maps.get(name)?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let losses =
            read("trace_losses").and_then(|bytes| abi::TraceLosses::from_bytes(&bytes)).unwrap_or_default();
        let programs = self.objects.iter().flat_map(Object::progs);
        let skipped = programs.filter_map(|program| skipped_runs(program.as_fd())).sum();
        (losses, skipped)
    }

    /// The number of packets whose records are not finished.
    pub(super) fn unfinished(&self) -> usize {
        self.slots_in_use().len()
    }

    fn slots_in_use(&self) -> Vec<u32> {
        let keys = self.maps.get(KEYS).and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?);
        let keys = keys.unwrap_or_default();
        let used =
            (0..).zip(keys.chunks(size_of::<u64>())).filter(|(_, key)| key.iter().any(|byte| *byte != 0));
        used.map(|(slot, _)| slot).collect()
    }
}

/// Loads the programs that follow threads; without them, everything else is seen.
fn follow_threads(
    constants: &[u8],
    maps: &mut BTreeMap<String, MapHandle>,
    objects: &mut Vec<Object>,
    points: &mut Vec<Point>,
    missing: &mut Missing,
) {
    match load(THREAD, (PLAN, constants), maps, absent(&THREAD_TRACEPOINTS), |_| Ok(())) {
        Ok(object) => {
            trace(objects.len(), &THREAD_TRACEPOINTS, points, missing);
            objects.push(object);
        }
        Err(error) => {
            missing.insert(THREAD_STAGE.to_owned(), error.to_string());
        }
    }
}

/// Loads the programs of one of netfilter's functions.
fn follow_verdict(maps: &mut BTreeMap<String, MapHandle>, wanted: &[&str]) -> Result<Object, ProgramError> {
    let all = VERDICTS.iter().flat_map(|(programs, _)| *programs).copied();
    let others = all.filter(|program| !wanted.contains(program));
    load(VERDICT, (PLAN, &[]), maps, others.collect(), |_| Ok(()))
}

/// The rings of records and, if threads are followed, of switches.
fn rings(
    maps: &BTreeMap<String, MapHandle>,
    records: &Rc<RefCell<Vec<Vec<u8>>>>,
    switches: &Rc<RefCell<Vec<abi::TraceSwitch>>>,
) -> Result<RingBuffer<'static>, libbpf_rs::Error> {
    let mut builder = RingBufferBuilder::new();
    let (records, switches) = (records.clone(), switches.clone());
    builder.add(&maps["trace_ring"], move |bytes: &[u8]| {
        records.borrow_mut().push(bytes.to_vec());
        0
    })?;
    if let Some(map) = maps.get(SWITCHES) {
        builder.add(map, move |bytes: &[u8]| {
            switches.borrow_mut().extend(abi::TraceSwitch::from_bytes(bytes));
            0
        })?;
    }
    builder.build()
}

/// Offsets in `struct pt_regs` of the registers with the first arguments of a function.
#[cfg(target_arch = "x86_64")]
const REGISTERS_AT: [u16; 6] = [112, 104, 96, 88, 72, 64];
/// Other architectures in use keep them in the first registers.
#[cfg(all(target_pointer_width = "64", not(target_arch = "x86_64")))]
const REGISTERS_AT: [u16; 6] = [0, 8, 16, 24, 32, 40];
#[cfg(target_pointer_width = "32")]
const REGISTERS_AT: [u16; 6] = [0, 4, 8, 12, 16, 20];

/// Loads an object of these programs, with these constants in a section.
fn load(
    file: ObjectFile,
    constants: (&str, &[u8]),
    maps: &mut BTreeMap<String, MapHandle>,
    left_out: Vec<&'static str>,
    prepare: impl FnOnce(&mut OpenObject) -> Result<(), ProgramError>,
) -> Result<Object, ProgramError> {
    let is_shared = |name: &str| SHARED.contains(&name) || name == SOCKETS;
    probes::load(file, constants, maps, is_shared, &left_out, prepare)
}

/// Notes the stages that only hooks of netfilter show.
fn without_hooks(missing: &mut Missing, why: &str) {
    for stage in ["prerouting", "routing", "forward", "local-in", "local-out", "postrouting"] {
        missing.insert(stage.to_owned(), format!("BPF programs of netfilter (Linux 6.4): {why}"));
    }
}

/// Adds the tracepoints that this kernel has. Returns how many of them a packet on loopback passes.
fn trace(object: usize, all: &[Tracepoint], points: &mut Vec<Point>, missing: &mut Missing) -> usize {
    let mut on_loopback = 0;
    for one in all {
        if exists(one.name) {
            points.push(Point::Trace(object, one.program));
            on_loopback += usize::from(one.on_loopback);
        } else if one.stage != "driver" {
            missing.insert(one.stage.to_owned(), format!("this kernel has no tracepoint {}", one.name));
        }
    }
    on_loopback
}

fn attach(objects: &[Object], point: &Point) -> Result<Link, ProgramError> {
    match *point {
        Point::Trace(object, name) | Point::Function(object, name) => {
            program(&objects[object], name)?.attach_trace()
        }
        Point::Hook(name, protocol_family, hooknum, first, step) => {
            let program = program(&objects[0], name)?;
            let at = |n: i32| {
                let priority = first + n * step;
                let options =
                    NetfilterOpts { protocol_family, hooknum, priority, ..NetfilterOpts::default() };
                program.attach_netfilter_with_opts(options)
            };
            (1..TRACES).fold(at(0), |tried, n| tried.or_else(|_| at(n)))
        }
    }
    .map_err(|e| failed(&format!("attaching {point:?}"), &e))
}

/// Attaches the program to as many of these functions as the kernel allows. Returns the last refusal.
fn probe_all(
    object: &Object,
    functions: &[(u64, &(String, u16))],
    links: &mut Vec<Link>,
) -> Result<(), ProgramError> {
    let options = KprobeMultiOpts {
        symbols: functions.iter().map(|(_, (name, _))| name.clone()).collect(),
        cookies: functions
            .iter()
            .map(|(n, (_, at))| u64::from(*at) << TRACE_COOKIE_NUMBER_BITS | n)
            .collect(),
        ..KprobeMultiOpts::default()
    };
    match program(object, "trace_function")?.attach_kprobe_multi_with_opts(options) {
        Ok(link) => {
            links.push(link);
            Ok(())
        }
        Err(error)
            if functions.len() <= 1
                || !matches!(
                    error.kind(),
                    ErrorKind::Other | ErrorKind::InvalidInput | ErrorKind::NotFound
                ) =>
        {
            Err(failed("probing functions of the kernel (kprobe.multi)", &error))
        }
        Err(_) => {
            let (first, second) = functions.split_at(functions.len() / 2);
            let outcome = probe_all(object, first, links);
            probe_all(object, second, links).and(outcome)
        }
    }
}

/// Loads the programs for the entry and the exit of an XDP program.
fn follow_xdp(
    constants: &[u8],
    maps: &mut BTreeMap<String, MapHandle>,
    id: u32,
    name: &str,
) -> Result<Object, ProgramError> {
    let fd = shunt_bpf::attach::program_by_id(id).map_err(|e| ProgramError {
        doing: format!("opening the XDP program {name}"),
        why: e.to_string(),
        forbidden: e.kind() == io::ErrorKind::PermissionDenied,
    })?;
    let left_out = XDP_TRACEPOINTS.iter().map(|one| one.program).collect();
    load(XDP, (PLAN, constants), maps, left_out, |open| {
        for mut program in
            open.progs_mut().filter(|program| XDP_ENDS.iter().any(|end| program.name() == *end))
        {
            use std::os::fd::AsRawFd;
            let set = program.set_attach_target(fd.as_raw_fd(), Some(name.to_owned()));
            set.map_err(|e| failed(&format!("finding {name}"), &e))?;
        }
        Ok(())
    })
}

fn skipped_runs(fd: std::os::fd::BorrowedFd<'_>) -> Option<u64> {
    use std::os::fd::AsRawFd;
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is zeroed and `len` is its size.
    let err = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut len) };
    (err == 0).then_some(info.recursion_misses)
}
