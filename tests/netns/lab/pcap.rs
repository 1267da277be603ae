//! `shunt gen --pcap-in` and `--pcap-out`: the frames of a file arrive, and the frames that arrive are in the file.

use super::gen_command::{NICS, bench, doubts, json};
use pcap_file::{
    TsResolution,
    pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter},
    pcapng::{
        PcapNgWriter,
        blocks::{enhanced_packet::EnhancedPacketBlock, interface_description::InterfaceDescriptionBlock},
    },
};
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, require_root};
use shunt_wire::{Mac, Packet, Tag, Tcp};
use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

/// Time between two frames of a capture.
const GAP_US: u64 = 5_000;

/// Tolerance of the arrival times on a busy machine.
const HELD_UP: Duration = Duration::from_millis(50);
/// The report calls frames late that are sent later than this.
const LATE: Duration = Duration::from_millis(1);

/// Frames with their times of arrival.
type Frames = Vec<(Duration, Vec<u8>)>;

/// Two devices connected by a cable.
fn wire() -> (NetNs, Shunt) {
    let wire = NetNs::new("wire");
    wire.run("ip link add t0 type veth peer name t1 && ip link set t0 up && ip link set t1 up");
    let shunt = Shunt::on(&wire);
    (wire, shunt)
}

/// Frames of all forms that a capture may have, at equal intervals.
fn frames() -> Frames {
    let (a, b) = ("192.0.2.2:1000".parse().unwrap(), "198.51.100.2:2000".parse().unwrap());
    let (a6, b6) = ("[fd00::2]:1000".parse().unwrap(), "[fd01::2]:2000".parse().unwrap());
    let payload = |bytes: usize| (0..bytes).map(|n| (n * 7 % 251) as u8).collect::<Vec<u8>>();
    let mut arp = vec![0xff; 6];
    arp.extend([2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 192, 0, 2, 9]);
    arp.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 8]);
    let forms = [
        Packet::udp_between(a, b).payload(payload(1)).to_bytes(),
        Packet::tcp_between(a, b, Tcp::SYN).payload(payload(1400)).to_bytes(),
        Packet::udp_between(a6, b6).payload(payload(77)).to_bytes(),
        Packet::udp_between(a, b).with_tags(&[Tag::service(5), Tag::vlan(6)]).payload(payload(40)).to_bytes(),
        arp,
        // An unknown EtherType, and a frame of a header and one byte.
        [&[2; 12][..], &[0x88, 0xb5, 1]].concat(),
    ];
    (0..60).map(|n| (Duration::from_micros(n * GAP_US), forms[n as usize % forms.len()].clone())).collect()
}

fn write_pcap(path: &Path, resolution: TsResolution, frames: &[(Duration, Vec<u8>)]) {
    let header = PcapHeader { ts_resolution: resolution, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    for (at, bytes) in frames {
        writer.write_packet(&PcapPacket::new(*at, bytes.len() as u32, bytes)).unwrap();
    }
}

fn write_pcapng(path: &Path, frames: &[(Duration, Vec<u8>)]) {
    let mut writer = PcapNgWriter::new(File::create(path).unwrap()).unwrap();
    let interface = InterfaceDescriptionBlock::new(pcap_file::DataLink::ETHERNET, 0);
    writer.write_pcapng_block(interface).unwrap();
    for (at, bytes) in frames {
        // Time stamps in microseconds, the default of the format.
        let timestamp = Duration::from_nanos(at.as_micros() as u64);
        let original_len = bytes.len() as u32;
        let data = bytes.into();
        let packet = EnhancedPacketBlock { interface_id: 0, timestamp, original_len, data, options: vec![] };
        writer.write_pcapng_block(packet).unwrap();
    }
}

fn read(path: &Path) -> Frames {
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    assert_eq!(reader.header().ts_resolution, TsResolution::NanoSecond);
    let mut all = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        assert_eq!(packet.orig_len as usize, packet.data.len());
        all.push((packet.timestamp, packet.data.into_owned()));
    }
    all
}

/// How late the last frame was sent.
fn late(report: &Value) -> Duration {
    let doubts = report["doubts"].as_array().unwrap();
    let doubt = doubts.iter().find(|doubt| doubt["kind"] == "sent-late");
    doubt.map_or(LATE, |doubt| Duration::from_secs_f64(doubt["microseconds"].as_f64().unwrap() / 1e6))
}

