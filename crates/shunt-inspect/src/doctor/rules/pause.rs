//! Rules about flow control by pause frames: in the driver's settings, and in the MAC.

use super::{Certainty, OVERRUNS, RuleMatch, System, imx6::is_imx6_enet, seen};

/// Bits of ENET_RSEM that hold the threshold; the others are about frames, not bytes.
const RX_SECTION_EMPTY: u64 = 0x1ff;
const FCE: u64 = 1 << 5;
/// Mbit/s of a link whose frames no ENET takes without pause frames.
const TOO_FAST: u64 = 1000;
/// Newer versions of the fec driver write these values together with flow control.
const THRESHOLDS: &str = "shunt reg write ENET_RSEM 0x84 --write, and shunt reg write ENET_RSFL 0x10 --write";

fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Overruns now and since boot, in words.
fn overruns(system: &System) -> Option<String> {
    let (now, before) = (system.rate(&OVERRUNS), system.link.counted(&OVERRUNS));
    match (now > 0.0, before) {
        (true, _) => Some(format!("{now:.0} frames/s overran during the measurement")),
        (false, 0) => None,
        (false, count) => Some(format!("{count} frames have overrun since boot")),
    }
}

/// Whether this port sends pause frames: by its registers if they were read, else by its settings and the partner's.
/// The fec driver shows a negotiated flow control as off.
pub(super) fn sends_pause(system: &System) -> Option<bool> {
    let register = |name: &str| system.registers.get(name);
    if let (Some(rcr), Some(rsem)) = (register("ENET_RCR"), register("ENET_RSEM")) {
        return Some(rcr & FCE != 0 && rsem & RX_SECTION_EMPTY != 0);
    }
    let pause = system.link.pause.as_ref()?;
    Some(pause.tx && !negotiated_off(system))
}

/// Whether the settings ask for flow control, and the partner took it away in negotiation.
fn negotiated_off(system: &System) -> bool {
    system.link.pause.as_ref().is_some_and(|pause| pause.autoneg)
        && system.link.partner_pauses() == Some(false)
}

fn partner_offer(system: &System) -> Option<String> {
    let offers = system.link.partner_pauses() == Some(true);
    offers.then(|| format!("the partner offers {}", system.link.partner.join(" ")))
}

pub(super) fn no_pause_threshold(system: &System) -> Option<RuleMatch> {
    let (link, pause) = (&system.link, system.link.pause.as_ref()?);
    let rsem = system.registers.get("ENET_RSEM").map(|value| value & RX_SECTION_EMPTY);
    let is_enet = rsem == Some(0) || rsem.is_none() && is_imx6_enet(system);
    let slow = link.nic.speed_mbps.is_none_or(|mbps| mbps < TOO_FAST);
    let overruns = overruns(system);
    if !is_enet || pause.tx || link.partner_pauses() == Some(false) || slow && overruns.is_none() {
        return None;
    }
    let certainty = match (rsem, &overruns) {
        (Some(_), Some(_)) => Certainty::Certain,
        (Some(_), None) | (None, Some(_)) => Certainty::Likely,
        (None, None) => Certainty::Possible,
    };
    let register = match rsem {
        Some(_) => "ENET_RSEM is 0, so no fill of the FIFO would send a pause frame",
        None => {
            "ENET_RSEM could not be read; after reset it is 0, and no fill of the FIFO sends a pause frame"
        }
    };
    let settings = format!("pause here: receive {}, send {}", on(pause.rx), on(pause.tx));
    let evidence = [Some(settings), Some(register.to_owned()), partner_offer(system), overruns];
    let fix = format!(
        "both together: shunt link {} --pause on; then, if shunt reg read ENET_RSEM still shows 0: {THRESHOLDS}",
        link.nic.name
    );
    seen(certainty, evidence.into_iter().flatten().collect::<Vec<_>>().join("; "), fix)
}

pub(super) fn partner_pauses_alone(system: &System) -> Option<RuleMatch> {
    let (link, pause) = (&system.link, system.link.pause.as_ref()?);
    // Of rules with the same fix, the one with more evidence applies.
    if pause.rx && pause.tx
        || sends_pause(system) == Some(true)
        || overruns_without_pause(system).is_some()
        || no_pause_threshold(system).is_some()
    {
        return None;
    }
    let evidence =
        format!("{}; pause here: receive {}, send {}", partner_offer(system)?, on(pause.rx), on(pause.tx));
    seen(Certainty::Possible, evidence, format!("shunt link {} --pause on", link.nic.name))
}

pub(super) fn overruns_without_pause(system: &System) -> Option<RuleMatch> {
    let link = &system.link;
    if sends_pause(system) == Some(true)
        || flow_control_off_in_mac(system).is_some()
        || no_pause_threshold(system).is_some()
    {
        return None;
    }
    let fix = match (&link.pause, link.partner_pauses()) {
        (Some(_), Some(true)) => format!("shunt link {} --pause on", link.nic.name),
        (Some(_), None) => format!(
            "shunt link {0} --pause on; if the partner cannot pause: shunt link {0} --ring rx=MAX",
            link.nic.name
        ),
        (Some(_), Some(false)) => {
            format!(
                "the partner cannot pause; give the receiver a larger ring: shunt link {} --ring rx=MAX",
                link.nic.name
            )
        }
        (None, _) => {
            "the driver has no flow control; give the receiver a larger ring, or the sender a lower rate"
                .to_owned()
        }
    };
    let certainty = if system.rate(&OVERRUNS) > 0.0 { Certainty::Certain } else { Certainty::Likely };
    let evidence = [Some(overruns(system)?), partner_offer(system)];
    seen(certainty, evidence.into_iter().flatten().collect::<Vec<_>>().join("; "), fix)
}

pub(super) fn flow_control_off_in_mac(system: &System) -> Option<RuleMatch> {
    let pause = system.link.pause.as_ref()?;
    let rcr = *system.registers.get("ENET_RCR")?;
    let rsem = system.registers.get("ENET_RSEM").map(|value| value & RX_SECTION_EMPTY);
    if negotiated_off(system) {
        return None;
    }
    let again = "take the port down and up again; if it stays so, the driver does not set the MAC up for pause frames";
    if (pause.rx || pause.tx) && rcr & FCE == 0 {
        let evidence =
            format!("ENET_RCR is {rcr:#010x}: FCE is 0, so the MAC neither sends nor obeys pause frames");
        return seen(Certainty::Certain, evidence, again);
    }
    if pause.tx && rsem == Some(0) {
        let evidence =
            "ENET_RSEM is 0, so no fill of the FIFO sends a pause frame; those of the partner are obeyed"
                .to_owned();
        return seen(Certainty::Certain, evidence, format!("{again}: {THRESHOLDS}"));
    }
    None
}
