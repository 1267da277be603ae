//! Which form of the XDP program a port has: that for few usual flows, that for flows of any kind, or, with many flows
//! and a driver whose ring it knows, the one that looks ahead.

use super::{Daemon, blocking::BlockingThread};
use shunt_bpf::{DriverRing, LoadedXdp, XdpForm};
use shunt_core::Link;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// With more flows than a quarter of the hints, one in nine flows would lack its hint, which another one has.
const USUAL_FLOWS_MAX: u32 = shunt_bpf::abi::HINTS / 4;
/// After the last proof of an unusual flow, its kind counts for as many times the interval between proofs.
const PROOFS: u32 = 3;

/// The forms of the XDP program, and what decides between them. Knows no clock.
#[derive(Debug, Default)]
pub(super) struct XdpForms {
    /// The forms that were asked for; not the first one, which the data plane has.
    programs: HashMap<XdpForm, Program>,
    /// Whether so many flows are in use that looking ahead pays.
    pays: bool,
    /// Whether so many flows are in use that hints do not pay.
    many: bool,
    statics: bool,
    unusual: Unusual,
}

#[derive(Debug)]
enum Program {
    Loading,
    Loaded(Arc<LoadedXdp>),
    /// This kernel does not load it.
    Refused,
}

/// Whether flows are in use for which the usual form takes longer.
#[derive(Debug, Default)]
struct Unusual {
    /// When the programs say that such a flow was last proved.
    noted: u64,
    until: Option<Instant>,
}

impl Unusual {
    fn note(&mut self, now: Instant, noted: u64, last: Duration) {
        if self.noted != noted {
            *self = Self { noted, until: Some(now + last) };
        }
        self.until = self.until.filter(|until| now < *until);
    }
}

/// Whether `flows` are many: half of `least` end what `least` began, so that a number near `least` does not exchange
/// programs all the time.
fn are_many(were: bool, flows: u32, least: u32) -> bool {
    flows >= if were { least / 2 } else { least }
}

impl XdpForms {
    /// Takes note of the number of flows in use.
    fn note(&mut self, flows: u32, look_ahead_flows: u32) {
        self.pays = look_ahead_flows != 0 && are_many(self.pays, flows, look_ahead_flows);
        self.many = are_many(self.many, flows, USUAL_FLOWS_MAX);
    }

    /// The form that a port with this ring should have. `first` is what it has without this.
    fn wanted(&self, ring: Option<DriverRing>, first: XdpForm) -> XdpForm {
        let looking_ahead = ring.map(XdpForm::LookingAhead).filter(|form| !self.is_refused(*form));
        if let Some(form) = looking_ahead.filter(|_| self.pays) {
            return form;
        }
        let is_unusual = self.many || self.statics || self.unusual.until.is_some();
        if is_unusual && !self.is_refused(XdpForm::General) { XdpForm::General } else { first }
    }

    fn is_refused(&self, form: XdpForm) -> bool {
        matches!(self.programs.get(&form), Some(Program::Refused))
    }
}

/// The ring of a port's driver, if a program knows it.
fn ring(link: &Link) -> Option<DriverRing> {
    match (link.kind.as_deref(), link.bus.as_deref()) {
        (Some("veth"), _) => Some(DriverRing::Veth),
        (None, Some("virtio")) => Some(DriverRing::Virtio),
        _ => None,
    }
}

impl Daemon {
    /// Gives ports the form of the XDP program that takes least for the flows in use.
    pub(super) fn review_xdp_forms(&mut self) {
        let Ok(usage) = self.plane.usage() else { return };
        let flows = usage.entries.iter().sum();
        self.xdp_forms.note(flows, self.config.look_ahead_flows);
        self.xdp_forms.statics = self.plane.control().has_statics();
        self.xdp_forms.unusual.note(Instant::now(), usage.unusual_ticks, self.config.reprove * PROOFS);
        if self.taps.are_attached() {
            return;
        }
        for (ifindex, form) in self.forms_to_exchange() {
            self.exchange_xdp_form(ifindex, form, flows);
        }
    }

    /// Ports that should have another form than they have, and which; none that is being changed.
    fn forms_to_exchange(&self) -> Vec<(u32, XdpForm)> {
        let first = self.plane.first_xdp_form();
        let other = |(ifindex, ring): (u32, Option<DriverRing>)| {
            let wanted = self.xdp_forms.wanted(ring, first);
            let is_other = self.plane.xdp_form(ifindex).is_some_and(|form| form != wanted);
            (is_other && !self.pending_ports.is_changing(ifindex)).then_some((ifindex, wanted))
        };
        let ports = self.core.ports().map(|(link, _)| (link.ifindex, ring(link)));
        ports.filter_map(other).collect()
    }

