//! `shunt line`: calculates what a link can carry.
//!
//! Packets of one size over Ethernet. Each header that is not chosen is shown in its usual forms, one row for each
//! combination.

pub(crate) mod view;

use super::arguments::{bytes, ip_version};
use crate::{
    command::{Command, Context},
    failure::usage,
    output::{Show, write_stderr},
};
use clap::Args;
use shunt_api::Failure;
use shunt_wire::line::{Encapsulation, IpVersion, L4, LinkSpeed};
use view::{Line, Row};

const ETHERNET_MTU: u32 = 1500;
/// RFC 2516: the Ethernet MTU less 8 bytes of PPPoE and PPP headers.
const PPPOE_MTU: u32 = 1492;
/// On slower links the rounded figures would be zeros.
const SPEED_MIN_BPS: u64 = 64_000;

/// Calculate the maximum packets/s and bit/s of a link for each layer and encapsulation.
#[derive(Debug, Args)]
pub(crate) struct LineArgs {
    /// The speed of the link in bit/s, such as 100M or 2.5G; at least 64k.
    #[arg(long, value_name = "SPEED", default_value = "1G")]
    speed: LinkSpeed,
    /// The largest IP packet [default: 1500, or 1492 with --pppoe].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    mtu: Option<u32>,
    /// The size of the frame with tags and FCS, as RFC 2544 counts it, instead of an MTU.
    #[arg(long, value_name = "BYTES", conflicts_with = "mtu", value_parser = bytes)]
    frame: Option<u32>,
    /// Only this IP version.
    #[arg(long, value_name = "4|6", value_parser = ip_version)]
    ip: Option<IpVersion>,
    /// Only this protocol.
    #[arg(short, long, value_name = "tcp|udp", value_parser = ["tcp", "udp"], hide_possible_values = true)]
    proto: Option<String>,
    /// Only this number of VLAN tags; 2 is QinQ [default: 0 and 1].
    #[arg(long, value_name = "N")]
    tags: Option<u32>,
    /// With PPPoE.
    #[arg(long)]
    pppoe: bool,
    /// Bytes of TCP options, after the 20 bytes of the TCP header. Linux sends timestamps, which take 12 bytes, unless
    /// net.ipv4.tcp_timestamps is 0.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = bytes)]
    tcp_options: u32,
}

impl LineArgs {
    /// Every combination of the headers that were not chosen.
    fn encapsulations(&self) -> Vec<Encapsulation> {
        let tags = self.tags.map_or(vec![0, 1], |tags| vec![tags]);
        let versions = self.ip.map_or(vec![IpVersion::V4, IpVersion::V6], |ip| vec![ip]);
        let protocols = [("udp", L4::Udp), ("tcp", L4::Tcp { options_bytes: self.tcp_options })];
        let mut all = Vec::new();
        for &tags in &tags {
            for &ip in &versions {
                let is_chosen = |name: &str| self.proto.as_ref().is_none_or(|proto| proto == name);
                for (_, l4) in protocols.iter().filter(|(name, _)| is_chosen(name)) {
                    all.push(Encapsulation { tags, pppoe: self.pppoe, ip, l4: *l4 });
                }
            }
        }
        all
    }
}

/// Fails if no encapsulation is possible with these options. Those that are impossible have no row, but a reason.
pub(crate) fn resolve(typed: &LineArgs) -> Result<Line, Failure> {
    if typed.speed.bits_per_second() < SPEED_MIN_BPS {
        let bits = typed.speed.bits_per_second();
        let why = format!("--speed {}: below 64k bit/s; {bits} Mbit/s is written as {bits}M", typed.speed);
        return Err(usage(why));
    }
    let options = L4::Tcp { options_bytes: typed.tcp_options };
    options.check().map_err(|why| usage(format!("--tcp-options: {why}")))?;
    let mtu = typed.mtu.unwrap_or(if typed.pppoe { PPPOE_MTU } else { ETHERNET_MTU });
    let mut line = Line { rows: Vec::new(), tcp_options_bytes: typed.tcp_options, left_out: Vec::new() };
    for encapsulation in typed.encapsulations() {
        let sizes = match typed.frame {
            Some(frame) => encapsulation.in_frame(frame),
            None => encapsulation.in_mtu(mtu),
        };
        match sizes {
            Ok(sizes) => line.rows.push(Row::new(encapsulation, sizes, typed.speed)),
            Err(why) => line.left_out.push(why),
        }
    }
    match line.left_out.first() {
        Some(why) if line.rows.is_empty() => Err(usage(why.to_string())),
        _ => Ok(line),
    }
}

