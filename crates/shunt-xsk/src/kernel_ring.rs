//! The rings that an AF_XDP socket shares with the kernel (`struct xdp_ring`). The kernel has one end of each.

use crate::ring::RingEntry;
use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    net::xdp::{XdpRingFlags, XdpRingOffset},
};
use std::{
    ffi::c_void,
    io,
    marker::PhantomData,
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

/// A mapped ring, and the index of our end.
pub(crate) struct KernelRing<T: RingEntry> {
    start: NonNull<c_void>,
    bytes: usize,
    offsets: XdpRingOffset,
    /// Entries, a power of two.
    size: u32,
    /// Our index; the kernel sees it once it is published.
    at: u32,
    entries: PhantomData<*mut T>,
}

/// A ring from which we take what the kernel puts there: of received packets, or of sent frames.
pub(crate) struct FromKernel<T: RingEntry>(pub(crate) KernelRing<T>);

/// A ring from which the kernel takes what we put there: of free frames, or of frames to send.
pub(crate) struct ToKernel<T: RingEntry>(pub(crate) KernelRing<T>);

impl<T: RingEntry> KernelRing<T> {
    /// Maps the ring of `size` entries at the page offset `page` of a socket.
    ///
    /// # Safety
    /// The ring has entries of type `T`, and `offsets` are its own.
    pub(crate) unsafe fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        assert!(size.is_power_of_two());
        let bytes = offsets.desc as usize + size as usize * size_of::<T>();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping, which overlaps no other.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, flags, socket, page)? };
        let start = NonNull::new(start).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, bytes, offsets, size, at: 0, entries: PhantomData })
    }

    fn index(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel's offsets of aligned 32-bit numbers within the mapping, which lives as long as `self`.
        unsafe { self.start.byte_add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self, at: u32) -> NonNull<T> {
        let offset = self.offsets.desc as usize + (at & (self.size - 1)) as usize * size_of::<T>();
        // SAFETY: an entry within the mapping.
        unsafe { self.start.byte_add(offset).cast() }
    }
}

impl<T: RingEntry> Drop for KernelRing<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}

impl<T: RingEntry> FromKernel<T> {
    /// Takes at most `most` entries.
    pub(crate) fn take(&mut self, most: u32, mut use_entry: impl FnMut(T)) {
        let ring = &mut self.0;
        let producer = ring.index(ring.offsets.producer).load(Ordering::Acquire);
        for _ in 0..producer.wrapping_sub(ring.at).min(most) {
            // SAFETY: the kernel has written this entry before it published the producer's index.
            use_entry(unsafe { ring.entry(ring.at).read() });
            ring.at = ring.at.wrapping_add(1);
        }
        // The entries have been read before the kernel may write them again.
        ring.index(ring.offsets.consumer).store(ring.at, Ordering::Release);
    }
}

impl<T: RingEntry> ToKernel<T> {
    /// Entries that the kernel has not taken yet.
    pub(crate) fn pending(&self) -> u32 {
        self.0.at.wrapping_sub(self.0.index(self.0.offsets.consumer).load(Ordering::Acquire))
    }

    /// Puts entries there until `next` has none or the ring is full.
    pub(crate) fn put(&mut self, mut next: impl FnMut() -> Option<T>) {
        let room = self.0.size.saturating_sub(self.pending());
        let ring = &mut self.0;
        for entry in (0..room).map_while(|_| next()) {
            // SAFETY: the kernel does not read this entry before the producer's index is published.
            unsafe { ring.entry(ring.at).write(entry) };
            ring.at = ring.at.wrapping_add(1);
        }
        ring.index(ring.offsets.producer).store(ring.at, Ordering::Release);
    }

    /// Whether the kernel looks into the ring only when it is woken up.
    pub(crate) fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.0.offsets.flags else { return true };
        self.0.index(flags).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}
