//! A link by hand: TLS 1.3, ZMTP, the hellos, and then arbitrary messages.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use cob_engine::record::{Durable, Record};
use cob_tests::stranger::{handshake, message};
use cob_trust::SecretKey;
use cob_trust::tls::{self, Identity, LINK};
use cob_types::link::{Frame, LinkHello};
use cob_types::message::{About, Number, PROTOCOL};
use cob_types::{Batch, CobId, HostName, Incarnation, Item, PublicKey, codec};
use cobd::journal::{FileJournal, Keep, MAX_PAYLOAD};

use crate::PATIENCE;

/// Who asks whom for a link.
#[derive(Debug, clap::Args)]
pub(crate) struct Caller {
    /// Where the host listens
    #[arg(long)]
    to: SocketAddr,
    /// Its name
    #[arg(long)]
    host: HostName,
    /// Its key, which is in every manifest
    #[arg(long)]
    host_key: PublicKey,
    /// Who to say that one is
    #[arg(long)]
    from: HostName,
    /// The key file to show; none: no key is shown
    #[arg(long)]
    key: Option<PathBuf>,
    /// The state folder of the host that `from` is, whose daemon has ended: its next life is claimed
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// Claim a life that is so many before that one
    #[arg(long, default_value_t = 0, requires = "state_dir")]
    lives_ago: u32,
}

/// The result of a request for a link.
pub(crate) enum Met {
    Link(Box<Link>),
    Refused(String),
}

/// A link that the other side has accepted.
pub(crate) struct Link {
    tls: rustls::StreamOwned<rustls::ClientConnection, TcpStream>,
    from: HostName,
    life: Incarnation,
    /// The number of batches sent.
    said: u64,
}

impl Caller {
    /// Requests a link.
    pub(crate) fn meet(&self) -> io::Result<Met> {
        let life = self.life()?;
        match self.link(life) {
            Ok(link) => Ok(Met::Link(Box::new(link))),
            // No connection or a timeout is not a refusal.
            Err(error) if [io::ErrorKind::ConnectionRefused, io::ErrorKind::WouldBlock].contains(&error.kind()) => {
                Err(error)
            }
            Err(error) => Ok(Met::Refused(error.to_string())),
        }
    }

    fn link(&self, life: Incarnation) -> io::Result<Link> {
        let own = self.key.as_deref().map(SecretKey::load).transpose().map_err(io::Error::other)?;
        let own = own.as_ref().map(Identity::new).transpose().map_err(io::Error::other)?;
        let settings = tls::client(own.as_ref(), &[self.host_key], LINK).map_err(io::Error::other)?;
        let tls = rustls::ClientConnection::new(settings, tls::name()).map_err(io::Error::other)?;
        let stream = TcpStream::connect(self.to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut link = Link { tls: rustls::StreamOwned::new(tls, stream), from: self.from.clone(), life, said: 0 };
        let hello = LinkHello {
            newest: PROTOCOL,
            oldest: PROTOCOL,
            from: self.from.clone(),
            to: self.host.clone(),
            session: life,
            stream: u64::from(std::process::id()),
            received: None,
        };
        link.tls.write_all(&[handshake(), message(&Frame::Hello(hello))].concat())?;
        let mut greeting = vec![0; handshake().len()];
        link.tls.read_exact(&mut greeting)?;
        let answer = link.next()?;
        let answer = Frame::decode(&answer).map_err(io::Error::other)?;
        if !matches!(&answer, Frame::Hello(hello) if hello.from == self.host) {
            return Err(io::Error::other(format!("its first word is {answer:?}")));
        }
        Ok(link)
    }

    /// The incarnation to claim.
    fn life(&self) -> io::Result<Incarnation> {
        let Some(folder) = &self.state_dir else { return Ok(Incarnation { id: 0xBAD, start: 1 }) };
        let last = last_life(folder)?;
        let start = (last.start + 1).checked_sub(self.lives_ago).filter(|start| *start > 0);
        let start = start.ok_or_else(|| io::Error::other(format!("its last life was number {}", last.start)))?;
        Ok(Incarnation { start, ..last })
    }
}

/// The last incarnation in the journal of a state folder. Its daemon must have ended.
fn last_life(state_dir: &Path) -> io::Result<Incarnation> {
    let opened = FileJournal::open(&state_dir.join("journal"), Keep { segments: usize::MAX, bytes: 0 })
        .map_err(io::Error::other)?;
    let mut durable = Durable::default();
    for entry in &opened.entries {
        durable.apply(&codec::decode::<Record>(&entry.payload, MAX_PAYLOAD).map_err(io::Error::other)?);
    }
    durable.incarnation.ok_or_else(|| io::Error::other("it has never lived"))
}

impl Link {
    /// Sends a batch in the name of this host, or in its own, with an item about this change object.
    pub(crate) fn say(&mut self, name: Option<&HostName>, cob: Option<&CobId>) -> io::Result<()> {
        self.said += 1;
        let invalidated = |cob: &CobId| {
            let number = Number { start: self.life.start, counter: self.said };
            Item::Invalidated(About { asker: cob.clone(), asked: cob.clone(), number })
        };
        let batch = Batch {
            from: name.unwrap_or(&self.from).clone(),
            incarnation: self.life,
            lamport: self.said,
            items: cob.map(invalidated).into_iter().collect(),
            under_way: None,
        };
        let payload = batch.encode().map_err(io::Error::other)?;
        self.tls.write_all(&message(&Frame::Data { number: self.said, ack: 0, payload: &payload }))
    }

    /// Waits until the other side has acknowledged all batches, and sends the goodbye.
    pub(crate) fn until_taken(&mut self) -> io::Result<()> {
        loop {
            let bytes = self.next()?;
            let ack = match Frame::decode(&bytes).map_err(io::Error::other)? {
                Frame::Data { ack, .. } | Frame::Ack { ack } | Frame::Beat { ack, .. } => ack,
                Frame::Hello(_) | Frame::Bye => return Err(io::Error::other("the link has ended")),
            };
            if ack >= self.said {
                return self.tls.write_all(&message(&Frame::Bye));
            }
        }
    }

    /// The next message, as ZMTP carries it.
    fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut flags = [0];
        self.tls.read_exact(&mut flags)?;
        let length = if flags[0] == 2 {
            let mut long = [0; 8];
            self.tls.read_exact(&mut long)?;
            u64::from_be_bytes(long)
        } else {
            let mut short = [0];
            self.tls.read_exact(&mut short)?;
            short[0].into()
        };
        let mut body = Vec::new();
        let read = (&mut self.tls).take(length).read_to_end(&mut body)?;
        if read as u64 == length { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}
