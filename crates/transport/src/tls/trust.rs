//! Which certificates of the other end are trusted, and what they have to prove.
//!
//! A certificate is trusted by its fingerprint, whatever its names and dates, or because a named authority has signed
//! it. What it proves is checked after the handshake and before anything is sent, since the endpoint of a device
//! is no name that TLS knows.

use std::net::SocketAddr;
use std::sync::Arc;

use chappe_identity::Proof;
use chappe_identity::der::uris;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
};

use super::error::{Refused, Why};
use super::extension::has_usage;
use super::{Fingerprint, Usage};

/// The prefix of the endpoints of devices among the URIs of a certificate.
const ENDPOINT: &str = "urn:uuid:";

/// What is trusted.
#[derive(Debug, Clone, Default)]
pub(super) struct Trust {
    pub(super) authorities: Option<Arc<RootCertStore>>,
    pub(super) fingerprints: Vec<Fingerprint>,
    /// The lists by which authorities revoke certificates.
    pub(super) revocation_lists: Arc<[CertificateRevocationListDer<'static>]>,
    /// The usages that a certificate must have if an authority has signed it.
    pub(super) usages: Vec<Usage>,
    /// Pinned certificates must have the usages, too.
    pub(super) pinned_have_usages: bool,
    /// An authority's certificates prove no name.
    pub(super) any_name: bool,
}

impl Trust {
    pub(super) fn is_empty(&self) -> bool {
        self.authorities.is_none() && self.fingerprints.is_empty()
    }

    fn is_pinned(&self, presented: Fingerprint) -> bool {
        self.fingerprints.contains(&presented)
    }

    /// Whether a pinned certificate may be used.
    fn allows_pinned(&self, certificate: &[u8]) -> Result<(), Why> {
        match self.pinned_have_usages {
            true => self.has_usages(certificate),
            false => Ok(()),
        }
    }

    fn untrusted(&self) -> Why {
        match self.fingerprints.as_slice() {
            [] => Why::NoTrust,
            pinned => Why::NotPinned(pinned.to_vec()),
        }
    }

    fn has_usages(&self, certificate: &[u8]) -> Result<(), Why> {
        let mut usages = self.usages.iter();
        match usages.find(|usage| !has_usage(certificate, usage)) {
            None => Ok(()),
            Some(missing) => Err(Why::Usage(missing.clone())),
        }
    }

    /// Whether a trusted certificate proves what is expected of a server at `peer`.
    pub(super) fn proves(
        &self,
        certificate: &CertificateDer<'_>,
        proof: &Proof,
        peer: SocketAddr,
    ) -> Result<(), Refused> {
        let presented = Fingerprint::of(certificate);
        let name = server_name(proof, peer);
        let refused = |why| Refused::new(why, presented, &name);
        let mut endpoints = uris(certificate).filter(|uri| uri.starts_with(ENDPOINT));
        if let Some(expected) = &proof.endpoint
            && let Some(first) = endpoints.next()
        {
            let mut all = std::iter::once(first).chain(endpoints);
            return match all.any(|endpoint| is_same(endpoint, expected)) {
                true => Ok(()),
                false => Err(refused(Why::OtherDevice(first.chars().take(64).collect()))),
            };
        }
        if self.any_name || self.is_pinned(presented) {
            return Ok(());
        }
        let parsed = ParsedCertificate::try_from(certificate);
        let named = parsed.and_then(|parsed| verify_server_name(&parsed, &name));
        named.map_err(|error| refused(Why::of(error)))
    }
}

/// Whether two endpoints are the same UUID: some devices announce theirs in an older form, `uuid:` or bare.
fn is_same(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|endpoint| {
        let endpoint = endpoint.strip_prefix("urn:").unwrap_or(endpoint);
        endpoint.strip_prefix("uuid:").unwrap_or(endpoint)
    });
    one.eq_ignore_ascii_case(other)
}

