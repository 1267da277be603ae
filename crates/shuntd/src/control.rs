//! The control socket: HTTP/1.1 over a Unix socket, on a thread of its own. Each request becomes one [`Call`] to the
//! event loop, which answers at once; work that takes long is done on this side.
//!
//! Invariant: no input of a client can crash or block the daemon. A client is connected for a bounded time
//! (`shunt-http`), except for the few that watch, and those that read a long answer without stopping.

mod admission;
mod busiest;
mod event_stream;
mod long_answer;
mod metrics;
mod page;
mod routes;
mod share;
mod socket;
mod stored_reports;

pub use crate::usage::HostTotals;
pub use metrics::MetricsSource;
#[cfg(not(feature = "small"))]
pub use routes::openapi_document;
pub use socket::{Listeners, bind, clean_up, unbind};
pub(crate) use socket::{NewListeners, check, group, let_read};

pub use crate::connection_search::Found;
use crate::{connection_search::Candidate, history::Range, signals::start_thread};
use admission::{Client, PageAccess};
use hyper::{Request, body::Incoming};
use shunt_api::{
    Connection, Explained, Failure, HistoryTable, OffRemoval, OffRequest, OffRule, QosRemoval, QosStatus,
    QosTable, Reload, ReloadRequest, Restart, Selection, SlowTable, StaticRemoval, StaticTable, Status,
    TapRequest, Tracked, Tuple, Usage, UsageQuery, Verified, WatchEvent,
};
use shunt_http::{Admission, Hosts, Refusal};
use std::{
    fmt,
    net::IpAddr,
    thread::{self, JoinHandle},
    time::Duration,
};
use stored_reports::ReportsDirectory;
use tokio::{
    io,
    net::{TcpListener, TcpStream, UnixListener},
    runtime,
    sync::{broadcast, mpsc, oneshot},
    task::yield_now,
    time::timeout,
};

/// A request to the event loop, and the channel for its answer.
#[derive(Debug)]
pub enum Call {
    /// Return the status.
    Status(oneshot::Sender<Status>),
    /// Return what the metrics are made from.
    Metrics(oneshot::Sender<MetricsSource>),
    /// List all connections. The answer is a source that reads them on another thread.
    Flows(oneshot::Sender<Box<dyn FlowSource>>),
    /// Find the connections that Linux forwards. The answer is a job for another thread that takes a sample of counts,
    /// if rates are wanted, and returns the job that compares with it.
    Slow(bool, oneshot::Sender<Job<Job<SlowTable>>>),
    /// Find the connections of a selection. The answer is a job that finds them on another thread.
    Find(Selection, oneshot::Sender<Job<Found>>),
    /// Find these connections, by protocol and original direction. The answer is a job that finds them on another
    /// thread.
    FindNamed(Vec<(u8, Tuple)>, oneshot::Sender<Job<Found>>),
    /// Explain why connections are fast or slow.
    Explain(Vec<Candidate>, oneshot::Sender<Result<Vec<Explained>, Failure>>),
    /// Read conntrack's table. The answer is a job that reads it on another thread.
    Conntrack(oneshot::Sender<Job<TrackedEntries>>),
    /// Return a range of the history. The answer is a job that merges it on another thread.
    History(Range, oneshot::Sender<Job<HistoryTable>>),
    /// Note in the history what `shunt verify` has found.
    Verified(Verified, oneshot::Sender<()>),
    /// Measure the programs for some seconds.
    MeasurePrograms(oneshot::Sender<()>),
    /// Subscribe to what happens to flows from now on.
    Watch(oneshot::Sender<Result<broadcast::Receiver<WatchEvent>, Failure>>),
    /// Say what hosts have used. The answer is a job that reads the counters and the ledger on another thread.
    Usage(UsageQuery, oneshot::Sender<Result<Job<Usage>, Failure>>),
    /// Retire every learned flow. The answer is their number.
    Flush(oneshot::Sender<u64>),
    /// Read the configuration again. The answer comes when the ports are as it wants them.
    Reload(ReloadRequest, oneshot::Sender<Result<Reload, Failure>>),
    /// Detach from all ports and exit. Answered after everything is undone.
    Stop(oneshot::Sender<()>),
    /// Start the next daemon, which takes over. The answer comes when it has been started.
    Restart(oneshot::Sender<Result<Restart, Failure>>),
    /// Return how far the restart is.
    RestartProgress(oneshot::Sender<Restart>),
    /// Add or replace static flows and routes; the table has passed [`StaticTable::check`]. The answer is how many
    /// there are in the table.
    AddStatic(StaticTable, oneshot::Sender<Result<u64, Failure>>),
    /// Remove static flows and routes. The answer is how many were removed.
    DelStatic(StaticRemoval, oneshot::Sender<Result<u64, Failure>>),
    /// Return all static flows and routes.
    ListStatic(oneshot::Sender<StaticTable>),
    /// Add a rule of `shunt off`. The answer is the number of rules, and a job for another thread that keeps them.
    AddOff(OffRequest, oneshot::Sender<Result<(u64, Job<()>), Failure>>),
    /// Remove rules of `shunt off`. The answer is how many, and a job for another thread that keeps the others.
    DelOff(OffRemoval, oneshot::Sender<Result<(u64, Job<()>), Failure>>),
    /// Return the rules of `shunt off`.
    ListOff(oneshot::Sender<Vec<OffRule>>),
    /// Attach programs that see the frames which XDP forwards. The answer is the number of ports, when it is done.
    AddTaps(TapRequest, oneshot::Sender<Result<u64, Failure>>),
    /// Detach these programs. The answer is the number of ports, when it is done.
    DelTaps(oneshot::Sender<u64>),
    /// Return the queues of the ports, with their counters.
    Qos(oneshot::Sender<Vec<QosStatus>>),
    /// Set the queues of ports; the table has passed [`shunt_api::check_qos`]. The answer is the number of ports.
    SetQos(QosTable, oneshot::Sender<Result<u64, Failure>>),
    /// Remove the queues of ports. The answer is the number of ports.
    DelQos(QosRemoval, oneshot::Sender<Result<u64, Failure>>),
}

