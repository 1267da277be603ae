//! What a bridge forwards between two of its ports takes the fast path, and what Linux changes of that holds at once.

mod bytes;
mod changes;

use crate::{Stage, daemon, silent, stage::by};
use shunt_api::Engine;
use shunt_testkit::{Host, Shuntd, Topology, wait_until};
use shunt_wire::Packet;

const SELDOM_PROVED: &str = "reprove = \"30s\"";

/// No rules, and nobody who has iptables look at what is bridged.
fn switch() -> Topology {
    let lab = silent(Topology::bridged_lan(), "");
    call_iptables(&lab, 0);
    lab
}

fn call_iptables(lab: &Topology, on: u8) {
    // Without br_netfilter there are no such sysctls.
    lab.router().run(&format!(
        "modprobe -q br_netfilter
        for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo {on} > $f; done"
    ));
}

fn calls_iptables(lab: &Topology) -> bool {
    lab.router().try_run("[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]").is_ok()
}

/// From one station to another, past the router.
fn bridged(packet: Packet, from: &Host, to: &Host) -> Packet {
    packet.macs(from.mac, to.mac)
}

fn udp(from: &Host, to: &Host) -> Packet {
    bridged(from.udp_to(4000, to.at(5000)), from, to).payload("between two stations")
}

/// The bridge knows where these are.
fn announce(hosts: &[&Host]) {
    for host in hosts {
        let mut hello = vec![0xff; 60];
        hello[6..12].copy_from_slice(&host.mac.0);
        hello[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
        host.tap().send_bytes(&hello);
    }
}

struct Stations {
    lab: Topology,
    shuntd: Shuntd,
    stage: Stage,
}

/// A station that sends, and those where it is seen what leaves.
fn stations(engine: Engine) -> Stations {
    let lab = switch();
    let shuntd = daemon(&lab, engine);
    let stage = Stage::new(lab.lan(), &[lab.host("lan2"), lab.host("lan3")]);
    announce(&[lab.lan(), lab.host("lan2"), lab.host("lan3")]);
    Stations { lab, shuntd, stage }
}

impl Stations {
    fn packet(&self) -> Packet {
        udp(self.lab.lan(), self.lab.host("lan2"))
    }

    /// The bridge knows all stations, and the flow is fast.
    #[track_caller]
    fn settle(&self, packet: &Packet) {
        wait_until("it passes", || {
            announce(&["lan", "lan2", "lan3"].map(|label| self.lab.host(label)));
            by(0)(&self.stage.send(packet))
        });
        self.stage.teach(&self.shuntd, packet);
    }
}
