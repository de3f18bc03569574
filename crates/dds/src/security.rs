//! The files of DDS Security 1.1 (clauses 9.3 and 9.4), which the plugins of the library read.
//!
//! They are checked before the library reads them, so that a fault is reported with its setting. The library checks
//! subject and validity of the permissions itself; its reason becomes the error of the participant.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DdsError;

/// DDS Security: all of these files, or none. `chappe dds keys` makes a set of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityConfig {
    /// File of the authority (PEM) that signs the certificates of participants; empty: no security. Relative to this
    /// file.
    pub identity_ca: PathBuf,
    /// File of this participant's certificate (PEM). Relative to this file.
    pub certificate: PathBuf,
    /// File of the certificate's key (PEM): elliptic curve P-256, or RSA of 2048 bits. Relative to this file.
    pub private_key: PathBuf,
    /// File of revoked certificates (CRL, PEM); empty: none. Relative to this file.
    pub revocation_list: PathBuf,
    /// File of the authority (PEM) that signs governance and permissions. Relative to this file.
    pub permissions_ca: PathBuf,
    /// File of the domain's rules (S/MIME), the same for all participants. Relative to this file.
    pub governance: PathBuf,
    /// File of this participant's permissions (S/MIME). Relative to this file.
    pub permissions: PathBuf,
}

impl SecurityConfig {
    /// The required settings, with their names.
    fn required(&self) -> [(&'static str, &Path); 6] {
        [
            ("identity_ca", &self.identity_ca),
            ("certificate", &self.certificate),
            ("private_key", &self.private_key),
            ("permissions_ca", &self.permissions_ca),
            ("governance", &self.governance),
            ("permissions", &self.permissions),
        ]
    }

    /// Whether a participant is to be secure.
    #[must_use]
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }

    /// Checks that the settings are complete, and that this program has the plugins; reads no file.
    ///
    /// # Errors
    /// The first missing setting.
    pub fn check(&self) -> Result<(), DdsError> {
        if !self.is_on() {
            return Ok(());
        }
        let required = self.required();
        if cfg!(not(secure)) {
            let set = required
                .iter()
                .find(|(_, path)| !path.as_os_str().is_empty());
            return Err(DdsError::Security {
                key: set.map_or("revocation_list", |(key, _)| key),
                why: "this program was built without DDS Security".to_owned(),
                hint: "build it with `--features dds-security`, or with `full`, which packages have",
            });
        }
        for (key, path) in required {
            if path.as_os_str().is_empty() {
                return Err(DdsError::Security {
                    key,
                    why: "it is not set, although other files are".to_owned(),
                    hint: HINT,
                });
            }
        }
        Ok(())
    }

    /// Checks the files.
    ///
    /// # Errors
    /// The first unusable file.
    pub fn check_files(&self) -> Result<(), DdsError> {
        self.check()?;
        #[cfg(secure)]
        if self.is_on() {
            return files::check(self);
        }
        Ok(())
    }

    /// The part of the library's configuration; empty without security.
    #[cfg(cyclone)]
    pub(crate) fn configuration(&self) -> String {
        if !self.is_on() {
            return String::new();
        }
        let file = |path: &Path| {
            let text = path.display().to_string();
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            format!("file:{text}")
        };
        let revoked = match self.revocation_list.as_os_str().is_empty() {
            true => String::new(),
            false => format!("<CRL>{}</CRL>", file(&self.revocation_list)),
        };
        let library = |name: &str, functions: &str| {
            format!(
                "<Library path=\"{name}\" initFunction=\"init_{functions}\" finalizeFunction=\"finalize_{functions}\"/>"
            )
        };
        // Fast DDS 2.9 refuses a reply without them, which the standard calls optional.
        let optional = "<IncludeOptionalFields>true</IncludeOptionalFields>";
        format!(
            "<Security><Authentication>{}<IdentityCA>{}</IdentityCA><IdentityCertificate>{}</IdentityCertificate>\
             <PrivateKey>{}</PrivateKey>{revoked}{optional}</Authentication><Cryptographic>{}</Cryptographic><AccessControl>{}\
             <PermissionsCA>{}</PermissionsCA><Governance>{}</Governance><Permissions>{}</Permissions></AccessControl>\
             </Security>",
            library("dds_security_auth", "authentication"),
            file(&self.identity_ca),
            file(&self.certificate),
            file(&self.private_key),
            library("dds_security_crypto", "crypto"),
            library("dds_security_ac", "access_control"),
            file(&self.permissions_ca),
            file(&self.governance),
            file(&self.permissions),
        )
    }
}

/// The remedy for a missing or invalid file.
const HINT: &str =
    "`chappe dds keys DIRECTORY NAME` makes all files; docs/reference/dds.md describes them";

#[cfg(secure)]
mod files {
    use std::io::Read as _;
    use std::path::Path;

    use openssl::asn1::Asn1Time;
    use openssl::error::ErrorStack;
    use openssl::pkcs7::{Pkcs7, Pkcs7Flags};
    use openssl::pkey::PKey;
    use openssl::stack::Stack;
    use openssl::x509::store::X509StoreBuilder;
    use openssl::x509::{X509, X509Crl, X509StoreContext};

