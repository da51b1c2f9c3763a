//! The servers of the example `webshop`: real processes that fail when a dependency is missing.
//!
//! The demo and `examples/webshop` run this program as a database, as application servers and as a load balancer, so
//! the example needs no other program on the machine.
//!
//! ```text
//!   ask ──> lb ──> app ──> db <── its configuration file
//! ```
//!
//! Rules: a server looks for its dependencies before it listens, and ends with an error if a dependency is missing. It
//! keeps a connection open to each server that it depends on; when this connection ends, the server ends with an error
//! too. So a change in a wrong order leaves a trace: a server that ended by itself. All addresses are loopback, lines
//! are short, connections few.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

mod model;

pub(crate) use model::{Ports, Version, write_model};

/// The word after which this program acts as a server: `cobctl __webshop db …`.
pub(crate) const SUBCOMMAND: &str = "__webshop";
/// The usage text.
pub(crate) const USAGE: &str = "usage: __webshop db --listen ADDRESS --config FILE
       __webshop app --listen ADDRESS --db ADDRESS
       __webshop lb --listen ADDRESS --apps ADDRESS,ADDRESS…
       __webshop ask ADDRESS";

/// How long a server waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest line and the longest configuration, in bytes.
const MAX_TEXT: u64 = 4096;
/// The most connections that a server serves at a time.
const MAX_CONNECTIONS: usize = 64;

/// The role of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// Answers with the text of its configuration.
    Db {
        /// Its own address.
        listen: SocketAddr,
        /// Its configuration, read once at its start.
        config: PathBuf,
    },
    /// Answers with the answer of the database.
    App {
        /// Its own address.
        listen: SocketAddr,
        /// The database.
        db: SocketAddr,
    },
    /// Answers with the answers of the application servers in turn.
    Lb {
        /// Its own address.
        listen: SocketAddr,
        /// All application servers.
        apps: Vec<SocketAddr>,
    },
    /// No server: asks a server, prints the answer and ends.
    Ask(SocketAddr),
}

/// Why a process ended.
#[derive(Debug)]
pub(crate) enum ShopError {
    /// Its arguments are wrong.
    Usage(String),
    /// A dependency is missing.
    Missing {
        /// The dependency.
        what: String,
        /// The error.
        why: String,
    },
    /// A dependency was lost while the server ran.
    Lost {
        /// The dependency.
        what: String,
        /// The error.
        why: String,
    },
    /// The process can't listen, or can't print.
    Io {
        /// The failed action.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => write!(f, "{what}\n{USAGE}"),
            Self::Missing { what, why } => write!(f, "{what}: {why}"),
            Self::Lost { what, why } => write!(f, "{what} stopped while it was needed: {why}"),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for ShopError {}

impl Role {
    /// Parses the words after [`SUBCOMMAND`].
    ///
    /// # Errors
    /// [`ShopError::Usage`] with the mistake.
    pub(crate) fn parse<I: IntoIterator<Item = S>, S: Into<String>>(words: I) -> Result<Self, ShopError> {
        let words: Vec<String> = words.into_iter().map(Into::into).collect();
        let usage = |what: String| ShopError::Usage(what);
        let (role, rest) = words.split_first().ok_or_else(|| usage("no server is named".to_owned()))?;
        if role == "ask" {
            return match rest {
                [of] => Ok(Self::Ask(address(of)?)),
                _ => Err(usage("`ask` takes a single address".to_owned())),
            };
        }
        let option = |name: &str| {
            let found = rest.chunks(2).find(|pair| pair[0] == name).and_then(|pair| pair.get(1));
            found.ok_or_else(|| usage(format!("`{role}` needs `{name}`")))
        };
        let known: &[&str] = match role.as_str() {
            "db" => &["--listen", "--config"],
            "app" => &["--listen", "--db"],
            "lb" => &["--listen", "--apps"],
            other => return Err(usage(format!("there is no server `{other}`"))),
        };
        if let Some(word) = rest.iter().step_by(2).find(|word| !known.contains(&word.as_str())) {
            return Err(usage(format!("`{role}` has no option `{word}`")));
        }
        let listen = address(option("--listen")?)?;
        Ok(match role.as_str() {
            "db" => Self::Db { listen, config: PathBuf::from(option("--config")?) },
            "app" => Self::App { listen, db: address(option("--db")?)? },
            _ => Self::Lb { listen, apps: option("--apps")?.split(',').map(address).collect::<Result<_, _>>()? },
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Db { listen, .. } => write!(f, "db {listen}"),
            Self::App { listen, .. } => write!(f, "app {listen}"),
            Self::Lb { listen, .. } => write!(f, "lb {listen}"),
            Self::Ask(_) => f.write_str("ask"),
        }
    }
}

/// Plays a role to its end. For a server each end is an error, except by a signal. Events are printed to `log`, and so
/// is the answer of [`Role::Ask`].
///
/// # Errors
/// The reason of the end.
pub(crate) fn play(role: &Role, log: &mut dyn Write) -> Result<(), ShopError> {
    match role {
        Role::Db { listen, config } => {
            let answer = read_config(config)?;
            say(log, &format!("{role}: {} says {answer}", config.display()))?;
            let (ended, end) = mpsc::channel();
            serve(role, *listen, Arc::new(move || Ok(answer.clone())), &ended, log)?;
            wait(&end)
        }
        Role::App { listen, db } => {
            let (ended, end) = mpsc::channel();
            rest_on("the database", *db, &ended)?;
            let (db, me) = (*db, role.to_string());
            let answer = move || Ok(format!("{me} <- db {db}: {}", answer_of("the database", db)?));
            serve(role, *listen, Arc::new(answer), &ended, log)?;
            wait(&end)
        }
        Role::Lb { listen, apps } => {
            let (ended, end) = mpsc::channel();
            for app in apps {
                rest_on("an application server", *app, &ended)?;
            }
            let (apps, next) = (apps.clone(), AtomicUsize::new(0));
            let answer = move || {
                let app = apps[next.fetch_add(1, Ordering::Relaxed) % apps.len()];
                Ok(format!("lb <- {}", answer_of("an application server", app)?))
            };
            serve(role, *listen, Arc::new(answer), &ended, log)?;
            wait(&end)
        }
        Role::Ask(of) => say(log, &ask(*of)?),
    }
}

/// Asks a server, as a customer does.
///
/// # Errors
/// If the server gives no answer.
pub(crate) fn ask(server: SocketAddr) -> Result<String, ShopError> {
    answer_of("the server", server)
}

/// Parses a loopback address: the example must not be reachable from other machines.
fn address(text: &str) -> Result<SocketAddr, ShopError> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => Err(ShopError::Usage(format!("{text} is not a loopback address such as 127.0.0.1:7410"))),
        Err(_) => Err(ShopError::Usage(format!("{text:?} is not an address such as 127.0.0.1:7410"))),
    }
}

/// The configuration in a single line: `goods = teapot, price = 10`.
fn read_config(path: &Path) -> Result<String, ShopError> {
    let missing = |why: String| ShopError::Missing { what: format!("the configuration {}", path.display()), why };
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_TEXT).read_to_string(&mut text));
    read.map_err(|e| missing(e.to_string()))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if !lines.iter().any(|line| line.starts_with("price =")) {
        return Err(missing("it names no price".to_owned()));
    }
    Ok(lines.join(", "))
}

