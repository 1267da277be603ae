//! Who uses the line: a ledger of what each host of the local side sends and receives, kept across restarts.

mod answer;
mod counter;
mod counts;
mod ends;
mod followed;
mod host_id;
mod ledger;
mod listener;
mod names;
mod newcomers;
mod series;

pub(crate) use counter::Facts;
pub(crate) use counts::{PathCount, PortsReceived};
use ledger::Ledger;

use crate::{failures::internal, kept_file::KeptFile, signals::start_thread};
use counter::Counter;
use shunt_api::{Failure, Usage, UsageQuery, WatchEvent};
use shunt_bpf::DataPlane;
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{
        broadcast,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
};

/// The largest file with a ledger: more than that of 256 hosts that use all of each step, with conntrack's counters.
pub(crate) const FILE_BYTES_MAX: u64 = 24 << 20;
/// A client gets the last reading if it is no older than this.
const FRESH: Duration = Duration::from_millis(500);
/// A reading for a client takes at most one part in this many of the time.
const SHARE: u32 = 20;

/// The ledger, for threads that may wait for the reading in progress to be added.
type Shared = Arc<Mutex<Ledger>>;

enum Request {
    /// Read all counters. The reply comes afterwards.
    Read(Box<Facts>, Option<oneshot::Sender<()>>),
    /// Report the ends of connections to these clients.
    Watch(Option<broadcast::Sender<WatchEvent>>),
}

/// The thread that counts.
pub(crate) struct UsageThread {
    requests: UnboundedSender<Request>,
    ledger: Shared,
    thread: JoinHandle<()>,
}

/// The file of a ledger, and what it had.
pub(crate) struct KeptLedger {
    pub(crate) file: KeptFile,
    pub(crate) ledger: Ledger,
}

impl KeptLedger {
    /// Reads the file. Waits for the disk.
    pub(crate) fn load(path: PathBuf) -> Self {
        let file = KeptFile::new(path, FILE_BYTES_MAX);
        let loss = "what hosts have used until now is lost; counting begins again";
        let ledger = file.load(loss, Ledger::decode).unwrap_or_default();
        Self { file, ledger }
    }
}

/// Answers from the file of a daemon that does not run.
///
/// # Errors
/// As [`KeptFile::peek`], or if the period or the host does not exist.
pub(crate) fn answer_from(file: &KeptFile, query: &UsageQuery) -> Result<Usage, Failure> {
    let ledger = file.peek(Ledger::decode)?;
    ledger.answer(query, &names::names_of_this_machine(), shunt_kernel::conntrack_accounting())
}

/// What hosts have sent and received, for metrics.
#[derive(Debug, Clone, Default)]
pub struct HostTotals(Option<Shared>);

impl HostTotals {
    /// The counts since each host was listed, by its MAC or address. Not for the event loop.
    pub(crate) fn list(&self) -> Vec<(String, PathCount)> {
        self.0.as_ref().map(|ledger| lock(ledger).all()).unwrap_or_default()
    }
}

impl UsageThread {
    /// Starts to count. What conntrack has counted until the first reading is not in the ledger.
    /// The same is true of what the ports have received: an earlier daemon has counted it.
    pub(crate) fn start(plane: &DataPlane, ledger: Ledger) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(internal)?;
        let ledger = Arc::new(Mutex::new(ledger));
        let counter = {
            let _within = runtime.enter();
            let (table, finals) = (plane.flows().map_err(internal)?, plane.finals().map_err(internal)?);
            Counter::new(table, plane.seed(), finals, Arc::clone(&ledger))
        };
        let (requests, receiver) = mpsc::unbounded_channel();
        let thread = thread::Builder::new().name("shuntd-usage".to_owned());
        let thread = start_thread(|| thread.spawn(move || run(&runtime, counter, receiver)));
        let thread = thread.map_err(internal)?;
        plane.control().set_finals(true);
        Ok(Self { requests, ledger, thread })
    }

    /// Asks for a reading.
    pub(crate) fn read(&self, facts: Facts) {
        self.ask(Request::Read(Box::new(facts), None));
    }

    /// Asks for a reading if the last one is old, and answers with the ledger, on another thread.
    pub(crate) fn answer(
        &self,
        facts: Facts,
        query: UsageQuery,
    ) -> impl FnOnce() -> Result<Usage, Failure> + Send + use<> {
        let (done, read) = oneshot::channel();
        self.ask(Request::Read(Box::new(facts), Some(done)));
        let ledger = Arc::clone(&self.ledger);
        move || {
            // Fails if the daemon ends.
            let _ = read.blocking_recv();
            let names = names::names_of_this_machine();
            let accounting = shunt_kernel::conntrack_accounting();
            lock(&ledger).answer(&query, &names, accounting)
        }
    }

    /// Reports the ends of connections to these clients from now on, or to nobody.
    pub(crate) fn watch(&self, clients: Option<broadcast::Sender<WatchEvent>>) {
        self.ask(Request::Watch(clients));
    }

    /// The contents of the file: the ledger when it is written.
    pub(crate) fn contents(&self) -> impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + use<> {
        let ledger = Arc::clone(&self.ledger);
        // A copy would take megabytes more; only readings and answers wait meanwhile.
        move |out| lock(&ledger).encode(out)
    }

    pub(crate) fn totals(&self) -> HostTotals {
        HostTotals(Some(Arc::clone(&self.ledger)))
    }

    /// Reads all counters a last time, and returns the contents of the file. Waits for the thread.
    pub(crate) fn end(self, facts: Facts) -> impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + use<> {
        self.read(facts);
        let contents = self.contents();
        let Self { requests, thread, .. } = self;
        drop(requests);
        if thread.join().is_err() {
            tracing::error!("the thread that counts what hosts use has panicked");
        }
        contents
    }

    fn ask(&self, request: Request) {
        if self.requests.send(request).is_err() {
            tracing::error!("the thread that counts what hosts use has ended");
        }
    }
}

fn lock(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts until nobody asks for more.
fn run(runtime: &Runtime, mut counter: Counter, mut requests: UnboundedReceiver<Request>) {
    let mut last: Option<(Instant, Duration)> = None;
    counter.begin();
    runtime.block_on(async {
        loop {
            let request = tokio::select! {
                biased;
                request = requests.recv() => request,
                () = counter.follow() => continue,
            };
            match request {
                None => return counter.leave(),
                Some(Request::Watch(clients)) => counter.set_clients(clients),
                Some(Request::Read(facts, reply)) => {
                    let is_fresh = |(at, took): (Instant, Duration)| at.elapsed() < FRESH.max(took * SHARE);
                    if reply.is_none() || !last.is_some_and(is_fresh) {
                        let start = Instant::now();
                        counter.read(*facts);
                        last = Some((Instant::now(), start.elapsed()));
                    }
                    // Fails if the client has gone.
                    reply.map(|reply| reply.send(()));
                }
            }
        }
    });
}
