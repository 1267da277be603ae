//! Waits, on a thread of its own, until the kernel has finished changes that it announces before it makes them. The
//! RTNL lock may be held for seconds, and the event loop must not wait for it.

use crate::signals::start_thread;
use shunt_core::{Cause, Scope};
use shunt_kernel::Rtnl;
use std::{collections::BTreeSet, sync::mpsc, thread};
use tokio::sync::mpsc as events;

/// A change, and what it concerns.
pub(crate) type Change = (Cause, Scope);

/// Starts the thread. A change sent to the first channel comes back on the second one when the kernel has
/// finished it. Changes that are sent during a wait share the next one.
pub(crate) fn start() -> (mpsc::Sender<Change>, events::Receiver<BTreeSet<Change>>) {
    let (request, requests) = mpsc::channel();
    let (finish, finished) = events::channel(16);
    start_thread(|| thread::spawn(move || run(&requests, &finish)));
    (request, finished)
}

/// Returns when either channel is closed.
fn run(requests: &mpsc::Receiver<Change>, finish: &events::Sender<BTreeSet<Change>>) {
    let mut rtnl = Rtnl::open();
    while let Ok(first) = requests.recv() {
        let changes: BTreeSet<Change> = std::iter::once(first).chain(requests.try_iter()).collect();
        // If the wait fails, the changes are reported all the same: the epoch must move once more.
        if let Err(error) = rtnl
            .as_mut()
            .map_err(|error| error.to_string())
            .and_then(|rtnl| rtnl.wait().map_err(|error| error.to_string()))
        {
            tracing::debug!("cannot wait for the RTNL lock: {error}");
        }
        if finish.blocking_send(changes).is_err() {
            return;
        }
    }
}
