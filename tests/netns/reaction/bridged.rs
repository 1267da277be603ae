//! Packets that a bridge forwards between two of its ports take the fast path, and changes of the bridge take effect on
//! them.

mod bytes;
mod changes;

use shunt_api::Engine;
use shunt_testkit::{Host, Shuntd, Stage, Topology, daemon, silent, stage::leaves_by, wait_until};
use shunt_wire::Packet;

const SELDOM_PROVED: &str = "reprove = \"30s\"";

/// A bridge without rules, and without iptables for bridged packets.
fn switch() -> Topology {
    let lab = silent(Topology::bridged_lan(), "");
    call_iptables(&lab, 0);
    lab
}

fn call_iptables(lab: &Topology, on: u8) {
    // The sysctls exist only with br_netfilter.
    lab.router().run(&format!(
        "modprobe -q br_netfilter
        for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo {on} > $f; done"
    ));
}

fn calls_iptables(lab: &Topology) -> bool {
    lab.router().try_run("[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]").is_ok()
}

/// Addresses a packet to another station of the bridge, not to the router.
fn bridged(packet: Packet, from: &Host, to: &Host) -> Packet {
    packet.macs(from.mac, to.mac)
}

fn udp(from: &Host, to: &Host) -> Packet {
    bridged(from.udp_to(4000, to.at(5000)), from, to).payload("between two stations")
}

/// Sends a broadcast from each host, from which the bridge learns where the host is.
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

/// A station that sends, a daemon, and two stations where packets are captured.
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

    /// Waits until the bridge knows all stations, and the flow is fast.
    #[track_caller]
    fn settle(&self, packet: &Packet) {
        wait_until("the packet passes", || {
            announce(&["lan", "lan2", "lan3"].map(|label| self.lab.host(label)));
            leaves_by(0)(&self.stage.send(packet))
        });
        self.stage.teach(&self.shuntd, packet);
    }
}
