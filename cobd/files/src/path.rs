//! Paths of a tree: absolute, name by name, without `.` and `..`.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::disk::is_staged;

/// The kernel's limits for a path and a name.
const MAX_PATH: usize = 4095;
const MAX_NAME: usize = 255;

/// An absolute path on a host, without its first slash. No part is empty, `.` or `..`. Clones share the bytes: users'
/// paths may be long, and a path is in several places of a plan.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Arc<[u8]>);

/// The error for a path that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a valid path of a file tree: {what}")]
pub struct PathError {
    /// The path as written.
    pub path: String,
    /// The reason.
    pub what: &'static str,
}

/// The reason why `.x.cob-new` is refused.
const STAGED: &str = "names `.….cob-new` are reserved for files that COB is still writing";

impl TreePath {
    /// Parses `/etc/motd`.
    ///
    /// # Errors
    /// [`PathError`] tells the reason.
    pub fn new(text: &str) -> Result<Self, PathError> {
        let fail = |what| Err(PathError { path: text.to_owned(), what });
        let Some(rest) = text.strip_prefix('/') else { return fail("it must begin with `/`") };
        if rest.len() > MAX_PATH {
            return fail("it is too long");
        }
        for name in rest.split('/') {
            match name {
                "" => return fail("it has an empty part, or ends with `/`"),
                "." | ".." => return fail("it has a part `.` or `..`"),
                _ if name.len() > MAX_NAME => return fail("a part of it is too long"),
                _ if name.contains('\0') => return fail("it has a NUL in it"),
                _ if is_staged(name.as_bytes()) => return fail(STAGED),
                _ => {}
            }
        }
        Ok(Self(rest.as_bytes().into()))
    }

    /// The path below this one with a name that was read from a folder.
    #[must_use]
    pub fn below(&self, name: &[u8]) -> Self {
        Self([&*self.0, b"/", name].concat().into())
    }

    /// A path whose parts are known to be valid names.
    pub(crate) fn of_bytes(path: &[u8]) -> Self {
        Self(path.into())
    }

    /// Compares part by part, so that the entries of a folder are neighbours. In the order of whole paths `a-b` is
    /// between `a` and `a/b`.
    pub(crate) fn cmp_by_parts(&self, other: &Self) -> Ordering {
        // A slash ends a name, and no name has a NUL.
        let order = |byte: u8| if byte == b'/' { 0 } else { byte };
        match self.0.iter().zip(&*other.0).find(|(a, b)| a != b) {
            None => self.0.len().cmp(&other.0.len()),
            Some((a, b)) => order(*a).cmp(&order(*b)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Its names.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// Its last name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.parts().next_back().unwrap_or_default()
    }

    /// Its parent folder; `None`: the host's root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let at = self.0.iter().rposition(|b| *b == b'/')?;
        Some(Self(self.0[..at].into()))
    }

    /// Another name in the same folder.
    pub(crate) fn beside(&self, name: &[u8]) -> Self {
        self.parent().map_or_else(|| Self::of_bytes(name), |folder| folder.below(name))
    }

    /// All its parent folders, the outermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        self.above().map(Self::of_bytes)
    }

    /// The same as keys for a map, without a copy.
    pub(crate) fn above(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.0.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        ends.map(|at| &self.0[..at])
    }

    /// Whether it is below a folder, at any depth.
    #[must_use]
    pub fn is_below(&self, folder: &Self) -> bool {
        self.0.len() > folder.0.len() && self.0.starts_with(&folder.0) && self.0[folder.0.len()] == b'/'
    }
}

impl Borrow<[u8]> for TreePath {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", String::from_utf8_lossy(&self.0).escape_debug().to_string().replace("\\'", "'"))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_could_lead_elsewhere_is_refused() {
        for good in ["/etc/motd", "/a", "/a/.git/config", "/a/...", "/ü/x y"] {
            assert_eq!(TreePath::new(good).expect(good).to_string(), good);
        }
        for bad in ["", "etc", "/", "/a/", "/a//b", "/a/../b", "/./a", "/a\0b", "/a/.b.cob-new", "/.a.cob-new/b"] {
            TreePath::new(bad).expect_err(bad);
        }
        TreePath::new(&format!("/{}", "x".repeat(256))).expect_err("a name too long");
    }

    #[test]
    fn the_parent_folders_are_listed_from_the_root() {
        let path = TreePath::new("/a/b/c").expect("a path");
        let above: Vec<_> = path.ancestors().map(|p| p.to_string()).collect();
        assert_eq!(above, ["/a", "/a/b"]);
        assert!(path.is_below(&TreePath::new("/a").expect("a path")));
        assert!(!path.is_below(&TreePath::new("/a/b/c").expect("a path")));
        assert!(!TreePath::new("/ab").expect("a path").is_below(&TreePath::new("/a").expect("a path")));
    }

    #[test]
    fn paths_compared_by_parts_keep_each_folder_together() {
        let mut all =
            ["/a-b", "/a/b/c", "/a", "/a/b-c", "/b", "/a/b", "/a.b/c"].map(|p| TreePath::new(p).expect("a path"));
        all.sort_by(TreePath::cmp_by_parts);
        let parts = |path: &TreePath| path.parts().map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert!(all.is_sorted_by_key(parts), "{all:?}");
    }
}
