//! The egress scheduler and the ingress policer.

pub use crate::abi::{ClassConfig, ClassCounters, MarkRule, QUANTUM_MAX, QUANTUM_MIN, Queued, SchedConfig};
use crate::{Error, abi, fixed::Fixed};

/// Classes of a scheduler.
pub const CLASSES: usize = abi::CLASSES as usize;
/// Values of the DSCP.
pub const DSCPS: usize = abi::DSCPS as usize;
/// Rules that map marks to classes.
pub const MARK_RULES: usize = abi::MARK_RULES as usize;

// SAFETY: the declarations are those of bpf/external/sched.h.
unsafe extern "C" {
    fn shunt_meter_set(meter: *mut abi::BucketMeter, bytes_per_s: u64, burst_bytes: u32);
    fn shunt_police(policer: *mut abi::Policer, bytes: u32, now_ns: u64) -> i32;
    fn shunt_sched_init(s: *mut abi::Sched, config: *const SchedConfig, items: *mut Queued, items_max: u32);
    fn shunt_sched_configure(s: *mut abi::Sched, config: *const SchedConfig) -> i32;
    fn shunt_sched_enqueue(
        s: *mut abi::Sched,
        handle: u64,
        bytes: u32,
        dscp: u8,
        mark: u32,
        now_ns: u64,
    ) -> i32;
    fn shunt_sched_dequeue(s: *mut abi::Sched, now_ns: u64, item: *mut Queued) -> u32;
    fn shunt_sched_wake_ns(s: *const abi::Sched) -> u64;
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

impl SchedConfig {
    /// One class without a shaper, whose queue holds this many bytes.
    pub fn best_effort(limit_bytes: u32) -> Self {
        let mut config = Self { classes: 1, ..Self::default() };
        config.class_config[0] = ClassConfig { quantum: 1514, limit_bytes, ..ClassConfig::default() };
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
    inner: Fixed<abi::Sched>,
    _items: Fixed<[Queued]>,
}

// SAFETY: the pointer in `inner` is to `_items`, which nothing else uses.
unsafe impl Send for Scheduler {}

impl Scheduler {
    /// A scheduler with room for `packets` packets of all classes together.
    ///
    /// # Errors
    /// [`Error::Scheduler`] names what is wrong with the configuration.
    pub fn new(config: &SchedConfig, packets: u32) -> Result<Self, Error> {
        config.check()?;
        let items = Fixed::<[Queued]>::new(vec![Queued::default(); packets as usize]);
        let inner = Fixed::new(abi::Sched {
            config: *config,
            meter: abi::BucketMeter::default(),
            classes: [abi::Class::default(); CLASSES],
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
    pub fn configure(&mut self, config: &SchedConfig) -> Result<(), Error> {
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
            abi::SCHED_EMPTY => Next::Empty,
            // SAFETY: as above.
            abi::SCHED_WAIT => Next::Wait(unsafe { shunt_sched_wake_ns(self.inner.as_ptr()) }),
            abi::SCHED_SENT => Next::Send(item),
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
        let config = SchedConfig { bytes_per_s: 0, ..self.inner.config };
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

    pub(crate) fn inner(&mut self) -> *mut abi::Sched {
        self.inner.as_ptr()
    }
}

/// Drops what exceeds a rate.
#[derive(Debug)]
pub struct Policer(Fixed<abi::Policer>);

impl Policer {
    /// A policer that passes at most `burst_bytes` at once, and this rate in the long run.
    pub fn new(bytes_per_s: u64, burst_bytes: u32) -> Self {
        let mut policer = Self(Fixed::new(abi::Policer::default()));
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

    pub(crate) fn inner(&mut self) -> *mut abi::Policer {
        self.0.as_ptr()
    }
}

#[cfg(test)]
mod tests;
