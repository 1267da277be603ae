//! The rules of legacy iptables, on a thread of its own: nobody tells of their changes, and the kernel takes some
//! milliseconds to copy out a large table.

use shunt_core::Event;
use shunt_kernel::Legacy;
use std::{
    thread,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Between two looks, ...
const PERIOD: Duration = Duration::from_millis(500);
/// ... of which looking takes no more than this part, ...
const SHARE: u32 = 50;
/// ... unless even this is too short for it. By then flows have been proved anew.
const PERIOD_MAX: Duration = Duration::from_secs(2);

/// The rules as they are, and then each time that they have changed.
pub(crate) fn watch() -> mpsc::Receiver<Event> {
    let (tell, told) = mpsc::channel(1);
    thread::spawn(move || look_on(&tell));
    told
}

/// Ends when nobody listens any more.
fn look_on(tell: &mpsc::Sender<Event>) {
    let mut legacy = Legacy::default();
    let mut failed = None;
    while !tell.is_closed() {
        let since = Instant::now();
        let news = match legacy.look() {
            Ok(statements) => {
                failed = None;
                statements.map(Event::LegacyRead)
            }
            Err(error) => {
                let why = Some(error.to_string());
                let is_new = failed != why;
                failed = why;
                is_new.then(|| {
                    tracing::warn!(
                        "the rules of legacy iptables cannot be read, so nothing is learned: {error}"
                    );
                    Event::LegacyUnread(error.to_string())
                })
            }
        };
        if news.is_some_and(|news| tell.blocking_send(news).is_err()) {
            return;
        }
        thread::sleep((since.elapsed() * SHARE).clamp(PERIOD, PERIOD_MAX));
    }
}
