//! The event loop's turns: what it waits for, one at a time.

use super::{blocking::Done, external::News, ruleset_reader::RulesetRead};
use crate::{control::Call, handover::News as HandOverNews, iptables_poll::LegacyRead, rtnl_barrier::Change};
use shunt_core::Event;
use std::{collections::BTreeSet, io};

/// Something that the event loop handles in one step.
pub(super) enum Turn {
    Tick,
    Signal,
    /// A signal that asks for a reload.
    Hangup,
    KernelChanges(Result<Vec<Event>, shunt_kernel::Error>),
    /// The kernel has finished changes that it had announced.
    Finished(BTreeSet<Change>),
    /// A thread has made a system call for the loop.
    Done(Done),
    LegacyRules(LegacyRead),
    Unwatched,
    DataPlane(io::Result<()>),
    External(News),
    Corrections,
    Sweep,
    StaticFlows,
    Ruleset(RulesetRead),
    /// Something about the next daemon.
    HandOver(HandOverNews),
    Call(Call),
    /// The control socket's thread has ended.
    NoCalls,
}

impl Turn {
    /// The name of the step, for `shunt status`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::Signal => "signal",
            Self::Hangup => "reload",
            Self::KernelChanges(_) => "kernel-changes",
            Self::Finished(_) => "finished-changes",
            Self::Done(done) => done.name,
            Self::LegacyRules(_) => "legacy-rules",
            Self::Unwatched => "watch",
            Self::DataPlane(_) => "flow-events",
            Self::External(_) => "external-engine",
            Self::Corrections => "conntrack",
            Self::Sweep => "sweep",
            Self::StaticFlows => "static-flows",
            Self::Ruleset(_) => "ruleset",
            Self::HandOver(_) => "restart",
            Self::Call(_) | Self::NoCalls => "client",
        }
    }
}
