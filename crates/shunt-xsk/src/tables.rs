//! The flow tables in memory, and single batches through them.

use crate::{
    Error,
    abi::{BATCH, FRAME_ROOM, Frame, Memory},
};
use shunt_bpf::{
    Entry, Key, Size,
    abi::{Cold, Control, Flow, Plain, WAYS},
};
use std::{
    ffi::c_void,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The C code has one set of tables per process.
static ONLY: Mutex<()> = Mutex::new(());

/// Home CPU of flows that only the engine forwards.
pub(crate) const ENGINE_CPU: u16 = 0xffff;

// SAFETY: the declarations are those of bpf/external/engine.h.
unsafe extern "C" {
    fn shunt_engine_control() -> *mut Control;
    fn shunt_engine_tables(memory: *const Memory);
    fn shunt_engine_insert(
        family: u32,
        key: *const c_void,
        flow: *const Flow,
        to: *const u8,
        now: u32,
    ) -> i32;
    fn shunt_engine_find(family: u32, key: *const c_void) -> *mut Flow;
    fn shunt_engine_batch(frames: *mut Frame, count: u32, reachable: u64, jiffies: u64);
}

#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
struct Line([u8; 64]);

fn lines(bytes: usize) -> Vec<Line> {
    vec![Line([0; 64]); bytes.div_ceil(64)]
}

/// The flow tables of this process. Another thread that makes some waits until these are dropped.
#[derive(Debug)]
pub struct Tables {
    index: [Vec<Line>; 2],
    entries4: Vec<Line>,
    entries6: Vec<Line>,
    cold: [Vec<Cold>; 2],
    _only: MutexGuard<'static, ()>,
}

/// What became of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Rewritten, to be sent by the port in this slot.
    Forwarded(u8, Vec<u8>),
    /// Unchanged; Linux gets the frame, for the reason with this number.
    Slow(usize),
}

impl Tables {
    /// Empty tables, and a control block of which only what concerns the tables is set.
    pub fn new(size: Size) -> Self {
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        let (buckets, entries) = (size.buckets(), size.max_flows);
        let mut tables = Self {
            index: [(); 2].map(|()| lines(buckets as usize * WAYS * 4)),
            entries4: lines(entries as usize * 128),
            entries6: lines(entries as usize * 192),
            cold: [(); 2].map(|()| vec![Cold::default(); entries as usize]),
            _only: only,
        };
        let memory = Memory {
            index: [0, 1].map(|family| tables.index[family].as_mut_ptr().cast()),
            entries4: tables.entries4.as_mut_ptr().cast(),
            entries6: tables.entries6.as_mut_ptr().cast(),
            cold: [0, 1].map(|family| tables.cold[family].as_mut_ptr()),
            buckets,
            entries,
        };
        // SAFETY: the memory has the sizes that it says, and outlives its use: `tables` owns it, its vectors are never
        // touched again, and nobody else uses the C code while `_only` is held.
        unsafe { shunt_engine_tables(&raw const memory) };
        let control = Control {
            abi: shunt_bpf::abi::ABI_VERSION,
            bucket_mask: buckets - 1,
            max_flows: entries,
            seed: size.seed,
            ..Control::default()
        };
        tables.set_control(control);
        tables
    }

    /// The control block.
    pub fn control(&self) -> Control {
        // SAFETY: the control block is a static variable; only the owner of the lock uses it.
        unsafe { *shunt_engine_control() }
    }

    /// Changes the control block. What concerns the size of the tables must stay.
    pub fn change_control(&mut self, change: impl FnOnce(&mut Control)) {
        let mut control = self.control();
        let size = (control.bucket_mask, control.max_flows, control.seed);
        change(&mut control);
        (control.bucket_mask, control.max_flows, control.seed) = size;
        self.set_control(control);
    }

    fn set_control(&mut self, control: Control) {
        // SAFETY: as in `control`.
        unsafe { *shunt_engine_control() = control };
    }

    /// Inserts a flow, or replaces its action at once. Its packets are counted by the engine alone.
    ///
    /// # Errors
    /// [`Error::Full`]
    pub fn put(&mut self, key: &Key, entry: &Entry) -> Result<(), Error> {
        let flow = Flow { home_cpu: ENGINE_CPU, ..entry.flow };
        let (family, bytes) = key_bytes(key);
        // SAFETY: the key has the size that its family needs, and `to` has 32 bytes.
        let inserted = unsafe {
            let found = shunt_engine_find(family, bytes.as_ptr().cast());
            if let Some(found) = found.as_mut() {
                // The new addresses follow the flow in the entry.
                let to = std::ptr::from_mut(found).add(1).cast::<u8>();
                to.copy_from_nonoverlapping(entry.to.as_ptr(), if family == 4 { 8 } else { 32 });
                *found = flow;
                return Ok(());
            }
            shunt_engine_insert(family, bytes.as_ptr().cast(), &raw const flow, entry.to.as_ptr(), 0)
        };
        if inserted == 0 { Ok(()) } else { Err(Error::Full) }
    }

    /// The flow of a key.
    pub fn flow(&self, key: &Key) -> Option<Flow> {
        let (family, bytes) = key_bytes(key);
        // SAFETY: the key has the size that its family needs; a flow stays in place while the tables are borrowed.
        unsafe { shunt_engine_find(family, bytes.as_ptr().cast()).as_ref().copied() }
    }

    /// Forwards frames that were received at `ifindex`, if their flows leave through one of the slots in `reachable`.
    pub fn forward(&mut self, frames: &[&[u8]], ifindex: u32, reachable: u64, jiffies: u64) -> Vec<Outcome> {
        let mut done = Vec::with_capacity(frames.len());
        for batch in frames.chunks(BATCH) {
            let mut buffers: Vec<Vec<u8>> = batch
                .iter()
                .map(|frame| {
                    let mut buffer = vec![0; 2 + FRAME_ROOM];
                    buffer.extend_from_slice(frame);
                    buffer
                })
                .collect();
            let mut described: Vec<Frame> = buffers
                .iter_mut()
                .map(|buffer| Frame { ifindex, ..Frame::over(&mut buffer[2 + FRAME_ROOM..]) })
                .collect();
            // SAFETY: the frames are within their buffers, with room before them.
            unsafe {
                shunt_engine_batch(described.as_mut_ptr(), described.len() as u32, reachable, jiffies);
            }
            for (frame, buffer) in described.iter().zip(&buffers) {
                let begin = frame.data as usize - buffer.as_ptr() as usize;
                let end = frame.data_end as usize - buffer.as_ptr() as usize;
                done.push(match frame.why {
                    0 => Outcome::Forwarded(frame.out_slot, buffer[begin..end].to_vec()),
                    why => Outcome::Slow(why.into()),
                });
            }
        }
        done
    }
}

impl Frame {
    fn over(bytes: &mut [u8]) -> Self {
        let range = bytes.as_mut_ptr_range();
        Self {
            data: range.start,
            data_end: range.end,
            ifindex: 0,
            l3_bytes: 0,
            mark: 0,
            priority: 0,
            why: 0,
            out_slot: 0,
            dscp: 0,
        }
    }
}

fn key_bytes(key: &Key) -> (u32, &[u8]) {
    match key {
        Key::V4(key) => (4, key.bytes()),
        Key::V6(key) => (6, key.bytes()),
    }
}

#[cfg(test)]
mod tests;
