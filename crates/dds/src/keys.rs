//! A small authority for DDS Security: the files of `[dds.security]`, for tests and small sites.
//!
//! One authority signs identities, governance and permissions. Its directory has its key, which no node needs:
//!
//! ```text
//! ca.pem  ca_key.pem  governance.p7s
//! NAME/certificate.pem  NAME/private_key.pem  NAME/permissions.p7s
//! ```
//!
//! Keys are of the elliptic curve P-256, and documents are signed as S/MIME (DDS Security 1.1, clauses 9.3.1 and 9.4.1).

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_stream::Timestamp;
use openssl::asn1::{Asn1Integer, Asn1Time};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkcs7::{Pkcs7, Pkcs7Flags};
use openssl::pkey::{PKey, Private};
use openssl::stack::Stack;
use openssl::x509::extension::{BasicConstraints, KeyUsage};
use openssl::x509::{X509, X509Name, X509NameRef};

use crate::SecurityConfig;

/// The longest name of a participant; reason: the limit of a common name (RFC 5280, appendix A.1).
pub const NAME_BYTES_MAX: usize = 64;
/// The longest pattern of topics, in bytes; reason: that of a topic's name.
const PATTERN_BYTES_MAX: usize = crate::TOPIC_BYTES_MAX;
/// The highest domain of the documents; reason: Cyclone DDS refuses higher ones in them.
const DOMAIN_MAX: u16 = 230;
/// The validity of the authority; reason: each node has a copy of its certificate.
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3_650 * 86_400);
/// How long before now certificates are valid; reason: clocks of nodes differ.
const CLOCK_MARGIN: Duration = Duration::from_secs(3_600);

/// A participant to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Its name: the common name of its certificate and the name of its directory.
    pub name: String,
    /// Patterns of the topics that it may write and read, such as `ward/*`. The topics of Chappe itself,
    /// `chappe/*`, are added.
    pub topics: Vec<String>,
    /// The end of its permissions and of its certificate.
    pub until: SystemTime,
}

/// The files could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// A name that is no directory's and no common name.
    #[error(
        "{0:?} is not a name of a participant: 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` and `-`, not starting with `.`"
    )]
    Name(String),
    /// A pattern that is no topic's.
    #[error("{0:?} is not a pattern of topics: letters, digits and `_/:.-*?`")]
    Pattern(String),
    /// The participant has files already.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// OpenSSL failed.
    #[error("OpenSSL: {0}")]
    OpenSsl(#[from] ErrorStack),
}

struct Authority {
    certificate: X509,
    key: PKey<Private>,
}

/// Admits a participant with the authority in this directory, which is made with the first one. Returns its files.
///
/// # Errors
/// An invalid name or pattern, a participant that exists already, or a file that cannot be written.
pub fn admit(directory: &Path, admission: &Admission) -> Result<SecurityConfig, KeysError> {
    let name = &admission.name;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.');
    if !fits || !name.bytes().all(plain) {
        return Err(KeysError::Name(name.chars().take(80).collect()));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_/:.-*?".contains(&b);
    let bad =
        |it: &&String| it.len() > PATTERN_BYTES_MAX || it.is_empty() || !it.bytes().all(plain);
    if let Some(pattern) = admission.topics.iter().find(bad) {
        return Err(KeysError::Pattern(pattern.chars().take(80).collect()));
    }
    let own = directory.join(name);
    if own.exists() {
        return Err(KeysError::Exists(own));
    }
    let authority = Authority::open(directory)?;
    let key = new_key()?;
    let certificate = authority.sign(name, &key, admission.until)?;
    let permissions = authority.document(&permissions(admission))?;
    make_directory(&own)?;
    let files = SecurityConfig {
        identity_ca: directory.join("ca.pem"),
        certificate: own.join("certificate.pem"),
        private_key: own.join("private_key.pem"),
        revocation_list: PathBuf::new(),
        permissions_ca: directory.join("ca.pem"),
        governance: directory.join("governance.p7s"),
        permissions: own.join("permissions.p7s"),
    };
    write(&files.certificate, &certificate.to_pem()?, 0o644)?;
    write(&files.private_key, &key.private_key_to_pem_pkcs8()?, 0o600)?;
    write(&files.permissions, &permissions, 0o644)?;
    Ok(files)
}

impl Authority {
    /// The authority of a directory, made if there is none.
    fn open(directory: &Path) -> Result<Self, KeysError> {
        let (path, key_path) = (directory.join("ca.pem"), directory.join("ca_key.pem"));
        if path.exists() {
            let read = |path: &Path| {
                fs::read(path).map_err(|error| KeysError::File {
                    path: path.to_owned(),
                    error,
                })
            };
            return Ok(Self {
                certificate: X509::from_pem(&read(&path)?)?,
                key: PKey::private_key_from_pem(&read(&key_path)?)?,
            });
        }
        let key = new_key()?;
        let name = common_name("Chappe DDS authority")?;
        let until = SystemTime::now() + AUTHORITY_VALIDITY;
        let certificate = certificate(&name, &name, &key, &key, until, true)?;
        let authority = Self { certificate, key };
        make_directory(directory)?;
        write(&key_path, &authority.key.private_key_to_pem_pkcs8()?, 0o600)?;
        let governance = authority.document(&governance())?;
        write(&directory.join("governance.p7s"), &governance, 0o644)?;
        // Last: an authority that is found is complete.
        write(&path, &authority.certificate.to_pem()?, 0o644)?;
        Ok(authority)
    }

    fn sign(&self, name: &str, key: &PKey<Private>, until: SystemTime) -> Result<X509, ErrorStack> {
        let (subject, issuer) = (common_name(name)?, self.certificate.subject_name());
        certificate(&subject, issuer, key, &self.key, until, false)
    }

    /// A document signed as S/MIME.
    fn document(&self, text: &str) -> Result<Vec<u8>, ErrorStack> {
        let flags = Pkcs7Flags::TEXT | Pkcs7Flags::DETACHED;
        let (text, none) = (text.as_bytes(), Stack::new()?);
        let signed = Pkcs7::sign(&self.certificate, &self.key, &none, text, flags)?;
        signed.to_smime(text, flags)
    }
}

fn new_key() -> Result<PKey<Private>, ErrorStack> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    PKey::from_ec_key(EcKey::generate(&group)?)
}

