//! The control socket: HTTP/1.1 over a Unix socket. Each request becomes one [`Call`] to the daemon's loop.
//!
//! Invariant: whatever comes in by the socket, the daemon goes on. A client holds one of [`CONNECTIONS_MAX`] places for at
//! most [`CONNECTION_TIME`], and nobody else waits for it.

mod routes;
mod socket;

pub use socket::{bind, unbind};

use hyper::{
    StatusCode,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use shunt_api::{Connection, ErrorBody, Failure, FailureCode, StaticRemoval, StaticTable, Status};
use socket::Unasked;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

/// Something that the daemon's loop is asked to do, and where its answer goes.
#[derive(Debug)]
pub enum Call {
    /// The whole state.
    Status(oneshot::Sender<Status>),
    /// Every connection.
    Flows {
        /// Over how long rates are taken; zero means over the life of each flow.
        rate_over: Duration,
        /// The answer.
        reply: oneshot::Sender<Vec<Connection>>,
    },
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

const CONNECTIONS_MAX: usize = 32;
const CONNECTION_TIME: Duration = Duration::from_secs(30);
const HEADER_TIME: Duration = Duration::from_secs(3);
const HEADER_BYTES: usize = 16 * 1024;
/// How long a client is listened to after it was refused, and how long the last answers may take at the end.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 1 << 20;

/// Answers clients until the receiver of `calls` is dropped, then lets the answers that are under way leave.
///
/// So that the client of [`Call::Stop`] gets its answer, the daemon drops the receiver and awaits this before it ends.
pub async fn serve(listener: UnixListener, calls: mpsc::Sender<Call>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut clients = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = calls.closed() => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let client = converse(stream, calls.clone());
                clients.spawn(async move {
                    let _place = place;
                    // A client that takes too long is left without an answer: it was not reading, or not sending.
                    let _ = timeout(CONNECTION_TIME, client).await;
                });
            }
            Err(error) => {
                tracing::warn!("control socket: cannot accept a client: {error}");
                // Out of descriptors or memory: without a pause this would be a busy loop.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    let _ = timeout(LINGER, async { while clients.join_next().await.is_some() {} }).await;
}

/// One request and its answer. What cannot be understood as HTTP is refused in JSON as well, which hyper would not do.
async fn converse(stream: UnixStream, calls: mpsc::Sender<Call>) {
    let asked = Arc::new(AtomicBool::new(false));
    let mut stream = Unasked::new(stream, Arc::clone(&asked));
    let router = TowerToHyperService::new(routes::router(calls));
    let service = service_fn(|request| {
        asked.store(true, Ordering::Relaxed);
        router.call(request)
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
async fn refuse(mut stream: UnixStream, error: &hyper::Error) -> io::Result<()> {
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
