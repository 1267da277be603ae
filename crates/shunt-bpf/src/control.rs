//! The control block: settings of the daemon that the programs read.

use crate::{Error, abi, epochs::Epochs, shared::Shared};
use std::{
    io,
    mem::offset_of,
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// A mark and its mask, as in nftables. A mask of 0 matches nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Masked {
    /// The value of the bits in `mask`.
    pub value: u32,
    /// The bits to compare.
    pub mask: u32,
}

/// The control block, mapped into memory.
pub struct ControlBlock {
    page: Arc<Shared<abi::Control>>,
    epochs: Epochs,
    ticks_per_s: u32,
}

impl ControlBlock {
    /// Maps the memory of the control map and of the groups, and writes the ABI version and HZ.
    ///
    /// # Errors
    /// If the map cannot be mapped, or the clock's resolution cannot be read.
    pub fn map(control: impl AsFd, groups: impl AsFd) -> Result<Self, Error> {
        let page = Arc::new(Shared::map(control)?);
        let epochs = Epochs::map(page.clone(), groups)?;
        let block = Self { page, epochs, ticks_per_s: ticks_per_s()? };
        block.page.u32(offset_of!(abi::Control, ticks_per_s)).store(block.ticks_per_s, Ordering::Relaxed);
        block.page.u32(offset_of!(abi::Control, abi)).store(abi::ABI_VERSION, Ordering::Relaxed);
        Ok(block)
    }

    /// The current epoch.
    pub fn epoch(&self) -> u32 {
        self.epochs.epoch()
    }

    /// What tells whether a flow's action is current, for this or another thread.
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// How often a bridge's stations changed and ended flows.
    pub fn station_moves(&self) -> u32 {
        self.page.u32(offset_of!(abi::Control, station_moves)).load(Ordering::Relaxed)
    }

    /// Moves the epoch: every action learned until now is stale. The programs do the same in `changes.bpf.c`.
    pub fn move_epoch(&self) {
        // The epoch is odd, and so never that of retired actions.
        self.page.u32(offset_of!(abi::Control, epoch)).fetch_add(2, Ordering::SeqCst);
    }

    /// Sets the epoch, which must be odd.
    pub fn set_epoch(&self, epoch: u32) {
        self.page.u32(offset_of!(abi::Control, epoch)).store(epoch, Ordering::SeqCst);
    }

    /// Sets the age at which a heartbeat is too old.
    pub fn set_heartbeat_max(&self, max: Duration) {
        self.page
            .u32(offset_of!(abi::Control, heartbeat_max_ticks))
            .store(self.ticks(max), Ordering::Relaxed);
    }

    /// Sets the interval between proofs of a flow, and how long a proof lasts.
    pub fn set_proof(&self, every: Duration, lasts: Duration) {
        self.page.u32(offset_of!(abi::Control, reprove_ticks)).store(self.ticks(every), Ordering::Relaxed);
        self.page.u32(offset_of!(abi::Control, prove_ticks)).store(self.ticks(lasts), Ordering::Relaxed);
    }

    /// A duration in ticks, at most half of the clock's range.
    pub fn ticks(&self, span: Duration) -> u32 {
        let ticks = span.as_nanos() * u128::from(self.ticks_per_s) / 1_000_000_000;
        u32::try_from(ticks).unwrap_or(u32::MAX).min(u32::MAX / 2)
    }

    /// The duration of a number of ticks.
    pub fn span(&self, ticks: u32) -> Duration {
        Duration::from_secs(1) * ticks / self.ticks_per_s
    }

    /// Sets the size of the flow tables and the seed of their hash. To be called before the first flow.
    pub fn set_tables(&self, bucket_mask: u32, max_flows: u32, seed: u64) {
        self.page.u32(offset_of!(abi::Control, bucket_mask)).store(bucket_mask, Ordering::Relaxed);
        self.page.u32(offset_of!(abi::Control, max_flows)).store(max_flows, Ordering::Relaxed);
        self.page.u64(offset_of!(abi::Control, seed)).store(seed, Ordering::Relaxed);
    }

    /// Sets the size of the filter of dependencies, a power of two. To be called before the first flow.
    pub fn set_mark_lines(&self, lines: u32) {
        self.page.u32(offset_of!(abi::Control, mark_mask)).store(lines - 1, Ordering::Relaxed);
    }

    /// The count of changes that may make the lists of sets and of the path untrue, for another thread.
    pub fn rule_changes(&self) -> RuleChanges {
        RuleChanges(self.page.clone())
    }

    /// Sets the count at which the rules were read that describe the sets in use.
    pub(crate) fn set_sets_at(&self, count: u32) {
        self.page.u32(offset_of!(abi::Control, sets_at)).store(count, Ordering::SeqCst);
    }

    /// Sets the count at which the rules were read that tell what forwarded packets may meet; `None` if nothing does.
    pub(crate) fn set_path_at(&self, count: Option<u32>) {
        let next = count.map_or(0, |count| count.wrapping_add(1));
        self.page.u32(offset_of!(abi::Control, path_at)).store(next, Ordering::SeqCst);
    }

