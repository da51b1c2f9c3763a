//! Writes for a reader that may stop reading (`cobctl status | head -1`).

use std::io::{self, Write};

/// Writes while the reader reads. Later output is dropped and counts as written, so that the program continues and its
/// exit status is right.
#[derive(Debug)]
pub struct WhileRead<W> {
    to: W,
    left: bool,
}

impl<W> WhileRead<W> {
    /// Writes to this writer.
    pub const fn new(to: W) -> Self {
        Self { to, left: false }
    }

    fn or_left<T>(&mut self, done: io::Result<T>, dropped: T) -> io::Result<T> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.left = true;
                Ok(dropped)
            }
            done => done,
        }
    }
}

impl<W: Write> Write for WhileRead<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left {
            return Ok(bytes.len());
        }
        let written = self.to.write(bytes);
        self.or_left(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.left {
            return Ok(());
        }
        let flushed = self.to.flush();
        self.or_left(flushed, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Gone(io::ErrorKind);

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_ignored_and_a_full_disk_is_an_error() {
        let mut left = WhileRead::new(Gone(io::ErrorKind::BrokenPipe));
        writeln!(left, "one").expect("dropped");
        left.flush().expect("dropped");
        let mut full = WhileRead::new(Gone(io::ErrorKind::StorageFull));
        writeln!(full, "one").expect_err("told");
    }
}
