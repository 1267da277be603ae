//! Global variables of the programs, mapped into memory: a change costs one store.

use crate::{Error, abi::Plain};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::{
    ffi::c_void,
    io,
    marker::PhantomData,
    num::NonZeroUsize,
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64},
};

/// A shared mapping of a map's memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: the memory is shared with the kernel anyway; whoever uses the address says how.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn map(fd: impl AsFd, bytes: usize) -> Result<Self, Error> {
        let bytes = NonZeroUsize::new(bytes.next_multiple_of(PAGE.get())).unwrap_or(PAGE);
        // SAFETY: a new shared mapping at an address that the kernel chooses.
        let at = unsafe {
            mmap(None, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, fd, 0)
        };
        Ok(Self { at: at.map_err(|e| Error::Memory(io::Error::from(e)))?, bytes })
    }

    /// The first byte; valid as long as the mapping.
    pub(crate) fn address(&self) -> *mut u8 {
        self.at.as_ptr().cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; who took its address had to drop it before.
        let _ = unsafe { munmap(self.at, self.bytes.get()) };
    }
}

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).expect("a page has a size");

/// A variable that is the only element of a map.
pub struct Shared<T> {
    memory: Mapping,
    of: PhantomData<T>,
}

// SAFETY: the memory is shared, and only touched through atomics.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as for Send.
unsafe impl<T> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Maps the memory of a map.
    ///
    /// # Errors
    /// If the map was not created with BPF_F_MMAPABLE.
    pub fn map(fd: impl AsFd) -> Result<Self, Error> {
        Ok(Self { memory: Mapping::map(fd, size_of::<T>())?, of: PhantomData })
    }

    /// The first byte; valid as long as `self`.
    pub(crate) fn address(&self) -> *mut T {
        self.memory.address().cast()
    }

    /// The four bytes at an offset.
    ///
    /// # Panics
    /// If the offset is unaligned or out of range.
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= size_of::<T>());
        // SAFETY: inside the mapping, aligned, and the kernel side reads it whole.
        unsafe { AtomicU32::from_ptr(self.memory.address().add(offset).cast()) }
    }

    /// The eight bytes at an offset.
    ///
    /// # Panics
    /// If the offset is unaligned or out of range.
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= size_of::<T>());
        // SAFETY: as for u32.
        unsafe { AtomicU64::from_ptr(self.memory.address().add(offset).cast()) }
    }
}
