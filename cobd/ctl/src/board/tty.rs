//! The terminal of the board: its state is restored at the end, on a panic, and while the shell has stopped the program.

use std::io::{self, Stdout, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use rustix::process::{Signal, getpid, getppid, getsid, kill_current_process_group, kill_process};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

use super::draw::draw;
use super::state::Board;

/// How many keys may wait.
const KEYS: usize = 64;

/// Whether the terminal belongs to the board.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal while the board has it.
pub(crate) struct Tty {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    keys: mpsc::Receiver<Event>,
    stop: unix::Signal,
    goes_on: unix::Signal,
    /// The shell has the terminal.
    is_stopped: bool,
}

impl Tty {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If there is no terminal, or it refuses.
    pub(crate) fn open() -> io::Result<Self> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                before(panic);
            }));
        });
        let (stop, goes_on) = (signal(Signal::TSTP)?, signal(Signal::CONT)?);
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).inspect_err(|_| leave())?;
        let (tell, keys) = mpsc::channel(KEYS);
        // The thread ends with the program: nothing interrupts the read of a key.
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || while event::read().is_ok_and(|event| tell.blocking_send(event).is_ok()) {})
            .inspect_err(|_| leave())?;
        Ok(Self { terminal, keys, stop, goes_on, is_stopped: false })
    }

    /// The size of the terminal.
    ///
    /// # Errors
    /// If the terminal does not tell it.
    pub(crate) fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|size| (size.width, size.height))
    }

    /// Draws the board, unless the shell has the terminal.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(crate) fn draw(&mut self, board: &Board, has_colour: bool) -> io::Result<()> {
        if self.is_stopped {
            return Ok(());
        }
        if !IS_ENTERED.load(Ordering::SeqCst) {
            return Err(io::Error::other("a part of the program has failed"));
        }
        self.terminal.draw(|frame| draw(board, frame, has_colour)).map(drop)
    }

    /// Draws the whole screen again with the next frame.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        // Another way to clear asks the terminal for its cursor, and the thread of keys would take the answer.
        self.terminal.resize(self.terminal.size()?.into())
    }

    /// Waits for the next key or size. Absent: the shell had stopped the program, and the terminal was taken again.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Event>> {
        tokio::select! {
            event = self.keys.recv() => event.map(Some).ok_or_else(|| io::Error::other("the terminal is gone")),
            _ = self.stop.recv() => {
                leave();
                self.is_stopped = true;
                // The signal that can't be handled: the shell sees a stopped program.
                kill_process(getpid(), Signal::STOP)?;
                Ok(None)
            }
            _ = self.goes_on.recv() => {
                enter()?;
                self.is_stopped = false;
                self.clear()?;
                Ok(None)
            }
        }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        leave();
    }
}

impl std::fmt::Debug for Tty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tty").finish_non_exhaustive()
    }
}

/// Stops the program as Ctrl-Z does, if a shell of this session can continue it.
pub(crate) fn suspend() {
    let has_shell = getppid().is_some_and(|parent| getsid(Some(parent)).ok() == getsid(None).ok());
    if has_shell {
        // Without the right to stop the group, the program goes on.
        let _ = kill_current_process_group(Signal::TSTP);
    }
}

fn signal(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_ENTERED.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| leave())
}

/// Gives the terminal back as it was, once.
fn leave() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        // A closed terminal needs no restoration.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::Tty;

    const PANIC: &str = "a panic of a test";

    #[test]
    #[ignore = "needs a terminal: the next test starts it in one"]
    fn panics() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let _tty = Tty::open().expect("a terminal");
            panic!("{PANIC}");
        });
    }

    #[test]
    fn a_panic_gives_the_terminal_back_before_its_message() {
        let this = std::env::current_exe().expect("this program");
        let line = format!("{} --exact board::tty::tests::panics --ignored --nocapture; stty -a", this.display());
        let script = Command::new("script")
            .args(["-q", "-c", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .output();
        let Ok(ran) = script else {
            println!("skipped: `script` is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&ran.stdout);
        let [enter, leave, message] = ["\u{1b}[?1049h", "\u{1b}[?1049l", PANIC].map(|part| text.find(part));
        assert!(enter.is_some() && enter < leave && leave < message, "{text:?}");
        assert_eq!(text.matches("\u{1b}[?1049l").count(), 1, "once: {text:?}");
        assert!(text.contains(" icanon") && text.contains(" echo "), "the modes are as before: {text:?}");
    }
}
