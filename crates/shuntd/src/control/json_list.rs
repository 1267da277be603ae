//! JSON answers that may be as long as the flow table: made a piece at a time, as the client reads them.

use axum::{
    body::{Body, Bytes, HttpBody},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use hyper::body::Frame;
use serde::Serialize;
use std::{
    io, iter,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::OwnedSemaphorePermit;

/// The least size of a piece, except the last, in bytes.
const PIECE_BYTES: usize = 32 * 1024;

/// A JSON list whose items are made and written as the client reads them. `permit` is held until the answer is over.
pub(super) fn streamed_list<T: Serialize + 'static>(
    items: impl Iterator<Item = T> + Send + Unpin + 'static,
    permit: OwnedSemaphorePermit,
) -> Response {
    answer(JsonList { items, next: Next::First }, permit)
}

/// A JSON answer that is complete already. `permit` is held until the answer is over.
pub(super) fn complete_answer(text: Vec<u8>, permit: OwnedSemaphorePermit) -> Response {
    answer(iter::once(Ok(text)), permit)
}

/// Anything else that is complete already, as [`complete_answer`].
pub(super) fn complete_body(bytes: Vec<u8>, permit: OwnedSemaphorePermit) -> Body {
    Body::new(Pieces { pieces: iter::once(Ok(bytes)), _permit: permit })
}

fn answer<I>(pieces: I, permit: OwnedSemaphorePermit) -> Response
where
    I: Iterator<Item = io::Result<Vec<u8>>> + Send + Unpin + 'static,
{
    ([(CONTENT_TYPE, "application/json")], Body::new(Pieces { pieces, _permit: permit })).into_response()
}

struct Pieces<I> {
    pieces: I,
    /// Held until the answer is over: what the pieces are made from takes memory.
    _permit: OwnedSemaphorePermit,
}

impl<I: Iterator<Item = io::Result<Vec<u8>>> + Unpin> HttpBody for Pieces<I> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.pieces.next().map(|piece| piece.map(|text| Frame::data(text.into()))))
    }
}

struct JsonList<I> {
    items: I,
    next: Next,
}

/// The next part of the list: its first item, another item, or nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    First,
    Other,
    Nothing,
}

impl<T: Serialize, I: Iterator<Item = T>> JsonList<I> {
    fn piece(&mut self) -> io::Result<Vec<u8>> {
        let mut text = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
        while text.len() < PIECE_BYTES {
            let opening = if self.next == Next::First { b'[' } else { b',' };
            match self.items.next() {
                Some(item) => {
                    text.push(opening);
                    serde_json::to_writer(&mut text, &item)?;
                    self.next = Next::Other;
                }
                None => {
                    text.extend_from_slice(if self.next == Next::First { b"[]" } else { b"]" });
                    self.next = Next::Nothing;
                    break;
                }
            }
        }
        Ok(text)
    }
}

impl<T: Serialize, I: Iterator<Item = T>> Iterator for JsonList<I> {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.next != Next::Nothing).then(|| self.piece())
    }
}
