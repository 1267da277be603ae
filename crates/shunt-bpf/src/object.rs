//! The compiled objects, and loading them with shared maps.

#[cfg(feature = "compressed")]
mod packed;

use crate::{
    Error,
    abi::WAYS,
    maps::{COUNTERS, EXPIRED, FINALS, MARKS, Maps, NET_TIMES},
    memory::ports_max,
};
use libbpf_rs::{
    AsRawLibbpf, MapCore, MapHandle, MapType, Object, ObjectBuilder, OpenMapMut, ProgramMut, btf::Btf,
};
use std::{
    borrow::Cow,
    ffi::{OsStr, c_char},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::Path,
    ptr,
};

#[cfg(not(feature = "compressed"))]
macro_rules! object {
    ($name:literal in $archive:literal) => {
        CompiledObject { name: $name, stored: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".o")) }
    };
}

#[cfg(feature = "compressed")]
macro_rules! object {
    ($name:literal in $archive:literal) => {
        CompiledObject {
            name: $name,
            stored: include_bytes!(concat!(env!("OUT_DIR"), "/", $archive, ".archive")),
        }
    };
}

/// A compiled object of `bpf/prog`.
#[derive(Debug)]
pub(crate) struct CompiledObject {
    /// The file name without extension.
    pub(crate) name: &'static str,
    /// The file; with the feature `compressed`, the archive that contains it.
    stored: &'static [u8],
}

pub(crate) const TC_FORWARD: CompiledObject = object!("tc_forward" in "tc");
/// For kernels without BTF: the program cannot read `skb->ip_summed`.
pub(crate) const TC_FORWARD_WITHOUT_BTF: CompiledObject = object!("tc_forward_without_btf" in "tc");
/// For kernels without BTF, with a file of their types: they have no functions that programs may call.
pub(crate) const TC_FORWARD_WITHOUT_KFUNCS: CompiledObject = object!("tc_forward_without_kfuncs" in "tc");
pub(crate) const TC_WATCH: CompiledObject = object!("tc_watch" in "tc");
pub(crate) const TC_WATCH_WITHOUT_KFUNCS: CompiledObject = object!("tc_watch_without_kfuncs" in "tc");
pub(crate) const XDP_FORWARD: CompiledObject = object!("xdp_forward" in "xdp");
/// For `verify_checksums = always`: the program can verify L4 checksums.
pub(crate) const XDP_FORWARD_VERIFYING: CompiledObject = object!("xdp_forward_verifying" in "xdp");
/// For many flows: loads the entries of the next packets in the driver's ring.
pub(crate) const XDP_FORWARD_AHEAD_VETH: CompiledObject = object!("xdp_forward_ahead_veth" in "xdp");
pub(crate) const XDP_FORWARD_AHEAD_VIRTIO: CompiledObject = object!("xdp_forward_ahead_virtio" in "xdp");
pub(crate) const XDP_FORWARD_AHEAD_VETH_VERIFYING: CompiledObject =
    object!("xdp_forward_ahead_veth_verifying" in "xdp");
pub(crate) const XDP_FORWARD_AHEAD_VIRTIO_VERIFYING: CompiledObject =
    object!("xdp_forward_ahead_virtio_verifying" in "xdp");
/// For one device, whose driver tells the program of the VLAN tags that it has taken out of the frames.
pub(crate) const XDP_FORWARD_TAGS: CompiledObject = object!("xdp_forward_tags" in "xdp");
pub(crate) const XDP_FORWARD_TAGS_VERIFYING: CompiledObject = object!("xdp_forward_tags_verifying" in "xdp");
/// For ports that the external engine serves.
pub(crate) const XDP_EXTERNAL: CompiledObject = object!("xdp_external" in "table");
pub(crate) const XDP_DROPS: CompiledObject = object!("xdp_drops" in "table");
pub(crate) const TABLE: CompiledObject = object!("table" in "table");
pub(crate) const CT_GONE: CompiledObject = object!("ct_gone" in "table");
pub(crate) const CHANGES: CompiledObject = object!("changes" in "table");
pub(crate) const NET_TIME: CompiledObject = object!("net_time" in "table");
pub(crate) const NAPI_TIME: CompiledObject = object!("napi_time" in "table");

impl CompiledObject {
    /// The file.
    pub(crate) fn bytes(&self) -> io::Result<Cow<'static, [u8]>> {
        #[cfg(feature = "compressed")]
        return packed::unpack(self.stored, self.name).map(Cow::Owned);
        #[cfg(not(feature = "compressed"))]
        Ok(Cow::Borrowed(self.stored))
    }

    /// The types that its programs declare. `bytes` is the file.
    pub(crate) fn btf<'b>(&'b self, bytes: &'b [u8]) -> io::Result<Btf<'b>> {
        let missing = || io::Error::other(format!("{} has no BTF", self.name));
        Btf::from_raw(self.name, bytes).map_err(io::Error::other)?.ok_or_else(missing)
    }
}

