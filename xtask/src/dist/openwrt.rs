//! `cargo xtask openwrt`: packages of the program for small routers for OpenWrt: an ipk for opkg, and an apk for apk 3.

use super::{
    licences, musl, router,
    tree::{Tree, read, source_date, tar, version},
};
use crate::{arch::Arch, tool::tool_in};
use anyhow::{Context, ensure};
use shunt_testkit::tree::{root, target};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Build packages for OpenWrt in target/openwrt.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Architecture: amd64, arm64 or armv7.
    #[arg(default_value = "arm64")]
    arch: String,
}

/// The parts of an ipk.
const PARTS: [&str; 3] = ["./debian-binary", "./data.tar.gz", "./control.tar.gz"];
/// Files whose changes an upgrade keeps.
const CONFFILES: &str = "/etc/config/shunt\n";
const SCRIPTS: [&str; 3] = ["preinst", "postinst", "prerm"];
/// Scripts of an apk, and those of an ipk that do their work.
const APK_SCRIPTS: [(&str, &str, &str); 5] = [
    ("pre-install", "preinst", ""),
    ("post-install", "postinst", ""),
    ("pre-upgrade", "preinst", ""),
    ("post-upgrade", "postinst", "export PKG_UPGRADE=1\n"),
    ("pre-deinstall", "prerm", ""),
];

/// Builds the program and the packages.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let arch = Arch::named(&options.arch)?;
    let package = Package { arch, program: router::program(arch)?, date: source_date()? };
    let into = target().join("openwrt");
    println!("{}", package.ipk(&into)?.display());
    // A router has no room for them; who passes a package on adds them.
    let licences = into.join(format!("shunt_{}_{}.licences", version(), arch.name));
    fs::write(&licences, format!("{}\n{}", licences::of_crates(arch)?, musl::licence(arch)?))?;
    println!("{}", licences.display());
    match apk_program() {
        Some(apk) => println!("{}", package.apk(&apk, &into)?.display()),
        None => eprintln!(
            "SKIP the apk: no apk 3 (https://gitlab.alpinelinux.org/alpine/apk-tools) in PATH; APK names its path"
        ),
    }
    Ok(())
}

/// What the packages are made of, besides packaging/openwrt.
struct Package<'a> {
    arch: &'a Arch,
    program: PathBuf,
    /// SOURCE_DATE_EPOCH: the time stamp of all files, in seconds since 1970.
    date: String,
}

impl Package<'_> {
    /// Writes the ipk into a directory and returns its path. Equal contents make equal packages, byte for byte.
    fn ipk(&self, into: &Path) -> anyhow::Result<PathBuf> {
        let scratch = tempfile::tempdir()?;
        let (data, control) = (Tree(scratch.path().join("data")), Tree(scratch.path().join("control")));
        self.lay_out(&data)?;
        control.put("control", self.control(&data)?.as_bytes(), 0o644)?;
        control.put("conffiles", CONFFILES.as_bytes(), 0o644)?;
        for name in SCRIPTS {
            control.put(name, self.script(name)?.as_bytes(), 0o755)?;
        }
        fs::write(scratch.path().join("debian-binary"), "2.0\n")?;
        for part in ["data", "control"] {
            let archive = format!("{part}.tar");
            tar(&scratch.path().join(part), &["."], &self.date, &scratch.path().join(&archive))?;
            tool_in(scratch.path(), "gzip", &["--no-name", "-9", &archive])?;
        }
        tar(scratch.path(), &PARTS, &self.date, &scratch.path().join("ipk"))?;
        tool_in(scratch.path(), "gzip", &["--no-name", "-9", "ipk"])?;
        let package = into.join(format!("shunt_{}_{}.ipk", version(), self.arch.name));
        fs::create_dir_all(into).with_context(|| into.display().to_string())?;
        fs::copy(scratch.path().join("ipk.gz"), &package)?;
        Ok(package)
    }

    /// Has apk write its package into a directory; returns the path.
    fn apk(&self, apk: &Path, into: &Path) -> anyhow::Result<PathBuf> {
        let scratch = tempfile::tempdir()?;
        let tree = Tree(scratch.path().join("data"));
        self.lay_out(&tree)?;
        // OpenWrt's own tools look here.
        let listed: Vec<String> = tree.files()?.iter().map(|path| format!("/{path}\n")).collect();
        tree.put("lib/apk/packages/shunt.list", listed.concat().as_bytes(), 0o644)?;
        tree.put("lib/apk/packages/shunt.conffiles", CONFFILES.as_bytes(), 0o644)?;
        let control = self.control(&tree)?;
        let field = |name: &str| {
            let line = control.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.with_context(|| format!("packaging/openwrt/control has no {name}")).map(str::to_owned)
        };
        let package = into.join(format!("shunt-{}-r1_{}.apk", version(), self.arch.name));
        fs::create_dir_all(into).with_context(|| into.display().to_string())?;
        let mut command = Command::new(apk);
        command.arg("mkpkg").env("SOURCE_DATE_EPOCH", &self.date);
        for (name, value) in [
            ("name", "shunt".to_owned()),
            ("version", format!("{}-r1", version())),
            ("description", field("Description")?),
            ("arch", "noarch".to_owned()),
            ("license", field("License")?),
            ("origin", "shunt".to_owned()),
            ("maintainer", field("Maintainer")?),
            ("depends", field("Depends")?.replace(',', "")),
        ] {
            command.args(["--info", &format!("{name}:{value}")]);
        }
        for (name, of, before) in APK_SCRIPTS {
            let path = scratch.path().join(name);
            fs::write(&path, self.script(of)?.replacen("#!/bin/sh\n", &format!("#!/bin/sh\n{before}"), 1))?;
            command.args(["--script", &format!("{name}:{}", path.display())]);
        }
        command.arg("--files").arg(&tree.0).arg("--output").arg(&package);
        let output = command.output().with_context(|| apk.display().to_string())?;
        ensure!(output.status.success(), "apk mkpkg: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(package)
    }

    /// Lays out what the package installs.
    fn lay_out(&self, tree: &Tree) -> anyhow::Result<()> {
        tree.put("usr/sbin/shunt", &read(&self.program)?, 0o755)?;
        tree.link("usr/sbin/shuntd", "shunt")?;
        let files = Tree(root().join("packaging/openwrt/files"));
        for path in files.files()? {
            let mode = if is_program(&path) { 0o755 } else { 0o644 };
            // It may name a token's file, and is as OpenWrt's others: for root.
            let mode = if path == "etc/config/shunt" { 0o600 } else { mode };
            tree.put(&path, &read(&files.0.join(&path))?, mode)?;
        }
        Ok(())
    }

    fn control(&self, tree: &Tree) -> anyhow::Result<String> {
        let mut bytes = 0;
        for file in tree.files()? {
            bytes += fs::symlink_metadata(tree.0.join(file))?.len();
        }
        let text = fs::read_to_string(root().join("packaging/openwrt/control"))?;
        Ok(text.replace("@VERSION@", &version()).replace("@SIZE@", &bytes.to_string()))
    }

    fn script(&self, name: &str) -> anyhow::Result<String> {
        let text = fs::read_to_string(root().join("packaging/openwrt").join(name))?;
        Ok(text.replace("@MACHINES@", self.arch.machines()))
    }
}

