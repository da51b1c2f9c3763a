//! `cobgen init`: a small model to start from.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{Answer, Terminal};

/// The options of `cobgen init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen init
  cobgen init first && cobgen check first

Writes model.yaml, check.sh, start.sh and stop.sh; overwrites nothing.")]
pub struct Args {
    /// The folder to write into; it is made if it does not exist
    #[arg(default_value = ".")]
    dir: PathBuf,
}

/// What is written, with the permission bits.
const FILES: [(&str, u32, &str); 4] = [
    ("model.yaml", 0o644, include_str!("init/model.yaml")),
    ("check.sh", 0o755, include_str!("init/check.sh")),
    ("start.sh", 0o755, include_str!("init/start.sh")),
    ("stop.sh", 0o755, include_str!("init/stop.sh")),
];

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let dir = &args.dir;
    let there: Vec<&str> =
        FILES.iter().map(|(name, ..)| *name).filter(|name| dir.join(name).symlink_metadata().is_ok()).collect();
    if !there.is_empty() {
        writeln!(terminal.err, "error: {} has {} already", dir.display(), there.join(", "))?;
        writeln!(terminal.err, "  help: nothing was written; name another folder: `cobgen init DIR`")?;
        return Ok(Answer::Bad);
    }
    if let Err(error) = write_all(dir) {
        writeln!(terminal.err, "error: can't write into {}: {error}", dir.display())?;
        return Ok(Answer::Bad);
    }
    for (name, ..) in FILES {
        writeln!(terminal.out, "{}", dir.join(name).display())?;
    }
    writeln!(terminal.err, "Next: `cobgen check {0}`, then `cobgen generate {0} --depot DIR`.", dir.display())?;
    Ok(Answer::Done)
}

fn write_all(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (name, mode, text) in FILES {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        options.open(dir.join(name))?.write_all(text.as_bytes())?;
    }
    Ok(())
}
