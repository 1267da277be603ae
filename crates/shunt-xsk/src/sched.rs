//! The egress scheduler and the ingress policer.

use crate::{Error, fixed::Fixed, mirror::mirror};
use shunt_bpf::plain;

/// Classes of a scheduler.
pub const CLASSES: usize = 16;
/// Values of the DSCP.
pub const DSCPS: usize = 64;
/// Rules that map marks to classes.
pub const MARK_RULES: usize = 16;
/// The smallest weight.
pub const QUANTUM_MIN: u32 = 256;
/// The largest weight.
pub const QUANTUM_MAX: u32 = 1 << 24;

plain! {
    pub(crate) struct Meter = "shunt_bucket_meter", 32; {
        bytes_per_s: u64,
        burst_ns: u64,
        due_ns: u64,
        rest: u64,
    }
}

plain! {
    pub(crate) struct CPolicer = "shunt_policer", 48; {
        meter: Meter,
        passed_pkts: u64,
        dropped_pkts: u64,
    }
}

plain! {
    /// A class: `struct shunt_class_config`.
    pub struct Class = "shunt_class_config", 20; {
        /// Priority; 0 is served first.
        pub priority: u32,
        /// Weight among the classes of one priority: bytes per round, from [`QUANTUM_MIN`] to [`QUANTUM_MAX`].
        pub quantum: u32,
        /// The most that the class may have queued.
        pub limit_bytes: u32,
        /// Delay that CoDel accepts; 0 turns CoDel off.
        pub target_us: u32,
        /// How long the delay may be above the target before CoDel drops packets.
        pub interval_us: u32,
    }
}

plain! {
    /// A class for packets with a mark: `struct shunt_mark_rule`.
    pub struct MarkRule = "shunt_mark_rule", 12; {
        /// The mark under the mask.
        pub mark: u32,
        /// 0 ends the rules.
        pub mask: u32,
        /// The class.
        pub class_id: u32,
    }
}

plain! {
    /// The configuration of a scheduler: `struct shunt_sched_config`.
    pub struct Config = "shunt_sched_config", 600; {
        /// The shaper's rate; 0 does not shape.
        pub bytes_per_s: u64,
        /// What may be sent at once after a pause.
        pub burst_bytes: u32,
        /// Added to the size of each packet by the shaper.
        pub overhead_bytes: i32,
        /// Number of classes, at most [`CLASSES`].
        pub classes: u32,
        /// The class of packets that no map names.
        pub default_class: u32,
        /// The classes.
        pub class_config: [Class; CLASSES],
        /// The first rule that matches a packet's mark decides.
        pub mark_rules: [MarkRule; MARK_RULES],
        /// Otherwise the DSCP does: number of the class plus one, or 0 for the default class.
        pub dscp_class: [u8; DSCPS],
    }
}

plain! {
    /// A queued packet: `struct shunt_queued`.
    pub struct Queued = "shunt_queued", 24; {
        /// The caller's number of the packet.
        pub handle: u64,
        /// When the packet was queued.
        pub since_ns: u64,
        /// Size of the frame.
        pub bytes: u32,
        next: u32,
    }
}

plain! {
    /// Counters of a class: `struct shunt_class_counters`. Bytes are those of frames.
    pub struct ClassCounters = "shunt_class_counters", 64; {
        /// Packets sent.
        pub sent_pkts: u64,
        /// Bytes sent.
        pub sent_bytes: u64,
        /// Packets dropped because the queue was full.
        pub dropped_full: u64,
        /// Packets dropped by CoDel.
        pub dropped_codel: u64,
        /// Sum of the delays of packets that were sent.
        pub delay_sum_ns: u64,
        /// The longest of these delays.
        pub delay_max_ns: u64,
        /// Bytes in the queue now.
        pub backlog_bytes: u64,
        /// Packets in the queue now.
        pub backlog_pkts: u64,
    }
}

plain! {
    pub(crate) struct ClassState = "shunt_class", 104; {
        counters: ClassCounters,
        above_since_ns: u64,
        drop_next_ns: u64,
        drops: u32,
        drops_before: u32,
        dropping: u32,
        head: u32,
        tail: u32,
        deficit: i32,
    }
}