pub(crate) const INDEXES: [&str; 2] = ["shunt_index4", "shunt_index6"];
/// Maps with one element per entry of the flow table.
pub(crate) const TABLES: [&str; 4] = ["shunt_table4", "shunt_table6", "shunt_cold4", "shunt_cold6"];

/// Makes the values begin on a page, and lets the external engine map them. Other arrays begin anywhere: an entry would
/// lie on a third cache line, which it would share with the next entry.
const TABLE_FLAGS: u32 = libbpf_sys::BPF_F_MMAPABLE;

/// A filter of this size, 1 MiB, rarely takes one address for another while 20,000 of them are in use.
const MARK_LINES_MIN: u32 = 16384;

/// The size of the flow tables.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Flows per address family.
    pub max_flows: u32,
    /// Seed of the tables' hash. A random seed keeps senders from choosing tuples that collide.
    pub seed: u64,
}

impl Size {
    /// Buckets of an index: a power of two that leaves a third of the slots free. A key fits eight slots, and one of
    /// them must be free.
    pub fn buckets(self) -> u32 {
        let slots = u64::from(self.max_flows) * 3 / 2;
        u32::try_from(slots.div_ceil(WAYS as u64).next_power_of_two()).unwrap_or(1 << 31)
    }

    /// The size of the ring of final counters: a power of two, with room for a third of the flows of a small table.
    pub fn finals_bytes(self) -> u32 {
        self.max_flows.saturating_mul(32).clamp(1 << 16, 1 << 20).next_power_of_two()
    }

    /// Lines of the filter of dependencies, of 64 bytes: a power of two, and eight bytes for each flow of a large
    /// table.
    pub fn mark_lines(self) -> u32 {
        (self.max_flows / 8).next_power_of_two().max(MARK_LINES_MIN)
    }
}

/// How an object is loaded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loading<'a> {
    /// XDP programs may call functions of this device's driver, and be attached to no other.
    pub(crate) device: Option<u32>,
    /// Only the program of this name is loaded.
    pub(crate) program: Option<&'static str>,
    /// A file with the types of the kernel, instead of the kernel's BTF.
    pub(crate) types: Option<&'a Path>,
}

/// Loads an object. It uses the maps that are in `maps` already; its other maps are added.
pub(crate) fn load(source: &CompiledObject, size: Size, maps: &mut Maps) -> Result<Object, Error> {
    load_for(source, size, maps, &Loading::default())
}

/// As [`load`], without the object's other programs: each costs verification time.
pub(crate) fn load_only(
    source: &CompiledObject,
    size: Size,
    maps: &mut Maps,
    program: &'static str,
) -> Result<Object, Error> {
    load_for(source, size, maps, &Loading { program: Some(program), ..Loading::default() })
}

/// As [`load`], in this way.
pub(crate) fn load_for(
    source: &CompiledObject,
    size: Size,
    maps: &mut Maps,
    how: &Loading<'_>,
) -> Result<Object, Error> {
    let failed = |e| Error::loading(source.name, e);
    let mut builder = ObjectBuilder::default();
    if let Some(path) = how.types {
        set_types(&mut builder, path).map_err(failed)?;
    }
    let bytes = source.bytes().map_err(|e| failed(e.into()))?;
    let mut open = builder.open_memory(&bytes).map_err(failed)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if TABLES.contains(&name.as_str()) {
            map.set_max_entries(size.max_flows).map_err(failed)?;
            map.set_map_flags(TABLE_FLAGS).map_err(failed)?;
        } else if INDEXES.contains(&name.as_str()) {
            map.set_max_entries(size.buckets()).map_err(failed)?;
            map.set_map_flags(TABLE_FLAGS).map_err(failed)?;
        } else if name == MARKS {
            map.set_max_entries(size.mark_lines()).map_err(failed)?;
        } else if name == EXPIRED {
            map.set_max_entries(size.max_flows.saturating_mul(4)).map_err(failed)?;
        } else if name == FINALS {
            map.set_max_entries(size.finals_bytes()).map_err(failed)?;
        } else if name == COUNTERS {
            map.set_max_entries(ports_max()).map_err(failed)?;
        } else if name == NET_TIMES {
            let cpus = libbpf_rs::num_possible_cpus().map_err(failed)?;
            map.set_max_entries(u32::try_from(cpus).unwrap_or(u32::MAX)).map_err(failed)?;
        }
        if let Some(loaded) = maps.find(&name) {
            if !fits(&map, loaded) {
                return Err(Error::Layout { map: name });
            }
            map.reuse_fd(loaded.as_fd()).map_err(failed)?;
        }
    }
    if let Some(name) = how.program {
        for mut program in open.progs_mut() {
            let wanted = program.name() == OsStr::new(name);
            program.set_autoload(wanted);
        }
    }
    if let Some(ifindex) = how.device {
        for mut program in open.progs_mut() {
            program.set_ifindex(ifindex);
            program.set_flags(libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY);
        }
    }
    let object = open.load().map_err(failed)?;
    for map in object.maps() {
        let name = map.name().to_string_lossy().into_owned();
        maps.add(name, || MapHandle::try_from(&map)).map_err(failed)?;
    }
    Ok(object)
}