/// Computes the answer of a server to each question.
type Answer = Arc<dyn Fn() -> Result<String, ShopError> + Send + Sync>;

/// Listens, and answers each connection on its own thread.
fn serve(
    role: &Role,
    listen: SocketAddr,
    answer: Answer,
    ended: &Sender<ShopError>,
    log: &mut dyn Write,
) -> Result<(), ShopError> {
    let failed = |source| ShopError::Io { what: format!("{role} can't listen"), source };
    let listener = TcpListener::bind(listen).map_err(failed)?;
    say(log, &format!("{role}: ready"))?;
    let (ended, me) = (ended.clone(), role.to_string());
    std::thread::spawn(move || {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming() {
            let stream = match stream {
                Ok(stream) => stream,
                Err(source) => {
                    let what = format!("{me} can't accept connections");
                    let _ = ended.send(ShopError::Io { what, source });
                    return;
                }
            };
            let place = Place::take(&open);
            let (answer, ended) = (Arc::clone(&answer), ended.clone());
            // Beyond the limit the connection is closed without an answer, which the client reports.
            let Some(place) = place else { continue };
            std::thread::spawn(move || {
                let _place = place;
                if let Err(error) = converse(&stream, &answer) {
                    let _ = ended.send(error);
                }
            });
        }
    });
    Ok(())
}

/// Answers a connection until the client ends it. An error means that a dependency failed; a fault of the client is no
/// error.
fn converse(stream: &TcpStream, answer: &Answer) -> Result<(), ShopError> {
    while let Ok(line) = read_line(stream) {
        let reply = match line.as_str() {
            "ask" => answer()?,
            // A dependent server keeps the connection open and so notices the end of this server.
            "rest" => "resting".to_owned(),
            _ => "what?".to_owned(),
        };
        let mut to = stream;
        if to.write_all(format!("{reply}\n").as_bytes()).is_err() {
            break;
        }
    }
    Ok(())
}

/// A slot for an open connection.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < MAX_CONNECTIONS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens the connection to a dependency, and starts a thread that reports its end.
fn rest_on(what: &'static str, server: SocketAddr, ended: &Sender<ShopError>) -> Result<(), ShopError> {
    let what = format!("{what} at {server}");
    let missing = |e: io::Error| ShopError::Missing { what: what.clone(), why: e.to_string() };
    let stream = TcpStream::connect_timeout(&server, PATIENCE).map_err(missing)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(missing)?;
    (&stream).write_all(b"rest\n").map_err(missing)?;
    read_line(&stream).map_err(missing)?;
    stream.set_read_timeout(None).map_err(missing)?;
    let ended = ended.clone();
    std::thread::spawn(move || {
        let why = match read_line(&stream) {
            Ok(line) => format!("it said {line:?}"),
            Err(e) => e.to_string(),
        };
        let _ = ended.send(ShopError::Lost { what, why });
    });
    Ok(())
}

fn answer_of(what: &str, server: SocketAddr) -> Result<String, ShopError> {
    let tried = || -> io::Result<String> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        (&stream).write_all(b"ask\n")?;
        read_line(&stream)
    };
    tried().map_err(|e| ShopError::Missing { what: format!("{what} at {server}"), why: e.to_string() })
}

fn read_line(stream: &TcpStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_TEXT)).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
    }
}

/// Waits until a dependency is lost.
fn wait(end: &Receiver<ShopError>) -> Result<(), ShopError> {
    // The thread that listens holds the other end.
    end.recv().map_or(Ok(()), Err)
}

fn say(log: &mut dyn Write, line: &str) -> Result<(), ShopError> {
    let said = writeln!(log, "{line}").and_then(|()| log.flush());
    said.map_err(|source| ShopError::Io { what: "can't print".to_owned(), source })
}

#[cfg(test)]
mod tests;
