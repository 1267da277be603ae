//! Rules about the machine around the port.

use super::{
    Certainty, OVERRUNS, RuleMatch, System,
    imx6::{IMX6, is_imx6_enet},
    pause::sends_pause,
    seen,
};

/// Wake-up latency above which an idle state counts as deep.
const DEEP_US: u64 = 100;
/// Copy rate in 10^6 bytes/s below which memory is uncached: Kyu copied 1.1 to 1.5.
const UNCACHED: f64 = 10.0;
/// TCP copies each byte once between kernel and program, and the checksum reads it once.
const COPIES_PER_BYTE: f64 = 2.0;

pub(super) fn mtu_mismatch(system: &System) -> Option<RuleMatch> {
    let mtu = system.link.nic.mtu?;
    let other = system.others.iter().find(|port| port.mtu.is_some_and(|other| other != mtu))?;
    if !system.forwards {
        return None;
    }
    let dropped = system.link.counted(&["rx_length_errors", "oversize", "rx_jabber"]);
    let evidence =
        format!("{} has MTU {mtu}, {} has {}", system.link.nic.name, other.name, other.mtu.unwrap_or(0));
    let fix = format!("ip link set {} mtu {}, or clamp the MSS of TCP in the ruleset", other.name, mtu);
    match dropped {
        0 => seen(Certainty::Possible, evidence, fix),
        count => seen(Certainty::Likely, format!("{evidence}; {count} frames were too long"), fix),
    }
}

pub(super) fn deep_idle(system: &System) -> Option<RuleMatch> {
    let enabled = system.idle_states.iter().filter(|state| !state.disabled);
    let deepest = enabled.max_by_key(|state| state.latency_us)?;
    let imx6 = system.is_soc(&IMX6) && deepest.name.to_ascii_uppercase().contains("WAIT");
    if deepest.latency_us < DEEP_US && !imx6 {
        return None;
    }
    let evidence = format!("{} takes {} us to leave", deepest.name, deepest.latency_us);
    let frames = system.line_pps().map(|pps| pps * deepest.latency_us as f64 / 1e6);
    let ring = system.link.rings.as_ref().and_then(|rings| rings.rx);
    let evidence = match (frames, ring) {
        (Some(frames), Some(ring)) => {
            format!("{evidence}; up to {frames:.0} frames arrive meanwhile, and the ring has {ring}")
        }
        _ => evidence,
    };
    // A CPU that is busy does not sleep: without a loss, more frames than the ring has are only a thought.
    let lost = system.link.counted(&OVERRUNS) > 0 || system.rate(&OVERRUNS) > 0.0;
    let certainty = match frames.zip(ring) {
        Some((frames, ring)) if lost && frames > f64::from(ring) => Certainty::Likely,
        _ if imx6 => Certainty::Likely,
        _ => Certainty::Possible,
    };
    let fix = match imx6 {
        true => {
            "try it at once: echo 1 > /sys/devices/system/cpu/cpu0/cpuidle/state1/disable (for each CPU); for good, boot with enable_wait_mode=off (3.0 kernels) or cpuidle.off=1"
        }
        false => {
            "try it at once: hold /dev/cpu_dma_latency open with 0 written, or disable the state below /sys/devices/system/cpu/cpu*/cpuidle"
        }
    };
    seen(certainty, evidence, fix)
}

pub(super) fn powersave_governor(system: &System) -> Option<RuleMatch> {
    let slow = system.governors.iter().find(|governor| *governor == "powersave")?;
    let certainty = match system.frequency_driver.as_str() {
        // Their `powersave` follows the load, as `schedutil` does.
        "intel_pstate" | "amd-pstate-epp" => return None,
        "" => Certainty::Possible,
        _ => Certainty::Likely,
    };
    let fix =
        "for cpu in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $cpu; done";
    seen(certainty, format!("the governor is {slow}"), fix)
}

pub(super) fn slow_copies(system: &System) -> Option<RuleMatch> {
    let of_frame = system.copies.iter().filter(|copy| (500..=1514).contains(&copy.bytes));
    let slowest = of_frame.min_by(|a, b| a.mbytes_per_second.total_cmp(&b.mbytes_per_second))?;
    let evidence = format!(
        "{:.0} Mbyte/s for copies of {} bytes, source {} and destination {} bytes off alignment",
        slowest.mbytes_per_second, slowest.bytes, slowest.source_offset, slowest.target_offset
    );
    let aligned = system
        .copies
        .iter()
        .find(|copy| copy.bytes == slowest.bytes && copy.source_offset + copy.target_offset == 0);
    let aligned = aligned.map_or(0.0, |copy| copy.mbytes_per_second);
    if slowest.mbytes_per_second < UNCACHED {
        let fix = "caches are off, or this memory is mapped uncached: look at the kernel's start-up messages and at the driver's DMA memory";
        return seen(Certainty::Certain, evidence, fix);
    }
    let needed = system.link.nic.speed_mbps.unwrap_or(0) as f64 / 8.0 * COPIES_PER_BYTE;
    if slowest.mbytes_per_second < needed {
        let evidence = format!("{evidence}; the link at full rate needs {needed:.0}");
        let fix = "let the hardware do checksums (shunt link PORT --offload), use sendfile or zero-copy sockets, and look at the memory clock";
        return seen(Certainty::Likely, evidence, fix);
    }
    if slowest.mbytes_per_second * 4.0 < aligned {
        let evidence = format!("{evidence}; aligned, it is {aligned:.0}");
        let fix = "the driver should place frames so that the IP header is aligned (NET_IP_ALIGN, RBOFF)";
        return seen(Certainty::Possible, evidence, fix);
    }
    None
}

pub(super) fn err004512(system: &System) -> Option<RuleMatch> {
    const STATED: f64 = 470e6;
    let carried = 8.0 * (system.rate_of("rx_bytes") + system.rate_of("tx_bytes"));
    if !is_imx6_enet(system) || system.link.nic.speed_mbps != Some(1000) || carried > STATED {
        return None;
    }
    let more = "a NIC on PCIe: 597 Mbit/s sent and 507 received on the same board";
    let fix = match sends_pause(system) {
        Some(true) => format!("pause frames are on; for more, {more}"),
        _ => format!(
            "pause frames and FIFO thresholds together keep frames from being lost (rule no-pause-threshold); for more, {more}"
        ),
    };
    let overruns = system.rate(&OVERRUNS);
    let lost = if overruns > 0.0 { format!("; {overruns:.0} frames/s overrun now") } else { String::new() };
    seen(Certainty::Possible, format!("an i.MX6 with the fec driver on a link of 1000 Mbit/s{lost}"), fix)
}

pub(super) fn err005783(system: &System) -> Option<RuleMatch> {
    if !is_imx6_enet(system) {
        return None;
    }
    let fix = "compare the switch's counters with this port's; if short frames matter more than the rate of long ones, receive in store-and-forward mode: ENET_RSFL = 0, instead of the 0x10 that rule no-pause-threshold advises";
    seen(Certainty::Possible, "an i.MX6 with the fec driver".to_owned(), fix)
}
