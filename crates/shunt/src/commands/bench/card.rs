//! `shunt bench card`: the figures that describe a router, in one file of results and one page.

mod args;
pub(crate) mod view;

use super::{
    nat::connections_of_a_router,
    testbed::{self, TRIAL_OVERHEAD},
    traffic::{UNRESERVED_PORTS, conntrack_max, udp_traffic, unfit},
};
use crate::{
    commands::{
        measure::{MeasureContext, Measurement, begin},
        report,
    },
    failure::{bad_file, traffic_failed, unwritable, usage},
    render::Answer,
};
pub(super) use args::CardArgs;
use shunt_gen::{FrameSizes, Sizes};
use shunt_lab::{
    Results,
    card::{CardPlan, Effort, FLOWS, SizedTraffic, WHAT},
    nat::{self, CapacitySearch, NatMetric, NatPlan},
    search::{Goal, Range},
    statistics::RUNS_WANTED,
};
use shunt_wire::line::{IpVersion, MIN_FRAME_BYTES};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use view::Card;

const ROUNDS: u32 = RUNS_WANTED as u32;
const QUICK_ROUNDS: u32 = 2;
/// No further round begins if it would end after this time for each engine.
const TIME: Duration = Duration::from_secs(300);
/// Estimates of the duration of a round.
const ROUND: Duration = Duration::from_secs(45);
const QUICK_ROUND: Duration = Duration::from_secs(20);
/// Number of connections of each trial of the rate, and the number that a router is to hold.
const CONNECTIONS: u32 = 10_000;
const QUICK_CONNECTIONS: u32 = 2000;
const HELD: u32 = 20_000;
const QUICK_HELD: u32 = 5000;
/// Distance of the capacity's bounds at the end of a search.
const WIDTH: f64 = 0.01;
/// The least capacity to try.
const CAPACITY_MIN: u32 = 1000;
const CONNECTION_RATES: Range = Range { min_pps: 1000.0, max_pps: 2_000_000.0 };
/// The file of results, without the number of a further one.
const FILE: &str = "router-card";

/// A resolved `shunt bench card`.
#[derive(Debug)]
pub(crate) struct CardBench {
    plan: CardPlan,
    quick: bool,
    seed: u64,
    keep: PathBuf,
    /// Whether the name of the file is one that the user did not choose.
    is_default: bool,
    page: PathBuf,
}

impl CardBench {
    pub(super) fn resolve(typed: &CardArgs) -> anyhow::Result<Self> {
        let names = if typed.engines.is_empty() { vec!["slow".to_owned()] } else { typed.engines.clone() };
        if let Some(twice) =
            names.iter().enumerate().find_map(|(n, name)| names[..n].contains(name).then_some(name))
        {
            return Err(usage(format!("--engine {twice}: given twice")).into());
        }
        let (testbed, engines) = testbed::resolve(typed.testbed.nics(), &names)?;
        let quick = typed.quick;
        let traffic =
            [("64 bytes", FrameSizes::Given(Sizes::fixed(MIN_FRAME_BYTES)?)), ("imix", FrameSizes::Imix)];
        let traffic = traffic.map(|(name, sizes)| sized_traffic(typed, name, &sizes));
        let keep = typed.keep.clone().unwrap_or_else(|| free_name(Path::new("")));
        let page = typed.output.clone().unwrap_or_else(|| keep.with_extension("html"));
        if page == keep {
            let why = "the page would replace the results; choose another name";
            return Err(usage(format!("--output {}: {why}", page.display())).into());
        }
        // Find a wrong directory now, not after five minutes of measuring.
        if page.parent().is_some_and(|parent| !parent.as_os_str().is_empty() && !parent.is_dir()) {
            return Err(bad_file(&page, "no such directory; create it, or choose another one").into());
        }
        let routers = engines.len() as u32;
        let nat = NatPlan { testbed: testbed.clone(), engines: engines.clone(), ..nat_plan(typed)? };
        let plan = CardPlan {
            traffic: traffic.into_iter().collect::<anyhow::Result<_>>()?,
            testbed,
            engines,
            dut: typed.testbed.dut()?,
            connections: connections_of_a_router(&typed.testbed, typed.empty.as_deref())
                .map(|()| Box::new(nat))
                .map_err(|why| format!("cannot tell: {why}")),
            effort: if quick { Effort::QUICK } else { Effort::USUAL },
            rounds: typed.rounds.unwrap_or(if quick { QUICK_ROUNDS } else { ROUNDS }),
            time: typed.rounds.is_none().then_some(TIME * routers),
        };
        Ok(Self { plan, quick, seed: typed.seed, keep, is_default: typed.keep.is_none(), page })
    }
}

