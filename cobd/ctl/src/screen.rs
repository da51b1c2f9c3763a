//! The outputs of a command: answers go to the standard output, all other text to the standard error.
//!
//! Colour adds nothing to the words and marks, and is off where it can't be seen (a pipe, `NO_COLOR`, `TERM=dumb`). A
//! screen can also write to memory: tests of commands use this.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex};

use cob_types::pipe::WhileRead;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use crate::args::ColorChoice;
use crate::words::clean_to;

/// The pause between checks whether the output still has a reader.
const LOOK: std::time::Duration = std::time::Duration::from_millis(500);
/// The longest problem or hint, in characters: it appears once, so it may be long.
const PROBLEM: usize = 1000;
/// The least width of a line, also on a smaller terminal.
const NARROWEST: usize = 40;

/// The two outputs of a command, and the properties of the terminal.
pub struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// They are the outputs of this process.
    standard: bool,
    out_terminal: bool,
    err_terminal: bool,
    colour: bool,
    width: Option<usize>,
}

/// A colour, named by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// As it should be.
    Good,
    /// In progress.
    Busy,
    /// An operator has to act.
    Bad,
    /// Less important.
    Dim,
    /// More important.
    Strong,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Paint::Good => "32",
            Paint::Busy => "33",
            Paint::Bad => "31",
            Paint::Dim => "2",
            Paint::Strong => "1",
        }
    }
}

/// A mark in front of a line of a table; it has the same meaning as its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// As it should be.
    Good,
    /// In progress.
    Busy,
    /// An operator has to act.
    Bad,
    /// Not known.
    Unknown,
}

impl Mark {
    const ALL: [Mark; 4] = [Mark::Good, Mark::Busy, Mark::Bad, Mark::Unknown];

    /// The character of the mark.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            Mark::Good => '✓',
            Mark::Busy => '◦',
            Mark::Bad => '✗',
            Mark::Unknown => '?',
        }
    }

    /// The name of the mark, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mark::Good => "good",
            Mark::Busy => "busy",
            Mark::Bad => "bad",
            Mark::Unknown => "unknown",
        }
    }

    /// Its colour.
    #[must_use]
    pub fn paint(self) -> Paint {
        match self {
            Mark::Good => Paint::Good,
            Mark::Busy => Paint::Busy,
            Mark::Bad | Mark::Unknown => Paint::Bad,
        }
    }
}

