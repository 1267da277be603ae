//! What the service manager has kept for this daemon, and whether it can be used.

use super::{
    PREFIX,
    record::{Contents, Record, read},
};
use crate::{
    handover::{differences, netns},
    kernel_types::pretends_missing,
    start::filter_handle,
};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use shunt_api::{Config, Instance};
use shunt_bpf::{
    HandedMaps, HandedPort, LAYOUT, StoredLink,
    attach::{self, AttachMode, Hook},
    map_id, received,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::File,
    os::fd::{AsFd, OwnedFd},
};

/// The first descriptor that a service manager passes (SD_LISTEN_FDS_START).
const FIRST: i32 = 3;

/// Descriptors from the service manager, by name.
#[derive(Debug, Default)]
pub(crate) struct Received(Vec<(String, OwnedFd)>);

/// What a daemon has left in the store. All of it agrees with this one.
pub(crate) struct Stored {
    pub(crate) maps: HandedMaps,
    /// Ports, with their links.
    pub(crate) ports: Vec<(HandedPort, Vec<OwnedFd>)>,
    /// The ids of the attached XDP programs.
    pub(crate) programs: Vec<u32>,
    pub(crate) record: Box<Record>,
    /// When that daemon was last alive, on the monotonic clock.
    pub(crate) alive_ns: u64,
}

impl Received {
    /// Takes the descriptors that this process was started with, as sd_listen_fds_with_names(3). To be called once.
    pub(crate) fn take() -> Self {
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Self::default();
        }
        let count = number("LISTEN_FDS").and_then(|count| i32::try_from(count).ok()).unwrap_or(0);
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').map(str::to_owned);
        let named = (FIRST..FIRST.saturating_add(count)).map_while(|fd| {
            let fd = received(fd).ok()?;
            // Fails for no open descriptor.
            let _ = fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
            Some((names.next().unwrap_or_default(), fd))
        });
        Self(named.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, which the service manager knows.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.0.iter().map(|(name, _)| name.clone()).filter(|name| !name.is_empty()).collect()
    }

    /// Sorts out what the daemon before has left.
    ///
    /// # Errors
    /// Why that cannot be used. Then its programs are detached.
    pub(crate) fn check(self, instance: &Instance, config: &Config) -> Result<Stored, String> {
        let (mut links, mut others) = (BTreeMap::new(), BTreeMap::new());
        for (name, fd) in self.0 {
            let kind = name.strip_prefix(PREFIX).and_then(|name| name.split_once('-')).map(|(kind, _)| kind);
            match kind {
                Some("link") => drop(StoredLink::open(fd).map(|link| links.insert(link.id, link))),
                Some(_) => drop(others.insert(name, fd)),
                None => {}
            }
        }
        let stored = sort_out(instance, config, &mut links, &mut others);
        // Those of no port, or of a data plane that is not used.
        links.into_values().for_each(StoredLink::detach);
        stored
    }
}

fn sort_out(
    instance: &Instance,
    config: &Config,
    links: &mut BTreeMap<u32, StoredLink>,
    others: &mut BTreeMap<String, OwnedFd>,
) -> Result<Stored, String> {
    let (record, alive_ns) = newest_record(others)?;
    agrees(&record, config)?;
    let mut maps = Vec::new();
    for (name, id) in &record.maps {
        let fd = others.remove(&super::map_name(*id)).filter(|fd| map_id(fd.as_fd()).ok() == Some(*id));
        maps.push((name.clone(), fd.ok_or_else(|| format!("the map {name} is missing"))?));
    }
    let maps = HandedMaps::open(maps, record.max_flows, record.seed).map_err(|error| error.to_string())?;
    if !maps.control_agrees() {
        return Err("the flow tables are not those of the record".to_owned());
    }
    let handed: Vec<HandedPort> = record.ports.iter().map(|(port, _)| port.into()).collect();
    let known: BTreeMap<u32, u16> = handed.iter().map(|port| (port.ifindex, port.slot)).collect();
    if maps.ports() != known {
        return Err("a port was being changed".to_owned());
    }
    for (port, (_, ids)) in handed.iter().zip(&record.ports) {
        let attached = ids.iter().map(|id| links.get(id).map(|link| (link.ifindex, link.hook)));
        let attached: Option<Vec<(u32, Hook)>> = attached.collect();
        // A link of a device that is gone names none.
        let is_sound = attached.is_some_and(|attached| {
            attached.iter().all(|(ifindex, _)| [0, port.ifindex].contains(ifindex))
                && attached.iter().map(|(_, hook)| *hook).eq(hooks(*port))
        });
        if !is_sound {
            return Err(format!("the links of device {} are not those of the record", port.ifindex));
        }
        let handle = filter_handle(instance);
        if port.mode == AttachMode::Clsact
            && attach::has_filter_of_another(port.ifindex, handle, instance.as_str())
        {
            return Err(format!("another instance is attached to device {}", port.ifindex));
        }
    }
    let mut programs = Vec::new();
    let ports = handed.into_iter().zip(&record.ports).map(|(port, (_, ids))| {
        let own: Vec<StoredLink> = ids.iter().filter_map(|id| links.remove(id)).collect();
        programs.extend(own.iter().filter(|link| link.hook == Hook::Xdp).map(|link| link.program));
        (port, own.into_iter().map(StoredLink::into_fd).collect())
    });
    let ports = ports.collect();
    Ok(Stored { maps, ports, programs, record, alive_ns })
}

