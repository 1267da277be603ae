//! The flow tables in memory, and single batches through them.

use crate::{
    Error,
    abi::{BATCH, FRAME_ROOM, Frame, Memory},
    fixed::Fixed,
};
use shunt_bpf::{
    EngineSide, Entry, Key, Size,
    abi::{Cold, Control, ENGINE_CPU, Flow, GROUPS, Plain, WAYS},
};
use std::{
    ffi::c_void,
    fmt, ptr,
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

fn lines(bytes: usize) -> Fixed<[Line]> {
    Fixed::new(vec![Line([0; 64]); bytes.div_ceil(64)])
}

/// The flow tables of this process. Another thread that makes some waits until these are dropped.
pub struct Tables {
    owner: Owner,
    _only: MutexGuard<'static, ()>,
}

/// The owner of the tables' memory.
enum Owner {
    Own(Own),
    /// It is that of the kernel's programs.
    Kernel(Box<EngineSide>),
}

struct Own {
    control: Fixed<Control>,
    groups: Fixed<[u32]>,
    index: [Fixed<[Line]>; 2],
    entries: [Fixed<[Line]>; 2],
    cold: [Fixed<[Cold]>; 2],
}

/// What became of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Rewritten, to be sent by the port in this slot.
    Forwarded(u16, Vec<u8>),
    /// Unchanged; Linux gets the frame, for the reason with this number.
    Slow(usize),
}

impl Tables {
    /// Empty tables, and a control block with only the fields of the tables set.
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
        let own = Own {
            control: Fixed::new(control),
            groups: Fixed::new(vec![0; GROUPS]),
            index: [(); 2].map(|()| lines(buckets as usize * WAYS * 4)),
            entries: [128, 192].map(|bytes| lines(entries as usize * bytes)),
            cold: [(); 2].map(|()| Fixed::new(vec![Cold::default(); entries as usize])),
        };
        let memory = Memory {
            control: own.control.as_ptr(),
            groups: own.groups.as_ptr().cast(),
            index: own.index.each_ref().map(|lines| lines.as_ptr().cast()),
            entries4: own.entries[0].as_ptr().cast(),
            entries6: own.entries[1].as_ptr().cast(),
            cold: own.cold.each_ref().map(|cold| cold.as_ptr().cast()),
            buckets,
            entries,
        };
        Self::over(&memory, Owner::Own(own), only)
    }

    /// The tables of the kernel's programs.
    pub(crate) fn of_kernel(side: EngineSide, size: Size) -> Self {
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        let mapped = side.tables();
        let memory = Memory {
            control: mapped.control,
            groups: mapped.groups,
            index: mapped.index.map(<*mut u8>::cast),
            entries4: mapped.entries[0].cast(),
            entries6: mapped.entries[1].cast(),
            cold: mapped.cold,
            buckets: size.buckets(),
            entries: size.max_flows,
        };
        Self::over(&memory, Owner::Kernel(Box::new(side)), only)
    }

    fn over(memory: &Memory, owner: Owner, only: MutexGuard<'static, ()>) -> Self {
        // SAFETY: the memory has the sizes that it says, and outlives its use: `owner` has it, and nobody else uses the
        // C code while `only` is held.
        unsafe { shunt_engine_tables(ptr::from_ref(memory)) };
        Self { owner, _only: only }
    }

    /// The maps and programs in the kernel, if the tables are those of the kernel.
    pub(crate) fn side(&self) -> Option<&EngineSide> {
        match &self.owner {
            Owner::Own(_) => None,
            Owner::Kernel(side) => Some(side),
        }
    }

    /// The control block of tables that are not the kernel's; zeroes for those.
    pub fn control(&self) -> Control {
        match &self.owner {
            Owner::Own(own) => *own.control,
            Owner::Kernel(_) => Control::default(),
        }
    }

    /// Changes the control block of tables that are not the kernel's. What concerns the size of the tables must stay.
    pub fn change_control(&mut self, change: impl FnOnce(&mut Control)) {
        let Owner::Own(own) = &self.owner else { return };
        let mut control = *own.control;
        let size = (control.bucket_mask, control.max_flows, control.seed);
        change(&mut control);
        (control.bucket_mask, control.max_flows, control.seed) = size;
        // SAFETY: nobody has a reference to the control block, and the engine does not run now.
        unsafe { own.control.as_ptr().write(control) };
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
            if !found.is_null() {
                // The new addresses follow the flow in the entry.
                let to = found.add(1).cast::<u8>();
                to.copy_from_nonoverlapping(entry.to.as_ptr(), if family == 4 { 8 } else { 32 });
                found.write(flow);
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
        unsafe {
            let found = shunt_engine_find(family, bytes.as_ptr().cast());
            (!found.is_null()).then(|| found.read())
        }
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
            let describe = |buffer: &mut Vec<u8>| {
                let range = buffer.as_mut_ptr_range();
                // The engine may write to the room before the frame.
                let data = range.start.wrapping_add(2 + FRAME_ROOM);
                Frame { data, data_end: range.end, ifindex, ..Frame::NONE }
            };
            let mut described: Vec<Frame> = buffers.iter_mut().map(describe).collect();
            // SAFETY: the frames are within their buffers, with room before them.
            unsafe {
                shunt_engine_batch(described.as_mut_ptr(), described.len() as u32, reachable, jiffies);
            }
            for (frame, buffer) in described.iter().zip(&buffers) {
                let [begin, end] = [frame.data, frame.data_end].map(|at| at.addr() - buffer.as_ptr().addr());
                done.push(match frame.why {
                    0 => Outcome::Forwarded(frame.out_slot.into(), buffer[begin..end].to_vec()),
                    why => Outcome::Slow(why.into()),
                });
            }
        }
        done
    }
}

impl Frame {
    pub(crate) const NONE: Self = Self {
        data: ptr::null_mut(),
        data_end: ptr::null_mut(),
        ifindex: 0,
        l3_bytes: 0,
        mark: 0,
        order: 0,
        why: 0,
        out_slot: 0,
        dscp: 0,
        late: 0,
    };
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
