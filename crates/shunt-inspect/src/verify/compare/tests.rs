use super::*;
use std::net::Ipv4Addr;

fn segment(mac: u8, ttl: u8) -> Segment {
    Segment {
        treated: Treated {
            l2: [[mac; 6], [2; 6]].concat(),
            src: Ipv4Addr::new(192, 0, 2, 1).into(),
            dst: Ipv4Addr::new(198, 51, 100, 1).into(),
            sport: 1,
            dport: 2,
            ttl,
            dscp: 0,
            ecn: 2,
        },
        kept: vec![0; 40],
        exact: (1, 0x10),
        is_part: false,
        is_ip_sum_good: true,
        is_l4_sum_good: Some(true),
        stream: None,
    }
}

#[test]
fn only_a_treatment_that_linux_never_gives_is_strange() {
    let mut all = Treatments::default();
    assert!(all.by_linux().is_none());
    for _ in 0..2 {
        all.add(Way::Slow, &segment(9, 64), &segment(1, 63));
    }
    all.add(Way::Slow, &segment(9, 64), &segment(5, 63));
    // The TTL may be any, if it falls by one.
    all.add(Way::Fast, &segment(9, 200), &segment(1, 199));
    assert_eq!(all.only_fast().count(), 0);
    all.add(Way::Fast, &segment(9, 64), &segment(1, 64));
    all.add(Way::Fast, &segment(9, 64), &segment(7, 63));
    let by_linux = all.by_linux().unwrap();
    let strange: Vec<_> = all.only_fast().map(|(one, ..)| one.differences(by_linux)).collect();
    let expected = [
        vec![("TTL change", "0".to_owned(), "-1".to_owned())],
        vec![("destination MAC", "07:07:07:07:07:07".to_owned(), "01:01:01:01:01:01".to_owned())],
    ];
    assert_eq!(strange, expected);
}

#[test]
fn a_queue_may_set_congestion_experienced_and_nothing_else_of_ecn() {
    let entered = segment(1, 64);
    let with = |ecn: u8| {
        let mut left = segment(1, 63);
        left.treated.ecn = ecn;
        fault(&entered, &left)
    };
    assert_eq!([0, 1, 2, 3].map(with), [Some(Fault::Bytes), Some(Fault::Bytes), None, None]);
}

#[test]
fn the_id_is_compared_between_single_packets_only() {
    let (entered, mut left) = (segment(1, 64), segment(1, 63));
    left.exact.0 = 2;
    assert_eq!(fault(&entered, &left), Some(Fault::Bytes));
    left.is_part = true;
    assert_eq!(fault(&entered, &left), None);
}

#[test]
fn a_packet_with_many_other_bytes_is_another_packet() {
    let (entered, mut left) = (segment(1, 64), segment(1, 63));
    left.kept[..5].fill(1);
    assert!(is_changed(&entered, &left));
    left.kept[..6].fill(1);
    assert!(!is_changed(&entered, &left));
}
