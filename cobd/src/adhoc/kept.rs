//! The kept outputs of the last commands, a file for each; the oldest files are deleted.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cob_types::command_run::{RunId, StoredRun};
use serde::{Deserialize, Serialize};

use crate::durable::{self, Sync};
use crate::run::{Exit, OUTPUT, STDOUT, Shape, open_regular, read_capped, tail};

/// The most commands that are kept.
const MOST: usize = 100;
/// The most bytes of all kept commands together.
const MOST_BYTES: u64 = 16 << 20;
/// A file is longer than its output, because JSON escapes it.
const LONGEST_FILE: usize = 16 << 20;
/// The most bytes of an output stream: the runner leaves head and tail of a longer output.
const LONGEST_OUTPUT: u64 = (1 << 20) + 4096;
/// Of a command whose runner was killed, the end of its output.
const LAST: usize = 64 << 10;
/// The format of the files.
const FORMAT: u32 = 1;

/// The folder of kept commands.
#[derive(Debug)]
pub(super) struct RunFolder(PathBuf);

#[derive(Serialize, Deserialize)]
struct RunFile<T> {
    format: u32,
    run: T,
}

impl RunFolder {
    pub(super) fn new(folder: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        durable::sweep(&folder);
        Ok(Self(folder))
    }

    pub(super) fn has(&self, run: RunId) -> bool {
        self.0.join(run.to_string()).exists()
    }

    pub(super) fn read(&self, run: RunId) -> Option<StoredRun> {
        let bytes = read_capped(&self.0.join(run.to_string()), LONGEST_FILE).ok()?;
        let file: RunFile<StoredRun> = serde_json::from_slice(&bytes).ok()?;
        (file.format == FORMAT).then_some(file.run)
    }

    pub(super) fn write(&self, run: &StoredRun) -> io::Result<()> {
        let bytes = serde_json::to_vec(&RunFile { format: FORMAT, run })?;
        durable::write_file(&self.0, &run.run.to_string(), 0o600, &bytes, Sync::Later)?;
        self.prune(MOST, MOST_BYTES);
        Ok(())
    }

    /// Deletes the oldest, but never the newest.
    fn prune(&self, most: usize, most_bytes: u64) {
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut files: Vec<(SystemTime, u64, PathBuf)> = files
            .filter_map(|file| {
                let meta = file.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), file.path()))
            })
            .collect();
        files.sort_by(|a, b| b.cmp(a));
        let mut bytes = 0;
        for (at, (_, length, path)) in files.into_iter().enumerate() {
            bytes += length;
            if at > 0 && (at >= most || bytes > most_bytes) {
                // The next command tries again.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The standard output and the standard error in a job's folder, and the number of printed bytes if the runner has left out
/// a part.
pub(super) fn outputs(folder: &Path, exit: &Exit) -> (String, String, Option<u64>) {
    let read = |name: &str| {
        let path = folder.join(name);
        if *exit == Exit::Lost {
            return (tail(&path, LAST), (0, false));
        }
        let read = || -> io::Result<(String, (u64, bool))> {
            let mut file = open_regular(&path)?;
            let shape = Shape::of(&mut file)?;
            let mut bytes = Vec::new();
            open_regular(&path)?.take(LONGEST_OUTPUT).read_to_end(&mut bytes)?;
            Ok((String::from_utf8_lossy(&bytes).into_owned(), (shape.printed(), shape.missing() > 0)))
        };
        read().unwrap_or_default()
    };
    let ((out, (out_bytes, out_cut)), (err, (err_bytes, err_cut))) = (read(STDOUT), read(OUTPUT));
    (out, err, (out_cut || err_cut).then_some(out_bytes + err_bytes))
}

#[cfg(test)]
mod tests {
    use cob_types::HostName;
    use cob_types::command_run::{RunEnd, RunExit};

    use super::*;

    fn run(number: u64, stdout: &str) -> StoredRun {
        StoredRun {
            run: RunId::of(number),
            host: HostName::new("n1").expect("a name"),
            line: "id".to_owned(),
            who: "ann".to_owned(),
            end: RunEnd { exit: RunExit::Exited(0), took_ms: Some(1), cut: None },
            stdout: stdout.to_owned(),
            stderr: String::new(),
        }
    }

    #[test]
    fn the_oldest_kept_runs_are_pruned_by_number_and_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = RunFolder::new(folder.path().join("kept")).expect("made");
        let there = || (1..=5).filter(|n| kept.has(RunId::of(*n))).collect::<Vec<_>>();
        for number in 1..=5 {
            kept.write(&run(number, &"x".repeat(1000))).expect("written");
            let file = fs::File::open(kept.0.join(RunId::of(number).to_string())).expect("there");
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number)).expect("set");
        }
        assert_eq!(kept.read(RunId::of(3)), Some(run(3, &"x".repeat(1000))));
        assert_eq!(kept.read(RunId::of(9)), None);
        kept.prune(4, u64::MAX);
        assert_eq!(there(), [2, 3, 4, 5]);
        kept.prune(4, 2500);
        assert_eq!(there(), [4, 5]);
        kept.prune(4, 1);
        assert_eq!(there(), [5], "the newest stays");
    }
}
