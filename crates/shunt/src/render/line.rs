//! The text of `shunt line`.

use super::columns::align;
use crate::line::{Line, Row};
use shunt_wire::line::TCP_TIMESTAMPS_BYTES;

/// Slower links have their rates in kbit/s, where a decimal of Mbit/s would hardly tell them apart.
const MBIT_FROM_BPS: u64 = 10_000_000;

pub(super) fn describe(line: &Line) -> String {
    let Some(speed) = line.rows.first().map(|row| row.speed_bps) else { return String::new() };
    let (unit, of_mbps) =
        if speed.bits_per_second() < MBIT_FROM_BPS { ("kbit/s", 1000.0) } else { ("Mbit/s", 1.0) };
    let mut heads = ["encap", "frame", "wire", "packets/s", "L3", "payload"].map(str::to_owned).to_vec();
    heads.extend(["L2", "L3", "L4"].map(|layer| format!("{layer} {unit}")));
    let mut rows = vec![heads];
    rows.extend(line.rows.iter().map(|row| fields(row, of_mbps)));
    align("<>", &rows)
        + &format!(
            "At {speed}bit/s. Bytes: frame with FCS, wire with preamble and gap too, L3 the IP packet, payload of UDP or TCP,\n\
             which is what L4 {unit} counts. TCP {}.\n",
            tcp_options(line.tcp_options_bytes)
        )
}

fn tcp_options(bytes: u32) -> String {
    match bytes {
        0 => format!(
            "without options; timestamps, as Linux sends them, are --tcp-options {TCP_TIMESTAMPS_BYTES}"
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
