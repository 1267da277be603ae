//! A port of an i.MX6.

use super::view::{LinkScreen, LinkScreens};
use shunt_inspect::link::{Link, Offload, Pause, Rate, Rings};

pub(crate) fn imx6() -> Link {
    let mut link = Link {
        up: true,
        carrier: true,
        duplex: Some("full".to_owned()),
        autoneg: Some(true),
        ..Link::default()
    };
    link.nic.name = "eth0".to_owned();
    link.nic.driver = Some("fec".to_owned());
    link.nic.speed_mbps = Some(1000);
    link.nic.mtu = Some(1500);
    link.advertised = ["Autoneg", "1000baseT/Full"].map(str::to_owned).to_vec();
    link.partner = ["Autoneg", "1000baseT/Full", "Pause"].map(str::to_owned).to_vec();
    link.pause = Some(Pause { autoneg: true, rx: false, tx: false });
    link.rings = Some(Rings { rx: Some(512), rx_max: Some(512), tx: Some(512), tx_max: None });
    link.coalesce.insert("rx-usecs".to_owned(), 0);
    link.offloads.insert("rx-checksum".to_owned(), Offload { on: true, fixed: false });
    link.offloads.insert("rx-lro".to_owned(), Offload { on: false, fixed: true });
    link.counters.insert("rx_fifo_errors".to_owned(), 782_502);
    link.qdiscs = vec!["mq root".to_owned()];
    for what in ["channels", "eee"] {
        link.lacking.insert(what.to_owned(), "the driver does not offer it".to_owned());
    }
    link
}

pub(crate) fn link() -> LinkScreens {
    let rate = |device: &str, counter: &str, per_second, trouble| Rate {
        device: device.to_owned(),
        counter: counter.to_owned(),
        rise: per_second as u64,
        per_second,
        trouble,
    };
    let rates = vec![
        rate("eth0", "rx_packets", 38_500.0, false),
        rate("eth0", "rx_bytes", 58_000_000.0, false),
        rate("eth0", "rx_fifo_errors", 4100.5, true),
        rate("eth0", "rx_queue_0_packets", 38_500.0, false),
        rate("irq150", "interrupts", 9000.0, false),
        rate("cpu0", "time_squeeze", 3.0, true),
    ];
    LinkScreens {
        screens: vec![LinkScreen { link: imx6(), seconds: 1.0, rates, rates_only: false }],
        more: false,
    }
}
