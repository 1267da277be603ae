//! A report of `shunt bench sweep`.

use serde_json::json;
use shunt_lab::{
    Doubt,
    counters::Change,
    sweep::{self, Beyond, Knee, Suspect},
};

/// The rates of an i.MX6 around the knee.
pub(crate) fn sweep() -> sweep::Report {
    let step = |mbps: u64, achieved: f64, counts: [u64; 2], changes: Vec<Change>| {
        let [sent, lost] = counts;
        let direction = json!({
            "from": "eth1", "to": "eth2", "traffic": "IPv4/UDP", "means": "socket",
            "offered_pps": mbps as f64 * 1e6 / 12_144.0, "achieved_pps": achieved * 1e6 / 12_144.0,
            "achieved_l2_bps": achieved * 1e6, "achieved_l1_bps": achieved * 1.013e6, "seconds": 2.0,
            "sent": sent, "received": sent - lost, "lost": lost, "loss_ratio": lost as f64 / sent as f64,
            "duplicated": 0, "reordered": 0, "displaced_max": 0, "flows": 1, "jitter_us": 17.25,
            "line_share": (sent - lost) as f64 / 2.0 / 81_274.0,
            "limit": {"value": 81_274.0, "of": "1Gbit/s, frames of 1518 bytes"},
            "latency_us": {"min": 81.0, "p50": 102.0, "p99": 350.0, "p999": 900.0, "max": 1400.0},
        });
        sweep::Step {
            offered_bps: mbps * 1_000_000,
            doubts: if achieved < mbps as f64 { vec![Doubt::SentLess { percent: 99.5 }] } else { Vec::new() },
            directions: vec![serde_json::from_value(direction).unwrap()],
            dut_load: (mbps == 400).then(crate::commands::load::sample::load),
            changes,
        }
    };
    let change = |counter: &str, before: u64, after: u64, rise: u64, bits| {
        let (device, counter) = ("eth2".to_owned(), counter.to_owned());
        let trouble = counter != "rx_packets";
        Change {
            device,
            counter,
            before,
            after,
            rise,
            bits,
            reset: after < before && bits.is_none(),
            trouble,
        }
    };
    let lossy = vec![
        change("IEEE_rx_fdxfc", 0xf544, 0x0310, 3532, Some(16)),
        change("IEEE_rx_macerr", 10, 4611, 4601, None),
        change("rx_packets", 62_750, 127_114, 64_364, None),
    ];
    let knee = Knee {
        from: "eth1".to_owned(),
        to: "eth2".to_owned(),
        passes_bps: Some(350e6),
        loses_bps: Some(398e6),
        loss_ratio: Some(4601.0 / 68_965.0),
        most_bps: 371e6,
        beyond: Beyond::Collapse,
        suspects: vec![Suspect {
            device: "eth2".to_owned(),
            counter: "IEEE_rx_macerr".to_owned(),
            rise: 4601,
            of_lost: 1.0,
        }],
    };
    sweep::Report {
        doubts: vec![Doubt::OneCore],
        step_s: 2.0,
        steps: vec![
            step(350, 350.0, [60_606, 0], vec![change("rx_packets", 2144, 62_750, 60_606, None)]),
            step(400, 398.0, [68_965, 4601], lossy),
            step(450, 450.0, [76_922, 36_388], vec![change("rx_dropped", 77, 5, 5, None)]),
        ],
        knees: vec![knee],
        results: crate::commands::bench::goodput::sample::begun("UDP rate sweep").finish().unwrap(),
    }
}
