//! A proxy between two hosts: sees all their bytes, and may record or change them.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

/// What is done with the words of who dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Nothing
    Pass,
    /// TLS 1.3 is taken out of what its `ClientHello` offers
    Downgrade,
    /// A bit of each piece is turned over, but for the first piece
    Bend,
}

/// `supported_versions` of TLS 1.3 alone (RFC 8446, section 4.2.1), and its last byte for 1.2.
const TLS_1_3: [u8; 7] = [0, 43, 0, 3, 2, 3, 4];
const MINOR_1_2: u8 = 3;

/// Passes connections on, as long as it runs.
pub(crate) fn run(listen: SocketAddr, to: SocketAddr, record: Option<&Path>, mode: Mode) -> io::Result<String> {
    let listener = TcpListener::bind(listen)?;
    let mut record = record.map(File::create).transpose()?;
    eprintln!("listens on {listen}");
    loop {
        let (near, _) = listener.accept()?;
        let far = TcpStream::connect(to)?;
        let (near_back, far_back) = (near.try_clone()?, far.try_clone()?);
        let file = record.take();
        thread::spawn(move || pass(near, far, file, mode));
        thread::spawn(move || pass(far_back, near_back, None, Mode::Pass));
    }
}

/// Copies one direction to its end.
fn pass(mut from: TcpStream, mut to: TcpStream, mut record: Option<File>, mode: Mode) {
    let mut piece = vec![0; 1 << 16];
    let mut first = true;
    while let Ok(read @ 1..) = from.read(&mut piece) {
        let bytes = &mut piece[..read];
        change(bytes, mode, first);
        first = false;
        let noted = record.as_mut().map_or(Ok(()), |file| file.write_all(bytes));
        if noted.and_then(|()| to.write_all(bytes)).is_err() {
            break;
        }
    }
    // The other direction may have closed the streams.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn change(bytes: &mut [u8], mode: Mode, first: bool) {
    match mode {
        Mode::Downgrade if first => {
            let at = bytes.windows(TLS_1_3.len()).position(|piece| piece == TLS_1_3);
            // The version is the last byte.
            if let Some(byte) = at.and_then(|at| bytes.get_mut(at + TLS_1_3.len() - 1)) {
                *byte = MINOR_1_2;
            }
        }
        Mode::Bend if !first => {
            if let Some(byte) = bytes.last_mut() {
                *byte ^= 1;
            }
        }
        Mode::Pass | Mode::Downgrade | Mode::Bend => {}
    }
}
