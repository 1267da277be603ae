//! The instance that a tc program belongs to. A clsact filter outlives a killed daemon, and its handle is a hash of the
//! instance's name, which two names can share. So each program is bound to a map with the whole name.

use crate::Error;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

const NAME: &str = "shunt_instance";
const BYTES: u32 = 32;

/// The map with the name of an instance.
#[derive(Debug)]
pub(crate) struct Owner(MapHandle);

impl Owner {
    pub(crate) fn new(instance: &str) -> Result<Self, Error> {
        let failed = |source| Error::Map { map: NAME, source };
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Array, Some(NAME), 4, BYTES, 1, &options).map_err(failed)?;
        let mut name = instance.as_bytes().to_vec();
        name.resize(BYTES as usize, 0);
        map.update(&[0; 4], &name, MapFlags::ANY).map_err(failed)?;
        Ok(Self(map))
    }

    /// Has the program name this instance.
    pub(crate) fn bind(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let (program, map) = (program.as_raw_fd(), self.0.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open, and no options are given.
        let err = unsafe { libbpf_sys::bpf_prog_bind_map(program, map, std::ptr::null()) };
        if err < 0 { Err(io::Error::from_raw_os_error(-err)) } else { Ok(()) }
    }
}

/// The instance that a program with these maps belongs to; None if it names none.
pub(crate) fn owner_by(maps: &[u32]) -> Option<String> {
    let named = maps.iter().find_map(|id| {
        let map = MapHandle::from_map_id(*id).ok()?;
        (map.name() == NAME).then_some(map)
    })?;
    let name = named.lookup(&[0; 4], MapFlags::ANY).ok()??;
    String::from_utf8(name.into_iter().take_while(|b| *b != 0).collect()).ok()
}
