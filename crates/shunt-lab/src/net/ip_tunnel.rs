//! A tunnel of IP packets: the router's device, and the other end, whose packets this process gets and sends.

use super::{
    NetNs,
    netns::ip_batch,
    tap::{PacketIgnoreOutgoing, QUEUE_BYTES},
    tunnel::CARRIER_MTU,
};
use nix::sys::socket::{self, MsgFlags, sockopt};
use shunt_traffic::packets::packet_socket;
use shunt_wire::encap;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// More than the MTU of a tunnel.
const PACKET_MAX: usize = 2048;
/// Packets of every EtherType: ETH_P_ALL.
const ALL_PROTOCOLS: u16 = 3;
const WIREGUARD_PORT: u16 = 51820;

/// The far end of a tunnel.
#[derive(Debug)]
pub(super) struct FarEnd {
    receiver: OwnedFd,
    senders: [OwnedFd; 2],
    /// Nothing in it has the addresses of the packets, so that only the socket gets them.
    _ns: NetNs,
}

impl FarEnd {
    /// Makes the tunnel device `port` on the router, of the kind `sit`, `gre`, `ip6tnl`, `ip6gre` or `wireguard`, above
    /// the Ethernet device `PORT-below`, whose other end is in the namespace `host` and has the same name. Its packets
    /// are finished, and single ones.
    pub(super) fn begin(router: &NetNs, port: &str, host: &NetNs, kind: &str) -> io::Result<Self> {
        let below = format!("{port}-below");
        ip_batch(router, &[format!("link add {below} type veth peer name {below} netns {}", host.name())])?;
        for (ns, number) in [(router, 1), (host, 2)] {
            let ends = [number, 3 - number];
            let addresses =
                [ends.map(|end| format!("100.64.9.{end}")), ends.map(|end| format!("fd00:9::{end}"))];
            let [[v4, _], [v6, _]] = &addresses;
            let up = [
                format!("address add {v4}/30 dev {below}"),
                format!("address add {v6}/126 dev {below} nodad"),
                format!("link set {below} mtu {CARRIER_MTU} up"),
            ];
            ip_batch(ns, &up)?;
            ns.try_run(&format!("ethtool -K {below} tx off tso off gso off gro off"))?;
            ns.try_run(&device(port, kind, &addresses, number))?;
            ip_batch(ns, &[format!("link set {port} mtu 1500")])?;
        }
        let far = NetNs::try_new("far")?;
        ip_batch(host, &[format!("link set {port} netns {}", far.name())])?;
        ip_batch(&far, &[format!("link set {port} up")])?;
        far.try_run(&format!("ethtool -K {port} gro off"))?;
        let ifindex = far.ifindex(port);
        let open = |protocol| far.within(|| packet_socket(ifindex, protocol));
        let receiver = open(ALL_PROTOCOLS)?;
        socket::setsockopt(&receiver, PacketIgnoreOutgoing, &true)?;
        socket::setsockopt(&receiver, sockopt::RcvBufForce, &QUEUE_BYTES)?;
        let senders = [open(encap::IPV4)?, open(encap::IPV6)?];
        Ok(Self { receiver, senders, _ns: far })
    }

    /// The next IP packet of the router.
    pub(super) fn next(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; PACKET_MAX];
        let bytes = socket::recv(self.receiver.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT).ok()?;
        packet.truncate(bytes);
        Some(packet)
    }

    /// Sends an IP packet to the router.
    pub(super) fn send(&self, packet: &[u8]) {
        let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let _ = socket::send(self.senders[usize::from(is_v6)].as_raw_fd(), packet, MsgFlags::MSG_DONTWAIT);
    }
}

impl AsFd for FarEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// The command that makes one end. The addresses are those of the carrier, this end's first.
fn device(port: &str, kind: &str, addresses: &[[String; 2]; 2], number: usize) -> String {
    let [[v4, far4], [v6, far6]] = addresses;
    match kind {
        "wireguard" => {
            // `wg` makes a valid key from any 32 bytes, here in base64.
            let key = |number: usize| format!("{}=", ["E", "I"][number % 2].repeat(43));
            format!(
                "ip link add {port} type wireguard && public=$(echo {} | wg pubkey) && echo {} | wg set {port} \
                 listen-port {WIREGUARD_PORT} private-key /dev/stdin peer $public allowed-ips 0.0.0.0/0,::/0 \
                 endpoint {far4}:{WIREGUARD_PORT}",
                key(number + 1),
                key(number),
            )
        }
        "ip6tnl" => format!("ip link add {port} type ip6tnl mode any local {v6} remote {far6}"),
        "ip6gre" => format!("ip link add {port} type ip6gre local {v6} remote {far6}"),
        "sit" => format!("ip link add {port} type sit mode any local {v4} remote {far4}"),
        kind => format!("ip link add {port} type {kind} local {v4} remote {far4}"),
    }
}
