//! An image in a tar file: as `docker save` and OCI layouts have it, or a root file system as of `docker export`.

mod members;
mod tree;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tar::EntryType;

use self::members::{Member, Members};
use self::tree::{Entry, MAX_LEAVES, Tree};
use crate::files::{FileError, FileFacts, ImageFiles};

/// Bytes of a manifest.
const MAX_MANIFEST: u64 = 4 << 20;
/// Steps from an index to a manifest.
const MAX_INDEXES: usize = 4;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Prefix of the names of files that remove one of a lower layer.
const WHITEOUT: &str = ".wh.";
/// The name of the file that removes all of its folder from the lower layers.
const OPAQUE: &str = ".wh..wh..opq";
/// Names of files that a check asks for, and to which a link of such a name may lead.
const NAMES: [&str; 12] = [
    "libtaskd.so",
    "libmspti.so",
    "libc.so.6",
    "sh",
    "bash",
    "dash",
    "ash",
    "busybox",
    "ksh",
    "mksh",
    "zsh",
    "run.py",
];

/// The files of an image in a tar file.
#[derive(Debug)]
pub struct Archive(Tree);

/// Why an image can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The tar file is compressed as a whole.
    #[error("the tar file itself is compressed; decompress it first, with gunzip or zstd -d")]
    Compressed,
    #[error("a layer is compressed with zstd; save the image with gzip or uncompressed layers")]
    Zstd,
    /// A file that the image's manifest names isn't in the tar file.
    #[error("{0} isn't in the tar file, which may be cut")]
    Missing(String),
    #[error("{0} isn't as docker or OCI write it: {1}")]
    Manifest(String, serde_json::Error),
    #[error("{0} is larger than a manifest may be")]
    ManifestTooLarge(String),
    #[error("the tar file has {0} images; save one of them")]
    SeveralImages(usize),
    /// There is no manifest with layers.
    #[error("the image has no layers for {0}")]
    NoManifest(&'static str),
    #[error("the image has more than {MAX_LEAVES} links and files of interest")]
    TooLarge,
}

/// An entry of `manifest.json` of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    layers: Vec<String>,
}

/// An OCI index or manifest.
#[derive(Deserialize)]
struct OciManifest {
    manifests: Option<Vec<Descriptor>>,
    layers: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

impl Archive {
    /// Reads an image's tar file.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let mut tar = Tar::open(path)?;
        let mut tree = Tree::new();
        if let Some(layers) = tar.layers()? {
            for layer in layers {
                tar.add_layer(&layer, &mut tree)?;
            }
        } else {
            tar.file.rewind()?;
            add_layer(BufReader::new(&mut tar.file), &mut tree)?;
        }
        Ok(Self(tree))
    }
}

impl ImageFiles for Archive {
    fn list(&self, path: &str) -> Result<Vec<String>, FileError> {
        self.0.list(path)
    }

    fn folders(&self, path: &str) -> Result<Vec<String>, FileError> {
        self.0.folders(path)
    }

    fn file(&self, path: &str) -> Result<Option<FileFacts>, FileError> {
        self.0.file(path)
    }

    fn is_link(&self, path: &str) -> Result<bool, FileError> {
        self.0.is_link(path)
    }
}

/// A tar file, with the places of the files that may belong to the image's description or be its layers.
struct Tar {
    file: File,
    places: HashMap<String, Place>,
}

enum Place {
    /// Offset and length.
    Content(u64, u64),
    Link(String),
}

impl Tar {
    fn open(path: &Path) -> Result<Self, ArchiveError> {
        let mut file = File::open(path)?;
        let mut magic = [0; 4];
        let length = file.read(&mut magic)?;
        if magic.starts_with(GZIP) || (length == 4 && magic == ZSTD) {
            return Err(ArchiveError::Compressed);
        }
        file.rewind()?;
        let mut places = HashMap::new();
        let skip =
            |file: &mut BufReader<_>, length: u64| file.seek_relative(length.try_into().unwrap_or(i64::MAX));
        let mut members = Members::with_skip(BufReader::new(&mut file), skip);
        while let Some(Member { path, link, kind, size, offset, .. }) = members.next()? {
            let path = path.trim_start_matches("./").to_owned();
            // Layers and manifests are at most two folders deep; a root file system has more files than an image.
            if path.matches('/').count() > 2 || places.len() >= MAX_LEAVES {
                continue;
            }
            match kind {
                EntryType::Regular | EntryType::Continuous => {
                    places.insert(path, Place::Content(offset, size))
                }
                EntryType::Symlink => {
                    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let target = joined(folder, &link);
                    places.insert(path, Place::Link(target))
                }
                EntryType::Link => places.insert(path, Place::Link(link)),
                _ => None,
            };
        }
        Ok(Self { file, places })
    }