mirror! {
    pub(crate) struct CSched = "shunt_sched"; {
        config: Config,
        meter: Meter,
        classes: [ClassState; CLASSES],
        turn: [u32; CLASSES],
        items: *mut Queued,
        items_max: u32,
        free: u32,
        largest_bytes: u32,
        own_items: u32,
    }
}

// SAFETY: the declarations are those of bpf/external/sched.h.
unsafe extern "C" {
    fn shunt_meter_set(meter: *mut Meter, bytes_per_s: u64, burst_bytes: u32);
    fn shunt_police(policer: *mut CPolicer, bytes: u32, now_ns: u64) -> i32;
    fn shunt_sched_init(s: *mut CSched, config: *const Config, items: *mut Queued, items_max: u32);
    fn shunt_sched_configure(s: *mut CSched, config: *const Config) -> i32;
    fn shunt_sched_enqueue(s: *mut CSched, handle: u64, bytes: u32, dscp: u8, mark: u32, now_ns: u64) -> i32;
    fn shunt_sched_dequeue(s: *mut CSched, now_ns: u64, item: *mut Queued) -> u32;
    fn shunt_sched_wake_ns(s: *const CSched) -> u64;
}

/// What a scheduler gives when it is asked for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing is queued.
    Empty,
    /// The shaper lets nothing go before this time.
    Wait(u64),
    /// To be sent now.
    Send(Queued),
    /// Dropped by CoDel; another packet may follow.
    Dropped(Queued),
}

impl Config {
    /// One class without a shaper, whose queue holds this many bytes.
    pub fn best_effort(limit_bytes: u32) -> Self {
        let mut config = Self { classes: 1, ..Self::default() };
        config.class_config[0] = Class { quantum: 1514, limit_bytes, ..Class::default() };
        config
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |what| Err(Error::Scheduler(what));
        let classes = self.classes as usize;
        if classes == 0 || classes > CLASSES {
            return wrong("a scheduler has 1 to 16 classes");
        }
        if self.default_class >= self.classes {
            return wrong("the default class does not exist");
        }
        let classes = &self.class_config[..classes];
        if classes.iter().any(|class| class.priority as usize >= CLASSES) {
            return wrong("a priority is greater than 15");
        }
        if classes.iter().any(|class| !(QUANTUM_MIN..=QUANTUM_MAX).contains(&class.quantum)) {
            return wrong("a quantum is not between 256 bytes and 16 MiB");
        }
        let rules = self.mark_rules.iter().take_while(|rule| rule.mask != 0);
        if rules.into_iter().any(|rule| rule.class_id >= self.classes) {
            return wrong("a mark is mapped to a class that does not exist");
        }
        if self.dscp_class.iter().any(|class| u32::from(*class) > self.classes) {
            return wrong("a DSCP is mapped to a class that does not exist");
        }
        Ok(())
    }
}

/// The scheduler of an egress port.
#[derive(Debug)]
pub struct Scheduler {
    inner: Fixed<CSched>,
    _items: Fixed<[Queued]>,
}

// SAFETY: the pointer in `inner` is to `_items`, which nothing else uses.
unsafe impl Send for Scheduler {}

impl Scheduler {
    /// A scheduler with room for `packets` packets of all classes together.
    ///
    /// # Errors
    /// [`Error::Scheduler`] names what is wrong with the configuration.
    pub fn new(config: &Config, packets: u32) -> Result<Self, Error> {
        config.check()?;
        let items = Fixed::<[Queued]>::new(vec![Queued::default(); packets as usize]);
        let inner = Fixed::new(CSched {
            config: *config,
            meter: Meter::default(),
            classes: [ClassState::default(); CLASSES],
            turn: [0; CLASSES],
            items: items.as_ptr().cast(),
            items_max: packets,
            free: 0,
            largest_bytes: 0,
            own_items: 0,
        });
        // SAFETY: `items` has room for so many packets and is kept with the scheduler.
        unsafe { shunt_sched_init(inner.as_ptr(), config, items.as_ptr().cast(), packets) };
        Ok(Self { inner, _items: items })
    }

