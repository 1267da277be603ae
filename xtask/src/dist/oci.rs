//! `cargo xtask oci`: an OCI image of the static programs, for hosts of containers. The image has nothing else: no
//! shell, no libraries.

use super::tree::{Contents, tar};
use crate::{arch::Arch, tool::tool_in};
use anyhow::Context;
use serde_json::{Value, json};
use shunt_testkit::tree::target;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Build an OCI image for an architecture in target/oci: `podman load -i FILE`, `docker load -i FILE`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Architecture: amd64, arm64 or armv7.
    #[arg(default_value = "amd64")]
    arch: String,
}

const NAME: &str = "shunt";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Directories that the programs write to. A person mounts the host's there.
const MOUNT_POINTS: [&str; 3] = ["run/shunt", "var/lib/shunt", "tmp"];

/// Builds the programs and the image.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let manual = tempfile::tempdir()?;
    let contents = Contents::build(Arch::named(&options.arch)?, manual.path())?;
    println!("{}", pack(&contents, &target().join("oci"))?.display());
    Ok(())
}

/// Writes the image into a directory and returns its path. Equal contents make equal images, byte for byte.
fn pack(contents: &Contents<'_>, into: &Path) -> anyhow::Result<PathBuf> {
    let (scratch, tree) = contents.lay_out()?;
    for path in MOUNT_POINTS {
        fs::create_dir_all(tree.0.join(path))?;
    }
    let image = Layout { root: scratch.path().join("image") };
    fs::create_dir_all(image.root.join("blobs/sha256"))?;
    let layer = scratch.path().join("layer.tar");
    tar(&tree.0, &["."], &contents.date, &layer)?;
    let unpacked = sha256(&layer)?;
    tool_in(scratch.path(), "gzip", &["--no-name", "-9", "layer.tar"])?;
    let layer = image.add(LAYER, &fs::read(scratch.path().join("layer.tar.gz"))?)?;
    let config = image.add_json(CONFIG, &config(contents.arch, &unpacked))?;
    // Docker reads this file, unless containerd keeps its images; others read index.json.
    let of_docker = json!([{"Config": blob(&config), "RepoTags": [tag()], "Layers": [blob(&layer)]}]);
    fs::write(image.root.join("manifest.json"), of_docker.to_string())?;
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let mut manifest = image.add_json(MANIFEST, &manifest)?;
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": tag(),
        "io.containerd.image.name": format!("docker.io/library/{}", tag()),
    });
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(image.root.join("index.json"), index.to_string())?;
    fs::write(image.root.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    fs::create_dir_all(into).with_context(|| into.display().to_string())?;
    let file = into.join(format!("{NAME}-{}-{}.oci.tar", env!("CARGO_PKG_VERSION"), contents.arch.name));
    tar(&image.root, &["."], &contents.date, &file)?;
    Ok(file)
}

/// The path of a blob in the image, from its descriptor.
fn blob(descriptor: &Value) -> String {
    let digest = descriptor["digest"].as_str().unwrap_or_default();
    format!("blobs/{}", digest.replace(':', "/"))
}

fn tag() -> String {
    format!("{NAME}:{}", env!("CARGO_PKG_VERSION"))
}

/// How a container of the image starts: the daemon, on the ports that it finds.
fn config(arch: &Arch, layer: &str) -> Value {
    let (architecture, variant) = match arch.debian {
        "armhf" => ("arm", Some("v7")),
        name => (name, None),
    };
    let mut config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/shuntd"],
            "Labels": {
                "org.opencontainers.image.title": "Shunt",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
    });
    if let Some(variant) = variant {
        config["variant"] = variant.into();
    }
    config
}

/// The directory of an image, as the OCI image layout has it.
struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Adds a blob and returns its descriptor.
    fn add(&self, media_type: &str, bytes: &[u8]) -> anyhow::Result<Value> {
        let new = self.root.join("blobs/sha256/new");
        fs::write(&new, bytes)?;
        let digest = sha256(&new)?;
        fs::rename(&new, new.with_file_name(&digest))?;
        Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
    }

    fn add_json(&self, media_type: &str, value: &Value) -> anyhow::Result<Value> {
        self.add(media_type, value.to_string().as_bytes())
    }
}

fn sha256(file: &Path) -> anyhow::Result<String> {
    let sum = tool_in(Path::new("."), "sha256sum", &[&file.to_string_lossy()])?;
    Ok(sum.split_whitespace().next().context("sha256sum printed nothing")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tool;

    #[test]
    fn docker_finds_the_configuration_and_the_layer_by_its_own_manifest() {
        let directory = tempfile::tempdir().expect("a directory");
        let image = pack(&Contents::stand_in(directory.path()), directory.path()).expect("an image");
        let image = image.to_string_lossy();
        let read = |path: &str| tool("tar", &["-xOf", &image, &format!("./{path}")]).expect("a file");
        let manifest: Value = serde_json::from_str(&read("manifest.json")).expect("JSON");
        assert_eq!(manifest[0]["RepoTags"], json!([tag()]));
        let config = manifest[0]["Config"].as_str().expect("a path");
        let config: Value = serde_json::from_str(&read(config)).expect("JSON");
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/shuntd"]));
        let layer = manifest[0]["Layers"][0].as_str().expect("a path");
        let files = tool("tar", &["-tf", &image]).expect("a list");
        assert!(files.lines().any(|file| file == format!("./{layer}")), "{layer}\n{files}");
    }
}
