//! Changes of a router's configuration as single netlink requests. A change is in effect when the call returns, and no
//! program has to start or end for it.

use nix::libc;
use shunt_kernel::{Batch, Channel, Error};
use shunt_testkit::NetNs;
use shunt_wire::Mac;
use std::net::Ipv4Addr;

const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const ACK: u16 = REQUEST | libc::NLM_F_ACK as u16;
const CREATE: u16 = ACK | libc::NLM_F_CREATE as u16;
const REPLACE: u16 = CREATE | libc::NLM_F_REPLACE as u16;
const APPEND: u16 = CREATE | libc::NLM_F_APPEND as u16;
const IPV4: u8 = libc::AF_INET as u8;

const NFTABLES: u16 = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8;
const CONNTRACK_DELETE: u16 = (libc::NFNL_SUBSYS_CTNETLINK as u16) << 8 | 2;
const NFPROTO_INET: u8 = 1;
// linux/netfilter/nf_tables.h
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFT_SET_ELEM_INTERVAL_END: u32 = 1;

/// The table of the rules and sets.
const TABLE: &[u8] = b"filter\0";

/// A rule's verdict.
#[derive(Debug, Clone, Copy)]
pub enum Verdict {
    /// NF_DROP.
    Drop = 0,
    /// NF_ACCEPT.
    Accept = 1,
}

/// Netlink sockets in the router.
pub struct Requests {
    route: Channel,
    netfilter: Channel,
}

impl Requests {
    /// Opens the sockets.
    pub fn open(router: &NetNs) -> Result<Self, Error> {
        router.within(|| {
            Ok(Self {
                route: Channel::open(libc::NETLINK_ROUTE as isize, "NETLINK_ROUTE")?,
                netfilter: Channel::open(libc::NETLINK_NETFILTER as isize, "NETLINK_NETFILTER")?,
            })
        })
    }

    /// `nft add rule inet filter CHAIN VERDICT`
    pub fn add_rule(&mut self, chain: &str, verdict: Verdict) -> Result<(), Error> {
        let code = (verdict as u32).to_be_bytes();
        self.nftables("add rule", libc::NFT_MSG_NEWRULE, APPEND, |rule| {
            rule.put(NFTA_RULE_TABLE, TABLE);
            rule.put(NFTA_RULE_CHAIN, &text(chain));
            rule.nest(NFTA_RULE_EXPRESSIONS, |list| {
                list.nest(NFTA_LIST_ELEM, |expression| {
                    expression.put(NFTA_EXPR_NAME, b"immediate\0");
                    expression.nest(NFTA_EXPR_DATA, |data| {
                        data.put(NFTA_IMMEDIATE_DREG, &[0; 4]);
                        data.nest(NFTA_IMMEDIATE_DATA, |value| {
                            value.nest(NFTA_DATA_VERDICT, |verdict| {
                                verdict.put(NFTA_VERDICT_CODE, &code);
                            });
                        });
                    });
                });
            });
        })
    }

    /// `nft flush chain inet filter CHAIN`
    pub fn flush_chain(&mut self, chain: &str) -> Result<(), Error> {
        self.nftables("flush chain", libc::NFT_MSG_DELRULE, ACK, |rule| {
            rule.put(NFTA_RULE_TABLE, TABLE);
            rule.put(NFTA_RULE_CHAIN, &text(chain));
        })
    }

    /// `nft add element inet filter SET { PORT }`, or `delete`
    pub fn element(&mut self, set: &str, port: u16, there: bool) -> Result<(), Error> {
        self.elements(set, &[(&port.to_be_bytes(), 0)], there)
    }

    /// `nft add element inet filter SET { PREFIX }`, or `delete`
    pub fn prefix(&mut self, set: &str, (first, bits): (Ipv4Addr, u8), there: bool) -> Result<(), Error> {
        let behind = Ipv4Addr::from_bits(first.to_bits() + (1 << (32 - bits)));
        self.elements(set, &[(&first.octets(), 0), (&behind.octets(), NFT_SET_ELEM_INTERVAL_END)], there)
    }

