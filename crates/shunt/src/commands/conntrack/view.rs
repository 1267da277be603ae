//! The text of `shunt conntrack`, in the format of `conntrack -L`.

use crate::render::{Format, Text};
use shunt_api::{Tracked, TrackedDirection};

const GRE: u8 = 47;

impl Text for Vec<Tracked> {
    fn text(&self, _: Format) -> String {
        self.iter().map(|entry| describe(entry) + "\n").collect()
    }
}

fn describe(entry: &Tracked) -> String {
    let Tracked { protocol, orig, reply, .. } = entry;
    let mut words = vec![format!("{:<8} {protocol}", name(*protocol))];
    words.extend(entry.timeout_s.map(|seconds| seconds.to_string()));
    words.extend(entry.state.clone());
    describe_direction(orig, *protocol, "zone-orig", &mut words);
    if !entry.is(Tracked::SEEN_REPLY) {
        words.push("[UNREPLIED]".to_owned());
    }
    describe_direction(reply, *protocol, "zone-reply", &mut words);
    let status = [
        (Tracked::HW_OFFLOAD, "[HW_OFFLOAD]"),
        (Tracked::OFFLOAD, "[OFFLOAD]"),
        (Tracked::ASSURED, "[ASSURED]"),
    ];
    words.extend(status.iter().find(|(bit, _)| entry.is(*bit)).map(|(_, text)| (*text).to_owned()));
    words.extend(entry.mark.map(|mark| format!("mark={mark}")));
    words.extend(entry.secctx.as_ref().map(|secctx| format!("secctx={secctx}")));
    words.extend(entry.zone.map(|zone| format!("zone={zone}")));
    words.extend(entry.age_s.map(|age| format!("delta-time={age}")));
    words.extend(entry.helper.as_ref().map(|helper| format!("helper={helper}")));
    words.push(format!("use={}", entry.used));
    words.join(" ")
}

fn describe_direction(direction: &TrackedDirection, protocol: u8, zone: &str, words: &mut Vec<String>) {
    let TrackedDirection { src, dst, sport, dport, icmp, .. } = direction;
    words.push(format!("src={src} dst={dst}"));
    if let Some((sport, dport)) = sport.zip(*dport) {
        words.push(match protocol {
            GRE => format!("srckey={sport:#x} dstkey={dport:#x}"),
            _ => format!("sport={sport} dport={dport}"),
        });
    }
    words.extend(icmp.map(|icmp| format!("type={} code={} id={}", icmp.kind, icmp.code, icmp.id)));
    words.extend(direction.zone.map(|number| format!("{zone}={number}")));
    words.extend(direction.count.map(|count| format!("packets={} bytes={}", count.packets, count.bytes)));
}

/// The names that libnetfilter_conntrack uses.
const NAMES: [(u8, &str); 9] = [
    (1, "icmp"),
    (2, "igmp"),
    (6, "tcp"),
    (17, "udp"),
    (33, "dccp"),
    (GRE, "gre"),
    (58, "icmpv6"),
    (132, "sctp"),
    (136, "udplite"),
];

/// The name of a protocol, or `unknown`.
pub(crate) fn name(protocol: u8) -> &'static str {
    NAMES.iter().find(|(number, _)| *number == protocol).map_or("unknown", |(_, name)| name)
}

/// The number of the protocol with this name; none if conntrack has no such name.
pub(crate) fn protocol_number(name: &str) -> Option<u8> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}