    /// Exchanges a port's program, or loads the next one first.
    fn exchange_xdp_form(&mut self, ifindex: u32, form: XdpForm, flows: u32) {
        let next = match self.xdp_forms.programs.get(&form) {
            _ if form == self.plane.first_xdp_form() => None,
            None => return self.load_xdp_form(form),
            Some(Program::Loaded(program)) => Some(Arc::clone(program)),
            Some(Program::Loading | Program::Refused) => return,
        };
        let from = self.plane.xdp_form(ifindex);
        let name = self.name(ifindex);
        match (from, form) {
            (_, XdpForm::LookingAhead(_)) => tracing::info!("{name}: {flows} flows in use: XDP looks ahead"),
            (Some(XdpForm::LookingAhead(_)), _) => {
                tracing::info!("{name}: {flows} flows in use: XDP no longer looks ahead");
            }
            (_, XdpForm::General) => {
                tracing::info!(
                    "{name}: XDP has the program for many flows, bridged ones and those that get tags"
                );
            }
            (_, XdpForm::Usual) => tracing::info!("{name}: XDP has the program for few, routed flows"),
        }
        self.exchange_xdp(ifindex, form, next);
    }

    fn load_xdp_form(&mut self, form: XdpForm) {
        let source = match self.plane.xdp_source(form) {
            Ok(source) => source,
            Err(error) => return tracing::warn!("cannot load another XDP program: {error}"),
        };
        self.xdp_forms.programs.insert(form, Program::Loading);
        self.in_background(
            BlockingThread::Attachments,
            "load-xdp-form",
            move |_| source.load(),
            move |daemon, loaded| {
                let program = match loaded {
                    Ok(program) => {
                        // Before the kernel reports that a port has the program.
                        daemon.core.add_own_programs(program.program_id());
                        Program::Loaded(Arc::new(program))
                    }
                    Err(error) if matches!(form, XdpForm::LookingAhead(_)) => {
                        tracing::info!(
                            "XDP does not look ahead, because the kernel refuses the program: {error}"
                        );
                        Program::Refused
                    }
                    Err(error) => {
                        tracing::warn!("cannot load another XDP program: {error}");
                        Program::Refused
                    }
                };
                daemon.xdp_forms.programs.insert(form, program);
                daemon.review_xdp_forms();
            },
        );
    }

    fn exchange_xdp(&mut self, ifindex: u32, form: XdpForm, next: Option<Arc<LoadedXdp>>) {
        let exchange = match self.plane.xdp_exchange(ifindex, next.as_deref()) {
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
                    daemon.xdp_forms.programs.insert(form, Program::Refused);
                }
                daemon.port_changed(ifindex);
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: XdpForm = XdpForm::Usual;
    const VETH: Option<DriverRing> = Some(DriverRing::Veth);

    #[test]
    fn half_of_the_flows_that_it_takes_to_begin_are_enough_to_go_on() {
        let mut forms = XdpForms::default();
        let mut wanted = |flows| {
            forms.note(flows, 100_000);
            forms.wanted(VETH, FIRST)
        };
        let (usual, general, ahead) = (FIRST, XdpForm::General, XdpForm::LookingAhead(DriverRing::Veth));
        let most = USUAL_FLOWS_MAX;
        assert_eq!(
            [most - 1, most, most / 2, most / 2 - 1, most / 2].map(&mut wanted),
            [usual, general, general, usual, usual]
        );
        assert_eq!(
            [100_000, 50_000, 49_999, 99_999, 0].map(&mut wanted),
            [ahead, ahead, general, general, usual]
        );
    }

    #[test]
    fn only_a_known_ring_is_looked_ahead_in_and_none_with_a_least_number_of_0() {
        let mut forms = XdpForms::default();
        forms.note(u32::MAX, 1);
        let rings = [VETH, Some(DriverRing::Virtio), None];
        let wanted = |forms: &XdpForms| rings.map(|ring| forms.wanted(ring, FIRST));
        let (general, virtio) = (XdpForm::General, XdpForm::LookingAhead(DriverRing::Virtio));
        assert_eq!(wanted(&forms), [XdpForm::LookingAhead(DriverRing::Veth), virtio, general]);
        // A kernel may know the types of one driver only.
        forms.programs.insert(XdpForm::LookingAhead(DriverRing::Veth), Program::Refused);
        assert_eq!(wanted(&forms), [general, virtio, general]);
        let mut never = XdpForms::default();
        never.note(u32::MAX, 0);
        assert_eq!(wanted(&never), [general; 3]);
        never.programs.insert(general, Program::Refused);
        assert_eq!(wanted(&never), [FIRST; 3]);
    }

    #[test]
    fn unusual_flows_count_until_none_was_proved_for_some_proofs() {
        let (start, last) = (Instant::now(), Duration::from_secs(6));
        let mut forms = XdpForms::default();
        let mut wanted = |seconds, noted| {
            forms.unusual.note(start + Duration::from_secs(seconds), noted, last);
            forms.wanted(VETH, FIRST)
        };
        assert_eq!(wanted(0, 0), XdpForm::Usual);
        assert_eq!([1, 6].map(|seconds| wanted(seconds, 10)), [XdpForm::General; 2]);
        assert_eq!(wanted(7, 10), XdpForm::Usual);
        assert_eq!([8, 13, 19].map(|seconds| wanted(seconds, seconds)), [XdpForm::General; 3]);
        assert_eq!(wanted(25, 19), XdpForm::Usual);
    }
}
