//! Rules about the link and the port's settings.

use super::{BUSY_PPS, Certainty, OVERRUNS, RuleMatch, System, seen};

/// Pause frames per second above which the link is stopped for a noticeable time.
const STORM_PER_SECOND: f64 = 500.0;
/// A ring with fewer descriptors holds less than 0.1 ms of the smallest frames at 1 Gbit/s.
const SMALL_RING: u32 = 128;

pub(super) fn duplex_mismatch(system: &System) -> Option<RuleMatch> {
    let link = &system.link;
    let duplex = link.duplex.as_deref()?;
    // What both ends negotiated is no mismatch: half duplex is the best that they share.
    // An end that does not negotiate advertises no mode, but perhaps its kind of plug.
    let negotiates = link.advertised.iter().any(|mode| mode.contains('/'));
    let offered = |mode: &String| !negotiates || link.advertised.contains(mode);
    let partner_full = link.partner.iter().any(|mode| mode.contains("/Full") && offered(mode));
    let fix = format!("let both ends negotiate: shunt link {} --mode autoneg=on", link.nic.name);
    if duplex == "half" && partner_full {
        let evidence = format!("half duplex here; the partner offers {}", link.partner.join(" "));
        return seen(Certainty::Certain, evidence, fix);
    }
    let late = link.counted(&["late_col", "lcol", "tx_late"]);
    if duplex == "half" && late > 0 {
        return seen(Certainty::Likely, format!("half duplex here, and {late} late collisions"), fix);
    }
    let wrong = link.counted(&["rx_crc", "rx_fcs", "rx_frame_errors", "rx_align"]);
    if duplex == "full" && link.autoneg == Some(false) && wrong > 0 {
        let evidence = format!(
            "full duplex is forced here, and {wrong} frames came with a wrong FCS: the partner assumes half duplex"
        );
        return seen(Certainty::Likely, evidence, fix);
    }
    None
}

pub(super) fn pause_storm(system: &System) -> Option<RuleMatch> {
    let received = system.rate(&["rx_pause", "rx_fdxfc", "rx_xoff", "rx_flow_control_xoff"]);
    let sent = system.rate(&["tx_pause", "tx_fdxfc", "tx_xoff", "tx_flow_control_xoff"]);
    if received.max(sent) < STORM_PER_SECOND {
        return None;
    }
    let fix = match sent > received {
        true => {
            "this machine cannot keep up: find what limits it (shunt load), or turn flow control off and accept loss"
        }
        false => {
            "the partner cannot keep up: look at the slowest port of its switch, or turn flow control off there"
        }
    };
    seen(Certainty::Likely, format!("{received:.0} pause frames/s received, {sent:.0} sent"), fix)
}

pub(super) fn interrupt_per_packet(system: &System) -> Option<RuleMatch> {
    let pps = system.rate_of("rx_packets") + system.rate_of("tx_packets");
    let interrupts = system.interrupts();
    if pps < BUSY_PPS || interrupts < 0.7 * pps {
        return None;
    }
    let link = &system.link;
    let fix = match link.coalesce.contains_key("rx-usecs") {
        true => format!("shunt link {} --coalesce rx-usecs=50,tx-usecs=50", link.nic.name),
        false => format!(
            "the driver cannot coalesce; defer in the kernel: echo 2 > /sys/class/net/{0}/napi_defer_hard_irqs, and echo 50000 > /sys/class/net/{0}/gro_flush_timeout",
            link.nic.name
        ),
    };
    seen(Certainty::Likely, format!("{interrupts:.0} interrupts/s for {pps:.0} packets/s"), fix)
}

pub(super) fn coalescing_off(system: &System) -> Option<RuleMatch> {
    let (link, set) = (&system.link, |name: &str| system.link.coalesce.get(name).copied());
    let waits = set("adaptive-rx") == Some(1) || set("rx-frames").is_some_and(|frames| frames > 1);
    let deferred = link.napi.defer_hard_irqs.is_some_and(|polls| polls > 0);
    if set("rx-usecs") != Some(0) || waits || deferred || interrupt_per_packet(system).is_some() {
        return None;
    }
    let fix = format!(
        "measure both: shunt link {} --coalesce rx-usecs=50, and shunt bench ndr and latency before and after",
        link.nic.name
    );
    seen(Certainty::Possible, "rx-usecs is 0, and nothing else delays interrupts".to_owned(), fix)
}

pub(super) fn small_ring(system: &System) -> Option<RuleMatch> {
    let (link, rings) = (&system.link, system.link.rings.as_ref()?);
    let (now, max) = (rings.rx?, rings.rx_max?);
    if now >= max {
        return None;
    }
    let (lost, dropped) = (link.counted(&OVERRUNS), link.counted(&["rx_dropped"]));
    let fix = format!("shunt link {} --ring rx={max}", link.nic.name);
    let time = system.line_pps().map_or(String::new(), |pps| {
        format!(", which hold {:.2} ms of the smallest frames", f64::from(now) / pps * 1e3)
    });
    let evidence = format!("{now} of {max} descriptors{time}");
    let (certainty, lost) = match (lost, dropped) {
        (0, 0) if now > SMALL_RING => return None,
        (0, 0) => (Certainty::Possible, String::new()),
        // The kernel counts there too what it had no use for, such as frames of an unknown protocol.
        (0, _) => {
            (Certainty::Possible, format!("; {dropped} frames were dropped since boot, here or in the stack"))
        }
        _ => (Certainty::Likely, format!("; {lost} frames were lost at the receiver since boot")),
    };
    seen(certainty, evidence + &lost, fix)
}

pub(super) fn checksum_offload_off(system: &System) -> Option<RuleMatch> {
    let link = &system.link;
    let could = |name: &str| link.offloads.get(name).is_some_and(|offload| !offload.on && !offload.fixed);
    let tx = ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
    let mut off: Vec<&str> = Vec::new();
    off.extend(could("rx-checksum").then_some("rx-checksum"));
    // A driver that computes one of the three kinds is enough.
    if !tx.iter().any(|name| link.offload(name) == Some(true)) {
        off.extend(tx.into_iter().filter(|name| could(name)));
    }
    if off.is_empty() {
        return None;
    }
    let fix = off.iter().map(|name| format!("{name}=on")).collect::<Vec<_>>().join(",");
    let evidence = format!("off, though the hardware has it: {}", off.join(", "));
    seen(Certainty::Certain, evidence, format!("shunt link {} --offload {fix}", link.nic.name))
}

pub(super) fn lro_on_router(system: &System) -> Option<RuleMatch> {
    if !system.forwards || system.link.offload("rx-lro") != Some(true) {
        return None;
    }
    let fix = format!("shunt link {} --offload lro=off", system.link.nic.name);
    seen(Certainty::Certain, "rx-lro is on, and IP forwarding too".to_owned(), fix)
}

pub(super) fn gro_on_router(system: &System) -> Option<RuleMatch> {
    let hardware = system.link.offload("rx-gro-hw") == Some(true);
    if !system.forwards || !(hardware || system.link.offload("rx-gro") == Some(true)) {
        return None;
    }
    let name = if hardware { "rx-gro-hw" } else { "rx-gro" };
    let fix = format!(
        "measure both: shunt link {} --offload {name}=off, and shunt bench ndr before and after",
        system.link.nic.name
    );
    seen(Certainty::Possible, format!("{name} is on, and IP forwarding too"), fix)
}
