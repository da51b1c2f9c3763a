//! Downloads a file with `curl` into a change object's own folder, and compares its checksum.
//!
//! `curl` gets its options on standard input: the list of processes shows no address. A part of a file stays in the own
//! folder, and the next attempt continues it. This module follows redirects itself, because `curl` has no option that
//! refuses `http` only after `https` was used.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cob_kinds::{Size, without_user};
use cob_processes::CurlOptions;
use sha2::{Digest as _, Sha256};

use crate::kinds::native::not_found;

/// The part of a file, in the own folder.
pub(super) const PART: &str = "part";
/// The pause between two looks at the size of the part.
const LOOK: Duration = Duration::from_millis(20);
/// The longest chain of redirects.
const MAX_REDIRECTS: usize = 10;
/// The longest error output that is read.
const MAX_OUTPUT: u64 = 16 << 10;

/// A file to download.
#[derive(Debug)]
pub(super) struct Fetch<'a> {
    /// Its addresses, in the order of the attempts.
    pub(super) addresses: Vec<&'a str>,
    /// Its checksum in small letters, if it is known.
    pub(super) sha256: Option<&'a str>,
    pub(super) proxy: Option<&'a str>,
    pub(super) netrc: Option<&'a Path>,
    pub(super) max_size: Size,
    /// The own folder.
    pub(super) own: &'a Path,
    /// The end of the transition.
    pub(super) deadline: Instant,
}

/// Why an attempt failed.
#[derive(Debug)]
enum Failure {
    /// The server can't continue the part.
    NoPart,
    /// Another attempt is of no use.
    Ended(String),
    /// The reason, for the next address.
    Other(String),
}

/// The answer of a server.
enum Answer {
    Whole,
    Redirect(String),
}

