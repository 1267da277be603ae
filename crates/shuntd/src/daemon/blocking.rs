//! System calls that may wait, made by threads of their own: for the RTNL lock, which others can hold for seconds, for
//! conntrack's lock, for a disk, or for a process that ends. The event loop hands over what to do, and gets back what
//! to do with the result.

use super::Daemon;
use crate::{kept_file::Replacement, signals::start_thread};
use shunt_api::NotKept;
use shunt_kernel::{Error, Linux};
use std::{
    collections::VecDeque,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Instant,
};
use tokio::sync::mpsc as results;

/// A thread, which makes its calls in the order in which they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockingThread {
    /// Reads state that the RTNL lock protects.
    State,
    /// Lists packet sockets. Not behind the RTNL lock, which a new capture does not wait for either.
    Captures,
    /// Attaches programs to ports, and detaches them.
    Attachments,
    /// Updates conntrack entries.
    Conntrack,
    /// Ends processes.
    Processes,
    /// Writes files that are kept across restarts.
    Files,
    /// Measures programs for a while.
    Meter,
}

const LANES: [(BlockingThread, &str); 7] = [
    (BlockingThread::State, "kernel-state"),
    (BlockingThread::Captures, "captures"),
    (BlockingThread::Attachments, "attachments"),
    (BlockingThread::Conntrack, "conntrack"),
    (BlockingThread::Processes, "processes"),
    (BlockingThread::Files, "files"),
    (BlockingThread::Meter, "meter"),
];

/// What the event loop does with a result.
pub(super) type Completion = Box<dyn FnOnce(&mut Daemon) + Send>;
type Work = Box<dyn FnOnce(&mut Linux) -> Completion + Send>;

/// A call that has been made.
pub(super) struct Done {
    lane: BlockingThread,
    /// The name of the call.
    pub(super) name: &'static str,
    completion: Completion,
}

struct Job {
    name: &'static str,
    work: Work,
}

struct Thread {
    jobs: mpsc::Sender<Job>,
    /// Calls that were asked for and are not done, oldest first.
    open: VecDeque<(&'static str, Instant)>,
    handle: JoinHandle<()>,
}

/// The threads.
pub(super) struct BlockingCalls {
    threads: [Thread; LANES.len()],
    done: results::UnboundedReceiver<Done>,
}

impl BlockingCalls {
    /// Starts the threads, each with sockets of its own.
    ///
    /// # Errors
    /// If a socket cannot be opened or a thread cannot be started.
    pub(super) fn start() -> Result<Self, Error> {
        let (sender, done) = results::unbounded_channel();
        let start = |(lane, name): (BlockingThread, &str)| {
            let (jobs, requests) = mpsc::channel();
            let (kernel, sender) = (Linux::open()?, sender.clone());
            let thread = thread::Builder::new().name(name.to_owned());
            let handle = start_thread(|| thread.spawn(move || run(lane, kernel, &requests, &sender)));
            let handle = handle.map_err(Error::Wait)?;
            Ok(Thread { jobs, open: VecDeque::new(), handle })
        };
        let [state, captures, attachments, conntrack, processes, files, meter] = LANES.map(start);
        let threads = [state?, captures?, attachments?, conntrack?, processes?, files?, meter?];
        Ok(Self { threads, done })
    }

    fn thread(&self, lane: BlockingThread) -> &Thread {
        &self.threads[lane as usize]
    }

    /// Whether a call of this name is asked for and not done.
    pub(super) fn is_open(&self, lane: BlockingThread, name: &str) -> bool {
        self.thread(lane).open.iter().any(|(open, _)| *open == name)
    }

    /// Whether no call is being made, apart from measurements, which change nothing.
    pub(super) fn are_idle(&self) -> bool {
        let lanes = LANES.iter().filter(|(lane, _)| *lane != BlockingThread::Meter);
        lanes.into_iter().all(|(lane, _)| self.thread(*lane).open.is_empty())
    }

    /// When the oldest call of a lane that is not done was asked for.
    pub(super) fn waits_since(&self, lane: BlockingThread) -> Option<Instant> {
        self.thread(lane).open.front().map(|(_, since)| *since)
    }

    fn ask(&mut self, lane: BlockingThread, name: &'static str, work: Work) {
        let thread = &mut self.threads[lane as usize];
        thread.open.push_back((name, Instant::now()));
        if thread.jobs.send(Job { name, work }).is_err() {
            tracing::error!("the thread for {name} has ended");
        }
    }

    /// Waits for the result of a call; forever without threads. May be dropped at any time.
    pub(super) async fn next(calls: &mut Option<Self>) -> Done {
        if let Some(calls) = calls
            && let Some(done) = calls.done.recv().await
        {
            return done;
        }
        std::future::pending().await
    }

    /// Waits until the threads have ended, and drops results that nobody has used.
    pub(super) fn end(self) {
        for Thread { jobs, handle, .. } in self.threads {
            drop(jobs);
            if handle.join().is_err() {
                tracing::error!("a thread for system calls has panicked");
            }
        }
    }
}

/// Returns when the event loop asks for nothing more.
fn run(
    lane: BlockingThread,
    mut kernel: Linux,
    jobs: &mpsc::Receiver<Job>,
    done: &results::UnboundedSender<Done>,
) {
    while let Ok(Job { name, work }) = jobs.recv() {
        if done.send(Done { lane, name, completion: work(&mut kernel) }).is_err() {
            return;
        }
    }
}

impl Daemon {
    /// Makes a system call on the thread of its lane, then hands the result to `then` on the event loop. Until the
    /// event loop runs, both happen at once.
    pub(super) fn in_background<R: Send + 'static>(
        &mut self,
        lane: BlockingThread,
        name: &'static str,
        call: impl FnOnce(&mut Linux) -> R + Send + 'static,
        then: impl FnOnce(&mut Self, R) + Send + 'static,
    ) {
        match &mut self.blocking {
            None => {
                let result = call(&mut self.kernel);
                then(self, result);
            }
            Some(blocking) => {
                let work: Work = Box::new(move |kernel| {
                    let result = call(kernel);
                    Box::new(move |daemon| then(daemon, result))
                });
                blocking.ask(lane, name, work);
            }
        }
    }

    /// Replaces a file. Files that are asked for before the event loop ends are written before the daemon exits. If the
    /// file cannot be written, the log and the status say so with `loss`: what a restart would lose.
    pub(super) fn keep(&mut self, name: &'static str, contents: Replacement, loss: &'static str) {
        let write = |_: &mut Linux| contents.write();
        self.in_background(BlockingThread::Files, name, write, move |daemon, written| match written {
            Ok(()) => {
                daemon.not_kept.remove(name);
            }
            Err(why) => {
                tracing::warn!("{why}; {loss}");
                daemon.not_kept.insert(name, NotKept { why, loss: loss.to_owned() });
            }
        });
    }

    /// Whether such a call is being made.
    pub(super) fn is_open(&self, lane: BlockingThread, name: &str) -> bool {
        self.blocking.as_ref().is_some_and(|blocking| blocking.is_open(lane, name))
    }

    pub(super) fn on_done(&mut self, done: Done) {
        if let Some(blocking) = &mut self.blocking {
            blocking.threads[done.lane as usize].open.pop_front();
        }
        (done.completion)(self);
        self.after_changes();
        self.settle_reload();
    }
}