fn common_name(name: &str) -> Result<X509Name, ErrorStack> {
    let mut builder = X509Name::builder()?;
    builder.append_entry_by_nid(Nid::COMMONNAME, name)?;
    Ok(builder.build())
}

fn certificate(
    subject: &X509NameRef,
    issuer: &X509NameRef,
    key: &PKey<Private>,
    signer: &PKey<Private>,
    until: SystemTime,
    is_authority: bool,
) -> Result<X509, ErrorStack> {
    let mut builder = X509::builder()?;
    builder.set_version(2)?; // X.509 v3
    let mut serial = BigNum::new()?;
    // RFC 5280, clause 4.1.2.2: at most 20 bytes, positive.
    serial.rand(159, MsbOption::MAYBE_ZERO, false)?;
    let serial = Asn1Integer::from_bn(&serial)?;
    builder.set_serial_number(&serial)?;
    builder.set_subject_name(subject)?;
    builder.set_issuer_name(issuer)?;
    builder.set_pubkey(key)?;
    let from = Asn1Time::from_unix(unix(SystemTime::now() - CLOCK_MARGIN))?;
    builder.set_not_before(&from)?;
    let until = Asn1Time::from_unix(unix(until))?;
    builder.set_not_after(&until)?;
    let mut constraints = BasicConstraints::new();
    constraints.critical();
    let mut usage = KeyUsage::new();
    usage.critical().digital_signature();
    if is_authority {
        constraints.ca();
        usage.key_cert_sign().crl_sign();
    }
    builder.append_extension(constraints.build()?)?;
    builder.append_extension(usage.build()?)?;
    builder.sign(signer, MessageDigest::sha256())?;
    Ok(builder.build())
}

/// The rules of the domain: participants without permissions are refused, and all is encrypted.
fn governance() -> String {
    let domains = domains();
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:noNamespaceSchemaLocation="http://www.omg.org/spec/DDS-SECURITY/20170901/omg_shared_ca_governance.xsd">
  <domain_access_rules>
    <domain_rule>
      {domains}
      <allow_unauthenticated_participants>false</allow_unauthenticated_participants>
      <enable_join_access_control>true</enable_join_access_control>
      <discovery_protection_kind>ENCRYPT</discovery_protection_kind>
      <liveliness_protection_kind>ENCRYPT</liveliness_protection_kind>
      <rtps_protection_kind>NONE</rtps_protection_kind>
      <topic_access_rules>
        <topic_rule>
          <topic_expression>*</topic_expression>
          <enable_discovery_protection>true</enable_discovery_protection>
          <enable_liveliness_protection>true</enable_liveliness_protection>
          <enable_read_access_control>true</enable_read_access_control>
          <enable_write_access_control>true</enable_write_access_control>
          <metadata_protection_kind>ENCRYPT</metadata_protection_kind>
          <data_protection_kind>NONE</data_protection_kind>
        </topic_rule>
      </topic_access_rules>
    </domain_rule>
  </domain_access_rules>
</dds>
"#
    )
}

fn permissions(of: &Admission) -> String {
    let mut topics = String::new();
    for pattern in of.topics.iter().map(String::as_str).chain(["chappe/*"]) {
        let _ = write!(topics, "<topic>{pattern}</topic>");
    }
    let topics =
        format!("<topics>{topics}</topics><partitions><partition>*</partition></partitions>");
    let (name, domains) = (&of.name, domains());
    let from = date(SystemTime::now().min(of.until) - CLOCK_MARGIN);
    let until = date(of.until);
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:noNamespaceSchemaLocation="http://www.omg.org/spec/DDS-SECURITY/20170901/omg_shared_ca_permissions.xsd">
  <permissions>
    <grant name="{name}">
      <subject_name>CN={name}</subject_name>
      <validity><not_before>{from}</not_before><not_after>{until}</not_after></validity>
      <allow_rule>
        {domains}
        <publish>{topics}</publish>
        <subscribe>{topics}</subscribe>
      </allow_rule>
      <default>DENY</default>
    </grant>
  </permissions>
</dds>
"#
    )
}

fn domains() -> String {
    format!("<domains><id_range><min>0</min><max>{DOMAIN_MAX}</max></id_range></domains>")
}

fn unix(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A time as the schema of permissions has it: UTC, whole seconds.
fn date(time: SystemTime) -> String {
    let civil = Timestamp(unix(time).saturating_mul(1_000_000_000)).civil();
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
    )
}

fn make_directory(path: &Path) -> Result<(), KeysError> {
    fs::create_dir_all(path).map_err(|error| KeysError::File {
        path: path.to_owned(),
        error,
    })
}

/// Writes a new file with these rights.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeysError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| KeysError::File {
        path: path.to_owned(),
        error,
    })
}
