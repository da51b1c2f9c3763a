//! What the kernel says of a failure in its own log: `mount` knows of many only that there is one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;

/// No record is longer.
const MAX_RECORD: usize = 8 << 10;
/// So many records are looked through.
const MOST: usize = 1000;
/// So many are shown.
const SHOWN: usize = 3;

/// The log of the kernel, from some moment on.
pub(super) struct KernelLog(Option<File>);

impl KernelLog {
    /// From now on. Where it can't be read, as in many containers, it says nothing.
    pub(super) fn from_now() -> Self {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        Self(open().ok())
    }

    /// What it has said since of one of these, in words to append; nothing if it has not.
    pub(super) fn about(self, subjects: &[&str]) -> String {
        let Some(mut file) = self.0 else { return String::new() };
        let mut said = Vec::new();
        let mut record = vec![0; MAX_RECORD];
        for _ in 0..MOST {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(length) => said.extend(text_of(&String::from_utf8_lossy(&record[..length]), subjects)),
                // Records were overwritten before they were read.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        said.truncate(SHOWN);
        if said.is_empty() { String::new() } else { format!("; the kernel says: {}", said.join("; ")) }
    }
}

/// The text of a record, `PRIORITY,NUMBER,TIME,FLAGS;TEXT`, that is about one of these.
fn text_of(record: &str, subjects: &[&str]) -> Option<String> {
    let text = record.split_once(';')?.1.lines().next()?.trim();
    subjects.iter().any(|subject| !subject.is_empty() && text.contains(subject)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_about_the_subject_are_read() {
        let record = "4,1234,5678,-;tmpfs: Bad value for 'size'\n SUBSYSTEM=x\n";
        assert_eq!(text_of(record, &["xfs", "tmpfs"]).as_deref(), Some("tmpfs: Bad value for 'size'"));
        assert_eq!(text_of(record, &["xfs", ""]), None);
        assert_eq!(text_of("no record", &["record"]), None);
        assert_eq!(KernelLog(None).about(&["x"]), "");
    }
}
