//! Another configuration for the running daemon: what it changes, whether it can run here, and what it needs. On a
//! thread of its own, since files, the kernel and names of groups may take their time.

use crate::{
    config_file::{ConfigSource, FileState},
    control::{self, NewListeners},
    failures::{failure, internal},
    loaded::Loaded,
    queue_settings, start,
};
use shunt_api::{
    ChangeEffect, Config, Failure, FailureCode, Instance, KeyChange, Reload, ReloadRequest, UnusedQueues,
};
use shunt_core::{Core, Event};
use shunt_kernel::Linux;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Instant,
};

/// What the daemon is, at the time of a reload.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) instance: Instance,
    pub(crate) source: Arc<ConfigSource>,
    pub(crate) config: Config,
    /// What the configuration has for `max_flows`: 0 if the daemon has chosen the size.
    pub(crate) max_flows: u32,
    pub(crate) loaded: Loaded,
    /// The names of the ports, by ifindex.
    pub(crate) ports: BTreeMap<u32, String>,
    /// The IDs of Shunt's XDP programs.
    pub(crate) own_programs: Vec<u32>,
}

/// A reload that may be carried out.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) answer: Reload,
    /// What to run from now on; `None` if nothing is to be done.
    pub(crate) apply: Option<Apply>,
}

/// What to run from now on.
#[derive(Debug)]
pub(crate) struct Apply {
    pub(crate) config: Config,
    pub(crate) max_flows: u32,
    pub(crate) listeners: NewListeners,
}

/// The difference between the file and what runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The state of the file that was compared; `None` before the first comparison, or without a file.
    pub(crate) file: Option<FileState>,
    pub(crate) keys: Vec<String>,
    pub(crate) unusable: Option<String>,
}

impl Running {
    /// The configuration as the file would have it.
    fn configured(&self) -> Config {
        Config { max_flows: self.max_flows, ..self.config.clone() }
    }

    /// The configuration of the file, and what it changes.
    fn read(&self) -> Result<(Config, Vec<KeyChange>, Option<FileState>), Failure> {
        let (new, file) = self.source.load_again()?;
        let mut changes = self.configured().changes(&new);
        if file.is_none() && !changes.is_empty() {
            let why = format!(
                "{}: there is no such file any more; write it again, or restart the daemon to run with the defaults",
                self.source.path().display()
            );
            return Err(failure(FailureCode::BadConfig, why));
        }
        for change in &mut changes {
            let key = change.key.split('.').next().unwrap_or_default();
            if let Some(why) = self.loaded.obstacle(key, &new) {
                (change.effect, change.why) = (ChangeEffect::Restart, why);
            }
        }
        Ok((new, changes, file))
    }

    /// Compares the file with what runs, unless it is as it was.
    pub(crate) fn compare(&self, before: &Difference) -> Difference {
        let state = self.source.state();
        if state.is_some() && state == before.file {
            return before.clone();
        }
        match self.read() {
            Ok((_, changes, file)) => Difference {
                file,
                keys: changes.into_iter().map(|change| change.key).collect(),
                unusable: None,
            },
            Err(failure) => Difference { file: state, keys: Vec::new(), unusable: Some(failure.message) },
        }
    }

    /// Reads the file and checks everything that can be checked. Changes nothing, but for the group that may read,
    /// which comes last.
    ///
    /// # Errors
    /// If the file is wrong, or a start with it would fail.
    pub(crate) fn prepare(&self, kernel: &mut Linux, request: &ReloadRequest) -> Result<Prepared, Failure> {
        if let Some(file) = &request.file {
            let source = self.try_file(file, request.dry_run)?;
            let tried = ReloadRequest { file: None, ..request.clone() };
            return Self { source: Arc::new(source), ..self.clone() }.prepare(kernel, &tried);
        }
        let (file, changes, _) = self.read()?;
        let mut answer = Reload {
            file: self.source.path().display().to_string(),
            dry_run: request.dry_run,
            overridden: self.source.overridden(),
            changes,
            ..Reload::default()
        };
        let in_file = |why: Failure| failure(why.code, format!("{}: {why}", self.source.path().display()));
        let is_restart = |change: &&KeyChange| change.effect == ChangeEffect::Restart;
        let kept: BTreeSet<&str> =
            answer.changes.iter().filter(is_restart).map(|one| one.key.as_str()).collect();
        let kept: Vec<&str> = kept.into_iter().collect();
        let new = file.with_keys_of(&self.configured(), &kept).map_err(internal)?;
        let all_need_restart = !answer.changes.is_empty() && answer.changes.len() == kept.len();
        answer.applied = kept.is_empty() || request.partial && !all_need_restart;
        if self.ports_may_change(&new) {
            (answer.ports_added, answer.ports_removed) = self.plan_ports(kernel, &new).map_err(in_file)?;
        }
        // A file that is not applied counts as a whole after the restart that it needs.
        answer.unused_queues = self.unused_queues(kernel, if answer.applied { &new } else { &file })?;
        let listeners = NewListeners::bind(&self.config, &new).map_err(in_file)?;
        let group = control::group(&new.read_group).map_err(in_file)?;
        if request.dry_run || !answer.applied {
            return Ok(Prepared { answer, apply: None });
        }
        if new.read_group != self.config.read_group {
            control::let_read(&self.instance, group)?;
        }
        let max_flows = new.max_flows;
        let config = Config { max_flows: self.config.max_flows, ..new };
        Ok(Prepared { answer, apply: Some(Apply { config, max_flows, listeners }) })
    }

