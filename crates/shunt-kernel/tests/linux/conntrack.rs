//! Sets BE_LIBERAL on real connections, and reads the entries back with netlink-packet-netfilter and conntrack(8).

use crate::netns::NetNs;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    conntrack::{ConntrackAttribute, ConntrackMessage, ProtoInfo, ProtoInfoTCP},
};
use netlink_sys::{Socket, SocketAddr as NetlinkAddr, protocols::NETLINK_NETFILTER};
use shunt_core::{Connection, Proto};
use shunt_kernel::{Error, Liberal, Linux};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

const BE_LIBERAL: u8 = 0x08;
const PATIENCE: Duration = Duration::from_secs(20);

/// A client, a server, and between them a router that tracks and translates.
struct Path {
    client: NetNs,
    router: NetNs,
    server: NetNs,
}

impl Path {
    fn new() -> Option<Self> {
        let path = Self { client: NetNs::new()?, router: NetNs::new()?, server: NetNs::new()? };
        path.router.sh(&format!(
            "ip link add c type veth peer name e0 netns {}; ip link add s type veth peer name e0 netns {}
             for l in c s; do ip link set $l up; done
             ip addr add 192.0.2.1/24 dev c; ip addr add 198.51.100.1/24 dev s
             ip addr add 2001:db8:1::1/64 dev c nodad; ip addr add 2001:db8:2::1/64 dev s nodad
             echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
             nft 'add table inet t; add chain inet t p {{ type nat hook postrouting priority 100; }}
                  add rule inet t p oifname s masquerade
                  add chain inet t f {{ type filter hook forward priority 0; }}; add rule inet t f ct mark set 0x42'",
            path.client.path(),
            path.server.path()
        ));
        path.client.sh(
            "ip addr add 192.0.2.2/24 dev e0; ip addr add 2001:db8:1::2/64 dev e0 nodad; ip link set e0 up
                        ip route add default via 192.0.2.1; ip -6 route add default via 2001:db8:1::1",
        );
        path.server.sh(
            "ip addr add 198.51.100.2/24 dev e0; ip addr add 2001:db8:2::2/64 dev e0 nodad; ip link set e0 up
             ip route add default via 198.51.100.1; ip -6 route add default via 2001:db8:2::1",
        );
        Some(path)
    }

    /// A connection that has carried data in both directions, and its two sockets.
    fn connect(&self, server: &str) -> (Connection, [TcpStream; 2]) {
        let dst: SocketAddr = server.parse().unwrap();
        let listener = self.server.enter(|| TcpListener::bind(dst).unwrap());
        let mut near = self.client.enter(|| TcpStream::connect_timeout(&dst, PATIENCE).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        send_word(&mut near, &mut far);
        send_word(&mut far, &mut near);
        (Connection { proto: Proto::Tcp, src: near.local_addr().unwrap(), dst }, [near, far])
    }
}

fn send_word(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"word").unwrap();
    to.read_exact(&mut [0; 4]).unwrap();
}

/// All conntrack entries of the calling thread's namespace.
fn entries(family: NetfilterProtoFamily) -> Vec<Vec<ConntrackAttribute>> {
    let mut socket = Socket::new(NETLINK_NETFILTER).unwrap();
    socket.bind_auto().unwrap();
    socket.connect(&NetlinkAddr::new(0, 0)).unwrap();
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), ConntrackMessage::Get(vec![]));
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(request));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0).unwrap();
    let mut entries = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full().unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<NetfilterMessage>::deserialize(rest).unwrap();
            rest = &rest[message.header.length as usize..];
            match message.payload {
                NetlinkPayload::Done(_) => return entries,
                NetlinkPayload::InnerMessage(NetfilterMessage {
                    inner: NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)),
                    ..
                }) => entries.push(attributes),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn only_entry(family: NetfilterProtoFamily) -> Vec<ConntrackAttribute> {
    let mut entries = entries(family);
    assert_eq!(entries.len(), 1, "{entries:#?}");
    entries.remove(0)
}

/// Removes the TCP flags of both directions from an entry and returns them.
fn take_flags(entry: &mut [ConntrackAttribute]) -> Vec<u8> {
    let mut flags = Vec::new();
    for attribute in entry {
        let ConntrackAttribute::CtaProtoInfo(infos) = attribute else { continue };
        for info in infos {
            let ProtoInfo::TCP(parts) = info else { continue };
            parts.retain(|part| match part {
                ProtoInfoTCP::OriginalFlags(f) | ProtoInfoTCP::ReplyFlags(f) => {
                    flags.push(f.flags);
                    false
                }
                _ => true,
            });
        }
    }
    flags
}

fn take_timeout(entry: &mut Vec<ConntrackAttribute>) -> u32 {
    let mut timeout = None;
    entry.retain(|attribute| match attribute {
        ConntrackAttribute::CtaTimeout(seconds) => {
            timeout = Some(*seconds);
            false
        }
        _ => true,
    });
    timeout.unwrap()
}

