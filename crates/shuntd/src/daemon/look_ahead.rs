//! Which XDP programs look ahead: with many flows, those of ports whose driver's ring they know.

use super::{Daemon, blocking::BlockingThread};
use shunt_bpf::{LookAhead, XdpProgram};
use std::sync::Arc;

/// Whether XDP programs look ahead.
#[derive(Debug, Default)]
pub(super) struct LookingAhead {
    program: Program,
    /// Whether so many flows are in use that it pays.
    pays: bool,
}

#[derive(Debug, Default)]
enum Program {
    #[default]
    NotLoaded,
    Loading,
    Loaded(Arc<LookAhead>),
    /// This kernel does not load it.
    Refused,
}

impl LookingAhead {
    /// Takes note of the number of flows in use. Half as many end what `least` began, so that a number near `least`
    /// does not exchange programs all the time.
    fn note(&mut self, flows: u32, least: u32) {
        self.pays = least != 0 && flows >= if self.pays { least / 2 } else { least };
    }
}

impl Daemon {
    /// Lets the programs look ahead if so many flows are in use that it pays, and else not.
    pub(super) fn review_look_ahead(&mut self) {
        let Ok(usage) = self.plane.usage() else { return };
        let flows = usage.entries.iter().sum();
        self.looking_ahead.note(flows, self.config.look_ahead_flows);
        let ports = self.ports_to_exchange();
        if ports.is_empty() || self.taps.are_attached() {
            return;
        }
        let program = match &self.looking_ahead.program {
            Program::Loaded(program) => Arc::clone(program),
            Program::NotLoaded => return self.load_look_ahead(),
            Program::Loading | Program::Refused => return,
        };
        let pays = self.looking_ahead.pays;
        tracing::info!(
            "{flows} flows in use: XDP {}",
            if pays { "looks ahead" } else { "no longer looks ahead" }
        );
        for ifindex in ports {
            self.exchange_xdp(ifindex, pays.then_some(&program));
        }
    }

    /// Ports whose program should look ahead and does not, or the other way round; none that is being changed.
    fn ports_to_exchange(&self) -> Vec<u32> {
        let known = self.core.ports().filter(|(link, _)| link.kind.as_deref() == Some("veth"));
        let indexes = known.map(|(link, _)| link.ifindex);
        let other = |ifindex: &u32| {
            self.plane.xdp_program(*ifindex) == Some(XdpProgram::Forward)
                && self.plane.looks_ahead(*ifindex) != self.looking_ahead.pays
                && !self.pending_ports.is_changing(*ifindex)
        };
        indexes.filter(other).collect()
    }

    fn load_look_ahead(&mut self) {
        let source = match self.plane.look_ahead() {
            Ok(source) => source,
            Err(error) => return tracing::warn!("cannot load the XDP program that looks ahead: {error}"),
        };
        self.looking_ahead.program = Program::Loading;
        self.in_background(
            BlockingThread::Attachments,
            "load-look-ahead",
            move |_| source.load(),
            move |daemon, loaded| {
                daemon.looking_ahead.program = match loaded {
                    Ok(program) => {
                        // Before the kernel reports that a port has the program.
                        daemon.core.add_own_programs(program.program_id());
                        Program::Loaded(Arc::new(program))
                    }
                    Err(error) => {
                        tracing::info!(
                            "XDP does not look ahead, because the kernel refuses the program: {error}"
                        );
                        Program::Refused
                    }
                };
                daemon.review_look_ahead();
            },
        );
    }

    fn exchange_xdp(&mut self, ifindex: u32, ahead: Option<&Arc<LookAhead>>) {
        let exchange = match self.plane.xdp_exchange(ifindex, ahead.map(AsRef::as_ref)) {
            Ok(Some(exchange)) => exchange,
            Ok(None) => return,
            Err(error) => {
                return tracing::warn!("{}: cannot exchange the XDP program: {error}", self.name(ifindex));
            }
        };
        self.begin_change(ifindex);
        self.in_background(
            BlockingThread::Attachments,
            "exchange-xdp",
            move |_| exchange.make(),
            move |daemon, (xdp, replaced)| {
                daemon.plane.xdp_exchanged(ifindex, xdp);
                if let Err(error) = replaced {
                    let name = daemon.name(ifindex);
                    tracing::warn!("{name}: the driver does not exchange the XDP program: {error}");
                    daemon.looking_ahead.program = Program::Refused;
                }
                daemon.port_changed(ifindex);
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_flows_that_it_takes_to_begin_are_enough_to_go_on() {
        let mut looking_ahead = LookingAhead::default();
        let mut pays = |flows| {
            looking_ahead.note(flows, 1000);
            looking_ahead.pays
        };
        assert_eq!([999, 1000, 500, 499, 500, 1000].map(&mut pays), [false, true, true, false, false, true]);
        let mut never = LookingAhead::default();
        never.note(u32::MAX, 0);
        assert!(!never.pays);
    }
}
