//! TLS 1.3 in which a key is the identity.
//!
//! A certificate is only a container for a key: self-signed, made anew at each start. Its names and dates are ignored.
//! Its key is compared with the keys of a signed manifest, and the handshake proves that the other side has it (RFC
//! 8446, section 4.4.3). There is no resumption, so every connection proves its key.

use std::fmt;
use std::sync::Arc;

use cob_types::trust::PublicKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError, ServerConfig,
    SignatureScheme, version,
};
use zeroize::Zeroize as _;

use crate::key::SecretKey;

/// The ALPN protocol (RFC 7301) of a link between two daemons.
pub const LINK: &[u8] = b"cob-link/1";
/// The ALPN protocol of HTTP.
pub const HTTP: &[u8] = b"http/1.1";
/// The server's name in the client's settings; not sent, and ignored.
const NAME: &str = "cob";

/// The bytes before an ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410, section 4).
const SPKI: [u8; 12] = [0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The bytes before the seed in a PKCS#8 key (RFC 8410, section 7).
const PKCS8: [u8; 16] = [0x30, 0x2E, 2, 1, 0, 0x30, 5, 6, 3, 0x2B, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Decides which keys a server admits. Called at each handshake.
pub type Admits = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// A key with its certificate, for either side of a connection.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<rustls::sign::CertifiedKey>,
    public: PublicKey,
}

/// The error for settings that can't be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate.
    #[error("a certificate can't be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The other settings.
    #[error("TLS can't be set up: {0}")]
    Setup(#[from] Error),
}

/// The dialled server has a key that is not expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server shows the key {shown}, which is not an expected key")]
pub struct OtherKey {
    /// The key in its certificate; the server has not proved it.
    pub shown: PublicKey,
}

impl OtherKey {
    /// Extracts it from the error of a handshake.
    #[must_use]
    pub fn of(error: &Error) -> Option<Self> {
        let Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) = error else { return None };
        inner.downcast_ref().copied()
    }
}

impl Identity {
    /// Makes the certificate of a key.
    ///
    /// # Errors
    /// [`TlsError`]; never for a [`SecretKey`].
    pub fn new(key: &SecretKey) -> Result<Self, TlsError> {
        let mut der = [PKCS8.as_slice(), key.seed().as_slice()].concat();
        let pkcs8 = PrivatePkcs8KeyDer::from(der.clone());
        der.zeroize();
        let pair = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &rcgen::PKCS_ED25519)?;
        let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&pair)?;
        let signer = ring::sign::any_eddsa_type(&pkcs8)?;
        let certified = rustls::sign::CertifiedKey::new(vec![certificate.der().clone()], signer);
        drop(PrivateKeyDer::Pkcs8(pkcs8));
        Ok(Self { certified: Arc::new(certified), public: key.public() })
    }

    /// The key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}

/// Settings of a client: the server must have one of these keys; the client presents its own key, if any.
///
/// # Errors
/// [`TlsError::Setup`].
pub fn client(identity: Option<&Identity>, servers: &[PublicKey], alpn: &[u8]) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Pinned { keys: servers.to_vec(), provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::new(Shows(identity.certified.clone()))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Settings of a server. A client with a key must be admitted; a client without a key is accepted only if `anonymous`,
/// and [`peer_key`] then returns `None`.
///
/// # Errors
/// [`TlsError::Setup`].
pub fn server(
    identity: &Identity,
    admits: Admits,
    anonymous: bool,
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Admitted { admits, anonymous, provider: provider.clone() };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(Shows(identity.certified.clone())));
    config.alpn_protocols = alpn.iter().map(|a| a.to_vec()).collect();
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// The name for a connect call: the settings of [`client`] ignore it.
#[must_use]
pub fn name() -> ServerName<'static> {
    match ServerName::try_from(NAME) {
        Ok(name) => name,
        Err(error) => unreachable!("it is a fixed, well-formed name: {error}"),
    }
}