impl Screen {
    /// The standard outputs of this process.
    #[must_use]
    pub fn standard() -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        let width = |fd| rustix::termios::tcgetwinsize(fd).ok().map(|size| usize::from(size.ws_col));
        Self {
            standard: true,
            out_terminal: out.is_terminal(),
            err_terminal: err.is_terminal(),
            colour: false,
            width: width(std::os::fd::AsFd::as_fd(&out)).filter(|w| *w > 0),
            out: Box::new(WhileRead::new(out)),
            err: Box::new(WhileRead::new(err)),
        }
    }

    /// A screen that writes to memory, as to a pipe.
    #[must_use]
    pub fn memory() -> (Self, Written) {
        let written = Written::default();
        let screen = Self {
            out: Box::new(Tap(Arc::clone(&written.out))),
            err: Box::new(Tap(Arc::clone(&written.err))),
            standard: false,
            out_terminal: false,
            err_terminal: false,
            colour: false,
            width: None,
        };
        (screen, written)
    }

    /// Turns colour on or off.
    pub fn set_colour(&mut self, choice: ColorChoice) {
        let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        self.colour = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => self.out_terminal && self.err_terminal && !set("NO_COLOR") && !is_dumb(),
        };
    }

    /// Sets the width, as on a terminal.
    pub fn set_width(&mut self, width: usize) {
        self.width = Some(width);
    }

    /// Whether the answer goes to a terminal.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.out_terminal
    }

    /// Whether the terminal can't move its cursor.
    #[must_use]
    pub fn is_dumb(&self) -> bool {
        is_dumb()
    }

    /// Whether messages besides the answer go to a terminal.
    #[must_use]
    pub fn is_err_live(&self) -> bool {
        self.err_terminal
    }

    /// Waits until the reader of the answer has closed its pipe.
    pub fn abandoned(&self) -> impl Future<Output = io::Error> + use<> {
        let standard = self.standard;
        async move {
            while !(standard && reader_has_gone(&io::stdout())) {
                tokio::time::sleep(LOOK).await;
            }
            io::ErrorKind::BrokenPipe.into()
        }
    }

    /// The width of a line; `None`: lines are not wrapped or cut.
    #[must_use]
    pub fn width(&self) -> Option<usize> {
        self.width.map(|w| w.max(NARROWEST))
    }

    /// Whether text has colours.
    #[must_use]
    pub fn is_coloured(&self) -> bool {
        self.colour
    }

    /// Text in a colour.
    #[must_use]
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        if self.colour { format!("\u{1b}[{}m{text}\u{1b}[0m", paint.code()) } else { text.to_owned() }
    }

    /// Writes a line of the answer.
    ///
    /// # Errors
    /// If the line can't be written.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Writes a part of the answer unchanged.
    ///
    /// # Errors
    /// If the text can't be written.
    pub fn raw(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes the answer as JSON, on its own lines.
    ///
    /// # Errors
    /// If the answer can't be written.
    pub fn json<T: serde::Serialize>(&mut self, value: &T) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
        self.line(&text)
    }

    /// Writes a message besides the answer. A missing reader is no reason to stop.
    pub fn say(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}");
    }

    /// Writes a message besides the answer that the next such message overwrites; on a terminal only.
    pub fn say_over(&mut self, text: &str) {
        let text = match self.width() {
            Some(width) => text.chars().take(width - 1).collect(),
            None => text.to_owned(),
        };
        let _ = write!(self.err, "\r{text}\u{1b}[K");
        let _ = self.err.flush();
    }

    /// Writes `error: …`, `hint: …`.
    pub fn problem(&mut self, label: &str, text: &str) {
        let paint = if label == "hint" { Paint::Good } else { Paint::Bad };
        let label = self.paint(paint, &format!("{label}:"));
        self.say(&format!("{label} {}", clean_to(text, PROBLEM)));
    }

    /// Writes an error with its hint; an empty hint is left out.
    pub fn error(&mut self, text: &str, hint: &str) {
        self.problem("error", text);
        if !hint.is_empty() {
            self.problem("hint", hint);
        }
    }

    /// A table without borders, as wide as the screen.
    #[must_use]
    pub fn table(&self, header: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_header(header.iter().copied());
        if let Some(width) = self.width() {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(u16::try_from(width).unwrap_or(u16::MAX));
        }
        table
    }

    /// The lines of a table, its marks in colour.
    #[must_use]
    pub fn lines(&self, table: &Table) -> Vec<String> {
        let bare = table.to_string();
        let lines = bare.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
        if !self.colour {
            return lines.map(str::to_owned).collect();
        }
        lines
            .enumerate()
            .map(|(at, line)| match Mark::ALL.into_iter().find(|m| line.starts_with(m.sign())) {
                _ if at == 0 => self.paint(Paint::Strong, line),
                Some(mark) => {
                    let (sign, rest) = line.split_at(mark.sign().len_utf8());
                    format!("{}{rest}", self.paint(mark.paint(), sign))
                }
                None => line.to_owned(),
            })
            .collect()
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("colour", &self.colour).field("width", &self.width).finish_non_exhaustive()
    }
}

/// The text that was written to a screen in memory.
#[derive(Debug, Clone, Default)]
pub struct Written {
    out: Arc<Mutex<Vec<u8>>>,
    err: Arc<Mutex<Vec<u8>>>,
}

impl Written {
    /// The standard output so far.
    #[must_use]
    pub fn out(&self) -> String {
        text(&self.out)
    }

    /// The standard error so far.
    #[must_use]
    pub fn err(&self) -> String {
        text(&self.err)
    }
}

/// Whether the terminal of this process can't move its cursor, or show colours.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
}

fn text(bytes: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)).into_owned()
}

/// Whether the other end of a pipe is closed.
fn reader_has_gone(out: &impl std::os::fd::AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut one = [PollFd::new(out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut one, Some(&now)).is_ok() && one[0].revents().contains(PollFlags::ERR)
}

struct Tap(Arc<Mutex<Vec<u8>>>);

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
