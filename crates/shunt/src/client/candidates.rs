//! Values that a shell may complete: devices, instances, and addresses of connections of this machine.

use super::{control::Client, instances};
use crate::daemon::runtime_dir;
use clap_complete::CompletionCandidate;
use shunt_api::{Connection, Instance, Tuple};
use std::{collections::BTreeSet, env, path::Path, time::Duration};

/// A shell that waits longer for candidates annoys.
const PATIENCE: Duration = Duration::from_secs(1);

/// Network devices.
pub(crate) fn devices() -> Vec<CompletionCandidate> {
    candidates(instances::names_in(Path::new("/sys/class/net")))
}

/// Instances that run.
pub(crate) fn instances() -> Vec<CompletionCandidate> {
    candidates(instances::running(&runtime_dir()))
}

/// Source addresses of connections on the fast path.
pub(crate) fn sources() -> Vec<CompletionCandidate> {
    addresses(|tuple| tuple.source().ip().to_string())
}

/// Destination addresses of connections on the fast path.
pub(crate) fn destinations() -> Vec<CompletionCandidate> {
    addresses(|tuple| tuple.destination().ip().to_string())
}

fn candidates(names: BTreeSet<String>) -> Vec<CompletionCandidate> {
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Nothing if the daemon does not answer soon.
fn addresses(address: impl Fn(&Tuple) -> String) -> Vec<CompletionCandidate> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let connections = runtime.block_on(async {
        let client = Client::new(&instance());
        let asked = client.get::<Vec<Connection>>("/v1/flows?rate_over_ms=0");
        tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()
    });
    let all: BTreeSet<String> = connections.iter().flatten().map(|one| address(&one.orig)).collect();
    candidates(all)
}

/// The instance that is named on the line which the shell completes.
fn instance() -> Instance {
    let words: Vec<String> = env::args().collect();
    let named = words.windows(2).find(|pair| pair[0] == "--instance");
    named.and_then(|pair| pair[1].parse().ok()).unwrap_or_default()
}
