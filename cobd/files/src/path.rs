//! Paths of a tree: from the root of the host, name by name, never leading elsewhere.

use std::borrow::Borrow;
use std::fmt;

use crate::disk::is_staged;

/// The longest path and the longest name, as the kernel has them.
const MAX_PATH: usize = 4095;
const MAX_NAME: usize = 255;

/// An absolute path of a host, without its first slash. Its parts are names: none is empty, `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// What is wrong with a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is no path of a file tree: {what}")]
pub struct PathError {
    /// As it was written.
    pub path: String,
    /// What is wrong.
    pub what: &'static str,
}

/// Why `.x.cob-new` is refused.
const STAGED: &str = "names `.….cob-new` are those of files that are not in their places yet";

impl TreePath {
    /// Reads `/etc/motd`.
    ///
    /// # Errors
    /// [`PathError`] says what is wrong.
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
        Ok(Self(rest.as_bytes().to_vec()))
    }

    /// What is below this one under a name that was read from a folder.
    #[must_use]
    pub fn below(&self, name: &[u8]) -> Self {
        let mut path = self.0.clone();
        path.push(b'/');
        path.extend_from_slice(name);
        Self(path)
    }

    pub(crate) fn of_parts(parts: &[Vec<u8>]) -> Self {
        Self(parts.join(&b'/'))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The names that it is made of.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// Its last name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.parts().next_back().unwrap_or_default()
    }

    /// The folder that it is in; none: the root of the host.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let at = self.0.iter().rposition(|b| *b == b'/')?;
        Some(Self(self.0[..at].to_vec()))
    }

    /// Every folder above it, the outermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        let ends = self.0.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        ends.map(|at| Self(self.0[..at].to_vec()))
    }

    /// Whether it is somewhere below a folder.
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
    fn a_path_leads_nowhere_else() {
        for good in ["/etc/motd", "/a", "/a/.git/config", "/a/...", "/ü/x y"] {
            assert_eq!(TreePath::new(good).expect(good).to_string(), good);
        }
        for bad in ["", "etc", "/", "/a/", "/a//b", "/a/../b", "/./a", "/a\0b", "/a/.b.cob-new", "/.a.cob-new/b"] {
            TreePath::new(bad).expect_err(bad);
        }
        TreePath::new(&format!("/{}", "x".repeat(256))).expect_err("a name too long");
    }

    #[test]
    fn folders_above_are_told_from_outside_in() {
        let path = TreePath::new("/a/b/c").expect("a path");
        let above: Vec<_> = path.ancestors().map(|p| p.to_string()).collect();
        assert_eq!(above, ["/a", "/a/b"]);
        assert!(path.is_below(&TreePath::new("/a").expect("a path")));
        assert!(!path.is_below(&TreePath::new("/a/b/c").expect("a path")));
        assert!(!TreePath::new("/ab").expect("a path").is_below(&TreePath::new("/a").expect("a path")));
    }
}
