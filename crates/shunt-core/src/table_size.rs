//! How many flows the table has room for, if the configuration does not say.

/// Bytes of memory for each entry: one entry of both families takes 384 bytes, so the tables take at most an eighth of
/// the machine's memory.
const MEMORY_PER_FLOW: u64 = 8 * 384;
/// Entries for 131,072 connections of two directions each, if there is memory for them.
const WANTED: u32 = 262_144;
const FEWEST: u32 = 16_384;
/// The systemd unit gives the daemon memory for this many flows, even while they are listed.
const MOST: u32 = 786_432;

/// The number of flows of each address family: room for both directions of all connections that conntrack tracks, and
/// for 131,072 connections at least, if that takes no more than an eighth of the memory. `conntrack_max` is the sysctl
/// nf_conntrack_max; None if conntrack is not loaded.
pub fn flow_table_size(memory_bytes: u64, conntrack_max: Option<u32>) -> u32 {
    let wanted = conntrack_max.map_or(WANTED, |most| most.saturating_mul(2).max(WANTED));
    let room = u32::try_from(memory_bytes / MEMORY_PER_FLOW).unwrap_or(u32::MAX);
    wanted.min(room).clamp(FEWEST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_router_with_a_gibibyte_has_room_for_131072_connections() {
        // The kernel keeps some of it for itself.
        for memory in [990 * MIB, 1024 * MIB] {
            assert_eq!(flow_table_size(memory, Some(65_536)), 262_144);
            assert_eq!(flow_table_size(memory, None), 262_144);
        }
    }

    #[test]
    fn the_table_follows_conntrack_as_far_as_memory_allows() {
        assert_eq!(flow_table_size(8192 * MIB, Some(262_144)), 524_288);
        assert_eq!(flow_table_size(8192 * MIB, Some(10_000_000)), 786_432);
        assert_eq!(flow_table_size(2048 * MIB, Some(10_000_000)), 699_050);
        assert_eq!(flow_table_size(256 * MIB, Some(65_536)), 87_381);
        assert_eq!(flow_table_size(32 * MIB, Some(4096)), 16_384);
        assert_eq!(flow_table_size(u64::MAX, Some(u32::MAX)), 786_432);
    }
}
