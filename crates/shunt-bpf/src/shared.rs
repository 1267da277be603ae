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

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).expect("a page has a size");

/// A variable that is the only element of a map and fits a page.
pub struct Shared<T> {
    page: NonNull<c_void>,
    of: PhantomData<T>,
}

// SAFETY: the page is shared memory that is only touched through atomics.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as for Send.
unsafe impl<T> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Maps the memory of a map.
    ///
    /// # Errors
    /// If the map was not created with BPF_F_MMAPABLE.
    pub fn map(fd: impl AsFd) -> Result<Self, Error> {
        const { assert!(size_of::<T>() <= PAGE.get()) };
        // SAFETY: a new shared mapping at an address that the kernel chooses.
        let page = unsafe {
            mmap(None, PAGE, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, fd, 0)
        };
        Ok(Self { page: page.map_err(|e| Error::Memory(io::Error::from(e)))?, of: PhantomData })
    }

    /// The four bytes at an offset.
    ///
    /// # Panics
    /// If the offset is unaligned or out of range.
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0 && offset + 4 <= size_of::<T>());
        // SAFETY: inside the mapping, aligned, and the kernel side reads it whole.
        unsafe { AtomicU32::from_ptr(self.page.as_ptr().byte_add(offset).cast()) }
    }

    /// The eight bytes at an offset.
    ///
    /// # Panics
    /// If the offset is unaligned or out of range.
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset + 8 <= size_of::<T>());
        // SAFETY: as for u32.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().byte_add(offset).cast()) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.page, PAGE.get()) };
    }
}
