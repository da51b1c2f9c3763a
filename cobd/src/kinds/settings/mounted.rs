//! The mounts and the swap that the kernel lists.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::kinds::native::Host;

/// The kernel's list.
const LIST: &str = "/proc/self/mountinfo";
/// Flags that the kernel lists by their option names, each with its opposite option.
pub(super) const FLAGS: [(&str, &str); 6] = [
    ("ro", "rw"),
    ("noexec", "exec"),
    ("nosuid", "suid"),
    ("nodev", "dev"),
    ("noatime", "relatime"),
    // `relatime` already follows from `noatime`.
    ("nodiratime", "diratime"),
];

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    pub(super) source: String,
    pub(super) kind: String,
    options: Vec<String>,
    /// The options of the file system, which hold at every mount point.
    of_file_system: Vec<String>,
}

/// The flags that are implied by options that let users mount and unmount.
const IMPLIED: [(&str, &[&str]); 4] = [
    ("user", &["noexec", "nosuid", "nodev"]),
    ("users", &["noexec", "nosuid", "nodev"]),
    ("owner", &["nosuid", "nodev"]),
    ("group", &["nosuid", "nodev"]),
];

impl Mounted {
    /// Its flags.
    pub(super) fn flags(&self) -> Vec<&'static str> {
        FLAGS.iter().map(|(flag, _)| *flag).filter(|flag| self.has(flag)).collect()
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    /// The listed options of the file system itself, without its flags.
    pub(super) fn of_file_system(&self) -> impl Iterator<Item = &str> {
        self.of_file_system.iter().map(String::as_str).filter(|option| !["rw", "ro"].contains(option))
    }

    /// The value of a listed option.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.of_file_system.iter().chain(&self.options).find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    }
}

/// Whether an option sets (`true`) or clears (`false`) a flag. `None`: neither.
pub(super) fn sets(option: &str, flag: &str) -> Option<bool> {
    let implied = IMPLIED.iter().find(|(name, _)| *name == option).map_or(&[][..], |(_, flags)| flags);
    if option == flag || implied.contains(&flag) {
        return Some(true);
    }
    // `relatime` is the default without `noatime`, and does not clear it.
    let is_opposite = option != "relatime" && FLAGS.contains(&(flag, option));
    is_opposite.then_some(false)
}

/// The mounts on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct On {
    /// The visible mount, which is the topmost.
    pub(super) seen: Option<Mounted>,
    /// Number of hidden mounts.
    pub(super) hidden: usize,
    /// The mount point of the later mount that hides others: the path itself, or a parent folder.
    pub(super) cover: String,
}

/// The mounts on this path.
///
/// # Errors
/// If the kernel's list can't be read.
pub(super) fn at(host: &Host, path: &str) -> Result<On, String> {
    let (all, path) = (host.read(LIST)?, resolved(host, path));
    let lines: Vec<Line> = all.lines().filter_map(read).collect();
    let here = || lines.iter().filter(|line| line.on == path);
    let way = way_to(&lines, &path);
    let Some((last, above)) = way.split_last() else {
        // Without a root in the list, hidden mounts are unknown.
        let seen = here().next_back().map(|line| line.mounted.clone());
        return Ok(On { seen, hidden: 0, cover: String::new() });
    };
    let seen = (last.on == path).then(|| last.mounted.clone());
    let hidden = here().filter(|line| line.id != last.id).count();
    let is_stacked = above.iter().any(|line| line.on == path);
    let cover = way.iter().rfind(|line| is_stacked || line.on != path).or(above.last()).map(|line| line.on.clone());
    Ok(On { seen, hidden, cover: cover.unwrap_or_default() })
}

/// A mount on a path, with all that is needed to mount it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layer {
    pub(super) source: String,
    pub(super) kind: String,
    /// The options as the kernel lists them.
    pub(super) options: Vec<String>,
    /// The folder where the same file system is visible, too: then it is mounted again from there.
    pub(super) other: Option<String>,
    /// The file behind a loop device.
    pub(super) file: Option<String>,
    /// A part of a file system is mounted here.
    pub(super) is_part: bool,
}

/// The mounts on this path that are visible one below the other, from the lowest to the topmost.
///
/// # Errors
/// If the kernel's list can't be read.
pub(super) fn layers(host: &Host, path: &str) -> Result<Vec<Layer>, String> {
    let (all, path) = (host.read(LIST)?, resolved(host, path));
    let lines: Vec<Line> = all.lines().filter_map(read).collect();
    let here = way_to(&lines, &path).into_iter().filter(|line| line.on == path);
    let layer = |line: &Line| {
        let same = lines.iter().filter(|other| other.on != path && other.device == line.device);
        let mut other = same.filter_map(|other| {
            let below = line.root.strip_prefix(other.root.trim_end_matches('/'))?;
            let is_below = below.is_empty() || below.starts_with('/');
            let folder = format!("{}{}", other.on.trim_end_matches('/'), below.trim_end_matches('/'));
            is_below.then(|| if folder.is_empty() { "/".to_owned() } else { folder })
        });
        let Mounted { source, kind, options, of_file_system } = line.mounted.clone();
        let mut options = options;
        // Labels of security modules are shown, and can't be given.
        options
            .extend(of_file_system.into_iter().filter(|option| !["rw", "ro", "seclabel"].contains(&option.as_str())));
        options.dedup();
        Layer {
            other: other.next_back(),
            file: backing_file(&source).and_then(|file| file.to_str().map(str::to_owned)),
            is_part: line.root != "/" && kind != "btrfs",
            source,
            kind,
            options,
        }
    };
    Ok(here.map(layer).collect())
}

