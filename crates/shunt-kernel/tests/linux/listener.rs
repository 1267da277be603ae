//! A subscription whose events a test can wait for.

use crate::netns::{NetNs, sh};
use shunt_core::{Event, Link};
use shunt_kernel::NetlinkSubscription;
use std::time::Duration;
use tokio::{runtime::Runtime, time::timeout};

/// A device that exists only to be changed: the event of its change marks the end of earlier events.
const MARKER: &str = "marker";

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Listener {
    runtime: Runtime,
    pub subscription: NetlinkSubscription,
    received: Vec<Event>,
    mark: u32,
}

impl Listener {
    /// Runs a test in a thread in a new namespace. Skips the test if the process may not create one.
    pub fn in_new_namespace(test: impl FnOnce(Listener) + Send) {
        let Some(ns) = NetNs::new() else { return };
        ns.enter(|| test(Self::open()));
    }

    pub fn open() -> Self {
        sh(&format!("ip link add {MARKER} type ifb"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let subscription = runtime.block_on(async { NetlinkSubscription::open(4 << 20).unwrap() });
        Self { runtime, subscription, received: Vec::new(), mark: 0 }
    }

    /// Waits for an event that `is_expected`, and returns all events up to that one. Later events of the same batch
    /// stay for the next call.
    pub fn until(&mut self, is_expected: impl Fn(&Event) -> bool) -> Vec<Event> {
        loop {
            if let Some(at) = self.received.iter().position(&is_expected) {
                return self.received.drain(..=at).collect();
            }
            self.receive_batch();
        }
    }

    pub fn wait_for(&mut self, expected: &Event) {
        self.until(|event| event == expected);
    }

    pub fn wait_for_one_of(&mut self, expected: &[Event]) {
        self.until(|event| expected.contains(event));
    }

    pub fn wait_for_link(&mut self, is_expected: impl Fn(&Link) -> bool) -> Link {
        match self.until(|event| matches!(event, Event::Link(link) if is_expected(link))).pop() {
            Some(Event::Link(link)) => link,
            other => panic!("{other:?}"),
        }
    }

    /// All events of changes that were made before this call, without those of the marker.
    pub fn events_so_far(&mut self) -> Vec<Event> {
        self.mark += 1;
        let mtu = 1000 + self.mark;
        sh(&format!("ip link set marker mtu {mtu}"));
        let is_mark =
            |event: &Event| matches!(event, Event::Link(link) if link.name == MARKER && link.mtu == mtu);
        // A batch has the events of every source so far, so no earlier event comes after the batch with the mark.
        while !self.received.iter().any(is_mark) {
            self.receive_batch();
        }
        self.received.retain(|event| !matches!(event, Event::Link(link) if link.name == MARKER));
        std::mem::take(&mut self.received)
    }

    fn receive_batch(&mut self) {
        let batch = self.runtime.block_on(async { timeout(PATIENCE, self.subscription.next()).await });
        match batch {
            Ok(batch) => self.received.extend(batch.unwrap()),
            Err(_) => panic!("no event within {PATIENCE:?}; received so far: {:#?}", self.received),
        }
    }
}
