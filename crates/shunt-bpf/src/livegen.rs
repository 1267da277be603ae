//! Traffic for the bench: a generator of live XDP frames, a sink that counts, and the bare redirect that Shunt is
//! compared with.
//!
//! Interface indexes mean what they mean in the network namespace of the calling thread, so construct, attach and run
//! these on a thread that is inside the right one.

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject};
use nix::libc;
use shunt_wire::{Checksum, Mac, Packet, Sum};
use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

/// What one call into the kernel sends: some tens of milliseconds at most, so that signals and deadlines are seen.
const RUN_PACKETS: u32 = 65_536;
/// Frames that the kernel builds before it hands them on, unless told otherwise: a NAPI budget.
const BATCH: u32 = 64;
/// The most that the kernel allows.
const BATCH_MAX: u32 = 256;

/// The UDP flows that a [`Generator`] sends, one packet each in turn.
///
/// There are `lows` flows for each of `highs` near addresses: flow (high, low) is between address `near + high`, port
/// `near + low` and address `far`, port `far + high`. So no two flows of different near addresses ask a masquerade for
/// the same port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flows {
    /// The first near address and port.
    pub near: SocketAddr,
    /// The far address and the first far port.
    pub far: SocketAddr,
    /// Near ports.
    pub lows: u16,
    /// Near addresses, and far ports.
    pub highs: u16,
    /// All near sides have the first near address. For answers to a masquerade.
    pub near_fixed: bool,
    /// The far side sends.
    pub reply: bool,
    /// The sender's MAC address.
    pub source_mac: Mac,
    /// The next hop's MAC address.
    pub destination_mac: Mac,
    /// Size of a frame, without FCS.
    pub frame_bytes: usize,
    /// Whether UDP has a checksum.
    pub udp_checksum: bool,
}

/// Sends frames out of one interface as fast as one CPU can, with `BPF_F_TEST_XDP_LIVE_FRAMES`.
///
/// Frames that find the ring of a veth full are lost without a trace: count them where they arrive.
#[derive(Debug)]
pub struct Generator {
    object: Object,
    frame: Vec<u8>,
    batch: u32,
}

/// Counts the UDP packets that come in on an interface, and drops them.
#[derive(Debug)]
pub struct Sink {
    object: Object,
    _link: Link,
}

/// Redirects everything from one interface to another, unread.
#[derive(Debug)]
pub struct BareRedirect {
    _object: Object,
    _link: Link,
}

/// What a [`Sink`] has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames without FCS.
    pub bytes: u64,
}

/// What could not be done, and why.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {cause}")]
pub struct Error {
    doing: String,
    #[source]
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Libbpf(#[from] libbpf_rs::Error),
    #[error(transparent)]
    Kernel(#[from] io::Error),
}

impl Flows {
    /// How many flows there are.
    pub fn count(&self) -> u64 {
        u64::from(self.lows) * u64::from(self.highs)
    }

    /// The first packet's headers, as flow (0, 0) would have them.
    fn packet(&self) -> Packet {
        let (source, destination) = if self.reply { (self.far, self.near) } else { (self.near, self.far) };
        Packet::udp_between(source, destination)
            .macs(self.source_mac, self.destination_mac)
            .frame_bytes(self.frame_bytes)
    }

    /// `struct gen_plan` of bpf/prog/xdp_gen.bpf.c.
    fn plan(&self, out_ifindex: u32) -> [u8; 96] {
        let unsummed =
            self.packet().with_l4_checksum(Checksum::Zero).with_header_checksum(Checksum::Zero).to_bytes();
        let (header_bytes, l4_at) = if self.near.is_ipv4() { (42, 34) } else { (62, 54) };
        let addresses = if self.near.is_ipv4() { 26..34 } else { 22..54 };
        let udp_length = (unsummed.len() - l4_at) as u16;
        let udp_sum =
            Sum::new().bytes(&unsummed[addresses]).word(17).word(udp_length).bytes(&unsummed[l4_at..]);
        let ip_sum = Sum::new().bytes(&unsummed[14..34]);

        let mut plan = [0; 96];
        plan[..header_bytes].copy_from_slice(&unsummed[..header_bytes]);
        let words = [
            out_ifindex,
            self.lows.into(),
            self.highs.into(),
            ip_sum.folded().into(),
            if self.udp_checksum { udp_sum.folded().into() } else { 0 },
        ];
        let halves = [low_half(self.near.ip()), self.near.port(), self.far.port()];
        let bytes =
            [if self.near.is_ipv4() { 4 } else { 6 }, u8::from(self.reply), u8::from(self.near_fixed)];
        let tail = words.iter().flat_map(|w| w.to_ne_bytes());
        let tail = tail.chain(halves.iter().flat_map(|h| h.to_ne_bytes())).chain(bytes);
        plan[64..].iter_mut().zip(tail).for_each(|(to, from)| *to = from);
        plan
    }
}

impl Generator {
    /// A generator of `flows` out of the interface `out_ifindex`.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    ///
    /// # Panics
    /// When addresses or ports would pass 65,535, or the frame is too small for its headers.
    pub fn new(flows: &Flows, out_ifindex: u32) -> Result<Self, Error> {
        let room = u16::MAX - flows.highs;
        assert!(flows.lows > 0 && flows.highs > 0, "no flows");
        assert!(low_half(flows.near.ip()) <= room && flows.far.port() <= room, "too many addresses");
        assert!(flows.near.port() <= u16::MAX - flows.lows, "too many ports");
        let mut open = open("xdp_gen", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_gen.o")))?;
        set_rodata(&mut open, &flows.plan(out_ifindex));
        let object = load("xdp_gen", open)?;
        Ok(Self { object, frame: flows.packet().to_bytes(), batch: BATCH })
    }

    /// Has the kernel build this many frames, up to 256, before it hands them on and lets others run.
    pub fn set_batch(&mut self, frames: u32) {
        self.batch = frames.clamp(1, BATCH_MAX);
    }

    /// Sends this many packets. The next run goes on with the next flow.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn run(&mut self, packets: u64) -> Result<(), Error> {
        let mut left = packets;
        while left > 0 {
            let now = left.min(RUN_PACKETS.into()) as u32;
            self.run_once(now)?;
            left -= u64::from(now);
        }
        Ok(())
    }

    /// Sends for about this long; how many packets were sent.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn run_for(&mut self, duration: Duration) -> Result<u64, Error> {
        let end = Instant::now() + duration;
        let mut sent = 0;
        while Instant::now() < end {
            self.run_once(RUN_PACKETS)?;
            sent += u64::from(RUN_PACKETS);
        }
        Ok(sent)
    }

    fn run_once(&mut self, packets: u32) -> Result<(), Error> {
        let doing = || format!("sending {packets} live frames");
        let program = self.object.progs().next().ok_or_else(|| no_program("xdp_gen"))?;
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: self.frame.as_ptr().cast(),
            data_size_in: self.frame.len() as u32,
            repeat: packets as i32,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: self.batch,
            ..Default::default()
        };
        // SAFETY: the descriptor is open as long as the object is, `data_in` is readable for `data_size_in` bytes, no
        // output is asked for, and libbpf reads no more than `sz` bytes of the options.
        let said = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &mut options) };
        if said == 0 {
            return Ok(());
        }
        let cause = io::Error::from_raw_os_error(-said);
        Err(Error { doing: doing(), cause: cause.into() })
    }
}