    /// Changes the configuration; queued packets stay queued.
    ///
    /// # Errors
    /// [`Error::Scheduler`] names what is wrong; the scheduler is unchanged.
    pub fn configure(&mut self, config: &Config) -> Result<(), Error> {
        config.check()?;
        // SAFETY: the scheduler was initialised.
        match unsafe { shunt_sched_configure(self.inner.as_ptr(), config) } {
            0 => Ok(()),
            _ => Err(Error::Scheduler("the engine refuses the configuration")),
        }
    }

    /// Queues a packet. Returns false if there is no room for it.
    pub fn enqueue(&mut self, handle: u64, bytes: u32, dscp: u8, mark: u32, now_ns: u64) -> bool {
        // SAFETY: the scheduler was initialised.
        unsafe { shunt_sched_enqueue(self.inner.as_ptr(), handle, bytes, dscp, mark, now_ns) == 1 }
    }

    /// Takes the next packet.
    pub fn dequeue(&mut self, now_ns: u64) -> Next {
        let mut item = Queued::default();
        // SAFETY: the scheduler was initialised.
        match unsafe { shunt_sched_dequeue(self.inner.as_ptr(), now_ns, &raw mut item) } {
            0 => Next::Empty,
            // SAFETY: as above.
            1 => Next::Wait(unsafe { shunt_sched_wake_ns(self.inner.as_ptr()) }),
            2 => Next::Send(item),
            _ => Next::Dropped(item),
        }
    }

    /// When the shaper lets the next packet go; `None` if no packet is queued.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let queued = self.inner.classes.iter().any(|class| class.counters.backlog_pkts > 0);
        // SAFETY: the scheduler was initialised.
        queued.then(|| unsafe { shunt_sched_wake_ns(self.inner.as_ptr()) })
    }

    /// Sends what is queued as fast as the port takes it.
    pub(crate) fn unshape(&mut self) -> Result<(), Error> {
        let config = Config { bytes_per_s: 0, ..self.inner.config };
        self.configure(&config)
    }

    /// Counters of all classes.
    pub(crate) fn all_counters(&self) -> Vec<ClassCounters> {
        self.inner
            .classes
            .iter()
            .take(self.inner.config.classes as usize)
            .map(|class| class.counters)
            .collect()
    }

    /// Counters of a class.
    pub fn counters(&self, class: usize) -> ClassCounters {
        self.inner.classes[class].counters
    }

    pub(crate) fn inner(&mut self) -> *mut CSched {
        self.inner.as_ptr()
    }
}

/// Drops what exceeds a rate.
#[derive(Debug)]
pub struct Policer(Fixed<CPolicer>);

impl Policer {
    /// A policer that passes at most `burst_bytes` at once, and this rate in the long run.
    pub fn new(bytes_per_s: u64, burst_bytes: u32) -> Self {
        let mut policer = Self(Fixed::new(CPolicer::default()));
        policer.set(bytes_per_s, burst_bytes);
        policer
    }

    /// Changes rate and burst. What has passed before still counts.
    pub fn set(&mut self, bytes_per_s: u64, burst_bytes: u32) {
        // SAFETY: writes one structure.
        unsafe { shunt_meter_set(&raw mut (*self.0.as_ptr()).meter, bytes_per_s, burst_bytes) };
    }

    /// Whether a packet conforms.
    pub fn passes(&mut self, bytes: u32, now_ns: u64) -> bool {
        // SAFETY: changes one structure.
        unsafe { shunt_police(self.0.as_ptr(), bytes, now_ns) == 1 }
    }

    /// Packets passed, and packets dropped.
    pub fn counts(&self) -> (u64, u64) {
        (self.0.passed_pkts, self.0.dropped_pkts)
    }

    pub(crate) fn inner(&mut self) -> *mut CPolicer {
        self.0.as_ptr()
    }
}

#[cfg(test)]
mod tests;
