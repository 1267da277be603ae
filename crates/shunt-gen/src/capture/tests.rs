use super::*;
use pcap_file::{
    Endianness,
    pcap::{PcapHeader, PcapPacket, PcapWriter},
    pcapng::{
        PcapNgWriter,
        blocks::{
            enhanced_packet::EnhancedPacketBlock, interface_description::InterfaceDescriptionBlock,
            simple_packet::SimplePacketBlock,
        },
    },
};

const SENT: [(u64, &[u8]); 3] = [
    (1_700_000_000_000_001_000, &[1; 60]),
    (1_700_000_000_000_501_000, &[2; 1514]),
    (1_700_000_000_002_001_000, &[3; 61]),
];

fn pcap(ts_resolution: TsResolution, endianness: Endianness, datalink: DataLink) -> Vec<u8> {
    let header = PcapHeader { ts_resolution, endianness, datalink, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (ns, bytes) in SENT {
        let packet = PcapPacket::new(Duration::from_nanos(ns), bytes.len() as u32, bytes);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

/// A pcapng file with this time resolution and number of ticks per millisecond.
fn pcapng(resolution: Option<u8>, ticks_per_ms: u64) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let options = resolution.map(InterfaceDescriptionOption::IfTsResol).into_iter().collect();
    writer
        .write_pcapng_block(InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options })
        .unwrap();
    for (ns, bytes) in SENT {
        let ticks = u128::from(ns) * u128::from(ticks_per_ms) / 1_000_000;
        let timestamp = Duration::from_nanos(ticks as u64);
        let original_len = bytes.len() as u32;
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp,
            original_len,
            data: bytes.into(),
            options: vec![],
        };
        writer.write_pcapng_block(packet).unwrap();
    }
    writer.into_inner()
}

fn why(file: &[u8]) -> String {
    Capture::parse(file).unwrap_err().to_string()
}

#[test]
fn frames_and_times_are_the_same_in_every_format() {
    let (us, ns) = (TsResolution::MicroSecond, TsResolution::NanoSecond);
    let files = [
        pcap(us, Endianness::Little, DataLink::ETHERNET),
        pcap(us, Endianness::Big, DataLink::ETHERNET),
        pcap(ns, Endianness::Little, DataLink::ETHERNET),
        pcap(ns, Endianness::Big, DataLink::ETHERNET),
        pcapng(None, 1000),
        pcapng(Some(6), 1000),
        pcapng(Some(9), 1_000_000),
        pcapng(Some(3), 1),
    ];
    for (nth, file) in files.iter().enumerate() {
        let capture = Capture::parse(file).unwrap();
        let bytes: Vec<_> = capture.frames.iter().map(|frame| &frame.bytes[..]).collect();
        assert_eq!(bytes, SENT.map(|(_, bytes)| bytes));
        let at: Vec<_> = capture.frames.iter().map(|frame| frame.at.as_micros()).collect();
        assert_eq!(at, if nth == 7 { [0, 0, 2000] } else { [0, 500, 2000] }, "{nth}");
        assert_eq!((capture.largest(), capture.l3_bytes(), capture.mean_bytes()), (1514, 1500, 545.0));
    }
    // A resolution of 2^-20 s.
    let binary = [InterfaceDescriptionOption::IfTsResol(0x80 | 20)];
    assert_eq!(time(3 << 19, &binary), Duration::from_millis(1500));
}

#[test]
fn a_capture_cut_at_any_byte_is_reported_with_the_offset() {
    let whole = pcap(TsResolution::MicroSecond, Endianness::Little, DataLink::ETHERNET);
    let whole_ng = pcapng(None, 1000);
    for (file, starts) in [(&whole, vec![24, 100, 1630]), (&whole_ng, vec![])] {
        for cut in 4..file.len() {
            match Capture::parse(&file[..cut]) {
                // A file cut between two frames looks complete.
                Ok(capture) => assert!(capture.frames.len() < SENT.len(), "{cut}"),
                Err(unfit) => {
                    assert!(unfit.offset <= cut, "{unfit}");
                    assert!(unfit.to_string().contains("the file "), "{cut}: {unfit}");
                    let begun = starts.iter().rev().find(|start| **start < cut);
                    assert!(begun.is_none_or(|start| unfit.offset == *start), "{cut}: {unfit}");
                }
            }
        }
    }
    assert_eq!(why(&whole[..101]), "at byte 100: the file ends early; copy it again, or capture again");
}

