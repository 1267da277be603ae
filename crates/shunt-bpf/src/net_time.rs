//! The CPU time that packets take, and samples of the slow path, by `net_time.bpf.c` and `napi_time.bpf.c`.

use crate::{
    DataPlane, Error,
    abi::{self, Counters, NetTime, Plain},
    control,
    maps::{COUNTERS, Maps, NET_TIMES},
    object::{Loading, NAPI_TIME, NET_TIME, Size, load_for, program},
    shared::Mapping,
};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ProgramInput};
use nix::time::{ClockId, clock_gettime};
use std::{
    mem::offset_of,
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering, fence},
    time::Duration,
};

const SAMPLE: &str = "shunt_sample";
/// How often a reader tries again while a CPU changes its time.
const TRIES: u32 = 1000;

/// What a [`NetTimeMeter`] is loaded with, by a thread that may wait.
pub struct NetTimeLoader {
    maps: Maps,
    size: Size,
}

/// Measures the CPU time that packets take on this machine, and lets packets take the slow path for some milliseconds.
/// It is independent of the data plane, so that a thread that may wait can use it.
pub struct NetTimeMeter {
    object: Object,
    /// Why the kernel refuses the programs, if it does: without BTF, the layout of its threads is unknown.
    napi: Result<Object, Error>,
    maps: Maps,
    times: Mapping,
    cpus: usize,
    ticks_per_s: u32,
}

// SAFETY: libbpf objects and mappings are not tied to a thread; the type is used from one thread at a time.
unsafe impl Send for NetTimeMeter {}
// SAFETY: as for the meter.
unsafe impl Send for NetTimeLoader {}

/// The attached tracepoints. Dropping them ends the measurement.
pub struct NetTimeLinks {
    #[expect(dead_code, reason = "attached as long as they live")]
    links: Vec<Link>,
}

/// What was counted until a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct NetReading {
    /// The moment: CLOCK_MONOTONIC.
    pub at: Duration,
    /// CPU time for packets since the tracepoints were attached, by CPU.
    pub cpus: Vec<Duration>,
    /// The counters of ports, in the order that was asked for.
    pub ports: Vec<Counters>,
}

/// A sample of the slow path. Dropping it ends the sample.
pub struct SlowSample<'m>(&'m NetTimeMeter);

impl DataPlane {
    /// What loads a meter of the CPU time that packets take.
    ///
    /// # Errors
    /// If handles of the maps cannot be made.
    pub fn net_time_loader(&self) -> Result<NetTimeLoader, Error> {
        Ok(NetTimeLoader { maps: self.maps.try_clone()?, size: self.size })
    }
}

impl NetTimeLoader {
    /// Loads the programs. Waits for the verifier.
    ///
    /// # Errors
    /// If the kernel refuses the programs.
    pub fn load(mut self) -> Result<NetTimeMeter, Error> {
        let failed = |source| Error::Map { map: NET_TIMES, source };
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed)?;
        let object = load_for(&NET_TIME, self.size, &mut self.maps, &Loading::default())?;
        let napi = load_for(&NAPI_TIME, self.size, &mut self.maps, &Loading::default());
        let times = Mapping::map(self.maps.get(NET_TIMES)?.as_fd(), cpus * size_of::<NetTime>())?;
        let ticks_per_s = control::ticks_per_s()?;
        Ok(NetTimeMeter { object, napi, maps: self.maps, times, cpus, ticks_per_s })
    }
}

impl NetTimeMeter {
    /// Why the time of NAPI threads is not counted, but only that of softirqs; `None` if it is.
    pub fn blind_to_threads(&self) -> Option<&Error> {
        self.napi.as_ref().err()
    }

