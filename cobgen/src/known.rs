//! Asks the hosts of a cluster for their known generations before a new generation gets its number.
//!
//! A depot that was restored from an older copy lacks the numbers given out since. The hosts know these numbers, so all
//! reachable hosts are asked, within a bounded time. Publishing needs no answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cob_trust::SecretKey;
use cob_trust::tls::{HTTP, Identity, client, name};
use cob_types::generation::Security;
use cob_types::remote::MAX_JSON;
use cob_types::status::KnownGenerations;
use cob_types::trust::PublicKey;
use cob_types::{GenerationId, GenerationNumber, HostName, Manifest};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// The time limit for all hosts together.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The most hosts asked at the same time.
const AT_ONCE: usize = 256;
/// The header that names the intended host; a daemon of another host refuses to answer.
const MEANT_FOR: &str = "cob-host";

/// How to ask the hosts.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// The publisher's key: hosts that trust it answer. `None`: only hosts without keys answer.
    pub key: Option<&'a SecretKey>,
    /// The time limit for all hosts together.
    pub patience: Duration,
}

/// The answers of hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownByHosts(BTreeMap<HostName, Vec<GenerationId>>);

/// The address of a host, and the keys that it must prove.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    address: SocketAddr,
    /// `None`: without encryption, on this machine.
    keys: Option<Vec<PublicKey>>,
}

impl KnownByHosts {
    /// Asks the hosts of a manifest that have not answered yet.
    pub fn ask(&mut self, manifest: &Manifest, asking: Asking<'_>) {
        let places = places(manifest).into_iter().filter(|(host, _)| !self.0.contains_key(host)).collect();
        self.0.extend(answers(places, asking));
    }

    /// The newest generation that a host knows; zero: no generation is known.
    #[must_use]
    pub fn newest(&self) -> GenerationNumber {
        self.0.values().flatten().map(|id| id.generation).max().unwrap_or_default()
    }

    /// The hosts that know a generation newer than `latest`, each with its newest generation.
    #[must_use]
    pub fn ahead_of(&self, latest: GenerationNumber) -> BTreeMap<HostName, GenerationNumber> {
        let newest = |known: &[GenerationId]| known.iter().map(|id| id.generation).max();
        let ahead = |(host, known): (&HostName, &Vec<GenerationId>)| {
            Some((host.clone(), newest(known).filter(|newest| *newest > latest)?))
        };
        self.0.iter().filter_map(ahead).collect()
    }

    /// The hosts that know another content under this generation's number.
    #[must_use]
    pub fn with_another(&self, own: GenerationId) -> BTreeSet<HostName> {
        let another = |id: &GenerationId| id.generation == own.generation && id.manifest != own.manifest;
        let hosts = self.0.iter().filter(|(_, known)| known.iter().any(another));
        hosts.map(|(host, _)| host.clone()).collect()
    }
}

/// The addresses of the hosts of a manifest.
fn places(manifest: &Manifest) -> Vec<(HostName, Place)> {
    let mut places = Vec::new();
    for (host, entry) in &manifest.hosts {
        let address = entry.address.as_deref().and_then(|a| a.strip_prefix("tcp://")?.parse::<SocketAddr>().ok());
        let keys = match manifest.security {
            Security::LoopbackOnly => None,
            Security::Identities => {
                Some(entry.keys.iter().filter(|key| !manifest.revoked.contains(key)).copied().collect())
            }
        };
        if let Some(address) = address.filter(|a| keys.is_some() || a.ip().to_canonical().is_loopback()) {
            places.push((host.clone(), Place { address, keys }));
        }
    }
    places
}

fn answers(places: Vec<(HostName, Place)>, asking: Asking<'_>) -> BTreeMap<HostName, Vec<GenerationId>> {
    // With an unusable key, or on a system without threads, no host is asked, as if no host answered.
    let identity = asking.key.and_then(|key| Identity::new(key).ok()).map(Arc::new);
    let all = async {
        let (mut asked, at_once) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
        for (host, place) in places {
            let (identity, at_once) = (identity.clone(), at_once.clone());
            asked.spawn(async move {
                let _place = at_once.acquire().await;
                let known = answer(&host, &place, identity.as_deref()).await.ok()?;
                Some((host, known))
            });
        }
        let mut all = BTreeMap::new();
        let until = tokio::time::Instant::now() + asking.patience;
        while let Ok(Some(answer)) = tokio::time::timeout_at(until, asked.join_next()).await {
            all.extend(answer.ok().flatten());
        }
        all
    };
    // In a separate thread: the caller may be within a runtime, as in the demo.
    let ask = || Some(tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?.block_on(all));
    std::thread::scope(|scope| scope.spawn(ask).join()).ok().flatten().unwrap_or_default()
}

