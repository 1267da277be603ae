//! What the model says about the fixes that the doctor names.

use crate::commands::doctor::view::Gain;
use shunt_inspect::doctor::System;
use shunt_model::{Case, Direction, Prediction, Protocol, run, stories};

/// Cases of the library for boards that the device tree and the driver name.
const BOARDS: [(&[&str], &str, &str); 2] = [
    (&["imx6q", "imx6dl", "imx6qp", "imx6s", "imx6d", "imx6dq"], "fec", "imx6"),
    (&["imx8qxp", "imx8dxp"], "fec", "imx8-enet-pcie"),
];
/// Less is within what the model is wrong by.
const LEAST_GAIN: f64 = 1.03;
const SECONDS: f64 = 0.5;
/// Bytes of a frame that start DMA where Linux's fec driver sets the FIFO's thresholds (RSFL is 16).
const EARLY_DMA: u32 = 128;

/// The case of the library for the port's board.
pub(super) fn case_of(system: &System) -> Option<Case> {
    let driver = system.link.nic.driver.as_deref()?;
    let is_soc = |socs: &[&str]| {
        system.compatible.iter().any(|one| socs.iter().any(|soc| one.rsplit(',').next() == Some(soc)))
    };
    let board = BOARDS.iter().find(|(socs, of, _)| *of == driver && is_soc(socs))?;
    stories::case(board.2)
}

/// What the fix of a finding gains, if the model knows the part that the rule is about, and if it gains at all.
pub(super) fn of_fix(rule: &str, system: &System, board: &Case) -> Option<Gain> {
    let (before, after) = fix(rule, system, as_seen(system, board))?;
    offers(system, &before).into_iter().find_map(|(offered, offer)| {
        let at = |case: &Case| {
            let mut case = case.clone();
            offer(&mut case);
            run(&case).ok()
        };
        let (before, after) = (at(&before)?, at(&after)?);
        let gains = after.total() >= LEAST_GAIN * before.total().max(1.0);
        gains.then(|| Gain::new(&board.name, offered, &before, &after))
    })
}

/// The board with the port's settings.
fn as_seen(system: &System, board: &Case) -> Case {
    let (mut case, link) = (board.clone(), &system.link);
    case.traffic.seconds = SECONDS;
    case.traffic.direction = if system.forwards { Direction::Forward } else { Direction::Rx };
    if let Some(mbps) = link.nic.speed_mbps {
        case.link.rate = mbps as f64 * 1e6;
    }
    if let Some(pause) = &link.pause {
        (case.fifo.pause, case.fifo.obeys_pause) = (pause.tx, pause.rx);
    }
    let rings = link.rings.as_ref();
    case.ring.rx = rings.and_then(|rings| rings.rx).unwrap_or(case.ring.rx);
    case.ring.tx = rings.and_then(|rings| rings.tx).unwrap_or(case.ring.tx);
    if let Some(us) = link.coalesce.get("rx-usecs") {
        case.driver.coalesce_us = f64::from(*us);
    }
    case
}

/// The case with what a rule found, and with its fix.
fn fix(rule: &str, system: &System, mut case: Case) -> Option<(Case, Case)> {
    let mut fixed = case.clone();
    match rule {
        "partner-pauses-alone" | "overruns-without-pause" | "flow-control-off-in-mac" => {
            case.fifo.pause = false;
            pause_with_thresholds(&mut fixed);
        }
        "err004512" => pause_with_thresholds(&mut fixed),
        "small-ring" => fixed.ring.rx = system.link.rings.as_ref()?.rx_max?,
        "interrupt-per-packet" => (case.driver.coalesce_us, fixed.driver.coalesce_us) = (0.0, 50.0),
        "deep-idle" => {
            let enabled = system.idle_states.iter().filter(|state| !state.disabled);
            case.cpu.idle_exit_us = enabled.map(|state| state.latency_us).max()? as f64;
            fixed.cpu.idle_exit_us = 0.0;
        }
        "checksum-offload-off" => {
            let copies = system.copies.iter().filter(|copy| (500..=1514).contains(&copy.bytes));
            let slowest = copies.map(|copy| copy.mbytes_per_second).min_by(f64::total_cmp)?;
            // Reading a byte for its checksum costs about as much as copying it.
            (case.memory.checksum_ns, fixed.memory.checksum_ns) = (1e3 / slowest, 0.0);
        }
        _ => return None,
    }
    Some((case, fixed))
}

/// Flow control with a level of the FIFO that makes the MAC send pause frames, and DMA that begins before a frame has
/// arrived: flow control alone changes nothing on a MAC without such a level.
fn pause_with_thresholds(case: &mut Case) {
    (case.fifo.pause, case.fifo.xoff) = (true, true);
    if case.fifo.section_full == 0 {
        case.fifo.section_full = EARLY_DMA;
    }
}

