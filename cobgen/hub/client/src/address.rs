//! The address of a hub.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The name of the socket in the folder of a hub.
const SOCKET: &str = "hub.sock";

/// Where a hub listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubAddress {
    /// A Unix socket. A user who may open the socket needs no token.
    Socket(PathBuf),
    /// An address without TLS: of this machine, or of the end of a tunnel.
    Http(SocketAddr),
}

/// The text names no hub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// TLS ends in a proxy.
    #[error("{0}: this client has no TLS; forward a local port to the hub, as in `ssh -L 7080:127.0.0.1:7080 HOST`")]
    Tls(String),
    /// The text after `http://` is no address.
    #[error("{0} is no address of a hub: write http://127.0.0.1:PORT, or the path of a socket")]
    Wrong(String),
    /// The address is not one of this machine, so that a token would cross a network in plain text.
    #[error(
        "{0} is not an address of this machine, and the token would cross the network in plain text; forward a local port to the hub, as in `ssh -L 7080:127.0.0.1:7080 HOST`"
    )]
    Remote(SocketAddr),
}

impl HubAddress {
    /// The value of the header `Host`.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Socket(_) => "hub".to_owned(),
            Self::Http(address) => address.to_string(),
        }
    }
}

impl FromStr for HubAddress {
    type Err = BadAddress;

    /// Reads `http://IP:PORT`, the path of a socket, or the folder of a hub.
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let wrong = || BadAddress::Wrong(text.chars().take(100).collect());
        if text.starts_with("https://") {
            return Err(BadAddress::Tls(text.chars().take(100).collect()));
        }
        if let Some(rest) = text.strip_prefix("http://") {
            let authority = rest.trim_end_matches('/');
            let numeric = authority.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
            let address: SocketAddr = numeric.as_deref().unwrap_or(authority).parse().map_err(|_| wrong())?;
            return if address.ip().is_loopback() { Ok(Self::Http(address)) } else { Err(BadAddress::Remote(address)) };
        }
        let path = PathBuf::from(text.strip_prefix("unix:").unwrap_or(text));
        if path.as_os_str().is_empty() || text.contains("://") {
            return Err(wrong());
        }
        Ok(Self::Socket(if path.is_dir() { path.join(SOCKET) } else { path }))
    }
}

impl fmt::Display for HubAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Http(address) => write!(f, "http://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_folders_and_loopback_addresses() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |text: &str| text.parse::<HubAddress>().map(|address| address.to_string());
        assert_eq!(read("/run/hub.sock").as_deref(), Ok("/run/hub.sock"));
        assert_eq!(read("unix:/run/hub.sock").as_deref(), Ok("/run/hub.sock"));
        let path = folder.path().display().to_string();
        assert_eq!(read(&path), Ok(format!("{path}/hub.sock")));
        assert_eq!(read("http://127.0.0.1:7080/").as_deref(), Ok("http://127.0.0.1:7080"));
        assert_eq!(read("http://localhost:7080").as_deref(), Ok("http://127.0.0.1:7080"));
        assert_eq!(read("http://[::1]:7080").as_deref(), Ok("http://[::1]:7080"));
    }

    #[test]
    fn a_token_is_never_sent_over_a_network_in_plain_text() {
        let read = |text: &str| text.parse::<HubAddress>().map_err(|error| error.to_string());
        for (text, told) in [
            ("https://hub.example", "no TLS"),
            ("http://10.0.0.1:7080", "plain text"),
            ("http://hub.example:7080", "no address of a hub"),
            ("http://127.0.0.1", "no address of a hub"),
            ("ftp://x", "no address of a hub"),
            ("", "no address of a hub"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(told), "{error}");
        }
    }
}
