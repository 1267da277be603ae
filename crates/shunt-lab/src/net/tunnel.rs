//! A tunnel of Ethernet frames between a host and the router.

use super::{NetNs, Segment, netns::ip_batch};
use std::io;

/// The MTU of what carries a tunnel: its frames need no fragments.
pub(super) const CARRIER_MTU: u16 = 1600;

/// Makes the tunnel from a segment's port to its host, over a pair of veths, `PORT-below` and `NIC-below`.
pub(super) fn tunnel(segment: &Segment, kind: &str, router: &NetNs, host: &NetNs) -> io::Result<()> {
    let Segment { nic, port, subnet, .. } = *segment;
    let [near, far] = [1, 2].map(|last| format!("100.64.{subnet}.{last}"));
    let settings = match kind {
        "vxlan" => format!("id {subnet} dstport 4789"),
        "geneve" => format!("id {subnet}"),
        _ => String::new(),
    };
    let below = |device: &str| format!("{device}-below");
    ip_batch(
        router,
        &[format!("link add {} type veth peer name {} netns {}", below(port), below(nic), host.name())],
    )?;
    let ends = [
        (router, port, &near, &far, segment.port_mac()),
        (host, nic, &far, &near, segment.mac(segment.host)),
    ];
    for (ns, device, local, remote, mac) in ends {
        let from = if kind == "geneve" { String::new() } else { format!("local {local}") };
        let below = below(device);
        ip_batch(
            ns,
            &[
                format!("address add {local}/30 dev {below}"),
                format!("link set {below} mtu {CARRIER_MTU} up"),
                format!("link add {device} address {mac} type {kind} {settings} {from} remote {remote}"),
                format!("link set {device} mtu 1500"),
            ],
        )?;
    }
    Ok(())
}
