//! IPv6, NAT and several flows in `shunt bench ndr`, `size` and `sweep`.

use super::gen_command::json;
use pcap_file::pcap::PcapReader;
use serde_json::{Value, json};
use shunt_gen::{Rate, Shape};
use shunt_lab::{
    Conditions,
    traffic::{PcapOut, Testbed, TrafficSpec, measure},
};
use shunt_testkit::{NetNs, Shunt, Topology, require_root};
use shunt_wire::{Checksum, Packet};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::IpAddr,
    path::Path,
    sync::atomic::AtomicBool,
};

const FLOWS: u32 = 20;

/// Traffic both ways; the frames that the WAN host receives are recorded.
fn traffic(any: &str, nat: bool, file: &Path) -> TrafficSpec {
    let [from, to] = [1024, 5001].map(|port| format!("{any}:{port}").parse().unwrap());
    let mut shape = Shape::udp(from, to, "128".parse().unwrap());
    shape.source_ports.count = FLOWS as u16;
    shape.flows = Some(FLOWS);
    let pcap_out = Some(PcapOut { path: file.to_owned(), limit: 1000 });
    let (rate, packets) = (Rate::Pps(2000.0), Some(200));
    TrafficSpec { rate, packets, both: true, nat, pcap_out, ..TrafficSpec::for_shape(shape) }
}

fn frames(file: &Path) -> Vec<Packet> {
    let mut reader = PcapReader::new(File::open(file).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(packet) = reader.next_packet() {
        all.push(Packet::parse(&packet.unwrap().data).unwrap());
    }
    all
}

#[test]
fn frames_arrive_with_the_address_of_a_masquerading_router() {
    if !require_root() {
        return;
    }
    let [lan, wan] = {
        let lab = Topology::two_hosts_and_a_router();
        let [lan, wan] = [lab.lan(), lab.wan()];
        [[IpAddr::from(lan.v4), lan.v6.into()], [wan.gateway_v4.into(), wan.gateway_v6.into()]]
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out.pcap");
    for (any, family) in [("0.0.0.0", 0), ("[::]", 1)] {
        for nat in [false, true] {
            let spec = traffic(any, nat, &file);
            let report = measure(&spec, &Testbed::Own, Conditions::default(), &AtomicBool::new(false));
            let report = report.unwrap_or_else(|why| panic!("{any}, NAT {nat}: {why}"));
            // Packets of the WAN host arrive, too: they are answers to open connections.
            for one in &report.directions {
                assert!(one.figures.received > 0, "{any}, NAT {nat}: {one:?}");
            }
            let frames = frames(&file);
            let source = if nat { wan[family] } else { lan[family] };
            assert!(frames.iter().all(|frame| frame.source().unwrap().ip() == source), "{any}, NAT {nat}");
            assert!(frames.iter().all(|frame| frame.l4_checksum() == Some(Checksum::Good)));
            assert!(frames.iter().all(|frame| frame.hop_limit() == Some(63)));
            let ports: BTreeSet<u16> = frames.iter().map(|frame| frame.source().unwrap().port()).collect();
            let sent: BTreeSet<u16> = (1024..1024 + FLOWS as u16).collect();
            assert!(!ports.is_empty() && ports.is_subset(&sent), "{any}, NAT {nat}: {ports:?}");
        }
    }
}

#[test]
fn variants_are_measured_and_never_compared_with_each_other() {
    if !require_root() {
        return;
    }
    let (place, directory) = (NetNs::new("place"), tempfile::tempdir().unwrap());
    let shunt = Shunt::on(&place);
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (plain, other) = (path("plain.json"), path("variant.json"));
    let size = "bench size --json --runs 1 --time 200ms --size 128";
    json(&shunt.run(&format!("{size} --engine slow --keep {plain}")));
    let variant = "--ip 6 --nat --flows 20 --both";
    let report = json(&shunt.run(&format!("{size} --engine slow --engine tc {variant} --keep {other}")));
    assert_eq!(report["variant"], "IPv6, NAT, 20 flows, both directions");
    for point in report["points"].as_array().unwrap() {
        assert!(point["forwarded_pps"]["value"].as_f64().unwrap() > 1000.0, "{point:#}");
    }
    let kept: Value = serde_json::from_str(&fs::read_to_string(&other).unwrap()).unwrap();
    let reading = &kept["readings"]["tc 128, IPv6, NAT, 20 flows, both directions"];
    let labels = json!({
        "quantity": "received", "engine": "tc", "protocol": "udp", "ip": 6, "nat": true, "tags": 0,
        "frame_bytes": 128, "flows": 20,
    });
    assert_eq!(reading["labels"], labels);
    assert_eq!(reading["position"]["of"], "forwarded, IPv6, NAT, 20 flows, both directions");
    let output = shunt.run(&format!("compare {plain} {other} --verbose"));
    assert!(output.out.contains("slow 128: only in A"), "{}{}", output.out, output.err);

    let sweep = "bench sweep --json --from 1M --to 1M --time 200ms";
    let swept = json(&shunt.run(&format!("{sweep} --ip 6 --nat on --flows 20 --size imix")));
    assert_eq!(swept["variant"], "IPv6, NAT, 20 flows");
    let directions = swept["steps"][0]["directions"].as_array().unwrap();
    assert_eq!(directions.len(), 2);
    for one in directions {
        let traffic = one["traffic"].as_str().unwrap();
        assert!(traffic.contains("IPv6/UDP") && traffic.contains("78:7,570:4,1518:1"), "{traffic}");
        assert!(one["received"].as_u64().unwrap() > 0, "{one:#}");
    }
    let names: Vec<&String> = swept["readings"].as_object().unwrap().keys().collect();
    assert!(names.iter().all(|name| name.ends_with(", IPv6, NAT, 20 flows")), "{names:?}");
}

#[test]
fn traffic_that_is_not_possible_is_refused_before_it_is_measured() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    for (options, why) in [
        ("size --ip 6 --size 64", "at least 78 bytes"),
        ("sweep --flows 4000000", "conntrack tracks at most"),
        ("sweep --nat --tx t0 --rx t1", "cannot be used with"),
        ("ndr --what connections --nat", "leave out --flows, --nat, --ip, --vlan and --tcp"),
        ("ndr --what connections --tcp", "leave out --flows, --nat, --ip, --vlan and --tcp"),
        ("size --vlan 0", "VLAN IDs from 1 to 4094"),
        ("sweep --vlan 10:x", "VLAN IDs from 1 to 4094"),
        ("size --mtu 1500 --size 9018", "no MTU of --mtu has room"),
        ("sweep --reg NOPE --reg-soc imx6q", "no register `NOPE`"),
        ("ndr --what connections --flows 5", "leave out --flows, --nat, --ip, --vlan and --tcp"),
    ] {
        let output = shunt.run(&format!("bench {options}"));
        assert_eq!(output.code, Some(2), "{options}: {}{}", output.err, output.out);
        assert!(output.err.contains(why), "{options}: {}", output.err);
    }
}
