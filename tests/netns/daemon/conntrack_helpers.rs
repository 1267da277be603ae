//! Connections with a conntrack helper stay slow, since the helper reads and rewrites their payload. The connections
//! that they announce work, and may be fast.

use shunt_api::Status;
use shunt_testkit::{Shuntd, Topology, require_root, rulesets, wait_until};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

const HELPERS: &str = r#"table ip helpers {
    ct helper ftp-standard { type "ftp" protocol tcp; };
    ct helper sip-standard { type "sip" protocol udp; };
    chain pre {
        type filter hook prerouting priority filter;
        tcp dport 21 ct helper set "ftp-standard"
        udp dport 5060 ct helper set "sip-standard"
    }
}"#;

const PATIENCE: Duration = Duration::from_secs(5);
const MEGABYTES: usize = 8 << 20;
/// Many times the number of packets that it takes to learn a flow.
const MANY: usize = 60;

fn gateway() -> (Topology, Shuntd) {
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab.router().nft(HELPERS);
    // Without offloads, all checksums are finished, so XDP forwards the packets.
    lab.offloads(false);
    let shuntd = Shuntd::on(lab.router()).start();
    (lab, shuntd)
}

/// Whether the flow table has a connection with this port.
fn has_flow(shuntd: &Shuntd, port: u16) -> bool {
    shuntd.flows().iter().any(|c| [c.orig.sport, c.orig.dport, c.reply.sport, c.reply.dport].contains(&port))
}

fn refused_for_helper(status: &Status) -> bool {
    status.refusals.get("helper").is_some_and(|count| *count > 0)
}

/// One end of a control connection.
struct Line {
    stream: BufReader<TcpStream>,
}

impl Line {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    #[track_caller]
    fn say(&mut self, text: &str) {
        self.stream.get_mut().write_all(format!("{text}\r\n").as_bytes()).unwrap();
    }

    #[track_caller]
    fn hear(&mut self) -> String {
        let mut text = String::new();
        self.stream.read_line(&mut text).unwrap();
        text.trim_end().to_owned()
    }
}

/// An address in FTP's form `h1,h2,h3,h4,p1,p2`.
fn as_ftp(ip: Ipv4Addr, port: u16) -> String {
    let [a, b, c, d] = ip.octets();
    format!("{a},{b},{c},{d},{},{}", port >> 8, port & 0xff)
}

#[track_caller]
fn from_ftp(text: &str) -> SocketAddr {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let numbers: Vec<u8> =
        digits.split(|c: char| !c.is_ascii_digit()).take(6).map(|n| n.parse().unwrap()).collect();
    let port = u16::from_be_bytes([numbers[4], numbers[5]]);
    (Ipv4Addr::new(numbers[0], numbers[1], numbers[2], numbers[3]), port).into()
}

