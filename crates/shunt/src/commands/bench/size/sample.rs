//! A report of `shunt bench size`.

use shunt_lab::{Doubt, Reading, Run, Spread, SpreadKind, frame_size};

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
        results: crate::commands::bench::goodput::sample::begun("forwarding rate by frame size")
            .finish()
            .unwrap(),
    }
}
