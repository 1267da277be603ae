//! Reports of `shunt bench size`, `shunt bench sweep` and `shunt bench ndr --what concurrent`.

use serde_json::json;
use shunt_lab::{
    Conditions, Doubt, Reading, Results, Run, Spread, SpreadKind,
    counters::Change,
    frame_size,
    sweep::{self, Beyond, Knee, Suspect},
    throughput::concurrent::{self, MaximumOf, Range, Searched, Trial},
};

/// Three routers: one holds the highest number, one has a smaller table, and one holds not even the lowest number.
pub(crate) fn concurrent() -> concurrent::Report {
    let all = |connections: u32, fast_share| Trial {
        connections,
        opened_pps: 19_990.4,
        passes: 2,
        tracked: connections.into(),
        fast_share,
        ..Trial::default()
    };
    let searched = |device: &str, trials, held, fails, doubts| Searched {
        device: device.to_owned(),
        run: 1,
        trials,
        held,
        fails,
        doubts,
    };
    let full = Trial { tracked: 50_123, renewed: 17, lost: 19_877, ..all(70_000, Some(0.31)) };
    let slow = Doubt::SlowPath { percent: 41.0 };
    let searches = vec![
        searched("slow", 5, Some(all(131_072, None)), None, vec![Doubt::VirtualLinks]),
        searched("tc", 11, Some(all(50_122, Some(0.41))), Some(full), vec![Doubt::VirtualLinks, slow]),
        searched("xdp", 1, None, Some(Trial { lost: 3, ..all(9001, Some(0.99)) }), vec![Doubt::VirtualLinks]),
    ];
    let range = Range { min: 9001, max: 131_072, max_of: MaximumOf::Table, width: 0.005 };
    let results = Results::new("concurrent connections", Conditions::default());
    concurrent::Report { range, pps: 20_000.0, searches, results }
}

/// Two routers at two frame sizes; the faster router forwards all large frames.
pub(crate) fn sizes() -> frame_size::Report {
    let point = |router: &str, frame_bytes: u32, pps: [f64; 3], offered_pps: f64, gain: Option<f64>| {
        let mut forwarded_pps = Reading::from_runs("pps", pps.map(Run::from).to_vec()).unwrap();
        let loss_ratio = 1.0 - pps[0] / offered_pps;
        if loss_ratio < 0.001 {
            forwarded_pps.add_doubt(Doubt::SentLate { microseconds: 1201.0 });
        }
        let l1_bps = pps[0] * 8.0 * f64::from(frame_bytes + 20);
        let spread =
            |value: f64| Spread { low: value - 0.02, high: value + 0.03, kind: SpreadKind::Confidence95 };
        frame_size::Point {
            router: router.to_owned(),
            frame_bytes,
            forwarded_pps,
            l2_bps: pps[0] * 8.0 * f64::from(frame_bytes),
            l1_bps,
            line_share: Some(l1_bps / 1e9),
            offered_pps,
            loss_ratio,
            generator_pps: Some(2_107_000.0),
            dut_load_percent: Some(if router == "slow" { 98.84 } else { 51.02 }),
            gain: gain.map(|value| frame_size::Gain { value, spread: spread(value) }),
        }
    };
    let effect = |router: &str, ratios: [f64; 2], cost| frame_size::Effect {
        router: router.to_owned(),
        pps_ratio: ratios[0],
        l2_ratio: ratios[1],
        cost,
    };
    let cost = frame_size::Cost { frame_ns: 2850.0, byte_ns: 6.65, bytes_share: 0.78 };
    frame_size::Report {
        doubts: vec![Doubt::VirtualLinks],
        speed_bps: Some(1_000_000_000),
        trial_s: 2.0,
        points: vec![
            point("slow", 64, [304_878.0, 301_200.0, 306_100.0], 1_488_095.0, None),
            point("slow", 1518, [77_279.0, 77_001.0, 78_030.0], 81_274.0, None),
            point("xdp", 64, [1_120_000.0, 1_090_000.0, 1_130_000.0], 1_488_095.0, Some(3.67)),
            point("xdp", 1518, [81_270.0, 81_269.0, 81_271.0], 81_274.0, Some(1.05)),
        ],
        effects: vec![effect("slow", [0.25, 6.0], Some(cost)), effect("xdp", [0.07, 1.7], None)],
        conditions: Conditions::default(),
    }
}

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
            dut_load: (mbps == 400).then(crate::render::examples::load),
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
        conditions: Conditions::default(),
    }
}