fn data() -> Vec<u8> {
    (0..MEGABYTES as u32 / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

#[track_caller]
fn everything(mut from: TcpStream) -> Vec<u8> {
    from.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    all
}

/// Opens a control connection from the LAN to the WAN; returns the client's end and the server's.
#[track_caller]
fn control_connection(lab: &Topology) -> (Line, Line) {
    let listener = lab.wan().ns.within(|| TcpListener::bind(lab.wan().at(21))).unwrap();
    let client = lab.lan().ns.within(|| TcpStream::connect(lab.wan().at(21))).unwrap();
    let (mut client, mut server) = (Line::new(client), Line::new(listener.accept().unwrap().0));
    // The helper reads commands only after the first line.
    server.say("220 ready");
    assert_eq!(client.hear(), "220 ready");
    client.say("USER anonymous");
    assert_eq!(server.hear(), "USER anonymous");
    (client, server)
}

/// The WAN sends data to the LAN over a data connection. Asserts that it is fast, and that the control connection is
/// not.
#[track_caller]
fn transfers(lab: &Topology, shuntd: &Shuntd, mut ends: (Line, Line), from: TcpStream, to: TcpStream) {
    let before = shuntd.status().bytes.fast;
    let received = thread::scope(|scope| {
        scope.spawn(move || {
            let data = data();
            let mut pieces = data.chunks(data.len() / 256);
            let send = |piece| (&from).write_all(piece).unwrap();
            // The daemon makes the connection liberal while these pieces are sent.
            wait_until("the first pieces are fast", || {
                pieces.next().into_iter().for_each(send);
                shuntd.status().bytes.fast > before
            });
            pieces.for_each(send);
        });
        everything(to)
    });
    assert!(received == data(), "{} received bytes differ from the data sent", received.len());
    let fast = shuntd.status().bytes.fast - before;
    assert!(
        fast > MEGABYTES as u64 / 2,
        "only {fast} of {MEGABYTES} bytes were fast: {:#?}",
        shuntd.status()
    );
    for n in 0..MANY {
        ends.0.say(&format!("NOOP {n}"));
        assert_eq!(ends.1.hear(), format!("NOOP {n}"));
        ends.1.say("200 OK");
        assert_eq!(ends.0.hear(), "200 OK");
    }
    assert!(!has_flow(shuntd, 21), "{:#?}", shuntd.flows());
    assert!(refused_for_helper(&shuntd.status()), "{:#?}", shuntd.status());
    let tracked = lab.router().run("conntrack -L -p tcp --dport 21 2>/dev/null");
    assert!(tracked.contains("helper=ftp"), "{tracked}");
}

#[test]
fn active_ftp_works_and_its_control_connection_is_never_fast() {
    if !require_root() {
        return;
    }
    let (lab, shuntd) = gateway();
    let (mut client, mut server) = control_connection(&lab);
    let listener = lab.lan().ns.within(|| TcpListener::bind(lab.lan().at(0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    client.say(&format!("PORT {}", as_ftp(lab.lan().v4, port)));
    // The helper has replaced the address by the router's.
    let announced = from_ftp(&server.hear());
    assert_eq!(announced.ip(), lab.wan().gateway_v4);
    let from = lab.wan().ns.within(|| TcpStream::connect(announced)).unwrap();
    let to = listener.accept().unwrap().0;
    transfers(&lab, &shuntd, (client, server), from, to);
    shuntd.stop();
}

#[test]
fn passive_ftp_works_and_its_control_connection_is_never_fast() {
    if !require_root() {
        return;
    }
    let (lab, shuntd) = gateway();
    let (mut client, mut server) = control_connection(&lab);
    let listener = lab.wan().ns.within(|| TcpListener::bind(lab.wan().at(0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    client.say("PASV");
    assert_eq!(server.hear(), "PASV");
    server.say(&format!("227 Entering Passive Mode ({})", as_ftp(lab.wan().v4, port)));
    let output = client.hear();
    let announced = from_ftp(output.split('(').nth(1).unwrap());
    let to = lab.lan().ns.within(|| TcpStream::connect(announced)).unwrap();
    let from = listener.accept().unwrap().0;
    transfers(&lab, &shuntd, (client, server), from, to);
    shuntd.stop();
}

fn udp(host: &shunt_testkit::Host, port: u16) -> UdpSocket {
    let socket = host.ns.within(|| UdpSocket::bind(host.at(port))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a datagram; returns what arrives, and its source address.
#[track_caller]
fn passes(from: &UdpSocket, destination: SocketAddr, to: &UdpSocket, text: &str) -> (String, SocketAddr) {
    from.send_to(text.as_bytes(), destination).unwrap();
    let mut heard = [0; 2000];
    let (length, source) = to.recv_from(&mut heard).unwrap();
    (String::from_utf8_lossy(&heard[..length]).into_owned(), source)
}

fn sip(request: &str, method: &str, contact: &str, body: &str) -> String {
    let lines = [
        request,
        "Via: SIP/2.0/UDP 192.168.1.2:5060;branch=z9hG4bK1",
        "From: <sip:alice@198.18.0.2>;tag=1",
        "To: <sip:alice@198.18.0.2>",
        "Call-ID: 1@192.168.1.2",
        &format!("CSeq: 1 {method}"),
        &format!("Contact: <sip:alice@{contact}>"),
        "Expires: 600",
        "Content-Type: application/sdp",
        &format!("Content-Length: {}", body.len()),
    ];
    format!("{}\r\n\r\n{body}", lines.join("\r\n"))
}

/// The text after `key`, up to a blank, a bracket or the end of the line.
#[track_caller]
fn value(text: &str, key: &str) -> String {
    let rest = text.split(key).nth(1).unwrap_or_else(|| panic!("no {key} in {text}"));
    rest.split([' ', '>', '\r']).next().unwrap().to_owned()
}

/// A call from the registrar is a connection that the helper expected, and it has the helper, too.
#[test]
fn sip_is_never_fast_in_either_direction() {
    if !require_root() {
        return;
    }
    let (lab, shuntd) = gateway();
    let (client, registrar) = (udp(lab.lan(), 5060), udp(lab.wan(), 5060));
    let register = sip("REGISTER sip:198.18.0.2 SIP/2.0", "REGISTER", "192.168.1.2:5062", "");
    let (seen, from) = passes(&client, lab.wan().at(5060), &registrar, &register);
    let contact: SocketAddr = value(&seen, "Contact: <sip:alice@").parse().unwrap();
    assert_eq!(contact.ip(), lab.wan().gateway_v4, "{seen}");
    let answer = sip("SIP/2.0 200 OK", "REGISTER", &contact.to_string(), "");
    passes(&registrar, from, &client, &answer);
    for n in 0..MANY {
        passes(&client, lab.wan().at(5060), &registrar, &format!("not SIP {n}"));
        passes(&registrar, from, &client, &format!("not SIP {n}"));
    }
    assert!(!has_flow(&shuntd, 5060), "{:#?}", shuntd.flows());

    let (callee, caller) = (udp(lab.lan(), 5062), udp(lab.wan(), 5070));
    let options = "OPTIONS sip:alice@192.168.1.2 SIP/2.0\r\nCSeq: 2 OPTIONS\r\n\r\n";
    for _ in 0..MANY {
        let (_, from) = passes(&caller, contact, &callee, options);
        passes(&callee, from, &caller, "SIP/2.0 200 OK\r\nCSeq: 2 OPTIONS\r\n\r\n");
    }
    assert!(!has_flow(&shuntd, 5070), "{:#?}", shuntd.flows());
    assert!(refused_for_helper(&shuntd.status()), "{:#?}", shuntd.status());
    shuntd.stop();
}

#[test]
fn the_media_of_a_sip_call_arrive_and_are_fast() {
    if !require_root() {
        return;
    }
    let (lab, shuntd) = gateway();
    let (client, server) = (udp(lab.lan(), 5060), udp(lab.wan(), 5060));
    let body = "v=0\r\no=- 0 0 IN IP4 192.168.1.2\r\ns=-\r\nc=IN IP4 192.168.1.2\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n";
    let invite = sip("INVITE sip:bob@198.18.0.2 SIP/2.0", "INVITE", "192.168.1.2:5060", body);
    let (seen, _) = passes(&client, lab.wan().at(5060), &server, &invite);
    assert_eq!(value(&seen, "c=IN IP4 "), lab.wan().gateway_v4.to_string(), "{seen}");
    let media: SocketAddr = (lab.wan().gateway_v4, value(&seen, "m=audio ").parse::<u16>().unwrap()).into();
    let (phone, peer) = (udp(lab.lan(), 40_000), udp(lab.wan(), 41_000));
    let before = shuntd.status().packets.fast;
    let mut sent = 0;
    wait_until("the media are fast", || {
        sent += 1;
        let text = format!("sample {sent}");
        let (heard, from) = passes(&peer, media, &phone, &text);
        assert_eq!(heard, text);
        assert_eq!(passes(&phone, from, &peer, &text).0, text);
        shuntd.status().packets.fast > before + 10
    });
    assert!(has_flow(&shuntd, 41_000) && !has_flow(&shuntd, 5060), "{:#?}", shuntd.flows());
    shuntd.stop();
}
