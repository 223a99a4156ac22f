//! The files of all layers of an image, as far as a check asks for them.

use std::collections::{BTreeMap, VecDeque};

use crate::files::{FileError, FileFacts, ImageFiles};

/// As in Linux.
const MAX_LINKS: u32 = 40;
/// Links and files of interest, some 100 bytes each.
pub(super) const MAX_LEAVES: usize = 500_000;

#[derive(Debug)]
enum Node {
    Folder(BTreeMap<String, Node>),
    /// With the number of its layer.
    Leaf(u32, Leaf),
}

#[derive(Debug, Clone)]
enum Leaf {
    File(FileFacts),
    Link(String),
}

/// A member of a layer.
#[derive(Debug)]
pub(super) enum Entry {
    Folder,
    File(FileFacts),
    Link(String),
    /// Another name of the file at this path.
    HardLink(String),
    /// A file that no check asks for.
    Other,
}

/// The root of an image, of which layers are added from the lowest on.
#[derive(Debug)]
pub(super) struct Tree {
    root: Node,
    layer: u32,
    leaves: usize,
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self { root: Node::Folder(BTreeMap::new()), layer: 0, leaves: 0 }
    }

    /// What is added from now on belongs to the next layer.
    pub(super) const fn begin_layer(&mut self) {
        self.layer += 1;
    }

    /// Whether more was added than should be kept.
    pub(super) const fn is_full(&self) -> bool {
        self.leaves > MAX_LEAVES
    }

    /// Removes a path of the lower layers.
    pub(super) fn remove_lower(&mut self, path: &str) {
        let layer = self.layer;
        self.prune(path, |at| at < layer);
    }

    /// Removes the content of a folder of the lower layers.
    pub(super) fn empty_lower(&mut self, path: &str) {
        let layer = self.layer;
        if let Some(Node::Folder(children)) = self.get_mut(path) {
            children.retain(|_, node| !node.prune(&|at| at < layer));
        }
    }

    pub(super) fn add(&mut self, path: &str, entry: Entry) {
        let leaf = match entry {
            Entry::Folder => {
                if self.get_mut(path).is_some_and(|node| matches!(node, Node::Leaf(..))) {
                    self.prune(path, |_| true);
                }
                return;
            }
            Entry::Other => {
                self.prune(path, |_| true);
                return;
            }
            Entry::File(facts) => Leaf::File(facts),
            Entry::Link(target) => Leaf::Link(target),
            Entry::HardLink(target) => match self.get_mut(&target) {
                Some(Node::Leaf(_, leaf)) => leaf.clone(),
                _ => Leaf::File(FileFacts::default()),
            },
        };
        self.leaves += 1;
        let mut node = &mut self.root;
        for name in names(path) {
            if !matches!(node, Node::Folder(_)) {
                *node = Node::Folder(BTreeMap::new());
            }
            let Node::Folder(children) = node else { return };
            node = children.entry(name.to_owned()).or_insert_with(|| Node::Folder(BTreeMap::new()));
        }
        *node = Node::Leaf(self.layer, leaf);
    }

    /// Removes the leaves at or below a path that are of the layers `is_removed`.
    fn prune(&mut self, path: &str, is_removed: impl Fn(u32) -> bool) {
        let (parent, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        if let Some(Node::Folder(children)) = self.get_mut(parent)
            && children.get_mut(name).is_some_and(|node| node.prune(&is_removed))
        {
            children.remove(name);
        }
    }

    /// The node at a path whose folders aren't links.
    fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        names(path).try_fold(&mut self.root, |node, name| match node {
            Node::Folder(children) => children.get_mut(name),
            Node::Leaf(..) => None,
        })
    }

    fn get(&self, names: &[String]) -> Option<&Node> {
        names.iter().try_fold(&self.root, |node, name| match node {
            Node::Folder(children) => children.get(name),
            Node::Leaf(..) => None,
        })
    }

    /// The node at a path, with links resolved in the root; a link in the last place is followed if `follow`.
    fn resolve(&self, path: &str, follow: bool) -> Option<&Node> {
        let mut pending: VecDeque<String> = names(path).map(str::to_owned).collect();
        let mut resolved: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            if name == ".." {
                resolved.pop();
                continue;
            }
            resolved.push(name);
            let node = self.get(&resolved)?;
            if let Node::Leaf(_, Leaf::Link(target)) = node
                && (follow || !pending.is_empty())
            {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                if target.starts_with('/') {
                    resolved.clear();
                } else {
                    resolved.pop();
                }
                for name in names(target).collect::<Vec<_>>().into_iter().rev() {
                    pending.push_front(name.to_owned());
                }
            }
        }
        self.get(&resolved)
    }
}

