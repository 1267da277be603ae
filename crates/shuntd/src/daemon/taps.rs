//! Programs by which `shunt verify` sees frames that XDP forwards: attached when it asks, and for a time.

use super::{Daemon, blocking::BlockingThread};
use crate::failures::{failure, internal};
use shunt_api::{EnteringTap, Failure, FailureCode, TapRequest};
use shunt_bpf::{XdpExchange, attach::program_by_id};
use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

type Reply = oneshot::Sender<Result<u64, Failure>>;

/// The programs, if there are any.
#[derive(Debug, Default)]
pub(super) struct Taps(Option<Attached>);

#[derive(Debug)]
struct Attached {
    /// The id of the program for frames that leave, by which a client names all.
    leaving: u32,
    until: Instant,
    ports: Vec<TappedPort>,
}

#[derive(Debug)]
struct TappedPort {
    tap: EnteringTap,
    /// What the port had, and gets back.
    former: OwnedFd,
}

impl Taps {
    /// Whether ports have other programs than those of their engines.
    pub(super) fn are_attached(&self) -> bool {
        self.0.is_some()
    }

    /// How many ports have.
    fn ports(&self) -> u64 {
        self.0.as_ref().map_or(0, |attached| attached.ports.len()) as u64
    }
}

impl Daemon {
    /// Attaches programs around the engine xdp, or lets those that are attached stay for longer.
    pub(super) fn add_taps(&mut self, request: TapRequest, reply: Reply) {
        let exchanges = match self.exchanges(request) {
            Ok(exchanges) => exchanges,
            Err(failure) => return drop(reply.send(Err(failure))),
        };
        if exchanges.is_empty() {
            return drop(reply.send(Ok(self.taps.ports())));
        }
        self.exchange_for_taps(exchanges, move |daemon, refused| match refused {
            None => drop(reply.send(Ok(daemon.taps.ports()))),
            Some(refused) => daemon.end_taps(move |_| drop(reply.send(Err(refused)))),
        });
    }

    /// Detaches these programs.
    pub(super) fn del_taps(&mut self, reply: oneshot::Sender<u64>) {
        self.end_taps(move |count| {
            let _ = reply.send(count);
        });
    }

    /// Detaches programs whose client has not come back in time.
    pub(super) fn expire_taps(&mut self) {
        if self.taps.0.as_ref().is_some_and(|taps| taps.until <= Instant::now()) {
            tracing::info!("putting back programs of the engine that a `shunt verify` has not put back");
            self.end_taps(|_| ());
        }
    }

    /// The exchanges of programs that a request takes; none if they have been made.
    fn exchanges(&mut self, request: TapRequest) -> Result<Vec<(u32, XdpExchange)>, Failure> {
        let TapRequest { leaving, entering, for_s } = request;
        if !(1..=TapRequest::LONGEST_S).contains(&for_s) {
            let why = format!("for_s: expected 1 to {}, got {for_s}", TapRequest::LONGEST_S);
            return Err(failure(FailureCode::Usage, why));
        }
        let until = Instant::now() + Duration::from_secs(for_s);
        if let Some(taps) = &mut self.taps.0 {
            if taps.leaving != leaving {
                let why = "another `shunt verify` looks at the engine xdp; try again when it has ended";
                return Err(failure(FailureCode::Busy, why));
            }
            taps.until = until;
            return Ok(Vec::new());
        }
        if entering.is_empty() {
            return Ok(Vec::new());
        }
        if self.hand_over.is_underway() || self.reloads.is_open() {
            return Err(failure(FailureCode::Busy, "a restart or a reload is in progress; try again"));
        }
        let (mut ports, mut next) = (Vec::new(), Vec::new());
        for tap in entering {
            let EnteringTap { ifindex, program, instead_of } = tap;
            if self.pending_ports.is_changing(ifindex)
                || self.plane.forwarding_program_id(ifindex) != Some(instead_of)
            {
                let why = format!("port {}: its XDP program is being changed; try again", self.name(ifindex));
                return Err(failure(FailureCode::Busy, why));
            }
            next.push((tap, open(program)?));
            ports.push(TappedPort { tap, former: open(instead_of)? });
        }
        self.plane.set_exit_program(Some(open(leaving)?)).map_err(internal)?;
        // Before the kernel reports that a port has the program.
        self.core.add_own_programs(ports.iter().map(|port| port.tap.program));
        self.taps.0 = Some(Attached { leaving, until, ports });
        Ok(next
            .into_iter()
            .filter_map(|(tap, fd)| self.begin_exchange(tap.ifindex, tap.instead_of, fd))
            .collect())
    }

    /// Gives the ports their programs back, and says then how many had another one.
    pub(super) fn end_taps(&mut self, then: impl FnOnce(u64) + Send + 'static) {
        let Some(Attached { leaving, ports, .. }) = self.taps.0.take() else { return then(0) };
        let is_changing = |port: &TappedPort| self.pending_ports.is_changing(port.tap.ifindex);
        let (later, now): (Vec<_>, Vec<_>) = ports.into_iter().partition(is_changing);
        if !later.is_empty() {
            // The next tick finds them.
            self.taps.0 = Some(Attached { leaving, until: Instant::now(), ports: later });
        }
        // A port that has got another program meanwhile keeps it.
        let exchanges: Vec<(u32, XdpExchange)> = now
            .into_iter()
            .filter_map(|TappedPort { tap, former }| self.begin_exchange(tap.ifindex, tap.program, former))
            .collect();
        let count = exchanges.len() as u64;
        self.exchange_for_taps(exchanges, move |daemon, refused| {
            if let Some(refused) = refused {
                tracing::warn!("cannot give a port its XDP program back: {refused}");
            }
            if !daemon.taps.are_attached()
                && let Err(error) = daemon.plane.set_exit_program(None)
            {
                tracing::warn!("cannot detach the program for frames that leave: {error}");
            }
            then(count);
        });
    }

    /// `None` if the port is being changed, or has another program than expected.
    fn begin_exchange(&mut self, ifindex: u32, instead_of: u32, next: OwnedFd) -> Option<(u32, XdpExchange)> {
        if self.pending_ports.is_changing(ifindex) {
            return None;
        }
        let exchange = self.plane.tap_exchange(ifindex, instead_of, next)?;
        self.begin_change(ifindex);
        Some((ifindex, exchange))
    }

    /// Makes exchanges, and says then whether one was refused.
    fn exchange_for_taps(
        &mut self,
        exchanges: Vec<(u32, XdpExchange)>,
        then: impl FnOnce(&mut Self, Option<Failure>) + Send + 'static,
    ) {
        self.in_background(
            BlockingThread::Attachments,
            "exchange-taps",
            move |_| -> Vec<_> {
                exchanges.into_iter().map(|(ifindex, exchange)| (ifindex, exchange.make())).collect()
            },
            move |daemon, made| {
                let mut refused = None;
                for (ifindex, (xdp, outcome)) in made {
                    daemon.plane.xdp_exchanged(ifindex, xdp);
                    if let Err(error) = outcome {
                        let why =
                            format!("{}: the driver refuses the program: {error}", daemon.name(ifindex));
                        refused = Some(failure(FailureCode::PortBusy, why));
                    }
                    daemon.port_changed(ifindex);
                }
                then(daemon, refused);
            },
        );
    }
}

fn open(program: u32) -> Result<OwnedFd, Failure> {
    let why = |error| failure(FailureCode::Usage, format!("no program has the id {program}: {error}"));
    program_by_id(program).map_err(why)
}
