//! Cases about single frames: lengths, padding, content, tags, and the MTU's edges.

use super::{
    Checked, Fault,
    partner::PortCommand,
    wire::{SHORTEST, Sent, Wire},
};
use shunt_wire::{Tag, encap};

/// Bytes before the packet in a frame without a tag.
const UNTAGGED: usize = encap::header_bytes(0);
/// The shortest frame of Ethernet, without FCS.
const MIN_BYTES: usize = 60;
/// Frames of the content check, in each direction.
const INTEGRITY_FRAMES: usize = 4096;
/// The edges of the 12-bit VLAN ID: no VLAN, the first two, the last two, and the reserved one.
const IDS: [u16; 6] = [0, 1, 2, 4093, 4094, 4095];
/// A jumbo MTU that most drivers have.
const JUMBO_MTU: u32 = 9000;

fn mtu(wire: &Wire) -> Result<usize, Fault> {
    let mut smallest = usize::MAX;
    for end in &wire.ends {
        smallest = smallest.min(end.shown().map_err(Fault::Broken)?.mtu as usize);
    }
    Ok(smallest)
}

pub(super) fn lengths(wire: &Wire) -> Checked {
    let longest = (mtu(wire)? + UNTAGGED).min(1514);
    let frames: Vec<Sent> = (MIN_BYTES..=longest).map(Sent::long).collect();
    let arrived = wire.both_ways(&frames)?;
    let count = arrived.arrived;
    arrived.all(format!("{count} frames of {MIN_BYTES} to {longest} bytes (without FCS), both ways"))
}

pub(super) fn padding(wire: &Wire) -> Checked {
    let frames: Vec<Sent> = (SHORTEST..MIN_BYTES).map(Sent::long).collect();
    let arrived = wire.both_ways(&frames)?;
    let (count, padded) = (arrived.arrived, arrived.padded);
    arrived.all(format!(
        "{count} frames of {SHORTEST} to {} bytes: {padded} were padded, all with zeros; {} arrived as they were sent",
        MIN_BYTES - 1,
        count - padded
    ))
}

pub(super) fn integrity(wire: &Wire) -> Checked {
    let longest = (mtu(wire)? + UNTAGGED).min(1514);
    // A prime step gives lengths of every alignment.
    let length = |n: usize| MIN_BYTES + n * 397 % (longest - MIN_BYTES + 1);
    let frames: Vec<Sent> = (0..INTEGRITY_FRAMES).map(|n| Sent::long(length(n))).collect();
    let bytes: usize = frames.iter().map(|frame| 2 * frame.bytes).sum();
    let arrived = wire.both_ways(&frames)?;
    let count = arrived.arrived;
    arrived.all(format!("{count} frames, {bytes} bytes compared, both ways"))
}

/// Turns promiscuous mode on at both ends: a NIC may drop the frames of VLANs for which there is no device.
fn accept_all_vlans(wire: &Wire) -> Result<(), Fault> {
    for port in &wire.ends {
        port.run(PortCommand::Promisc).map_err(Fault::Failed)?;
    }
    Ok(())
}

pub(super) fn vlan(wire: &Wire) -> Checked {
    accept_all_vlans(wire)?;
    let mut stacks: Vec<Vec<Tag>> = IDS.iter().map(|id| vec![Tag::vlan(*id)]).collect();
    stacks.extend(IDS.iter().map(|id| vec![Tag::service(*id), Tag::vlan(4095 - *id)]));
    let edges = [MIN_BYTES, mtu(wire)?.min(1500) + UNTAGGED];
    // Linux lets a frame exceed the MTU by an 802.1Q tag only.
    let room = |tags: &[Tag]| if tags.len() == 1 { 0 } else { encap::TAG_BYTES * tags.len() };
    let frames: Vec<Sent> = stacks
        .iter()
        .flat_map(|tags| edges.map(|bytes| Sent { tags: tags.clone(), ..Sent::long(bytes - room(tags)) }))
        .collect();
    let first = wire.both_ways(&frames)?;
    let count = first.arrived;
    first.all("")?;
    let mut evidence = format!("{count} frames with IDs {IDS:?}, one tag and two, both ways");
    let name = "rx-vlan-filter";
    match wire.ends[0].feature(name) {
        Some((on, false)) => {
            let other = super::port::switch(!on);
            wire.port.run(&format!("ethtool -K {} {name} {other}", wire.port.name)).map_err(Fault::Failed)?;
            let again = wire.send(0, &frames)?;
            again.all("")?;
            evidence += &format!("; again with {name} {other}");
        }
        Some((on, true)) => evidence += &format!("; {name} is fixed {}", super::port::switch(on)),
        None => evidence += &format!("; the driver has no {name}"),
    }
    Ok(evidence)
}

pub(super) fn mtu_edges(wire: &Wire) -> Checked {
    accept_all_vlans(wire)?;
    let mtu = mtu(wire)?;
    let tagged = Sent { tags: vec![Tag::vlan(5)], ..Sent::long(mtu + UNTAGGED) };
    let arrived = wire.both_ways(&[Sent::long(mtu + UNTAGGED), tagged])?;
    arrived.all("")?;
    let mut evidence = format!(
        "MTU {mtu}: frames of {} bytes, and with a tag of {}, pass",
        mtu + UNTAGGED,
        mtu + encap::header_bytes(1)
    );
    for (end, port) in wire.ends.iter().enumerate() {
        // One byte over: the kernel must refuse the frame, and not truncate it.
        let own = port.shown().map_err(Fault::Broken)?.mtu as usize;
        let frame = super::wire::empty(wire.macs[end], wire.macs[1 - end], own + UNTAGGED + 1);
        if wire.tap(end).try_send(&frame).is_ok() {
            return Err(Fault::Failed(format!(
                "{port} accepts a frame of {} bytes with an MTU of {own}",
                own + UNTAGGED + 1
            )));
        }
    }
    evidence += "; one byte more is refused";
    let mut most = JUMBO_MTU;
    for end in &wire.ends {
        let max = end.shown().map_err(Fault::Broken)?.max_mtu;
        most = most.min(if max == 0 { JUMBO_MTU } else { max });
    }
    let most = most as usize;
    if most <= mtu {
        return Ok(format!("{evidence}; the driver allows no larger MTU"));
    }
    for end in &wire.ends {
        end.run(PortCommand::Mtu(most as u32)).map_err(Fault::Failed)?;
    }
    // Drivers restart the link to change the MTU.
    wire.ends.iter().try_for_each(|end| end.wait_for_link()).map_err(Fault::Failed)?;
    let frames = [MIN_BYTES, mtu + UNTAGGED + 1, most + UNTAGGED - 1, most + UNTAGGED].map(Sent::long);
    wire.both_ways(&frames)?.all("")?;
    Ok(format!("{evidence}; with an MTU of {most}, frames of {} bytes pass", most + UNTAGGED))
}
