//! The tc programs on ingress. The usual one is loaded at the start, the others when a port first needs them: the
//! kernel takes longer to verify one of them than for all else that is to be done at a start.

use crate::{
    Error, abi,
    attach::{self, INGRESS},
    kernel_types::TypesSource,
    maps::Maps,
    object::{CompiledObject, Loading, Size, load_for, named},
};
use libbpf_rs::Object;
use std::{
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// The ids of the programs, in the order of [`INGRESS`]; 0 for one that is not loaded. A program is here before it is
/// attached anywhere.
pub(crate) type IngressIds = Arc<[AtomicU32; INGRESS.len()]>;

/// The programs that are loaded.
#[derive(Debug)]
pub(crate) struct IngressPrograms {
    source: &'static CompiledObject,
    types: TypesSource,
    /// In the order of [`INGRESS`].
    loaded: [Option<Object>; INGRESS.len()],
    ids: IngressIds,
}

impl IngressPrograms {
    /// Loads the usual program.
    pub(crate) fn load(
        source: &'static CompiledObject,
        types: TypesSource,
        size: Size,
        maps: &mut Maps,
    ) -> Result<Self, Error> {
        let mut programs =
            Self { source, types, loaded: [const { None }; INGRESS.len()], ids: IngressIds::default() };
        programs.need(INGRESS[0], size, maps)?;
        Ok(programs)
    }

    /// The program of this name, which is loaded if it is not yet.
    pub(crate) fn need(
        &mut self,
        name: &'static str,
        size: Size,
        maps: &mut Maps,
    ) -> Result<BorrowedFd<'_>, Error> {
        let missing = Error::Missing { object: self.source.name, name };
        let Some(at) = INGRESS.iter().position(|one| *one == name) else { return Err(missing) };
        if self.loaded[at].is_none() {
            let how = Loading { program: Some(name), types: self.types.path(), ..Loading::default() };
            let object = load_for(self.source, size, maps, &how)?;
            let id = named(&object, name).and_then(attach::program_id).unwrap_or(0);
            self.ids[at].store(id, Ordering::Release);
            self.loaded[at] = Some(object);
        }
        self.loaded(name).ok_or(missing)
    }

    /// The program of this name, if it is loaded.
    pub(crate) fn loaded(&self, name: &str) -> Option<BorrowedFd<'_>> {
        let at = INGRESS.iter().position(|one| *one == name)?;
        named(self.loaded[at].as_ref()?, name)
    }

    /// The programs that are loaded.
    pub(crate) fn all_loaded(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        INGRESS.iter().filter_map(|name| self.loaded(name))
    }

    /// The ids of what is loaded now and will be.
    pub(crate) fn ids(&self) -> IngressIds {
        self.ids.clone()
    }
}

/// The name of the program of a port with these flags (`PORT_*`).
pub(crate) fn ingress_name(flags: u16, rests: bool) -> &'static str {
    let [with_l2, without_l2, at_rest] = INGRESS;
    match flags & abi::PORT_NO_L2 == 0 {
        false => without_l2,
        true if rests => at_rest,
        true => with_l2,
    }
}
