//! The policy: events in, actions out. No I/O, no clock, no threads, no randomness.

mod event;

pub use event::{Connection, Event, Link, Proto, Qdisc, Source};
