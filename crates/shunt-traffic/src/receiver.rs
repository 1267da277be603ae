//! The receiver: accounts for the packets of a generator, with duplicates, order and latency.

use crate::{
    Arrival, Error,
    abi::{self, LATENCY_BUCKETS, ReceivePlan, latency_bounds},
    host, libbpf_error, load, map, missing, open, set_entries, set_rodata,
};
use libbpf_rs::{Link, MapCore, MapFlags, Object, PerfBuffer, PerfBufferBuilder, ProgramMut, ProgramType};
use shunt_bpf::{
    abi::Plain,
    attach::{self, Hook},
};
use shunt_gen::Capture;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    os::fd::OwnedFd,
    time::Duration,
};

/// Pages of the capture buffer per CPU: 16 MiB, which holds about ten thousand frames.
const CAPTURE_PAGES: usize = 4096;
/// The programs of the receiver, and the tracepoint of the second one.
const RECEIVE: &str = "shunt_receive";
const POLL_ENDED: &str = "shunt_poll_ended";
const POLL: &str = "napi_poll";
/// Number of flows that are assigned in one call into the kernel.
const ASSIGNED_AT_ONCE: usize = 4096;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// Consumes the packets of one generator on an interface, and accounts for them. Passes everything else to Linux.
pub struct Receiver {
    object: Object,
    _attachment: OwnedFd,
    mode: Mode,
    flows: u32,
    label: u32,
    /// Says when a poll has ended; None if each frame reads the clock.
    polls: Option<Link>,
}

/// The packets to account for.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'c> {
    /// Packets with a stamp.
    Stamped {
        /// Number of flows.
        flows: u32,
        /// Whether to answer the second segment of a TCP handshake with the third.
        handshakes: bool,
    },
    /// Packets with a stamp, of several streams. No flow belongs to a stream before [`Receiver::assign`].
    Streams {
        /// Number of flows of all streams.
        flows: u32,
        /// Number of streams.
        streams: u32,
    },
    /// Frames of the kinds (EtherType, protocol, ICMP type) that occur in this capture.
    Kinds(&'c Capture),
}

/// Copies of accounted frames. Frames are copied while this exists and is polled.
pub struct CaptureBuffer<'b> {
    buffer: PerfBuffer<'b>,
}

/// The XDP mode of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Native XDP, in the driver.
    Native,
    /// Generic XDP, on the skb: supported by every device, and slower.
    Generic,
}

/// The packets received, of all flows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Received {
    /// Packets, including duplicates.
    pub packets: u64,
    /// Bytes of frames, without FCS.
    pub bytes: u64,
    /// Packets of other origin, which were passed on.
    pub others: u64,
    /// When the last packet arrived; 0 if none did.
    pub last_ns: u64,
    /// Packets that had arrived before.
    pub duplicated: u64,
    /// Packets with a lower number than an earlier one (RFC 4737).
    pub reordered: u64,
    /// Packets reordered by more than the window, which may also be duplicates.
    pub beyond: u64,
    /// The largest distance of a packet behind the highest number of its flow.
    pub displaced_max: u32,
    /// Jitter (RFC 3550), mean over flows.
    pub jitter_ns: f64,
    /// Number of flows of which a packet arrived.
    pub flows: u32,
    /// One-way latencies.
    pub latency: Histogram,
    /// Jitter (RFC 3550), after each packet of a flow but the first.
    pub jitter: Histogram,
}

/// A histogram of times. Buckets are exact below 128 ns, and 1/64 of their value wide above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The exact minimum. None if the histogram is empty.
    pub min_ns: Option<u64>,
    /// The exact maximum. None if the histogram is empty.
    pub max_ns: Option<u64>,
    /// The middle and the count of each bucket that is not empty.
    pub buckets: Vec<(u64, u64)>,
}

impl Receiver {
    /// Attaches to an interface, in the driver if it supports XDP, for this many flows. Nothing is accounted for before
    /// [`Receiver::expect`].
    ///
    /// # Errors
    /// If the kernel refuses the program, or the interface has another XDP program.
    pub fn attach(ifindex: u32, flows: u32) -> Result<Self, Error> {
        Self::attach_for(ifindex, &Selection::Stamped { flows, handshakes: false }, false)
    }

