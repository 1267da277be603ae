//! Attaches the data plane to ports, changes what it does there, and detaches it.

use super::Daemon;
use crate::start::{self, pretends_missing};
use shunt_api::{Engine, EngineChoice};
use shunt_bpf::{XdpProgram, abi, attach::AttachMode};
use shunt_core::{Bridged, Event, PortSetting, SurveyCounts};
use std::collections::BTreeMap;

impl Daemon {
    pub(super) fn attach(&mut self, setting: PortSetting) -> Result<(), shunt_bpf::Error> {
        let name = self.name(setting.ifindex);
        // A clsact qdisc that exists already is not Shunt's, and stays when Shunt detaches.
        let had_clsact = self.kernel.has_clsact(setting.ifindex).unwrap_or(true);
        let attached = self.plane.attach(setting.ifindex, flags(setting), !pretends_missing("tcx"));
        let has_clsact = self.kernel.has_clsact(setting.ifindex).unwrap_or(true);
        if !had_clsact && has_clsact && !matches!(attached, Ok(AttachMode::Tcx)) {
            self.clsacts.insert(setting.ifindex);
        }
        let means = attached?;
        // An `ingress` qdisc accepts filters for egress too, but runs them on ingress.
        if means == AttachMode::Clsact && !has_clsact {
            self.plane.detach(setting.ifindex)?;
            return Err(shunt_bpf::Error::NoEgress);
        }
        self.set_xdp(setting)?;
        tracing::info!("{name}: attached by {means}, engine {}", setting.engine);
        Ok(())
    }

    pub(super) fn change_setting(&mut self, setting: PortSetting) -> Result<(), shunt_bpf::Error> {
        self.plane.set_flags(setting.ifindex, flags(setting))?;
        self.set_xdp(setting)?;
        let captured = if setting.captured { "; a packet socket captures here" } else { "" };
        let port = self.core.ports().find(|(link, _)| link.ifindex == setting.ifindex);
        let why = port.map(|(_, view)| view.reason.as_str()).unwrap_or_default();
        tracing::info!("{}: engine {} ({why}){captured}", self.name(setting.ifindex), setting.engine);
        Ok(())
    }

    /// Attaches or detaches the XDP program. With the engines auto and external, a port whose driver refuses the program uses
    /// tc.
    fn set_xdp(&mut self, setting: PortSetting) -> Result<(), shunt_bpf::Error> {
        let program = if setting.xdp_external {
            XdpProgram::External
        } else if setting.xdp_tags {
            XdpProgram::ForwardTags
        } else {
            XdpProgram::Forward
        };
        let program = setting.xdp_in.then_some(program);
        let may_fall_back = setting.xdp_external || self.config.engine == EngineChoice::Auto;
        let error = match self.plane.set_xdp(setting.ifindex, program) {
            Ok(()) => {
                self.core.add_own_programs(self.plane.xdp_program_ids());
                return Ok(());
            }
            Err(shunt_bpf::Error::Attach { source, .. }) if may_fall_back => source.to_string(),
            // The kernel may lack what only ports with VLANs need.
            Err(error) if setting.xdp_tags => error.to_string(),
            Err(error) => return Err(error),
        };
        let name = self.name(setting.ifindex);
        tracing::warn!("{name}: its driver refuses the XDP program: {error}; the port uses tc");
        self.xdp_refusals.push(Event::XdpRefused { ifindex: setting.ifindex, error });
        Ok(())
    }

    pub(super) fn detach(&mut self, ifindex: u32) {
        self.record_counters(ifindex);
        self.port_counters.remove(ifindex);
        if self.static_flows.may_name_ports() {
            self.plane.reserve_slot(ifindex);
        }
        if let Err(error) = self.plane.detach(ifindex) {
            tracing::warn!("{}: cannot detach: {error}", self.name(ifindex));
        }
        if self.clsacts.remove(&ifindex) {
            start::remove_clsact(&mut self.kernel, ifindex);
        }
    }

    /// The counts of all surveys so far, by ifindex.
    pub(super) fn surveyed(&self) -> BTreeMap<u32, SurveyCounts> {
        let counts = |ifindex| {
            let counted = self.plane.counters(ifindex).ok()?;
            let packets = counted.surveyed_pkts;
            let (aggregated, copied) = (counted.aggregated_pkts, counted.copied_pkts);
            Some((ifindex, SurveyCounts { packets, aggregated, copied }))
        };
        self.core.ports().filter_map(|(link, _)| counts(link.ifindex)).collect()
    }

    /// Records the present counters of a port; keeps the last ones if they cannot be read.
    pub(super) fn record_counters(&mut self, ifindex: u32) {
        if let Ok(counters) = self.plane.counters(ifindex) {
            let name = self.name(ifindex);
            self.port_counters.record(ifindex, &name, &counters);
        }
    }
}

fn flags(setting: PortSetting) -> u16 {
    let Bridged { learned, untracked4, untracked6 } = setting.bridged;
    let flags = [
        (setting.engine == Engine::Xdp, abi::PORT_XDP_OUT),
        (setting.engine == Engine::External, abi::PORT_EXTERNAL),
        (setting.xdp_in, abi::PORT_XDP_IN),
        (setting.xdp_frags, abi::PORT_XDP_FRAGS),
        (setting.partial, abi::PORT_PARTIAL),
        (setting.captured, abi::PORT_CAPTURED),
        (setting.filtered, abi::PORT_FILTERED),
        (setting.filtered_out, abi::PORT_FILTERED_OUT),
        (learned, abi::PORT_BRIDGED),
        (untracked4, abi::PORT_UNTRACKED4),
        (untracked6, abi::PORT_UNTRACKED6),
        (setting.floods_unseen, abi::PORT_FLOODS_UNSEEN),
        (setting.paced, abi::PORT_PACED),
    ];
    flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag)
}