impl Node {
    /// Removes the leaves of the layers `is_removed`; returns whether nothing is left.
    fn prune(&mut self, is_removed: &impl Fn(u32) -> bool) -> bool {
        match self {
            Self::Leaf(layer, _) => is_removed(*layer),
            Self::Folder(children) => {
                children.retain(|_, node| !node.prune(is_removed));
                children.is_empty()
            }
        }
    }
}

/// The names in a path.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

impl ImageFiles for Tree {
    fn list(&self, path: &str) -> Result<Vec<String>, FileError> {
        let Some(Node::Folder(children)) = self.resolve(path, true) else { return Ok(Vec::new()) };
        Ok(children.keys().cloned().collect())
    }

    fn folders(&self, path: &str) -> Result<Vec<String>, FileError> {
        let Some(Node::Folder(children)) = self.resolve(path, true) else { return Ok(Vec::new()) };
        let folders = children.iter().filter(|(_, node)| matches!(node, Node::Folder(_)));
        Ok(folders.map(|(name, _)| name.clone()).collect())
    }

    fn file(&self, path: &str) -> Result<Option<FileFacts>, FileError> {
        match self.resolve(path, true) {
            Some(Node::Leaf(_, Leaf::File(facts))) => Ok(Some(facts.clone())),
            _ => Ok(None),
        }
    }

    fn is_link(&self, path: &str) -> Result<bool, FileError> {
        Ok(matches!(self.resolve(path, false), Some(Node::Leaf(_, Leaf::Link(_)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Entry {
        Entry::File(FileFacts { is_executable: true, ..FileFacts::default() })
    }

    fn tree(entries: Vec<(&str, Entry)>) -> Tree {
        let mut tree = Tree::new();
        for (path, entry) in entries {
            tree.add(path, entry);
        }
        tree
    }

    fn has(tree: &Tree, path: &str) -> bool {
        tree.file(path).expect("in memory").is_some()
    }

    #[test]
    fn links_are_resolved_in_the_root() {
        let link = |target: &str| Entry::Link(target.to_owned());
        let tree = tree(vec![
            ("usr/bin/dash", file()),
            ("bin", link("usr/bin")),
            ("usr/bin/sh", link("dash")),
            ("usr/bin/up", link("../../../../usr/bin/./dash")),
            ("opt/cann", link("/usr/bin")),
            ("loop", link("loop")),
            ("usr/bin/ash", Entry::HardLink("/usr/bin/dash".to_owned())),
        ]);
        for path in ["/bin/sh", "/usr/bin/up", "/opt/cann/sh", "/bin/ash"] {
            assert!(has(&tree, path), "{path}");
        }
        for path in ["/loop", "/bin", "/nowhere/sh"] {
            assert!(!has(&tree, path), "{path}");
        }
        assert!(
            tree.is_link("/usr/bin/sh").expect("in memory") && !tree.is_link("/bin/dash").expect("in memory")
        );
        assert_eq!(tree.list("/opt/cann").expect("in memory"), ["ash", "dash", "sh", "up"]);
    }

    #[test]
    fn upper_layer_removes_and_replaces() {
        let mut tree = tree(vec![("a/b/sh", file()), ("c/sh", file()), ("d", file()), ("e/f/sh", file())]);
        tree.begin_layer();
        // The order in a layer doesn't matter.
        tree.add("a/b/dash", file());
        tree.add("e/bash", file());
        tree.remove_lower("a/b");
        tree.empty_lower("e");
        tree.add("c", Entry::Link("/a/b".to_owned()));
        tree.add("d", Entry::Folder);
        for path in ["/a/b/dash", "/c/dash", "/e/bash"] {
            assert!(has(&tree, path), "{path}");
        }
        for path in ["/a/b/sh", "/c/sh", "/d", "/e/f/sh"] {
            assert!(!has(&tree, path), "{path}");
        }
    }
}
