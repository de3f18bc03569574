//! Which certificates may sign: trusted roots, chains, extended usages, revocation lists.

use std::cmp::Reverse;
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use webpki::{
    ALL_VERIFICATION_ALGS, CertRevocationList, EndEntityCert, ExpirationPolicy,
    ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, OwnedCertRevocationList,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy, anchor_from_trusted_cert,
};

use crate::der::issued_at;

use super::{CERTIFICATE_BYTES_MAX, Certificate, CertificateError};

/// Maximum trusted roots. Default 64: each may be tried for a stranger's certificate.
pub const ROOTS_MAX: usize = 64;
/// Maximum certificates between a signer's and the root. Default 6, as `rustls-webpki` follows.
pub const INTERMEDIATES_MAX: usize = 6;

/// Extended usages that allow to sign messages: the ends of TLS connections, as certificates of
/// devices have, and any (RFC 5280, section 4.2.1.12).
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0];

/// Whether certificates that no revocation list covers are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RevocationStatus {
    /// They are.
    #[default]
    MayBeUnknown,
    /// They are not: each certificate of a chain needs a list of its issuer.
    MustBeKnown,
}

/// Trusted roots, and lists of revoked certificates.
#[derive(Debug)]
pub struct TrustStore {
    roots: Vec<TrustAnchor<'static>>,
    lists: Vec<CertRevocationList<'static>>,
    status: RevocationStatus,
}

/// The certificates of PEM text, in DER.
pub(super) fn certificates_of_pem(
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|_| CertificateError::Pem("the PEM text is malformed"))?;
    match all.is_empty() {
        true => Err(CertificateError::Pem(
            "the PEM text has no certificate (BEGIN CERTIFICATE)",
        )),
        false => Ok(all),
    }
}

impl TrustStore {
    /// Trusts the roots of PEM text.
    ///
    /// # Errors
    /// No certificate, a malformed one, or more than [`ROOTS_MAX`].
    pub fn from_pem(text: &str) -> Result<Self, CertificateError> {
        let certificates = certificates_of_pem(text)?;
        if certificates.len() > ROOTS_MAX {
            return Err(CertificateError::TooMany("trusted roots", ROOTS_MAX));
        }
        let roots: Result<Vec<_>, _> = certificates
            .iter()
            .map(|der| anchor_from_trusted_cert(der).map(|root| root.to_owned()))
            .collect();
        Ok(Self {
            roots: roots?,
            lists: Vec::new(),
            status: RevocationStatus::default(),
        })
    }

    /// Adds the revocation lists of PEM text; of several that cover a certificate, the latest one counts. From then on a
    /// list that has expired refuses all certificates that it covers.
    ///
    /// # Errors
    /// No list, a malformed one, or a delta or indirect list.
    pub fn with_revocation_lists(
        mut self,
        text: &str,
        status: RevocationStatus,
    ) -> Result<Self, CertificateError> {
        let lists: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(text.as_bytes()).collect();
        let mut lists = lists.map_err(|_| CertificateError::Pem("the PEM text is malformed"))?;
        lists.sort_by_cached_key(|list| Reverse(issued_at(list)));
        for list in lists {
            let list = OwnedCertRevocationList::from_der(&list);
            let list = list.map_err(|_| CertificateError::RevocationList)?;
            self.lists.push(CertRevocationList::Owned(list));
        }
        if self.lists.is_empty() {
            let why = "the PEM text has no revocation list (BEGIN X509 CRL)";
            return Err(CertificateError::Pem(why));
        }
        self.status = status;
        Ok(self)
    }

    /// Checks that a signer can be trusted at a time: usage, validity, revocation, and a chain
    /// through `intermediates` in any order, in DER, to a trusted root. Signatures of certificates
    /// with SHA-1 are never accepted.
    ///
    /// # Errors
    /// The first rule that is violated.
    pub fn verify(
        &self,
        certificate: &Certificate,
        intermediates: &[Vec<u8>],
        unix_s: u64,
    ) -> Result<(), CertificateError> {
        if !certificate.may_sign {
            return Err(CertificateError::Usage);
        }
        if intermediates.len() > INTERMEDIATES_MAX {
            return Err(CertificateError::TooMany(
                "intermediate certificates",
                INTERMEDIATES_MAX,
            ));
        }
        if intermediates
            .iter()
            .any(|it| it.len() > CERTIFICATE_BYTES_MAX)
        {
            return Err(CertificateError::TooLong(CERTIFICATE_BYTES_MAX));
        }
        let intermediates: Vec<CertificateDer<'_>> = intermediates
            .iter()
            .map(|der| der.as_slice().into())
            .collect();
        let lists: Vec<&CertRevocationList<'_>> = self.lists.iter().collect();
        let unknown = match self.status {
            RevocationStatus::MayBeUnknown => UnknownStatusPolicy::Allow,
            RevocationStatus::MustBeKnown => UnknownStatusPolicy::Deny,
        };
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(unknown)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let time = UnixTime::since_unix_epoch(Duration::from_secs(unix_s));
        let end = EndEntityCert::try_from(&certificate.der)?;
        end.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &self.roots,
            &intermediates,
            time,
            MaySign,
            revocation,
            None,
        )?;
        Ok(())
    }
}

/// Accepts certificates without extended usages, and those with one that allows to sign messages.
struct MaySign;

impl ExtendedKeyUsageValidator for MaySign {
    fn validate(&self, usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let allowed = [SERVER_AUTH, CLIENT_AUTH, ANY_USAGE].map(KeyPurposeId::new);
        let mut is_unrestricted = true;
        for usage in usages {
            is_unrestricted = false;
            if allowed.contains(&usage?) {
                return Ok(());
            }
        }
        match is_unrestricted {
            true => Ok(()),
            // The one public error that means a wrong usage.
            false => Err(webpki::Error::CaUsedAsEndEntity),
        }
    }
}
