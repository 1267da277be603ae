//! A report of `shunt trace`.

use serde_json::{Value, json};
use shunt_inspect::trace::Report;
use shunt_lab::Conditions;

/// Packets of the slow path and of the fast path, one of which was delayed in the qdisc; the search for the culprit.
pub(crate) fn traced() -> Report {
    let times = |mean: f64| {
        let of = |factor: f64| (mean * factor) as u64;
        json!({"count": 300, "mean_ns": mean, "p50_ns": of(0.9), "p90_ns": of(1.5), "p99_ns": of(4.0), "max_ns": of(9.0)})
    };
    let with = |mut one: Value, more: Value| {
        if let (Some(one), Value::Object(more)) = (one.as_object_mut(), more) {
            one.extend(more);
        }
        one
    };
    let stage = |stage: &str, ns: f64| {
        with(times(ns), json!({"stage": stage, "share_ns": ns, "thread": "napi/r0-8193"}))
    };
    let path = |way: &str, total: f64, stages: Vec<Value>| {
        json!({
            "way": way, "from": "r0", "to": "r1", "packets": 300, "dropped": u8::from(way == "slow"),
            "total": times(total), "crossing": times(total * 0.8), "stages": stages,
        })
    };
    let slow = vec![
        stage("gro", 600.0),
        stage("ingress", 400.0),
        stage("prerouting", 300.0),
        stage("routing", 700.0),
        stage("qdisc", 2_095_000.0),
        stage("transmit", 1000.0),
        stage("completion", 2000.0),
    ];
    let fast = vec![
        stage("gro", 600.0),
        stage("fast-path", 500.0),
        stage("qdisc", 900.0),
        stage("transmit", 1000.0),
    ];
    let step =
        |stage: &str, ns: u64, thread: &str| json!({"stage": stage, "ns": ns, "thread": thread, "cpu": 1});
    let ends = json!({"protocol": 17, "from": "192.168.1.2:4000", "to": "198.18.0.2:5000"});
    let row = json!({
        "began_ns": 1000, "way": "tc", "ends": ends, "translated": ends, "bytes": 92, "end": "done", "drop_reason": null,
        "thread": "napi/r0-8193", "total_ns": 3000,
        "steps": [
            step("gro", 600, "napi/r0-8193"),
            step("fast-path", 500, "napi/r0-8193"),
            step("qdisc", 900, "ksoftirqd/1"),
            step("transmit", 1000, "ksoftirqd/1"),
        ],
    });
    let report = json!({
        "seconds": 5.1, "sample": 64, "packets": 600,
        "paths": [path("slow", 2_100_000.0, slow), path("tc", 3000.0, fast)],
        "rows": [[], [row]],
        "missing": {"send": "this kernel has no tracepoint tcp_sendmsg_locked"},
        "lost": {
            "slots_busy": 2, "ring_full": 0, "runs_skipped": 0, "events": 0, "vanished": 3, "unfinished": 0, "not_kept": 0,
        },
        "cost": {
            "probe_ns": 8.0, "event_ns": 60.0, "packet_without_ns": 1400.0, "probes": 12, "probes_per_packet": 10.0,
            "attached_share": 0.0625, "per_packet_ns": 14.0, "switching_percent": 1.5,
        },
        "cost_unknown": null,
        "bisection": {
            "way": "slow", "stage": "qdisc", "functions": ["skb_orphan_partial", "sch_direct_xmit", "netif_skb_features"],
            "rounds": [
                {
                    "from": null, "at": "sch_direct_xmit", "to": null, "before_ns": 2_096_000.0, "after_ns": 4000.0,
                    "packets": 201,
                },
                {
                    "from": null, "at": "skb_orphan_partial", "to": "sch_direct_xmit", "before_ns": 8000.0,
                    "after_ns": 2_088_000.0, "packets": 201,
                },
            ],
            "culprit": "skb_orphan_partial", "next": "sch_direct_xmit", "culprit_ns": 2_088_000.0, "stage_ns": 2_100_000.0,
        },
        "bisection_failed": null,
        "conditions": Conditions::default(),
    });
    serde_json::from_value(report).unwrap()
}
