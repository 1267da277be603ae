//! The control socket: HTTP/1.1 over a Unix socket, on a thread of its own. Each request becomes one [`Call`] to the
//! daemon's loop, which answers at once; what takes long is done here.
//!
//! Invariant: whatever comes in by the socket, the daemon goes on. A client is here for a bounded time
//! (`shunt-http`). Those that watch, at most [`WATCHERS_MAX`], stay longer.

mod guests;
mod list;
mod metrics;
mod routes;
mod socket;
mod watch;

pub use metrics::Metered;
pub use routes::document;
pub use socket::{Listeners, bind, clean_up, unbind};

use crate::why::{Asked, Found};
use guests::Who;
use hyper::{Request, body::Incoming};
use shunt_api::{
    Connection, Explained, Failure, Selection, StaticRemoval, StaticTable, Status, TrackedTable, WatchEvent,
};
use shunt_http::Guests;
use std::{
    fmt,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    io,
    net::{TcpListener, TcpStream, UnixListener},
    runtime,
    sync::{broadcast, mpsc, oneshot},
    task::yield_now,
    time::timeout,
};

/// Something that the daemon's loop is asked to do, and where its answer goes.
#[derive(Debug)]
pub enum Call {
    /// The whole state.
    Status(oneshot::Sender<Status>),
    /// What the metrics are made from.
    Metrics(oneshot::Sender<Metered>),
    /// Every connection. The answer is where they can be read.
    Flows(oneshot::Sender<Box<dyn FlowSource>>),
    /// Connections to be explained. The answer is how to find them.
    Find(Selection, oneshot::Sender<Job<Found>>),
    /// Why some of these are fast or slow.
    Explain(Vec<Asked>, oneshot::Sender<Result<Vec<Explained>, Failure>>),
    /// Conntrack's table. The answer is how to read it.
    Conntrack(oneshot::Sender<Job<TrackedTable>>),
    /// What happens to flows, from now on.
    Watch(oneshot::Sender<Result<broadcast::Receiver<WatchEvent>, Failure>>),
    /// Retire every learned flow. The answer is how many there were.
    Flush(oneshot::Sender<u64>),
    /// Undo everything and end. To be answered when all is undone.
    Stop(oneshot::Sender<()>),
    /// Add or replace; the table has passed [`StaticTable::check`]. The answer is how many flows and routes changed.
    AddStatic(StaticTable, oneshot::Sender<Result<u64, Failure>>),
    /// Remove. The answer is how many flows and routes there were.
    DelStatic(StaticRemoval, oneshot::Sender<Result<u64, Failure>>),
    /// Everything that was put in by hand.
    ListStatic(oneshot::Sender<StaticTable>),
}

/// What takes long, and is done apart from the daemon's loop.
pub struct Job<T>(Box<dyn FnOnce() -> Result<T, Failure> + Send>);

impl<T> Job<T> {
    /// To be done later, on another thread.
    pub fn new(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    fn run(self) -> Result<T, Failure> {
        self.0()
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// Connections, made one by one.
pub type Listing = Box<dyn Iterator<Item = Connection> + Send>;

/// Where connections are read, apart from the daemon's loop. Both take as long as the flow table is large.
pub trait FlowSource: fmt::Debug + Send {
    /// Remembers the counts, for rates from now on. Without it, rates are over the life of each flow.
    fn sample(&mut self);
    /// All connections as they are now.
    fn list(self: Box<Self>) -> Listing;
}

/// The server on its thread.
#[derive(Debug)]
pub struct Server(JoinHandle<()>);

impl Server {
    /// Waits until the last answers have left. To be called when the receiver of calls is dropped.
    pub fn wait(self) {
        if self.0.join().is_err() {
            tracing::error!("the control socket's thread has failed");
        }
    }
}

/// Serves clients on a thread of its own.
///
/// # Errors
/// When there can be no such thread.
pub fn start(listeners: Listeners, calls: mpsc::Sender<Call>) -> io::Result<Server> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2 * LISTS_MAX)
        .thread_name("shuntd-list")
        .build()?;
    let thread = thread::Builder::new().name("shuntd-control".to_owned()).spawn(move || {
        if let Err(error) = runtime.block_on(serve(listeners, calls)) {
            tracing::error!("control socket: {error}");
        }
        // A list that nobody waits for any more keeps nobody waiting.
        runtime.shutdown_background();
    })?;
    Ok(Server(thread))
}

const WATCHERS_MAX: usize = 8;
/// Answers as long as the flow table, at a time; as many again for those who may only read.
const LISTS_MAX: usize = 2;
/// How long the last answers may take at the end.
const LINGER: Duration = Duration::from_secs(1);

/// Answers clients until the receiver of `calls` is dropped, then lets the answers that are under way leave.
///
/// So that the client of [`Call::Stop`] gets its answer, the daemon drops the receiver and awaits this before it ends.
pub async fn serve(listeners: Listeners, calls: mpsc::Sender<Call>) -> io::Result<()> {
    let control = UnixListener::from_std(listeners.control)?;
    let metrics = listeners.metrics.map(TcpListener::from_std).transpose()?;
    let (all, metrics_only) = (routes::router(calls.clone()), routes::metrics_router(calls.clone()));
    let mut guests = Guests::default();
    loop {
        let admitted = tokio::select! {
            () = calls.closed() => break,
            accepted = control.accept() => accepted.map(|(stream, _)| {
                let who = Who::is_at(&stream);
                guests.host(who, stream, &all, may(who));
            }),
            accepted = accept(metrics.as_ref()) => accepted.map(|stream| {
                guests.host(Who::Network, stream, &metrics_only, may(Who::Network));
            }),
        };
        if let Err(error) = admitted {
            tracing::warn!("control socket: cannot accept a client: {error}");
            // Out of descriptors or memory: without a pause this would be a busy loop.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Whoever has asked already is heard before the next one comes in.
        yield_now().await;
    }
    let _ = timeout(LINGER, guests.leave()).await;
    Ok(())
}

fn may(who: Who) -> impl Fn(&Request<Incoming>) -> Option<Failure> {
    move |request| who.refused(request.method())
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