    /// Attaches like [`Receiver::attach`], for a selection of packets. With `capture`, [`Receiver::captured`] returns
    /// copies of the accounted frames.
    ///
    /// # Errors
    /// If the kernel refuses the program, or the interface has another XDP program.
    pub fn attach_for(ifindex: u32, selection: &Selection<'_>, capture: bool) -> Result<Self, Error> {
        let (flows, streams, handshakes, kinds) = match selection {
            Selection::Stamped { flows, handshakes } => (*flows, 1, *handshakes, BTreeSet::new()),
            Selection::Streams { flows, streams } => (*flows, *streams, false, BTreeSet::new()),
            Selection::Kinds(capture) => (1, 1, false, host::kinds(capture)),
        };
        let by_kind = matches!(selection, Selection::Kinds(_)).into();
        let mut open = open("xdp_receive", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_receive.o")))?;
        let plan = ReceivePlan { flows, by_kind, capture: capture.into(), handshakes: handshakes.into() };
        set_rodata(&mut open, plan.bytes());
        set_entries(&mut open, "arrivals", flows)?;
        set_entries(&mut open, "totals", streams)?;
        set_entries(&mut open, "kinds", kinds.len().max(1) as u32)?;
        if !ProgramType::RawTracepoint.is_supported().unwrap_or(false) {
            open.progs_mut().filter(|prog| prog.name() == POLL_ENDED).for_each(|mut prog| {
                prog.set_autoload(false);
            });
        }
        let object = load("xdp_receive", open)?;
        for kind in kinds {
            let verdict = if for_linux(kind) { XDP_PASS } else { XDP_DROP };
            let written =
                map(&object, "kinds")?.update(&kind.to_ne_bytes(), &verdict.to_ne_bytes(), MapFlags::ANY);
            written.map_err(|e| libbpf_error("xdp_receive: writing the kinds of frames", e))?;
        }
        let program = || program(&object, RECEIVE);
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
        // A label has eight bits, so this value matches nothing.
        let receiver = Self { object, _attachment: attachment, mode, flows, label: u32::MAX, polls: None };
        receiver.set_label(u32::MAX)?;
        Ok(receiver)
    }

    /// Lets frames that the driver got in one poll share a reading of the clock, from the next [`Receiver::expect`] on.
    /// For drivers that run XDP programs in polls only: all but tun. Where the kernel has no tracepoint of polls, each
    /// frame reads the clock, as before.
    pub fn share_clock(&mut self) {
        if self.mode == Mode::Native {
            let attached = program(&self.object, POLL_ENDED)
                .and_then(|program| program.attach_raw_tracepoint(POLL).map_err(|e| libbpf_error(POLL, e)));
            self.polls = attached.ok();
        }
    }

    /// The XDP mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Clears the counters and accounts for packets with this label from now on. The label must differ from the last
    /// one, whose packets may still be in flight.
    ///
    /// # Errors
    /// If the state cannot be written.
    pub fn expect(&mut self, label: u8) -> Result<(), Error> {
        self.clear(0)?;
        self.label = label.into();
        self.set_label(self.label)
    }

    fn clear(&self, stream: u32) -> Result<(), Error> {
        let totals = map(&self.object, "totals")?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(|e| libbpf_error("counting CPUs", e))?;
        let zero = vec![vec![0; totals.value_size() as usize]; cpus];
        totals
            .update_percpu(&stream.to_ne_bytes(), &zero, MapFlags::ANY)
            .map_err(|e| libbpf_error("xdp_receive: clearing the counters", e))
    }

    /// Accounts for these flows as those of a stream from now on. Their counters, and those of the stream, restart at
    /// zero; no packet of them may be under way.
    ///
    /// # Errors
    /// If the maps cannot be written.
    pub fn assign(&self, flows: Range<u32>, stream: u32) -> Result<(), Error> {
        self.clear(stream)?;
        let arrivals = map(&self.object, "arrivals")?;
        let fresh = Arrival { stream, ..Arrival::default() };
        let all: Vec<u32> = flows.collect();
        for chunk in all.chunks(ASSIGNED_AT_ONCE) {
            let keys: Vec<u8> = chunk.iter().flat_map(|flow| flow.to_ne_bytes()).collect();
            let values = fresh.bytes().repeat(chunk.len());
            arrivals
                .update_batch(&keys, &values, chunk.len() as u32, MapFlags::ANY, MapFlags::ANY)
                .map_err(|e| libbpf_error("xdp_receive: assigning flows", e))?;
        }
        Ok(())
    }

    fn set_label(&self, label: u32) -> Result<(), Error> {
        let polled = u32::from(self.polls.is_some());
        let state = [label, polled].map(u32::to_ne_bytes);
        let written =
            map(&self.object, ".bss")?.update(&0u32.to_ne_bytes(), state.as_flattened(), MapFlags::ANY);
        written.map_err(|e| libbpf_error("xdp_receive: writing the label", e))
    }

    /// Passes each frame that is accounted for from now on to `each`, with its time of arrival, while the returned
    /// buffer is polled. Frames that do not fit the buffer are missing, but accounted for.
    ///
    /// # Errors
    /// If the kernel refuses the buffers.
    pub fn captured<'b>(&self, mut each: impl FnMut(u64, &[u8]) + 'b) -> Result<CaptureBuffer<'b>, Error> {
        let map = map(&self.object, "captured")?;
        let buffer = PerfBufferBuilder::new(&map).pages(CAPTURE_PAGES).sample_cb(move |_, sample: &[u8]| {
            let head = abi::CapturedFrame::from_bytes(sample);
            let frame = head.and_then(|head| Some((head, sample.get(16..16 + head.bytes as usize)?)));
            if let Some((head, bytes)) = frame {
                each(head.at_ns, bytes);
            }
        });
        let buffer =
            buffer.build().map_err(|e| libbpf_error("xdp_receive: allocating capture buffers", e))?;
        Ok(CaptureBuffer { buffer })
    }

    /// The number of packets received, including duplicates.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn packets(&self) -> Result<u64, Error> {
        self.packets_of(0)
    }

    /// The number of packets of a stream received, including duplicates.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn packets_of(&self, stream: u32) -> Result<u64, Error> {
        Ok(self.totals(stream)?.iter().map(|total| total.packets).sum())
    }

    /// All counters, summed over CPUs and flows.
    ///
    /// # Errors
    /// If the maps cannot be read.
    pub fn received(&self) -> Result<Received, Error> {
        self.received_of(0, &self.arrivals()?)
    }

    /// All counters of a stream, summed over CPUs and its flows, whose arrivals are given.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn received_of(&self, stream: u32, arrivals: &[Arrival]) -> Result<Received, Error> {
        let mut sum = Received::default();
        let totals = self.totals(stream)?;
        for total in &totals {
            sum.packets += total.packets;
            sum.bytes += total.bytes;
            sum.others += total.others;
            sum.last_ns = sum.last_ns.max(total.last_ns);
        }
        sum.latency = Histogram::of_cpus(totals.iter().map(|total| &total.latency));
        sum.jitter = Histogram::of_cpus(totals.iter().map(|total| &total.jitter));
        let mut jitter = 0.0;
        for arrival in arrivals.iter().filter(|arrival| arrival.packets > 0) {
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

    /// The arrivals of each flow; zeros for a flow without packets.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn arrivals(&self) -> Result<Vec<Arrival>, Error> {
        let mut arrivals = vec![Arrival::default(); self.flows as usize];
        let map = map(&self.object, "arrivals")?;
        let batch = map
            .lookup_batch(4096, MapFlags::ANY, MapFlags::ANY)
            .map_err(|e| libbpf_error("xdp_receive: reading the flows", e))?;
        for (key, value) in batch {
            let flow = key.try_into().ok().map(u32::from_ne_bytes);
            let place = flow.and_then(|flow| arrivals.get_mut(flow as usize));
            if let Some((place, arrival)) = place.zip(Arrival::from_bytes(&value))
                && arrival.label == self.label
            {
                *place = arrival;
            }
        }
        Ok(arrivals)
    }

    fn totals(&self, stream: u32) -> Result<Vec<abi::Received>, Error> {
        let doing = |e| libbpf_error("xdp_receive: reading the counters", e);
        let values = map(&self.object, "totals")?.lookup_percpu(&stream.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(doing)?.unwrap_or_default();
        Ok(values.iter().filter_map(|value| abi::Received::from_bytes(value)).collect())
    }
}

