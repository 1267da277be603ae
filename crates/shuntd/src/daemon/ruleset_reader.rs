//! Reads the nftables ruleset in the background of the event loop.

use shunt_core::Event;
use std::{pin::Pin, time::Duration};

/// The read that is in progress, if there is one.
#[derive(Default)]
pub(super) struct RulesetReader {
    reading: Option<Pin<Box<dyn Future<Output = Event> + Send>>>,
}

impl RulesetReader {
    /// Begins a read after a pause. Replaces a read in progress.
    pub(super) fn start(&mut self, after: Duration) {
        self.reading = Some(Box::pin(read_ruleset(after)));
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Waits for the result of the read in progress; forever if there is none. May be dropped at any time.
    pub(super) async fn result(&mut self) -> Event {
        match &mut self.reading {
            Some(reading) => {
                let event = reading.await;
                self.reading = None;
                event
            }
            None => std::future::pending().await,
        }
    }
}

async fn read_ruleset(after: Duration) -> Event {
    tokio::time::sleep(after).await;
    match shunt_kernel::read_ruleset().await {
        Ok(statements) => Event::RulesetRead(statements),
        Err(error) => {
            tracing::warn!(
                "cannot read the nftables ruleset: {error}; nothing is learned until it can be read"
            );
            Event::RulesetUnread(error.to_string())
        }
    }
}
