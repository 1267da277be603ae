//! An HTTP/1.1 server for clients that may be slow, hostile or too many: for the control socket of the daemon, and for
//! the agent of the lab.
//!
//! Invariant: whatever clients do, the server keeps serving others. Each connection has one request, and at most half a
//! minute for it; if there are too many clients, one is ended earlier. Only an endless or a very long answer may take
//! longer; its handler marks it with [`Watched`], and bounds it.

mod admission;
mod exchange;
mod refusal;
mod same_site;
mod stream;
mod token;

pub use admission::Admission;
pub use exchange::{HEADER_TIME, Watched};
pub use refusal::{Refusal, bad, internal, unknown_method, unknown_path};
pub use same_site::Hosts;
pub use stream::Stream;
pub use token::Token;