    /// Adds or deletes elements of a set: keys and flags.
    fn elements(&mut self, set: &str, keys: &[(&[u8], u32)], there: bool) -> Result<(), Error> {
        let (kind, flags) =
            if there { (libc::NFT_MSG_NEWSETELEM, CREATE) } else { (libc::NFT_MSG_DELSETELEM, ACK) };
        self.nftables("element", kind, flags, |elements| {
            elements.put(NFTA_SET_ELEM_LIST_TABLE, TABLE);
            elements.put(NFTA_SET_ELEM_LIST_SET, &text(set));
            elements.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
                for (key, flags) in keys {
                    list.nest(NFTA_LIST_ELEM, |element| {
                        element.nest(NFTA_SET_ELEM_KEY, |value| value.put(NFTA_DATA_VALUE, key));
                        if *flags != 0 {
                            element.put(NFTA_SET_ELEM_FLAGS, &flags.to_be_bytes());
                        }
                    });
                }
            });
        })
    }

    /// `ip route replace PREFIX via HOP dev IFINDEX`
    pub fn route(&mut self, to: (Ipv4Addr, u8), hop: Ipv4Addr, ifindex: u32) -> Result<(), Error> {
        self.route_request(libc::RTM_NEWROUTE, REPLACE, to, |route| {
            route.put(libc::RTA_GATEWAY, &hop.octets());
            route.put(libc::RTA_OIF, &ifindex.to_ne_bytes());
        })
    }

    /// `ip route del PREFIX`
    pub fn remove_route(&mut self, to: (Ipv4Addr, u8)) -> Result<(), Error> {
        self.route_request(libc::RTM_DELROUTE, ACK, to, |_| {})
    }

    fn route_request(
        &mut self,
        kind: u16,
        flags: u16,
        (to, bits): (Ipv4Addr, u8),
        attributes: impl FnOnce(&mut Batch),
    ) -> Result<(), Error> {
        let (table, protocol) = (libc::RT_TABLE_MAIN, libc::RTPROT_STATIC);
        let (scope, kind_of_route) = (libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST);
        let fixed = [IPV4, bits, 0, 0, table, protocol, scope, kind_of_route, 0, 0, 0, 0];
        self.rtnetlink("route", kind, flags, &fixed, |route| {
            route.put(libc::RTA_DST, &to.octets());
            attributes(route);
        })
    }

    /// `ip rule add fwmark MARK table TABLE`, or `del`
    pub fn rule(&mut self, mark: u32, table: u32, there: bool) -> Result<(), Error> {
        const FRA_FWMARK: u16 = 10;
        const FRA_TABLE: u16 = 15;
        const TO_TABLE: u8 = 1;
        let (kind, flags) = if there { (libc::RTM_NEWRULE, CREATE) } else { (libc::RTM_DELRULE, ACK) };
        let fixed = [IPV4, 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0];
        self.rtnetlink("rule", kind, flags, &fixed, |rule| {
            rule.put(FRA_FWMARK, &mark.to_ne_bytes());
            rule.put(FRA_TABLE, &table.to_ne_bytes());
        })
    }

    /// `ip neigh replace IP lladdr MAC dev IFINDEX nud permanent`
    pub fn neighbour(&mut self, ip: Ipv4Addr, mac: Mac, ifindex: u32) -> Result<(), Error> {
        self.neighbour_entry(IPV4, libc::NUD_PERMANENT, 0, ifindex, |neighbour| {
            neighbour.put(libc::NDA_DST, &ip.octets());
            neighbour.put(libc::NDA_LLADDR, &mac.0);
        })
    }

    /// `bridge fdb replace MAC dev IFINDEX master dynamic`
    pub fn station(&mut self, mac: Mac, ifindex: u32) -> Result<(), Error> {
        let family = libc::AF_BRIDGE as u8;
        self.neighbour_entry(family, libc::NUD_REACHABLE, libc::NTF_MASTER, ifindex, |station| {
            station.put(libc::NDA_LLADDR, &mac.0);
        })
    }

    /// `ip link set IFINDEX up`, or `down`
    pub fn link(&mut self, ifindex: u32, up: bool) -> Result<(), Error> {
        let flag = libc::IFF_UP as u32;
        let mut fixed = [0; 16];
        fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        fixed[8..12].copy_from_slice(&(if up { flag } else { 0 }).to_ne_bytes());
        fixed[12..].copy_from_slice(&flag.to_ne_bytes());
        self.rtnetlink("link", libc::RTM_NEWLINK, ACK, &fixed, |_| {})
    }

    /// `ip address del IP/24 dev IFINDEX`
    pub fn remove_address(&mut self, ip: Ipv4Addr, ifindex: u32) -> Result<(), Error> {
        let mut fixed = [0; 8];
        (fixed[0], fixed[1]) = (IPV4, 24);
        fixed[4..].copy_from_slice(&ifindex.to_ne_bytes());
        self.rtnetlink("address", libc::RTM_DELADDR, ACK, &fixed, |address| {
            address.put(libc::IFA_LOCAL, &ip.octets());
        })
    }

    /// `conntrack -D` for a UDP connection
    pub fn forget(&mut self, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Result<(), Error> {
        let mut batch = Batch::default();
        batch.message(CONNTRACK_DELETE, ACK, self.netfilter.next_seq(), &[IPV4, 0, 0, 0]);
        batch.nest(1, |tuple| {
            tuple.nest(1, |ip| {
                ip.put(1, &from.0.octets());
                ip.put(2, &to.0.octets());
            });
            tuple.nest(2, |l4| {
                l4.put(1, &[libc::IPPROTO_UDP as u8]);
                l4.put(2, &from.1.to_be_bytes());
                l4.put(3, &to.1.to_be_bytes());
            });
        });
        self.netfilter.execute("conntrack -D", &batch)
    }

    fn neighbour_entry(
        &mut self,
        family: u8,
        state: u16,
        flags: u8,
        ifindex: u32,
        attributes: impl FnOnce(&mut Batch),
    ) -> Result<(), Error> {
        let mut fixed = [0; 12];
        fixed[0] = family;
        fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        fixed[8..10].copy_from_slice(&state.to_ne_bytes());
        fixed[10] = flags;
        self.rtnetlink("neighbour", libc::RTM_NEWNEIGH, REPLACE, &fixed, attributes)
    }

    fn rtnetlink(
        &mut self,
        request: &'static str,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        attributes: impl FnOnce(&mut Batch),
    ) -> Result<(), Error> {
        let mut batch = Batch::default();
        batch.message(kind, flags, self.route.next_seq(), fixed);
        attributes(&mut batch);
        self.route.execute(request, &batch)
    }

    /// Sends a transaction of one message.
    fn nftables(
        &mut self,
        request: &'static str,
        kind: libc::c_int,
        flags: u16,
        attributes: impl FnOnce(&mut Batch),
    ) -> Result<(), Error> {
        const BEGIN: u16 = 0x10;
        const END: u16 = 0x11;
        let frame = [0, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u8];
        let (begin, end) = (self.netfilter.next_seq(), self.netfilter.next_seq());
        let mut batch = Batch::default();
        batch.message(BEGIN, REQUEST, begin, &frame);
        batch.message(NFTABLES | kind as u16, flags, self.netfilter.next_seq(), &[NFPROTO_INET, 0, 0, 0]);
        attributes(&mut batch);
        batch.message(END, REQUEST, end, &frame);
        self.netfilter.execute(request, &batch)
    }
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}