impl Fetch<'_> {
    /// Downloads the file. Returns its path in the own folder, and its checksum.
    pub(super) fn run(&self) -> Result<(PathBuf, String), String> {
        if let Some(netrc) = self.netrc.filter(|netrc| !netrc.is_file()) {
            let netrc = netrc.display();
            return Err(format!("the file {netrc} is missing; let it come `after` the object that makes the file"));
        }
        let part = self.own.join(PART);
        let mut reasons = Vec::new();
        for url in &self.addresses {
            match self.from(url, &part) {
                Ok(sum) => return Ok((part, sum)),
                Err(Failure::Ended(why)) => return Err(why),
                Err(Failure::Other(why)) => reasons.push(format!("{}: {why}", without_user(url))),
                Err(Failure::NoPart) => reasons.push(format!("{}: it sends no part of the file", without_user(url))),
            }
        }
        Err(reasons.join("; "))
    }

    /// Downloads the file from an address, and continues a part once.
    fn from(&self, url: &str, part: &Path) -> Result<String, Failure> {
        loop {
            let length = fs::metadata(part).map_or(0, |meta| meta.len());
            // A part of a file without a checksum may belong to another file.
            let continues = length > 0 && length <= self.max_size.0 && self.sha256.is_some();
            let whole =
                if continues { sum_of(part).ok().filter(|sum| Some(sum.as_str()) == self.sha256) } else { None };
            if let Some(sum) = whole {
                return Ok(sum);
            }
            if !continues {
                remove(part)?;
            }
            match self.follow(url, part) {
                Ok(()) => {}
                Err(Failure::NoPart) if continues => {
                    remove(part)?;
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            // `curl` makes no file for an empty answer.
            if !part.exists() {
                File::create(part).map_err(|error| Failure::Ended(format!("{}: {error}", part.display())))?;
            }
            let sum = sum_of(part).map_err(Failure::Ended)?;
            match self.sha256 {
                Some(wanted) if wanted != sum => {
                    let length = fs::metadata(part).map_or(0, |meta| meta.len());
                    remove(part)?;
                    if !continues {
                        let what = format!("the file of {length} bytes has the checksum {sum}, and not {wanted}");
                        return Err(Failure::Other(what));
                    }
                }
                Some(_) | None => return Ok(sum),
            }
        }
    }

    /// Follows redirects to the file. `https` never leads back to `http`.
    fn follow(&self, url: &str, part: &Path) -> Result<(), Failure> {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let next = match self.get(&url, part)? {
                Answer::Whole => return Ok(()),
                Answer::Redirect(next) => next,
            };
            let is_secure = next.starts_with("https://");
            if !is_secure && (url.starts_with("https://") || !next.starts_with("http://")) {
                let (from, to) = (without_user(&url), without_user(&next));
                return Err(Failure::Other(format!("{from} redirects to {to}, which is refused: it is not https")));
            }
            url = next;
        }
        Err(Failure::Other(format!("there are more than {MAX_REDIRECTS} redirects")))
    }

    /// Runs `curl` for an address.
    fn get(&self, url: &str, part: &Path) -> Result<Answer, Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            return Err(Failure::Ended("the time of the transition is over; the next attempt continues".to_owned()));
        }
        let ended = |error: io::Error| {
            Failure::Ended(if error.kind() == io::ErrorKind::NotFound {
                not_found("curl", "`curl`")
            } else {
                format!("curl: {error}")
            })
        };
        let mut command = Command::new("curl");
        command.args(CurlOptions::ARGUMENTS).env("LC_ALL", "C.UTF-8");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = Ended(child.map_err(ended)?);
        if let Some(mut stdin) = child.0.stdin.take() {
            // A program that ends early says why.
            let _ = stdin.write_all(self.options(url, part, left).text().as_bytes());
        }
        let code = loop {
            if let Some(status) = child.0.try_wait().map_err(ended)? {
                break status.code();
            }
            if fs::metadata(part).is_ok_and(|meta| meta.len() > self.max_size.0) {
                drop(child);
                remove(part)?;
                return Err(self.too_long());
            }
            thread::sleep(LOOK);
        };
        let (out, err) = (said(child.0.stdout.take()), said(child.0.stderr.take()));
        let (status, redirect) = out.trim().split_once(' ').unwrap_or((out.trim(), ""));
        if fs::metadata(part).is_ok_and(|meta| meta.len() > self.max_size.0) {
            remove(part)?;
            return Err(self.too_long());
        }
        match code {
            Some(0) if status.starts_with('2') || status == "416" => Ok(Answer::Whole),
            Some(47) if !redirect.is_empty() => Ok(Answer::Redirect(redirect.to_owned())),
            Some(33 | 36) => Err(Failure::NoPart),
            Some(63) => Err(self.too_long()),
            Some(0 | 22) => Err(Failure::Other(format!("the server answers with the status {status}"))),
            _ => {
                let line = err.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it was ended");
                let words = line.strip_prefix("curl: ").unwrap_or(line);
                Err(Failure::Other(format!("curl: {words}")))
            }
        }
    }

    fn too_long(&self) -> Failure {
        Failure::Other(format!("the file is larger than {}; `max_size` allows a larger file", self.max_size))
    }

    /// The options of `curl`.
    fn options(&self, url: &str, part: &Path, seconds: u64) -> CurlOptions {
        let mut options = CurlOptions::default();
        for flag in ["fail", "silent", "show-error", "globoff", "location"] {
            options = options.flag(flag);
        }
        options = options
            .set("proto", "=https,http")
            .set("max-redirs", "0")
            .set("write-out", "%{http_code} %{redirect_url}")
            .set("continue-at", "-")
            .set("connect-timeout", "30")
            // A connection that stands still.
            .set("speed-limit", "1")
            .set("speed-time", "60")
            .set("max-time", &seconds.to_string())
            .set("max-filesize", &self.max_size.0.to_string())
            .set("output", &part.to_string_lossy());
        options = match self.proxy {
            Some(proxy) => options.set("proxy", proxy),
            None => options.set("noproxy", "*"),
        };
        if let Some(netrc) = self.netrc {
            options = options.set("netrc-file", &netrc.to_string_lossy());
        }
        options.set("url", url)
    }
}

/// A program that is killed when nobody waits for it any more.
pub(super) struct Ended(pub(super) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It has ended, or it ends now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(stream: Option<impl io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(MAX_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn remove(part: &Path) -> Result<(), Failure> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::Ended(format!("{}: {error}", part.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The SHA-256 checksum of a file.
pub(super) fn sum_of(path: &Path) -> Result<String, String> {
    let read = || -> io::Result<String> { sum(&mut File::open(path)?) };
    read().map_err(|error| format!("{}: {error}", path.display()))
}

/// The SHA-256 checksum of the rest of a stream.
pub(super) fn sum(stream: &mut impl io::Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => hash.update(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hex::encode(hash.finalize()))
}
