//! Offered rates, and the times at which packets are due.

use crate::Wrong;
use shunt_wire::{
    line::{LinkSpeed, WIRE_OVERHEAD_BYTES},
    quantity::{self, TypedRate},
};
use std::{fmt, str::FromStr, time::Duration};

/// Upper limit: more than one core can send.
const PPS_MAX: f64 = 1e9;
/// Lower limit: one packet an hour.
const PPS_MIN: f64 = 1.0 / 3600.0;

/// An offered rate. Written as [`quantity::rate`] reads it: `100kpps`, `300M`, `300Mbit` or `300Mbps` (frames with FCS,
/// L2), `1GbitL1` (with preamble and gap), `80%` (of the line); or `max`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As fast as the sender can.
    Max,
    /// Packets per second.
    Pps(f64),
    /// bit/s of frames with FCS.
    L2(f64),
    /// bit/s with preamble and gap.
    L1(f64),
    /// Percent of the line's rate.
    Line(f64),
}

/// The times at which packets are due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Packets per second; None for as fast as the sender can.
    pub pps: Option<f64>,
    /// Number of packets that are sent without an interval between them; bursts are correspondingly further apart. The
    /// last burst may be shorter.
    pub burst: u32,
    /// Number of packets; None for no limit.
    pub packets: Option<u64>,
    /// Duration; None for no limit.
    pub duration: Option<Duration>,
}

impl Rate {
    /// The rate in packets/s of frames with this mean size, FCS included; None for [`Rate::Max`].
    ///
    /// # Errors
    /// Fails if the rate is out of range, or is a share of a link whose speed is unknown.
    pub fn packets_per_second(self, mean_bytes: f64, link: Option<LinkSpeed>) -> Result<Option<f64>, Wrong> {
        let line = |speed: LinkSpeed| speed.frames_per_second(mean_bytes);
        let pps = match self {
            Self::Max => return Ok(None),
            Self::Pps(pps) => pps,
            Self::L2(bits) => bits / (8.0 * mean_bytes),
            Self::L1(bits) => bits / (8.0 * (mean_bytes + f64::from(WIRE_OVERHEAD_BYTES))),
            Self::Line(percent) => match link {
                Some(speed) => line(speed) * percent / 100.0,
                None => {
                    return Err(Wrong::because(format!(
                        "{self} of a link of unknown speed: set --speed, or give the rate in pps or bit"
                    )));
                }
            },
        };
        if let Some(most) = link.map(line).filter(|most| pps > most * 1.000_001) {
            return Err(Wrong::because(format!(
                "{self} is {pps:.0} packets/s: the link carries at most {most:.0} packets/s of this size"
            )));
        }
        if pps > PPS_MAX {
            return Err(Wrong::because(format!(
                "{self} is {:.3} Gpps in frames of {mean_bytes:.0} bytes: at most 1 Gpps can be sent",
                pps / 1e9
            )));
        }
        if pps < PPS_MIN {
            return Err(Wrong::because(format!(
                "{self} is less than one frame of {mean_bytes:.0} bytes an hour: raise the rate; 100M is 100 Mbit/s"
            )));
        }
        Ok(Some(pps))
    }

    /// As [`Self::packets_per_second`], for traffic of this duration.
    ///
    /// # Errors
    /// Also fails if less than one frame is due in this time.
    pub fn packets_per_second_for(
        self,
        mean_bytes: f64,
        link: Option<LinkSpeed>,
        duration: Option<Duration>,
    ) -> Result<Option<f64>, Wrong> {
        let pps = self.packets_per_second(mean_bytes, link)?;
        match pps.zip(duration.filter(|time| !time.is_zero())) {
            Some((pps, time)) if pps * time.as_secs_f64() < 1.0 - 1e-6 => Err(Wrong::because(format!(
                "{self} is less than one frame of {mean_bytes:.0} bytes in {time:?}: raise the rate or the time; \
                 100M is 100 Mbit/s"
            ))),
            _ => Ok(pps),
        }
    }
}

impl Schedule {
    /// Interval between packets in ns / 65536; 0 for no interval. At 10 million packets/s, rounding causes an error of
    /// less than 10^-7.
    pub fn interval(&self) -> u64 {
        self.pps.map_or(0, |pps| ((1e9 * 65536.0 / pps).round() as u64).max(1))
    }

    /// Number of packets that are due in all, if it is known beforehand.
    pub fn offered(&self) -> Option<u64> {
        let due = self.pps.zip(self.duration).map(|(pps, time)| {
            // The first packet is due at once.
            (pps * time.as_secs_f64() - 1e-6).ceil().max(0.0) as u64
        });
        [self.packets, due].into_iter().flatten().min()
    }
}

