//! Whether a FIN or RST fits its connection.

use super::*;

const MIB: u32 = 1 << 20;
const GIB: u32 = 1 << 30;
/// Initial sequence numbers: far from wrapping, across 2^31, and across 2^32 at once or within the window.
const BASES: [u32; 5] = [5000, 0x7fff_ff00, 0xffff_ffff, 0xffff_fff0, 0xffff_ffff - MIB / 2];

/// Judges a FIN or RST whose sequence number is `ahead` of the receiver's last acknowledgement `base`. The sender's
/// last packet ended `own` bytes ahead of `base`.
fn judged(base: u32, flags: u8, ahead: u32, own: u32) -> End {
    let at = |offset: u32| base.wrapping_add(offset);
    judge_end(flags, at(ahead), tcp_position(at(own), 1), tcp_position(77, base))
}

#[test]
fn a_reset_is_judged_by_its_distance_from_the_acknowledged_data() {
    let back = |bytes: u32| bytes.wrapping_neg();
    for base in BASES {
        // All data was acknowledged.
        for (ahead, wanted) in [
            (0, End::Exact),
            (1, End::InWindow),
            (MIB, End::InWindow),
            (MIB + 1, End::Blind),
            (2 * GIB, End::Blind),
            (3 * GIB, End::Blind),
            (back(1), End::Blind),
            (back(MIB), End::Blind),
        ] {
            assert_eq!(judged(base, Tcp::RST, ahead, 0), wanted, "{base:x} {ahead:x}");
            assert_eq!(judged(base, Tcp::RST | Tcp::ACK, ahead, back(1000)), wanted, "{base:x} {ahead:x}");
        }
        // 8 MiB are in flight.
        for (ahead, wanted) in [
            (0, End::Exact),
            (8 * MIB, End::Exact),
            (8 * MIB + 1, End::InWindow),
            (4 * MIB, End::InWindow),
            (9 * MIB, End::InWindow),
            (9 * MIB + 1, End::Blind),
            (back(1), End::Blind),
        ] {
            assert_eq!(judged(base, Tcp::RST, ahead, 8 * MIB), wanted, "{base:x} {ahead:x}");
        }
    }
}

#[test]
fn a_fin_retransmitted_with_old_data_is_in_window() {
    for base in BASES {
        for (behind, wanted) in [(1000, End::InWindow), (MIB, End::InWindow), (MIB + 1, End::Blind)] {
            assert_eq!(judged(base, Tcp::FIN | Tcp::ACK, 0_u32.wrapping_sub(behind), 0), wanted);
        }
        assert_eq!(judged(base, Tcp::FIN | Tcp::ACK, 0, 0), End::Exact);
    }
}

/// A forger of packets in one direction can only move the last sequence number of that direction.
#[test]
fn a_forged_packet_does_not_make_a_later_blind_reset_fit() {
    for base in BASES {
        for far in [65 * MIB, GIB, 2 * GIB, 3 * GIB] {
            assert_eq!(judged(base, Tcp::RST, far, far), End::Blind, "{base:x} {far:x}");
            assert_eq!(judged(base, Tcp::RST, 0, far), End::Exact);
        }
    }
}

#[test]
fn an_end_is_unknown_until_both_directions_were_seen() {
    let seen = tcp_position(1, 2);
    assert_eq!(judge_end(Tcp::RST, 1, 0, seen), End::Unknown);
    assert_eq!(judge_end(Tcp::RST, 1, seen, 0), End::Unknown);
}

#[test]
fn conntrack_lags_if_it_is_far_behind_or_ahead_by_more_than_a_window() {
    for base in BASES {
        let lags = |ack: u32| tcp_lags(tcp_position(9, base.wrapping_add(ack)), base);
        for (ack, wanted) in [
            (0, false),
            (MIB, false),
            (256 * MIB - 1, false),
            (256 * MIB, true),
            (2 * GIB, true),
            (3 * GIB, true),
            (3 * GIB + 1, false),
        ] {
            assert_eq!(lags(ack), wanted, "{base:x} {ack:x}");
        }
        // A reordered packet.
        assert!(!lags(0_u32.wrapping_sub(MIB)));
    }
}
