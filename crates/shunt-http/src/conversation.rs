//! One request and its answer, within bounds of time and memory.

use crate::{
    refusal::refusal,
    stream::{Stream, Unasked},
};
use axum::Router;
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

const CONNECTION_TIME: Duration = Duration::from_secs(30);
/// How long a client may take to ask.
pub const HEADER_TIME: Duration = Duration::from_secs(3);
const HEADER_BYTES: usize = 16 * 1024;
/// How long a client is listened to after it was refused.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 1 << 20;

/// Whether a client watches: its answer has no end.
#[derive(Debug, Clone, Default)]
pub struct Watched(Arc<AtomicBool>);

impl Watched {
    /// It is served for as long as it likes.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that takes too long is left without an answer: it was not reading, or not sending.
pub(crate) async fn in_time<W: Copy + Send + Sync + 'static>(
    stream: impl Stream,
    who: W,
    asked: Arc<AtomicBool>,
    router: Router,
    refused: impl Fn(&Request<Incoming>) -> Option<Failure>,
) {
    let watched = Watched::default();
    let mut client = pin!(converse(stream, who, asked, router, refused, watched.clone()));
    if timeout(CONNECTION_TIME, &mut client).await.is_err() && watched.0.load(Ordering::Relaxed) {
        client.await;
    }
}

/// One request and its answer. What cannot be understood as HTTP is refused in JSON as well, which hyper would not do.
async fn converse<W: Copy + Send + Sync + 'static>(
    stream: impl Stream,
    who: W,
    asked: Arc<AtomicBool>,
    router: Router,
    refused: impl Fn(&Request<Incoming>) -> Option<Failure>,
    watched: Watched,
) {
    let mut stream = Unasked::new(stream, Arc::clone(&asked));
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(who);
        request.extensions_mut().insert(watched.clone());
        let refused = refused(&request);
        let answer = router.call(request);
        async move {
            match refused {
                Some(failure) => Ok(refusal(failure)),
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
        tracing::debug!("a client: {error}");
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
