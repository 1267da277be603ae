//! What a sender of many invented tuples can do to the learning of others: hosts share tables, and get their part of
//! each.

use crate::daemon;
use shunt_api::Engine;
use shunt_testkit::{ENGINES, Shuntd, Stage, Topology, refusals, require_root, rulesets, silent, wait_until};
use shunt_wire::Mac;
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

/// Tuples of the flood. Several share each of the 32,768 places where packets of a tuple are counted.
const CROWD: u32 = 150_000;
const FLOWS: u16 = 12;
/// Packets after which a new flow must be fast. It takes three, and a few more if its candidate is overwritten.
const SOON: usize = 8;
/// Where the ports are in a frame without tags, after the headers of Ethernet and IPv4.
const PORTS_AT: usize = 34;

/// How many of a number of new flows are fast within their first packets.
fn learned_soon(shuntd: &Shuntd, lab: &Topology, first_port: u16) -> usize {
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let is_soon_fast = |port: &u16| {
        let packet = lab.lan().udp_to(*port, lab.wan().at(5000)).payload("a flow of its own");
        let before = shuntd.status().packets.fast;
        (0..SOON).for_each(|_| drop(stage.pass(&packet)));
        shuntd.status().packets.fast > before
    };
    (first_port..first_port + FLOWS).filter(is_soon_fast).count()
}

/// Each tuple of the flood is refused, and not watched for ten seconds: the bridge sends its packets to several ports.
#[test]
fn refusals_of_many_tuples_do_not_keep_others_from_learning() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
        let shuntd = daemon(&lab, engine);
        let (flooder, nobody) = (lab.host("lan2"), Mac([2, 0, 0, 0, 9, 9]));
        let tap = flooder.tap();
        let mut frame = flooder.udp_to(1, lab.lan().at(1)).macs(flooder.mac, nobody).to_bytes();
        // Without a UDP checksum, any ports are right.
        frame[PORTS_AT + 6..PORTS_AT + 8].fill(0);
        for number in 0..CROWD {
            frame[PORTS_AT..PORTS_AT + 4].copy_from_slice(&(number + 1).to_be_bytes());
            tap.send_bytes(&frame);
        }
        let refused = refusals(&shuntd.status(), "left-twice");
        assert!(refused > u64::from(CROWD) / 20, "{engine}: {refused} refused: {:#?}", shuntd.status());
        let soon = learned_soon(&shuntd, &lab, 20_000);
        assert!(soon + 1 >= usize::from(FLOWS), "{engine}: only {soon} of {FLOWS} flows were learned");
        shuntd.stop();
    }
}

/// Opens a connection for one byte each way. As with most servers, the side that has sent all closes first.
fn exchange(listener: &TcpListener, to: SocketAddr) -> io::Result<()> {
    let mut client = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    let (mut server, _) = listener.accept()?;
    let mut byte = [0];
    client.write_all(&byte)?;
    server.read_exact(&mut byte)?;
    server.write_all(&byte)?;
    drop(server);
    client.read_to_end(&mut Vec::new()).map(drop)
}

/// Short connections, one after the other, are not counted together, though several share each place: each that is
/// taken for a long one costs the daemon a call.
#[test]
fn short_connections_are_not_learned_because_there_are_many() {
    const PORTS: std::ops::Range<u16> = 7000..7004;
    const EACH: usize = 3000;
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::OPEN);
    let shuntd = daemon(&lab, Engine::Tc);
    thread::scope(|scope| {
        for port in PORTS {
            let (lan, wan) = (lab.lan(), lab.wan());
            scope.spawn(move || {
                let listener = wan.ns.within(|| TcpListener::bind(wan.at(port))).unwrap();
                lan.ns.enter();
                (0..EACH).for_each(|_| exchange(&listener, wan.at(port)).unwrap());
            });
        }
    });
    let asked = refusals(&shuntd.status(), "not-liberal");
    let connections = EACH * PORTS.len();
    assert!(asked < connections as u64 / 50, "{asked} of {connections} connections: {:#?}", shuntd.status());
    shuntd.stop();
}

/// Invented hosts behind one port fill their part of the table. The rest is for connections that are opened through
/// other ports.
#[test]
fn invented_hosts_behind_one_port_leave_room_for_those_behind_others() {
    const TABLE: u64 = 256;
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
        for device in ["all", "r2"] {
            lab.router().sysctl(&format!("ipv4/conf/{device}/rp_filter"), 0);
        }
        let config = format!("max_flows = {TABLE}\nidle = \"600s\"");
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(&config).start();
        let (flooder, victim) = (lab.host("wan2"), lab.lan());
        let flood = flooder.tap();
        let used = || {
            let flows = shuntd.status().flows;
            flows.active + flows.pending + flows.retired
        };
        for number in 0..2 * TABLE as u32 {
            let host = std::net::Ipv4Addr::from(0x0a00_0100 + number);
            let packet = flooder.udp_to(4000, victim.at(5000)).payload("seen often");
            let packet = packet.with_source((host, 4000).into());
            (0..12).for_each(|_| flood.send(&packet));
        }
        wait_until("the flood has filled its part", || used() * 17 >= TABLE * 15);
        assert!(used() < TABLE, "{engine}: {:#?}", shuntd.status());
        let stage = Stage::new(victim, &[lab.wan()]);
        for port in 30_000..30_004 {
            let took =
                stage.teach(&shuntd, &victim.udp_to(port, lab.wan().at(5000)).payload("a flow of its own"));
            assert!(took < Duration::from_secs(20));
        }
        shuntd.stop();
    }
}
