//! What the clients of one kind have in common: the owner, or those who may only read. However many of the latter there
//! are, and whatever they ask, together they get a bounded share of the event loop, of the other threads and of memory,
//! and leave the owner's alone.

use super::{Call, long_answer::LongAnswers};
use axum::body::Bytes;
use shunt_http::{Refusal, internal};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

/// Clients of each kind that may watch at a time.
const WATCHERS_MAX: usize = 8;
/// Long answers that are made at a time for the owner.
const OWNER_PLACES: usize = 2;
/// The same for the clients who may only read.
const READER_PLACES: usize = 1;
/// The pause after a long answer for the latter.
const READER_PAUSE: Duration = Duration::from_millis(100);
/// The time between two calls to the event loop for them. A call takes at most about a millisecond.
const READER_GAP: Duration = Duration::from_millis(20);
/// How long an answer that they share is good.
const FRESH: Duration = Duration::from_millis(250);

/// The share of the clients of one kind.
#[derive(Debug)]
pub(super) struct Share {
    calls: mpsc::Sender<Call>,
    watchers: Arc<Semaphore>,
    pub(super) long: Arc<LongAnswers>,
    /// `None` for the owner.
    limits: Option<Limits>,
}

/// Limits for clients who may only read.
#[derive(Debug, Default)]
struct Limits {
    /// When the event loop may get the next call.
    next_call: Mutex<Option<Instant>>,
    status: Mutex<Option<Recent>>,
    metrics: Mutex<Option<Recent>>,
}

/// An answer, and when it was made.
#[derive(Debug)]
struct Recent(Instant, Bytes);

/// An answer that clients who may only read share.
#[derive(Debug, Clone, Copy)]
pub(super) enum Common {
    Status,
    Metrics,
}

impl Share {
    pub(super) fn of_owner(calls: mpsc::Sender<Call>) -> Arc<Self> {
        Self::new(calls, LongAnswers::new(OWNER_PLACES, Duration::ZERO), None)
    }

    pub(super) fn of_readers(calls: mpsc::Sender<Call>) -> Arc<Self> {
        Self::new(calls, LongAnswers::new(READER_PLACES, READER_PAUSE), Some(Limits::default()))
    }

    fn new(calls: mpsc::Sender<Call>, long: Arc<LongAnswers>, limits: Option<Limits>) -> Arc<Self> {
        Arc::new(Self { calls, watchers: Arc::new(Semaphore::new(WATCHERS_MAX)), long, limits })
    }

    /// A permit to watch.
    pub(super) fn watcher(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.watchers).try_acquire_owned().map_err(|_| {
            internal(format!("{WATCHERS_MAX} other clients are watching; try again when one has ended"))
        })
    }

    /// Sends a call to the event loop and waits for its answer.
    pub(super) async fn call<T>(
        &self,
        within: Duration,
        make_call: impl FnOnce(oneshot::Sender<T>) -> Call,
    ) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let call = make_call(reply);
        let answered = async {
            self.turn().await;
            self.calls.send(call).await.ok()?;
            answer.await.ok()
        };
        match timeout(within, answered).await {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(internal("the daemon is shutting down")),
            Err(_) => Err(internal(format!("the daemon did not answer within {} s", within.as_secs()))),
        }
    }

    /// Waits until the event loop may get a call.
    async fn turn(&self) {
        let Some(limits) = &self.limits else { return };
        let mut next_call = limits.next_call.lock().await;
        if let Some(at) = *next_call {
            sleep_until(at).await;
        }
        *next_call = Some(Instant::now() + READER_GAP);
    }

    /// An answer that is made once for all who ask within a moment, or for each request of the owner.
    pub(super) async fn common(
        &self,
        which: Common,
        make: impl Future<Output = Result<Vec<u8>, Refusal>>,
    ) -> Result<Bytes, Refusal> {
        let Some(limits) = &self.limits else { return make.await.map(Bytes::from) };
        let kept = match which {
            Common::Status => &limits.status,
            Common::Metrics => &limits.metrics,
        };
        let mut kept = kept.lock().await;
        if let Some(Recent(_, text)) = kept.as_ref().filter(|Recent(made, _)| made.elapsed() < FRESH) {
            return Ok(text.clone());
        }
        let text = Bytes::from(make.await?);
        *kept = Some(Recent(Instant::now(), text.clone()));
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    async fn count_made(share: &Share, times: usize) -> usize {
        let made = Cell::new(0);
        for _ in 0..times {
            let make = async {
                made.set(made.get() + 1);
                Ok(b"x".to_vec())
            };
            assert_eq!(share.common(Common::Status, make).await.unwrap(), "x");
        }
        made.get()
    }

    #[tokio::test]
    async fn readers_share_an_answer_and_the_owner_gets_a_new_one() {
        let (calls, _asked) = mpsc::channel(1);
        let (owner, readers) = (Share::of_owner(calls.clone()), Share::of_readers(calls));
        assert_eq!(count_made(&owner, 5).await, 5);
        let start = Instant::now();
        let made = count_made(&readers, 500).await as u128;
        assert!(made <= 1 + start.elapsed().as_millis() / FRESH.as_millis(), "{made}");
        tokio::time::sleep(FRESH).await;
        assert!(count_made(&readers, 1).await == 1);
    }

    #[tokio::test]
    async fn readers_call_at_a_pace() {
        let (calls, mut asked) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(call) = asked.recv().await {
                let Call::Flush(reply) = call else { panic!("{call:?}") };
                reply.send(1).unwrap();
            }
        });
        let readers = Share::of_readers(calls);
        let start = Instant::now();
        for _ in 0..6 {
            readers.call(Duration::from_secs(5), Call::Flush).await.unwrap();
        }
        assert!(start.elapsed() >= 5 * READER_GAP, "{:?}", start.elapsed());
    }
}
