use super::*;
use shunt_core::{Connection, Proto};

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUTS: ConntrackTimeouts = ConntrackTimeouts {
    udp: Duration::from_secs(30),
    udp_stream: Duration::from_secs(120),
    tcp_established: Duration::from_secs(1000),
    tcp_unacknowledged: Duration::from_secs(300),
    tcp_close: Duration::from_secs(10),
    tcp_time_wait: Duration::from_secs(120),
    tcp_syn_sent: Duration::from_secs(120),
    tcp_be_liberal: false,
};
const FIN_WAIT: u8 = 4;
const SYN_SENT: u8 = 1;

fn correction(kind: CorrectionKind) -> Correction {
    let [src, dst] = ["192.168.1.2:4000", "198.18.0.2:80"].map(|addr| addr.parse().unwrap());
    let direction = Connection { proto: Proto::Tcp, src, dst };
    Correction { of: TrackedDirection { direction, reply: true }, kind, idle_s: 100 }
}

fn changed(kind: CorrectionKind, state: u8, left: Duration, ended: bool) -> Option<Change> {
    change(&correction(kind), Standing { state, left }, ended, TIMEOUTS)
}

#[test]
fn an_entry_is_corrected_only_if_conntrack_misjudged_the_packet() {
    use CorrectionKind::{Blind, Ended, Lags, Near};
    let reopened = Some(Change::Reopen { left: 900 * SECOND });
    for (kind, state, left, expected) in [
        (Lags, ESTABLISHED, 1000, Some(Change::ForgetMaxack { reply: true })),
        (Ended, ESTABLISHED, 10, Some(Change::Close)),
        // Conntrack has not seen the RST, or has seen a packet after it.
        (Ended, ESTABLISHED, 1000, None),
        (Ended, CLOSE, 10, None),
        (Ended, FIN_WAIT, 120, None),
        (Near, ESTABLISHED, 10, None),
        (Near, CLOSE, 10, Some(Change::Reopen { left: 300 * SECOND })),
        (Blind, ESTABLISHED, 10, reopened),
        (Blind, ESTABLISHED, 11, None),
        (Blind, FIN_WAIT, 120, reopened),
        (Blind, CLOSE, 10, reopened),
        // A new connection with the same tuple.
        (Blind, SYN_SENT, 5, None),
    ] {
        assert_eq!(changed(kind, state, left * SECOND, false), expected, "{kind:?} {state} {left}");
    }
}

#[test]
fn a_connection_that_has_ended_meanwhile_stays_closed() {
    for kind in [CorrectionKind::Near, CorrectionKind::Blind] {
        assert_eq!(changed(kind, CLOSE, 10 * SECOND, true), None);
        assert_eq!(changed(kind, FIN_WAIT, 120 * SECOND, true), None);
    }
}

#[test]
fn a_correction_never_shortens_the_timeout() {
    let idle = Correction { idle_s: 5000, ..correction(CorrectionKind::Blind) };
    let standing = Standing { state: FIN_WAIT, left: 100 * SECOND };
    assert_eq!(change(&idle, standing, false, TIMEOUTS), Some(Change::Reopen { left: 100 * SECOND }));
}

/// The kernel's nlattr_to_tcp() reads a value and a mask for each direction.
#[test]
fn messages_have_only_the_attributes_that_are_to_change() {
    let attributes = |change| {
        let mut batch = Batch::default();
        batch.message(CHANGE, 0, 1, &[2, 0, 0, 0]);
        put_change(&mut batch, change);
        let bytes = batch.bytes().to_vec();
        let attrs = Attrs::after(&bytes, 16 + HEADER_BYTES);
        let tcp = attrs.nested(CTA_PROTOINFO).nested(CTA_PROTOINFO_TCP);
        let own = |kind| tcp.get(kind).map(<[u8]>::to_vec);
        (
            attrs.be32(CTA_TIMEOUT),
            own(CTA_PROTOINFO_TCP_STATE),
            own(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL),
            own(CTA_PROTOINFO_TCP_FLAGS_REPLY),
        )
    };
    let forget = Some(vec![0, MAXACK_SET]);
    assert_eq!(attributes(Change::ForgetMaxack { reply: false }), (None, None, forget.clone(), None));
    assert_eq!(attributes(Change::ForgetMaxack { reply: true }), (None, None, None, forget));
    assert_eq!(attributes(Change::Close), (None, Some(vec![CLOSE]), None, None));
    let flags = Some(vec![BE_LIBERAL, BE_LIBERAL | CLOSE_INIT]);
    assert_eq!(
        attributes(Change::Reopen { left: 900 * SECOND }),
        (Some(900), Some(vec![ESTABLISHED]), flags.clone(), flags)
    );
}
