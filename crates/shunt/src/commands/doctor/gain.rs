//! What the fix of a finding gains, where somebody measured that fix on the port's board.

use super::view::{Gain, Ground, TrafficGain, span};
use shunt_inspect::doctor::System;
use shunt_model::{
    Case, CaseError, Direction, Protocol,
    stories::{self, Pair},
};

/// Cases of the library for boards that the device tree and the driver name.
const BOARDS: [(&[&str], &str, &str); 2] = [
    (&["imx6q", "imx6dl", "imx6qp", "imx6s", "imx6d", "imx6dq"], "fec", "imx6"),
    (&["imx8qxp", "imx8dxp"], "fec", "imx8-enet-pcie"),
];
/// Bytes of a frame that start DMA where Linux's fec driver sets the FIFO's thresholds (RSFL is 16).
const EARLY_DMA: u64 = 128;
/// Bytes of a word of the FIFO's thresholds.
const WORD: u64 = 8;

/// A parameter of the model, before and after a fix.
type Change = (&'static str, String, String);

/// The case of the library for the port's board.
pub(super) fn case_of(system: &System) -> Option<Case> {
    let driver = system.link.nic.driver.as_deref()?;
    let is_soc = |socs: &[&str]| {
        system.compatible.iter().any(|one| socs.iter().any(|soc| one.rsplit(',').next() == Some(soc)))
    };
    let board = BOARDS.iter().find(|(socs, of, _)| *of == driver && is_soc(socs))?;
    stories::case(board.2)
}

/// What the fix of a finding gains; None if the model has no part that the rule is about.
pub(super) fn of_fix(rule: &str, system: &System, board: &Case) -> Option<Gain> {
    let changes = changes(rule, system, board)?;
    let ground = match stories::name_of(board) {
        Some(name) => of_changes(&changes, system, name, board),
        None => Ok(Ground::Untested("nobody published a measurement of this board".to_owned())),
    };
    let ground = ground.unwrap_or_else(|error| Ground::Untested(error.to_string()));
    Some(Gain { case: board.name.clone(), ground })
}

fn of_changes(changes: &[Change], system: &System, name: &str, board: &Case) -> Result<Ground, CaseError> {
    let before: Vec<_> = changes.iter().map(|(name, before, _)| (*name, before.clone())).collect();
    let after: Vec<_> = changes.iter().map(|(name, _, after)| (*name, after.clone())).collect();
    // Without a device tree, the user's word has to do.
    if !system.compatible.is_empty() && case_of(system).as_ref() != Some(board) {
        return Ok(Ground::Untested(format!(
            "this machine is another board: {}",
            system.compatible.join(" ")
        )));
    }
    if let Some(other) = other_settings(system, board) {
        return Ok(Ground::Untested(format!("published with other settings: {other}")));
    }
    let Some(evidence) = stories::evidence(name, &before, &after)? else {
        let words = |settings: &[(&str, String)]| {
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let (before, after) = (words(&before), words(&after));
        return Ok(Ground::Untested(format!("nobody published a measurement of {before}, then {after}")));
    };
    let mut traffic = Vec::new();
    for (protocol, direction) in [
        (Protocol::Udp, Direction::Rx),
        (Protocol::Tcp, Direction::Rx),
        (Protocol::Udp, Direction::Tx),
        (Protocol::Tcp, Direction::Tx),
        (Protocol::Udp, Direction::Forward),
        (Protocol::Tcp, Direction::Forward),
    ] {
        let is_alike = |pair: &&Pair| {
            let traffic = &pair.before.case.traffic;
            (traffic.protocol, traffic.direction) == (protocol, direction)
        };
        let pairs: Vec<&Pair> = evidence.pairs.iter().filter(is_alike).collect();
        if !pairs.is_empty() {
            traffic.push(of_pairs(&pairs));
        }
    }
    let source = evidence.source.to_owned();
    Ok(Ground::Measured { source, traffic })
}

/// The figures of runs with one kind of traffic.
fn of_pairs(pairs: &[&Pair]) -> TrafficGain {
    let range = |of: &mut dyn Iterator<Item = f64>| {
        of.fold([f64::INFINITY, 0.0f64], |[low, high], value| [low.min(value), high.max(value)])
    };
    let now_mbps = range(&mut pairs.iter().map(|pair| pair.before.goodput));
    let fixed_mbps = range(&mut pairs.iter().map(|pair| pair.after.goodput));
    let rates = range(&mut pairs.iter().map(|pair| pair.before.case.traffic.rate / 1e6));
    let traffic = &pairs[0].before.case.traffic;
    let direction = match traffic.direction {
        Direction::Rx => "received",
        Direction::Tx => "sent",
        Direction::Forward | Direction::Both => "forwarded",
    };
    let traffic = match traffic.protocol {
        Protocol::Udp => format!("UDP {direction}, {} Mbit/s offered", span(rates)),
        Protocol::Tcp => format!("TCP {direction}"),
    };
    TrafficGain { traffic, now_mbps, fixed_mbps }
}

/// How the port differs from the board of the library, where both are known.
fn other_settings(system: &System, board: &Case) -> Option<String> {
    let link = &system.link;
    let rings = link.rings.as_ref();
    let seen = [
        ("link.rate", link.nic.speed_mbps.map(|mbps| mbps as f64 * 1e6)),
        ("ring.rx", rings.and_then(|rings| rings.rx).map(f64::from)),
        ("driver.coalesce_us", link.coalesce.get("rx-usecs").map(|us| f64::from(*us))),
    ];
    let mut other: Vec<String> = Vec::new();
    for (name, seen) in seen {
        let (Some(seen), Some(known)) = (seen, board.number(name)) else { continue };
        if seen != known {
            other.push(format!("{name} is {seen} here, and was {known}"));
        }
    }
    if system.forwards && board.traffic.direction != Direction::Forward {
        other.push("this machine forwards, and the board did not".to_owned());
    }
    (!other.is_empty()).then(|| other.join("; "))
}

/// What the fix of a finding changes in the model.
fn changes(rule: &str, system: &System, board: &Case) -> Option<Vec<Change>> {
    let on = |on: bool| if on { "on" } else { "off" }.to_owned();
    let one = |name, before: f64, after: f64| Some(vec![(name, before.to_string(), after.to_string())]);
    match rule {
        "no-pause-threshold"
        | "partner-pauses-alone"
        | "overruns-without-pause"
        | "flow-control-off-in-mac" => {
            let register = |name: &str| system.registers.get(name).map(|value| value & 0x1ff);
            // What a register would say if it could be read is what it is after reset.
            let rsem = register("ENET_RSEM").unwrap_or(0);
            let full = register("ENET_RSFL").unwrap_or(0) * WORD;
            Some(vec![
                ("fifo.pause", on(false), on(true)),
                ("fifo.xoff", on(rsem != 0), on(true)),
                ("fifo.section_full", full.to_string(), if full == 0 { EARLY_DMA } else { full }.to_string()),
            ])
        }
        "small-ring" => {
            let rings = system.link.rings.as_ref()?;
            one("ring.rx", f64::from(rings.rx?), f64::from(rings.rx_max?))
        }
        "interrupt-per-packet" => one("driver.coalesce_us", board.driver.coalesce_us, 50.0),
        "deep-idle" => {
            let enabled = system.idle_states.iter().filter(|state| !state.disabled);
            one("cpu.idle_exit_us", enabled.map(|state| state.latency_us).max()? as f64, 0.0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_inspect::{
        doctor::{IdleState, diagnose},
        link::{Link, Pause, Rings},
    };

    fn imx6() -> System {
        let mut link = Link { up: true, ..Link::default() };
        (link.nic.driver, link.nic.speed_mbps) = (Some("fec".to_owned()), Some(1000));
        link.pause = Some(Pause::default());
        link.partner = vec!["Pause".to_owned()];
        let registers = [("ENET_RCR", 0x05ee_0244), ("ENET_RSEM", 0), ("ENET_RSFL", 0)];
        System {
            link,
            compatible: vec!["fsl,imx6q".to_owned()],
            registers: registers.map(|(name, value)| (name.to_owned(), value)).into(),
            ..System::default()
        }
    }

    fn gain(rule: &str, system: &System) -> Option<Ground> {
        of_fix(rule, system, &case_of(system).unwrap()).map(|gain| gain.ground)
    }

    /// The gain of the first finding.
    fn of_first(system: &System) -> Ground {
        gain(&diagnose(system)[0].rule, system).unwrap()
    }

    #[test]
    fn pause_frames_and_thresholds_gain_what_they_gained_on_the_imx6() {
        let Ground::Measured { traffic, source } = of_first(&imx6()) else { panic!() };
        assert!(source.contains("Boundary Devices"), "{source}");
        let [udp, tcp] = &traffic[..] else { panic!("{traffic:?}") };
        assert_eq!((udp.now_mbps, udp.fixed_mbps), ([278.0, 347.0], [580.0, 611.0]));
        assert_eq!((tcp.now_mbps, tcp.fixed_mbps), ([210.0, 210.0], [426.0, 426.0]));
    }

    type Variant = (&'static str, fn(&mut System));
    /// Systems that resemble the published board, and the reason for which the doctor gives no figure.
    const OTHERS: [Variant; 5] = [
        ("ring.rx is 64 here, and was 512", |system| {
            system.link.rings = Some(Rings { rx: Some(64), ..Rings::default() });
        }),
        ("this machine forwards", |system| system.forwards = true),
        ("driver.coalesce_us is 1000 here", |system| {
            system.link.coalesce.insert("rx-usecs".to_owned(), 1000);
        }),
        ("of fifo.pause=off fifo.xoff=on", |system| {
            system.registers.insert("ENET_RSEM".to_owned(), 0x84);
        }),
        ("fifo.section_full=256, then", |system| {
            system.registers.insert("ENET_RSFL".to_owned(), 0x20);
        }),
    ];

    #[test]
    fn a_system_that_nobody_measured_gets_the_reason_and_no_figure() {
        for (reason, change) in OTHERS {
            let mut system = imx6();
            change(&mut system);
            let Ground::Untested(why) = of_first(&system) else { panic!("{reason}") };
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn registers_that_cannot_be_read_are_taken_for_those_after_reset() {
        let unread = System { registers: [].into(), ..imx6() };
        assert_eq!(of_first(&unread), of_first(&imx6()));
    }

    #[test]
    fn a_case_of_ones_own_is_no_evidence() {
        let mut board = stories::case("imx6").unwrap();
        board.set("fifo.bytes", "8192").unwrap();
        let gain = of_fix("no-pause-threshold", &imx6(), &board).unwrap();
        assert_eq!(gain.ground, Ground::Untested("nobody published a measurement of this board".to_owned()));
        // Nor is a board of the library, for another machine.
        let other = System { compatible: vec!["fsl,imx8mq".to_owned()], ..imx6() };
        let gain = of_fix("no-pause-threshold", &other, &stories::case("imx6").unwrap()).unwrap();
        assert_eq!(gain.ground, Ground::Untested("this machine is another board: fsl,imx8mq".to_owned()));
    }

    #[test]
    fn wait_mode_has_a_figure_only_where_it_lasts_as_long_as_in_2012() {
        let mut system = imx6();
        let wait = |latency_us| IdleState { name: "WAIT".to_owned(), latency_us, disabled: false };
        system.idle_states = vec![wait(50)];
        assert!(matches!(gain("deep-idle", &system), Some(Ground::Untested(_))));
        system.idle_states = vec![wait(10_000)];
        let Some(Ground::Measured { traffic, .. }) = gain("deep-idle", &system) else { panic!() };
        assert_eq!((traffic[0].now_mbps, traffic[0].fixed_mbps), ([8.5; 2], [210.0; 2]));
    }

    #[test]
    fn rules_beyond_the_model_and_unknown_boards_have_no_gain() {
        assert_eq!(gain("mtu-mismatch", &imx6()), None);
        let other = System { compatible: vec!["acme,board".to_owned()], ..imx6() };
        assert!(case_of(&other).is_none());
        let mut pcie = imx6();
        pcie.link.nic.driver = Some("sky2".to_owned());
        assert!(case_of(&pcie).is_none());
    }
}
