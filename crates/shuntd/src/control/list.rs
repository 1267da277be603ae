//! Answers that may be as long as the flow table: made a piece at a time, as the client takes them.

use axum::{
    body::{Body, Bytes, HttpBody},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use hyper::body::Frame;
use serde::Serialize;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::OwnedSemaphorePermit;

/// Bytes of a piece, at least.
const PIECE: usize = 32 * 1024;

/// A JSON list whose items are written when there is room for them.
pub(super) struct JsonList<I> {
    items: I,
    next: Next,
    /// Held until the answer is over: what the items are made from takes memory.
    _place: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    First,
    Other,
    Nothing,
}

impl<I> JsonList<I> {
    pub(super) fn new(items: I, place: OwnedSemaphorePermit) -> Self {
        Self { items, next: Next::First, _place: place }
    }
}

impl<T: Serialize, I: Iterator<Item = T>> JsonList<I> {
    fn piece(&mut self) -> io::Result<Vec<u8>> {
        let mut text = Vec::with_capacity(PIECE + PIECE / 4);
        while text.len() < PIECE {
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

impl<T: Serialize, I: Iterator<Item = T> + Unpin> HttpBody for JsonList<I> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.next == Next::Nothing {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(self.piece().map(|text| Frame::data(text.into()))))
    }
}

impl<T: Serialize, I: Iterator<Item = T> + Send + Unpin + 'static> IntoResponse for JsonList<I> {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], Body::new(self)).into_response()
    }
}

/// An answer that is there already, and is as long as it is.
pub(super) struct Whole {
    text: Option<Bytes>,
    /// As in [`JsonList`].
    _place: OwnedSemaphorePermit,
}

impl Whole {
    pub(super) fn new(text: Vec<u8>, place: OwnedSemaphorePermit) -> Self {
        Self { text: Some(text.into()), _place: place }
    }
}

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.text.take().map(|text| Ok(Frame::data(text))))
    }
}

impl IntoResponse for Whole {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], Body::new(self)).into_response()
    }
}