/// Work that takes long and is done on another thread than the event loop's.
pub struct Job<T>(Box<dyn FnOnce() -> Result<T, Failure> + Send>);

impl<T> Job<T> {
    /// Wraps the work.
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

/// Connections, each made when the iterator is asked for it. Nothing follows a failure.
pub type Listing = Box<dyn Iterator<Item = Result<Connection, Failure>> + Send>;

/// Conntrack's table, read as the iterator is asked for its entries.
pub struct TrackedEntries {
    /// Whether conntrack counts packets.
    pub counted: bool,
    /// The entries, in the order of the kernel. Nothing follows a failure.
    pub entries: Box<dyn Iterator<Item = Result<Tracked, Failure>> + Send>,
}

/// Reads connections on another thread than the event loop's. Both methods take as long as the flow table is large.
pub trait FlowSource: fmt::Debug + Send {
    /// Stores the counts, so that rates are those from now on. Without a sample, rates are over the life of each flow.
    fn sample(&mut self);
    /// Returns all connections, each as it is when the iterator is asked for it.
    ///
    /// # Errors
    /// If the flow table cannot be read.
    fn list(self: Box<Self>) -> Result<Listing, Failure>;
}

/// The thread of the control socket's server.
#[derive(Debug)]
pub struct Server {
    thread: JoinHandle<()>,
    changes: mpsc::UnboundedSender<NewListeners>,
}

impl Server {
    /// Where to send changes of what is served where.
    pub(crate) fn changes(&self) -> mpsc::UnboundedSender<NewListeners> {
        self.changes.clone()
    }

    /// Waits until the last answers have been sent. The receiver of calls must have been dropped.
    pub fn wait(self) {
        if self.thread.join().is_err() {
            tracing::error!("the control socket's thread has panicked");
        }
    }
}

/// Serves clients on a thread of its own.
///
/// # Errors
/// When the thread or its runtime cannot be created.
pub fn start(listeners: Listeners, calls: mpsc::Sender<Call>) -> io::Result<Server> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(THREADS_MAX)
        .thread_name("shuntd-list")
        .build()?;
    let (changes, changed) = mpsc::unbounded_channel();
    let serve = move || {
        if let Err(error) = runtime.block_on(serve_changing(listeners, calls, changed)) {
            tracing::error!("the control socket is closed: {error}");
        }
        // Does not wait for lists whose clients have gone.
        runtime.shutdown_background();
    };
    let thread = thread::Builder::new().name("shuntd-control".to_owned());
    let thread = start_thread(|| thread.spawn(serve))?;
    Ok(Server { thread, changes })
}