fn bytes(frames: &[(Duration, Vec<u8>)]) -> Vec<&[u8]> {
    frames.iter().map(|(_, bytes)| &bytes[..]).collect()
}

#[test]
fn a_replayed_capture_arrives_byte_for_byte_and_in_time() {
    if !require_root() {
        return;
    }
    let (wire, shunt) = wire();
    let directory = tempfile::tempdir().unwrap();
    let sent = frames();
    let [us, ns, ng, out] =
        ["us.pcap", "ns.pcap", "ng.pcapng", "out.pcap"].map(|name| directory.path().join(name));
    write_pcap(&us, TsResolution::MicroSecond, &sent);
    write_pcap(&ns, TsResolution::NanoSecond, &sent);
    write_pcapng(&ng, &sent);
    for (sender, file, options, meant) in [
        ("xdp", &us, "", Some(0.295)),
        ("socket", &us, "", Some(0.295)),
        ("xdp", &ng, "--multiplier 0.5", Some(0.59)),
        ("socket", &ng, "--rate 150pps", Some(59.0 / 150.0)),
        ("xdp", &ns, "--rate 150pps", Some(59.0 / 150.0)),
        ("socket", &ns, "--rate max", None),
        ("xdp", &ns, "--rate max", None),
    ] {
        let name = format!("{sender} {} {options}", file.display());
        let report = json(&shunt.run(&format!(
            "gen --json --tx t0 --rx t1 --sender {sender} --pcap-in {} --pcap-out {} {options}",
            file.display(),
            out.display()
        )));
        let arrived = read(&out);
        assert_eq!(bytes(&arrived), bytes(&sent), "{name}");
        for count in ["sent", "received"] {
            assert_eq!(report[count].as_u64(), Some(60), "{name}: {report:#}");
        }
        assert_eq!(report["recorded"]["frames"].as_u64(), Some(60));
        assert_eq!(report["directions"][0]["means"] == "socket", sender == "socket");
        assert!(report["duplicated"].is_null() && report["latency_us"].is_null());
        let took = (arrived[59].0 - arrived[0].0).as_secs_f64();
        let seconds = meant.or(report["seconds"].as_f64()).unwrap();
        // The first frame and the last may each be as late as the report says.
        let slack = late(&report) + HELD_UP;
        let off = Duration::from_secs_f64((took - seconds).abs());
        assert!(off < slack, "{name}: {took} s, {report:#}");
    }
    // Repeated by rounds, by time and by count.
    for (options, frames) in [("--loop 3", 180), ("--time 615ms", 123), ("--count 70", 70)] {
        let report =
            json(&shunt.run(&format!("gen --json --tx t0 --rx t1 --pcap-in {} {options}", us.display())));
        assert_eq!(report["sent"].as_u64(), Some(frames), "{options}: {report:#}");
        assert_eq!(report["received"].as_u64(), Some(frames), "{options}");
    }
    assert!(!wire.run("ip -details link show").contains("xdp"));
    assert!(!wire.run("ip -details link show t1").contains("promiscuity 1"));
}

#[test]
fn a_capture_goes_through_a_router_by_its_mac() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let directory = tempfile::tempdir().unwrap();
    let [file, out] = ["in.pcap", "out.pcap"].map(|name| directory.path().join(name));
    let (from, to) = ("192.0.2.2:1000".parse().unwrap(), "198.51.100.2:2000".parse().unwrap());
    let foreign = Packet::udp_between(from, to).macs(Mac([2, 1, 1, 1, 1, 1]), Mac([2, 2, 2, 2, 2, 2]));
    let sent: Frames = (0..50u8)
        .map(|n| (Duration::ZERO, foreign.clone().with_hop_limit(64).payload([n; 30]).to_bytes()))
        .collect();
    write_pcap(&file, TsResolution::MicroSecond, &sent);
    for sender in ["xdp", "socket"] {
        let report = json(&bench.shunt.run(&format!(
            "gen {NICS} --sender {sender} --rate 1kpps --pcap-in {} --pcap-out {}",
            file.display(),
            out.display()
        )));
        assert_eq!((&report["sent"], &report["lost"]), (&50.into(), &0.into()), "{report:#}");
        let arrived: Vec<Packet> =
            read(&out).iter().map(|(_, frame)| Packet::parse(frame).unwrap()).collect();
        for (sent, arrived) in sent.iter().zip(&arrived) {
            let sent = Packet::parse(&sent.1).unwrap();
            assert_eq!((&sent.payload, sent.ports()), (&arrived.payload, arrived.ports()));
            assert_eq!(arrived.hop_limit(), Some(63));
        }
        // tcpdump reads the file that was written.
        let dumped = bench.host.run(&format!("tcpdump -nr {} 2>/dev/null", out.display()));
        assert_eq!(
            dumped.lines().filter(|line| line.contains("192.0.2.2.1000 > 198.51.100.2.2000")).count(),
            50
        );
    }
}

