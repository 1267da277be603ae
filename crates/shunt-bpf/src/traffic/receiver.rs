//! The receiver: which packets of a generator came, how often, in what order, and how late.

use super::{
    Arrival, Error,
    abi::{self, LATENCY_BUCKETS, ReceivePlan, latency_bounds},
    host, load, map, missing, open, set_entries, set_rodata, told,
};
use crate::{
    abi::Plain,
    attach::{self, Hook},
};
use libbpf_rs::{MapCore, MapFlags, Object, PerfBuffer, PerfBufferBuilder};
use shunt_gen::Capture;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    os::fd::OwnedFd,
    time::Duration,
};

/// For each CPU: 16 MiB, which is some ten thousand frames.
const HANDED_PAGES: usize = 4096;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// Takes the packets of one generator off an interface and accounts for them. Everything else goes up.
pub struct Receiver {
    object: Object,
    _attachment: OwnedFd,
    mode: Mode,
    flows: u32,
    label: u32,
}

/// What is accounted.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'c> {
    /// Packets with a stamp, of so many flows.
    Stamped {
        /// Flows.
        flows: u32,
        /// The second segment of a TCP handshake is answered by the third.
        shakes: bool,
    },
    /// Frames without one, of the kinds (EtherType, protocol, type of ICMP) that this capture has.
    Of(&'c Capture),
}

/// What hands on the frames that come, as long as it lives.
pub struct HandedOn<'b> {
    buffer: PerfBuffer<'b>,
}

/// Where the receiver runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the stack, after an skb was made: any device can, and it costs more.
    Generic,
}

/// What came, of all flows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Received {
    /// All, duplicates included.
    pub packets: u64,
    /// Of frames without FCS.
    pub bytes: u64,
    /// Packets that are none of this generator's.
    pub others: u64,
    /// When the latest came.
    pub last_ns: u64,
    /// Those that had come already.
    pub duplicated: u64,
    /// With a lower number than one before (RFC 4737).
    pub reordered: u64,
    /// Reordered so far that they may also be duplicates.
    pub beyond: u64,
    /// How far behind the highest number of its flow one was.
    pub displaced_max: u32,
    /// Of RFC 3550, in nanoseconds: the mean over flows.
    pub jitter_ns: f64,
    /// Flows of which something came.
    pub flows: u32,
    /// One-way latencies.
    pub latency: Histogram,
    /// Of RFC 3550, as it is after each packet but the first of a flow.
    pub jitter: Histogram,
}

/// How often what took how long. Its buckets are exact below 128 ns and 1/64 wide above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The least, exactly; none when there is none.
    pub min_ns: Option<u64>,
    /// The greatest, exactly.
    pub max_ns: Option<u64>,
    /// The middle of each bucket that is not empty, and how many are in it.
    pub buckets: Vec<(u64, u64)>,
}

impl Receiver {
    /// Attaches to an interface, in the driver where that is possible, for so many flows. Nothing is accounted before
    /// [`Receiver::expect`].
    ///
    /// # Errors
    /// When the kernel refuses the program, or the interface has another one.
    pub fn attach(ifindex: u32, flows: u32) -> Result<Self, Error> {
        Self::attach_for(ifindex, &Wanted::Stamped { flows, shakes: false }, false)
    }