    /// The names of the layers, the lowest first; `None` if the tar file is a root file system.
    fn layers(&mut self) -> Result<Option<Vec<String>>, ArchiveError> {
        if self.places.contains_key("manifest.json") {
            let mut images: Vec<DockerImage> = self.json("manifest.json")?;
            return match (images.pop(), images.len()) {
                (Some(image), 0) => Ok(Some(image.layers)),
                (None, _) => Err(ArchiveError::NoManifest("any image")),
                (Some(_), others) => Err(ArchiveError::SeveralImages(others + 1)),
            };
        }
        if !self.places.contains_key("index.json") {
            return Ok(None);
        }
        let mut name = "index.json".to_owned();
        for _ in 0..MAX_INDEXES {
            let manifest: OciManifest = self.json(&name)?;
            if let Some(layers) = manifest.layers {
                return Ok(Some(layers.into_iter().map(|layer| blob(&layer.digest)).collect()));
            }
            name = blob(&choose(manifest.manifests.unwrap_or_default())?.digest);
        }
        Err(ArchiveError::NoManifest("any platform"))
    }

    fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ArchiveError> {
        let (content, length) = self.content(name)?;
        if length > MAX_MANIFEST {
            return Err(ArchiveError::ManifestTooLarge(name.to_owned()));
        }
        serde_json::from_reader(content).map_err(|error| ArchiveError::Manifest(name.to_owned(), error))
    }

    fn add_layer(&mut self, name: &str, tree: &mut Tree) -> Result<(), ArchiveError> {
        let (content, _) = self.content(name)?;
        let mut content = BufReader::new(content);
        let head = io::BufRead::fill_buf(&mut content)?;
        if head.starts_with(ZSTD) {
            Err(ArchiveError::Zstd)
        } else if head.starts_with(GZIP) {
            add_layer(MultiGzDecoder::new(content), tree)
        } else {
            add_layer(content, tree)
        }
    }

    /// A file of the tar file, and its length.
    fn content(&mut self, name: &str) -> Result<(impl Read + '_, u64), ArchiveError> {
        let mut place = self.places.get(name);
        // `docker save` links layers that images share.
        if let Some(Place::Link(target)) = place {
            place = self.places.get(target);
        }
        let Some(&Place::Content(offset, length)) = place else {
            return Err(ArchiveError::Missing(name.to_owned()));
        };
        self.file.seek(SeekFrom::Start(offset))?;
        Ok(((&mut self.file).take(length), length))
    }
}

/// The manifest for this machine's processor, else the first one for Linux.
fn choose(mut manifests: Vec<Descriptor>) -> Result<Descriptor, ArchiveError> {
    const HOST: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let is = |descriptor: &Descriptor, host: bool| {
        let platform = descriptor.platform.as_ref();
        platform.is_none_or(|it| it.os == "linux" && (!host || it.architecture == HOST))
    };
    let index = manifests.iter().position(|descriptor| is(descriptor, true));
    let index = index.or_else(|| manifests.iter().position(|descriptor| is(descriptor, false)));
    index.map(|index| manifests.swap_remove(index)).ok_or(ArchiveError::NoManifest("Linux"))
}

/// The name of a blob in an OCI layout.
fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

/// `target` seen from `folder`, both relative to the root.
fn joined(folder: &str, target: &str) -> String {
    let mut path: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                path.pop();
            }
            name => path.push(name),
        }
    }
    path.join("/")
}

fn add_layer(content: impl Read, tree: &mut Tree) -> Result<(), ArchiveError> {
    let mut members = Members::new(content);
    tree.begin_layer();
    while let Some(Member { path, link, kind, mode, .. }) = members.next()? {
        let path = path.trim_start_matches("./");
        let (folder, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        if name == OPAQUE {
            tree.empty_lower(folder);
        } else if let Some(removed) = name.strip_prefix(WHITEOUT) {
            tree.remove_lower(&format!("{folder}/{removed}"));
        } else {
            let entry = match kind {
                EntryType::Directory => Entry::Folder,
                EntryType::Symlink => Entry::Link(link),
                EntryType::Link if is_asked_for(path) => Entry::HardLink(link),
                EntryType::Regular | EntryType::Continuous if is_asked_for(path) => {
                    let name = if is_libc(name) { "libc.so.6" } else { name };
                    Entry::File(FileFacts::read(name, mode, members.content())?)
                }
                _ => Entry::Other,
            };
            tree.add(path, entry);
        }
        if tree.is_full() {
            return Err(ArchiveError::TooLarge);
        }
    }
    Ok(())
}

/// Whether a check may ask for the file at a path.
fn is_asked_for(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_package = |package: &str| path.split('/').any(|part| part == package);
    NAMES.contains(&name)
        || is_libc(name)
        || name.starts_with("ld-musl-")
        || is_package("taskd")
        || is_package("mindio_ttp")
        || path.contains(".dist-info/")
}

/// Whether a name is one of glibc's C library, to which `libc.so.6` leads in older releases.
fn is_libc(name: &str) -> bool {
    name == "libc.so.6" || (name.starts_with("libc-2.") && name.strip_suffix(".so").is_some())
}
