//! The control socket: HTTP/1.1 over a Unix socket, on a thread of its own. Each request becomes one [`Call`] to the
//! daemon's loop, which answers at once; what takes long is done here.
//!
//! Invariant: whatever comes in by the socket, the daemon goes on. A client is here for at most [`CONNECTION_TIME`], and
//! has to make room for others before that if there are too many. Those that watch, at most [`WATCHERS_MAX`], stay longer.

mod guests;
mod list;
mod metrics;
mod routes;
mod socket;
mod watch;

pub use metrics::Metered;
pub use routes::document;
pub use socket::{Listeners, bind, unbind};

use crate::why::{Candidate, Found};
use axum::Router;
use guests::{Guests, Who};
use hyper::{
    Request, StatusCode,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use shunt_api::{
    Connection, ErrorBody, Explained, Failure, FailureCode, Selection, StaticRemoval, StaticTable, Status,
    TrackedTable, WatchEvent,
};
use socket::{Stream, Unasked};
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
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
    Explain(Vec<Candidate>, oneshot::Sender<Result<Vec<Explained>, Failure>>),
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
const CONNECTION_TIME: Duration = Duration::from_secs(30);
const HEADER_TIME: Duration = Duration::from_secs(3);
const HEADER_BYTES: usize = 16 * 1024;
/// How long a client may leave an answer unread.
const STALL_TIME: Duration = Duration::from_secs(5);
/// Answers as long as the flow table, at a time; as many again for those who may only read.
const LISTS_MAX: usize = 2;
/// How long a client is listened to after it was refused, and how long the last answers may take at the end.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 1 << 20;

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
                guests.host(Who::is_at(&stream), stream, &all);
            }),
            accepted = accept(metrics.as_ref()) => accepted.map(|stream| {
                guests.host(Who::Network, stream, &metrics_only);
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

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

impl Guests {
    fn host(&mut self, who: Who, stream: impl Stream, router: &Router) {
        let asked = Arc::new(AtomicBool::new(false));
        self.admit(who, Arc::clone(&asked), in_time(stream, who, asked, router.clone()));
    }
}

/// Whether a client watches: its answer has no end.
#[derive(Debug, Clone, Default)]
struct Watched(Arc<AtomicBool>);

impl Watched {
    fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that takes too long is left without an answer: it was not reading, or not sending.
async fn in_time(stream: impl Stream, who: Who, asked: Arc<AtomicBool>, router: Router) {
    let watched = Watched::default();
    let mut client = pin!(converse(stream, who, asked, router, watched.clone()));
    if timeout(CONNECTION_TIME, &mut client).await.is_err() && watched.0.load(Ordering::Relaxed) {
        client.await;
    }
}

/// One request and its answer. What cannot be understood as HTTP is refused in JSON as well, which hyper would not do.
async fn converse(stream: impl Stream, who: Who, asked: Arc<AtomicBool>, router: Router, watched: Watched) {
    let mut stream = Unasked::new(stream, Arc::clone(&asked));
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(who);
        request.extensions_mut().insert(watched.clone());
        let refused = who.refused(request.method());
        let answer = router.call(request);
        async move {
            match refused {
                Some(failure) => Ok(routes::refusal(failure)),
                None => answer.await,
            }
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(&mut stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("control socket: {error}");
        if !asked.load(Ordering::Relaxed) {
            let _ = timeout(LINGER, refuse(stream.into_inner(), &error)).await;
        }
    }
}

/// Says why, and then reads on for a while: to close with something unread would reset the connection, and a client that
/// still writes would not see the answer.
async fn refuse(mut stream: impl Stream, error: &hyper::Error) -> io::Result<()> {
    let (status, why) = if error.is_timeout() {
        (StatusCode::REQUEST_TIMEOUT, "the request did not come to its end in time".to_owned())
    } else if error.is_parse_too_large() {
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's headers are too long".to_owned())
    } else {
        (StatusCode::BAD_REQUEST, format!("not a request of HTTP/1.1: {error}"))
    };
    let body = ErrorBody { error: Failure::new(FailureCode::BadRequest, why) };
    let body = serde_json::to_string(&body)?;
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    io::copy(&mut (&mut stream).take(LINGER_BYTES), &mut io::sink()).await.map(|_| ())
}

#[cfg(test)]
mod tests;
