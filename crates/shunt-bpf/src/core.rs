//! The packet core, compiled for this machine: the C functions that the kernel runs, as Rust functions.

use crate::abi::{Control, Flow, Key4, Key6, Plain};
use crate::{Entry, Key};

/// `struct shunt_packet`: the description of a parsed frame.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packet {
    /// The position after this packet, see [`tcp_position`]; 0 for UDP.
    pub tcp_position: u64,
    tpid_be: [[u8; 2]; 2],
    tci_be: [[u8; 2]; 2],
    /// DSCP in 0xfc, priority and DEI of the outer tag in 0xf00, of the inner tag in 0xf000.
    pub class_bits: u16,
    /// TTL or hop limit.
    pub ttl: u8,
    zero: u8,
    /// Length of the L2 header.
    pub l2_bytes: u16,
    /// Length of the L3 packet.
    pub l3_bytes: u16,
    /// Length of the largest L3 packet on the wire: the packet, or a segment of an aggregate.
    pub wire_bytes: u16,
    /// Number of VLAN tags.
    pub tags: u8,
    /// 4 or 6.
    pub family: u8,
    /// IP protocol number.
    pub l4_proto: u8,
    /// Length of the L4 header.
    pub l4_bytes: u8,
    /// TCP flags; 0 for UDP.
    pub tcp_flags: u8,
}

const _: () = assert!(size_of::<Packet>() == 32);

#[repr(C, align(8))]
struct KeyBytes([u8; 48]);

// SAFETY: the declarations are those of bpf/core/host.c.
unsafe extern "C" {
    fn shunt_host_parse(frame: *mut u8, bytes: u32, ifindex: u32, p: *mut Packet, key: *mut KeyBytes) -> i32;
    fn shunt_host_admit(p: *const Packet) -> i32;
    fn shunt_host_decide(
        f: *const Flow,
        p: *const Packet,
        macs: *const u8,
        c: *const Control,
        jiffies: u64,
    ) -> i32;
    fn shunt_host_rewrite(l3: *mut u8, p: *const Packet, f: *const Flow, to: *const u8, partial: i32) -> u32;
    fn shunt_host_checksum_good(l3: *const u8, end: *const u8, p: *const Packet) -> i32;
    fn shunt_host_frame_bytes(f: *const Flow, want: u32, bytes: u32) -> u32;
    fn shunt_host_sum_change(f: *const Flow, family: u32, has_l4_check: i32) -> u16;
    fn shunt_host_judge_end(flags: u8, seq: u32, own: u64, other: u64) -> i32;
    fn shunt_host_tcp_lags(position: u64, maxack: u32) -> i32;
    fn shunt_host_is_within(then: u32, now: u32, ticks: u32) -> i32;
    fn shunt_host_translate(family: u32, old_ends: *const u8, new_ends: *const u8, f: *mut Flow, to: *mut u8);
}

/// Parses a frame that was received at `ifindex`.
///
/// # Errors
/// A number of [`crate::abi::REASONS`].
pub fn parse(frame: &[u8], ifindex: u32) -> Result<(Packet, Key), usize> {
    let mut packet = Packet::default();
    let mut key = KeyBytes([0; 48]);
    // SAFETY: the core reads only between frame and frame + bytes and writes only to the two structures.
    let why = unsafe {
        shunt_host_parse(
            frame.as_ptr().cast_mut(),
            frame.len() as u32,
            ifindex,
            &raw mut packet,
            &raw mut key,
        )
    };
    if why != 0 {
        return Err(why as usize);
    }
    let key = match packet.family {
        4 => Key4::from_bytes(&key.0).map(Key::V4),
        _ => Key6::from_bytes(&key.0).map(Key::V6),
    };
    key.map(|key| (packet, key)).ok_or(0)
}

/// Whether any flow may carry this packet: 0, or a number of [`crate::abi::REASONS`].
pub fn admit(packet: &Packet) -> usize {
    // SAFETY: reads one structure.
    (unsafe { shunt_host_admit(packet) }) as usize
}

/// Whether a flow's action may be applied to a packet now: 0, or a number of [`crate::abi::REASONS`]. `macs` are the
/// destination and source MAC of the frame, `jiffies` is the 64-bit clock.
pub fn decide(flow: &Flow, packet: &Packet, macs: [u8; 12], control: &Control, jiffies: u64) -> usize {
    // The core reads eight bytes from each MAC, since an EtherType follows.
    #[repr(align(8))]
    struct Header([u8; 14]);
    let mut header = Header([0; 14]);
    header.0[..12].copy_from_slice(&macs);
    // SAFETY: reads the structures and fourteen bytes.
    (unsafe { shunt_host_decide(flow, packet, header.0.as_ptr(), control, jiffies) }) as usize
}

