//! Messages to the service manager (sd_notify(3)): the daemon serves, is alive, or stops. Without NOTIFY_SOCKET nothing
//! is sent.

use sd_notify::NotifyState;
use std::{
    env,
    time::{Duration, Instant},
};

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
        Self::served()
    }

    /// For a daemon that has taken over: the service manager knows that it is ready.
    pub(crate) fn served() -> Self {
        Self { interval: watchdog_timeout().map(|timeout| timeout / 3), last: Instant::now() }
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

/// Reports that the next daemon is the main process of the service from now on. To be called by the daemon before.
pub(crate) fn is_now(pid: u32) {
    notify(NotifyState::MainPid(pid));
}

/// As sd_watchdog_enabled(3). The next daemon gets no WATCHDOG_PID.
fn watchdog_timeout() -> Option<Duration> {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>());
    let timeout = number("WATCHDOG_USEC")?.ok()?;
    let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != Ok(std::process::id().into()));
    (!is_other && timeout > 0).then(|| Duration::from_micros(timeout))
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        tracing::warn!("cannot notify the service manager at NOTIFY_SOCKET: {error}");
    }
}
