//! Finds Python's site directories and CANN in an image.

use swansong_api::preload::{LIBMSPTI_PATHS, LIBTASKD_IN_SITE, SITE_PATTERNS};

use crate::files::{FileError, ImageFiles};

/// Folders that are opened in a search of the whole image.
const MAX_FOLDERS: usize = 200_000;
/// Below them are the kernel's file systems, not the image's files.
const NOT_OF_THE_IMAGE: [&str; 3] = ["/proc", "/sys", "/dev"];

/// How far to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// The usual places, in milliseconds.
    UsualPlaces,
    /// The whole image if the usual places don't have TaskD.
    Whole,
}

/// Where an image has what a dump needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The site directories with TaskD; more than one is a reason for a warning.
    pub taskd_sites: Vec<String>,
    /// All site directories of the usual places, those with TaskD first.
    pub sites: Vec<String>,
    pub libmspti: Option<String>,
    /// Whether the search ended before it saw the whole image.
    pub is_incomplete: bool,
}

impl Found {
    /// Searches an image.
    pub fn search(files: &dyn ImageFiles, search: Search) -> Result<Self, FileError> {
        let mut found = Self::default();
        for pattern in SITE_PATTERNS {
            for path in matches(files, pattern)? {
                if !found.sites.contains(&path) {
                    found.sites.push(path);
                }
            }
        }
        for site in &found.sites {
            if has_taskd(files, site)? {
                found.taskd_sites.push(site.clone());
            }
        }
        if found.taskd_sites.is_empty() && search == Search::Whole {
            found.walk(files)?;
        }
        found.sites.retain(|site| !found.taskd_sites.contains(site));
        found.sites.splice(0..0, found.taskd_sites.iter().cloned());
        for pattern in LIBMSPTI_PATHS {
            if found.libmspti.is_none() {
                for path in matches(files, pattern)? {
                    if files.file(&path)?.is_some() {
                        found.libmspti = Some(path);
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Searches all folders for TaskD.
    fn walk(&mut self, files: &dyn ImageFiles) -> Result<(), FileError> {
        let mut queue = vec![String::new()];
        let mut opened = 0;
        while let Some(path) = queue.pop() {
            opened += 1;
            if opened > MAX_FOLDERS {
                self.is_incomplete = true;
                return Ok(());
            }
            let folders = files.folders(if path.is_empty() { "/" } else { &path })?;
            if folders.iter().any(|name| name == "taskd") && has_taskd(files, &path)? {
                self.taskd_sites.push(path.clone());
            }
            let children = folders.iter().map(|name| format!("{path}/{name}"));
            queue.extend(children.filter(|path| !NOT_OF_THE_IMAGE.contains(&path.as_str())));
        }
        self.taskd_sites.sort();
        Ok(())
    }
}

fn has_taskd(files: &dyn ImageFiles, site: &str) -> Result<bool, FileError> {
    Ok(files.file(&format!("{site}/{LIBTASKD_IN_SITE}"))?.is_some()
        || files.file(&format!("{site}/taskd/__init__.py"))?.is_some())
}

/// The paths that match a pattern, in which `*` is any part of a name, as a shell finds them: a leading dot is matched
/// only by a dot.
fn matches(files: &dyn ImageFiles, pattern: &str) -> Result<Vec<String>, FileError> {
    let mut paths = vec![String::new()];
    for part in pattern.split('/').skip(1) {
        let mut next = Vec::new();
        for path in paths {
            let Some((before, after)) = part.split_once('*') else {
                next.push(format!("{path}/{part}"));
                continue;
            };
            let folder = if path.is_empty() { "/" } else { &path };
            let mut names = files.list(folder)?;
            names.sort();
            names.retain(|name| {
                let fits = name.len() >= before.len() + after.len();
                fits && name.starts_with(before)
                    && name.ends_with(after)
                    && !(before.is_empty() && name.starts_with('.'))
            });
            next.extend(names.into_iter().map(|name| format!("{path}/{name}")));
        }
        paths = next;
    }
    // Parts without a pattern weren't compared with the image yet.
    let mut present = Vec::new();
    for path in paths {
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        let folder = if folder.is_empty() { "/" } else { folder };
        if files.list(folder)?.iter().any(|entry| entry == name) {
            present.push(path);
        }
    }
    Ok(present)
}
