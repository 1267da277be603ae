//! The header that a device's packets have before their IP header.

use crate::netlink_message::Attrs;
use nix::sys::utsname::uname;
use shunt_core::LinkLayer;
use std::{net::IpAddr, sync::LazyLock};

const IFF_LOOPBACK: u32 = 1 << 3;

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_PPP: u16 = 512;
const ARPHRD_TUNNEL: u16 = 768;
const ARPHRD_TUNNEL6: u16 = 769;
const ARPHRD_SIT: u16 = 776;
const ARPHRD_IPGRE: u16 = 778;
const ARPHRD_IP6GRE: u16 = 823;
const ARPHRD_NONE: u16 = 0xfffe;

const IFLA_IPTUN_REMOTE: u16 = 3;
const IFLA_IPTUN_COLLECT_METADATA: u16 = 19;
const IFLA_GRE_REMOTE: u16 = 7;
const IFLA_GRE_COLLECT_METADATA: u16 = 18;
const IFLA_VXLAN_COLLECT_METADATA: u16 = 25;
const IFLA_GENEVE_COLLECT_METADATA: u16 = 6;

/// Whether a redirect to a ppp device takes the Ethernet header off. Older kernels take the device for Ethernet, unless
/// the change of Linux 6.5 came to them, too, which their numbers do not tell everywhere.
static PPP_TAKES_REDIRECTS: LazyLock<bool> =
    LazyLock::new(|| uname().is_ok_and(|name| is_6_5(&name.release().to_string_lossy())));

/// Whether this is a release of Linux 6.5 or later, such as `6.12.117+deb12-amd64`.
fn is_6_5(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    version.is_some_and(|version| version >= (6, 5))
}

/// From the ARPHRD_* and IFF_* numbers of a device, and the settings of its kind.
pub(super) fn link_layer(arphrd: u16, flags: u32, kind: Option<&str>, data: Attrs) -> LinkLayer {
    let (remote, collect_metadata) = match arphrd {
        _ if flags & IFF_LOOPBACK != 0 => return LinkLayer::Other,
        ARPHRD_ETHER => return ethernet(kind, data),
        ARPHRD_NONE => return LinkLayer::Absent,
        ARPHRD_PPP if *PPP_TAKES_REDIRECTS => return LinkLayer::Absent,
        ARPHRD_TUNNEL | ARPHRD_TUNNEL6 | ARPHRD_SIT => (IFLA_IPTUN_REMOTE, IFLA_IPTUN_COLLECT_METADATA),
        ARPHRD_IPGRE | ARPHRD_IP6GRE => (IFLA_GRE_REMOTE, IFLA_GRE_COLLECT_METADATA),
        _ => return LinkLayer::Other,
    };
    // Their drivers have other settings, and IPsec finds the remote end.
    if matches!(kind, Some("vti" | "vti6")) {
        return LinkLayer::Absent;
    }
    let has_remote = data.addr(remote).is_some_and(is_one_host);
    if has_remote && !data.has(collect_metadata) { LinkLayer::Absent } else { LinkLayer::WithoutRemote }
}

fn ethernet(kind: Option<&str>, data: Attrs) -> LinkLayer {
    let leads_nowhere = match kind {
        // Without a remote address, it sends to what it knows of each MAC.
        Some("vxlan") => data.u8(IFLA_VXLAN_COLLECT_METADATA).is_some_and(|on| on != 0),
        Some("geneve") => data.has(IFLA_GENEVE_COLLECT_METADATA),
        Some("gretap" | "ip6gretap") => {
            data.has(IFLA_GRE_COLLECT_METADATA) || !data.addr(IFLA_GRE_REMOTE).is_some_and(is_one_host)
        }
        _ => false,
    };
    if leads_nowhere { LinkLayer::WithoutRemote } else { LinkLayer::Ethernet }
}

