//! Messages to the service manager (sd_notify(3)): the daemon serves, is alive, or stops. Without NOTIFY_SOCKET nothing
//! is sent.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// The service manager that started the daemon, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    /// How often to report that the event loop runs: a third of the watchdog's timeout. `None` without a watchdog.
    interval: Option<Duration>,
    last: Instant,
}

impl ServiceManager {
    /// Reports that the control socket is served.
    pub(crate) fn ready() -> Self {
        notify(NotifyState::Ready);
        let mut timeout_us = 0;
        let has_watchdog = sd_notify::watchdog_enabled(false, &mut timeout_us);
        let interval = has_watchdog.then(|| Duration::from_micros(timeout_us) / 3);
        Self { interval, last: Instant::now() }
    }

    /// Reports that the event loop runs, if a report is due. To be called at each tick.
    pub(crate) fn tick(&mut self) {
        if self.interval.is_some_and(|interval| self.last.elapsed() >= interval) {
            self.last = Instant::now();
            notify(NotifyState::Watchdog);
        }
    }

    /// Reports that the daemon stops on request.
    pub(crate) fn stopping(&self) {
        notify(NotifyState::Stopping);
    }
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        tracing::warn!("cannot notify the service manager at NOTIFY_SOCKET: {error}");
    }
}
