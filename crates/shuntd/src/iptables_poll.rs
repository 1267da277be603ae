//! Polls the rules of legacy iptables on a thread of its own: the kernel reports no changes of them, and takes some
//! milliseconds to copy out a large table.

use crate::signals::start_thread;
use shunt_core::Event;
use shunt_kernel::{LegacyIptables, LegacyRules};
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

/// What a read has found.
#[derive(Debug)]
pub(crate) struct LegacyRead {
    /// What the policy must know.
    pub(crate) event: Event,
    /// A number that stands for the rules; `None` if they cannot be read.
    pub(crate) digest: Option<u64>,
    /// The tables that have changed since the last read.
    pub(crate) changed: Vec<String>,
}

impl From<LegacyRules> for LegacyRead {
    fn from(rules: LegacyRules) -> Self {
        let LegacyRules { statements, digest, changed } = rules;
        Self { event: Event::LegacyRead(statements), digest: Some(digest), changed }
    }
}

/// Starts the thread, which sends the rules once at first, and again whenever they have changed.
pub(crate) fn start() -> mpsc::Receiver<LegacyRead> {
    let (sender, receiver) = mpsc::channel(1);
    start_thread(|| thread::spawn(move || run(&sender)));
    receiver
}

/// Returns when the receiver is dropped.
fn run(sender: &mpsc::Sender<LegacyRead>) {
    let mut iptables = LegacyIptables::default();
    let mut last_error = None;
    while !sender.is_closed() {
        let since = Instant::now();
        let read = match iptables.read_if_changed() {
            Ok(rules) => {
                last_error = None;
                rules.map(LegacyRead::from)
            }
            Err(error) => {
                let text = Some(error.to_string());
                let is_new = last_error != text;
                last_error = text;
                is_new.then(|| {
                    tracing::warn!(
                        "cannot read the rules of legacy iptables: {error}; nothing is learned until they can be read"
                    );
                    let event = Event::LegacyUnread(error.to_string());
                    LegacyRead { event, digest: None, changed: Vec::new() }
                })
            }
        };
        if read.is_some_and(|read| sender.blocking_send(read).is_err()) {
            return;
        }
        thread::sleep((since.elapsed() * PAUSE_PER_READ).clamp(PAUSE_MIN, PAUSE_MAX));
    }
}
