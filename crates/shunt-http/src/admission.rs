//! Admission: a limit for concurrent clients, and which client must make room for a new one.

use crate::{Refusal, exchange::serve_within_limits, stream::Stream};
use axum::Router;
use hyper::{Request, body::Incoming};
use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::task::{AbortHandle, JoinSet};

/// The most concurrent clients. A client without a request costs a file descriptor and some kilobytes.
const CLIENTS_MAX: usize = 256;

/// The clients that are being served. `W` identifies a client's user: the limit is fair between users, not connections.
#[derive(Debug)]
pub struct Admission<W> {
    tasks: JoinSet<()>,
    /// The oldest client first.
    clients: Vec<Client<W>>,
}

#[derive(Debug)]
struct Client<W> {
    user: W,
    /// Whether the client has sent a request.
    has_request: Arc<AtomicBool>,
    task: AbortHandle,
}

impl<W> Default for Admission<W> {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), clients: Vec::new() }
    }
}

impl<W: Copy + Ord + Send + Sync + 'static> Admission<W> {
    /// Serves one request of a client, in a task of its own. The request gets `user` and [`Watched`](crate::Watched) as
    /// extensions. `refused` may refuse it instead.
    pub fn serve(
        &mut self,
        user: W,
        stream: impl Stream,
        router: &Router,
        refused: impl Fn(&Request<Incoming>) -> Option<Refusal> + Send + Sync + 'static,
    ) {
        let has_request = Arc::new(AtomicBool::new(false));
        let client = serve_within_limits(stream, user, Arc::clone(&has_request), router.clone(), refused);
        self.admit(user, has_request, client);
    }

    /// Starts to serve a client. Ends another client if there are too many.
    fn admit(
        &mut self,
        user: W,
        has_request: Arc<AtomicBool>,
        client: impl Future<Output = ()> + Send + 'static,
    ) {
        while self.tasks.try_join_next().is_some() {}
        self.clients.retain(|client| !client.task.is_finished());
        if self.clients.len() >= CLIENTS_MAX
            && let Some(at) = self.client_to_end()
        {
            self.clients.remove(at).task.abort();
        }
        let task = self.tasks.spawn(client);
        self.clients.push(Client { user, has_request, task });
    }

    /// The index of the client to end: of the user with the most clients, the oldest one without a request, or else the
    /// oldest. So no user can crowd out another, nor a client that sends its request at once.
    fn client_to_end(&self) -> Option<usize> {
        let mut counts = BTreeMap::<W, usize>::new();
        for client in &self.clients {
            *counts.entry(client.user).or_default() += 1;
        }
        let (user, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let is_silent =
            |client: &Client<W>| client.user == user && !client.has_request.load(Ordering::Relaxed);
        let oldest = || self.clients.iter().position(|client| client.user == user);
        self.clients.iter().position(is_silent).or_else(oldest)
    }

    /// Waits until every client has been served.
    pub async fn wait_idle(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
