//! Connections: their number and their duration.
//!
//! Callers that have not shown a valid token yet give way to new callers; callers of a
//! tenant have at most a part of all places.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use cob_api_server::{ACCEPT_REST, OwnerSocket, serve_request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// The longest duration of a connection: longer than a preview of a large cluster takes.
const CONNECTION: Duration = Duration::from_secs(600);
/// The places of a listener.
const PLACES: usize = 256;
/// The most places of the callers of a tenant.
const OF_TENANT: usize = 64;

/// A listener.
pub(super) trait Listener: Send + 'static {
    /// Its connections.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for OwnerSocket {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await
    }
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

/// Serves connections for ever.
pub(super) async fn serve(listener: impl Listener, routes: Router) {
    let places = Places::default();
    loop {
        let stream = match listener.next().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_REST).await;
                continue;
            }
        };
        let Some(place) = places.take() else {
            tracing::debug!("too many connections to the API: a connection is closed unanswered");
            continue;
        };
        tokio::spawn(connection(stream, routes.clone(), place));
    }
}

async fn connection<S>(stream: S, routes: Router, place: Place)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let admission = Admission { id: place.id, places: place.places.clone() };
    let serving = serve_request(stream, routes, move |request| {
        request.extensions_mut().insert(admission.clone());
    });
    tokio::select! {
        served = serving => if let Err(error) = served {
            tracing::debug!(%error, "a connection to the API broke off");
        },
        () = tokio::time::sleep(CONNECTION) => tracing::debug!("a connection to the API took too long"),
        () = place.leave.notified() => tracing::debug!("an idle connection to the API made room for another"),
    }
}

/// The places of a listener.
#[derive(Debug, Clone, Default)]
struct Places(Arc<Mutex<Guests>>);

#[derive(Debug, Default)]
struct Guests {
    last: u64,
    here: BTreeMap<u64, Guest>,
}

#[derive(Debug)]
struct Guest {
    /// The tenant of an admitted caller; super administrators have none.
    admitted: Option<Option<String>>,
    leave: Arc<Notify>,
}

/// The place of a connection, for as long as it is kept.
#[derive(Debug)]
struct Place {
    id: u64,
    places: Places,
    leave: Arc<Notify>,
}

/// Admits the caller of a connection. It goes with the request.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    id: u64,
    places: Places,
}

impl Places {
    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if need be that of the oldest caller that has shown no token; none if all have.
    fn take(&self) -> Option<Place> {
        let mut guests = self.guests();
        if guests.here.len() >= PLACES {
            let oldest = guests.here.iter().find(|(_, guest)| guest.admitted.is_none()).map(|(id, _)| *id)?;
            if let Some(guest) = guests.here.remove(&oldest) {
                guest.leave.notify_one();
            }
        }
        guests.last += 1;
        let (id, leave) = (guests.last, Arc::new(Notify::new()));
        guests.here.insert(id, Guest { admitted: None, leave: leave.clone() });
        drop(guests);
        Some(Place { id, places: self.clone(), leave })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.guests().here.remove(&self.id);
    }
}

impl Admission {
    /// The caller has shown a valid token. Returns whether its tenant has a place left.
    pub(super) fn admit(&self, tenant: Option<&str>) -> bool {
        let tenant = tenant.map(str::to_owned);
        let mut guests = self.places.guests();
        let same = guests.here.values().filter(|guest| guest.admitted.as_ref() == Some(&tenant)).count();
        if tenant.is_some() && same >= OF_TENANT {
            return false;
        }
        if let Some(guest) = guests.here.get_mut(&self.id) {
            guest.admitted = Some(tenant);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(place: &Place) -> Admission {
        Admission { id: place.id, places: place.places.clone() }
    }

    #[test]
    fn callers_without_a_token_give_way() {
        let places = Places::default();
        let first = places.take().expect("a place");
        assert!(admission(&first).admit(Some("web")));
        let others: Vec<Place> = (0..2 * PLACES).map(|_| places.take().expect("a place")).collect();
        assert_eq!(places.guests().here.len(), PLACES);
        assert!(places.guests().here.contains_key(&first.id));
        assert!(!places.guests().here.contains_key(&others[0].id));
        drop(others);
        assert_eq!(places.guests().here.len(), 1);
    }

    #[test]
    fn a_tenant_does_not_get_all_places() {
        let places = Places::default();
        let kept: Vec<Place> = (0..PLACES).map(|_| places.take().expect("a place")).collect();
        let admitted = kept.iter().filter(|place| admission(place).admit(Some("web"))).count();
        assert_eq!(admitted, OF_TENANT);
        assert!(kept.iter().any(|place| admission(place).admit(Some("other"))));
        assert!(places.take().is_some());
    }
}
