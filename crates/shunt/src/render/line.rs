//! The text of `shunt line`.

use super::columns::{Side, align};
use crate::line::{Line, Row};
use shunt_wire::line::TCP_TIMESTAMPS_BYTES;

const SIDES: [Side; 9] = [
    Side::Left,
    Side::Right,
    Side::Right,
    Side::Right,
    Side::Right,
    Side::Right,
    Side::Right,
    Side::Right,
    Side::Right,
];

pub(super) fn describe(line: &Line) -> String {
    let heads =
        ["encap", "frame", "wire", "packets/s", "L3", "payload", "L2 Mbit/s", "L3 Mbit/s", "L4 Mbit/s"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(line.rows.iter().map(fields));
    let mut text = align(&SIDES, &rows);
    if let Some(row) = line.rows.first() {
        text += &format!(
            "At {}bit/s. Bytes: frame with FCS, wire with preamble and gap too, L3 the IP packet, payload of UDP or TCP,\n\
             which is what L4 Mbit/s counts. TCP {}.\n",
            row.speed_bps,
            tcp_options(line.tcp_options_bytes)
        );
    }
    text
}

fn tcp_options(bytes: u32) -> String {
    match bytes {
        0 => format!(
            "without options; timestamps, as Linux sends them, are --tcp-options {TCP_TIMESTAMPS_BYTES}"
        ),
        _ => format!("with {bytes} bytes of options"),
    }
}

fn fields(row: &Row) -> Vec<String> {
    let mut fields = vec![row.encap.clone(), row.frame_bytes.to_string(), row.wire_bytes.to_string()];
    fields.push(format!("{:.1}", row.pps));
    fields.extend([row.l3_bytes.to_string(), row.l4_payload.to_string()]);
    fields.extend([row.l2_mbps, row.l3_mbps, row.l4_mbps].map(|mbps| format!("{mbps:.1}")));
    fields
}