/// The mount points of the block devices with these paths and numbers.
///
/// # Errors
/// If the kernel's list can't be read.
pub(super) fn of_devices(devices: &[(PathBuf, u64)]) -> Result<Vec<PathBuf>, String> {
    let all = fs::read_to_string(LIST).map_err(|error| format!("{LIST}: {error}"))?;
    let is_of = |line: &Line| {
        let source = PathBuf::from(&line.mounted.source);
        let source = source.canonicalize().unwrap_or(source);
        devices
            .iter()
            .any(|(path, number)| *path == source || line.device == format!("{}:{}", major(*number), minor(*number)))
    };
    Ok(all.lines().filter_map(read).filter(is_of).map(|line| PathBuf::from(line.on)).collect())
}

/// The mounts on the way to a path, from the root on.
fn way_to<'a>(lines: &'a [Line], path: &str) -> Vec<&'a Line> {
    let is_below = |line: &Line, other: &Line| line.below == other.id && line.id != other.id;
    let root = lines.iter().find(|line| line.on == "/" && !lines.iter().any(|other| is_below(line, other)));
    let mut way = Vec::from_iter(root);
    let ends = path.match_indices('/').map(|(at, _)| at.max(1)).chain([path.len()]);
    for folder in ends.map(|end| &path[..end]) {
        let next = |at: &Line| lines.iter().rfind(|line| line.on == folder && is_below(line, at));
        while let Some(line) = way.last().and_then(|at| next(at)) {
            way.push(line);
        }
    }
    way
}

/// The path in the kernel's list: links are resolved as far as the path exists.
fn resolved(host: &Host, path: &str) -> String {
    let (whole, root) = (host.path(path), host.path("/"));
    let real = whole.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let found = real.and_then(|(above, real)| {
        let inside = real.join(whole.strip_prefix(above).ok()?);
        let inside = inside.strip_prefix(root.canonicalize().ok()?).ok()?.to_str()?.to_owned();
        Some(format!("/{}", inside.trim_end_matches('/')))
    });
    found.unwrap_or_else(|| path.to_owned())
}

/// A line of the kernel's list.
struct Line {
    id: u64,
    /// The id of its parent mount.
    below: u64,
    device: String,
    /// The folder in the file system that is mounted.
    root: String,
    on: String,
    mounted: Mounted,
}

/// `36 35 98:0 /root /path rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue`
fn read(line: &str) -> Option<Line> {
    let (front, back) = line.split_once(" - ")?;
    let front: Vec<&str> = front.split(' ').collect();
    let mut back = back.split(' ');
    let (kind, source) = (back.next()?.to_owned(), unescaped(back.next()?));
    let of_file_system = back.next().unwrap_or_default();
    // Both the mount and the whole file system may be read-only.
    let options = front.get(5)?.split(',').chain(of_file_system.split(',').filter(|option| *option == "ro"));
    let options = options.map(str::to_owned).collect();
    let of_file_system = of_file_system.split(',').map(str::to_owned).collect();
    let mounted = Mounted { source, kind, options, of_file_system };
    let number = |at: usize| front.get(at)?.parse().ok();
    let text = |at: usize| front.get(at).map(|text| unescaped(text));
    Some(Line { id: number(0)?, below: number(1)?, device: text(2)?, root: text(3)?, on: text(4)?, mounted })
}

/// Escapes a name like the kernel and `/etc/fstab`: blanks and backslashes become octal numbers.
pub(super) fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        ' ' => "\\040".to_owned(),
        '\t' => "\\011".to_owned(),
        '\n' => "\\012".to_owned(),
        '\\' => "\\134".to_owned(),
        '#' => "\\043".to_owned(),
        other => other.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Reverses [`escaped`].
pub(super) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The device number of a block device, by any of its names. `None`: no block device.
pub(super) fn device(source: &str) -> Option<u64> {
    const BY: [(&str, &str); 4] =
        [("UUID=", "by-uuid"), ("LABEL=", "by-label"), ("PARTUUID=", "by-partuuid"), ("PARTLABEL=", "by-partlabel")];
    let named = BY.iter().find_map(|(key, folder)| Some(format!("/dev/disk/{folder}/{}", source.strip_prefix(key)?)));
    let meta = fs::metadata(named.as_deref().unwrap_or(source)).ok()?;
    meta.file_type().is_block_device().then(|| meta.rdev())
}

