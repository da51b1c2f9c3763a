//! The kernel's own log messages about a failure: `mount` often reports only that there was a failure.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;

/// The longest record.
const MAX_RECORD: usize = 8 << 10;
/// The most records that are searched.
const MOST: usize = 1000;
/// The most records that are shown.
const SHOWN: usize = 3;

/// The kernel's log from a moment on.
pub(super) struct KernelLog(Option<File>);

impl KernelLog {
    /// Starts now. If the log can't be read, as in many containers, it has no messages.
    pub(super) fn from_now() -> Self {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        Self(open().ok())
    }

    /// The later messages about one of these subjects, as text to append; empty without messages.
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

/// The text of a record, `PRIORITY,NUMBER,TIME,FLAGS;TEXT`, if it is about one of these subjects.
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
