//! What the programs tell user space, a value at a time.

use crate::{Error, abi::Plain};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::mpsc,
};
use tokio::io::{Interest, unix::AsyncFd};

/// A ring buffer of the data plane.
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
                // The receiver lives as long as the ring.
                let _ = T::of(bytes).map(|value| tx.send(value));
                0
            })
            .map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        // SAFETY: the ring has its epoll descriptor open as long as it lives.
        let epoll =
            unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) }.try_clone_to_owned().map_err(Error::Ring)?;
        // SAFETY: an OwnedFd is one descriptor, open until it is dropped.
        let ready = unsafe { AsyncFd::register_with_interest(epoll, Interest::READABLE) };
        let ready = ready.map_err(|e| Error::Ring(e.into()))?;
        Ok(Self { ready, ring, rx })
    }

    /// Waits until there is something. May be dropped at any time.
    pub async fn wait(&self) -> std::io::Result<()> {
        self.ready.readable().await?.clear_ready();
        Ok(())
    }

    /// Everything that is there now.
    pub fn take(&mut self) -> Vec<T> {
        // An error here is one of our callback's, which has none.
        let _ = self.ring.consume();
        self.rx.try_iter().collect()
    }

    /// The first of what is there, at most so many. [`Ring::wait`] need not end for the rest.
    pub fn take_some(&mut self, most: usize) -> Vec<T> {
        let _ = self.ring.consume_raw_n(most);
        self.rx.try_iter().collect()
    }
}