impl FromStr for Rate {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if text == "max" {
            return Ok(Self::Max);
        }
        let typed = quantity::rate(text).map_err(|why| Wrong::because(format!("{why}, or max")))?;
        let (TypedRate::Bits(number)
        | TypedRate::LineBits(number)
        | TypedRate::Packets(number)
        | TypedRate::Percent(number)) = typed;
        if number <= 0.0 {
            return Err(Wrong::because(format!("`{text}`: a rate is more than 0")));
        }
        match typed {
            TypedRate::Packets(pps) => Ok(Self::Pps(pps)),
            TypedRate::Bits(bits) => Ok(Self::L2(bits)),
            TypedRate::LineBits(bits) => Ok(Self::L1(bits)),
            TypedRate::Percent(percent) if percent <= 100.0 => Ok(Self::Line(percent)),
            TypedRate::Percent(_) => Err(Wrong::because(format!("`{text}`: a link carries 100 % at most"))),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match *self {
            Self::Max => return f.write_str("max"),
            Self::Line(percent) => return write!(f, "{percent}%"),
            Self::Pps(pps) => (pps, "pps"),
            Self::L2(bits) => (bits, "bit"),
            Self::L1(bits) => (bits, "bitL1"),
        };
        let scale = [(1e9, "G"), (1e6, "M"), (1e3, "k")].into_iter().find(|(factor, _)| number >= *factor);
        let (factor, letter) = scale.unwrap_or((1.0, ""));
        write!(f, "{}{letter}{unit}", number / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;

    fn pps(rate: &str, sizes: &str, link: Option<&str>) -> Result<Option<f64>, String> {
        let link = link.map(|speed| speed.parse().unwrap());
        let rate: Rate = rate.parse().map_err(|wrong: Wrong| wrong.to_string())?;
        rate.packets_per_second(sizes.parse::<Sizes>().unwrap().mean_bytes(), link)
            .map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn rates_are_those_of_the_wire() {
        for (rate, sizes, want) in [
            ("1.5Mpps", "64", 1_500_000.0),
            ("512Mbit", "64", 1_000_000.0),
            ("512M", "64", 1_000_000.0),
            ("512Mbps", "64", 1_000_000.0),
            ("672MbitL1", "64", 1_000_000.0),
            ("1GbitL1", "1518", 81_274.382_314),
            ("100%", "64", 14_880_952.380_952),
            ("50%", "imix", 5e9 / 8.0 / (4246.0 / 12.0 + 20.0)),
        ] {
            let got = pps(rate, sizes, Some("10G")).unwrap().unwrap();
            assert!((got / want - 1.0).abs() < 1e-9, "{rate} of {sizes}: {got}");
        }
        assert_eq!(pps("max", "64", None), Ok(None));
    }

    #[test]
    fn impossible_rates_are_refused_with_a_possible_one() {
        for (rate, why) in [
            ("2Mpps", "2Mpps is 2000000 packets/s: the link carries at most 1488095 packets/s of this size"),
            ("0pps", "`0pps`: a rate is more than 0"),
            ("101%", "`101%`: a link carries 100 % at most"),
        ] {
            assert_eq!(pps(rate, "64", Some("1G")).unwrap_err(), why);
        }
        assert!(pps("50%", "64", None).unwrap_err().contains("--speed"));
        assert!(pps("2Gpps", "64", None).unwrap_err().contains("at most 1 Gpps"));
        let slow = pps("1", "1518", None).unwrap_err();
        assert!(slow.starts_with("1bit is less than one frame of 1518 bytes an hour: "), "{slow}");
        for rate in ["", "fast", "1kk", "5k%", "-1pps", "1.2.3pps", "1Mbyte"] {
            assert!(pps(rate, "64", None).unwrap_err().contains("is not a rate"), "{rate}");
        }
    }

    #[test]
    fn a_rate_of_less_than_one_frame_in_the_time_is_refused() {
        let in_time = |rate: &str, millis| {
            let rate: Rate = rate.parse().unwrap();
            let time = Some(Duration::from_millis(millis));
            rate.packets_per_second_for(1518.0, None, time).map_err(|wrong| wrong.to_string())
        };
        let why = "100bit is less than one frame of 1518 bytes in 1s: raise the rate or the time; 100M is 100 Mbit/s";
        assert_eq!(in_time("100", 1000).unwrap_err(), why);
        assert!(in_time("1pps", 999).is_err());
        assert_eq!(in_time("1pps", 1000), Ok(Some(1.0)));
        // Without a time, the traffic lasts until something else ends it.
        assert_eq!("1pps".parse::<Rate>().unwrap().packets_per_second_for(64.0, None, None), Ok(Some(1.0)));
        assert_eq!(in_time("max", 1), Ok(None));
    }

    #[test]
    fn rates_parse_and_print_alike() {
        for text in ["1.5Mpps", "250pps", "300Mbit", "1GbitL1", "12.5%", "max"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_schedule_knows_its_number_of_packets() {
        let schedule =
            Schedule { pps: Some(3e6), burst: 1, packets: None, duration: Some(Duration::from_secs(2)) };
        assert_eq!((schedule.offered(), schedule.interval()), (Some(6_000_000), 21_845_333));
        assert_eq!(Schedule { packets: Some(7), ..schedule }.offered(), Some(7));
        for burst in [7, 4096] {
            assert_eq!(
                Schedule { burst, pps: Some(10.0), ..schedule }.offered(),
                Some(20),
                "bursts of {burst}"
            );
        }
        assert_eq!(Schedule { pps: None, ..schedule }.offered(), None);
        assert_eq!(Schedule { pps: None, ..schedule }.interval(), 0);
    }
}