impl Command for LineArgs {
    type Plan = Line;
    const EXAMPLES: &str = "
        [shunt line]
        shunt line --speed 1G --frame 64 # what a gigabit link carries of the smallest frames
        shunt line --speed 100M --pppoe --ip 4 # over PPPoE
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Line> {
        Ok(resolve(&self)?)
    }

    /// Notes each impossible encapsulation on standard error; the answer has the possible ones.
    async fn run(plan: Line, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        plan.left_out.iter().for_each(|why| write_stderr(&format!("left out: {why}\n")));
        show(&plan)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};
    use shunt_api::FailureCode;

    fn line(options: &str) -> Result<Line, Failure> {
        resolve(&parse_args(options).unwrap())
    }

    fn names(options: &str) -> Vec<String> {
        line(options).unwrap().rows.into_iter().map(|row| row.encap).collect()
    }

    #[test]
    fn headers_that_are_not_chosen_appear_in_their_usual_forms() {
        assert_eq!(names("--ip 6 --proto tcp --tags 2"), ["QinQ/IPv6/TCP"]);
        assert_eq!(names("--proto udp"), ["IPv4/UDP", "IPv6/UDP", "VLAN/IPv4/UDP", "VLAN/IPv6/UDP"]);
        assert_eq!(names("--pppoe --ip 4 --tags 1"), ["VLAN/PPPoE/IPv4/UDP", "VLAN/PPPoE/IPv4/TCP"]);
    }

    #[test]
    fn pppoe_has_a_default_mtu_of_1492() {
        let rows = line("--pppoe --ip 4 --tags 0 --proto udp").unwrap().rows;
        assert_eq!((rows[0].wire_bytes, rows[0].l3_bytes, rows[0].l4_payload), (1538, 1492, 1464));
        assert_eq!(line("--pppoe --mtu 1500 --ip 4").unwrap().rows[0].wire_bytes, 1546);
    }

    #[test]
    fn impossible_encapsulations_are_left_out_with_a_reason_and_it_is_a_failure_if_none_is_possible() {
        let small = line("--frame 64").unwrap();
        let names: Vec<_> = small.rows.iter().map(|row| row.encap.as_str()).collect();
        assert_eq!(names, ["IPv4/UDP", "IPv4/TCP", "VLAN/IPv4/UDP", "VLAN/IPv4/TCP"]);
        assert_eq!(small.left_out.len(), 4);
        for (options, why) in [
            ("--speed 5", "--speed 5: below 64k bit/s; 5 Mbit/s is written as 5M"),
            ("--frame 63", "a frame of 63 bytes is too short: Ethernet needs 64, including FCS"),
            ("--mtu 20", "IPv4/UDP: an MTU of 20 is too small: IPv4 needs 68"),
            ("--tags 3", "3 VLAN tags: a frame can have at most 2 (QinQ)"),
            (
                "--tcp-options 13",
                "--tcp-options: 13 bytes of TCP options: expected a multiple of 4, at most 40",
            ),
            (
                "--tcp-options 44",
                "--tcp-options: 44 bytes of TCP options: expected a multiple of 4, at most 40",
            ),
        ] {
            let failure = line(options).unwrap_err();
            assert_eq!((failure.code, failure.message.as_str()), (FailureCode::Usage, why));
        }
    }
}
