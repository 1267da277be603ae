//! The packet core, compiled for this machine: what the kernel runs, callable.

use crate::abi::{Control, Flow, Key4, Key6, Plain};
use crate::{Entry, Key};

/// `struct shunt_packet`: what a frame was parsed as.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packet {
    tpid_be: [[u8; 2]; 2],
    tci_be: [[u8; 2]; 2],
    /// The L2 header's length.
    pub l2_bytes: u16,
    /// The L3 packet's length.
    pub l3_bytes: u16,
    /// The largest L3 packet it will be on the wire.
    pub wire_bytes: u16,
    /// DSCP and VLAN priorities.
    pub class_bits: u16,
    /// How many VLAN tags.
    pub tags: u8,
    /// 4 or 6.
    pub family: u8,
    /// Protocol number.
    pub l4_proto: u8,
    /// The L4 header's length.
    pub l4_bytes: u8,
    /// TCP flags.
    pub tcp_flags: u8,
    /// TTL or hop limit.
    pub ttl: u8,
}

const _: () = assert!(size_of::<Packet>() == 22);

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
        now: u32,
    ) -> i32;
    fn shunt_host_rewrite(l3: *mut u8, p: *const Packet, f: *const Flow, to: *const u8, partial: i32) -> u32;
    fn shunt_host_frame_bytes(f: *const Flow, want: u32, bytes: u32) -> u32;
    fn shunt_host_sum_change(f: *const Flow, family: u32, has_l4_check: i32) -> u16;
    fn shunt_host_translate(family: u32, old_ends: *const u8, new_ends: *const u8, f: *mut Flow, to: *mut u8);
}

/// Parses a frame as one that came in at `ifindex`. The error is a number of [`crate::abi::REASONS`].
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
        4 => Key4::of(&key.0).map(Key::V4),
        _ => Key6::of(&key.0).map(Key::V6),
    };
    key.map(|key| (packet, key)).ok_or(0)
}

/// Whether a flow may carry such a packet at all; 0, or the reason why not.
pub fn admit(packet: &Packet) -> usize {
    // SAFETY: reads one structure.
    (unsafe { shunt_host_admit(packet) }) as usize
}

/// Whether a flow's action may be used for a packet now; 0, or the reason why not.
/// `macs` are those of its frame, destination and source.
pub fn decide(flow: &Flow, packet: &Packet, macs: [u8; 12], control: &Control, now_ticks: u32) -> usize {
    // Half-words are read from the MACs.
    #[repr(align(2))]
    struct Aligned([u8; 12]);
    let macs = Aligned(macs);
    // SAFETY: reads the structures and twelve bytes.
    (unsafe { shunt_host_decide(flow, packet, macs.0.as_ptr(), control, now_ticks) }) as usize
}

/// What a frame of a flow becomes. The frame must be what `packet` was parsed from.
pub fn rewrite(frame: &[u8], packet: &Packet, entry: &Entry, partial: bool) -> Vec<u8> {
    let l2 = usize::from(packet.l2_bytes);
    let want = l2 + usize::from(packet.l3_bytes);
    // SAFETY: reads one structure.
    let kept = unsafe { shunt_host_frame_bytes(&raw const entry.flow, want as u32, frame.len() as u32) };
    let l3 = &frame[l2..kept as usize];
    let room = 2 + crate::abi::L2_MAX;
    let mut buffer = vec![0; room];
    buffer.extend_from_slice(l3);
    // SAFETY: before `l3` there is room for any L2 header, and behind it are the headers that `packet` vouches for.
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

/// By how much an action changes the ones' complement sum over an L3 packet.
pub fn sum_change(flow: &Flow, family: u8, has_l4_check: bool) -> u16 {
    // SAFETY: reads one structure.
    unsafe { shunt_host_sum_change(flow, family.into(), has_l4_check.into()) }
}

/// Both addresses and then both ports, as on the wire: 12 bytes for IPv4, 36 for IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// IPv4.
    V4([u8; 12]),
    /// IPv6.
    V6([u8; 36]),
}

/// Fills the translation of a flow. The two must be of one family; otherwise nothing is done.
pub fn translate(old: &Ends, new: &Ends, entry: &mut Entry) {
    let (family, old, new) = match (old, new) {
        (Ends::V4(old), Ends::V4(new)) => (4, old.as_ptr(), new.as_ptr()),
        (Ends::V6(old), Ends::V6(new)) => (6, old.as_ptr(), new.as_ptr()),
        _ => return,
    };
    // SAFETY: both have the bytes that the family calls for, and are read by half-words, which x86 and ARM allow
    // anywhere.
    unsafe { shunt_host_translate(family, old, new, &raw mut entry.flow, entry.to.as_mut_ptr()) }
}

#[cfg(test)]
mod tests;
