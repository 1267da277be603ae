//! Examples of `shunt reg`, `shunt doctor`, `shunt link`, `shunt check` and `shunt trace`.

use crate::render::{Diagnosis, Found, Gain, LinkScreen, LinkScreens, Registers};
use serde_json::{Value, json};
use shunt_inspect::{
    check,
    doctor::{Finding, System, diagnose},
    link::{Link, Offload, Pause, Rate, Rings},
    reg::{Decoded, builtin},
    trace,
};
use shunt_lab::Conditions;

/// The register that had flow control off in the i.MX6's measurements.
pub(crate) fn register() -> Registers {
    let all = builtin("imx6q").unwrap();
    let decoded = Decoded::new(&all, all.register("ENET_RCR").unwrap(), 0x05ee_0244);
    Registers::Decoded(Box::new(decoded))
}

fn imx6() -> Link {
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

/// A finding; pause frames have a prediction of their gain.
fn found(finding: Finding) -> Found {
    let gain = (finding.rule == "partner-pauses-alone").then(|| Gain {
        case: "i.MX6 ENET, Linux 3.0.35".to_owned(),
        offered: "957 Mbit/s of UDP, received".to_owned(),
        now_mbps: 294.0,
        fixed_mbps: 455.2,
        now_loss_percent: 66.7,
        fixed_loss_percent: 0.0,
    });
    Found { finding, gain }
}

pub(crate) fn diagnoses() -> Vec<Diagnosis> {
    let link = imx6();
    let lacking = link.lacking.clone();
    let system = System { compatible: vec!["fsl,imx6q".to_owned()], cpus: 4, link, ..System::default() };
    vec![Diagnosis {
        port: "eth0".to_owned(),
        findings: diagnose(&system).into_iter().map(found).collect(),
        load: None,
        lacking,
    }]
}

/// A port that counts wrongly, and whose driver has no rings.
pub(crate) fn checks() -> check::Report {
    let case = |case: &str, title: &str, outcome: &str, evidence: &str| json!({"case": case, "title": title, "outcome": outcome, "evidence": evidence, "seconds": 0.25});
    let report = json!({
        "port": "eth0", "driver": "8139cp", "peer": "eth1",
        "cases": [
            case("link", "frames pass both ways", "pass", "100 Mbit/s, full duplex"),
            case("rings", "frames pass with every ring size", "impossible", "eth0 has no ring sizes"),
            case("counters", "the counters agree with what was sent", "fail", "eth0 counts 74000 bytes of 88000"),
        ],
    });
    serde_json::from_value(report).unwrap()
}

/// Packets of the slow path and of the fast path, one of which was delayed in the qdisc; the search for the culprit.
pub(crate) fn traced() -> trace::Report {
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
