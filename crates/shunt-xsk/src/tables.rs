//! The flow tables in memory, and single batches through them.

use crate::{
    Error,
    abi::{BATCH, FRAME_ROOM, Frame, Memory},
};
use shunt_bpf::{
    EngineSide, Entry, Key, Size,
    abi::{Cold, Control, ENGINE_CPU, Flow, Plain, WAYS},
};
use std::{
    ffi::c_void,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The C code has one set of tables per process.
static ONLY: Mutex<()> = Mutex::new(());

// SAFETY: the declarations are those of bpf/external/engine.h.
unsafe extern "C" {
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
pub struct Tables {
    control: *mut Control,
    owner: Owner,
    _only: MutexGuard<'static, ()>,
}

/// The owner of the tables' memory.
enum Owner {
    Own {
        _memory: Box<Own>,
    },
    /// It is that of the kernel's programs.
    Kernel(Box<EngineSide>),
}

struct Own {
    control: Box<Control>,
    index: [Vec<Line>; 2],
    entries: [Vec<Line>; 2],
    cold: [Vec<Cold>; 2],
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
        let control = Control {
            abi: shunt_bpf::abi::ABI_VERSION,
            bucket_mask: buckets - 1,
            max_flows: entries,
            seed: size.seed,
            ..Control::default()
        };
        let mut own = Own {
            control: Box::new(control),
            index: [(); 2].map(|()| lines(buckets as usize * WAYS * 4)),
            entries: [128, 192].map(|bytes| lines(entries as usize * bytes)),
            cold: [(); 2].map(|()| vec![Cold::default(); entries as usize]),
        };
        let memory = Memory {
            control: &raw mut *own.control,
            index: [0, 1].map(|family| own.index[family].as_mut_ptr().cast()),
            entries4: own.entries[0].as_mut_ptr().cast(),
            entries6: own.entries[1].as_mut_ptr().cast(),
            cold: [0, 1].map(|family| own.cold[family].as_mut_ptr()),
            buckets,
            entries,
        };
        Self::over(&memory, Owner::Own { _memory: Box::new(own) }, only)
    }

    /// The tables of the kernel's programs.
    pub(crate) fn of_kernel(side: EngineSide, size: Size) -> Self {
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        let mapped = side.tables();
        let memory = Memory {
            control: mapped.control,
            index: mapped.index,
            entries4: mapped.entries[0],
            entries6: mapped.entries[1],
            cold: mapped.cold,
            buckets: size.buckets(),
            entries: size.max_flows,
        };
        Self::over(&memory, Owner::Kernel(Box::new(side)), only)
    }

    fn over(memory: &Memory, owner: Owner, only: MutexGuard<'static, ()>) -> Self {
        // SAFETY: the memory has the sizes that it says, and outlives its use: `owner` has it, does not move it, and
        // nobody else uses the C code while `only` is held.
        unsafe { shunt_engine_tables(std::ptr::from_ref(memory)) };
        Self { control: memory.control, owner, _only: only }
    }

    /// The maps and programs in the kernel, if the tables are those of the kernel.
    pub(crate) fn side(&self) -> Option<&EngineSide> {
        match &self.owner {
            Owner::Own { .. } => None,
            Owner::Kernel(side) => Some(side),
        }
    }

    /// The control block.
    pub fn control(&self) -> Control {
        // SAFETY: the owner has the control block. If it is the kernel's, fields may change meanwhile; each is read whole.
        unsafe { self.control.read_volatile() }
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
        unsafe { self.control.write_volatile(control) };
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
    pub(crate) fn over(bytes: &mut [u8]) -> Self {
        let range = bytes.as_mut_ptr_range();
        Self {
            data: range.start,
            data_end: range.end,
            ifindex: 0,
            l3_bytes: 0,
            mark: 0,
            priority: 0,
            order: 0,
            why: 0,
            out_slot: 0,
            dscp: 0,
        }
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("of_kernel", &self.side().is_some()).finish_non_exhaustive()
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