/// Threads that make answers: more than there may be long answers at a time.
const THREADS_MAX: usize = 8;
/// How long sending the last answers may take when the daemon exits.
const LINGER: Duration = Duration::from_secs(1);

/// Answers clients until the receiver of `calls` is dropped, then sends the answers that are in progress.
///
/// The daemon drops the receiver and waits for this before it exits, so that the client of [`Call::Stop`] gets its
/// answer.
///
/// # Errors
/// When the listeners cannot be used in this runtime.
pub async fn serve(listeners: Listeners, calls: mpsc::Sender<Call>) -> io::Result<()> {
    let (_, never) = mpsc::unbounded_channel();
    serve_changing(listeners, calls, never).await
}

/// What is served, and for whom.
struct Served {
    metrics: Option<TcpListener>,
    page: Option<TcpListener>,
    access: Option<PageAccess>,
    hosts: Hosts,
    reports: ReportsDirectory,
}

impl Served {
    /// Serves something else from now on. Clients that are connected are served as before until they have gone.
    fn change(&mut self, new: NewListeners) -> io::Result<()> {
        let NewListeners { metrics, page, access, hosts, reports } = new;
        if let Some(metrics) = metrics {
            self.metrics = metrics.map(TcpListener::from_std).transpose()?;
        }
        if let Some(page) = page {
            self.page = page.map(TcpListener::from_std).transpose()?;
        }
        (self.access, self.hosts) = (access, hosts);
        self.reports.set(reports);
        Ok(())
    }
}

async fn serve_changing(
    listeners: Listeners,
    calls: mpsc::Sender<Call>,
    mut changes: mpsc::UnboundedReceiver<NewListeners>,
) -> io::Result<()> {
    let control = UnixListener::from_std(listeners.control)?;
    let page =
        listeners.page.map(|(page, access)| Ok::<_, io::Error>((TcpListener::from_std(page)?, access)));
    let (page, access) = page.transpose()?.unzip();
    let mut served = Served {
        metrics: listeners.metrics.map(TcpListener::from_std).transpose()?,
        page,
        access,
        hosts: listeners.hosts,
        reports: ReportsDirectory::new(listeners.reports),
    };
    let metrics_only = routes::metrics_router(calls.clone());
    let [all, page_only] =
        [routes::router, routes::page_router].map(|router| router(calls.clone(), served.reports.clone()));
    let mut admission = Admission::default();
    loop {
        let admitted = tokio::select! {
            () = calls.closed() => break,
            Some(new) = changes.recv() => served.change(new),
            accepted = control.accept() => accepted.map(|(stream, _)| {
                let client = Client::from_peer(&stream);
                admission.serve(client, stream, &all, refusal_for(client, served.hosts.clone()));
            }),
            accepted = accept(served.metrics.as_ref()) => accepted.map(|(stream, own)| {
                let refused = refusal_for(Client::Network, served.hosts.on_tcp(own));
                admission.serve(Client::Network, stream, &metrics_only, refused);
            }),
            accepted = accept(served.page.as_ref()) => accepted.map(|(stream, own)| {
                let refused = refusal_for(Client::Page, served.hosts.on_tcp(own));
                let access = served.access.clone();
                admission.serve(Client::Page, stream, &page_only, move |request| {
                    let without_token = || access.as_ref().and_then(|access| access.refusal(request));
                    refused(request).or_else(|| without_token().map(Refusal::from))
                });
            }),
        };
        if let Err(error) = admitted {
            tracing::warn!("control socket: cannot accept a client: {error}");
            // Out of descriptors or memory: the pause keeps this from being a busy loop.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Lets requests of connected clients proceed before the next client is accepted.
        yield_now().await;
    }
    let _ = timeout(LINGER, admission.wait_idle()).await;
    Ok(())
}

/// Refuses what the client may not do, and whatever a web page of another site may have sent.
fn refusal_for(client: Client, hosts: Hosts) -> impl Fn(&Request<Incoming>) -> Option<Refusal> {
    move |request| client.refusal(request.method()).map(Refusal::from).or_else(|| hosts.refusal(request))
}

/// Accepts a client; returns the address of the server's end, too.
async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, IpAddr)> {
    match listener {
        Some(listener) => {
            let (stream, _) = listener.accept().await?;
            let own = stream.local_addr()?.ip();
            Ok((stream, own))
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