    /// As [`Receiver::attach`], for these frames, which [`Receiver::handed_on`] gives if they are to be handed on.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the interface has another one.
    pub fn attach_for(ifindex: u32, wanted: &Wanted<'_>, hand_on: bool) -> Result<Self, Error> {
        let (flows, shakes, kinds) = match wanted {
            Wanted::Stamped { flows, shakes } => (*flows, *shakes, BTreeSet::new()),
            Wanted::Of(capture) => (1, false, host::kinds(capture)),
        };
        let by_kind = matches!(wanted, Wanted::Of(_)).into();
        let mut open = open("xdp_receive", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_receive.o")))?;
        let plan = ReceivePlan { flows, by_kind, hand_on: hand_on.into(), shakes: shakes.into() };
        set_rodata(&mut open, plan.bytes());
        set_entries(&mut open, "arrivals", flows)?;
        set_entries(&mut open, "kinds", kinds.len().max(1) as u32)?;
        let object = load("xdp_receive", open)?;
        for kind in kinds {
            let what = if for_linux(kind) { XDP_PASS } else { XDP_DROP };
            let written =
                map(&object, "kinds")?.update(&kind.to_ne_bytes(), &what.to_ne_bytes(), MapFlags::ANY);
            written.map_err(|e| told("xdp_receive: writing the kinds of frames", e))?;
        }
        let program = || object.progs_mut().next().ok_or_else(|| missing("shunt_receive"));
        let (attachment, mode) = match attach::link_fd(&program()?, ifindex, Hook::Xdp) {
            Err(e) if e.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {
                (attach::link_fd(&program()?, ifindex, Hook::GenericXdp), Mode::Generic)
            }
            other => (other, Mode::Native),
        };
        let attachment = attachment.map_err(|cause| Error {
            doing: format!("xdp_receive: attaching to interface {ifindex}"),
            cause: cause.into(),
        })?;
        // No label has more than eight bits, so this one matches nothing.
        let receiver = Self { object, _attachment: attachment, mode, flows, label: u32::MAX };
        receiver.set_label(u32::MAX)?;
        Ok(receiver)
    }

    /// Where it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// From now on accounts for the packets with this label, from zero. It must be another one than before: packets of that may
    /// still be under way.
    ///
    /// # Errors
    /// When its state cannot be written.
    pub fn expect(&mut self, label: u8) -> Result<(), Error> {
        let totals = map(&self.object, "totals")?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(|e| told("counting CPUs", e))?;
        let zero = vec![vec![0; totals.value_size() as usize]; cpus];
        totals
            .update_percpu(&0u32.to_ne_bytes(), &zero, MapFlags::ANY)
            .map_err(|e| told("xdp_receive: clearing the counters", e))?;
        self.label = label.into();
        self.set_label(self.label)
    }

    fn set_label(&self, label: u32) -> Result<(), Error> {
        let written =
            map(&self.object, ".bss")?.update(&0u32.to_ne_bytes(), &label.to_ne_bytes(), MapFlags::ANY);
        written.map_err(|e| told("xdp_receive: writing the label", e))
    }

    /// Gives each frame that is accounted from now on, with the time at which it came, as long as what is returned is polled.
    /// Frames that find no room are missing, and accounted all the same.
    ///
    /// # Errors
    /// When the kernel refuses the buffers.
    pub fn handed_on<'b>(&self, mut each: impl FnMut(u64, &[u8]) + 'b) -> Result<HandedOn<'b>, Error> {
        let map = map(&self.object, "handed")?;
        let buffer = PerfBufferBuilder::new(&map).pages(HANDED_PAGES).sample_cb(move |_, sample: &[u8]| {
            let head = abi::HandedOn::of(sample);
            let frame = head.and_then(|head| Some((head, sample.get(16..16 + head.bytes as usize)?)));
            if let Some((head, bytes)) = frame {
                each(head.at_ns, bytes);
            }
        });
        let buffer = buffer.build().map_err(|e| told("xdp_receive: buffers for what is handed on", e))?;
        Ok(HandedOn { buffer })
    }

    /// How many packets came, duplicates included.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn packets(&self) -> Result<u64, Error> {
        Ok(self.totals()?.iter().map(|total| total.packets).sum())
    }

    /// Everything that is known of what came.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn received(&self) -> Result<Received, Error> {
        let mut sum = Received::default();
        let totals = self.totals()?;
        for total in &totals {
            sum.packets += total.packets;
            sum.bytes += total.bytes;
            sum.others += total.others;
            sum.last_ns = sum.last_ns.max(total.last_ns);
        }
        sum.latency = Histogram::of_cpus(totals.iter().map(|total| &total.latency));
        sum.jitter = Histogram::of_cpus(totals.iter().map(|total| &total.jitter));
        let mut jitter = 0.0;
        for arrival in self.arrivals()?.iter().filter(|arrival| arrival.packets > 0) {
            sum.flows += 1;
            sum.duplicated += u64::from(arrival.duplicated);
            sum.reordered += u64::from(arrival.reordered);
            sum.beyond += u64::from(arrival.beyond);
            sum.displaced_max = sum.displaced_max.max(arrival.displaced_max);
            jitter += f64::from(arrival.jitter) / 16.0;
        }
        sum.jitter_ns = jitter / f64::from(sum.flows.max(1));
        Ok(sum)
    }

    /// What has come of each flow; zeros where nothing has.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn arrivals(&self) -> Result<Vec<Arrival>, Error> {
        let mut arrivals = vec![Arrival::default(); self.flows as usize];
        let map = map(&self.object, "arrivals")?;
        let batch = map
            .lookup_batch(4096, MapFlags::ANY, MapFlags::ANY)
            .map_err(|e| told("xdp_receive: reading the flows", e))?;
        for (key, value) in batch {
            let flow = key.try_into().ok().map(u32::from_ne_bytes);
            let place = flow.and_then(|flow| arrivals.get_mut(flow as usize));
            if let Some((place, arrival)) = place.zip(Arrival::of(&value)) {
                if arrival.label == self.label {
                    *place = arrival;
                }
            }
        }
        Ok(arrivals)
    }

    fn totals(&self) -> Result<Vec<abi::Received>, Error> {
        let doing = |e| told("xdp_receive: reading the counters", e);
        let values = map(&self.object, "totals")?.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(doing)?.unwrap_or_default();
        Ok(values.iter().filter_map(|value| abi::Received::of(value)).collect())
    }
}

