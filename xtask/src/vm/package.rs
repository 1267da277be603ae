//! Kernels from the distribution's packages: fetched by apt, checked against its index, unpacked, never installed.

use super::{
    cache::{Cache, MEGABYTE},
    kernels::Kernel,
    tool,
};
use anyhow::{Context, bail, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Who signs the archives that the list names.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The parts of a kernel. What else its packages need is for those who install it.
const PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];
/// What an index, the packages of a kernel and what is unpacked of them take.
const ROOM: u64 = 400 * MEGABYTE;
/// What a guest may need: networks, what these need, and the devices that are made of software.
const MODULES: &str = "( -path */kernel/net/* -o -path */kernel/lib/* -o -path */kernel/crypto/* \
    -o -path */kernel/arch/x86/crypto/* -o -path */kernel/arch/x86/lib/* -o -path */kernel/drivers/net/* )";

/// An unpacked kernel.
#[derive(Debug)]
pub struct Unpacked {
    /// What the machine boots.
    pub image: PathBuf,
    /// A directory with lib/modules/VERSION, without compression and with its index.
    pub modules: PathBuf,
}

/// The kernel, fetched and unpacked unless it is there already. With `update`, the latest build that the archive has.
pub fn unpacked(kernel: &Kernel, cache: &Cache, update: bool) -> anyhow::Result<Unpacked> {
    let apt = Apt::new(kernel, cache)?;
    if update || !apt.has_index() {
        cache.demand_room(ROOM)?;
        apt.update()?;
    }
    let packages = apt.packages(kernel)?;
    let home = cache.path().join(&packages.iter().max_by_key(|p| p.size).context("no package")?.file);
    let home = home.with_extension("");
    for package in &packages {
        apt.fetch(package, cache)?;
    }
    if !home.is_dir() {
        cache.demand_room(ROOM)?;
        let partial = tempfile::tempdir_in(cache.path())?;
        unpack(&packages, cache, partial.path())?;
        fs::rename(partial.keep(), &home).with_context(|| home.display().to_string())?;
    }
    Ok(Unpacked { image: home.join("vmlinuz"), modules: home.join("modules") })
}

/// A package as the archive's index has it.
struct Package {
    /// As apt takes it on its command line.
    name: String,
    file: String,
    size: u64,
    sha256: String,
}

/// apt with an index of its own for one suite, from the mirror that this machine uses.
struct Apt {
    directory: PathBuf,
}

impl Apt {
    fn new(kernel: &Kernel, cache: &Cache) -> anyhow::Result<Self> {
        ensure!(
            Path::new(KEYRING).is_file(),
            "{KEYRING} is not there, so that no Debian kernel can be checked; the package debian-archive-keyring has it"
        );
        let label = format!("{}\t", kernel.archive);
        let known =
            tool("apt-get", &["indextargets", "--format", "$(LABEL)\t$(REPO_URI)", "Created-By: Packages"])?;
        let uri = known.lines().find_map(|line| line.strip_prefix(&label)).with_context(|| {
            format!(
                "apt on this machine has no index of an archive labelled `{}`, from which kernel {} comes: \
                 add it to apt's sources and run apt-get update",
                kernel.archive, kernel.name
            )
        })?;
        let directory = cache.path().join(format!("apt-{}", kernel.suite));
        for part in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(directory.join(part)).with_context(|| directory.display().to_string())?;
        }
        fs::write(directory.join("status"), "")?;
        fs::write(
            directory.join("sources.list"),
            format!("deb [signed-by={KEYRING} arch=amd64] {uri} {} main\n", kernel.suite),
        )?;
        Ok(Self { directory })
    }

    fn has_index(&self) -> bool {
        let lists = fs::read_dir(self.directory.join("lists")).into_iter().flatten().flatten();
        lists.into_iter().any(|file| file.file_name().to_string_lossy().ends_with("_Packages"))
    }

    fn update(&self) -> anyhow::Result<()> {
        self.ask("apt-get", &["-q", "--error-on=any", "update"])
            .context("the archive's index cannot be fetched; without it no package can be checked")?;
        Ok(())
    }

    /// The parts of the kernel with its latest build.
    fn packages(&self, kernel: &Kernel) -> anyhow::Result<Vec<Package>> {
        let arguments = ["depends", "--recurse", "--important", "--no-pre-depends", kernel.package];
        let needed = self.ask("apt-cache", &arguments)?;
        let is_part =
            |name: &&str| PARTS.iter().any(|part| name.starts_with(part)) && *name != kernel.package;
        let parts: Vec<&str> = needed.lines().filter(is_part).collect();
        ensure!(
            !parts.is_empty(),
            "{} has no package {}: the list, xtask/src/vm/kernels.rs, is out of date",
            kernel.suite,
            kernel.package
        );
        let asked = [&["--print-uris", "download"], &parts[..]].concat();
        let uris = self.ask("apt-get", &asked)?;
        let packages: Option<Vec<Package>> = uris.lines().map(Package::of).collect();
        packages.filter(|packages| packages.len() == parts.len()).with_context(|| {
            format!("apt-get --print-uris said what is not understood, or no SHA256:\n{uris}")
        })
    }

    /// Puts a package into the cache, unless it is there, and compares it with the index.
    fn fetch(&self, package: &Package, cache: &Cache) -> anyhow::Result<()> {
        let path = cache.path().join(&package.file);
        if !path.is_file() {
            cache.demand_room(ROOM)?;
            eprintln!("fetching {} ({} MB)", package.file, package.size / MEGABYTE + 1);
            let partial = tempfile::tempdir_in(cache.path())?;
            self.ask_in(partial.path(), "apt-get", &["-q", "download", &package.name]).with_context(
                || {
                    format!(
                        "{} cannot be fetched; if the archive has a newer one by now, --update asks for it",
                        package.file
                    )
                },
            )?;
            let found = fs::read_dir(partial.path())?.flatten().next();
            let found = found.with_context(|| format!("apt-get has put {} nowhere", package.file))?;
            fs::rename(found.path(), &path).with_context(|| path.display().to_string())?;
        }
        let said = tool("sha256sum", &[&path.to_string_lossy()])?;
        ensure!(
            said.starts_with(&package.sha256),
            "{} is not what the archive's index has (SHA256 {}): remove it, and it is fetched again",
            path.display(),
            package.sha256
        );
        Ok(())
    }

    fn ask(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        self.ask_in(&self.directory, program, arguments)
    }

    fn ask_in(&self, directory: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let own = |option: &str, name: &str| format!("-o{option}={}", self.directory.join(name).display());
        let options = [
            own("Dir::Etc::SourceList", "sources.list"),
            "-oDir::Etc::SourceParts=-".to_owned(),
            own("Dir::State::Lists", "lists"),
            // What is installed here does not count.
            own("Dir::State::Status", "status"),
            own("Dir::Cache", "."),
            "-oAcquire::Languages=none".to_owned(),
            "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "-oAcquire::http::Timeout=20".to_owned(),
            "-oAcquire::https::Timeout=20".to_owned(),
            "-oAcquire::Retries=2".to_owned(),
            // Where the cache is root's alone, the user _apt cannot write to it.
            "-oAPT::Sandbox::User=root".to_owned(),
        ];
        let options = options.iter().map(String::as_str);
        let line: Vec<&str> = options.chain(arguments.iter().copied()).collect();
        super::tool_in(directory, program, &line)
    }
}

