//! A restart that keeps flows: the running daemon starts the next one, which loads its programs beside it, takes over
//! maps, links and sockets, and exchanges the programs in place. Each attachment has a program all the time.
//!
//! | the next daemon | the running daemon |
//! | --- | --- |
//! | `Hello`: its layout, configuration and namespace | `Offer`: the maps; or `Clean`, with the reason |
//! | `Ready`: its programs are loaded, and it hears of all changes | `Settled`: the kept files are written |
//! | `Loaded`: it has read the files | `State`: links and sockets; from now on, the running daemon does nothing |
//! | `Commit` | `Go` |
//! | `Done` | ends, or waits for the next daemon in its place if it is watched, and detaches nothing |
//!
//! Invariant: one daemon owns the data plane. The running one gives it up by `Go`, and the next one has it with `Go`.
//! Before that the next daemon writes nothing that is shared, so the running one can go on at any time; after it, the
//! running one never goes on: if the next one ends before `Done`, it detaches everything.

mod channel;
mod fault;
mod messages;
mod pidfd;
mod process;
mod stay;

pub(crate) use channel::Channel;
pub(crate) use fault::fault_point;
pub(crate) use messages::{FromNext, HandedState, Offer, PortMessage, ToNext, by_key, differences, netns};
pub(crate) use pidfd::has_ended;
pub(crate) use process::{News, NextDaemon, Program, launch_successor};
pub(crate) use stay::{await_successor, stay};
