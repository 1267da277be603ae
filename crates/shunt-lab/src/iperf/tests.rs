use super::{output::parse, *};
use serde_json::Value;

/// Output of iperf 3.12.
const TCP: &str = include_str!("kept/tcp.json");
const TCP_BIDIR: &str = include_str!("kept/tcp-bidir.json");
const UDP: &str = include_str!("kept/udp.json");
const UDP_REVERSE: &str = include_str!("kept/udp-reverse.json");
const UDP_BIDIR: &str = include_str!("kept/udp-bidir.json");
/// A rule dropped datagrams above 500 per second.
const UDP_LOSS: &str = include_str!("kept/udp-loss.json");
/// A rule dropped all datagrams; iperf3 prints `"lost_percent": 0`.
const UDP_NONE: &str = include_str!("kept/udp-none.json");
const REFUSED: &str = include_str!("kept/refused.json");
/// The server was killed during the test.
const ENDED: &str = include_str!("kept/ended.json");

fn arrived(text: &str, direction: Direction) -> Vec<Arrived> {
    parse(text, direction).unwrap()
}

#[test]
fn goodput_is_counted_by_the_receiver() {
    let tcp = arrived(TCP, Direction::Forward);
    assert_eq!(
        (tcp.len(), tcp[0].bytes, tcp[0].retransmits, tcp[0].datagrams),
        (1, 2_621_440, Some(0), None)
    );
    assert!((tcp[0].bits_per_second - 8.0 * 2_621_440.0 / tcp[0].seconds).abs() < 1.0);
    assert!((1.0..1.01).contains(&tcp[0].seconds), "{tcp:?}");
    // iperf3 divides by the sender's time; the receiver took 1.000042 s.
    let udp = arrived(UDP_REVERSE, Direction::Reverse)[0];
    assert!((udp.bits_per_second - 19_993_144.288).abs() < 0.01, "{udp:?}");
}

#[test]
fn both_ways_are_reported() {
    let text = TCP_BIDIR.replace("\"sum_received_bidir_reverse\"", "\"x\"");
    let why = parse(&text, Direction::Duplex).unwrap_err();
    assert_eq!(why, "unexpected JSON: end.sum_received_bidir_reverse is missing");
    assert_eq!(arrived(TCP_BIDIR, Direction::Duplex).len(), 2);
    let sent: Vec<_> = arrived(UDP_BIDIR, Direction::Duplex).iter().map(|one| one.bytes).collect();
    assert_eq!(sent, [2_497_800, 2_499_248]);
}

#[test]
fn loss_is_counted_by_missing_datagrams() {
    let datagrams = |text| arrived(text, Direction::Forward)[0].datagrams.unwrap();
    let all = datagrams(UDP);
    assert_eq!((all.sent, all.received, all.lost, all.loss_ratio), (1726, 1726, 0, 0.0));
    // Three datagrams behind the last one that arrived may have been under way.
    let some = datagrams(UDP_LOSS);
    assert_eq!((some.sent, some.received, some.lost), (1726, 504, 1219));
    assert!((some.loss_ratio - 1219.0 / 1723.0).abs() < 1e-9 && (some.jitter_ms - 0.0156).abs() < 1e-4);
    let none = datagrams(UDP_NONE);
    assert_eq!((none.sent, none.received, none.lost, none.loss_ratio), (1726, 0, 1726, 1.0));
    assert_eq!(arrived(UDP_NONE, Direction::Forward)[0].bits_per_second, 0.0);
}

#[test]
fn late_packets_give_no_negative_loss() {
    let mut value: Value = serde_json::from_str(UDP).unwrap();
    value["end"]["sum_received"]["lost_packets"] = (-3).into();
    let datagrams = arrived(&value.to_string(), Direction::Forward)[0].datagrams.unwrap();
    assert_eq!((datagrams.lost, datagrams.loss_ratio), (0, 0.0));
}

#[test]
fn errors_of_iperf3_are_passed_on() {
    for (text, why) in [
        (REFUSED, "unable to connect to server: Connection refused"),
        (ENDED, "the server has terminated"),
        ("", "no output"),
        (&TCP[..1200], "unexpected JSON: EOF while parsing"),
        ("Segmentation fault", "of `Segmentation fault`"),
        ("{}", "unexpected JSON: missing field `start`"),
    ] {
        let got = parse(text, Direction::Forward).unwrap_err();
        assert!(got.contains(why), "{got}");
    }
    // iperf 3.10 and older have no such field for UDP.
    let old = UDP.replace("\"sum_sent\"", "\"x\"").replace("\"sum_received\"", "\"y\"");
    let why = parse(&old, Direction::Forward).unwrap_err();
    assert_eq!(why, "unexpected JSON: end.sum_sent is missing");
}

#[test]
fn unsupported_versions_are_refused() {
    for (text, version) in [
        ("iperf 3.12 (cJSON 1.7.15)\nLinux vm 6.18\n", "3.12"),
        ("iperf 3.11 (cJSON 1.7.13)", "3.11"),
        ("iperf 3.19.1+ (cJSON 1.7.15)", "3.19.1+"),
    ] {
        assert_eq!(Iperf::parse_version(text).unwrap().version(), version);
    }
    for (text, why) in [
        ("iperf 3.9 (cJSON 1.7.13)", "iperf3 has version 3.9; 3.11 or later is needed"),
        ("iperf 4.0", "iperf3 has version 4.0; 3.11 or later"),
        ("iperf version 2.1.8", "iperf3 --version prints `iperf version 2.1.8`; iperf 3.11 or later"),
        ("", "iperf3 --version prints ``"),
    ] {
        let got = Iperf::parse_version(text).unwrap_err().to_string();
        assert!(got.contains(why), "{got}");
    }
}
