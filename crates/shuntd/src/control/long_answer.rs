//! Answers that may be as long as a table of the kernel. Each is made a piece at a time, no faster than it is read, and
//! once for all clients that wait for the same one. So many clients cost as much memory and time as one.

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use serde::{Serialize, Serializer, ser::Error};
use shunt_api::Failure;
use shunt_http::{Refusal, Watched, internal};
use std::{
    cell::Cell,
    collections::HashMap,
    fmt,
    future::Future,
    io,
    mem::replace,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

/// The least size of a piece, except the last, in bytes.
const PIECE_BYTES: usize = 16 * 1024;
/// How long a client waits until its answer is begun.
const PLACE_TIME: Duration = Duration::from_secs(20);
/// How long a client may let its answer wait, in all. The time in which the answer is made does not count.
const LAG: Duration = Duration::from_secs(20);

/// Writes an answer, on a thread that may wait.
pub(super) type Writer = Box<dyn FnOnce(&mut Pieces) -> Result<(), Failure> + Send>;

/// Prepares a writer.
type Begun = Pin<Box<dyn Future<Output = Result<Writer, Refusal>> + Send>>;

/// A part of an answer. An answer without an end was cut short.
#[derive(Clone)]
enum Piece {
    Text(Bytes),
    Refused(Refusal),
    End,
}

/// The long answers to one kind of clients.
#[derive(Debug)]
pub(super) struct LongAnswers {
    /// One for each answer that may be made at a time.
    places: Arc<Semaphore>,
    /// How long a place stays empty after an answer.
    pause: Duration,
    /// The clients of answers that wait for a place, by the name of the answer.
    waiting: Mutex<HashMap<String, Vec<mpsc::Sender<Piece>>>>,
}

impl LongAnswers {
    pub(super) fn new(places: usize, pause: Duration) -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(places)), pause, waiting: Mutex::default() })
    }

    /// The answer of this name, as a body. `begin` prepares its writer when there is a place; it is not called for a
    /// client that joins others who wait for the same name. A long answer may take longer than others, which `watched`
    /// allows.
    pub(super) async fn get<F>(
        self: &Arc<Self>,
        name: String,
        watched: &Watched,
        begin: impl FnOnce() -> F + Send,
    ) -> Result<Body, Refusal>
    where
        F: Future<Output = Result<Writer, Refusal>> + Send + 'static,
    {
        self.get_boxed(name, watched, Box::new(|| Box::pin(begin()))).await
    }

    /// Does not depend on the kind of answer, so that programs contain it once.
    async fn get_boxed(
        self: &Arc<Self>,
        name: String,
        watched: &Watched,
        begin: Box<dyn FnOnce() -> Begun + Send + '_>,
    ) -> Result<Body, Refusal> {
        // The time for a place, that in which the answer is made, and that for which the client lets it wait are
        // bounded here.
        watched.begin();
        let (sender, mut pieces) = mpsc::channel(1);
        if self.join(&name, sender) {
            let (answers, begun) = (Arc::clone(self), begin());
            tokio::spawn(async move { answers.make(&name, begun).await });
        }
        match pieces.recv().await {
            Some(Piece::Text(first)) => Ok(Body::new(Answer { first: Some(first), rest: pieces })),
            Some(Piece::Refused(refusal)) => Err(refusal),
            Some(Piece::End) => Ok(Body::empty()),
            None => Err(internal("the answer was cut short; try again")),
        }
    }

    /// Adds a client. Returns whether it is the first to wait for this answer.
    fn join(&self, name: &str, client: mpsc::Sender<Piece>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = waiting.entry(name.to_owned()).or_default();
        clients.push(client);
        clients.len() == 1
    }

    /// Makes an answer for all clients that wait for it when a place is free.
    async fn make(&self, name: &str, begun: Begun) {
        let place = timeout(PLACE_TIME, Arc::clone(&self.places).acquire_owned()).await;
        let clients = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let clients = clients.unwrap_or_default();
        let Ok(Ok(place)) = place else {
            let why = "other clients are reading long answers; try again";
            return distribute_one(Piece::Refused(internal(why)), &clients);
        };
        if clients.iter().all(mpsc::Sender::is_closed) {
            return;
        }
        match begun.await {
            Err(refusal) => distribute_one(Piece::Refused(refusal), &clients),
            Ok(writer) => {
                let (sender, pieces) = mpsc::channel(1);
                // The writer may go on for a moment when its clients have gone, so the place goes along with it.
                let written = spawn_blocking(move || write(writer, sender, place));
                distribute(pieces, clients).await;
                if let Ok(place) = written.await {
                    sleep(self.pause).await;
                    drop(place);
                }
            }
        }
    }
}

fn write(writer: Writer, sender: mpsc::Sender<Piece>, place: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
    let mut pieces = Pieces { text: room(), sender };
    let written = writer(&mut pieces).and_then(|()| pieces.send().map_err(failed));
    let last = written.map_or_else(|failure| Piece::Refused(failure.into()), |()| Piece::End);
    // Fails if all clients have gone.
    let _ = pieces.sender.blocking_send(last);
    place
}

/// Gives every client every piece. A client that has let the others wait for too long gets no more.
async fn distribute(mut pieces: mpsc::Receiver<Piece>, clients: Vec<mpsc::Sender<Piece>>) {
    let mut clients: Vec<_> = clients.into_iter().map(|client| (client, LAG)).collect();
    while let Some(piece) = pieces.recv().await {
        let mut kept = Vec::with_capacity(clients.len());
        for (client, lag) in clients {
            let offered = Instant::now();
            if matches!(timeout(lag, client.send(piece.clone())).await, Ok(Ok(()))) {
                kept.push((client, lag.saturating_sub(offered.elapsed())));
            }
        }
        clients = kept;
        if clients.is_empty() {
            return;
        }
    }
}

