//! Keeps what the next daemon needs in the service manager's descriptor store, in case this one is killed or stopped.

use super::{Daemon, blocking::BlockingThread, hand_over::monotonic_ns};
use crate::{
    descriptor_store::{Contents, Record, Store, keep, link_name, map_name, remove},
    handover::{by_key, netns},
};
use shunt_bpf::{LAYOUT, StoredLink, attach::AttachMode, map_id};
use shunt_core::EventSource;
use shunt_kernel::NetlinkSubscription;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};
use tokio::time::Instant;

const STORE: &str = "descriptor-store";
/// A daemon that dies earlier after it has taken over from the store is followed by one that begins without flows.
const TRIAL: Duration = Duration::from_secs(10);

/// How the store differs from what the next daemon needs.
#[derive(Default)]
struct Changes {
    new: Vec<(String, OwnedFd)>,
    old: Vec<String>,
    /// The names of what is in the store after the changes.
    all: BTreeSet<String>,
}

impl Daemon {
    /// Keeps the sockets whose filters end flows also while no daemon runs.
    pub(super) fn store_hooks(&mut self, subscription: &NetlinkSubscription) -> io::Result<()> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let filtered = [EventSource::Route, EventSource::Nftables, EventSource::Xfrm];
        let sockets = subscription.sockets().filter(|(source, _)| filtered.contains(source));
        let sockets = sockets.map(|(_, socket)| socket).chain(self.plane.conntrack_socket());
        sockets.into_iter().try_for_each(|socket| store.add_hook(socket))
    }

    /// Brings the store up to date. To be called at each tick.
    pub(super) fn update_store(&mut self) {
        let Some(store) = self.store.as_ref().filter(|store| !store.must_wait()) else { return };
        let room = store.room();
        if self.is_open(BlockingThread::Processes, STORE) {
            return;
        }
        match self.store_changes() {
            Ok(changes) if changes.all.len() > room => {
                let need = changes.all.len();
                self.abandon_store(&io::Error::other(format!(
                    "it keeps {room}, and {need} are needed: raise FileDescriptorStoreMax="
                )));
            }
            Ok(changes) => {
                self.write_record();
                if !changes.new.is_empty() || !changes.old.is_empty() {
                    self.change_store(changes);
                }
            }
            Err(error) => self.abandon_store(&error),
        }
    }

    fn store_changes(&self) -> io::Result<Changes> {
        let Some(store) = &self.store else { return Ok(Changes::default()) };
        let mut wanted: BTreeMap<String, BorrowedFd<'_>> = store.own().collect();
        for (_, map) in self.plane.handed_maps() {
            wanted.insert(map_name(map_id(map)?), map);
        }
        for (_, links) in self.plane.handed_ports().unwrap_or_default() {
            for link in links {
                wanted.insert(link_name(StoredLink::id_of(link)?), link);
            }
        }
        let new = wanted.iter().filter(|(name, _)| !store.held().contains(*name));
        let new =
            new.map(|(name, fd)| Ok((name.clone(), fd.try_clone_to_owned()?))).collect::<io::Result<_>>();
        let old = store.held().iter().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        Ok(Changes { new: new?, old, all: wanted.into_keys().collect() })
    }

    fn change_store(&mut self, Changes { new, old, all }: Changes) {
        self.in_background(
            BlockingThread::Processes,
            STORE,
            move |_| {
                // In this order, there is always room.
                old.iter().try_for_each(|name| remove(name))?;
                new.iter().try_for_each(|(name, fd)| keep(name, fd.as_fd()))
            },
            |daemon, changed: io::Result<()>| match changed {
                Ok(()) => {
                    if let Some(store) = &mut daemon.store {
                        store.set_held(all);
                    }
                    daemon.write_record();
                }
                Err(error) => daemon.abandon_store(&error),
            },
        );
    }

    fn abandon_store(&mut self, error: &io::Error) {
        tracing::warn!("cannot keep descriptors with the service manager: {error}; a crash loses all flows");
        self.write_contents(&Contents::Unusable("the daemon before could not fill it".to_owned()));
        self.store = None;
    }

    /// This daemon has taken over from the store.
    pub(super) fn begin_trial(&mut self) {
        self.hand_over.on_trial_until = Some(Instant::now() + TRIAL);
    }

    /// Has the next daemon begin without flows, until the store is updated again.
    pub(super) fn spoil_store(&mut self, why: &str) {
        self.write_contents(&Contents::Unusable(why.to_owned()));
    }

    fn write_record(&mut self) {
        let contents = match self.record() {
            Ok(record) => Contents::Usable(Box::new(record)),
            Err(why) => Contents::Unusable(why),
        };
        self.write_contents(&contents);
    }

    fn write_contents(&mut self, contents: &Contents) {
        if let Some(store) = &mut self.store {
            store.write(contents, monotonic_ns());
        }
    }

    /// What the next daemon needs.
    ///
    /// # Errors
    /// Why it must begin without flows.
    fn record(&self) -> Result<Record, String> {
        let Some(store) = &self.store else { return Err("there is no store".to_owned()) };
        if self.config.uses_external() {
            return Err("the external engine is in use, which is not handed over".to_owned());
        }
        if self.static_flows.may_name_ports() {
            return Err("there are static flows, which a restart loses: add them again".to_owned());
        }
        if !self.rest.is_awake() {
            return Err("there were no flows".to_owned());
        }
        let changing = || "a port was being changed".to_owned();
        let unknown = |error: io::Error| error.to_string();
        let mut maps = BTreeMap::new();
        for (name, map) in self.plane.handed_maps() {
            maps.insert(name.to_owned(), map_id(map).map_err(unknown)?);
        }
        let mut ports = Vec::new();
        for (port, links) in self.plane.handed_ports().ok_or_else(changing)? {
            let ids = links.into_iter().map(StoredLink::id_of).collect::<io::Result<Vec<u32>>>();
            ports.push((port.into(), ids.map_err(unknown)?));
        }
        let links = ports.iter().flat_map(|(_, ids)| ids).map(|id| link_name(*id));
        let mut names = links.chain(maps.values().map(|id| map_name(*id)));
        if !names.all(|name| store.held().contains(&name)) {
            return Err(changing());
        }
        Ok(Record {
            layout: LAYOUT,
            config: by_key(&self.config),
            netns: netns().map_err(unknown)?,
            maps,
            max_flows: self.config.max_flows,
            seed: self.plane.seed(),
            findings: self.core.findings(),
            generation: self.hand_over.generation + 1,
            counting_since_ns: self.hand_over.counting_since_ns,
            ports,
            clsacts: self.clsacts.list(),
            on_trial: self.hand_over.on_trial_until.is_some_and(|until| Instant::now() < until),
        })
    }

    /// Whether the next daemon can take over from the store when this one ends. The filters of clsact are not in it,
    /// and nobody would remove them if the service is to stop.
    pub(super) fn can_leave_to_store(&mut self) -> bool {
        if self.store.as_ref().is_none_or(Store::must_wait) {
            return false;
        }
        self.write_record();
        let by_link = |ifindex| self.plane.attach_mode(ifindex) == Some(AttachMode::Tcx);
        self.store.as_ref().is_some_and(Store::is_usable)
            && self.core.ports().all(|(link, _)| by_link(link.ifindex))
    }

    /// Ends and detaches nothing: the service manager starts the next daemon, or closes the last descriptors of the
    /// links. The heartbeat that is written here lasts two seconds.
    pub(super) fn leave_to_store(mut self) {
        tracing::info!(
            "programs stay attached until the service manager has started the next daemon or stopped"
        );
        self.unwatch();
        self.beat();
        self.hand_over.on_trial_until = None;
        self.write_record();
        self.plane.leave();
    }

    /// Empties the store. To be called when everything is detached.
    pub(super) fn clear_store(store: Option<Store>) {
        if let Some(store) = store {
            store.clear();
        }
    }
}