fn sized_traffic(typed: &CardArgs, name: &str, sizes: &FrameSizes) -> anyhow::Result<SizedTraffic> {
    let mut spec = udp_traffic(IpVersion::V4, typed.testbed.speed, false, Sizes::fixed(MIN_FRAME_BYTES)?);
    spec.shape.source_ports.count = UNRESERVED_PORTS.count.min(FLOWS as u16);
    spec.shape.flows = Some(FLOWS);
    spec.shape.sizes = spec.shape.fit(Some(sizes)).map_err(unfit)?;
    Ok(SizedTraffic { name: name.to_owned(), spec })
}

/// How connections are measured, apart from the testbed and its routers.
fn nat_plan(typed: &CardArgs) -> anyhow::Result<NatPlan> {
    let own = typed.testbed.tx.is_none();
    let tracked = if own { conntrack_max() } else { None }.unwrap_or(shunt_gen::FLOWS_MAX);
    if let Some(table) = typed.table.filter(|table| *table > tracked) {
        return Err(usage(format!(
            "--table {table}: at most {tracked} connections can be tracked and told apart here"
        ))
        .into());
    }
    let (connections, held, goal) = match typed.quick {
        true => (QUICK_CONNECTIONS, QUICK_HELD, Goal { width: 0.1, sum_s: 1.0, ..Goal::NDR }),
        false => (CONNECTIONS, HELD, Goal { width: 0.05, sum_s: 3.0, ..Goal::NDR }),
    };
    let hint = typed.table.unwrap_or(held.min(tracked));
    let max = if typed.table.is_some() { tracked } else { hint };
    let capacity = CapacitySearch {
        min: hint.min(CAPACITY_MIN),
        max,
        hint: Some(hint),
        width: WIDTH,
        held: None,
        failed: None,
    };
    let mut spec = udp_traffic(IpVersion::V4, typed.testbed.speed, true, Sizes::fixed(MIN_FRAME_BYTES)?);
    spec.shape.listed = true;
    spec.shape.flows = Some(1);
    Ok(NatPlan {
        spec,
        testbed: shunt_lab::traffic::Testbed::Own,
        engines: Vec::new(),
        metrics: vec![NatMetric::Establishment, NatMetric::Capacity],
        connections: connections.min(tracked),
        sessions: Vec::new(),
        capacity,
        range: CONNECTION_RATES,
        open_pps: None,
        nat: typed.nat_address,
        empty: typed.empty.clone(),
        effort: nat::Effort { establishment: goal, ..nat::Effort::QUICK },
        runs: 1,
        seed: typed.seed,
    })
}

/// The first name of a card in this directory that no file has.
fn free_name(directory: &Path) -> PathBuf {
    let name = |nth: u32| match nth {
        1 => format!("{FILE}.json"),
        _ => format!("{FILE}-{nth}.json"),
    };
    let mut names = (1..).map(|nth| directory.join(name(nth)));
    names.find(|path| !path.exists()).unwrap_or_else(|| directory.join(name(1)))
}

/// Removes the file of a card that was interrupted before its first figure.
fn remove_without_readings(path: &Path) {
    if Results::read(path).is_ok_and(|results| results.readings.is_empty()) {
        // The error that ended the measurement says more.
        let _ = fs::remove_file(path);
    }
}

impl Measurement for CardBench {
    fn expected_duration(&self) -> Duration {
        let CardPlan { rounds, engines, time, .. } = &self.plan;
        let round = if self.quick { QUICK_ROUND } else { ROUND };
        let all = (round + TRIAL_OVERHEAD) * *rounds * engines.len() as u32;
        time.map_or(all, |time| time.min(all))
    }

