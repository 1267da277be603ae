//! Where the layout of the kernel's structures is known from, and the option that makes files of it.

use crate::failures::{failure, internal};
use shunt_api::{Config, Failure, FailureCode};
use shunt_bpf::{
    TypesSource,
    kernel_types::{self, BuildId, KernelTypes, TypesError},
};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The kernel's BTF.
const OF_KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// The source for this machine. A file that the configuration names goes before the kernel's own BTF.
pub(crate) fn source(config: &Config) -> Result<TypesSource, Failure> {
    let refused = |why: TypesError| failure(FailureCode::NoBtf, why.to_string());
    if !config.btf.is_empty() {
        return KernelTypes::open(Path::new(&config.btf)).map(TypesSource::File).map_err(refused);
    }
    if Path::new(OF_KERNEL).exists() && !pretends_missing("btf") {
        return Ok(TypesSource::Kernel);
    }
    Ok(KernelTypes::find().map_err(refused)?.map_or(TypesSource::Unknown, TypesSource::File))
}

/// Why nothing can be learned on a kernel without BTF and without a file of its types.
pub(crate) fn unknown() -> Failure {
    let file = BuildId::of_running_kernel().map_or_else(|_| "BUILD_ID.btf".to_owned(), |id| id.file_name());
    let [directory, ..] = kernel_types::DIRECTORIES;
    failure(
        FailureCode::NoBtf,
        format!(
            "the kernel has no BTF ({OF_KERNEL}): build it with CONFIG_DEBUG_INFO_BTF=y, put its types into \
             {directory}/{file} (shuntd --reduce-btf), or set learn = false for static flows only"
        ),
    )
}

/// Writes a file with the types of a kernel into the working directory, and prints its name.
pub(crate) fn reduce(files: &[PathBuf], build_id: Option<&str>) -> Result<(), Failure> {
    let build_id = match build_id {
        Some(text) => {
            text.parse().map_err(|why| failure(FailureCode::Usage, format!("--build-id: {why}")))?
        }
        None if files.iter().all(|file| file.starts_with("/sys/kernel/btf")) => {
            BuildId::of_running_kernel().map_err(internal)?
        }
        None => {
            let why = "--build-id: give the build ID of the kernel, which readelf -n vmlinux shows";
            return Err(failure(FailureCode::Usage, why));
        }
    };
    let types =
        kernel_types::reduce(files, &build_id).map_err(|why| failure(FailureCode::Usage, why.to_string()))?;
    let name = build_id.file_name();
    fs::write(&name, types).map_err(|why| failure(FailureCode::Internal, format!("{name}: {why}")))?;
    writeln!(io::stdout().lock(), "{name}").map_err(internal)
}

/// Whether SHUNT_PRETEND_MISSING lists a kernel feature: tests use it to walk the fallback on a newer kernel.
pub(crate) fn pretends_missing(feature: &str) -> bool {
    std::env::var("SHUNT_PRETEND_MISSING").is_ok_and(|list| list.split(',').any(|name| name == feature))
}
