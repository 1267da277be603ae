//! The answer of `shunt line`, and its text.

use crate::render::{Answer, Format, columns::align, json};
use serde::Serialize;
use shunt_wire::line::{Encapsulation, Impossible, LinkSpeed, Sizes, TCP_TIMESTAMPS_BYTES};

/// What a link carries with packets of one size.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) rows: Vec<Row>,
    pub(crate) tcp_options_bytes: u32,
    /// The encapsulations that are impossible with this size, and why.
    pub(crate) left_out: Vec<Impossible>,
}

/// What a link carries with one encapsulation. The bit/s of L2 and L3 count whole frames and packets; those of L4 count
/// the payload of UDP or TCP.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) encap: String,
    pub(crate) speed_bps: LinkSpeed,
    /// With FCS.
    pub(crate) frame_bytes: u32,
    /// With FCS, preamble and inter-frame gap.
    pub(crate) wire_bytes: u32,
    pub(crate) l3_bytes: u32,
    pub(crate) l4_payload: u32,
    pub(crate) pps: f64,
    pub(crate) l2_mbps: f64,
    pub(crate) l3_mbps: f64,
    pub(crate) l4_mbps: f64,
}

impl Row {
    pub(crate) fn new(encapsulation: Encapsulation, sizes: Sizes, speed: LinkSpeed) -> Self {
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

/// Below this speed, rates are shown in kbit/s: one decimal of Mbit/s would hardly tell them apart.
const MBIT_FROM_BPS: u64 = 10_000_000;

impl Answer for Line {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.rows)
    }
}

fn describe(line: &Line) -> String {
    let Some(speed) = line.rows.first().map(|row| row.speed_bps) else { return String::new() };
    let (unit, of_mbps) =
        if speed.bits_per_second() < MBIT_FROM_BPS { ("kbit/s", 1000.0) } else { ("Mbit/s", 1.0) };
    let mut heads = ["encap", "frame", "wire", "packets/s", "L3", "payload"].map(str::to_owned).to_vec();
    heads.extend(["L2", "L3", "L4"].map(|layer| format!("{layer} {unit}")));
    let mut rows = vec![heads];
    rows.extend(line.rows.iter().map(|row| fields(row, of_mbps)));
    align("<>", &rows)
        + &format!(
            "At {speed}bit/s. Bytes: frame includes the FCS; wire also includes preamble and gap; L3 is the IP packet; payload is that of\n\
             UDP or TCP, which L4 {unit} counts. TCP {}.\n",
            tcp_options(line.tcp_options_bytes)
        )
}

fn tcp_options(bytes: u32) -> String {
    match bytes {
        0 => format!(
            "without options; for timestamps, which Linux sends by default, use --tcp-options {TCP_TIMESTAMPS_BYTES}"
        ),
        _ => format!("with {bytes} bytes of options"),
    }
}

fn fields(row: &Row, of_mbps: f64) -> Vec<String> {
    let mut fields = vec![row.encap.clone(), row.frame_bytes.to_string(), row.wire_bytes.to_string()];
    fields.push(format!("{:.1}", row.pps));
    fields.extend([row.l3_bytes.to_string(), row.l4_payload.to_string()]);
    fields.extend([row.l2_mbps, row.l3_mbps, row.l4_mbps].map(|mbps| format!("{:.1}", mbps * of_mbps)));
    fields
}

#[cfg(test)]
mod tests {

    use crate::{
        commands::{arguments::parse_args, line::resolve},
        golden::{JSON, TEXT, assert_golden},
    };

    #[test]
    fn texts_match_their_golden_files() {
        let line = |speed: &str| resolve(&parse_args(&format!("--speed {speed}")).unwrap()).unwrap();
        assert_golden("golden/line.txt", &line("1G"), TEXT);
        assert_golden("golden/line-slow.txt", &line("64k"), TEXT);
        assert_golden("golden/line.json", &line("1G"), JSON);
    }
}
