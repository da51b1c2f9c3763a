//! Answers to hosts: numbers, manifests, signatures, and the bundle of the calling host.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cob_depot::{Depot, DepotError};
use cob_types::remote::{BUNDLE, GENERATIONS, Generations, MANIFEST, MAX_LISTED, MAX_WAIT, RemoteRefusal, SIGNATURES};
use cob_types::{GenerationNumber, HostName};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::shelf::Shelf;

/// The most parts of generations in memory at a time.
const PARTS: usize = 16;

/// Answers authenticated hosts.
pub(super) struct Answers {
    shelf: Arc<Shelf>,
    parts: Arc<Semaphore>,
}

/// An answer, whole in memory.
pub(super) type Answer = Response<Full<Bytes>>;

/// A parsed request.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'a> {
    Numbers { after: Option<GenerationNumber>, wait: Duration },
    Part { generation: GenerationNumber, part: &'a str },
}

impl Answers {
    pub(super) fn new(shelf: Arc<Shelf>) -> Self {
        Self { shelf, parts: Arc::new(Semaphore::new(PARTS)) }
    }

    /// `host` is the host whose key the caller has proved.
    pub(super) async fn to(&self, host: &HostName, method: &Method, path: &str, query: Option<&str>) -> Answer {
        if method != Method::GET {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "generations can only be read: use GET");
        }
        match Asked::parse(path, query.unwrap_or_default()) {
            Ok(Asked::Numbers { after, wait }) => self.numbers(host, after, wait).await,
            Ok(Asked::Part { generation, part }) => self.part(host, generation, part).await,
            Err((status, why)) => refuse(status, why),
        }
    }

    async fn numbers(&self, host: &HostName, after: Option<GenerationNumber>, wait: Duration) -> Answer {
        let mut newest = self.shelf.newest();
        let newer = newest.wait_for(|n| n.unwrap_or_default() > after.unwrap_or_default());
        if after.is_some() {
            // Without a newer generation the answer repeats the present numbers.
            let _ = tokio::time::timeout(wait, newer).await;
        } else {
            // A caller that does not wait wants the present state, which may have changed just now.
            self.shelf.look().await;
        }
        let known = self.shelf.known();
        let generations: Vec<_> = known.numbers.iter().take(MAX_LISTED).copied().collect();
        json(StatusCode::OK, &Generations { host: host.clone(), newest: generations.first().copied(), generations })
    }

    async fn part(&self, host: &HostName, generation: GenerationNumber, part: &str) -> Answer {
        let Ok(place) = self.parts.clone().acquire_owned().await else { return unexpected() };
        let (path, host, part) = (self.shelf.path().to_owned(), host.clone(), part.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            let depot = Depot::open(&path)?;
            match part.as_str() {
                MANIFEST => depot.read_manifest_bytes(generation).map(cbor),
                BUNDLE => depot.read_bundle_bytes(generation, &host).map(cbor),
                _ => depot.signatures(generation).map(|signatures| json(StatusCode::OK, &signatures)),
            }
        });
        let mut answer = match read.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error @ (DepotError::NoGeneration { .. } | DepotError::NoHost { .. }))) => {
                refuse(StatusCode::NOT_FOUND, &error.to_string())
            }
            Ok(Err(error)) => {
                tracing::error!("{error}");
                refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
            }
            Err(_) => unexpected(),
        };
        // Released when the connection that carries the answer ends.
        answer.extensions_mut().insert(Arc::new(place));
        answer
    }
}

impl<'a> Asked<'a> {
    fn parse(path: &'a str, query: &str) -> Result<Self, (StatusCode, &'static str)> {
        let unknown = (StatusCode::NOT_FOUND, "unknown path; docs/formats.md lists all paths");
        let rest = path.strip_prefix(GENERATIONS).ok_or(unknown)?;
        if rest.is_empty() {
            return Self::numbers(query);
        }
        let (number, part) = rest.strip_prefix('/').and_then(|r| r.split_once('/')).ok_or(unknown)?;
        let generation = number.parse().map(GenerationNumber).ok().filter(|n| n.to_string() == number);
        let generation = generation.ok_or(unknown)?;
        if ![MANIFEST, SIGNATURES, BUNDLE].contains(&part) {
            return Err(unknown);
        }
        Ok(Self::Part { generation, part })
    }

    fn numbers(query: &str) -> Result<Self, (StatusCode, &'static str)> {
        let wrong = (StatusCode::BAD_REQUEST, "allowed parameters are `after` and `wait`, both numbers");
        let (mut after, mut wait) = (None, 0);
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or(wrong)?;
            let value = value.parse().map_err(|_| wrong)?;
            match key {
                "after" => after = Some(GenerationNumber(value)),
                "wait" => wait = value.min(MAX_WAIT),
                _ => return Err(wrong),
            }
        }
        Ok(Self::Numbers { after, wait: Duration::from_secs(wait) })
    }
}

fn cbor(bytes: Vec<u8>) -> Answer {
    answer(StatusCode::OK, "application/cbor", bytes)
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => answer(status, "application/json", bytes),
        Err(_) => unexpected(),
    }
}

/// A refusal with the reason.
pub(super) fn refuse(status: StatusCode, error: &str) -> Answer {
    json(status, &RemoteRefusal { error: error.to_owned() })
}

fn unexpected() -> Answer {
    answer(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", b"internal error".to_vec())
}

fn answer(status: StatusCode, content: &'static str, bytes: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(bytes)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_strictly() {
        let part = |generation, part| Ok(Asked::Part { generation: GenerationNumber(generation), part });
        assert_eq!(Asked::parse("/v1/generations/7/manifest", ""), part(7, "manifest"));
        assert_eq!(Asked::parse("/v1/generations/7/bundle", ""), part(7, "bundle"));
        let numbers = Asked::parse("/v1/generations", "after=3&wait=100000");
        let wait = Duration::from_secs(MAX_WAIT);
        assert_eq!(numbers, Ok(Asked::Numbers { after: Some(GenerationNumber(3)), wait }));
        for path in [
            "/",
            "/v1/generations/",
            "/v1/generationsx",
            "/v1/generations/07/bundle",
            "/v1/generations/+7/bundle",
            "/v1/generations/7/bundle/h2",
            "/v1/generations/7/../bundle",
            "/v1/generations/7/tokens.json",
            "/v1/enrol",
        ] {
            assert!(Asked::parse(path, "").is_err(), "{path}");
        }
        for query in ["after", "after=x", "host=h2", "after=-1"] {
            assert!(Asked::parse("/v1/generations", query).is_err(), "{query}");
        }
    }
}