    /// Fails if the request names a file that cannot be asked for.
    pub(crate) fn check_file(&self, request: &ReloadRequest) -> Result<(), Failure> {
        request.file.as_deref().map_or(Ok(()), |file| self.try_file(file, request.dry_run).map(drop))
    }

    /// Another file in the place of the daemon's, which is read at each start and reload.
    fn try_file(&self, file: &str, dry_run: bool) -> Result<ConfigSource, Failure> {
        let own = self.source.path();
        let path = Path::new(file);
        if !path.is_absolute() {
            return Err(failure(FailureCode::Usage, format!("`{file}`: expected an absolute path")));
        }
        if !dry_run && path != own {
            let own = own.display();
            let why = format!(
                "the daemon reads {own}; install {file} there, then `shunt reload`; `shunt reload --dry-run --config {file}` says what would change"
            );
            return Err(failure(FailureCode::Usage, why));
        }
        Ok(self.source.with_file(path.to_owned()))
    }

    /// Checks whether a daemon with the file's configuration could start here, once this one has ended.
    ///
    /// # Errors
    /// If its start would fail.
    pub(crate) fn check_start(&self, kernel: &mut Linux) -> Result<(), Failure> {
        // The next daemon has read the file already. A newer one may know keys that this one does not.
        let Ok((new, ..)) = self.read() else { return Ok(()) };
        self.plan_ports(kernel, &new)?;
        NewListeners::bind(&self.config, &new)?;
        control::group(&new.read_group)?;
        Ok(())
    }

    fn ports_may_change(&self, new: &Config) -> bool {
        let Config { ports, engine, external_ports, external_core, .. } = &self.config;
        (ports, engine, external_ports, external_core)
            != (&new.ports, &new.engine, &new.external_ports, &new.external_core)
    }

    /// Plans the ports as a start would, and returns the names of those that come and of those that go.
    fn plan_ports(&self, kernel: &mut Linux, new: &Config) -> Result<(Vec<String>, Vec<String>), Failure> {
        if let Some(obstacle) = start::core_obstacle(new) {
            return Err(obstacle);
        }
        let core = self.planned(kernel, new)?;
        let is_own = |ifindex| self.ports.contains_key(&ifindex);
        start::refuse(start::port_obstacles(&self.instance, &core, kernel, new, &is_own)?)?;
        let planned = names(&core);
        let difference = |these: &BTreeMap<u32, String>, others: &BTreeMap<u32, String>| {
            these
                .iter()
                .filter(|(ifindex, _)| !others.contains_key(ifindex))
                .map(|(_, name)| name.clone())
                .collect()
        };
        Ok((difference(&planned, &self.ports), difference(&self.ports, &planned)))
    }

    /// A policy with this configuration, and the present state of the kernel.
    fn planned(&self, kernel: &mut Linux, new: &Config) -> Result<Core, Failure> {
        let state = kernel.dump().map_err(internal)?;
        let mut core = start::core(new, self.own_programs.iter().copied());
        core.handle(Instant::now(), Event::Dump(state));
        Ok(core)
    }

    /// The queues that a daemon with this configuration would not use, if its external engine served all its ports.
    fn unused_queues(&self, kernel: &mut Linux, new: &Config) -> Result<Vec<UnusedQueues>, Failure> {
        if new.qos.is_empty() {
            return Ok(Vec::new());
        }
        let mut core = self.planned(kernel, new)?;
        start::suppose_external_engine(&mut core);
        Ok(queue_settings::unused(&core, &new.qos))
    }
}

/// The names of a policy's ports, by ifindex.
pub(crate) fn names(core: &Core) -> BTreeMap<u32, String> {
    core.ports().map(|(link, _)| (link.ifindex, link.name.clone())).collect()
}

