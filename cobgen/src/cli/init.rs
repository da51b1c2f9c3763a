//! `cobgen init`: a small model to start from.

mod secure;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{Answer, CommandResult, Stop, Terminal};

/// The options of `cobgen init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen init
  cobgen init first && cobgen check first

  cobgen init --secure site h1=10.0.0.1 h2=10.0.0.2 h3=10.0.0.3

Writes model.yaml, check.sh, start.sh and stop.sh; overwrites nothing. With --secure also the keys of a \
publisher and of an operator (keys/, readable only by you), and an empty depot (depot/) whose trust.toml names \
the publisher; docs/how-to/enroll-hosts.md goes on from there.")]
pub struct InitArgs {
    /// The folder to write into; it is made if it does not exist
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// With --secure: the hosts, as NAME=IP or NAME=IP:PORT; default port: 7077
    #[arg(value_name = "HOST=ADDRESS", requires = "secure", value_parser = secure::host)]
    hosts: Vec<secure::Host>,
    /// A model of hosts with identities, which may be on a real network
    #[arg(long, requires = "hosts")]
    secure: bool,
}

/// The files to write, with their permission bits.
const FILES: [(&str, u32, &str); 4] = [
    ("model.yaml", 0o644, include_str!("init/model.yaml")),
    ("check.sh", 0o755, include_str!("init/check.sh")),
    ("start.sh", 0o755, include_str!("init/start.sh")),
    ("stop.sh", 0o755, include_str!("init/stop.sh")),
];

pub(super) fn run(args: &InitArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let dir = &args.dir;
    let there: Vec<&str> =
        FILES.iter().map(|(name, ..)| *name).filter(|name| dir.join(name).symlink_metadata().is_ok()).collect();
    if !there.is_empty() {
        let what = format!("{} already contains {}", dir.display(), there.join(", "));
        let help = "no file was written; name another folder: `cobgen init DIR`";
        return Err(Stop::plain(format!("{what}\n  help: {help}")));
    }
    let made = if args.secure { secure::make(dir, &args.hosts).map(Some) } else { Ok(None) };
    let written = made.and_then(|made| {
        write_all(dir, made.as_ref().map_or(FILES[0].2, |made| &made.model))?;
        Ok(made)
    });
    let made = written.map_err(|error| Stop::plain(format!("can't write into {}: {error}", dir.display())))?;
    for (name, ..) in FILES {
        writeln!(terminal.out, "{}", dir.join(name).display())?;
    }
    if let Some(made) = made {
        made.files.iter().try_for_each(|file| writeln!(terminal.out, "{}", file.display()))?;
        return secure::tell(dir, &args.hosts, terminal);
    }
    writeln!(terminal.err, "Next: `cobgen check {0}`, then `cobgen generate {0} --depot DIR`.", dir.display())?;
    Ok(Answer::Done)
}

fn write_all(dir: &Path, model: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (name, mode, text) in FILES {
        let text = if name == FILES[0].0 { model } else { text };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        options.open(dir.join(name))?.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Runs a script as a daemon does and returns its output.
    fn run(dir: &Path, script: &str) -> String {
        let mut line = Command::new("sh");
        line.arg(dir.join(script)).env("COB_CONTENT", dir.join("memory")).env("COB_STATE_DIR", dir.join("state"));
        let ran = line.envs([("COB_ID", "n1/x"), ("COB_FROM", "a"), ("COB_TO", "b")]).output().expect("runs");
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).expect("text").trim().to_owned()
    }

    #[test]
    fn the_scripts_detect_changed_content_without_storing_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        write_all(dir, FILES[0].2).expect("written");
        fs::create_dir(dir.join("state")).expect("made");
        fs::write(dir.join("memory"), "{\"password\":\"open-sesame\"}").expect("written");
        assert_eq!(run(dir, "check.sh"), "down");
        run(dir, "start.sh");
        run(dir, "start.sh");
        assert_eq!(run(dir, "check.sh"), "up");
        for entry in fs::read_dir(dir.join("state")).expect("there") {
            let text = fs::read_to_string(entry.expect("there").path()).expect("text");
            assert!(!text.contains("sesame"), "{text}");
        }
        fs::write(dir.join("memory"), "{}").expect("written");
        assert_eq!(run(dir, "check.sh"), "outdated");
        run(dir, "stop.sh");
        assert_eq!(run(dir, "check.sh"), "down");
    }
}