/// Whether a map has the shape that an object expects.
fn fits(expected: &OpenMapMut<'_>, map: &MapHandle) -> bool {
    // libbpf rounds the size of a ring.
    let is_ring = map.map_type() == MapType::RingBuf;
    expected.map_type() == map.map_type()
        && expected.key_size() == map.key_size()
        && expected.value_size() == map.value_size()
        && (is_ring || expected.max_entries() == map.max_entries())
}

/// The first options of `bpf_object__open_mem()`, as C has them. libbpf-sys 1.7 has them with the gaps of 64-bit
/// machines everywhere.
#[repr(C)]
struct OpenOptions {
    sz: libbpf_sys::size_t,
    object_name: *const c_char,
    relaxed_maps: bool,
    pin_root_path: *const c_char,
    unused: u32,
    kconfig: *const c_char,
    btf_custom_path: *const c_char,
}

/// Makes libbpf take the kernel's types from a file.
fn set_types(builder: &mut ObjectBuilder, path: &Path) -> libbpf_rs::Result<()> {
    builder.btf_custom_path(path)?;
    let options = builder.as_libbpf_object().as_ptr();
    // SAFETY: the builder owns the options, which are at least as large as C's, and keeps the path that it set.
    unsafe {
        let path = std::mem::replace(&mut (*options).btf_custom_path, ptr::null());
        (*options.cast::<OpenOptions>()).btf_custom_path = path;
    }
    Ok(())
}

/// The program `name` of a loaded object.
pub(crate) fn program<'o>(
    object: &'o Object,
    source: &CompiledObject,
    name: &'static str,
) -> Result<ProgramMut<'o>, Error> {
    let mut programs = object.progs_mut();
    programs.find(|p| p.name() == OsStr::new(name)).ok_or(Error::Missing { object: source.name, name })
}

/// The program of an object. `None` if the object has no program of that name.
pub(crate) fn named<'o>(object: &'o Object, name: &str) -> Option<BorrowedFd<'o>> {
    let program = object.progs().find(|p| p.name() == OsStr::new(name))?;
    // SAFETY: the object, and so its program's descriptor, lives as long as the borrow.
    Some(unsafe { BorrowedFd::<'o>::borrow_raw(program.as_fd().as_raw_fd()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! same {
        ($($object:ident $name:literal)*) => {
            $(
                let file = include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".o"));
                assert!($object.bytes().unwrap() == file.as_slice(), "{}", $name);
            )*
        };
    }

    #[test]
    fn every_object_is_the_file_that_was_compiled() {
        same! {
            TC_FORWARD "tc_forward"
            TC_FORWARD_WITHOUT_BTF "tc_forward_without_btf"
            TC_FORWARD_WITHOUT_KFUNCS "tc_forward_without_kfuncs"
            TC_WATCH "tc_watch"
            TC_WATCH_WITHOUT_KFUNCS "tc_watch_without_kfuncs"
            XDP_FORWARD "xdp_forward"
            XDP_FORWARD_VERIFYING "xdp_forward_verifying"
            XDP_FORWARD_AHEAD_VETH "xdp_forward_ahead_veth"
            XDP_FORWARD_AHEAD_VIRTIO "xdp_forward_ahead_virtio"
            XDP_FORWARD_AHEAD_VETH_VERIFYING "xdp_forward_ahead_veth_verifying"
            XDP_FORWARD_AHEAD_VIRTIO_VERIFYING "xdp_forward_ahead_virtio_verifying"
            XDP_FORWARD_TAGS "xdp_forward_tags"
            XDP_FORWARD_TAGS_VERIFYING "xdp_forward_tags_verifying"
            XDP_EXTERNAL "xdp_external"
            XDP_DROPS "xdp_drops"
            TABLE "table"
            CT_GONE "ct_gone"
            CHANGES "changes"
        }
    }
}
