//! Kernels unpacked from the distribution's packages.

use super::kernels::Kernel;
use crate::{
    debian::{Apt, Cache, MEGABYTE, Package, extract},
    tool::tool,
};
use anyhow::{Context, bail, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Prefixes of the packages that make up a kernel; other dependencies are needed only to install it.
const PARTS: [&str; 4] = ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"];
/// Disk space that an unpacked kernel takes.
const ROOM: u64 = 400 * MEGABYTE;
/// Modules that a guest may need: networking and its dependencies, virtual devices, and the devices of boards.
const MODULES: &str = "( -path */kernel/net/* -o -path */kernel/lib/* -o -path */kernel/crypto/* \
    -o -path */kernel/arch/*/crypto/* -o -path */kernel/arch/*/lib/* -o -path */kernel/drivers/net/* \
    -o -path */kernel/drivers/gpio/* -o -path */kernel/drivers/regulator/* -o -path */kernel/drivers/watchdog/* \
    -o -path */kernel/drivers/mfd/* -o -path */kernel/drivers/pinctrl/* -o -path */kernel/drivers/pmdomain/* \
    -o -path */kernel/drivers/soc/* -o -path */kernel/drivers/nvmem/* -o -path */kernel/drivers/reset/* \
    -o -path */kernel/drivers/interconnect/* -o -path */kernel/drivers/clk/* -o -path */kernel/drivers/dca/* \
    -o -path */kernel/drivers/i2c/algos/* -o -path */kernel/drivers/phy/freescale/* ) \
    ! -path */drivers/net/wireless/*";
/// In the names of unpacked kernels. Raise it with each change of `PARTS` and `MODULES`, so that no older ones are
/// used.
const LAYOUT: &str = "4";
/// Where packages have the device trees of boards: a directory of their own, or one below that of the modules.
const DEVICE_TREES: &str = "( -path */usr/lib/linux-image-* -o -path */lib/modules/*/dtb )";

/// An unpacked kernel.
#[derive(Debug)]
pub struct Unpacked {
    /// The kernel image to boot.
    pub image: PathBuf,
    /// Directory with lib/modules/VERSION, uncompressed and with the index of depmod.
    pub modules: PathBuf,
    /// Directory of device trees.
    pub device_trees: PathBuf,
}

/// Fetches and unpacks a kernel unless it is in the cache. With `update`, takes the latest build in the archive.
pub fn unpacked(kernel: &Kernel, cache: &Cache, update: bool) -> anyhow::Result<Unpacked> {
    let apt = Apt::new(kernel.suite, kernel.arch, cache, update)?;
    let packages = parts(kernel, &apt)?;
    let home = cache.path().join(&packages.iter().max_by_key(|p| p.size).context("no package")?.file);
    let home = home.with_extension(LAYOUT);
    apt.fetch(&packages, cache)?;
    if !home.is_dir() {
        cache.require_room(ROOM)?;
        let partial = tempfile::tempdir_in(cache.path())?;
        unpack(&packages, cache, partial.path())?;
        fs::rename(partial.keep(), &home).with_context(|| home.display().to_string())?;
    }
    let [image, modules, device_trees] = ["vmlinuz", "modules", "device-trees"].map(|part| home.join(part));
    Ok(Unpacked { image, modules, device_trees })
}

/// The packages of the kernel's latest build.
fn parts(kernel: &Kernel, apt: &Apt) -> anyhow::Result<Vec<Package>> {
    let needed = apt.needed_by(kernel.package)?;
    let is_part = |name: &&str| PARTS.iter().any(|part| name.starts_with(part)) && *name != kernel.package;
    let parts: Vec<&str> = needed.iter().map(String::as_str).filter(is_part).collect();
    ensure!(
        !parts.is_empty(),
        "{} has no package {}: the list, xtask/src/vm/kernels.rs, is out of date",
        kernel.suite.name,
        kernel.package
    );
    apt.packages(&parts)
}

/// Unpacks `vmlinuz`, `modules` and `device-trees` from a kernel's packages into a directory.
fn unpack(packages: &[Package], cache: &Cache, into: &Path) -> anyhow::Result<()> {
    let (all, modules) = (into.join("all"), into.join("modules/lib/modules"));
    for package in packages {
        extract(&cache.path().join(&package.file), &all)?;
    }
    let all_text = all.to_string_lossy().into_owned();
    let find = |test: &[&str]| tool("find", &[&[all_text.as_str()], test].concat());
    let image = find(&["-name", "vmlinuz*"])?;
    fs::rename(image.trim(), into.join("vmlinuz")).context("the packages hold no vmlinuz")?;
    let boards = find(
        &[&DEVICE_TREES.split_whitespace().collect::<Vec<_>>()[..], &["-prune", "-type", "d"]].concat(),
    )?;
    if let Some(boards) = boards.lines().next() {
        fs::rename(boards, into.join("device-trees"))?;
    }
    let tree = find(&["-path", "*/lib/modules/*", "-prune", "-type", "d"])?;
    let Some(tree) = tree.lines().next().map(Path::new) else { bail!("the packages hold no modules") };
    fs::create_dir_all(&modules)?;
    let version = tree.file_name().context("modules without a version")?;
    let tree_text = tree.to_string_lossy().into_owned();
    let unwanted = [&["!"], &MODULES.split_whitespace().collect::<Vec<_>>()[..]].concat();
    tool("find", &[&[tree_text.as_str(), "-name", "*.ko*"], &unwanted[..], &["-delete"]].concat())?;
    // Decompress here, since a guest is slow.
    tool("find", &[&tree_text, "-name", "*.ko.xz", "-exec", "xz", "--decompress", "{}", "+"])?;
    fs::rename(tree, modules.join(version))?;
    fs::remove_dir_all(&all)?;
    let base = into.join("modules");
    tool("depmod", &["-b", &base.to_string_lossy(), &version.to_string_lossy()])?;
    Ok(())
}
