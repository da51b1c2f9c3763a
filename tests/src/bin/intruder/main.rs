//! A hostile host, for tests on a real network: connects with unknown keys, speaks for others, replays recorded bytes,
//! offers old TLS, or stands between two hosts.
//!
//! Each command prints its result and exits with 0 if the attack failed: if it was refused, or got no answer. The test
//! checks the effects on the other side (its log, its counters).

mod caller;
mod tap;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use cob_tests::stranger;
use cob_types::{CobId, HostName};

use caller::{Caller, Met};
use tap::Mode;

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Parser)]
#[command(about = "A hostile host, for tests")]
enum Command {
    /// Asks for a link, again and again, and leaves as soon as it has one
    Knock {
        #[command(flatten)]
        caller: Caller,
        /// How often
        #[arg(long, default_value_t = 1)]
        tries: u32,
    },
    /// Has a link and says on it what is not its own to say
    Speak {
        #[command(flatten)]
        caller: Caller,
        /// In the name of this host
        #[arg(long)]
        name: Option<HostName>,
        /// For this change object
        #[arg(long)]
        cob: Option<CobId>,
        /// How often
        #[arg(long, default_value_t = 1)]
        tries: u32,
    },
    /// Sends the bytes of a file, again and again
    Play {
        #[arg(long)]
        to: SocketAddr,
        file: PathBuf,
        /// How often
        #[arg(long, default_value_t = 1)]
        tries: u32,
    },
    /// Speaks anything but TLS 1.3
    Downgrade {
        #[arg(long)]
        to: SocketAddr,
        what: Old,
        /// How often
        #[arg(long, default_value_t = 1)]
        tries: u32,
    },
    /// Stands between two hosts, until it is ended
    Tap {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        to: SocketAddr,
        /// Where to write down what the first who dials says
        #[arg(long)]
        record: Option<PathBuf>,
        #[arg(long, value_enum, default_value_t = Mode::Pass)]
        mode: Mode,
    },
}

/// Protocols before TLS 1.3.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Old {
    /// A handshake of TLS 1.2
    Tls12,
    /// A link in clear
    Zmtp,
    /// HTTP in clear
    Http,
}

impl Old {
    fn bytes(self) -> Vec<u8> {
        match self {
            Old::Tls12 => stranger::tls_1_2(),
            Old::Zmtp => stranger::handshake(),
            Old::Http => b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        }
    }
}

fn main() -> ExitCode {
    match run(&Command::parse()) {
        Ok(said) => {
            eprintln!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> io::Result<String> {
    match command {
        Command::Knock { caller, tries } => {
            let mut why = String::new();
            for _ in 0..*tries {
                match caller.meet()? {
                    Met::Link(_) => return Err(io::Error::other("let in")),
                    Met::Refused(refused) => why = refused,
                }
            }
            Ok(format!("refused {tries} times: {why}"))
        }
        Command::Speak { caller, name, cob, tries } => {
            let Met::Link(mut link) = caller.meet()? else { return Err(io::Error::other("there is no link")) };
            for _ in 0..*tries {
                link.say(name.as_ref(), cob.as_ref())?;
            }
            link.until_taken()?;
            Ok(format!("said {tries} times"))
        }
        Command::Play { to, file, tries } => {
            let bytes = std::fs::read(file)?;
            for _ in 0..*tries {
                // The other side answers the handshake and then closes.
                until_closed(*to, &bytes)?;
            }
            Ok(format!("{} bytes played {tries} times", bytes.len()))
        }
        Command::Downgrade { to, what, tries } => {
            for _ in 0..*tries {
                let answer = until_closed(*to, &what.bytes())?;
                // A TLS alert is a refusal.
                if !answer.is_empty() && answer[0] != 0x15 {
                    return Err(io::Error::other(format!("answered: {answer:02x?}")));
                }
            }
            Ok(format!("refused {tries} times"))
        }
        Command::Tap { listen, to, record, mode } => tap::run(*listen, *to, record.as_deref(), *mode),
    }
}

/// Sends these bytes, and returns all answers until the other side closes.
fn until_closed(to: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // The other side may close before all bytes are sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        Ok(_) | Err(_) => Ok(answer),
    }
}
