//! The instances of this machine: those that run, and names under which none has ever run.

use shunt_api::{Failure, FailureCode, Instance};
use std::{collections::BTreeSet, fs, path::Path};

/// The names of instances that have a control socket in this directory.
pub(crate) fn running(runtime: &Path) -> BTreeSet<String> {
    names_in(runtime).iter().filter_map(|file| file.strip_suffix(".sock").map(str::to_owned)).collect()
}

/// The names of the files in a directory.
pub(super) fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Whether the instance has left a file, or is the one that runs without a name.
pub(crate) fn has_run(instance: &Instance, runtime: &Path, state: &Path) -> bool {
    let files = [
        instance.socket_path(runtime),
        instance.log_path(runtime),
        instance.socket_path(runtime).with_extension("lock"),
        instance.history_path(state),
        instance.usage_path(state),
        instance.off_path(state),
        instance.savings_path(state),
    ];
    *instance == Instance::default() || files.iter().any(|file| file.exists())
}

/// A name that is perhaps mistyped: the failure has those of the instances that run.
pub(crate) fn never_ran(instance: &Instance, runtime: &Path) -> Failure {
    let running: Vec<String> = running(runtime).into_iter().map(|name| format!("`{name}`")).collect();
    let running = match running.as_slice() {
        [] => "no instance runs here".to_owned(),
        names => format!("here runs {}", names.join(", ")),
    };
    let why = format!("instance `{instance}` has never run on this machine: check its name; {running}");
    Failure::new(FailureCode::NotRunning, why)
}

/// The instance does not run: it is to be started, or its name is mistyped.
pub(super) fn not_running(instance: &Instance, runtime: &Path, state: &Path) -> Failure {
    if !has_run(instance, runtime, state) && !running(runtime).is_empty() {
        return never_ran(instance, runtime);
    }
    let text = if *instance == Instance::default() {
        "not running; start it with `shunt up`".to_owned()
    } else {
        format!("instance `{instance}` is not running; start it with `shunt up --instance {instance}`")
    };
    Failure::new(FailureCode::NotRunning, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_never_ran_is_told_from_one_that_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, state) = (directory.path().join("run"), directory.path().join("state"));
        [&runtime, &state].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        let lab: Instance = "lab".parse().unwrap();
        let said = |instance: &Instance| not_running(instance, &runtime, &state).message;
        assert!(!has_run(&lab, &runtime, &state) && has_run(&Instance::default(), &runtime, &state));
        let never = never_ran(&lab, &runtime);
        assert_eq!(never.code, FailureCode::NotRunning);
        assert!(never.message.ends_with("check its name; no instance runs here"), "{never}");
        assert!(said(&lab).ends_with("start it with `shunt up --instance lab`"), "none runs at all");
        fs::write(runtime.join("wan2.sock"), "").unwrap();
        assert!(never_ran(&lab, &runtime).message.ends_with("here runs `wan2`"));
        assert!(said(&lab).ends_with("check its name; here runs `wan2`"), "another one runs");
        assert_eq!(said(&Instance::default()), "not running; start it with `shunt up`");
        fs::write(state.join("lab.history"), "").unwrap();
        assert!(has_run(&lab, &runtime, &state) && said(&lab).contains("is not running"));
    }
}
