//! Who is connected, and who has to go when there are too many.

use axum::http::Method;
use nix::unistd::geteuid;
use shunt_api::{Failure, FailureCode};
use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::{
    net::UnixStream,
    task::{AbortHandle, JoinSet},
};

/// Clients at a time. One that has not asked yet costs a descriptor and some kilobytes.
const GUESTS_MAX: usize = 256;

/// On whose behalf a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// Root, or whom the daemon runs as.
    Owner,
    /// Another user, whom the socket's group lets in.
    Reader(u32),
    /// Whoever reaches the address of the metrics.
    Network,
}

impl Who {
    /// The process at the other end, as the kernel knows it.
    pub(super) fn is_at(stream: &UnixStream) -> Self {
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(uid) if uid == 0 || uid == geteuid().as_raw() => Self::Owner,
            Ok(uid) => Self::Reader(uid),
            // It has gone.
            Err(_) => Self::Reader(u32::MAX),
        }
    }

    /// Why it may not do this; none if it may.
    pub(super) fn refused(self, method: &Method) -> Option<Failure> {
        if self == Self::Owner || *method == Method::GET || *method == Method::HEAD {
            return None;
        }
        let why = match self {
            Self::Network => "this address is for reading metrics only (GET)".to_owned(),
            _ => format!("members of the read_group may only read (GET); use sudo for {method}"),
        };
        Some(Failure::new(FailureCode::ReadOnly, why))
    }
}

/// The clients, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Guests {
    tasks: JoinSet<()>,
    list: Vec<Guest>,
}

#[derive(Debug)]
struct Guest {
    who: Who,
    /// Whether it has sent a request.
    asked: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Guests {
    /// Lets a client in. Somebody else has to go for it if there are too many already.
    pub(super) fn admit(
        &mut self,
        who: Who,
        asked: Arc<AtomicBool>,
        client: impl Future<Output = ()> + Send + 'static,
    ) {
        while self.tasks.try_join_next().is_some() {}
        self.list.retain(|guest| !guest.task.is_finished());
        if self.list.len() >= GUESTS_MAX {
            if let Some(at) = self.one_too_many() {
                self.list.remove(at).task.abort();
            }
        }
        let task = self.tasks.spawn(client);
        self.list.push(Guest { who, asked, task });
    }

    /// Of those who have the most clients here, the one who has been silent for longest; so nobody can crowd out another
    /// user, nor one who asks at once.
    fn one_too_many(&self) -> Option<usize> {
        let mut counts = BTreeMap::<Who, usize>::new();
        for guest in &self.list {
            *counts.entry(guest.who).or_default() += 1;
        }
        let (crowd, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let silent = |guest: &Guest| guest.who == crowd && !guest.asked.load(Ordering::Relaxed);
        self.list.iter().position(silent).or_else(|| self.list.iter().position(|guest| guest.who == crowd))
    }

    /// Waits until all are gone.
    pub(super) async fn leave(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