/// The refusal of a reload that needs a restart.
pub(crate) fn needs_restart(answer: &Reload) -> Option<String> {
    let keys: Vec<&str> = answer.restarts().map(|change| change.key.as_str()).collect();
    (!keys.is_empty() && !answer.applied).then(|| format!("needs a restart: {}", keys.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use shunt_api::DaemonArguments;
    use std::fs;

    fn running(path: &Path, text: &str) -> Running {
        let words = ["shuntd", "--config", path.to_str().unwrap()];
        let source = ConfigSource::from_arguments(&DaemonArguments::parse_from(words)).unwrap();
        fs::write(path, text).unwrap();
        let config = source.load().unwrap();
        Running {
            instance: Instance::default(),
            source: Arc::new(source),
            max_flows: config.max_flows,
            loaded: Loaded::by(&config),
            config: Config { max_flows: 4096, ..config },
            ports: BTreeMap::new(),
            own_programs: Vec::new(),
        }
    }

    fn restarts(running: &Running, text: &str) -> Vec<String> {
        fs::write(running.source.path(), text).unwrap();
        let (_, changes, _) = running.read().unwrap();
        changes.into_iter().filter(|one| one.effect == ChangeEffect::Restart).map(|one| one.key).collect()
    }

    #[test]
    fn a_restart_is_needed_for_programs_that_are_not_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let tc = running(&directory.path().join("tc.toml"), "engine = \"tc\"");
        assert_eq!(restarts(&tc, "engine = \"auto\""), ["engine"]);
        assert_eq!(restarts(&tc, "engine = \"tc\"\nexternal_ports = [\"a\"]"), ["external_ports"]);
        assert!(restarts(&tc, "engine = \"tc\"\nverify_checksums = \"always\"").is_empty());
        let auto = running(&directory.path().join("auto.toml"), "");
        for text in ["engine = \"tc\"", "engine = \"xdp\"", "idle = \"1m\"", "verify_checksums = \"never\""] {
            assert!(restarts(&auto, text).is_empty(), "{text}");
        }
        assert_eq!(restarts(&auto, "engine = \"external\""), ["engine"]);
        assert_eq!(restarts(&auto, "verify_checksums = \"always\""), ["verify_checksums"]);
        assert_eq!(restarts(&auto, "learn = false\nmax_flows = 64"), ["learn", "max_flows"]);
    }

    #[test]
    fn another_file_can_be_tried_but_not_be_applied() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("shunt.toml");
        let other = directory.path().join("new.toml");
        let daemon = running(&own, "idle = \"10s\"");
        fs::write(&other, "idle = \"1m\"").unwrap();
        let source = daemon.try_file(other.to_str().unwrap(), true).unwrap();
        let (_, changes, _) = Running { source: Arc::new(source), ..daemon.clone() }.read().unwrap();
        let changes: Vec<_> = changes.iter().map(|one| (&*one.key, &*one.from, &*one.to)).collect();
        assert_eq!(changes, [("idle", "\"10s\"", "\"1m\"")]);
        let refused = daemon.try_file(other.to_str().unwrap(), false).unwrap_err();
        assert!(
            refused.code == FailureCode::Usage
                && refused.message.contains(&format!("the daemon reads {}; install", own.display())),
            "{refused}"
        );
        assert!(daemon.try_file(own.to_str().unwrap(), false).is_ok());
        assert!(daemon.try_file("new.toml", true).unwrap_err().message.contains("absolute"));
    }

    #[test]
    fn a_size_that_the_daemon_has_chosen_is_no_difference() {
        let directory = tempfile::tempdir().unwrap();
        let daemon = running(&directory.path().join("shunt.toml"), "");
        assert_eq!(daemon.compare(&Difference::default()).keys, Vec::<String>::new());
    }

    #[test]
    fn the_file_is_compared_again_when_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shunt.toml");
        let daemon = running(&path, "idle = \"10s\"");
        let same = daemon.compare(&Difference::default());
        assert_eq!((same.keys.len(), same.unusable.as_ref()), (0, None));
        fs::write(&path, "idle = \"1m\"\nudp_packets = 3").unwrap();
        let other = daemon.compare(&same);
        assert_eq!(other.keys, ["idle", "udp_packets"]);
        assert_eq!(daemon.compare(&other), other);
        fs::write(&path, "idel = 1").unwrap();
        let wrong = daemon.compare(&other);
        assert!(
            wrong.keys.is_empty() && wrong.unusable.as_ref().unwrap().contains("did you mean"),
            "{wrong:?}"
        );
        fs::remove_file(&path).unwrap();
        assert!(daemon.compare(&wrong).unusable.unwrap().contains("there is no such file"));
    }
}