    fn measure(
        self: Box<Self>,
        MeasureContext { stop, mut conditions, show }: MeasureContext,
    ) -> anyhow::Result<Box<dyn Answer + Send>> {
        conditions.seed = Some(self.seed);
        let Self { plan, keep, is_default, page, .. } = *self;
        let rounds = plan.rounds;
        let file = begin(WHAT, Some(keep.clone()), conditions)?;
        let measured = plan.perform(file, stop, show);
        if measured.is_err() && is_default {
            remove_without_readings(&keep);
        }
        let results = measured.map_err(traffic_failed)?.results;
        let written = report::read(std::slice::from_ref(&keep))?;
        fs::write(&page, shunt_report::to_html(&written)?).map_err(|error| unwritable(&page, &error))?;
        Ok(Box::new(Card { results, rounds, files: Some((keep, page)) }))
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::parse_args;

    fn resolve(words: &str) -> Result<CardBench, String> {
        let typed = parse_args(words).map_err(|error| error.to_string())?;
        CardBench::resolve(&typed).map_err(|error| error.to_string())
    }

    #[test]
    fn a_card_takes_five_minutes_for_each_engine_and_quick_ones_less() {
        let [usual, quick, two] =
            ["", "--quick", "--engine slow --engine tc"].map(|words| resolve(words).unwrap());
        assert!(usual.expected_duration() <= TIME && two.expected_duration() <= 2 * TIME);
        assert!(quick.expected_duration() < Duration::from_secs(60));
        let names =
            |bench: &CardBench| bench.plan.engines.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&usual), names(&two)),
            (vec!["slow".to_owned()], vec!["slow".to_owned(), "tc".to_owned()])
        );
        // As many rounds as were asked for, however long they take.
        assert_eq!((usual.plan.rounds, usual.plan.time), (6, Some(TIME)));
        let asked = resolve("--rounds 9").unwrap().plan;
        assert_eq!((asked.rounds, asked.time), (9, None));
    }

    #[test]
    fn capacity_is_searched_only_if_its_size_is_given() {
        let capacity = |words: &str| resolve(words).unwrap().plan.connections.unwrap().capacity;
        let [usual, given] = ["", "--table 30000"].map(capacity);
        assert!(usual.max == 20_000.min(usual.max) && usual.hint == Some(usual.max), "{usual:?}");
        assert!(given.hint == Some(30_000) && given.max > 30_000, "{given:?}");
        let other = "--tx lo --rx lo --gateway 192.0.2.1";
        let why = resolve(other).unwrap().plan.connections.unwrap_err();
        assert!(why.starts_with("cannot tell: ") && why.contains("--rx-gateway"), "{why}");
        let why = resolve(&format!("{other} --rx-gateway 192.0.2.2")).unwrap().plan.connections.unwrap_err();
        assert!(why.contains("--empty 'ssh root@router conntrack -F'"), "{why}");
        let measured = resolve(&format!("{other} --rx-gateway 192.0.2.2 --empty true")).unwrap().plan;
        assert!(measured.connections.is_ok() && measured.engines[0].0 == "dut");
    }

    #[test]
    fn impossible_requests_are_refused_with_a_possible_one() {
        for (words, why) in [
            ("--engine tc --engine tc", "--engine tc: given twice"),
            ("--table 4000000000", "at most "),
            ("--keep card.html", "the page would replace the results"),
            ("--output /dev/null/card.html", "/dev/null/card.html: no such directory"),
            ("--rounds 0", "0 is not in 1.."),
        ] {
            let error = resolve(words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
        }
    }

    #[test]
    fn a_file_without_readings_is_removed_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card.json");
        for (text, is_left) in [
            (Results::new(WHAT, shunt_lab::Conditions::default()).to_json().unwrap(), false),
            (sample::card().json().unwrap(), true),
            ("{".to_owned(), true),
        ] {
            fs::write(&path, text).unwrap();
            remove_without_readings(&path);
            assert_eq!(path.exists(), is_left);
        }
    }

    #[test]
    fn a_second_card_has_a_name_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["router-card.json", "router-card-2.json", "router-card-3.json"] {
            let free = free_name(directory.path());
            assert_eq!(free, directory.path().join(name));
            fs::write(free, "").unwrap();
        }
    }
}
