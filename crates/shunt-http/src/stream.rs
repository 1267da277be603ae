//! What clients talk over.

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

/// How long a client may leave an answer unread.
const STALL_TIME: Duration = Duration::from_secs(5);

/// What a client talks over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A client's stream on which nothing is written before a request was understood: hyper's own refusals have no body, and
/// one with a body is written instead. An answer that is not read for [`STALL_TIME`] is given up.
pub(crate) struct Unasked<S> {
    stream: S,
    asked: Arc<AtomicBool>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: Stream> Unasked<S> {
    pub(crate) fn new(stream: S, asked: Arc<AtomicBool>) -> Self {
        Self { stream, asked, stalled: None }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

impl<S: Stream> AsyncRead for Unasked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Stream> AsyncWrite for Unasked<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.asked() {
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
        if self.asked() { Pin::new(&mut self.stream).poll_shutdown(cx) } else { Poll::Ready(Ok(())) }
    }
}
