//! A sink that counts, a host that answers, a bare redirect, and one with a look-up.

use crate::{Error, libbpf_error, load, missing, open, set_entries, set_rodata};
use libbpf_rs::{Link, MapCore, MapFlags, Object};

/// Slots of 4 bytes in the index of a [`LookupRedirect`] for each source: as much memory as the flow table's index.
const LOOKUP_SLOTS: u32 = 4;

/// Counts and drops the UDP packets that an interface receives.
#[derive(Debug)]
pub struct Sink {
    object: Object,
    _link: Link,
}

/// Returns each UDP packet that an interface receives to its sender, and answers the first segment of a TCP handshake.
#[derive(Debug)]
pub struct Reflector {
    object: Object,
    _link: Link,
}

/// Redirects all frames from one interface to another without reading them.
#[derive(Debug)]
pub struct BareRedirect {
    _object: Object,
    _link: Link,
}

/// Redirects IPv4 packets from one interface to another, after a look-up of the source in a table with an entry of 128
/// bytes for each.
#[derive(Debug)]
pub struct LookupRedirect {
    _object: Object,
    _link: Link,
}

/// The packets that a [`Sink`] received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of frames, without FCS.
    pub bytes: u64,
}

impl Sink {
    /// Attaches to an interface, in the driver.
    ///
    /// # Errors
    /// If the kernel refuses the program, or the interface has another XDP program.
    pub fn attach(ifindex: u32) -> Result<Self, Error> {
        let open = open("xdp_sink", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_sink.o")))?;
        let object = load("xdp_sink", open)?;
        let link = attach("xdp_sink", &object, ifindex)?;
        Ok(Self { object, _link: link })
    }

    /// The packets received since the sink was attached.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn count(&self) -> Result<Count, Error> {
        let [packets, bytes] = sum_counters(&self.object, "xdp_sink", "sink_counts")?;
        Ok(Count { packets, bytes })
    }
}

/// The first words of a map's only element, summed over the CPUs.
pub(crate) fn sum_counters<const N: usize>(
    object: &Object,
    name: &str,
    map: &str,
) -> Result<[u64; N], Error> {
    let doing = |e: libbpf_rs::Error| libbpf_error(format!("{name}: reading the counters"), e);
    let mut sums = [0; N];
    let Some(map) = object.maps().find(|found| found.name() == map) else { return Ok(sums) };
    let values = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(doing)?;
    for value in values.unwrap_or_default() {
        let words = value.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += word);
    }
    Ok(sums)
}

impl Reflector {
    /// Attaches to an interface, in the driver. A veth sends redirected frames only if its peer has NAPI, by an XDP
    /// program or GRO.
    ///
    /// # Errors
    /// If the kernel refuses the program, or the interface has another XDP program.
    pub fn attach(ifindex: u32) -> Result<Self, Error> {
        let open = open("xdp_reflect", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_reflect.o")))?;
        let object = load("xdp_reflect", open)?;
        let link = attach("xdp_reflect", &object, ifindex)?;
        Ok(Self { object, _link: link })
    }

    /// The number of TCP segments received that get no answer: the last segments of handshakes.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn unanswered(&self) -> Result<u64, Error> {
        let [segments] = sum_counters(&self.object, "xdp_reflect", "unanswered")?;
        Ok(segments)
    }
}

impl BareRedirect {
    /// Attaches to `in_ifindex`, in the driver, and redirects to `out_ifindex`. A veth accepts redirected frames only
    /// if its peer has NAPI, by an XDP program or GRO.
    ///
    /// # Errors
    /// If the kernel refuses the program, or the interface has another XDP program.
    pub fn attach(in_ifindex: u32, out_ifindex: u32) -> Result<Self, Error> {
        let mut open = open("xdp_bare", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_bare.o")))?;
        set_rodata(&mut open, &out_ifindex.to_ne_bytes());
        let object = load("xdp_bare", open)?;
        let link = attach("xdp_bare", &object, in_ifindex)?;
        Ok(Self { _object: object, _link: link })
    }
}

impl LookupRedirect {
    /// Memory for each source that there is room for: the entry, and its part of the index.
    pub const BYTES_PER_SOURCE: f64 = 128.0 + 4.0 * LOOKUP_SLOTS as f64;

    /// Attaches as [`BareRedirect::attach`] does. The table has room for `sources` sources, and learns each from its
    /// first packet. Each packet also takes `rounds` of work without memory, of seven instructions each.
    ///
    /// # Errors
    /// If the kernel refuses the program or the size, or the interface has another XDP program.
    pub fn attach(in_ifindex: u32, out_ifindex: u32, sources: u32, rounds: u32) -> Result<Self, Error> {
        let name = "xdp_lookup";
        let mut open = open(name, include_bytes!(concat!(env!("OUT_DIR"), "/xdp_lookup.o")))?;
        let slots = sources.saturating_mul(LOOKUP_SLOTS).next_power_of_two();
        set_rodata(&mut open, [out_ifindex, slots - 1, rounds].map(u32::to_ne_bytes).as_flattened());
        set_entries(&mut open, "lookup_index", slots)?;
        set_entries(&mut open, "lookup_table", sources.saturating_add(1))?;
        let object = load(name, open)?;
        let link = attach(name, &object, in_ifindex)?;
        Ok(Self { _object: object, _link: link })
    }
}

pub(crate) fn attach(name: &str, object: &Object, ifindex: u32) -> Result<Link, Error> {
    let program = object.progs_mut().next().ok_or_else(|| missing(name))?;
    program
        .attach_xdp(ifindex as i32)
        .map_err(|e| libbpf_error(format!("{name}: attaching to interface {ifindex}"), e))
}