/// Gives each client its first and only piece.
fn distribute_one(piece: Piece, clients: &[mpsc::Sender<Piece>]) {
    for client in clients {
        // Fails if the client has gone.
        let _ = client.try_send(piece.clone());
    }
}

/// Where a writer puts its text. Waits until the clients have read what was written before.
pub(super) struct Pieces {
    text: Vec<u8>,
    sender: mpsc::Sender<Piece>,
}

/// Room for a piece. The writers of answers write little at a time.
fn room() -> Vec<u8> {
    Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 16)
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        let text = replace(&mut self.text, room()).into();
        self.sender.blocking_send(Piece::Text(text)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Writes JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(self, value).map_err(failed)
    }
}

impl io::Write for Pieces {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        if self.text.len() >= PIECE_BYTES {
            self.send()?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(error: impl fmt::Display) -> Failure {
    internal(error.to_string()).failure
}

/// A list in JSON whose items are made when they are written: once.
pub(super) struct Items<I>(Cell<Option<I>>);

impl<I> Items<I> {
    pub(super) fn new(items: I) -> Self {
        Self(Cell::new(Some(items)))
    }
}

impl<T: Serialize, I: Iterator<Item = Result<T, Failure>>> Serialize for Items<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut list = serializer.serialize_seq(None)?;
        for item in self.0.take().into_iter().flatten() {
            list.serialize_element(&item.map_err(S::Error::custom)?)?;
        }
        list.end()
    }
}

/// The body of an answer.
struct Answer {
    first: Option<Bytes>,
    rest: mpsc::Receiver<Piece>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.rest.poll_recv(cx).map(|piece| match piece {
            Some(Piece::Text(text)) => Some(Ok(Frame::data(text))),
            Some(Piece::End) => None,
            Some(Piece::Refused(refusal)) => Some(Err(io::Error::other(refusal.failure.message))),
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use std::{
        io::Write,
        sync::atomic::{AtomicUsize, Ordering},
    };

    /// An answer of many pieces, which counts how often it is made and how much is written.
    async fn long_answer(made: Arc<AtomicUsize>, written: Arc<AtomicUsize>) -> Result<Writer, Refusal> {
        made.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(move |pieces| {
            for _ in 0..64 {
                pieces.write_all(&[b'x'; PIECE_BYTES]).map_err(failed)?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }))
    }

    #[tokio::test]
    async fn clients_who_wait_for_the_same_answer_share_it() {
        let answers = LongAnswers::new(1, Duration::ZERO);
        let (made, written) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let begin = || long_answer(Arc::clone(&made), Arc::clone(&written));
        // Nothing is begun before the place is free.
        let place = Arc::clone(&answers.places).acquire_owned().await.unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (answers, begun) = (Arc::clone(&answers), begin());
                tokio::spawn(async move {
                    let body = answers.get("same".to_owned(), &Watched::default(), || begun).await.unwrap();
                    to_bytes(body, usize::MAX).await.unwrap().len()
                })
            })
            .collect();
        while answers.waiting.lock().unwrap().get("same").is_none_or(|clients| clients.len() < 8) {
            tokio::task::yield_now().await;
        }
        assert_eq!(made.load(Ordering::Relaxed), 0);
        drop(place);
        for client in clients {
            assert_eq!(client.await.unwrap(), 64 * PIECE_BYTES);
        }
        assert_eq!((made.load(Ordering::Relaxed), written.load(Ordering::Relaxed)), (1, 64));
    }

    #[tokio::test]
    async fn an_answer_is_made_no_faster_than_it_is_read_and_not_for_clients_who_have_gone() {
        let answers = LongAnswers::new(1, Duration::ZERO);
        let (made, written) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let body = answers
            .get("one".to_owned(), &Watched::default(), || long_answer(made, Arc::clone(&written)))
            .await
            .unwrap();
        sleep(Duration::from_millis(100)).await;
        assert!(written.load(Ordering::Relaxed) < 8, "{written:?}");
        drop(body);
        // The place is free as soon as the writer has noticed.
        let _place = answers.places.acquire().await.unwrap();
        assert!(written.load(Ordering::Relaxed) < 8, "{written:?}");
    }

    #[tokio::test]
    async fn a_failure_is_a_refusal_before_the_first_piece_and_an_error_after_it() {
        let answers = LongAnswers::new(1, Duration::ZERO);
        let fails_after = |pieces_before: usize| async move {
            let writer: Writer = Box::new(move |pieces| {
                for _ in 0..pieces_before {
                    pieces.write_all(&[b'x'; PIECE_BYTES]).map_err(failed)?;
                }
                Err(failed("broken"))
            });
            Ok(writer)
        };
        let refusal =
            answers.get("now".to_owned(), &Watched::default(), || fails_after(0)).await.unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.failure.message.as_str()), (500, "broken"));
        let body = answers.get("later".to_owned(), &Watched::default(), || fails_after(2)).await.unwrap();
        assert!(to_bytes(body, usize::MAX).await.is_err());
    }

    #[test]
    fn a_list_is_written_as_json() {
        let text = |items: Vec<Result<u8, Failure>>| serde_json::to_string(&Items::new(items.into_iter()));
        assert_eq!(text(vec![]).unwrap(), "[]");
        assert_eq!(text(vec![Ok(1), Ok(2)]).unwrap(), "[1,2]");
        assert!(text(vec![Ok(1), Err(failed("broken"))]).is_err());
    }
}
