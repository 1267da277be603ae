//! The data plane's events: gathers them for a moment, and translates them for the policy.

use super::Daemon;
use shunt_bpf::{Ring, abi};
use shunt_core::{Connection, Correction, CorrectionKind, Event, Proto, TrackedDirection};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Events are gathered for this long after the first one. A connection that ends within this time costs nothing.
const GATHER: Duration = Duration::from_millis(5);

/// The ring buffer that the programs write events to.
pub(super) struct DataPlaneEvents {
    /// `None` if the data plane learns nothing.
    ring: Option<Ring<abi::Event>>,
    /// When the events gathered so far are taken; `None` while there are none.
    due: Option<Instant>,
}

impl DataPlaneEvents {
    pub(super) fn new(ring: Option<Ring<abi::Event>>) -> Self {
        Self { ring, due: None }
    }

    /// Waits until gathered events are due; forever if the data plane learns nothing. May be dropped at any time.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        let due = match (self.due, &self.ring) {
            (Some(due), _) => due,
            (None, Some(ring)) => {
                ring.wait().await?;
                *self.due.insert(Instant::now() + GATHER)
            }
            (None, None) => return std::future::pending().await,
        };
        sleep_until(due).await;
        Ok(())
    }
}

impl Daemon {
    /// Handles the gathered events, and starts the conntrack updates that they ask for.
    pub(super) fn on_data_plane_events(&mut self, events: &mut DataPlaneEvents) {
        for event in events.ring.as_mut().map(Ring::take).unwrap_or_default() {
            if event.kind == abi::EVENT_WAKE {
                self.wake();
            } else if let Some(event) = policy_event(&event) {
                self.handle(event);
            }
        }
        events.due = None;
        self.update_conntrack();
    }
}

/// `None` for a kind of event that this version does not know.
fn policy_event(event: &abi::Event) -> Option<Event> {
    let direction = connection(event);
    let tracked = TrackedDirection { direction, reply: event.reply != 0 };
    let correct = |kind| Some(Event::Correct(Correction { of: tracked, kind, idle_s: event.value }));
    match event.kind {
        abi::EVENT_SET_LIBERAL => Some(Event::WantLiberal(direction)),
        abi::EVENT_SILENT => Some(Event::Silent(tracked)),
        abi::EVENT_LAGS => correct(CorrectionKind::Lags),
        abi::EVENT_ENDED => correct(CorrectionKind::Ended),
        abi::EVENT_IN_WINDOW => correct(CorrectionKind::Near),
        abi::EVENT_BLIND => correct(CorrectionKind::Blind),
        abi::EVENT_TX_ERROR => {
            Some(Event::TxError { ifindex: event.ifindex, error: error_text(event.value) })
        }
        _ => None,
    }
}

/// The text of strerror(3), without the number that the standard library appends.
fn error_text(number: u32) -> String {
    let text = io::Error::from_raw_os_error(number as i32).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn connection(event: &abi::Event) -> Connection {
    let addr = |bytes: [u8; 16]| -> IpAddr {
        if event.family == 4 {
            <[u8; 4]>::try_from(&bytes[..4]).map(IpAddr::from).unwrap_or(IpAddr::from(bytes))
        } else {
            IpAddr::from(bytes)
        }
    };
    Connection {
        proto: Proto::Tcp,
        src: SocketAddr::new(addr(event.src_be), u16::from_be_bytes(event.sport_be)),
        dst: SocketAddr::new(addr(event.dst_be), u16::from_be_bytes(event.dport_be)),
    }
}
