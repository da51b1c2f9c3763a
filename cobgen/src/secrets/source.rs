//! Reads the value of a secret from the source that the model names.
//!
//! No error contains any part of the value or of a command's output.

use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cob_trust::seal::{self, MAX_SECRET};
use zeroize::Zeroizing;

use crate::draft::SecretSource;

/// The time limit of a command: a user may have to touch a hardware key.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two checks of a command that has closed its output.
const LOOK: Duration = Duration::from_millis(10);

/// Reads the value, or returns the reason for its absence.
pub(super) fn read(source: &SecretSource, key: Option<&Path>) -> Result<Zeroizing<Vec<u8>>, String> {
    let value = match source {
        SecretSource::File(path) => {
            let open = fs::File::open(path).and_then(|file| {
                let regular = file.metadata()?.is_file();
                if regular { Ok(file) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file")) }
            });
            let read = open.and_then(bounded).map_err(|e| format!("{}: {e}", path.display()))?;
            without_line_end(read)
        }
        SecretSource::Env(name) => match std::env::var_os(name) {
            Some(value) => Zeroizing::new(value.into_encoded_bytes()),
            None => return Err(format!("the variable {name} is not set")),
        },
        SecretSource::Age(text) => {
            let key =
                key.ok_or("it is encrypted for the publisher: name the key file (--secret-key or COB_SECRET_KEY)")?;
            let opened = seal::open_with_file(key, text.as_bytes()).map_err(|e| e.to_string())?;
            without_line_end(opened)
        }
        SecretSource::Command { words, folder } => without_line_end(output(words, folder, PATIENCE)?),
    };
    if value.is_empty() {
        return Err("it is empty".to_owned());
    }
    if value.len() > MAX_SECRET {
        return Err(format!("it is longer than {MAX_SECRET} bytes"));
    }
    match std::str::from_utf8(&value) {
        Ok(text) if !text.contains('\0') => Ok(value),
        Ok(_) | Err(_) => Err("it is no text (UTF-8 without NUL); encode it, for example with base64".to_owned()),
    }
}

/// The content of a file or the output of a command, cut shortly after the maximum length of a secret.
fn bounded(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // Allocate the capacity at once: a growing vector leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_SECRET + 3));
    from.take(MAX_SECRET as u64 + 3).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes the line end that editors and commands add.
fn without_line_end(mut value: Zeroizing<Vec<u8>>) -> Zeroizing<Vec<u8>> {
    if value.last() == Some(&b'\n') {
        value.pop();
        if value.last() == Some(&b'\r') {
            value.pop();
        }
    }
    value
}

fn output(words: &[String], folder: &Path, patience: Duration) -> Result<Zeroizing<Vec<u8>>, String> {
    let (program, arguments) = words.split_first().ok_or("its command is empty")?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let limit = Instant::now() + patience;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("`{program}` can't be executed: {e}"))?;
    let end = |child: &mut std::process::Child| {
        let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        // It may have ended just now.
        let _ = group.map(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL));
        let _ = child.wait();
    };
    let Some(stdout) = child.stdout.take() else {
        end(&mut child);
        return Err(format!("the output of `{program}` can't be read"));
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // Without a receiver the time limit has passed.
        let _ = sender.send(bounded(stdout));
    });
    let too_slow = || format!("`{program}` did not end within {patience:?}");
    let read = receiver.recv_timeout(patience);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if read.is_ok() && Instant::now() < limit => std::thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                end(&mut child);
                return Err(too_slow());
            }
        }
    };
    let value = read.map_err(|_| too_slow())?.map_err(|e| format!("the output of `{program}` can't be read: {e}"))?;
    if status.success() { Ok(value) } else { Err(format!("`{program}` failed: {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> SecretSource {
        let words = words.iter().map(|w| (*w).to_owned()).collect();
        SecretSource::Command { words, folder: ".".into() }
    }

    #[test]
    fn values_come_without_their_last_line_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("pw");
        let source = SecretSource::File(path.clone());
        for (written, value) in [("pw", "pw"), ("pw\n", "pw"), ("pw\r\n", "pw"), ("pw\n\n", "pw\n"), (" p w ", " p w ")]
        {
            fs::write(&path, written).expect("written");
            assert_eq!(read(&source, None).expect("read").as_slice(), value.as_bytes());
        }
        let environment = read(&SecretSource::Env("CARGO_PKG_NAME".to_owned()), None).expect("cargo sets it");
        assert_eq!(environment.as_slice(), b"cobgen");
        assert_eq!(read(&command(&["printf", "a b\\n"]), None).expect("read").as_slice(), b"a b");
    }

    #[test]
    fn a_refused_secret_is_reported_without_its_value() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("pw");
        let source = SecretSource::File(path.clone());
        let why = |source: &SecretSource| read(source, None).expect_err("refused");
        assert!(why(&source).contains("No such file"), "{}", why(&source));
        for (bytes, part) in
            [(&b""[..], "empty"), (b"\n", "empty"), (b"hunter\xff", "no text"), (b"hunt\0er", "no text")]
        {
            fs::write(&path, bytes).expect("written");
            assert!(why(&source).contains(part) && !why(&source).contains("hunt"), "{}", why(&source));
        }
        fs::write(&path, vec![b'a'; MAX_SECRET + 9]).expect("written");
        assert!(why(&source).contains("longer than"));
        assert!(why(&SecretSource::File(dir.path().to_owned())).contains("no regular file"));
        assert!(why(&SecretSource::Env("COB_NO_SUCH_VARIABLE".to_owned())).contains("is not set"));
        let failing = why(&command(&["sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3"]));
        assert!(failing.contains("exit status: 3") && !failing.contains("hunter"), "{failing}");
        assert!(why(&command(&["no-such-program-of-cob"])).contains("can't be executed"));
        assert!(why(&SecretSource::Age("x".to_owned())).contains("--secret-key"));
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let words: Vec<String> = ["sh", "-c", "echo $$; exec sleep 1000"].map(str::to_owned).to_vec();
        let why = output(&words, Path::new("."), Duration::from_millis(200)).expect_err("too slow");
        assert!(why.contains("did not end within 200ms"), "{why}");
    }
}