fn is_program(path: &str) -> bool {
    ["etc/init.d/", "etc/hotplug.d/", "usr/libexec/"].iter().any(|place| path.starts_with(place))
}

/// apk of version 3: that which APK names, or in PATH. Older ones cannot make packages.
fn apk_program() -> Option<PathBuf> {
    let path = env::var_os("APK").map_or_else(|| PathBuf::from("apk"), PathBuf::from);
    let output = Command::new(&path).arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).starts_with("apk-tools 3").then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arch::ARM64, tool::tool};

    fn packed(into: &Path) -> PathBuf {
        let program = into.join("program");
        fs::write(&program, "a program").expect("a file");
        Package { arch: &ARM64, program, date: "1700000000".to_owned() }.ipk(into).expect("a package")
    }

    #[test]
    fn equal_contents_make_equal_packages() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let [one, other] = [one.path(), other.path()].map(packed);
        assert!(fs::read(one).expect("a package") == fs::read(other).expect("a package"));
    }

    #[test]
    fn the_package_has_every_file_with_its_mode_and_the_scripts_are_for_its_cpu() {
        let directory = tempfile::tempdir().expect("a directory");
        let package = packed(directory.path());
        let at = |part: &str| directory.path().join(part).to_string_lossy().into_owned();
        tool("tar", &["-xzf", &package.to_string_lossy(), "-C", &at("")]).expect("three parts");
        let listed = tool("tar", &["-tvzf", &at("data.tar.gz")]).expect("a list");
        for (mode, path) in [
            ("-rwxr-xr-x 0/0", "./usr/sbin/shunt"),
            ("lrwxrwxrwx 0/0", "./usr/sbin/shuntd -> shunt"),
            ("-rwxr-xr-x 0/0", "./etc/init.d/shunt"),
            ("-rwxr-xr-x 0/0", "./etc/hotplug.d/iface/90-shunt"),
            ("-rwxr-xr-x 0/0", "./usr/libexec/shunt/configure"),
            ("-rw------- 0/0", "./etc/config/shunt"),
            ("-rw-r--r-- 0/0", "./lib/upgrade/keep.d/shunt"),
            ("drwxr-xr-x 0/0", "./etc/"),
        ] {
            let is_it = |line: &str| line.starts_with(mode) && line.ends_with(&format!(" {path}"));
            assert!(listed.lines().any(is_it), "{mode} {path}\n{listed}");
        }
        let control = |file: &str| tool("tar", &["-xOzf", &at("control.tar.gz"), file]).expect("a file");
        assert_eq!(control("./conffiles"), CONFFILES);
        assert!(control("./control").contains(&format!("Version: {}\n", version())));
        assert!(control("./preinst").contains("\" aarch64 \""), "{}", control("./preinst"));
        assert!(!control("./control").contains("@SIZE@"), "{}", control("./control"));
    }

    /// Which kind of value the script takes for each key.
    #[test]
    fn options_of_uci_are_the_keys_of_the_configuration() {
        let script = fs::read_to_string(root().join("packaging/openwrt/files/usr/libexec/shunt/configure"));
        let script = script.expect("the script").replace("\\\n", "");
        let after = script.split_once("\nwrite_option() {\n").expect("the function").1;
        let cases: Vec<Vec<&str>> = after
            .lines()
            .filter_map(|line| line.trim().split_once(')'))
            .map(|(keys, _)| keys.split('|').map(str::trim).collect())
            .collect();
        let default = fs::read_to_string(root().join("packaging/shunt.toml")).expect("the file");
        let keys =
            default.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
        for (key, value) in keys {
            let like = match (value.parse::<u64>().is_ok() || key == "external_core", value) {
                (true, _) => "max_flows",
                (_, "true" | "false") => "learn",
                (_, "[]") => "ports",
                _ => "engine",
            };
            let case = cases.iter().find(|case| case.contains(&key));
            let case = case.unwrap_or_else(|| panic!("{key} is not an option of /etc/config/shunt"));
            assert!(case.contains(&like), "{key} is not read as {like}: {case:?}");
        }
    }
}
