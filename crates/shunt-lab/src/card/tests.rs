use super::*;
use crate::Conditions;
use shunt_gen::Shape;
use std::net::SocketAddr;

fn plan(time: Option<Duration>) -> CardPlan {
    let end = SocketAddr::from(([0; 4], 1024));
    let traffic = ["64 bytes", "imix"].map(|name| SizedTraffic {
        name: name.to_owned(),
        spec: TrafficSpec::for_shape(Shape::udp(end, end, "64".parse().unwrap())),
    });
    CardPlan {
        traffic: traffic.to_vec(),
        testbed: Testbed::Own,
        engines: ["slow", "tc"].map(|name| (name.to_owned(), None)).to_vec(),
        dut: None,
        connections: Err("cannot tell: no --empty".to_owned()),
        effort: Effort::QUICK,
        rounds: 6,
        time,
    }
}

#[test]
fn a_round_that_would_end_too_late_does_not_begin() {
    let seconds = Duration::from_secs;
    let limited = plan(Some(seconds(300)));
    for (nth, elapsed, late) in
        [(1, 999, false), (2, 150, false), (2, 151, true), (6, 250, false), (6, 251, true)]
    {
        assert_eq!(limited.is_too_late(nth, seconds(elapsed)), late, "{nth} {elapsed}");
    }
    assert!(!plan(None).is_too_late(6, seconds(9999)));
}

#[test]
fn a_card_lists_its_quantities_in_order_and_why_some_are_missing() {
    let mut file = ResultsFile::in_memory(Results::new(WHAT, Conditions::default()));
    plan(None).begin(&mut file);
    for name in
        ["pdr imix tc", "ndr imix slow", "ndr 64 bytes tc", "connection capacity slow", "latency p50 x slow"]
    {
        file.add(name, "pps", 1.0).unwrap();
    }
    let results = file.results();
    assert_eq!(routers(results), ["slow", "tc"]);
    // A file that is continued with another engine has all of them.
    let mut continued = ResultsFile::in_memory(results.clone());
    CardPlan { engines: vec![("xdp".to_owned(), None)], ..plan(None) }.begin(&mut continued);
    assert_eq!(routers(continued.results()), ["slow", "tc", "xdp"]);
    let order =
        ["ndr 64 bytes", "ndr imix", "pdr imix", "connection capacity", "latency p50 x", "connections"];
    assert_eq!(quantities(results), order);
    assert_eq!(results.missing["connections tc"], "cannot tell: no --empty");
    assert_eq!(results.conditions.setup["effort"], "quick");
    // Other files have no routers.
    assert!(quantities(&Results { what: "throughput".to_owned(), ..results.clone() }).is_empty());
}

#[test]
fn a_usual_search_is_more_exact_than_a_quick_one() {
    let [usual, quick] = [Effort::USUAL, Effort::QUICK];
    assert!(usual.goal.width < quick.goal.width && usual.goal.sum_s > quick.goal.sum_s);
    assert!(usual.search(1e6).is_ok() && usual.search(MIN_PPS).is_err());
}