/// The record of the daemon that was alive last.
fn newest_record(others: &mut BTreeMap<String, OwnedFd>) -> Result<(Box<Record>, u64), String> {
    let kind = format!("{PREFIX}record-");
    let names: Vec<String> = others.keys().filter(|name| name.starts_with(&kind)).cloned().collect();
    let records = names.iter().filter_map(|name| read(&File::from(others.remove(name)?)));
    match records.max_by_key(|(_, alive_ns)| *alive_ns) {
        Some((Contents::Usable(record), alive_ns)) => Ok((record, alive_ns)),
        Some((Contents::Unusable(why), _)) => Err(why),
        None => Err("the record of the stored descriptors is missing or damaged".to_owned()),
    }
}

fn agrees(record: &Record, config: &Config) -> Result<(), String> {
    if record.layout != LAYOUT ^ u64::from(pretends_missing("same-layout")) {
        return Err("the new version keeps flows in another layout".to_owned());
    }
    let differ = differences(config, &record.config);
    if !differ.is_empty() {
        return Err(format!("the configuration differs: {}", differ.join(", ")));
    }
    if record.on_trial {
        return Err("the daemon before died just after it had taken them over".to_owned());
    }
    if netns().ok() != Some(record.netns) {
        return Err("this daemon runs in another network namespace".to_owned());
    }
    Ok(())
}

/// The hooks of a port's links, in their order.
fn hooks(port: HandedPort) -> impl Iterator<Item = Hook> {
    let by_link = port.mode == AttachMode::Tcx;
    let all =
        [(by_link, Hook::Ingress), (by_link && port.egress, Hook::Egress), (port.xdp.is_some(), Hook::Xdp)];
    all.into_iter().filter_map(|(is_there, hook)| is_there.then_some(hook))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_without_a_record_are_refused() {
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        let instance: Instance = "t".parse().unwrap();
        for names in [&["a", ""][..], &["shunt-link-7", "shunt-map-3"], &["shunt-record-1"]] {
            let received = Received(names.iter().map(|name| ((*name).to_owned(), null())).collect());
            let why = received.check(&instance, &Config::default()).err().unwrap();
            assert!(why.contains("missing or damaged"), "{names:?}: {why}");
        }
    }

    #[test]
    fn a_port_has_a_link_for_each_hook_but_those_of_clsact() {
        let port = |mode, egress, xdp| HandedPort { ifindex: 1, slot: 0, mode, egress, xdp };
        let of = |port: HandedPort| hooks(port).collect::<Vec<_>>();
        assert_eq!(of(port(AttachMode::Tcx, true, None)), [Hook::Ingress, Hook::Egress]);
        assert_eq!(of(port(AttachMode::Tcx, false, None)), [Hook::Ingress]);
        let xdp = Some((shunt_bpf::XdpProgram::Forward, 7));
        assert_eq!(of(port(AttachMode::Clsact, true, xdp)), [Hook::Xdp]);
        assert_eq!(
            of(port(AttachMode::Clsact, true, xdp)).len(),
            port(AttachMode::Clsact, true, xdp).links()
        );
    }
}
