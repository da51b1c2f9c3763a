//! Whether a program has a file open for writing.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Names the signal for events of a file (`include/uapi/asm-generic/fcntl.h`).
const F_SETSIG: libc::c_int = 10;

/// File systems of other machines: NFS, SMB, CIFS, SMB2, Ceph, AFS, 9P and FUSE (`include/uapi/linux/magic.h`,
/// `fs/smb/client/cifsglob.h`). NFS of version 4 and CIFS grant a lease only with a promise of the server.
const REMOTE: [u32; 8] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x00C3_6400, 0x5346_414F, 0x0102_1997, 0x6573_5546];

/// Whether a program of this machine has the file open for writing. `file` is open for reading alone.
///
/// The kernel counts the writers of a file, and grants a read lease only for a file without one (fcntl(2), `F_SETLEASE`).
/// File systems without leases need a look at all open files of all processes, which takes milliseconds. So do file
/// systems of other machines, which refuse a lease for reasons of their own.
///
/// # Errors
/// When the file's metadata can't be read.
pub fn has_writer(file: &File) -> io::Result<bool> {
    if !REMOTE.contains(&magic(file)?)
        && let Some(is_free) = lease(file)
    {
        return Ok(!is_free);
    }
    let is = file.metadata()?;
    Ok(has_writer_in_proc((is.dev(), is.ino())))
}

/// Whether the kernel grants a read lease, which ends at once. `None`: leases are not supported here.
#[expect(
    unsafe_code,
    reason = "no crate offers leases; these commands of fcntl take numbers, and no memory of this program"
)]
fn lease(file: &File) -> Option<bool> {
    let command = |command, argument: libc::c_int| {
        // SAFETY: the descriptor is open, and `fcntl` reads no memory of this program for these commands.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // A program that opens the file for writing during the lease sends the signal; SIGIO would end this program.
    command(F_SETSIG, libc::SIGURG).ok()?;
    match command(libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => command(libc::F_SETLEASE, libc::F_UNLCK).ok().map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(false),
        Err(_) => None,
    }
}

/// The number of the type of the file's file system.
fn magic(file: &File) -> io::Result<u32> {
    let number = rustix::fs::fstatfs(file)?.f_type;
    // The number has 32 bits; some architectures extend its sign.
    Ok(u32::try_from(number & 0xFFFF_FFFF).unwrap_or_default())
}

fn has_writer_in_proc(file: (u64, u64)) -> bool {
    let numbers = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter(numbers);
    processes.into_iter().any(|process| {
        let open = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        open.into_iter().any(|fd| {
            let is_it = fs::metadata(fd.path()).is_ok_and(|meta| (meta.dev(), meta.ino()) == file);
            is_it && is_for_writing(&process.path().join("fdinfo").join(fd.file_name()))
        })
    })
}

/// The lowest two bits of the octal flags are the access mode.
fn is_for_writing(info: &Path) -> bool {
    let info = fs::read_to_string(info).unwrap_or_default();
    let flags = info.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 0o3 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_found_by_the_lease_and_in_proc() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "text").expect("written");
        let file = File::open(&path).expect("opened");
        let found = || {
            let is = file.metadata().expect("known");
            (has_writer(&file).expect("looked"), has_writer_in_proc((is.dev(), is.ino())))
        };
        let proc = magic(&File::open("/proc/self/status").expect("opened")).expect("known");
        assert_eq!(proc, 0x9FA0, "proc has a well-known number");
        assert!(!REMOTE.contains(&magic(&file).expect("known")), "the folder for the test is of this machine");
        assert_eq!(found(), (false, false), "a reader is no writer");
        let writer = File::options().append(true).open(&path).expect("opened");
        assert_eq!(found(), (true, true));
        fs::remove_file(&path).expect("removed");
        assert_eq!(found(), (true, true), "also of a removed file");
        drop(writer);
        assert_eq!(found(), (false, false));
        assert_eq!(lease(&File::open(folder.path()).expect("opened")), None, "a folder has no lease");
    }
}
