use super::*;

const TCP: L4 = L4::Tcp { options_bytes: 0 };
const STAMPED: L4 = L4::Tcp { options_bytes: TCP_TIMESTAMPS_BYTES };

fn plain(tags: u32, ip: IpVersion, l4: L4) -> Encapsulation {
    Encapsulation { tags, pppoe: false, ip, l4 }
}

fn gigabit() -> LinkSpeed {
    "1G".parse().unwrap()
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Bytes on the wire, packets/s, payload bytes, and Mbit/s of payload at 1 Gbit/s.
fn at_a_gigabit(encapsulation: Encapsulation) -> (u32, f64, u32, f64) {
    let sizes = encapsulation.in_mtu(1500).unwrap();
    let rate = gigabit().frames_per_second(sizes.frame);
    let mbps = rate * f64::from(sizes.l4_payload) * 8.0 / 1e6;
    (sizes.wire(), tenths(rate), sizes.l4_payload, tenths(mbps))
}

#[test]
fn sizes_and_rates_at_1_gbit_s_are_those_of_the_published_table() {
    use IpVersion::{V4, V6};
    for (encapsulation, row) in [
        (plain(0, V4, L4::Udp), (1538, 81274.4, 1472, 957.1)),
        (plain(0, V4, TCP), (1538, 81274.4, 1460, 949.3)),
        (plain(0, V6, L4::Udp), (1538, 81274.4, 1452, 944.1)),
        (plain(0, V6, TCP), (1538, 81274.4, 1440, 936.3)),
        (plain(1, V4, L4::Udp), (1542, 81063.6, 1472, 954.6)),
        (plain(1, V4, TCP), (1542, 81063.6, 1460, 946.8)),
        (plain(1, V6, L4::Udp), (1542, 81063.6, 1452, 941.6)),
        (plain(1, V6, TCP), (1542, 81063.6, 1440, 933.9)),
        (plain(0, V4, STAMPED), (1538, 81274.4, 1448, 941.5)),
        (plain(0, V6, STAMPED), (1538, 81274.4, 1428, 928.5)),
        (plain(1, V4, STAMPED), (1542, 81063.6, 1448, 939.0)),
        (plain(1, V6, STAMPED), (1542, 81063.6, 1428, 926.1)),
    ] {
        assert_eq!(at_a_gigabit(encapsulation), row, "{encapsulation}");
    }
}

#[test]
fn frames_per_second_are_those_of_rfc_2544() {
    for (speed, frame, rate) in [
        ("10M", 64, 14_881),
        ("100M", 64, 148_810),
        ("1G", 64, 1_488_095),
        ("2.5G", 64, 3_720_238),
        ("10G", 64, 14_880_952),
        ("1G", 68, 1_420_455),
        ("1G", 128, 844_595),
        ("1G", 256, 452_899),
        ("1G", 512, 234_962),
        ("1G", 1024, 119_732),
        ("1G", 1280, 96_154),
        ("1G", 1518, 81_274),
        ("1G", 1522, 81_064),
        ("1G", 9018, 13_830),
    ] {
        let speed: LinkSpeed = speed.parse().unwrap();
        assert_eq!(speed.frames_per_second(frame).round() as u64, rate, "{speed} {frame}");
    }
}

#[test]
fn tags_and_pppoe_enlarge_the_frame_around_the_packet() {
    let qinq = plain(2, IpVersion::V4, L4::Udp);
    assert_eq!(qinq.in_mtu(1500).unwrap(), Sizes { frame: 1526, l3: 1500, l4_payload: 1472 });
    let pppoe = Encapsulation { tags: 1, pppoe: true, ip: IpVersion::V4, l4: TCP };
    assert_eq!(pppoe.in_mtu(1492).unwrap(), Sizes { frame: 1522, l3: 1492, l4_payload: 1452 });
    assert_eq!((qinq.to_string(), pppoe.to_string()), ("QinQ/IPv4/UDP".into(), "VLAN/PPPoE/IPv4/TCP".into()));
    let smallest = plain(0, IpVersion::V4, L4::Udp).in_frame(64).unwrap();
    assert_eq!(smallest, Sizes { frame: 64, l3: 46, l4_payload: 18 });
}

#[test]
fn impossible_sizes_are_refused_with_the_bound() {
    let why = |sizes: Result<Sizes, Impossible>| sizes.unwrap_err().to_string();
    let (v4, v6) = (plain(0, IpVersion::V4, L4::Udp), plain(0, IpVersion::V6, L4::Udp));
    assert_eq!(why(v4.in_mtu(67)), "IPv4/UDP: an MTU of 67 is too small: IPv4 needs 68");
    assert_eq!(why(v6.in_mtu(1279)), "IPv6/UDP: an MTU of 1279 is too small: IPv6 needs 1280");
    assert!(v4.in_mtu(68).is_ok() && v6.in_mtu(1280).is_ok());
    assert_eq!(why(v4.in_frame(63)), "a frame of 63 bytes is too short: Ethernet needs 64, including FCS");
    assert_eq!(why(v6.in_frame(65)), "IPv6/UDP: a frame of 65 bytes is too short: headers and FCS need 66");
    assert_eq!(v6.in_frame(66).unwrap().l4_payload, 0);
    assert!(v4.in_mtu(65_535).is_ok() && v4.in_mtu(65_536).is_err() && v4.in_mtu(u32::MAX).is_err());
    assert!(plain(3, IpVersion::V4, L4::Udp).in_mtu(1500).is_err());
    for (options_bytes, possible) in [(0, true), (40, true), (44, false), (10, false)] {
        let sizes = plain(0, IpVersion::V4, L4::Tcp { options_bytes }).in_mtu(1500);
        assert_eq!(sizes.is_ok(), possible, "{options_bytes}");
    }
}

#[test]
fn link_speeds_are_parsed_as_they_are_displayed() {
    for (text, speed) in [
        ("1G", 1_000_000_000),
        ("2.3g", 2_300_000_000),
        ("100Mbit", 100_000_000),
        ("56k", 56_000),
        ("0.4T", 400_000_000_000),
        ("9600", 9600),
        ("1Gbps", 1_000_000_000),
        ("1Gbit/s", 1_000_000_000),
    ] {
        assert_eq!(text.parse::<LinkSpeed>().unwrap().bits_per_second(), speed, "{text}");
    }
    for text in
        ["0", "0G", "", "G", "1X", "-1G", "1e9", "NaN", "inf", "1.2.3M", "1 G", "µ", "1kpps", "80%", "1GBps"]
    {
        assert!(text.parse::<LinkSpeed>().is_err(), "{text}");
    }
    for text in ["1G", "2.5G", "100M", "56k", "800"] {
        assert_eq!(text.parse::<LinkSpeed>().unwrap().to_string(), text);
    }
}