    use super::{HINT, SecurityConfig};
    use crate::DdsError;

    /// The largest file; reason: certificates have some kB, and permissions of a thousand rules some hundred.
    const FILE_BYTES_MAX: u64 = 1 << 20;

    fn fault(key: &'static str, path: &Path, why: impl std::fmt::Display) -> DdsError {
        DdsError::Security {
            key,
            why: format!("{}: {why}", path.display()),
            hint: HINT,
        }
    }

    fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, DdsError> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(|error| fault(key, path, error))?;
        let mut file = file.take(FILE_BYTES_MAX + 1);
        file.read_to_end(&mut bytes)
            .map_err(|error| fault(key, path, error))?;
        match bytes.len() as u64 {
            0 => Err(fault(key, path, "it is empty")),
            1..=FILE_BYTES_MAX => Ok(bytes),
            _ => Err(fault(
                key,
                path,
                format!("it is above {FILE_BYTES_MAX} bytes"),
            )),
        }
    }

    fn certificate(key: &'static str, path: &Path) -> Result<X509, DdsError> {
        X509::from_pem(&read(key, path)?)
            .map_err(|_| fault(key, path, "it is not a certificate in PEM"))
    }

    /// Checks each file, and that they belong together.
    pub(super) fn check(config: &SecurityConfig) -> Result<(), DdsError> {
        let authority = certificate("identity_ca", &config.identity_ca)?;
        let own = certificate("certificate", &config.certificate)?;
        let (key, path) = ("certificate", &config.certificate);
        let signed = is_signed(&own, authority).map_err(|error| fault(key, path, error))?;
        signed.map_err(|why| fault(key, path, format!("dds.security.identity_ca: {why}")))?;
        let now = Asn1Time::days_from_now(0).map_err(|error| fault(key, path, error))?;
        if own.not_after() < now.as_ref() {
            return Err(fault(
                key,
                path,
                format!("it expired on {}", own.not_after()),
            ));
        }
        let (key, path) = ("private_key", &config.private_key);
        let private = PKey::private_key_from_pem(&read(key, path)?);
        let private =
            private.map_err(|_| fault(key, path, "it is not a key in PEM without password"))?;
        let public = own.public_key().map_err(|error| fault(key, path, error))?;
        if !private.public_eq(&public) {
            return Err(fault(
                key,
                path,
                "it is not the key of dds.security.certificate",
            ));
        }
        let (key, path) = ("revocation_list", &config.revocation_list);
        if !path.as_os_str().is_empty() {
            let list = X509Crl::from_pem(&read(key, path)?);
            list.map_err(|_| fault(key, path, "it is not a list of revoked certificates in PEM"))?;
        }
        let authority = certificate("permissions_ca", &config.permissions_ca)?;
        for (key, path) in [
            ("governance", &config.governance),
            ("permissions", &config.permissions),
        ] {
            let bytes = read(key, path)?;
            let is_intact = is_intact(&bytes, authority.clone());
            let is_intact =
                is_intact.map_err(|_| fault(key, path, "it is not a document in S/MIME"))?;
            if !is_intact {
                let why = "it is not signed by dds.security.permissions_ca, or was changed";
                return Err(fault(key, path, why));
            }
        }
        Ok(())
    }

    /// Whether a certificate is valid now and signed by this authority, or the reason.
    fn is_signed(own: &X509, authority: X509) -> Result<Result<(), String>, ErrorStack> {
        let mut store = X509StoreBuilder::new()?;
        store.add_cert(authority)?;
        let (store, chain) = (store.build(), Stack::new()?);
        let mut context = X509StoreContext::new()?;
        context.init(&store, own, &chain, |it| {
            let valid = it.verify_cert()?;
            Ok(match valid {
                true => Ok(()),
                false => Err(it.error().error_string().to_owned()),
            })
        })
    }

    /// Whether a document is signed by this authority.
    fn is_intact(bytes: &[u8], authority: X509) -> Result<bool, ErrorStack> {
        let (document, content) = Pkcs7::from_smime(bytes)?;
        let content = content.unwrap_or_default();
        let mut signers = Stack::new()?;
        signers.push(authority)?;
        let store = X509StoreBuilder::new()?.build();
        // The library checks with the same flags: the signer is the authority itself.
        let flags = Pkcs7Flags::TEXT | Pkcs7Flags::NOVERIFY | Pkcs7Flags::NOINTERN;
        let mut text = Vec::new();
        let verified = document.verify(&signers, &store, Some(&content), Some(&mut text), flags);
        Ok(verified.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_settings_are_refused_with_the_setting() {
        assert_eq!(SecurityConfig::default().check(), Ok(()));
        let config = SecurityConfig {
            identity_ca: "ca.pem".into(),
            ..SecurityConfig::default()
        };
        let error = config.check().unwrap_err();
        let key = match cfg!(secure) {
            true => "dds.security.certificate",
            false => "dds.security.identity_ca",
        };
        assert_eq!(error.setting(), key);
        assert!(error.to_string().starts_with(key), "{error}");
        let remedy = match cfg!(secure) {
            true => "chappe dds keys",
            false => "--features dds-security",
        };
        assert!(error.hint().is_some_and(|hint| hint.contains(remedy)));
    }
}
