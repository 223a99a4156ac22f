//! The image file: an OCI layout in a tar, with the list that older container engines expect.

use std::fmt;
use std::io::{self, Write};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::Header;

use super::Pairs;
use crate::cache::hex;

/// A kind of machine, as images name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// The architecture x86-64.
    Amd64,
    /// AArch64, most machines with Ascend NPUs.
    Arm64,
}

impl Architecture {
    /// That of this program, for images without any program.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };

    /// Folders that the loader of glibc knows without configuration, in Debian's and in others'
    /// way. The first is where libraries go in an image.
    pub(crate) fn library_folders(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &[
                "/usr/lib/x86_64-linux-gnu",
                "/lib/x86_64-linux-gnu",
                "/lib64",
                "/usr/lib64",
                "/lib",
                "/usr/lib",
            ],
            Self::Arm64 => &[
                "/usr/lib/aarch64-linux-gnu",
                "/lib/aarch64-linux-gnu",
                "/lib64",
                "/usr/lib64",
                "/lib",
                "/usr/lib",
            ],
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}

/// What a container of the image starts with.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) entrypoint: Vec<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) env: Pairs,
    pub(crate) labels: Pairs,
    pub(crate) user: String,
}

struct Blob {
    digest: String,
    contents: Vec<u8>,
}

impl Blob {
    fn new(contents: Vec<u8>) -> Self {
        Self { digest: hex(&Sha256::digest(&contents)), contents }
    }

    fn json(value: &Value) -> Self {
        Self::new(value.to_string().into_bytes())
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.contents.len() })
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }
}

/// An image in memory.
pub(crate) struct Image {
    name: String,
    layer: Blob,
    config: Blob,
    manifest: Blob,
    digest: String,
}

impl Image {
    pub(crate) fn new(name: &str, architecture: Architecture, settings: &Settings, layer: Vec<u8>) -> Self {
        let layer = Blob::new(layer);
        let config = Blob::json(&configuration(architecture, settings, &layer));
        let manifest = Blob::json(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
            "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar")],
        }));
        let digest = format!("sha256:{}", manifest.digest);
        Self { name: name.to_owned(), layer, config, manifest, digest }
    }

    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    pub(crate) fn write(&self, output: impl Write) -> io::Result<()> {
        let mut tar = tar::Builder::new(output);
        let mut add = |path: &str, contents: &[u8]| {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(contents.len() as u64);
            tar.append_data(&mut header, path, contents)
        };
        add("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes())?;
        for blob in [&self.config, &self.layer, &self.manifest] {
            add(&blob.path(), &blob.contents)?;
        }
        add("index.json", self.index().to_string().as_bytes())?;
        add("manifest.json", self.docker_list().to_string().as_bytes())?;
        tar.into_inner()?.flush()
    }

    /// The full name is what containerd reads; the tag alone is what the specification says.
    fn index(&self) -> Value {
        let mut manifest = self.manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
        manifest["annotations"] =
            json!({ "io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": self.name });
        json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest] })
    }

    fn docker_list(&self) -> Value {
        json!([{ "Config": self.config.path(), "RepoTags": [self.name], "Layers": [self.layer.path()] }])
    }
}

fn configuration(architecture: Architecture, settings: &Settings, layer: &Blob) -> Value {
    let env: Vec<_> = settings.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut config = json!({ "User": settings.user, "Env": env, "WorkingDir": "/" });
    for (key, words) in [("Entrypoint", &settings.entrypoint), ("Cmd", &settings.arguments)] {
        if !words.is_empty() {
            config[key] = json!(words);
        }
    }
    if !settings.labels.is_empty() {
        config["Labels"] = json!(settings.labels);
    }
    json!({
        "architecture": architecture.to_string(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "testcluster image" }],
    })
}
