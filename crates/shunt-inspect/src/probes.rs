//! Loads the BPF programs of `bpf/inspect`, for `shunt trace`, `shunt verify` and `shunt quality`.

use libbpf_rs::{ErrorKind, MapCore, MapHandle, Object, ObjectBuilder, OpenObject};
use shunt_bpf::verifier;
use std::{collections::BTreeMap, os::fd::AsFd};

/// A name and an ELF file.
pub(crate) type ObjectFile = (&'static str, &'static [u8]);

/// The object file of this name, which the build made.
macro_rules! object {
    ($name:literal) => {
        ($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".o")))
    };
}
pub(crate) use object;

/// Loading or attaching the programs failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {why}")]
pub(crate) struct ProgramError {
    pub(crate) doing: String,
    pub(crate) why: String,
    /// Whether the kernel does not allow it.
    pub(crate) forbidden: bool,
}

/// Loads an object without the programs of these names, with these constants in a section. Its maps are those of
/// objects that were loaded before, if they are shared; `maps` has them.
pub(crate) fn load(
    (name, bytes): ObjectFile,
    (section, constants): (&str, &[u8]),
    maps: &mut BTreeMap<String, MapHandle>,
    is_shared: impl Fn(&str) -> bool,
    left_out: &[&str],
    prepare: impl FnOnce(&mut OpenObject) -> Result<(), ProgramError>,
) -> Result<Object, ProgramError> {
    verifier::capture_log();
    let doing = format!("loading the {name} programs");
    let wrong = |e: libbpf_rs::Error| failed(&doing, &e);
    // libelf needs the alignment of an allocation; an included file may have none.
    let aligned = bytes.to_vec();
    let mut open =
        ObjectBuilder::default().name(name).and_then(|b| b.open_memory(&aligned)).map_err(wrong)?;
    for mut map in open.maps_mut() {
        let map_name = map.name().to_string_lossy().into_owned();
        if let Some(shared) = maps.get(&map_name) {
            map.reuse_fd(shared.as_fd()).map_err(wrong)?;
        }
        if map_name.ends_with(section)
            && let Some(initial) = map.initial_value_mut()
        {
            initial[..constants.len()].copy_from_slice(constants);
        }
    }
    for mut program in open.progs_mut() {
        if left_out.iter().any(|left_out| program.name() == *left_out) {
            program.set_autoload(false);
        }
    }
    prepare(&mut open)?;
    let object = open.load().map_err(wrong)?;
    for map in object.maps() {
        let map_name = map.name().to_string_lossy().into_owned();
        if is_shared(&map_name) && !maps.contains_key(&map_name) {
            maps.insert(map_name, MapHandle::try_from(&map).map_err(wrong)?);
        }
    }
    Ok(object)
}

/// The program of this name.
pub(crate) fn program<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::ProgramMut<'o>, ProgramError> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.ok_or_else(|| ProgramError {
        doing: format!("finding the program {name}"),
        why: "the object lacks it".to_owned(),
        forbidden: false,
    })
}

/// A failure, with the verifier's reason if it has one.
pub(crate) fn failed(doing: &str, error: &libbpf_rs::Error) -> ProgramError {
    let reason = verifier::last_reason();
    // The verifier refuses with the same error as a kernel that allows nothing.
    let forbidden = error.kind() == ErrorKind::PermissionDenied && reason.is_none();
    let why = match reason {
        Some(reason) => format!("{error:#} ({reason})"),
        None => format!("{error:#}"),
    };
    ProgramError { doing: doing.to_owned(), why, forbidden }
}