impl Package {
    /// From a line of `apt-get --print-uris`: 'URI' FILE SIZE SHA256:SUM.
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let file = words.next()?.to_owned();
        let size = words.next()?.parse().ok()?;
        let sha256 = words.next()?.strip_prefix("SHA256:")?.to_owned();
        let mut parts = file.split('_');
        let (name, version) = (parts.next()?, parts.next()?.replace("%3a", ":"));
        let name = format!("{name}={version}");
        Some(Self { name, file, size, sha256 })
    }
}

/// Puts what is needed of a kernel's packages into a directory: `vmlinuz` and `modules`.
fn unpack(packages: &[Package], cache: &Cache, into: &Path) -> anyhow::Result<()> {
    let (all, modules) = (into.join("all"), into.join("modules/lib/modules"));
    for package in packages {
        let archive = cache.path().join(&package.file);
        tool("dpkg-deb", &["--extract", &archive.to_string_lossy(), &all.to_string_lossy()])?;
    }
    let all_text = all.to_string_lossy().into_owned();
    let find = |test: &[&str]| tool("find", &[&[all_text.as_str()], test].concat());
    let image = find(&["-name", "vmlinuz*"])?;
    fs::rename(image.trim(), into.join("vmlinuz")).context("the packages hold no vmlinuz")?;
    let tree = find(&["-path", "*/lib/modules/*", "-prune", "-type", "d"])?;
    let Some(tree) = tree.lines().next().map(Path::new) else { bail!("the packages hold no modules") };
    fs::create_dir_all(&modules)?;
    let version = tree.file_name().context("modules without a version")?;
    let tree_text = tree.to_string_lossy().into_owned();
    let unwanted = [&["!"], &MODULES.split_whitespace().collect::<Vec<_>>()[..]].concat();
    tool("find", &[&[tree_text.as_str(), "-name", "*.ko*"], &unwanted[..], &["-delete"]].concat())?;
    // Time in a guest is dear: there is nothing left to decompress there.
    tool("find", &[&tree_text, "-name", "*.ko.xz", "-exec", "xz", "--decompress", "{}", "+"])?;
    fs::rename(tree, modules.join(version))?;
    fs::remove_dir_all(&all)?;
    let base = into.join("modules");
    tool("depmod", &["-b", &base.to_string_lossy(), &version.to_string_lossy()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Package;

    #[test]
    fn a_line_of_apt_names_the_package_its_version_and_its_checksum() {
        let line = "'http://archive/pool/linux-image-6.12.117%2bdeb12.deb' \
                    linux-image-6.12.117+deb12-cloud-amd64_6.12.117-1~deb12u1_amd64.deb 34307256 SHA256:5195b2";
        let package = Package::of(line).expect("it is understood");
        assert_eq!(package.name, "linux-image-6.12.117+deb12-cloud-amd64=6.12.117-1~deb12u1");
        assert_eq!((package.size, package.sha256.as_str()), (34_307_256, "5195b2"));
        assert!(Package::of("'http://archive/x.deb' x_1_amd64.deb 5 MD5Sum:00").is_none());
    }
}
