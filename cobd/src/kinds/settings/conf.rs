//! Settings by others in folders of configuration files (`sysctl.d` and similar).
//!
//! Among files of the same name, the file in the first folder counts. The files are read in the order of their names.

use std::collections::BTreeMap;
use std::fs;

use crate::kinds::native::Host;

/// The parents of these folders, in the order of precedence.
const PLACES: [&str; 5] = ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"];

/// The lines of all files in the folders of this name, without blank lines and comments.
///
/// # Errors
/// The file that can't be read, as text.
pub(super) fn lines(host: &Host, folder: &str) -> Result<Vec<String>, String> {
    Ok(files(host, folder)?.into_iter().flat_map(|(_, lines)| lines).collect())
}

/// The files in the order in which they are read, each with its lines.
///
/// # Errors
/// The file that can't be read, as text.
pub(super) fn files(host: &Host, folder: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let mut files = BTreeMap::new();
    for place in PLACES {
        let folder = format!("{place}/{folder}");
        let entries = fs::read_dir(host.path(&folder)).into_iter().flatten().flatten();
        for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
            if name.ends_with(".conf") {
                files.entry(name.clone()).or_insert(format!("{folder}/{name}"));
            }
        }
    }
    files.into_values().map(|file| Ok((file.clone(), of(&host.read(&file)?).collect()))).collect()
}

/// The lines of a file, without blank lines and comments.
pub(super) fn of(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_file_hides_others_of_its_name_and_names_are_sorted() {
        let root = tempfile::tempdir().expect("a folder");
        for (file, text) in [
            ("etc/x.d/20-b.conf", "# none\n\n b = 1\n; none\n"),
            ("usr/lib/x.d/20-b.conf", "hidden = 1\n"),
            ("usr/lib/x.d/10-a.conf", "a = 1"),
            ("run/x.d/30-c", "no.conf = 1\n"),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("below")).expect("made");
            fs::write(path, text).expect("written");
        }
        let host = Host::below(Some(root.path())).expect("absolute");
        assert_eq!(lines(&host, "x.d").expect("read"), ["a = 1", "b = 1"]);
        assert!(lines(&host, "y.d").expect("none").is_empty());
    }
}