#[test]
fn received_packets_are_recorded_up_to_the_limit() {
    if !require_root() {
        return;
    }
    let (wire, shunt) = wire();
    wire.run("ip address add 192.0.2.2/24 dev t0 && ip address add 198.51.100.2/24 dev t1");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out.pcap");
    for sender in ["xdp", "socket"] {
        let report = json(&shunt.run(&format!(
            "gen --json --no-floor --tx t0 --rx t1 --sender {sender} --count 2000 --rate 20kpps --size 64,1500 --pcap-out {} --pcap-limit 1500",
            out.display()
        )));
        assert_eq!(report["received"].as_u64(), Some(2000));
        let recorded = &report["recorded"];
        assert_eq!(
            (&recorded["frames"], &recorded["beyond_limit"]),
            (&1500.into(), &500.into()),
            "{recorded}"
        );
        assert_eq!(recorded["dropped"].as_u64(), Some(0));
        assert!(!doubts(&report).contains(&"not-recorded"));
        let arrived = read(&out);
        assert!(arrived.is_sorted_by_key(|(at, _)| *at));
        for (nth, (_, frame)) in arrived.iter().enumerate() {
            assert_eq!(frame.len(), if nth % 2 == 0 { 60 } else { 1496 });
            let packet = Packet::parse(frame).unwrap();
            // The stamps number the packets of the only flow; the first numbers went to the warm-up.
            let number = u32::from_be_bytes(packet.payload[4..8].try_into().unwrap());
            let first = Packet::parse(&arrived[0].1).unwrap();
            assert_eq!(number - u32::from_be_bytes(first.payload[4..8].try_into().unwrap()), nth as u32);
        }
    }
}

#[test]
fn a_file_that_cannot_be_sent_is_named_with_the_place() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let directory = tempfile::tempdir().unwrap();
    let [cut, foreign, large] =
        ["cut.pcap", "foreign.pcap", "large.pcap"].map(|name| directory.path().join(name));
    write_pcap(&cut, TsResolution::MicroSecond, &frames());
    let whole = fs::read(&cut).unwrap();
    fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    fs::write(&foreign, "a,b\n1,2\n").unwrap();
    write_pcap(&large, TsResolution::MicroSecond, &[(Duration::ZERO, [&[2; 12][..], &[8; 3002]].concat())]);
    // The last frame has 15 of the 16 bytes of its header.
    let (last, nics) = (whole.len() - 15 - 16, NICS.replace(" --json", ""));
    for (file, why) in [
        (&cut, format!("cut.pcap: at byte {last}: the file ends early")),
        (&foreign, "foreign.pcap: at byte 0: not a capture file".to_owned()),
        (&directory.path().join("none"), "none: there is no such file".to_owned()),
        (&large, "t0: the MTU is 1500, but packets have 3000 bytes".to_owned()),
    ] {
        let output = bench.shunt.run(&format!("gen {nics} --pcap-in {}", file.display()));
        assert!(output.code.is_some_and(|code| code > 0), "{why}: {}", output.out);
        assert!(output.err.starts_with("shunt: ") && output.err.contains(&why), "{why}: {}", output.err);
        assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    }
    let full = bench.shunt.run(&format!("gen {NICS} --count 100 --pcap-out /dev/full"));
    assert_eq!(
        (full.code, serde_json::from_str::<Value>(&full.out).unwrap()["received"].as_u64()),
        (Some(18), Some(100)),
        "{}",
        full.err
    );
    assert!(full.err.contains("/dev/full: No space left on device"), "{}", full.err);
    let nowhere = bench.shunt.run(&format!("gen {NICS} --pcap-out /nonexistent/out.pcap"));
    assert!(nowhere.err.contains("/nonexistent/out.pcap: its directory does not exist"), "{}", nowhere.err);
}