/// Applies a flow's action to a frame. `packet` must have been parsed from the frame.
pub fn rewrite(frame: &[u8], packet: &Packet, entry: &Entry, partial: bool) -> Vec<u8> {
    let l2 = usize::from(packet.l2_bytes);
    let want = l2 + usize::from(packet.l3_bytes);
    // SAFETY: reads one structure.
    let kept = unsafe { shunt_host_frame_bytes(&raw const entry.flow, want as u32, frame.len() as u32) };
    let l3 = &frame[l2..kept as usize];
    let room = 2 + crate::abi::L2_MAX;
    let mut buffer = vec![0; room];
    buffer.extend_from_slice(l3);
    // SAFETY: there is room for any L2 header before `l3`, and `packet` vouches for the headers after it.
    let taken = unsafe {
        shunt_host_rewrite(
            buffer.as_mut_ptr().add(room),
            packet,
            &entry.flow,
            entry.to.as_ptr(),
            i32::from(partial),
        )
    } as usize;
    buffer.split_off(room - taken)
}

/// Whether the L4 checksum of a frame is correct. None if the packet is too long or truncated. `packet` must have been
/// parsed from the frame. A UDP checksum of zero, which means none, is treated like any other value.
pub fn checksum_good(frame: &[u8], packet: &Packet) -> Option<bool> {
    let bytes = frame.as_ptr_range();
    let l3 = frame[usize::from(packet.l2_bytes)..].as_ptr();
    // SAFETY: reads between `l3` and the end; `packet` vouches for the headers.
    match unsafe { shunt_host_checksum_good(l3, bytes.end, packet) } {
        -1 => None,
        good => Some(good == 1),
    }
}

/// The change of the ones' complement sum over the L3 packet (CHECKSUM_COMPLETE) that an action causes.
pub fn sum_change(flow: &Flow, family: u8, has_l4_check: bool) -> u16 {
    // SAFETY: reads one structure.
    unsafe { shunt_host_sum_change(flow, family.into(), has_l4_check.into()) }
}

/// How a FIN or RST fits its connection: `enum shunt_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At least one direction has not been seen.
    Unknown,
    /// The receiver expects this sequence number.
    Exact,
    /// Within the window.
    InWindow,
    /// Outside the window.
    Blind,
}

/// The TCP position that a flow stores: the sequence number after a packet's data, and the packet's acknowledgement.
pub fn tcp_position(end: u32, acknowledgement: u32) -> u64 {
    u64::from(acknowledgement.to_be()) << 32 | u64::from(end)
}

/// How a FIN or RST fits its connection. `own` is the last position in its own direction, `other` that of the other
/// direction.
pub fn judge_end(flags: u8, sequence: u32, own: u64, other: u64) -> End {
    // SAFETY: numbers only.
    match unsafe { shunt_host_judge_end(flags, sequence, own, other) } {
        1 => End::Exact,
        2 => End::InWindow,
        3 => End::Blind,
        _ => End::Unknown,
    }
}

/// Whether conntrack, with the acknowledgement `maxack`, lags too far behind a packet at `position`.
pub fn tcp_lags(position: u64, maxack: u32) -> bool {
    // SAFETY: numbers only.
    (unsafe { shunt_host_tcp_lags(position, maxack) }) != 0
}

/// Whether the time `then` was less than `ticks` ago. Ticks wrap.
pub fn is_within(then: u32, now: u32, ticks: u32) -> bool {
    // SAFETY: numbers only.
    (unsafe { shunt_host_is_within(then, now, ticks) }) != 0
}

/// Both addresses followed by both ports, as on the wire: 12 bytes for IPv4, 36 for IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// IPv4.
    V4([u8; 12]),
    /// IPv6.
    V6([u8; 36]),
}

/// Fills the translation part of a flow. Does nothing if the families differ.
pub fn translate(old: &Ends, new: &Ends, entry: &mut Entry) {
    let (family, old, new) = match (old, new) {
        (Ends::V4(old), Ends::V4(new)) => (4, old.as_ptr(), new.as_ptr()),
        (Ends::V6(old), Ends::V6(new)) => (6, old.as_ptr(), new.as_ptr()),
        _ => return,
    };
    // SAFETY: both have the number of bytes that the family needs. They are read by half-words, which x86 and ARM allow
    // at any address.
    unsafe { shunt_host_translate(family, old, new, &raw mut entry.flow, entry.to.as_mut_ptr()) }
}

#[cfg(test)]
mod tests;
