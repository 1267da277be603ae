//! VLAN tags in a router of our own.

use super::{Error, TrafficSpec};
use crate::net::{NetNs, Segment, Topology};

/// A LAN host, a router and a WAN host, with the tags of this traffic on their links.
pub(super) fn topology(spec: &TrafficSpec) -> Result<Topology, Error> {
    let sides = [(Segment::LAN, &spec.shape.tags), (Segment::WAN, &spec.far_tags)];
    let tagged = sides.iter().any(|(_, tags)| !tags.is_empty());
    if let Some(why) = if tagged { vlan_lacking()? } else { None } {
        return Err(Error::Asked(format!(
            "{why}; measure tags with a router between two devices (--tx and --rx)"
        )));
    }
    // A segment names its tags for the rest of the program. A measurement makes few segments.
    let segments = sides.map(|(segment, tags)| segment.tagged(tags.clone().leak()));
    Ok(Topology::try_new(&segments)?)
}

/// The reason why this kernel has no VLAN devices; None if it has them.
pub(crate) fn vlan_lacking() -> Result<Option<String>, Error> {
    let scratch = NetNs::try_new("vlan")?;
    scratch.try_run("ip link add p0 type veth peer name p1")?;
    let made = scratch.try_run("ip link add link p0 name p0.5 type vlan id 5");
    Ok(made.err().map(|why| {
        let why = why.to_string();
        let reason =
            why.lines().next().and_then(|line| line.rsplit_once("status: ")).map_or("", |(_, reason)| reason);
        format!("this kernel has no VLAN devices (CONFIG_VLAN_8021Q): ip: {reason}")
    }))
}
