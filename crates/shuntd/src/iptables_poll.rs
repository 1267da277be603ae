//! Polls the rules of legacy iptables on a thread of its own: the kernel reports no changes of them, and takes some
//! milliseconds to copy out a large table.

use shunt_core::Event;
use shunt_kernel::LegacyIptables;
use std::{
    thread,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// The shortest pause between two reads.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The pause is this many times as long as the read, ...
const PAUSE_PER_READ: u32 = 50;
/// ... but no longer than this: after two seconds flows have been proved again anyway.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Starts the thread, which sends the rules once at first, and again whenever they have changed.
pub(crate) fn start() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || run(&sender));
    receiver
}

/// Returns when the receiver is dropped.
fn run(sender: &mpsc::Sender<Event>) {
    let mut iptables = LegacyIptables::default();
    let mut last_error = None;
    while !sender.is_closed() {
        let since = Instant::now();
        let event = match iptables.read_if_changed() {
            Ok(statements) => {
                last_error = None;
                statements.map(Event::LegacyRead)
            }
            Err(error) => {
                let text = Some(error.to_string());
                let is_new = last_error != text;
                last_error = text;
                is_new.then(|| {
                    tracing::warn!(
                        "cannot read the rules of legacy iptables: {error}; nothing is learned until they can be read"
                    );
                    Event::LegacyUnread(error.to_string())
                })
            }
        };
        if event.is_some_and(|event| sender.blocking_send(event).is_err()) {
            return;
        }
        thread::sleep((since.elapsed() * PAUSE_PER_READ).clamp(PAUSE_MIN, PAUSE_MAX));
    }
}