    /// Sets from which packet of a direction on to learn, and the flags `CONTROL_LEARN` and `CONTROL_UDP_UNREPLIED`.
    pub fn set_learning(&self, udp_pkts: u32, tcp_pkts: u32, flags: u32) {
        self.page.u32(offset_of!(abi::Control, learn_udp_pkts)).store(udp_pkts, Ordering::Relaxed);
        self.page.u32(offset_of!(abi::Control, learn_tcp_pkts)).store(tcp_pkts, Ordering::Relaxed);
        self.set_flags(abi::CONTROL_LEARN | abi::CONTROL_UDP_UNREPLIED, flags);
    }

    /// Holds learning of some traffic: flags of [`abi::CONTROL_HOLD`].
    pub fn set_hold(&self, flags: u32) {
        self.set_flags(abi::CONTROL_HOLD, flags);
    }

    /// Whether the table has had static flows.
    pub fn has_statics(&self) -> bool {
        let flags = self.page.u32(offset_of!(abi::Control, flags)).load(Ordering::Relaxed);
        flags & abi::CONTROL_STATICS != 0
    }

    /// The flags of [`abi::CONTROL_HOLD`] that are set.
    pub fn held(&self) -> u32 {
        self.page.u32(offset_of!(abi::Control, flags)).load(Ordering::Relaxed) & abi::CONTROL_HOLD
    }

    /// Sets the marks of packets and of connections that teach nothing.
    pub fn set_exclusions(&self, mark: Masked, ct_mark: Masked) {
        self.page.u32(offset_of!(abi::Control, exclude_mark)).store(mark.value, Ordering::Relaxed);
        self.page.u32(offset_of!(abi::Control, exclude_mark_mask)).store(mark.mask, Ordering::Relaxed);
        self.page.u32(offset_of!(abi::Control, exclude_ct_mark)).store(ct_mark.value, Ordering::Relaxed);
        self.page.u32(offset_of!(abi::Control, exclude_ct_mark_mask)).store(ct_mark.mask, Ordering::Relaxed);
    }

    /// Sets how many rules of `shunt off` there are. The rules are in their map by then.
    pub(crate) fn set_off_rules(&self, count: u32) {
        self.page.u32(offset_of!(abi::Control, off_rules)).store(count, Ordering::SeqCst);
    }

    /// Sets the inode number of the ports' network namespace.
    pub fn set_netns(&self, inode: u32) {
        self.page.u32(offset_of!(abi::Control, netns)).store(inode, Ordering::Relaxed);
    }

    /// Sets which L4 checksums are verified (`CONTROL_VERIFY_*`).
    pub fn set_verification(&self, flags: u32) {
        self.set_flags(abi::CONTROL_VERIFY_TC | abi::CONTROL_VERIFY_XDP | abi::CONTROL_VERIFY_LONG, flags);
    }

    /// Begins or ends a survey of the packets that ports receive.
    pub fn set_survey(&self, on: bool) {
        self.set_flags(abi::CONTROL_SURVEY, if on { abi::CONTROL_SURVEY } else { 0 });
    }

    /// Begins or ends a rest: candidates are kept only outside of it.
    pub fn set_rest(&self, on: bool) {
        self.set_flags(abi::CONTROL_REST, if on { abi::CONTROL_REST } else { 0 });
    }

    /// Turns traces on or off.
    pub fn set_tracing(&self, on: bool) {
        self.set_flags(abi::CONTROL_TRACE, if on { abi::CONTROL_TRACE } else { 0 });
    }

    /// Says whether somebody reads the final counters of flows ([`crate::DataPlane::finals`]).
    pub fn set_finals(&self, on: bool) {
        self.set_flags(abi::CONTROL_FINALS, if on { abi::CONTROL_FINALS } else { 0 });
    }

    // No atomic read-modify-write: only the daemon's main thread writes flags.
    fn set_flags(&self, which: u32, to: u32) {
        let flags = self.page.u32(offset_of!(abi::Control, flags));
        flags.store(flags.load(Ordering::Relaxed) & !which | to & which, Ordering::SeqCst);
    }
}

/// Counts the commits of nftables that may change how rules use sets. The programs count while the kernel reports a
/// commit, and so after it is in force.
#[derive(Clone)]
pub struct RuleChanges(Arc<Shared<abi::Control>>);

impl RuleChanges {
    /// The present count.
    pub fn count(&self) -> u32 {
        self.0.u32(offset_of!(abi::Control, rule_changes)).load(Ordering::SeqCst)
    }
}

/// The kernel's HZ, from the resolution of a coarse clock, which advances once per tick.
pub(crate) fn ticks_per_s() -> Result<u32, Error> {
    let tick = nix::time::clock_getres(nix::time::ClockId::CLOCK_MONOTONIC_COARSE).map(Duration::from);
    let tick = tick.map_err(|e| Error::Memory(io::Error::from(e)))?;
    let nanos = tick.as_nanos().max(1);
    Ok(u32::try_from((1_000_000_000 + nanos / 2) / nanos).unwrap_or(1000).max(1))
}