#[test]
fn foreign_formats_and_link_types_are_refused() {
    assert_eq!(why(b"PK\x03\x04 and more"), "at byte 0: not a capture file: neither pcap nor pcapng");
    assert_eq!(why(b""), "at byte 0: not a capture file: neither pcap nor pcapng");
    let radio = pcap(TsResolution::MicroSecond, Endianness::Little, DataLink::IEEE802_11);
    assert_eq!(why(&radio), "at byte 0: its frames are not of Ethernet, but of IEEE802_11");
    let empty = PcapWriter::new(Vec::new()).unwrap().into_writer();
    assert_eq!(why(&empty), "at byte 24: the file has no frame");

    let mut cut = PcapWriter::new(Vec::new()).unwrap();
    cut.write_packet(&PcapPacket::new(Duration::ZERO, 1514, &[0; 96])).unwrap();
    let said = why(&cut.into_writer());
    assert!(said.starts_with("at byte 24: frame 1 was cut from 1514 to 96 bytes"), "{said}");
    let mut small = PcapWriter::new(Vec::new()).unwrap();
    small.write_packet(&PcapPacket::new(Duration::ZERO, 13, &[0; 13])).unwrap();
    assert_eq!(why(&small.into_writer()), "at byte 24: frame 1 has 13 bytes, fewer than an Ethernet header");

    let mut timeless = PcapNgWriter::new(Vec::new()).unwrap();
    timeless.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0)).unwrap();
    timeless.write_pcapng_block(SimplePacketBlock { original_len: 60, data: vec![0; 60].into() }).unwrap();
    let said = why(&timeless.into_inner());
    assert!(said.contains("may have no time"), "{said}");
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    for whole in
        [pcap(TsResolution::MicroSecond, Endianness::Little, DataLink::ETHERNET), pcapng(Some(9), 1_000_000)]
    {
        for at in (0..200).chain(1590..1700) {
            for damage in [0, 1, 0x7f, 0x80, 0xff] {
                let mut file = whole.clone();
                file[at] = damage;
                if let Ok(capture) = Capture::parse(&file) {
                    assert!(capture.frames.is_sorted_by_key(|frame| frame.at), "{at} {damage}");
                    capture.round(Pace::Multiplier(2.0));
                }
            }
        }
    }
}

#[test]
fn tags_are_not_part_of_the_l3_size() {
    let frame = |start: &[u8]| {
        let bytes = [&[0; 12], start, &[0; 100]].concat();
        Capture { frames: vec![Captured { at: Duration::ZERO, bytes }] }
    };
    for start in [&[8, 0][..], &[0x81, 0, 0, 7, 8, 0], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 7, 8, 0]] {
        assert_eq!(frame(start).l3_bytes(), 100);
    }
}

#[test]
fn rounds_follow_each_other_at_the_requested_pace() {
    let capture =
        Capture::parse(&pcap(TsResolution::MicroSecond, Endianness::Little, DataLink::ETHERNET)).unwrap();
    let us = Duration::from_micros;
    let captured = capture.round(Pace::Multiplier(1.0));
    assert_eq!(captured, Round { due: vec![us(0), us(500), us(2000)], period: us(3000) });
    assert_eq!(captured.pps(), Some(1000.0));
    let twice = capture.round(Pace::Multiplier(2.0));
    assert_eq!((twice.due[1], twice.period), (us(250), us(1500)));
    let even = capture.round(Pace::Pps(Some(1e4)));
    assert_eq!(even, Round { due: vec![us(0), us(100), us(200)], period: us(300) });
    for (time, frames) in [(0, 0), (1, 1), (500, 1), (501, 2), (3000, 3), (3001, 4), (9501, 11)] {
        assert_eq!(captured.due_within(us(time)), Some(frames), "{time}");
    }
    let at_once = capture.round(Pace::Pps(None));
    assert_eq!((at_once.pps(), at_once.due_within(us(1))), (None, None));
}
