//! Whether a flow's action is current: nothing that the flow depends on has changed since its last proof.

use crate::{
    Error,
    abi::{self, Control, Flow},
    shared::{Mapping, Shared},
};
use std::{
    fmt,
    mem::offset_of,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// The epoch, and how far each group of flows is ahead of it. Clones share the memory of the programs.
#[derive(Clone)]
pub struct Epochs {
    control: Arc<Shared<Control>>,
    groups: Arc<Mapping>,
}

impl fmt::Debug for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}

impl Epochs {
    pub(crate) fn map(control: Arc<Shared<Control>>, groups: impl AsFd) -> Result<Self, Error> {
        let bytes = size_of::<u32>() * abi::GROUPS;
        Ok(Self { control, groups: Arc::new(Mapping::map(groups, bytes)?) })
    }

    /// The current epoch.
    pub fn epoch(&self) -> u32 {
        self.control.u32(offset_of!(Control, epoch)).load(Ordering::Relaxed)
    }

    /// Whether nothing that the flow depends on has changed since its last proof.
    pub fn is_current(&self, flow: &Flow) -> bool {
        flow.epoch == self.epoch().wrapping_add(self.moves(flow.group)) && flow.epoch != abi::EPOCH_RETIRED
    }

    /// How far a group is ahead of the epoch.
    fn moves(&self, group: u16) -> u32 {
        // SAFETY: there is a group for each number of 16 bits, and the programs touch them atomically.
        let moves = unsafe { AtomicU32::from_ptr(self.groups.address().cast::<u32>().add(group.into())) };
        moves.load(Ordering::Relaxed)
    }
}