    /// Counts from now on, until the links are dropped. Times begin at zero.
    ///
    /// # Errors
    /// If a tracepoint cannot be attached to.
    pub fn attach(&self) -> Result<NetTimeLinks, Error> {
        for cpu in 0..self.cpus {
            for field in [
                offset_of!(NetTime, changes),
                offset_of!(NetTime, total_ns),
                offset_of!(NetTime, softirq_since_ns),
                offset_of!(NetTime, thread_since_ns),
            ] {
                self.field(cpu, field).store(0, Ordering::Relaxed);
            }
        }
        let softirq = [("shunt_softirq_entry", "softirq_entry"), ("shunt_softirq_exit", "softirq_exit")];
        let mut links = Vec::new();
        for (name, tracepoint) in softirq {
            let failed = |source| Error::loading(NET_TIME.name, source);
            let link = program(&self.object, &NET_TIME, name)?.attach_raw_tracepoint(tracepoint);
            links.push(link.map_err(failed)?);
        }
        if let Ok(napi) = &self.napi {
            let failed = |source| Error::loading(NAPI_TIME.name, source);
            let switch = program(napi, &NAPI_TIME, "shunt_thread_switch")?;
            links.push(switch.attach_raw_tracepoint("sched_switch").map_err(failed)?);
        }
        Ok(NetTimeLinks { links })
    }

    /// What was counted until now, with the counters of the ports in these slots.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn read(&self, slots: &[u16]) -> Result<NetReading, Error> {
        let ports = slots.iter().map(|slot| self.counters(*slot)).collect::<Result<_, _>>()?;
        let cpus = (0..self.cpus).map(|cpu| self.time_of(cpu)).collect();
        Ok(NetReading { at: now(), cpus, ports })
    }

    fn counters(&self, slot: u16) -> Result<Counters, Error> {
        let failed = |source| Error::Map { map: COUNTERS, source };
        let map = self.maps.get(COUNTERS)?;
        let values = map.lookup_percpu(&u32::from(slot).to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        let mut sum = Counters::default();
        for counters in values.iter().flatten().filter_map(|value| Counters::from_bytes(value)) {
            sum.add(&counters);
        }
        Ok(sum)
    }

    /// The time of a CPU, with what has passed of the present softirq or thread.
    fn time_of(&self, cpu: usize) -> Duration {
        let changes = || self.field(cpu, offset_of!(NetTime, changes)).load(Ordering::SeqCst);
        let field = |offset| self.field(cpu, offset).load(Ordering::SeqCst);
        let mut total = 0;
        for _ in 0..TRIES {
            let before = changes();
            fence(Ordering::SeqCst);
            let ends = field(offset_of!(NetTime, total_ns));
            let softirq = field(offset_of!(NetTime, softirq_since_ns));
            let thread = field(offset_of!(NetTime, thread_since_ns));
            let since = if thread == 0 { softirq } else { thread };
            let now = u64::try_from(now().as_nanos()).unwrap_or(u64::MAX);
            let present = if since == 0 { 0 } else { now.saturating_sub(since) };
            total = ends + present;
            fence(Ordering::SeqCst);
            if before.is_multiple_of(2) && changes() == before {
                break;
            }
        }
        Duration::from_nanos(total)
    }

    fn field(&self, cpu: usize, offset: usize) -> &AtomicU64 {
        assert!(cpu < self.cpus && offset.is_multiple_of(8) && offset + 8 <= size_of::<NetTime>());
        // SAFETY: inside the mapping, which has an element for each CPU, and aligned.
        unsafe { AtomicU64::from_ptr(self.times.address().add(cpu * size_of::<NetTime>() + offset).cast()) }
    }

    /// Sends all packets of known flows to Linux until the sample is dropped, or for `most` and up to two ticks of the
    /// kernel's clock. `None` without a recent heartbeat of the daemon.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn sample_slow_path(&self, most: Duration) -> Result<Option<SlowSample<'_>>, Error> {
        let ticks = most.as_nanos() * u128::from(self.ticks_per_s) / 1_000_000_000;
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX).saturating_add(2);
        // Made only if it began: a sample ends when it is dropped.
        Ok((self.switch(ticks)?.began != 0).then(|| SlowSample(self)))
    }

    fn switch(&self, ticks: u32) -> Result<abi::Sample, Error> {
        let mut context = abi::Sample { ticks, ..abi::Sample::default() }.bytes().to_vec();
        let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
        program(&self.object, &NET_TIME, SAMPLE)?
            .test_run(input)
            .map_err(|source| Error::Map { map: SAMPLE, source })?;
        Ok(abi::Sample::from_bytes(&context).unwrap_or_default())
    }
}

impl Drop for SlowSample<'_> {
    fn drop(&mut self) {
        // If this fails, the sample ends by itself, some milliseconds later.
        let _ = self.0.switch(0);
    }
}

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}
