//! Rules about the hardware between a port's line and its memory.

use super::{Certainty, OVERRUNS, RuleMatch, System, seen};

/// Mbit/s of PCIe for each Mbit/s of the line: headers of its packets, descriptors, and acknowledgements.
const PCIE_NEEDED: f64 = 1.25;
/// Bytes of memory behind a descriptor of the receive ring, as most drivers have it.
const BUFFER_BYTES: u64 = 2048;
const WRONG_FRAMES: [&str; 4] = ["rx_crc", "rx_fcs", "rx_frame_errors", "rx_align"];

pub(super) fn narrow_pcie(system: &System) -> Option<RuleMatch> {
    let (pcie, line) = (system.hardware.pcie.as_ref()?, system.link.nic.speed_mbps?);
    if pcie.lanes >= pcie.lanes_max && pcie.gt_per_second >= pcie.gt_per_second_max {
        return None;
    }
    let needed = line as f64 * PCIE_NEEDED;
    let certainty = match pcie.mbps() {
        mbps if mbps < needed => Certainty::Certain,
        mbps if mbps < 2.0 * needed => Certainty::Possible,
        _ => return None,
    };
    let evidence = format!(
        "{} of {} lanes at {} of {} GT/s carry {:.0} Mbit/s each way; the line has {line}",
        pcie.lanes,
        pcie.lanes_max,
        pcie.gt_per_second,
        pcie.gt_per_second_max,
        pcie.mbps()
    );
    seen(
        certainty,
        evidence,
        "put the card into a slot with all its lanes, clean its contacts, and look for PCIe errors in dmesg",
    )
}

pub(super) fn fec_errors(system: &System) -> Option<RuleMatch> {
    let fec = system.link.fec.as_ref()?;
    if fec.uncorrectable == 0 {
        return None;
    }
    let evidence = format!(
        "{} blocks could not be corrected, {} could; active: {}",
        fec.uncorrectable,
        fec.corrected,
        fec.active.join(" ")
    );
    let fix =
        format!("change the cable or module; compare both ends: ethtool --show-fec {}", system.link.nic.name);
    seen(Certainty::Likely, evidence, fix)
}

pub(super) fn weak_signal(system: &System) -> Option<RuleMatch> {
    let sqi = system.link.sqi.as_ref()?;
    let wrong = system.link.counted(&WRONG_FRAMES);
    let certainty = match (2 * sqi.now <= sqi.max, wrong > 0) {
        (true, true) => Certainty::Certain,
        (true, false) => Certainty::Possible,
        _ => return None,
    };
    let evidence = format!("SQI {} of {}; {wrong} frames came with a wrong FCS", sqi.now, sqi.max);
    let fix = format!("change the cable, and test it: ethtool --cable-test {}", system.link.nic.name);
    seen(certainty, evidence, fix)
}

pub(super) fn ring_beyond_cache(system: &System) -> Option<RuleMatch> {
    let (link, cache) = (&system.link, system.hardware.cache_bytes?);
    let ring = link.rings.as_ref()?.rx?;
    let queues = link.queues.rx.max(1) as u64;
    let bytes = u64::from(ring) * queues * BUFFER_BYTES;
    // A port that lost frames may need its ring.
    if bytes <= cache || link.counted(&OVERRUNS) + link.counted(&["rx_dropped"]) > 0 {
        return None;
    }
    let fits = (cache / queues / BUFFER_BYTES).checked_ilog2().map_or(64, |bits| 1 << bits);
    let evidence = format!(
        "{queues} rings of {ring} buffers are {} MiB, and the cache has {} MiB",
        bytes >> 20,
        cache >> 20
    );
    let fix = format!(
        "measure both: shunt link {} --ring rx={fits}, and shunt bench ndr before and after",
        link.nic.name
    );
    seen(Certainty::Possible, evidence, fix)
}
