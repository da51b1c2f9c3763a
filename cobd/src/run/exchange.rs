//! Exchanges input and output with a program until the program ends.
//!
//! Processes that it leaves behind may hold its pipes open, so this module does not wait for the end of the pipes.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::mem;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::supervise::{has_ended, timespec};

/// How long to wait for the end of the pipes after the end of a program: the last program of a pipeline ends a moment
/// after its shell.
const LINGER: Duration = Duration::from_millis(200);
/// The polling interval on kernels before 5.3, which do not report the end of a process.
const LOOK: Duration = Duration::from_millis(10);
/// How many bytes a ready pipe accepts without blocking.
const PORTION: usize = 4096;

/// The stream on which a program has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Its standard output.
    Out,
    /// Its standard error.
    Err,
}

/// The pipes that are still open.
struct Pipes<'a> {
    stdin: Option<ChildStdin>,
    input: &'a [u8],
    outputs: Vec<(Stream, File)>,
    take: &'a mut dyn FnMut(Stream, &[u8]) -> ControlFlow<()>,
}

/// Writes the input to a child and reads its output, on the streams that are pipes, until it has ended or `take`
/// breaks. A child that does not read gets no input. The child is not reaped.
///
/// # Errors
/// If the system refuses to wait, or a pipe can't be read.
pub(crate) fn exchange(
    child: &mut Child,
    input: &[u8],
    take: &mut dyn FnMut(Stream, &[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let pid = Pid::from_child(child);
    let end = pidfd_open(pid, PidfdFlags::empty()).ok();
    let mut pipes = Pipes::of(child, input, take);
    while !has_ended(pid) {
        let longest = end.is_none().then_some(LOOK);
        if pipes.wait(end.as_ref(), longest)?.is_break() {
            return Ok(());
        }
    }
    pipes.stdin = None;
    let mut flow = pipes.take_what_lies_there()?;
    let limit = Instant::now() + LINGER;
    while flow.is_continue() && !pipes.outputs.is_empty() && Instant::now() < limit {
        flow = pipes.wait(None, Some(limit.saturating_duration_since(Instant::now())))?;
    }
    Ok(())
}

impl<'a> Pipes<'a> {
    fn of(child: &mut Child, input: &'a [u8], take: &'a mut dyn FnMut(Stream, &[u8]) -> ControlFlow<()>) -> Self {
        let out = child.stdout.take().map(|pipe| (Stream::Out, File::from(OwnedFd::from(pipe))));
        let err = child.stderr.take().map(|pipe| (Stream::Err, File::from(OwnedFd::from(pipe))));
        let stdin = child.stdin.take().filter(|_| !input.is_empty());
        Self { stdin, input, outputs: out.into_iter().chain(err).collect(), take }
    }

    /// Waits until a pipe is ready, the child has ended or the time is over, and handles the event.
    fn wait(&mut self, end: Option<&OwnedFd>, longest: Option<Duration>) -> io::Result<ControlFlow<()>> {
        let outputs = self.outputs.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN));
        let stdin = self.stdin.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT));
        let end = end.into_iter().map(|end| PollFd::new(end, PollFlags::IN));
        let mut fds: Vec<_> = outputs.chain(stdin).chain(end).collect();
        match poll(&mut fds, longest.map(timespec).as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(ControlFlow::Continue(())),
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (of_outputs, of_stdin) = ready.split_at(self.outputs.len());
        if self.stdin.is_some() && of_stdin.first() == Some(&true) {
            self.give();
        }
        self.take_from(of_outputs)
    }

    fn give(&mut self) {
        let portion = &self.input[..self.input.len().min(PORTION)];
        match self.stdin.as_mut().map(|pipe| pipe.write(portion)) {
            Some(Ok(given)) => self.input = &self.input[given..],
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Some(Err(_)) | None => self.input = &[],
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    /// Reads once from the ready streams and closes streams at their end.
    fn take_from(&mut self, ready: &[bool]) -> io::Result<ControlFlow<()>> {
        let mut buffer = [0; 8192];
        for ((stream, mut pipe), ready) in mem::take(&mut self.outputs).into_iter().zip(ready) {
            if *ready {
                match pipe.read(&mut buffer) {
                    Ok(0) => continue,
                    Ok(n) => {
                        if (self.take)(stream, &buffer[..n]).is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.outputs.push((stream, pipe));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads the output that the child wrote before its end, even if other processes keep writing.
    fn take_what_lies_there(&mut self) -> io::Result<ControlFlow<()>> {
        for (stream, pipe) in &mut self.outputs {
            let mut bytes = Vec::new();
            let lying = ioctl_fionread(&*pipe)?;
            pipe.take(lying).read_to_end(&mut bytes)?;
            if (self.take)(*stream, &bytes).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Signal, kill_process};

    use super::*;

    /// The output of a script, until it has ended or this many bytes have come.
    fn heard(script: &str, enough: usize) -> Vec<u8> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("begun");
        let mut heard = Vec::new();
        let said = exchange(&mut child, b"", &mut |stream, bytes| {
            assert_eq!(stream, Stream::Out);
            heard.extend_from_slice(bytes);
            if heard.len() < enough { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        said.expect("heard");
        let _ = child.kill();
        child.wait().expect("reaped");
        heard
    }

    #[test]
    fn output_shortly_after_the_end_of_a_process_is_read() {
        // On a busy machine it may take longer.
        let mut tries = (0..20).map(|_| heard("(sleep 0.02; echo late) & echo soon", usize::MAX));
        assert!(tries.any(|said| said == b"soon\nlate\n"));
    }

    #[test]
    fn endless_output_after_the_end_of_a_process_is_not_read() {
        let begun = Instant::now();
        let said = heard("while echo y; do sleep 0.01; done & echo $!", usize::MAX);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let number = said.split(|byte| !byte.is_ascii_digit()).find(|digits| !digits.is_empty()).expect("its number");
        // It ends by itself when its pipe closes, if it has not ended yet.
        let number = std::str::from_utf8(number).expect("digits").parse().ok().and_then(Pid::from_raw);
        let _ = kill_process(number.expect("a number"), Signal::KILL);
    }

    #[test]
    fn reading_stops_at_the_output_limit() {
        assert!(heard("yes", 100_000).len() < 200_000);
    }
}