fn liberal_changes_the_flags_and_nothing_else(
    server: &str,
    family: NetfilterProtoFamily,
    conntrack_family: &str,
) {
    let Some(path) = Path::new() else { return };
    path.router.sh("echo 777 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established");
    let (connection, ends) = path.connect(server);
    path.router.sh("echo 888 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established");
    path.router.enter(|| {
        let list =
            || crate::netns::sh(&format!("conntrack -L -o extended,id -f {conntrack_family} 2>/dev/null"));
        let text_before = list();
        let mut before = only_entry(family);
        let results = Linux::open().unwrap().set_be_liberal(&[connection]);
        assert!(matches!(results[..], [Ok(Liberal::Set)]), "{results:?}");
        let mut after = only_entry(family);
        let text_after = list();

        let flags_before = take_flags(&mut before);
        let flags_after = take_flags(&mut after);
        assert_eq!(flags_before.len(), 2);
        assert!(flags_before.iter().all(|flags| flags & BE_LIBERAL == 0), "{flags_before:?}");
        assert_eq!(flags_after, flags_before.iter().map(|flags| flags | BE_LIBERAL).collect::<Vec<_>>());

        let timeouts = [take_timeout(&mut before), take_timeout(&mut after)];
        assert!(timeouts.iter().all(|seconds| (700..=777).contains(seconds)), "{timeouts:?}");
        assert_eq!(after, before);

        let without_timeout = |text: &str| {
            let words = text.split_whitespace().enumerate().filter(|(i, _)| *i != 4);
            words.map(|(_, word)| word.to_owned()).collect::<Vec<_>>()
        };
        assert!(text_before.contains("mark=66") && text_before.contains("[ASSURED]"), "{text_before}");
        assert_eq!(without_timeout(&text_after), without_timeout(&text_before));
    });
    drop(ends);
}

#[test]
fn liberal_changes_the_flags_of_a_translated_connection_and_nothing_else() {
    liberal_changes_the_flags_and_nothing_else("198.51.100.2:8080", NetfilterProtoFamily::IPv4, "ipv4");
}

#[test]
fn liberal_changes_the_flags_of_an_ipv6_connection_and_nothing_else() {
    liberal_changes_the_flags_and_nothing_else("[2001:db8:2::2]:8080", NetfilterProtoFamily::IPv6, "ipv6");
}

#[test]
fn each_of_a_thousand_connections_gets_its_own_result() {
    let Some(path) = Path::new() else { return };
    let (here, ends) = path.connect("198.51.100.2:8080");
    path.router.enter(|| {
        let mut linux = Linux::open().unwrap();
        let gone = |port| Connection { dst: ([203, 0, 113, 1], port).into(), ..here };
        let udp = Connection { proto: Proto::Udp, ..here };
        let mut many: Vec<_> = (1..=1000).map(gone).collect();
        many[500] = here;
        many[700] = udp;
        many[999] = udp;
        let start = Instant::now();
        let results = linux.set_be_liberal(&many);
        eprintln!("{} connections in {:?}", many.len(), start.elapsed());
        assert_eq!(results.len(), many.len());
        for (connection, result) in many.iter().zip(&results) {
            match (*connection, result) {
                (c, Ok(Liberal::Set)) if c == here => {}
                (c, Err(Error::NotTcp(named))) if c == udp => assert_eq!(*named, udp),
                (c, Ok(Liberal::Gone)) if c != here && c != udp => {}
                other => panic!("{other:?}"),
            }
        }
        let again = linux.set_be_liberal(&vec![here; 1000]);
        assert!(again.iter().all(|result| matches!(result, Ok(Liberal::Set))));
        assert!(linux.set_be_liberal(&[]).is_empty());
        assert!(matches!(linux.set_be_liberal(&[udp])[..], [Err(Error::NotTcp(_))]));
    });
    drop(ends);
}

/// Sends some megabytes of a connection past the router's conntrack, then lets conntrack see the connection again.
/// Returns how many packets conntrack called invalid.
fn invalid_after_untracked_data(liberal: bool) -> Option<u64> {
    let path = Path::new()?;
    // No masquerading: untracked packets are not translated.
    path.router.sh("nft 'flush chain inet t p; add chain inet t i { type filter hook forward priority 1; }
                         add rule inet t i ct state invalid counter drop'");
    let invalid = || {
        let rules = path.router.sh("nft list chain inet t i");
        let count = rules.split_once("counter packets ").and_then(|(_, rest)| rest.split_once(' '));
        count.unwrap().0.parse::<u64>().unwrap()
    };
    let (connection, [mut near, mut far]) = path.connect("198.51.100.2:8080");
    if liberal {
        let results = path.router.enter(|| Linux::open().unwrap().set_be_liberal(&[connection]));
        assert!(matches!(results[..], [Ok(Liberal::Set)]), "{results:?}");
    }
    path.router.sh(
        "nft 'add chain inet t r { type filter hook prerouting priority -300; }; add rule inet t r notrack'",
    );
    let block = vec![7; 8 << 20];
    thread::scope(|scope| {
        let (near, block) = (&mut near, &block);
        scope.spawn(|| near.write_all(block).unwrap());
        far.read_exact(&mut vec![0; block.len()]).unwrap();
    });
    path.router.sh("nft flush chain inet t r");
    if liberal {
        send_word(&mut near, &mut far);
        send_word(&mut far, &mut near);
    } else {
        near.write_all(b"word").unwrap();
        let start = Instant::now();
        while invalid() == 0 {
            assert!(start.elapsed() < PATIENCE, "conntrack called no packet invalid");
        }
    }
    Some(invalid())
}

#[test]
fn packets_outside_the_window_are_valid_only_on_a_liberal_connection() {
    if let Some(invalid) = invalid_after_untracked_data(true) {
        assert_eq!(invalid, 0);
    }
    if let Some(invalid) = invalid_after_untracked_data(false) {
        assert!(invalid > 0);
    }
}