/// The key that the other side has proved; `None`: it presented no key, or there was no handshake yet.
#[must_use]
pub fn peer_key(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    key_of(certificates?.first()?).ok()
}

fn key_of(certificate: &CertificateDer<'_>) -> Result<PublicKey, Error> {
    let spki = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
    let key = spki.as_ref().strip_prefix(SPKI.as_slice()).and_then(|key| <[u8; 32]>::try_from(key).ok());
    key.map(PublicKey).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

fn refused() -> Error {
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

/// The verifier of a client.
struct Pinned {
    keys: Vec<PublicKey>,
    provider: Arc<CryptoProvider>,
}

/// The verifier of a server.
struct Admitted {
    admits: Admits,
    anonymous: bool,
    provider: Arc<CryptoProvider>,
}

/// Always presents the same certificate.
#[derive(Debug)]
struct Shows(Arc<rustls::sign::CertifiedKey>);

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").field("anonymous", &self.anonymous).finish_non_exhaustive()
    }
}

/// The signature checks of both verifiers: only TLS 1.3 and ed25519.
macro_rules! tls13_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(refused())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = key_of(certificate)?;
        if self.keys.contains(&shown) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(OtherKey { shown })))))
    }

    tls13_signatures!();
}

impl ClientCertVerifier for Admitted {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        !self.anonymous
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let key = key_of(certificate)?;
        if (self.admits)(&key) { Ok(ClientCertVerified::assertion()) } else { Err(refused()) }
    }

    tls13_signatures!();
}

impl ResolvesClientCert for Shows {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl rustls::server::ResolvesServerCert for Shows {
    fn resolve(&self, _hello: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    fn identity(n: u8) -> Identity {
        Identity::new(&SecretKey::from_seed(&[n; 32])).expect("made")
    }

    /// The client's key as seen by the server, and whether a byte went through.
    async fn meet(
        client_config: Arc<ClientConfig>,
        server_config: Arc<ServerConfig>,
    ) -> Result<Option<PublicKey>, String> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let serve = async {
            let mut stream = TlsAcceptor::from(server_config).accept(far).await.map_err(|e| e.to_string())?;
            let key = peer_key(stream.get_ref().1.peer_certificates());
            stream.write_all(b"x").await.map_err(|e| e.to_string())?;
            stream.flush().await.map_err(|e| e.to_string())?;
            Ok::<_, String>(key)
        };
        let dial = async {
            let mut stream =
                TlsConnector::from(client_config).connect(name(), near).await.map_err(|e| e.to_string())?;
            stream.read_u8().await.map_err(|e| e.to_string())
        };
        let (served, dialled) = tokio::join!(serve, dial);
        dialled.and(served)
    }

    #[tokio::test]
    async fn each_side_knows_the_other_by_its_key() {
        let (a, b, stranger) = (identity(1), identity(2), identity(3));
        let admits: Admits = {
            let a = a.public();
            Arc::new(move |key| *key == a)
        };
        let strict = server(&b, admits.clone(), false, &[LINK]).expect("settings");
        let open = server(&b, admits, true, &[LINK, HTTP]).expect("settings");
        let dial = |who: Option<&Identity>, to: &Identity, alpn| client(who, &[to.public()], alpn).expect("settings");
        assert_eq!(meet(dial(Some(&a), &b, LINK), strict.clone()).await, Ok(Some(a.public())));
        assert_eq!(meet(dial(None, &b, HTTP), open.clone()).await, Ok(None));
        for (config, server) in [
            (dial(Some(&stranger), &b, LINK), &strict),
            (dial(Some(&stranger), &b, HTTP), &open),
            (dial(None, &b, LINK), &strict),
            (dial(Some(&a), &stranger, LINK), &strict),
            (dial(Some(&a), &b, HTTP), &strict),
        ] {
            meet(config, server.clone()).await.expect_err("refused");
        }
        let why = meet(dial(Some(&a), &stranger, LINK), strict).await.expect_err("refused");
        assert!(why.contains(&b.public().to_string()), "{why}");
    }
}
