//! Checks one file: a loose object, or a file that ends with a checksum. Only one buffer of it is in memory at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _};
use std::path::Path;

use flate2::{Decompress, FlushDecompress, Status};
use sha1::{Digest as _, Sha1};

use crate::error::DepotError;
use crate::read::MAX_OBJECT;

/// Length of a checksum.
pub(super) const SUM: usize = 20;
const BUFFER: usize = 64 << 10;
/// The longest header of a loose object: its type and its length.
const MAX_HEADER: usize = 32;
/// The first byte of every loose object's file: deflated, with a window of 32 KiB.
const DEFLATED: u8 = 0x78;

/// Checks a loose object: it unpacks to the length in its header, and its hash is its name.
pub(super) fn check_loose(path: &Path, name: &str) -> Result<(), DepotError> {
    let Some(file) = open(path)? else { return Ok(()) };
    let mut object = Object { header: Vec::new(), len: None, got: 0, hash: Sha1::new() };
    match inflate(&mut BufReader::with_capacity(BUFFER, file), |bytes| object.take(bytes)) {
        Ok(()) => {}
        Err(Fault::Why(why)) => return Err(DepotError::damaged_file(path, why)),
        Err(Fault::Io(error)) => return Err(DepotError::io(format!("can't read {}", path.display()))(error)),
    }
    object.finish(name).map_err(|why| DepotError::damaged_file(path, why))
}

/// Checks a file that starts with `begins` and ends with `sums` checksums, the last of them over all bytes before it.
/// Returns the checksums; `None` if the file does not exist any more.
pub(super) fn check_sum(path: &Path, begins: &[u8], sums: usize) -> Result<Option<Vec<u8>>, DepotError> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let unreadable = || DepotError::io(format!("can't read {}", path.display()));
    let (mut hash, mut buffer, mut tail) = (Sha1::new(), vec![0; BUFFER], Vec::new());
    let mut head = Vec::new();
    loop {
        let got = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable()(error)),
        };
        head.extend_from_slice(&buffer[..got.min(begins.len().saturating_sub(head.len()))]);
        // The last bytes may be the checksum: do not hash them yet.
        tail.extend_from_slice(&buffer[..got]);
        let sure = tail.len().saturating_sub(SUM * sums);
        hash.update(&tail[..sure]);
        tail.drain(..sure);
    }
    if head != begins || tail.len() < SUM * sums {
        return Err(DepotError::damaged_file(path, "its first bytes are wrong, or it is too short"));
    }
    let (before, sum) = tail.split_at(SUM * (sums - 1));
    hash.update(before);
    if hash.finalize()[..] != *sum {
        return Err(DepotError::damaged_file(path, "its bytes do not have the checksum at its end"));
    }
    Ok(Some(tail))
}

/// Opens a regular file only: opening a pipe would block until a writer comes.
fn open(path: &Path) -> Result<Option<File>, DepotError> {
    if !super::stat(path)?.is_none_or(|found| found.is_file()) {
        return Err(DepotError::damaged_file(path, "it is not a file"));
    }
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DepotError::io(format!("can't read {}", path.display()))(error)),
    }
}

enum Fault {
    Why(String),
    Io(io::Error),
}

/// Unpacks a whole file piece by piece; every step consumes or produces bytes, or is the last.
fn inflate(file: &mut impl BufRead, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), Fault> {
    if file.fill_buf().map_err(Fault::Io)?.first() != Some(&DEFLATED) {
        return Err(Fault::Why("it does not begin like a packed file".to_owned()));
    }
    let (mut inflater, mut out) = (Decompress::new(true), vec![0; BUFFER]);
    loop {
        let packed = file.fill_buf().map_err(Fault::Io)?;
        let (taken, given) = (inflater.total_in(), inflater.total_out());
        let status = inflater.decompress(packed, &mut out, FlushDecompress::None);
        let status = status.map_err(|error| Fault::Why(format!("it can't be unpacked: {error}")))?;
        let step = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(usize::MAX);
        let (taken, given) = (step(inflater.total_in(), taken), step(inflater.total_out(), given));
        file.consume(taken);
        take(&out[..given]).map_err(Fault::Why)?;
        match status {
            Status::StreamEnd => break,
            Status::Ok | Status::BufError if taken == 0 && given == 0 => {
                return Err(Fault::Why("it ends too early".to_owned()));
            }
            Status::Ok | Status::BufError => {}
        }
    }
    if file.fill_buf().map_err(Fault::Io)?.is_empty() {
        return Ok(());
    }
    Err(Fault::Why("there are bytes after its end".to_owned()))
}

/// An object, as far as it is unpacked.
struct Object {
    header: Vec<u8>,
    /// The length in the header, once the header is complete.
    len: Option<u64>,
    got: u64,
    hash: Sha1,
}

impl Object {
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.hash.update(bytes);
        let mut rest = bytes;
        if self.len.is_none() {
            let end = bytes.iter().position(|byte| *byte == 0);
            let (header, after) = end.map_or((bytes, None), |end| (&bytes[..end], Some(&bytes[end + 1..])));
            if self.header.len() + header.len() > MAX_HEADER {
                return Err("its header is too long".to_owned());
            }
            self.header.extend_from_slice(header);
            let Some(after) = after else { return Ok(()) };
            self.len = Some(length(&self.header).ok_or("its header is not the header of a git object")?);
            rest = after;
        }
        self.got += rest.len() as u64;
        match self.len {
            Some(len) if len > MAX_OBJECT as u64 => {
                Err(format!("it is {len} bytes long; at most {MAX_OBJECT} are read"))
            }
            Some(len) if self.got > len => Err(format!("it is longer than the {len} bytes in its header")),
            Some(_) | None => Ok(()),
        }
    }

    fn finish(self, name: &str) -> Result<(), String> {
        match self.len {
            Some(len) if len == self.got => {}
            Some(len) => return Err(format!("it is {} bytes long and says {len}", self.got)),
            None => return Err("its header does not end".to_owned()),
        }
        let hash = hex::encode(self.hash.finalize());
        if hash == name {
            Ok(())
        } else {
            Err(format!("its bytes have the hash {hash}, but its name says another hash"))
        }
    }
}

/// The length in a header, `blob 12`.
fn length(header: &[u8]) -> Option<u64> {
    let (kind, len) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let known = matches!(kind, "blob" | "tree" | "commit" | "tag");
    (known && len.bytes().all(|byte| byte.is_ascii_digit())).then(|| len.parse().ok())?
}
