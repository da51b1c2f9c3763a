//! A page for a browser: its files, the headers of its answers, and the check that a request comes from it.
//!
//! Any page can make a browser send requests to a loopback address, also under a name that the page's owner points there.
//! So the `Host` must be an address of our own, an `Origin` must be ours, and the browser must not report a foreign page
//! (Fetch Metadata, a W3C draft).

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::routing::get;

/// Nothing but our own files may run, be shown or be reached; no page may frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// A file of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageFile {
    /// Its path on the server. The end of the name decides the media type.
    pub path: &'static str,
    /// Its content.
    pub content: &'static [u8],
}

/// The routes of files.
pub fn files<S: Clone + Send + Sync + 'static>(files: &'static [PageFile]) -> Router<S> {
    files.iter().fold(Router::new(), |routes, file| {
        let media_type = match file.path.rsplit_once('.').map(|(_, end)| end) {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some(_) | None => "text/html; charset=utf-8",
        };
        let answer = move || async move { ([(header::CONTENT_TYPE, media_type)], Bytes::from_static(file.content)) };
        routes.route(file.path, get(answer))
    })
}

/// Sets the headers of an answer to a browser.
pub fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The addresses of a page, as a browser writes them: `http://127.0.0.1:7080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origins(Vec<String>);

/// An address that no browser writes in this way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address of a page: write http://HOST[:PORT] or https://HOST[:PORT], without a path")]
pub struct BadOrigin(String);

impl Origins {
    /// The addresses of a server on this port of the loopback address.
    #[must_use]
    pub fn loopback(port: u16) -> Self {
        Self(["127.0.0.1", "localhost", "[::1]"].map(|host| format!("http://{host}:{port}")).to_vec())
    }

    /// A further address, for instance of a proxy before the server.
    ///
    /// # Errors
    /// It is not the beginning of an address.
    pub fn add(&mut self, origin: &str) -> Result<(), BadOrigin> {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")).unwrap_or_default();
        let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-:[]".contains(c);
        if host.is_empty() || !host.chars().all(is_valid) {
            return Err(BadOrigin(origin.to_owned()));
        }
        self.0.push(origin.to_owned());
        Ok(())
    }

    /// Whether the request is for one of the addresses.
    #[must_use]
    pub fn is_host(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().filter(|_| hosts.next().is_none()).and_then(|host| host.to_str().ok());
        let is_own = |host: &str| self.0.iter().any(|own| own.split_once("://").is_some_and(|(_, own)| own == host));
        host.is_some_and(is_own)
    }

    /// Whether the request is for one of the addresses, and no page of another address sent it.
    #[must_use]
    pub fn is_own(&self, headers: &HeaderMap) -> bool {
        let is_ours = |origin: &HeaderValue| self.0.iter().any(|own| own.as_bytes() == origin.as_bytes());
        let from_here = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
        self.is_host(headers)
            && headers.get_all(header::ORIGIN).iter().all(is_ours)
            && headers.get_all("sec-fetch-site").iter().all(from_here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn pages_of_other_addresses_are_foreign() {
        let mut origins = Origins::loopback(4000);
        origins.add("https://hub.example").expect("an address");
        let own = |of: &[(&'static str, &str)]| origins.is_own(&headers(of));
        assert!(own(&[("host", "127.0.0.1:4000")]));
        assert!(own(&[("host", "hub.example"), ("origin", "https://hub.example"), ("sec-fetch-site", "same-origin")]));
        assert!(own(&[("host", "[::1]:4000"), ("origin", "http://[::1]:4000"), ("sec-fetch-site", "none")]));
        for (host, origin, site) in [
            ("evil.example:4000", "http://127.0.0.1:4000", "same-origin"),
            ("127.0.0.1:4001", "http://127.0.0.1:4000", "same-origin"),
            ("127.0.0.1", "http://127.0.0.1:4000", "same-origin"),
            ("127.0.0.1:4000", "http://evil.example", "none"),
            ("127.0.0.1:4000", "https://127.0.0.1:4000", "none"),
            ("127.0.0.1:4000", "null", "none"),
            ("hub.example", "http://hub.example", "none"),
            ("127.0.0.1:4000", "http://127.0.0.1:4000", "cross-site"),
            ("127.0.0.1:4000", "http://127.0.0.1:4000", "same-site"),
        ] {
            assert!(!own(&[("host", host), ("origin", origin), ("sec-fetch-site", site)]), "{host} {origin} {site}");
        }
        assert!(!own(&[]));
        assert!(!own(&[("host", "127.0.0.1:4000"), ("host", "evil.example")]));
    }

    #[test]
    fn an_address_of_a_page_has_no_path() {
        let mut origins = Origins::loopback(1);
        for wrong in ["", "hub.example", "https://", "https://hub.example/", "ftp://hub.example", "https://Hub.example"]
        {
            assert_eq!(origins.add(wrong), Err(BadOrigin(wrong.to_owned())), "{wrong}");
        }
    }
}
