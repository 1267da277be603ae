//! The rows of `shunt line`.

use crate::cli::LineArgs;
use serde::Serialize;
use shunt_api::{Failure, FailureCode};
use shunt_wire::line::{Encapsulation, Impossible, L4, LinkSpeed, Sizes};

const ETHERNET_MTU: u32 = 1500;
/// RFC 2516: an Ethernet frame less the header of PPPoE.
const PPPOE_MTU: u32 = 1492;
/// Of what is slower the figures would be zeros.
const SLOWEST_BPS: u64 = 64_000;

/// What a link carries.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) rows: Vec<Row>,
    pub(crate) tcp_options_bytes: u32,
    /// Why others have no row.
    pub(crate) left_out: Vec<Impossible>,
}

/// What a link carries of one encapsulation. The bit/s of a layer are those of its whole packets, but of L4 those of
/// the payload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) encap: String,
    pub(crate) speed_bps: LinkSpeed,
    /// With FCS.
    pub(crate) frame_bytes: u32,
    /// With preamble and gap.
    pub(crate) wire_bytes: u32,
    pub(crate) l3_bytes: u32,
    pub(crate) l4_payload: u32,
    pub(crate) pps: f64,
    pub(crate) l2_mbps: f64,
    pub(crate) l3_mbps: f64,
    pub(crate) l4_mbps: f64,
}

impl Line {
    /// What was asked for, as far as it can be.
    pub(crate) fn resolve(typed: &LineArgs) -> Result<Self, Failure> {
        if typed.speed.bits_per_second() < SLOWEST_BPS {
            let why = format!("--speed {}: in bit/s, 64k is the least; 5 Mbit/s is 5M", typed.speed);
            return Err(Failure::new(FailureCode::Usage, why));
        }
        let options = L4::Tcp { options_bytes: typed.tcp_options };
        options.check().map_err(|why| Failure::new(FailureCode::Usage, format!("--tcp-options: {why}")))?;
        let mtu = typed.mtu.unwrap_or(if typed.pppoe { PPPOE_MTU } else { ETHERNET_MTU });
        let mut line = Self { rows: Vec::new(), tcp_options_bytes: typed.tcp_options, left_out: Vec::new() };
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
            Some(why) if line.rows.is_empty() => Err(Failure::new(FailureCode::Usage, why.to_string())),
            _ => Ok(line),
        }
    }
}

impl Row {
    fn new(encapsulation: Encapsulation, sizes: Sizes, speed: LinkSpeed) -> Self {
        let pps = speed.frames_per_second(sizes.frame);
        let mbps = |bytes: u32| pps * f64::from(bytes) * 8.0 / 1e6;
        Self {
            encap: encapsulation.to_string(),
            speed_bps: speed,
            frame_bytes: sizes.frame,
            wire_bytes: sizes.wire(),
            l3_bytes: sizes.l3,
            l4_payload: sizes.l4_payload,
            pps,
            l2_mbps: mbps(sizes.frame),
            l3_mbps: mbps(sizes.l3),
            l4_mbps: mbps(sizes.l4_payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn line(options: &str) -> Result<Line, Failure> {
        match Cli::parse_from(format!("shunt line {options}").split_whitespace()).command {
            Command::Line(typed) => Line::resolve(&typed),
            other => panic!("{other:?}"),
        }
    }

    fn names(options: &str) -> Vec<String> {
        line(options).unwrap().rows.into_iter().map(|row| row.encap).collect()
    }

    #[test]
    fn what_is_not_chosen_takes_its_usual_forms() {
        assert_eq!(names("--ip 6 --proto tcp --tags 2"), ["QinQ/IPv6/TCP"]);
        assert_eq!(names("--proto udp"), ["IPv4/UDP", "IPv6/UDP", "VLAN/IPv4/UDP", "VLAN/IPv6/UDP"]);
        assert_eq!(names("--pppoe --ip 4 --tags 1"), ["VLAN/PPPoE/IPv4/UDP", "VLAN/PPPoE/IPv4/TCP"]);
    }

    #[test]
    fn pppoe_has_an_mtu_of_its_own() {
        let rows = line("--pppoe --ip 4 --tags 0 --proto udp").unwrap().rows;
        assert_eq!((rows[0].wire_bytes, rows[0].l3_bytes, rows[0].l4_payload), (1538, 1492, 1464));
        assert_eq!(line("--pppoe --mtu 1500 --ip 4").unwrap().rows[0].wire_bytes, 1546);
    }

    #[test]
    fn rows_that_cannot_be_are_left_out_aloud_and_none_at_all_is_a_failure() {
        let small = line("--frame 64").unwrap();
        let names: Vec<_> = small.rows.iter().map(|row| row.encap.as_str()).collect();
        assert_eq!(names, ["IPv4/UDP", "IPv4/TCP", "VLAN/IPv4/UDP", "VLAN/IPv4/TCP"]);
        assert_eq!(small.left_out.len(), 4);
        for (options, why) in [
            ("--speed 5", "--speed 5: in bit/s, 64k is the least; 5 Mbit/s is 5M"),
            ("--frame 63", "a frame of 63 bytes: Ethernet's shortest has 64, FCS included"),
            ("--mtu 20", "IPv4/UDP: the MTU is 20; IPv4 needs 68 or more"),
            ("--tags 3", "3 VLAN tags: 2 are the most, which is QinQ"),
            ("--tcp-options 13", "--tcp-options: 13 bytes of TCP options: they take 0 to 40, in steps of 4"),
            ("--tcp-options 44", "--tcp-options: 44 bytes of TCP options: they take 0 to 40, in steps of 4"),
        ] {
            let failure = line(options).unwrap_err();
            assert_eq!((failure.code, failure.message.as_str()), (FailureCode::Usage, why));
        }
    }
}
