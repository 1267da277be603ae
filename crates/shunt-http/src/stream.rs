//! The streams of clients.

use std::{
    future::Future,
    io::{self, ErrorKind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// How long a client may stop reading its answer.
const STALL_TIME: Duration = Duration::from_secs(5);

/// The connection of a client.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A stream that discards everything written before a request was understood. hyper refuses invalid requests with an
/// answer without a body; the server writes its own answer instead. A write that makes no progress for [`STALL_TIME`]
/// fails.
pub(crate) struct SilentUntilRequest<S> {
    stream: S,
    has_request: Arc<AtomicBool>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: Stream> SilentUntilRequest<S> {
    pub(crate) fn new(stream: S, has_request: Arc<AtomicBool>) -> Self {
        Self { stream, has_request, stalled: None }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    fn has_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }
}

impl<S: Stream> AsyncRead for SilentUntilRequest<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Stream> AsyncWrite for SilentUntilRequest<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.has_request() {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_TIME)));
        stalled.as_mut().poll(cx).map(|()| Err(ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_request() { Pin::new(&mut self.stream).poll_shutdown(cx) } else { Poll::Ready(Ok(())) }
    }
}
