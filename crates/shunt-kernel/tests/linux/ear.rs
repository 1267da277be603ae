//! A watcher that can be waited with.

use crate::netns::{NetNs, sh};
use shunt_core::{Event, Link};
use shunt_kernel::Watcher;
use std::time::Duration;
use tokio::{runtime::Runtime, time::timeout};

/// A device that is only there to be changed.
const MARKER: &str = "marker";

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Ear {
    runtime: Runtime,
    pub watcher: Watcher,
    heard: Vec<Event>,
    mark: u32,
}

impl Ear {
    /// In a thread of a new namespace. Nothing happens where there can be none.
    pub fn in_new_namespace(test: impl FnOnce(Ear) + Send) {
        let Some(ns) = NetNs::new() else { return };
        ns.enter(|| test(Self::open()));
    }

    pub fn open() -> Self {
        sh(&format!("ip link add {MARKER} type ifb"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let watcher = runtime.block_on(async { Watcher::open(4 << 20).unwrap() });
        Self { runtime, watcher, heard: Vec::new(), mark: 0 }
    }

    /// Everything up to and with the first event for which `wanted` is true; what came with it in one batch is left
    /// for the next call.
    pub fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        loop {
            if let Some(at) = self.heard.iter().position(&wanted) {
                return self.heard.drain(..=at).collect();
            }
            self.listen();
        }
    }

    pub fn hear(&mut self, wanted: &Event) {
        self.until(|event| event == wanted);
    }

    pub fn hear_link(&mut self, wanted: impl Fn(&Link) -> bool) -> Link {
        match self.until(|event| matches!(event, Event::Link(link) if wanted(link))).pop() {
            Some(Event::Link(link)) => link,
            other => panic!("{other:?}"),
        }
    }

    /// Everything that the kernel has said up to now, but for what concerns the marker.
    pub fn so_far(&mut self) -> Vec<Event> {
        self.mark += 1;
        let mtu = 1000 + self.mark;
        sh(&format!("ip link set marker mtu {mtu}"));
        let is_marked =
            |event: &Event| matches!(event, Event::Link(link) if link.name == MARKER && link.mtu == mtu);
        // A batch has what every source said until then, so nothing of before the mark comes after its batch.
        while !self.heard.iter().any(is_marked) {
            self.listen();
        }
        self.heard.retain(|event| !matches!(event, Event::Link(link) if link.name == MARKER));
        std::mem::take(&mut self.heard)
    }

    fn listen(&mut self) {
        let batch = self.runtime.block_on(async { timeout(PATIENCE, self.watcher.next()).await });
        match batch {
            Ok(batch) => self.heard.extend(batch.unwrap()),
            Err(_) => panic!("waited in vain; heard {:#?}", self.heard),
        }
    }
}
