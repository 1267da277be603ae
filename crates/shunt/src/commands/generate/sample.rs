//! A report of `shunt gen`.

use serde_json::{Value, json};
use shunt_lab::{Conditions, traffic::Report};

/// Traffic in both directions, with a little loss.
pub(crate) fn traffic() -> Report {
    let figures = |sent: u64, lost: u64| {
        json!({
            "offered_pps": 100_000.0, "achieved_pps": 99_998.5, "achieved_l2_bps": 51_199_232.0,
            "achieved_l1_bps": 67_198_992.0, "seconds": 2.0, "sent": sent, "received": sent - lost, "lost": lost,
            "loss_ratio": lost as f64 / sent as f64, "duplicated": 2, "reordered": 3, "displaced_max": 17, "flows": 1000,
            "latency_us": {"min": 1.6, "p50": 7.1, "p99": 9.7, "p999": 37.1, "max": 75.2}, "jitter_us": 0.85,
        })
    };
    let direction = |from: &str, to: &str, traffic: &str, figures: Value| {
        let mut one = json!({"from": from, "to": to, "traffic": traffic, "means": "xdp-live"});
        if from == "lan0" {
            one["limit"] = json!({"value": 1_488_095.0, "of": "1Gbit/s, frames of 64 bytes"});
            one["line_share"] = json!(0.0672);
        }
        if let (Some(one), Value::Object(figures)) = (one.as_object_mut(), figures) {
            one.extend(figures);
        }
        one
    };
    let there = "IPv4/UDP 192.168.1.2 -> 198.18.0.2, ports 1024-2023 -> 5001, frames of 64 bytes, 1000 flows";
    let back = "IPv4/UDP 198.18.0.2 -> 192.168.1.2, ports 5001 -> 1024-2023, frames of 64 bytes, 1000 flows";
    let mut report = json!({
        "doubts": [{"kind": "virtual-links"}, {"kind": "sent-late", "microseconds": 1201.0}],
        "directions": [
            direction("lan0", "wan0", there, figures(200_000, 12)),
            direction("wan0", "lan0", back, figures(200_000, 0)),
        ],
        "floor": {
            "latency_us": {"min": 0.3, "p50": 1.1, "p99": 2.2, "p999": 8.8, "max": 23.1},
            "jitter_us": 0.17, "max_pps": 2_107_000.0,
        },
        "burst": 8,
        "what": "traffic",
        "began": "2026-11-21T08:00:00Z",
        "complete": true,
        "conditions": Conditions::default(),
        "readings": {
            "loss lan0 to wan0": {
                "unit": "%", "value": 0.006, "spread": {"low": 0.006, "high": 0.006, "kind": "range"},
                "doubts": [{"kind": "virtual-links"}], "runs": [{"value": 0.006, "details": {"lost": 12}}],
            },
        },
    });
    if let (Some(report), Value::Object(figures)) = (report.as_object_mut(), figures(400_000, 12)) {
        report.extend(figures);
    }
    serde_json::from_value(report).unwrap()
}
