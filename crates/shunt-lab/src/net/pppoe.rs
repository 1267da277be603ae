//! A session of PPPoE: the router's ppp device, and the other end of its wire.

use super::{NetNs, Tap, netns::ip_batch};
use shunt_traffic::ppp::PppDevice;
use shunt_wire::{Ethernet, Mac, encap};
use std::io;

/// The EtherType of packets of a session.
const SESSION_TYPE: u16 = 0x8864;
/// Version 1, type 1, and the code of packets of a session.
const VERSION: [u8; 2] = [0x11, 0];
/// Version, code, session, length, and the protocol of PPP.
const HEADER_BYTES: usize = 8;
/// The MTU of a session above an Ethernet device of 1500 bytes.
pub(super) const MTU: u16 = 1492;
const PPP_IPV4: u16 = 0x21;
const PPP_IPV6: u16 = 0x57;

/// The session between a ppp device of the router and this process, which is the access concentrator.
#[derive(Debug)]
pub(super) struct Session {
    _device: PppDevice,
    pub(super) wire: Tap,
    number: u16,
    concentrator: Mac,
    router: Mac,
}

impl Session {
    /// Makes the ppp device `port` on the router, above the Ethernet device `PORT-below`, whose other end is in the
    /// namespace `far`.
    pub(super) fn begin(router: &NetNs, port: &str, far: &NetNs, number: u16) -> io::Result<Self> {
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
        let wire = far.within(|| Tap::here(&end))?;
        let device = router.within(|| PppDevice::over_pppoe(&below, number, concentrator))?;
        ip_batch(router, &[format!("link set {} name {port} mtu {MTU}", device.name)])?;
        Ok(Self { _device: device, wire, number, concentrator, router: router_mac })
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
        let packet = frame.get(encap::header_bytes(0) + HEADER_BYTES..)?;
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
        let protocol = match packet.first()? >> 4 {
            4 => PPP_IPV4,
            6 => PPP_IPV6,
            _ => return None,
        };
        let length = u16::try_from(packet.len() + size_of_val(&protocol)).ok()?;
        let ethernet = Ethernet { destination, source, tags: Vec::new() };
        let mut header = ethernet.header(SESSION_TYPE);
        header.extend(VERSION);
        for word in [self.number, length, protocol] {
            header.extend(word.to_be_bytes());
        }
        Some(header)
    }
}