impl HandedOn<'_> {
    /// Gives what has come, and waits so long for the first if nothing has.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn poll(&self, timeout: Duration) -> Result<(), Error> {
        self.buffer.poll(timeout).map_err(|e| told("xdp_receive: reading what is handed on", e))
    }

    /// Gives all that has come.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn consume(&self) -> Result<(), Error> {
        self.buffer.consume().map_err(|e| told("xdp_receive: reading what is handed on", e))
    }
}

impl fmt::Debug for HandedOn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedOn").finish_non_exhaustive()
    }
}

/// ARP, and neighbour discovery with all that belongs to it.
fn for_linux(kind: u32) -> bool {
    kind == 0x0806 << 16 || (0x86dd_3a85..=0x86dd_3a89).contains(&kind)
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("mode", &self.mode)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl Histogram {
    fn of_cpus<'t>(cpus: impl Iterator<Item = &'t abi::Times>) -> Self {
        let mut sum = Self::default();
        let mut counts = vec![0; LATENCY_BUCKETS];
        for times in cpus {
            if let Some(least) = times.ns_min.checked_sub(1) {
                sum.min_ns = Some(sum.min_ns.map_or(least, |min| min.min(least)));
                sum.max_ns = sum.max_ns.max(Some(times.ns_max));
            }
            counts.iter_mut().zip(times.counts).for_each(|(sum, count)| *sum += count);
        }
        let some = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        sum.buckets = some
            .map(|(bucket, count)| {
                let (low, high) = latency_bounds(bucket);
                ((low + high) / 2, *count)
            })
            .collect();
        sum
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut buckets: BTreeMap<u64, u64> = self.buckets.iter().copied().collect();
        other.buckets.iter().for_each(|(at, count)| *buckets.entry(*at).or_default() += count);
        Self {
            min_ns: [self.min_ns, other.min_ns].into_iter().flatten().min(),
            max_ns: self.max_ns.max(other.max_ns),
            buckets: buckets.into_iter().collect(),
        }
    }

    /// The time that this share did not exceed, to within 0.8 %.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let all: u64 = self.buckets.iter().map(|(_, count)| count).sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut passed = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            passed += count;
            passed >= rank
        });
        // The middle of a bucket may lie beyond what was in it.
        bucket.map(|(middle, _)| (*middle).clamp(self.min_ns.unwrap_or(0), self.max_ns.unwrap_or(u64::MAX)))
    }
}