type Offer = Box<dyn Fn(&mut Case)>;

/// Traffic that the board is offered: UDP at the rate of the line, of which the model knows more, or else TCP.
fn offers(system: &System, case: &Case) -> [(String, Offer); 2] {
    let rate = case.link.rate * 1472.0 / 1538.0;
    let udp = move |case: &mut Case| {
        (case.traffic.protocol, case.traffic.payload, case.traffic.rate) = (Protocol::Udp, 1472, rate);
    };
    let tcp = |case: &mut Case| (case.traffic.protocol, case.traffic.payload) = (Protocol::Tcp, 1448);
    let what = if system.forwards { "forwarded" } else { "received" };
    [
        (format!("{:.0} Mbit/s of UDP, {what}", rate / 1e6), Box::new(udp)),
        (format!("a TCP connection, {what}"), Box::new(tcp)),
    ]
}

impl Gain {
    fn new(case: &str, offered: String, before: &Prediction, after: &Prediction) -> Self {
        Self {
            case: case.to_owned(),
            offered,
            now_mbps: before.total() / 1e6,
            fixed_mbps: after.total() / 1e6,
            now_loss_percent: before.loss * 100.0,
            fixed_loss_percent: after.loss * 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_inspect::{
        doctor::{CopyRate, IdleState, diagnose},
        link::{Link, Pause, Rings},
    };

    fn imx6() -> System {
        let mut link = Link { up: true, ..Link::default() };
        (link.nic.driver, link.nic.speed_mbps) = (Some("fec".to_owned()), Some(1000));
        link.pause = Some(Pause::default());
        link.partner = vec!["Pause".to_owned()];
        System { link, compatible: vec!["fsl,imx6q".to_owned()], ..System::default() }
    }

    fn gain(rule: &str, system: &System) -> Option<Gain> {
        of_fix(rule, system, &case_of(system).unwrap())
    }

    #[test]
    fn pause_frames_gain_what_they_gained_on_the_imx6() {
        let system = imx6();
        assert!(diagnose(&system).iter().any(|finding| finding.rule == "partner-pauses-alone"));
        let gain = gain("partner-pauses-alone", &system).unwrap();
        // 311 Mbit/s were published, and 583 with pause frames and the thresholds that send them.
        assert!(
            (250.0..350.0).contains(&gain.now_mbps) && (560.0..600.0).contains(&gain.fixed_mbps),
            "{gain:?}"
        );
        assert!(gain.now_loss_percent > 50.0 && gain.fixed_loss_percent < 5.0, "{gain:?}");
        assert!(gain.case.contains("i.MX6") && gain.offered.contains("UDP, received"), "{gain:?}");
    }

    #[test]
    fn a_fix_that_is_made_gains_nothing() {
        let mut system = imx6();
        system.link.pause = Some(Pause { autoneg: true, rx: true, tx: true });
        system.link.rings = Some(Rings { rx: Some(512), rx_max: Some(512), ..Rings::default() });
        assert_eq!(gain("small-ring", &system), None);
    }

    #[test]
    fn idle_states_interrupts_and_checksums_are_weighed() {
        let mut system = imx6();
        system.link.pause = Some(Pause { autoneg: true, rx: true, tx: true });
        system.idle_states = vec![IdleState { name: "WAIT".to_owned(), latency_us: 5000, disabled: false }];
        // 8.5 to 14.4 Mbit/s of TCP were published with wait mode, and 210 without.
        let woken = gain("deep-idle", &system).unwrap();
        assert!(woken.now_mbps < 30.0 && woken.fixed_mbps > 150.0, "{woken:?}");
        let mut board = case_of(&system).unwrap();
        (board.cpu.irq_ns, board.cpu.stack_rx_ns, board.bus.rx_rate) = (5_000.0, 15_000.0, 1e10);
        board.cpu.own_core = false;
        system.copies = vec![CopyRate { bytes: 1514, mbytes_per_second: 100.0, ..CopyRate::default() }];
        let gain = of_fix("checksum-offload-off", &system, &board).unwrap();
        assert!(gain.fixed_mbps > 1.2 * gain.now_mbps, "{gain:?}");
    }

    #[test]
    fn rules_beyond_the_model_and_unknown_boards_have_no_gain() {
        assert_eq!(gain("mtu-mismatch", &imx6()), None);
        let other = System { compatible: vec!["acme,board".to_owned()], ..imx6() };
        assert!(case_of(&other).is_none());
    }
}