impl CaptureBuffer<'_> {
    /// Passes on the captured frames. If there are none, waits up to `timeout` for the first.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn poll(&self, timeout: Duration) -> Result<(), Error> {
        self.buffer.poll(timeout).map_err(|e| libbpf_error("xdp_receive: reading captured frames", e))
    }

    /// Passes on all captured frames without waiting.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn consume(&self) -> Result<(), Error> {
        self.buffer.consume().map_err(|e| libbpf_error("xdp_receive: reading captured frames", e))
    }
}

impl fmt::Debug for CaptureBuffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureBuffer").finish_non_exhaustive()
    }
}

fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>, Error> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| missing(name))
}

/// Whether Linux needs frames of this kind, too: ARP, and ICMPv6 neighbour and router discovery.
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
        let mut counts = vec![0; LATENCY_BUCKETS as usize];
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

    /// The sum of two histograms.
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

    /// The time that this share of values did not exceed, to within 0.8 %. None if the histogram is empty.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let all: u64 = self.buckets.iter().map(|(_, count)| count).sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut passed = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            passed += count;
            passed >= rank
        });
        // The middle of a bucket may lie outside the range of its values.
        bucket.map(|(middle, _)| (*middle).clamp(self.min_ns.unwrap_or(0), self.max_ns.unwrap_or(u64::MAX)))
    }
}
