use super::*;
use crate::{
    Conditions, SpreadKind,
    traffic::{Directed, Figures},
};

fn figures(pps: f64, loss_ratio: f64) -> Figures {
    let received = (pps * 2.0) as u64;
    Figures {
        received,
        seconds: 2.0,
        loss_ratio,
        achieved_pps: pps / (1.0 - loss_ratio),
        ..Figures::default()
    }
}

fn directed(pps: f64, loss_ratio: f64) -> Directed {
    let mut one = serde_json::to_value(figures(pps, loss_ratio)).unwrap();
    for name in ["from", "to", "traffic"] {
        one[name] = "".into();
    }
    one["means"] = "socket".into();
    serde_json::from_value(one).unwrap()
}

fn plan(rounds: u32) -> FrameSizePlan {
    let any = std::net::SocketAddr::from(([0, 0, 0, 0], 1));
    let engines = ["slow", "xdp"].map(|name| (name.to_owned(), None)).to_vec();
    FrameSizePlan {
        spec: TrafficSpec::for_shape(shunt_gen::Shape::udp(any, any, "64".parse().unwrap())),
        testbed: Testbed::Own,
        engines,
        frame_bytes: vec![64, 1500],
        mtus: Vec::new(),
        rounds,
        trial: Duration::from_secs(2),
        dut: None,
        own_load: false,
    }
}

/// A router that takes 1000 ns per frame and 1 ns per byte, and one that is twice as fast.
fn measured(plan: &FrameSizePlan, loss_ratio: f64) -> Vec<Series> {
    let mut all = plan.series();
    for series in &mut all {
        let faster = if series.router == "xdp" { 2.0 } else { 1.0 };
        let pps = faster * 1e9 / (1000.0 + f64::from(series.frame_bytes));
        series.runs = [1.0, 1.01, 0.99].map(|drift| figures(pps * drift, loss_ratio)).to_vec();
    }
    all
}

fn near(got: f64, want: f64) -> bool {
    (got / want - 1.0).abs() < 0.001
}

fn results() -> Results {
    Results::new("forwarding rate by frame size", Conditions::default())
}

#[test]
fn the_costs_per_frame_and_per_byte_are_separated() {
    let plan = plan(3);
    let report = plan.report(&measured(&plan, 0.3), None, "10G".parse().ok(), results());
    let at = |n: usize| &report.points[n];
    assert_eq!((at(0).router.as_str(), at(0).frame_bytes, at(3).frame_bytes), ("slow", 64, 1500));
    assert!(near(at(0).forwarded_pps.value, 1e9 / 1064.0) && near(at(0).l2_bps, 64.0 * 8e9 / 1064.0));
    assert!(near(at(1).line_share.unwrap(), 1520.0 * 8e9 / 2500.0 / 1e10), "{:?}", at(1));
    let limit = at(1).forwarded_pps.limit.clone().unwrap();
    assert_eq!((limit.value.round(), limit.of.as_str()), (822_368.0, "10Gbit/s, frames of 1500 bytes"));
    // Drift over time affects both routers.
    assert!(at(0).gain.is_none() && near(at(2).gain.unwrap().value, 2.0));
    assert!(near(at(3).gain.unwrap().spread.low, 2.0) && near(at(3).gain.unwrap().spread.high, 2.0));
    let [slow, xdp] = &report.effects[..] else { panic!("{:?}", report.effects) };
    let (slow_cost, xdp_cost) = (slow.cost.unwrap(), xdp.cost.unwrap());
    assert!(near(slow_cost.frame_ns, 1000.0) && near(slow_cost.byte_ns, 1.0), "{slow_cost:?}");
    assert!(near(xdp_cost.frame_ns, 500.0) && near(slow_cost.bytes_share, 0.6), "{xdp_cost:?}");
    assert!(near(slow.pps_ratio, 1064.0 / 2500.0) && near(slow.l2_ratio, 1064.0 / 2500.0 * 1500.0 / 64.0));
}

#[test]
fn sizes_that_the_router_did_not_limit_give_no_cost() {
    let plan = plan(3);
    let mut all = measured(&plan, 0.3);
    all.iter_mut().for_each(|series| series.doubts.push(Doubt::GeneratorBound));
    let report = plan.report(&all, None, None, results());
    assert!(report.effects.iter().all(|effect| effect.cost.is_none()), "{:?}", report.effects);
    assert!(report.points.iter().all(|point| point.line_share.is_none()));
    // Frames of 1500 bytes fill this line.
    let line = plan.report(&measured(&plan, 0.3), None, "4864M".parse().ok(), results());
    assert!(line.effects[0].cost.is_none(), "{:?}", line.points[1]);
}

#[test]
fn the_share_of_the_bytes_has_the_bounds_of_its_rounds() {
    let plan = plan(6);
    let share = |noise: &[f64]| {
        let mut all = measured(&plan, 0.3);
        for series in &mut all {
            let pps = 1e9 / (1000.0 + f64::from(series.frame_bytes) / 15.0);
            // The noise of the large frames is not that of the small ones.
            let turn = if series.frame_bytes == 64 { 0 } else { 1 };
            series.runs =
                (0..noise.len()).map(|n| figures(pps * noise[(n + turn) % noise.len()], 0.3)).collect();
        }
        plan.report(&all, None, None, results()).effects[0].cost.unwrap()
    };
    let quiet = share(&[1.0, 1.001, 0.999, 1.0, 1.0, 1.001]);
    assert_eq!(quiet.share_spread.kind, SpreadKind::Confidence95);
    assert!(quiet.share_spread.low > 0.08 && quiet.share_spread.high < 0.1, "{quiet:?}");
    let noisy = share(&[1.0, 1.2, 0.9, 1.1, 0.8, 1.0]);
    assert!(noisy.share_spread.low < 0.0 && noisy.share_spread.high > 0.1, "{noisy:?}");
    assert_eq!(share(&[1.0, 1.0]).share_spread.kind, SpreadKind::Range);
}

#[test]
fn the_rate_of_the_generator_alone_shows_the_limit() {
    let bound = |loss_ratio, generator_pps| {
        let mut series = plan(1).series().remove(0);
        series.generator_pps = generator_pps;
        series.add(&[directed(1e6, loss_ratio)]);
        series.point(None).unwrap().forwarded_pps.doubts
    };
    assert_eq!(bound(0.0, Some(1.05e6)), [Doubt::GeneratorBound]);
    assert_eq!(bound(0.0, Some(2e6)), [Doubt::SharedCpu]);
    assert_eq!(bound(0.3, Some(2e6)), []);
}

#[test]
fn an_interrupted_measurement_reports_its_finished_trials() {
    let plan = plan(3);
    let mut all = measured(&plan, 0.3);
    all[2].runs.truncate(1);
    all[3].runs.clear();
    let report = plan.report(&all, None, None, results());
    assert_eq!(report.points.len(), 3);
    assert!(near(report.points[2].gain.unwrap().value, 2.0));
    assert_eq!((report.effects.len(), report.effects[0].router.as_str()), (1, "slow"));
}

#[test]
fn noisy_runs_and_lossless_routers_are_doubted() {
    let mut series = plan(1).series().remove(0);
    series.runs = vec![figures(1e6, 0.3), figures(1.2e6, 0.3), figures(1e6, 0.3)];
    assert!(matches!(series.point(None).unwrap().forwarded_pps.doubts[..], [Doubt::Noisy { .. }]));
}
