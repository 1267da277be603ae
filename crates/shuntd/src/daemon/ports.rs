//! What is done to a port: attach, set, look, count, detach.

use super::{Daemon, pretends_missing};
use crate::start;
use shunt_api::Engine;
use shunt_bpf::{
    abi,
    attach::{Hook, Means},
};
use shunt_core::{Bridged, PortSetting, Program};
use std::collections::BTreeSet;

impl Daemon {
    pub(super) fn attach(&mut self, setting: PortSetting) -> Result<(), shunt_bpf::Error> {
        let name = self.name(setting.ifindex);
        // One that is there already is somebody else's, and stays.
        let there = self.kernel.has_clsact(setting.ifindex).unwrap_or(true);
        let attached = self.plane.attach(setting.ifindex, flags(setting), !pretends_missing("tcx"));
        let is_there = self.kernel.has_clsact(setting.ifindex).unwrap_or(true);
        if !there && is_there && !matches!(attached, Ok(Means::Tcx)) {
            self.clsacts.insert(setting.ifindex);
        }
        let means = attached?;
        // The kernel takes filters for the egress of `ingress`, too, and puts them on ingress.
        if means == Means::Clsact && !is_there {
            self.plane.detach(setting.ifindex)?;
            return Err(shunt_bpf::Error::NoEgress);
        }
        self.plane.set_xdp(setting.ifindex, setting.xdp_in)?;
        tracing::info!("{name}: attached by {means}, engine {}", setting.engine);
        Ok(())
    }

    pub(super) fn set(&mut self, setting: PortSetting) -> Result<(), shunt_bpf::Error> {
        self.plane.set_flags(setting.ifindex, flags(setting))?;
        self.plane.set_xdp(setting.ifindex, setting.xdp_in)?;
        let captured = if setting.captured { ", somebody captures on it" } else { "" };
        tracing::info!("{}: engine {}{captured}", self.name(setting.ifindex), setting.engine);
        Ok(())
    }

    pub(super) fn detach(&mut self, ifindex: u32) {
        self.keep_count(ifindex);
        self.ledger.close(ifindex);
        if let Err(error) = self.plane.detach(ifindex) {
            tracing::warn!("device {ifindex}: {error}");
        }
        if self.clsacts.remove(&ifindex) {
            start::remove_clsact(&mut self.kernel, ifindex);
        }
    }

    /// The TCX programs of others.
    pub(super) fn programs_on(&self, devices: &BTreeSet<u32>) -> BTreeSet<Program> {
        let hooks = [(Hook::Ingress, false), (Hook::Egress, true)];
        let on = |ifindex: u32, (hook, egress)| {
            let names = self.plane.programs_of_others(ifindex, hook).into_iter();
            names.map(move |name| Program { ifindex, egress, name })
        };
        devices.iter().flat_map(|ifindex| hooks.into_iter().flat_map(|hook| on(*ifindex, hook))).collect()
    }

    /// Has the ledger know what a port has counted.
    pub(super) fn keep_count(&mut self, ifindex: u32) {
        if let Ok(counted) = self.plane.counters(ifindex) {
            let name = self.name(ifindex);
            self.ledger.see(ifindex, &name, counted);
        }
    }
}

fn flags(setting: PortSetting) -> u16 {
    let Bridged { learned, untracked4, untracked6 } = setting.bridged;
    let flags = [
        (setting.engine == Engine::Xdp, abi::PORT_XDP_OUT),
        (setting.partial, abi::PORT_PARTIAL),
        (setting.captured, abi::PORT_CAPTURED),
        (setting.filtered, abi::PORT_FILTERED),
        (setting.filtered_out, abi::PORT_FILTERED_OUT),
        (learned, abi::PORT_BRIDGED),
        (untracked4, abi::PORT_UNTRACKED4),
        (untracked6, abi::PORT_UNTRACKED6),
    ];
    flags.into_iter().filter(|(is_so, _)| *is_so).fold(0, |flags, (_, flag)| flags | flag)
}