/// The file behind a loop device.
pub(super) fn backing_file(source: &str) -> Option<PathBuf> {
    let name = source.strip_prefix("/dev/").filter(|name| name.starts_with("loop"))?;
    let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    Some(PathBuf::from(file.trim_end_matches('\n')))
}

/// Whether both paths are the same folder or file, as with a bind mount.
pub(super) fn is_same_place(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    of(one).is_some_and(|place| of(other) == Some(place))
}

/// The priority with which the kernel uses a file or device as swap. `None`: the kernel does not use it.
pub(super) fn swap_priority(path: &Path) -> Option<i64> {
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut fields = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = fields.find(|fields| fields.first().is_some_and(|name| Path::new(&unescaped(name)) == path))?;
    Some(ours.get(4).and_then(|priority| priority.parse().ok()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let lines = [
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 ro,errors=remount-ro",
            "36 22 0:40 / /srv/my\\040data rw,noexec,noatime - tmpfs none rw,size=1024k",
            "37 36 8:2 /x /srv/my\\040data rw - ext4 /dev/sdb1 rw",
        ];
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("proc/self")).expect("made");
        fs::write(root.path().join("proc/self/mountinfo"), lines.join("\n")).expect("written");
        let host = Host::below(Some(root.path())).expect("absolute");
        let seen = |path: &str| at(&host, path).expect("read").seen;
        let found = seen("/").expect("mounted");
        assert!(found.has("ro") && found.has("relatime") && !found.has("errors=remount-ro"), "{found:?}");
        let found = seen("/srv/my data").expect("mounted");
        assert_eq!((found.source.as_str(), found.kind.as_str()), ("/dev/sdb1", "ext4"), "the topmost mount");
        assert_eq!(seen("/srv"), None);
        let found = seen("/").expect("mounted");
        assert_eq!((found.value("errors"), found.value("error")), (Some("remount-ro"), None));
        // The kernel lists no links, neither to a mount nor to a parent folder.
        fs::create_dir_all(root.path().join("srv/my data")).expect("made");
        std::os::unix::fs::symlink("srv", root.path().join("link")).expect("made");
        std::os::unix::fs::symlink("srv/my data", root.path().join("data")).expect("made");
        for path in ["/link/my data", "/data"] {
            assert_eq!(seen(path).expect("mounted").kind, "ext4", "{path}");
        }
        assert_eq!(seen("/link/missing"), None);
    }

    #[test]
    fn a_later_mount_above_hides_the_mounts_below() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("proc/self")).expect("made");
        let host = Host::below(Some(root.path())).expect("absolute");
        let look = |lines: &[&str]| {
            fs::write(root.path().join("proc/self/mountinfo"), lines.join("\n")).expect("written");
            let On { seen, hidden, cover } = at(&host, "/srv/nest/data").expect("read");
            (seen.map(|seen| seen.source), hidden, cover)
        };
        let (first, system) = ("1 1 0:2 / / rw - rootfs none rw", "22 1 8:1 / / rw - ext4 /dev/sda1 rw");
        let (early, late) =
            ("40 22 0:50 / /srv/nest/data rw - tmpfs early rw", "42 41 0:52 / /srv/nest/data rw - tmpfs late rw");
        let nest = "41 22 0:51 / /srv/nest rw - tmpfs nest rw";
        let other = "43 22 0:53 / /srv/nest/dat rw - tmpfs other rw";
        let source = |name: &str| Some(name.to_owned());
        assert_eq!(look(&[first, system, nest, other, late]), (source("late"), 0, "/srv/nest".to_owned()));
        assert_eq!(look(&[first, system, early, nest]), (None, 1, "/srv/nest".to_owned()));
        assert_eq!(look(&[first, system, early, nest, late]), (source("late"), 1, "/srv/nest".to_owned()));
        let later = "44 42 0:54 / /srv/nest/data rw - tmpfs later rw";
        let on_it = (source("later"), 1, "/srv/nest/data".to_owned());
        assert_eq!(look(&[first, system, nest, late, later]), on_it, "on the same folder");
        assert_eq!(look(&[first, system]), (None, 0, "/".to_owned()));
        assert_eq!(look(&[nest, late]), (source("late"), 0, String::new()), "without a root");
    }

    #[test]
    fn names_are_written_and_read_back() {
        for name in ["/a b", "/tab\there", "/back\\slash", "/plain", "/#x", "/\\040"] {
            assert_eq!(unescaped(&escaped(name)), name);
            assert!(!escaped(name).contains([' ', '\t']), "{name}");
        }
        assert_eq!(unescaped("/x\\09"), "/x\\09");
    }
}
