//! A report of `shunt bench ndr --what concurrent`.

use shunt_lab::{
    Conditions, Doubt, Results,
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
