//! HTTP/1.1 for clients that may be slow, hostile or too many: the daemon's control socket, and the lab's agent.
//!
//! Invariant: whatever clients do, the server goes on. Each has one request, and at most half a minute for it; it has to make room for
//! others before that if there are too many. Only an answer that has no end, which its handler says by [`Watched`], may take longer.

mod conversation;
mod guests;
mod refusal;
mod stream;

pub use conversation::{HEADER_TIME, Watched};
pub use guests::Guests;
pub use refusal::{Refusal, bad, internal, unknown_method, unknown_path};
pub use stream::Stream;
