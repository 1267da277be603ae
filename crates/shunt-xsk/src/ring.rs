//! The rings between the engine and its owner: `struct shunt_ring`, with the owner's ends.

use crate::{
    abi::{Desc, Ring},
    fixed::Fixed,
};
use std::{
    cell::Cell,
    fmt::Debug,
    sync::atomic::{AtomicU32, Ordering},
};

/// What a ring carries: a descriptor, or the offset of a frame.
pub(crate) trait RingEntry: Copy + Debug {
    const NONE: Self;
}

impl RingEntry for Desc {
    const NONE: Self = Self { at: 0, bytes: 0, options: 0 };
}

impl RingEntry for u64 {
    const NONE: Self = 0;
}

/// Producer and consumer, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Indices {
    producer: Index,
    consumer: Index,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Index(AtomicU32);

/// The memory of a ring.
#[derive(Debug)]
pub(crate) struct RingMemory<T: RingEntry> {
    indices: Fixed<Indices>,
    entries: Fixed<[Cell<T>]>,
}

impl<T: RingEntry> RingMemory<T> {
    /// A ring of `size` entries, a power of two.
    ///
    /// # Panics
    /// If the size is none.
    pub(crate) fn new(size: u32) -> Self {
        assert!(size.is_power_of_two());
        let entries: Box<[Cell<T>]> = (0..size).map(|_| Cell::new(T::NONE)).collect();
        Self { indices: Fixed::new(Indices::default()), entries: Fixed::new(entries) }
    }

    /// The ring as the engine sees it; valid as long as `self`.
    pub(crate) fn ring(&self) -> Ring {
        Ring {
            producer: self.indices.producer.0.as_ptr(),
            consumer: self.indices.consumer.0.as_ptr(),
            entries: self.entries.as_ptr().cast(),
            mask: self.mask(),
        }
    }

    fn mask(&self) -> u32 {
        self.entries.len() as u32 - 1
    }

    fn entry(&self, index: u32) -> &Cell<T> {
        &self.entries[(index & self.mask()) as usize]
    }

    fn ends(&self) -> (u32, u32) {
        let load = |index: &Index| index.0.load(Ordering::Acquire);
        (load(&self.indices.producer), load(&self.indices.consumer))
    }

    /// Entries that wait to be taken.
    pub(crate) fn waiting(&self) -> u32 {
        let (producer, consumer) = self.ends();
        producer.wrapping_sub(consumer)
    }

    /// Entries that can be put.
    pub(crate) fn room(&self) -> u32 {
        (self.mask() + 1).saturating_sub(self.waiting())
    }

    pub(crate) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Puts an entry; into a full ring, over the oldest one.
    pub(crate) fn push(&self, entry: T) {
        let (producer, _) = self.ends();
        self.entry(producer).set(entry);
        self.indices.producer.0.store(producer.wrapping_add(1), Ordering::Release);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let (producer, consumer) = self.ends();
        if producer == consumer {
            return None;
        }
        let entry = self.entry(consumer).get();
        self.indices.consumer.0.store(consumer.wrapping_add(1), Ordering::Release);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes entries and puts others, as bpf/external/poll.c does.
    fn engine(from: Ring, to: Ring) {
        // SAFETY: the rings live, carry these types, and nothing else uses them now.
        unsafe {
            while *from.producer != *from.consumer {
                let at = from.entries.cast::<u64>().add((*from.consumer & from.mask) as usize).read();
                *from.consumer = (*from.consumer).wrapping_add(1);
                let entry = to.entries.cast::<Desc>().add((*to.producer & to.mask) as usize);
                entry.write(Desc { at, bytes: 64, options: 0 });
                *to.producer = (*to.producer).wrapping_add(1);
            }
        }
    }

    #[test]
    fn entries_come_out_in_order_however_the_owner_moves_and_the_indices_wrap() {
        let (fill, rx) = (RingMemory::<u64>::new(8), RingMemory::<Desc>::new(8));
        for index in [&fill.indices, &rx.indices].map(|indices| [&indices.producer, &indices.consumer]) {
            index.iter().for_each(|index| index.0.store(u32::MAX - 5, Ordering::Relaxed));
        }
        let (from, to) = (fill.ring(), rx.ring());
        let mut owner = Some(Box::new((fill, rx)));
        let mut next = 0;
        for round in 0..20 {
            let moved = owner.take().unwrap();
            let count = round % 9;
            (0..count).for_each(|n| moved.0.push(next + n));
            assert_eq!((u64::from(moved.0.waiting()), moved.0.has_room()), (count, count < 8));
            engine(from, to);
            assert_eq!(moved.0.room(), 8);
            for n in 0..count {
                assert_eq!(moved.1.pop().map(|desc| (desc.at, desc.bytes)), Some((next + n, 64)));
            }
            assert!(moved.1.pop().is_none());
            next += count;
            owner = Some(moved);
        }
    }

    #[test]
    fn the_indices_are_64_bytes_apart() {
        let ring = RingMemory::<u64>::new(2).ring();
        assert_eq!(ring.consumer.addr() - ring.producer.addr(), 64);
    }
}
