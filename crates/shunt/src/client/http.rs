//! HTTP/1.1 requests over a stream that is already connected.

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection that takes any number of requests, one after the other.
#[derive(Debug)]
pub(super) struct Sender(http1::SendRequest<Full<Bytes>>);

impl Sender {
    pub(super) async fn new<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        stream: S,
    ) -> hyper::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The sender gets the errors of the connection, too.
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Returns as soon as the head of the answer has arrived; the body may still be on its way.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.0.ready().await?;
        self.0.send_request(request).await
    }
}

/// Sends one request over a stream of its own. Returns as soon as the head of the answer has arrived.
pub(super) async fn send<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> hyper::Result<Response<Incoming>> {
    Sender::new(stream).await?.send(request).await
}
