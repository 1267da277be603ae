//! One exchange, a request and its answer, within limits of time and memory.

use crate::{
    refusal::Refusal,
    stream::{SilentUntilRequest, Stream},
};
use axum::{Router, response::IntoResponse};
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
use shunt_api::{ErrorBody, Failure, FailureCode};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// How long a client may take for its request and the answer.
const CONNECTION_TIME: Duration = Duration::from_secs(30);
/// How long a client may take to send the head of its request.
pub const HEADER_TIME: Duration = Duration::from_secs(3);
/// The longest head of a request.
const HEADER_BYTES: usize = 16 * 1024;
/// How long the rest of a refused request is read.
const LINGER: Duration = Duration::from_secs(1);
/// How much of the rest of a refused request is read.
const LINGER_BYTES: u64 = 1 << 20;

/// Marks an answer as endless. A handler takes it from the extensions of the request.
#[derive(Debug, Clone, Default)]
pub struct Watched(Arc<AtomicBool>);

impl Watched {
    /// Lifts the time limit of this connection.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves one request, and closes the connection without an answer if the client takes too long.
pub(crate) async fn serve_within_limits<W: Copy + Send + Sync + 'static>(
    stream: impl Stream,
    user: W,
    has_request: Arc<AtomicBool>,
    router: Router,
    refused: impl Fn(&Request<Incoming>) -> Option<Refusal>,
) {
    let watched = Watched::default();
    let mut client = pin!(serve(stream, user, has_request, router, refused, watched.clone()));
    if timeout(CONNECTION_TIME, &mut client).await.is_err() && watched.0.load(Ordering::Relaxed) {
        client.await;
    }
}

/// Serves one request. If the request is not valid HTTP, answers with an error in JSON, which hyper does not do.
async fn serve<W: Copy + Send + Sync + 'static>(
    stream: impl Stream,
    user: W,
    has_request: Arc<AtomicBool>,
    router: Router,
    refused: impl Fn(&Request<Incoming>) -> Option<Refusal>,
    watched: Watched,
) {
    let mut stream = SilentUntilRequest::new(stream, Arc::clone(&has_request));
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        has_request.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(user);
        request.extensions_mut().insert(watched.clone());
        let answer = refused(&request).map_or_else(|| Ok(router.call(request)), Err);
        async move {
            match answer {
                Ok(answer) => answer.await,
                Err(refusal) => Ok(refusal.into_response()),
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
        tracing::debug!("cannot serve a client: {error}");
        if !has_request.load(Ordering::Relaxed) {
            let _ = timeout(LINGER, refuse(stream.into_inner(), &error)).await;
        }
    }
}

/// Answers with the reason, then reads on for a while. Closing a socket with unread data would reset the connection,
/// and a client that still writes would lose the answer.
async fn refuse(mut stream: impl Stream, error: &hyper::Error) -> io::Result<()> {
    let (status, why) = if error.is_timeout() {
        (StatusCode::REQUEST_TIMEOUT, "the request was not complete in time".to_owned())
    } else if error.is_parse_too_large() {
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers of the request are too long".to_owned())
    } else {
        (StatusCode::BAD_REQUEST, format!("not an HTTP/1.1 request: {error}"))
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
