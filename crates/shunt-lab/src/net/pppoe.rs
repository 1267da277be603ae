//! A session of PPPoE: the router's ppp device, and the other end of its wire.

use super::{NetNs, Tap, netns::ip_batch};
use shunt_traffic::ppp::PppDevice;
use shunt_wire::{Ethernet, Mac, Tag, encap};
use std::io;

/// The MTU of a session above an Ethernet device of 1500 bytes.
pub(super) const MTU: u16 = 1492;

/// The session between a ppp device of the router and this process, which is the access concentrator.
#[derive(Debug)]
pub(super) struct Session {
    _device: PppDevice,
    pub(super) wire: Tap,
    number: u16,
    vlan: Option<Tag>,
    concentrator: Mac,
    router: Mac,
}

impl Session {
    /// Makes the ppp device `port` on the router, above the Ethernet device `PORT-below`, whose other end is in the
    /// namespace `far`; with a VLAN, above a VLAN device on top of it.
    pub(super) fn begin(
        router: &NetNs,
        port: &str,
        far: &NetNs,
        number: u16,
        vlan: Option<u16>,
    ) -> io::Result<Self> {
        let (below, end) = (format!("{port}-below"), format!("{port}-far"));
        let [concentrator, router_mac] = [1, 2].map(|last| Mac([2, 0, 0, 0xc, 0, last]));
        ip_batch(
            router,
            &[
                format!(
                    "link add {below} address {router_mac} type veth peer name {end} address {concentrator} netns {}",
                    far.name()
                ),
                format!("link set {below} up"),
            ],
        )?;
        ip_batch(far, &[format!("link set {end} up")])?;
        // Its packets are finished, and single ones.
        router.try_run(&format!("ethtool -K {below} tx off tso off gso off"))?;
        let mut carrier = below;
        if let Some(id) = vlan {
            let device = format!("{carrier}.{id}");
            let add = format!("link add link {carrier} name {device} type vlan id {id}");
            ip_batch(router, &[add, format!("link set {device} up")])?;
            carrier = device;
        }
        let wire = far.within(|| Tap::here(&end))?;
        let device = router.within(|| PppDevice::over_pppoe(&carrier, number, concentrator))?;
        ip_batch(router, &[format!("link set {} name {port} mtu {MTU}", device.name)])?;
        Ok(Self {
            _device: device,
            wire,
            number,
            vlan: vlan.map(Tag::vlan),
            concentrator,
            router: router_mac,
        })
    }

    /// The next IP packet of the session. A frame with another header than RFC 2516 asks for is dropped.
    pub(super) fn next(&self) -> Option<Vec<u8>> {
        loop {
            let frame = self.wire.waiting()?.bytes;
            if let Some(packet) = self.packet_in(&frame) {
                return Some(packet.to_vec());
            }
        }
    }

    fn packet_in<'f>(&self, frame: &'f [u8]) -> Option<&'f [u8]> {
        let packet = frame.get(encap::header_bytes(self.vlan.iter().count()) + encap::PPPOE_BYTES..)?;
        let header = self.header(self.router, self.concentrator, packet)?;
        frame.starts_with(&header).then_some(packet)
    }

    /// Sends an IP packet to the router.
    pub(super) fn send(&self, packet: &[u8]) {
        if let Some(header) = self.header(self.concentrator, self.router, packet) {
            self.wire.offer(&[&header, packet].concat());
        }
    }

    /// What stands before an IP packet; `None` if it is none.
    fn header(&self, source: Mac, destination: Mac, packet: &[u8]) -> Option<Vec<u8>> {
        let ethernet = Ethernet { destination, source, tags: self.vlan.into_iter().collect() };
        encap::session_header(&ethernet, self.number, packet)
    }
}
