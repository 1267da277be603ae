//! Ring buffers: records from the programs.

use crate::{Error, abi::Plain};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::mpsc,
};
use tokio::io::{Interest, unix::AsyncFd};

/// A ring buffer of records of type `T`.
pub struct Ring<T> {
    ready: AsyncFd<OwnedFd>,
    ring: RingBuffer<'static>,
    rx: mpsc::Receiver<T>,
}

// SAFETY: the ring's callback owns what it captures, and a ring is used from one thread at a time.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Plain + 'static> Ring<T> {
    pub(crate) fn open(name: &'static str, map: &dyn MapCore) -> Result<Self, Error> {
        let failed = |source| Error::Map { map: name, source };
        let (tx, rx) = mpsc::channel();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes: &[u8]| {
                // Sending cannot fail: the receiver lives as long as the ring.
                let _ = T::from_bytes(bytes).map(|value| tx.send(value));
                0
            })
            .map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        // SAFETY: the epoll descriptor is open as long as the ring lives.
        let epoll =
            unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) }.try_clone_to_owned().map_err(Error::Ring)?;
        // SAFETY: an OwnedFd is one descriptor, open until it is dropped.
        let ready = unsafe { AsyncFd::register_with_interest(epoll, Interest::READABLE) };
        let ready = ready.map_err(|e| Error::Ring(e.into()))?;
        Ok(Self { ready, ring, rx })
    }

    /// Waits for a record. Cancel-safe.
    pub async fn wait(&self) -> std::io::Result<()> {
        self.ready.readable().await?.clear_ready();
        Ok(())
    }

    /// Takes all records that are in the ring.
    pub fn take(&mut self) -> Vec<T> {
        // Only the callback could fail, and it does not.
        let _ = self.ring.consume();
        self.rx.try_iter().collect()
    }

    /// Takes at most `most` records. [`Ring::wait`] may not return for the rest.
    pub fn take_some(&mut self, most: usize) -> Vec<T> {
        let _ = self.ring.consume_raw_n(most);
        self.rx.try_iter().collect()
    }
}