impl Sink {
    /// Attaches to an interface, in the driver.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the interface has another one.
    pub fn attach(ifindex: u32) -> Result<Self, Error> {
        let open = open("xdp_sink", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_sink.o")))?;
        let object = load("xdp_sink", open)?;
        let link = attach("xdp_sink", &object, ifindex)?;
        Ok(Self { object, _link: link })
    }

    /// What has come in since it was attached.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn count(&self) -> Result<Count, Error> {
        let doing = |e: libbpf_rs::Error| told("xdp_sink: reading the counters", e);
        let mut count = Count::default();
        let Some(map) = self.object.maps().find(|map| map.name() == "sink_counts") else { return Ok(count) };
        let values = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(doing)?;
        for value in values.unwrap_or_default() {
            let word = |at: usize| {
                value.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
            };
            count.packets += word(0);
            count.bytes += word(8);
        }
        Ok(count)
    }
}

impl BareRedirect {
    /// Attaches to `in_ifindex`, in the driver, and redirects to `out_ifindex`. A veth takes redirected frames only when
    /// its peer has NAPI: an XDP program or GRO.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the interface has another one.
    pub fn attach(in_ifindex: u32, out_ifindex: u32) -> Result<Self, Error> {
        let mut open = open("xdp_bare", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_bare.o")))?;
        set_rodata(&mut open, &out_ifindex.to_ne_bytes());
        let object = load("xdp_bare", open)?;
        let link = attach("xdp_bare", &object, in_ifindex)?;
        Ok(Self { _object: object, _link: link })
    }
}

fn open(name: &str, bytes: &[u8]) -> Result<OpenObject, Error> {
    // ELF readers want the alignment that an allocation has and an included file has not.
    let aligned = bytes.to_vec();
    let opened = ObjectBuilder::default().name(name).and_then(|builder| builder.open_memory(&aligned));
    opened.map_err(|e| told(format!("{name}: opening the object"), e))
}

fn set_rodata(open: &mut OpenObject, value: &[u8]) {
    for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata")) {
        if let Some(bytes) = map.initial_value_mut() {
            bytes[..value.len()].copy_from_slice(value);
        }
    }
}

fn load(name: &str, open: OpenObject) -> Result<Object, Error> {
    open.load().map_err(|e| told(format!("{name}: loading"), e))
}

fn attach(name: &str, object: &Object, ifindex: u32) -> Result<Link, Error> {
    let program = object.progs_mut().next().ok_or_else(|| no_program(name))?;
    program
        .attach_xdp(ifindex as i32)
        .map_err(|e| told(format!("{name}: attaching to interface {ifindex}"), e))
}

fn no_program(name: &str) -> Error {
    let cause = io::Error::from_raw_os_error(libc::ENOENT);
    Error { doing: format!("{name}: finding the program"), cause: cause.into() }
}

fn told(doing: impl fmt::Display, cause: libbpf_rs::Error) -> Error {
    Error { doing: doing.to_string(), cause: cause.into() }
}

fn low_half(ip: IpAddr) -> u16 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip) as u16,
        IpAddr::V6(ip) => ip.segments()[7],
    }
}