/// The generations that a host knows.
async fn answer(host: &HostName, place: &Place, identity: Option<&Identity>) -> io::Result<Vec<GenerationId>> {
    let stream = TcpStream::connect(place.address).await?;
    let known: KnownGenerations = match &place.keys {
        None => exchange(stream, host, place.address).await?,
        Some(keys) => {
            let config = client(identity, keys, HTTP).map_err(io::Error::other)?;
            exchange(TlsConnector::from(config).connect(name(), stream).await?, host, place.address).await?
        }
    };
    if known.host != *host {
        return Err(io::Error::other("another host answers"));
    }
    Ok(known.known)
}

async fn exchange<S>(stream: S, host: &HostName, address: SocketAddr) -> io::Result<KnownGenerations>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // This task drives the connection and ends with it.
    let carried = tokio::spawn(connection);
    let request = Request::get(KnownGenerations::PATH)
        .header(HOST, address.to_string())
        .header(MEANT_FOR, host.as_str())
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let answered = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        if !answer.status().is_success() {
            return Err(io::Error::other("it refuses"));
        }
        let body = Limited::new(answer.into_body(), MAX_JSON).collect().await.map_err(io::Error::other)?;
        serde_json::from_slice(&body.to_bytes()).map_err(io::Error::other)
    };
    let known = answered.await;
    carried.abort();
    known
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use cob_types::BlobHash;
    use cob_types::generation::ManifestHost;

    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a name")
    }

    fn id(number: u64, content: u8) -> GenerationId {
        GenerationId { generation: GenerationNumber(number), manifest: BlobHash([content; 32]) }
    }

    fn manifest(hosts: &[(&str, SocketAddr)]) -> Manifest {
        let mut manifest = Manifest::empty(GenerationNumber(1), GenerationNumber(0), Security::LoopbackOnly);
        for (name, address) in hosts {
            let entry = ManifestHost {
                address: Some(format!("tcp://{address}")),
                keys: Vec::new(),
                bundle: BlobHash([0; 32]),
                cobs: 0,
            };
            manifest.hosts.insert(host(name), entry);
        }
        manifest
    }

    /// A daemon that answers once as this host; without a host it accepts connections and never answers.
    fn daemon(name: Option<&'static str>, known: Vec<GenerationId>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let Some(name) = name else {
                // Wait until the client has gone.
                let _ = stream.read(&mut request);
                return;
            };
            let body = serde_json::to_string(&KnownGenerations { host: host(name), known }).expect("JSON");
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        });
        address
    }

    #[test]
    fn only_answers_of_the_named_hosts_count() {
        let gone = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("an address");
        let manifest = manifest(&[
            ("n1", daemon(Some("n1"), vec![id(4, 1), id(3, 1)])),
            ("n2", daemon(Some("n2"), vec![id(2, 7)])),
            ("n3", daemon(Some("other"), vec![id(99, 1)])),
            ("n4", daemon(None, Vec::new())),
            ("n5", gone),
        ]);
        let mut known = KnownByHosts::default();
        known.ask(&manifest, Asking { key: None, patience: Duration::from_secs(3) });
        assert_eq!(known.newest(), GenerationNumber(4), "what another host says in its place does not count");
        assert_eq!(known.ahead_of(GenerationNumber(2)), BTreeMap::from([(host("n1"), GenerationNumber(4))]));
        assert_eq!(known.with_another(id(2, 1)), BTreeSet::from([host("n2")]));
        assert_eq!(known.with_another(id(2, 7)), BTreeSet::new());
    }

    #[test]
    fn without_encryption_no_remote_host_is_asked() {
        let far = manifest(&[("n1", ([192, 0, 2, 1], 7077).into())]);
        assert_eq!(places(&far), []);
        let secured = Manifest { security: Security::Identities, ..far };
        assert_eq!(places(&secured).len(), 1);
    }
}
