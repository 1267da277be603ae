//! The layout of the kernel's structures, for kernels without BTF: from a small file, made from the BTF of the same
//! kernel on a machine that has it.
//!
//! Such a file is BTF with the types that learning reads and nothing else, about 2 kB. It names the build ID of its
//! kernel, and is used on no other.

mod build_id;
mod reduce;
mod writer;

use crate::verifier;
pub use build_id::BuildId;
use libbpf_rs::btf::{Btf, types::Fwd};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Directories with such files. A file is named after its build ID.
pub const DIRECTORIES: [&str; 3] = ["/etc/shunt/btf", "/usr/local/share/shunt/btf", "/usr/share/shunt/btf"];
/// Before the build ID, in the name of a type that has no other purpose.
const MARK: &str = "shunt_build_id_";

/// A file with the types of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTypes {
    path: PathBuf,
}

/// Where the layout of the kernel's structures is known from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypesSource {
    /// The kernel's own BTF.
    Kernel,
    /// A file of this kernel's types. Programs call no functions of the kernel.
    File(KernelTypes),
    /// Nothing: nothing is learned.
    Unknown,
}

impl TypesSource {
    /// The file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(types) => Some(types.path()),
            Self::Kernel | Self::Unknown => None,
        }
    }
}

/// Why a file of types cannot be used or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypesError {
    /// The file cannot be read, or is no BTF.
    #[error("{path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// libbpf's error.
        why: libbpf_rs::Error,
    },
    /// The file does not name a kernel.
    #[error("{path}: it does not say which kernel it is for; make it with shuntd --reduce-btf")]
    Unmarked {
        /// The file.
        path: String,
    },
    /// The file is for another kernel.
    #[error("{path}: it is for the kernel with build ID {of}, and {running} is running")]
    OtherKernel {
        /// The file.
        path: String,
        /// The build ID in the file.
        of: BuildId,
        /// That of the running kernel.
        running: BuildId,
    },
    /// The running kernel does not tell its build ID.
    #[error("the build ID of the running kernel: {0}")]
    NoBuildId(io::Error),
    /// A type is in none of the files.
    #[error(
        "no file has {0}, which learning needs; give the BTF of vmlinux, and that of the module nf_conntrack"
    )]
    Lacks(String),
    /// The new file cannot be made.
    #[error("cannot make BTF: {0}")]
    Make(io::Error),
}

impl KernelTypes {
    /// A file of types.
    ///
    /// # Errors
    /// Fails if the file is not for the running kernel.
    pub fn open(path: &Path) -> Result<Self, TypesError> {
        let name = || path.display().to_string();
        let of = named_in(&parse(path)?).ok_or_else(|| TypesError::Unmarked { path: name() })?;
        let running = BuildId::of_running_kernel().map_err(TypesError::NoBuildId)?;
        match of == running {
            true => Ok(Self { path: path.to_owned() }),
            false => Err(TypesError::OtherKernel { path: name(), of, running }),
        }
    }

    /// The file for the running kernel in one of [`DIRECTORIES`]; None if there is none.
    ///
    /// # Errors
    /// Fails as [`KernelTypes::open`] does.
    pub fn find() -> Result<Option<Self>, TypesError> {
        let Ok(running) = BuildId::of_running_kernel() else { return Ok(None) };
        let paths = DIRECTORIES.map(|directory| Path::new(directory).join(running.file_name()));
        paths.iter().find(|path| path.exists()).map(|path| Self::open(path)).transpose()
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The contents of a file of types for the kernel with this build ID, made from BTF of that kernel: of vmlinux, and of
/// the module nf_conntrack if vmlinux lacks its structures. Each type is taken from the first file that has it.
///
/// # Errors
/// Fails if a file cannot be read or if a type is missing.
pub fn reduce(files: &[PathBuf], build_id: &BuildId) -> Result<Vec<u8>, TypesError> {
    let kernel: Vec<Btf<'_>> = files.iter().map(|path| parse(path)).collect::<Result<_, _>>()?;
    reduce::reduce(&kernel, build_id)
}

fn parse(path: &Path) -> Result<Btf<'static>, TypesError> {
    let unreadable = |why| TypesError::Unreadable { path: path.display().to_string(), why };
    verifier::capture_log();
    // libbpf's error for a file that is absent says nothing.
    fs::File::open(path).map_err(|why| unreadable(libbpf_rs::Error::from(why)))?;
    Btf::from_path(path).map_err(unreadable)
}

fn named_in(btf: &Btf<'_>) -> Option<BuildId> {
    let names = btf.type_by_kind::<Fwd<'_>>();
    let mut ids = names.filter_map(|fwd| fwd.name()?.to_str()?.strip_prefix(MARK)?.parse().ok());
    ids.next()
}

#[cfg(test)]
mod tests;