fn is_one_host(remote: IpAddr) -> bool {
    !remote.is_unspecified() && !remote.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink_message::Batch;

    /// The layer of a device with these settings.
    fn layer(arphrd: u16, kind: &str, settings: &[(u16, &[u8])]) -> LinkLayer {
        let mut batch = Batch::default();
        batch.message(0, 0, 0, &[]);
        for (number, value) in settings {
            batch.put(*number, value);
        }
        const HEADER: usize = 16;
        link_layer(arphrd, 0, Some(kind), Attrs::new(&batch.bytes()[HEADER..]))
    }

    #[test]
    fn devices_that_carry_ip_alone_have_no_layer_2() {
        for kind in ["wireguard", "tun"] {
            assert_eq!(layer(ARPHRD_NONE, kind, &[]), LinkLayer::Absent, "{kind}");
        }
        assert_eq!(layer(ARPHRD_ETHER, "tun", &[]), LinkLayer::Ethernet, "a TAP device");
        // Nobody has tried these: CAN, raw IP of modems.
        for arphrd in [280, 519] {
            assert_eq!(layer(arphrd, "other", &[]), LinkLayer::Other);
        }
        let ppp = if *PPP_TAKES_REDIRECTS { LinkLayer::Absent } else { LinkLayer::Other };
        assert_eq!(layer(ARPHRD_PPP, "ppp", &[]), ppp);
        let loopback = link_layer(ARPHRD_NONE, IFF_LOOPBACK, None, Attrs::new(&[]));
        assert_eq!(loopback, LinkLayer::Other);
    }

    #[test]
    fn a_redirect_to_ppp_needs_linux_6_5() {
        assert!(["6.5.0", "6.12.117+deb12-amd64", "7.3.4+deb13-amd64", "6.5-rc7"].into_iter().all(is_6_5));
        assert!(!["6.1.0-57-cloud-amd64", "6.4.16", "5.15.132", "6", ""].into_iter().any(is_6_5));
    }

    #[test]
    fn a_tunnel_needs_the_address_of_one_host_as_its_remote_end() {
        let (host, group, none) = ([192, 0, 2, 1], [239, 0, 0, 1], [0; 4]);
        let host6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let ipip = |settings: &[(u16, &[u8])]| layer(ARPHRD_TUNNEL, "ipip", settings);
        let gre = |settings: &[(u16, &[u8])]| layer(ARPHRD_IPGRE, "gre", settings);
        assert_eq!(ipip(&[(IFLA_IPTUN_REMOTE, &host)]), LinkLayer::Absent);
        assert_eq!(gre(&[(IFLA_GRE_REMOTE, &host)]), LinkLayer::Absent);
        assert_eq!(layer(ARPHRD_SIT, "sit", &[(IFLA_IPTUN_REMOTE, &host)]), LinkLayer::Absent);
        assert_eq!(layer(ARPHRD_TUNNEL6, "ip6tnl", &[(IFLA_IPTUN_REMOTE, &host6)]), LinkLayer::Absent);
        for unfit in [
            ipip(&[]),
            ipip(&[(IFLA_IPTUN_REMOTE, &none)]),
            ipip(&[(IFLA_IPTUN_REMOTE, &host), (IFLA_IPTUN_COLLECT_METADATA, &[])]),
            gre(&[(IFLA_GRE_REMOTE, &group)]),
            gre(&[(IFLA_GRE_REMOTE, &host), (IFLA_GRE_COLLECT_METADATA, &[])]),
        ] {
            assert_eq!(unfit, LinkLayer::WithoutRemote);
        }
        assert_eq!(layer(ARPHRD_TUNNEL, "vti", &[]), LinkLayer::Absent);
    }

    #[test]
    fn a_tunnel_of_ethernet_frames_chooses_the_remote_end_itself() {
        let host = [192, 0, 2, 1];
        let ethernet = |kind, settings: &[(u16, &[u8])]| layer(ARPHRD_ETHER, kind, settings);
        for (kind, settings) in [
            ("vxlan", &[(IFLA_VXLAN_COLLECT_METADATA, &[0][..])][..]),
            ("vxlan", &[]),
            ("geneve", &[]),
            ("gretap", &[(IFLA_GRE_REMOTE, &host)]),
            ("netkit", &[]),
        ] {
            assert_eq!(ethernet(kind, settings), LinkLayer::Ethernet, "{kind}");
        }
        for (kind, settings) in [
            ("vxlan", &[(IFLA_VXLAN_COLLECT_METADATA, &[1][..])][..]),
            ("geneve", &[(IFLA_GENEVE_COLLECT_METADATA, &[])]),
            ("gretap", &[]),
            ("gretap", &[(IFLA_GRE_REMOTE, &host), (IFLA_GRE_COLLECT_METADATA, &[])]),
            ("ip6gretap", &[(IFLA_GRE_REMOTE, &[0; 16])]),
        ] {
            assert_eq!(ethernet(kind, settings), LinkLayer::WithoutRemote, "{kind}");
        }
    }
}