/// The name that is asked for in the handshake: the host name, or else the address.
pub(super) fn server_name(proof: &Proof, peer: SocketAddr) -> ServerName<'static> {
    let name = proof.name.clone().map(ServerName::try_from);
    match name {
        Some(Ok(name)) => name,
        _ => ServerName::IpAddress(peer.ip().to_canonical().into()),
    }
}

/// Verifies the chain, dates and usages of servers' certificates, and reports the fingerprint of refused ones.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    trust: Trust,
    /// The judge of chains, if there are authorities.
    chains: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerVerifier {
    pub(super) fn new(trust: Trust, provider: Arc<CryptoProvider>) -> Self {
        let chains = trust.authorities.clone().and_then(|authorities| {
            let builder =
                WebPkiServerVerifier::builder_with_provider(authorities, provider.clone())
                    .with_crls(trust.revocation_lists.iter().cloned())
                    .allow_unknown_revocation_status()
                    .enforce_revocation_expiration();
            // The only errors are a store without authorities and malformed lists, which are refused when they
            // are read.
            builder.build().ok()
        });
        Self {
            trust,
            chains,
            provider,
        }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let presented = Fingerprint::of(certificate);
        let refuse = |why| Refused::new(why, presented, name).into_rustls();
        if self.trust.is_pinned(presented) {
            let allowed = self.trust.allows_pinned(certificate);
            return allowed
                .map(|()| ServerCertVerified::assertion())
                .map_err(refuse);
        }
        let Some(chains) = &self.chains else {
            return Err(refuse(self.trust.untrusted()));
        };
        match chains.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name comes last, and is judged after the handshake.
            Ok(_)
            | Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => {}
            Err(error) => return Err(refuse(Why::of(error))),
        }
        self.trust.has_usages(certificate).map_err(refuse)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Verifies clients' certificates. Their names are for the application.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    trust: Trust,
    is_required: bool,
    /// The judge of chains, if there are authorities.
    chains: Option<Arc<dyn ClientCertVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ClientVerifier {
    /// For a trust that is not empty.
    pub(super) fn new(trust: Trust, is_required: bool, provider: Arc<CryptoProvider>) -> Self {
        let chains = trust.authorities.clone().and_then(|authorities| {
            let builder =
                WebPkiClientVerifier::builder_with_provider(authorities, provider.clone())
                    .with_crls(trust.revocation_lists.iter().cloned())
                    .allow_unknown_revocation_status()
                    .enforce_revocation_expiration();
            // As above.
            builder.build().ok()
        });
        Self {
            trust,
            is_required,
            chains,
            provider,
        }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.chains {
            // Pinned certificates have other issuers: a client must not choose by these.
            Some(chains) if self.trust.fingerprints.is_empty() => chains.root_hint_subjects(),
            _ => &[],
        }
    }

    /// The errors are those of rustls, from which the client gets an exact alert.
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if self.trust.is_pinned(Fingerprint::of(certificate)) {
            return Ok(ClientCertVerified::assertion());
        }
        let refuse = |error| Err(rustls::Error::InvalidCertificate(error));
        let Some(chains) = &self.chains else {
            return refuse(CertificateError::ApplicationVerificationFailure);
        };
        let verified = chains.verify_client_cert(certificate, intermediates, now)?;
        match self.trust.has_usages(certificate) {
            Ok(()) => Ok(verified),
            Err(_) => refuse(CertificateError::InvalidPurpose),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use rustls::pki_types::pem::PemObject as _;

    use super::super::{Mutual, provider};
    use super::*;

    /// What verifiers of both ends say of a certificate of the tests of `chappe-identity`, in 2026.
    fn verdicts(root: &str, name: &str, lists: Option<&Path>) -> [Result<(), String>; 2] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../identity/tests/certificates");
        let root = folder.join(root);
        let mut mutual = Mutual::anonymous()
            .trust_authorities(&root, Vec::new())
            .unwrap();
        if let Some(lists) = lists {
            mutual = mutual.revocation_lists(&folder.join(lists)).unwrap();
        }
        let certificate = CertificateDer::from_pem_file(folder.join(name)).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
        let trust = mutual.trust_of_both_ends();
        let server = ServerVerifier::new(trust.clone(), provider());
        let name = ServerName::try_from("any.example").unwrap();
        let server = server.verify_server_cert(&certificate, &[], &name, &[], now);
        let client = ClientVerifier::new(trust, true, provider());
        let client = client.verify_client_cert(&certificate, &[], now);
        let text = |error: rustls::Error| format!("{error:?}");
        [
            server.map(drop).map_err(text),
            client.map(drop).map_err(text),
        ]
    }

    #[test]
    fn revoked_certificates_are_refused_at_both_ends() {
        for (name, lists, refused) in [
            ("revoked.pem", None, None),
            ("revoked.pem", Some("root.crl"), Some("Revoked")),
            ("p256.pem", Some("root.crl"), None),
            (
                "p256.pem",
                Some("outdated.crl"),
                Some("ExpiredRevocationList"),
            ),
            ("other.pem", Some("root.crl"), Some("")),
        ] {
            for verdict in verdicts("root.pem", name, lists.map(Path::new)) {
                match refused {
                    None => assert_eq!(verdict, Ok(()), "{name}"),
                    Some(reason) => {
                        let said = verdict.unwrap_err();
                        assert!(said.contains(reason), "{name}: {said}");
                    }
                }
            }
        }
    }

    #[test]
    fn lists_that_cannot_be_used_are_refused_when_they_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../identity/tests/certificates");
        let lists = folder.join("root.crl");
        let nobody = Mutual::anonymous().revocation_lists(&lists);
        assert!(nobody.unwrap_err().to_string().contains("no authority"));
        let trusting = Mutual::anonymous().trust_authorities(&folder.join("root.pem"), Vec::new());
        let trusting = trusting.unwrap();
        let none = trusting.clone().revocation_lists(&folder.join("root.pem"));
        assert!(none.unwrap_err().to_string().contains("no revocation list"));
        let directory = tempfile::tempdir().unwrap();
        let broken = directory.path().join("broken.crl");
        let text = "-----BEGIN X509 CRL-----\nMAMCAQE=\n-----END X509 CRL-----\n";
        std::fs::write(&broken, text).unwrap();
        let malformed = trusting.clone().revocation_lists(&broken);
        assert!(malformed.unwrap_err().to_string().contains("malformed"));
        // Behind the limit of 16 MiB, a list could name the certificate of a peer.
        let mut long = std::fs::read(&lists).unwrap();
        long.resize((16 << 20) + 1, b'#');
        std::fs::write(&broken, &long).unwrap();
        let long = trusting.clone().revocation_lists(&broken).unwrap_err();
        assert!(long.to_string().contains("limit of 16777216"), "{long}");
        std::fs::File::options()
            .write(true)
            .open(&broken)
            .unwrap()
            .set_len(16 << 20)
            .unwrap();
        trusting.revocation_lists(&broken).unwrap();
    }

    #[test]
    fn the_latest_list_of_an_authority_counts() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../identity/tests/certificates");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("both.crl");
        for lists in [
            ["earlier.crl", "later.crl"],
            ["later.crl", "lapsed.crl"],
            ["lapsed.crl", "later.crl"],
        ] {
            let text = lists
                .map(|list| std::fs::read(folder.join(list)).unwrap())
                .concat();
            std::fs::write(&path, text).unwrap();
            for verdict in verdicts("renewing.pem", "replaced.pem", Some(&path)) {
                assert!(verdict.unwrap_err().contains("Revoked"), "{lists:?}");
            }
        }
    }

    #[test]
    fn endpoints_are_the_same_in_each_form() {
        let uuid = "0A6DC791-2be6-4991-9af1-454778a1917a";
        for form in ["urn:uuid:", "uuid:", ""] {
            assert!(is_same(&format!("{form}{uuid}"), &uuid.to_lowercase()));
        }
        assert!(!is_same(
            uuid,
            "urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917b"
        ));
    }
}
