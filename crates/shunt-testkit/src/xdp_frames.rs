//! XDP frames, for which the engine `auto` takes XDP on a veth.

use crate::{Shuntd, Topology, status::is_sent_by, wait_for};
use shunt_api::Engine;
use shunt_traffic::Generator;
use std::time::Duration;

/// How long the daemon may take to notice the frames.
const PATIENCE: Duration = Duration::from_secs(60);
/// Frames at once: more than a survey needs.
const FRAMES: u64 = 256;

/// Sends XDP frames from the LAN to a closed port of the router until `auto` takes XDP for packets to this port.
///
/// # Panics
/// If the frames cannot be sent, or the port never uses XDP.
#[track_caller]
pub fn offer_xdp_frames(lab: &Topology, shuntd: &Shuntd, port: &str) {
    let lan = lab.lan();
    let sends = lan.flows_to((lan.gateway_v4, 9).into(), 16, 1).traffic();
    let sends = sends.unwrap_or_else(|e| panic!("frames to {}: {e}", lan.gateway_v4));
    let generator = lan.ns.within(|| Generator::new(&sends, lan.ns.ifindex(lan.nic)));
    let mut generator = generator.unwrap_or_else(|e| panic!("a generator on {}: {e}", lan.nic));
    let taken = wait_for(PATIENCE, || {
        if let Err(e) = lan.ns.within(|| generator.run(FRAMES)) {
            panic!("sending frames from {}: {e}", lan.nic);
        }
        is_sent_by(&shuntd.status(), port, Engine::Xdp).then_some(())
    });
    assert!(taken.is_some(), "{port} never uses XDP: {:#?}", shuntd.status());
}
