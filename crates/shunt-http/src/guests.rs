//! Who is connected, and who has to go when there are too many.

use crate::{conversation::in_time, stream::Stream};
use axum::Router;
use hyper::{Request, body::Incoming};
use shunt_api::Failure;
use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::task::{AbortHandle, JoinSet};

/// Clients at a time. One that has not asked yet costs a descriptor and some kilobytes.
const GUESTS_MAX: usize = 256;

/// The clients, the oldest first.
#[derive(Debug)]
pub struct Guests<W> {
    tasks: JoinSet<()>,
    list: Vec<Guest<W>>,
}

#[derive(Debug)]
struct Guest<W> {
    who: W,
    /// Whether it has sent a request.
    asked: Arc<AtomicBool>,
    task: AbortHandle,
}

impl<W> Default for Guests<W> {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), list: Vec::new() }
    }
}

impl<W: Copy + Ord + Send + Sync + 'static> Guests<W> {
    /// Serves a client on behalf of somebody: one request, which has `who` and [`Watched`] among its extensions, unless it is refused.
    pub fn host(
        &mut self,
        who: W,
        stream: impl Stream,
        router: &Router,
        refused: impl Fn(&Request<Incoming>) -> Option<Failure> + Send + Sync + 'static,
    ) {
        let asked = Arc::new(AtomicBool::new(false));
        let client = in_time(stream, who, Arc::clone(&asked), router.clone(), refused);
        self.admit(who, asked, client);
    }

    /// Lets a client in. Somebody else has to go for it if there are too many already.
    fn admit(&mut self, who: W, asked: Arc<AtomicBool>, client: impl Future<Output = ()> + Send + 'static) {
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
        let mut counts = BTreeMap::<W, usize>::new();
        for guest in &self.list {
            *counts.entry(guest.who).or_default() += 1;
        }
        let (crowd, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let silent = |guest: &Guest<W>| guest.who == crowd && !guest.asked.load(Ordering::Relaxed);
        self.list.iter().position(silent).or_else(|| self.list.iter().position(|guest| guest.who == crowd))
    }

    /// Waits until all are gone.
    pub async fn leave(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
