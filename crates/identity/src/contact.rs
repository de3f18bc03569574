//! An address that may be contacted, and what a certificate has to prove there.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::Refusal;

/// Maximum length of an address: `MAX_URI_SIZE` of DPWS 1.1, appendix B.
const URI_BYTES_MAX: usize = 2_048;
/// Maximum length of a host name (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// The scheme of the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

/// What the certificate of an https peer has to prove, besides that it is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Proof {
    /// The host name of the address; `None`: the IP address.
    pub name: Option<String>,
    /// The endpoint of the device. A certificate that names another endpoint is refused; one that names this
    /// one needs no other name.
    pub endpoint: Option<String>,
}

/// An address that may be contacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// The scheme.
    pub scheme: Scheme,
    /// Host and port.
    pub address: SocketAddr,
    /// Path and query, at least `/`.
    pub path: String,
    /// What a certificate has to prove there, if the scheme is https.
    pub proof: Proof,
}

impl Contact {
    /// Parses an address without applying a policy: for addresses chosen by the operator or by this
    /// program.
    ///
    /// `zone` is the interface of link-local IPv6 addresses, zero elsewhere.
    ///
    /// # Errors
    /// It is not an http address with a literal IP host and a port other than zero.
    pub fn parse(uri: &str, zone: u32) -> Result<Self, Refusal> {
        let uri = uri.trim();
        if uri.len() > URI_BYTES_MAX {
            return Err(Refusal::NotUri("longer than 2,048 bytes"));
        }
        if uri
            .bytes()
            .any(|byte| byte.is_ascii_control() || byte == b' ' || byte == b'\\')
        {
            return Err(Refusal::NotUri("characters that a URI cannot contain"));
        }
        let (scheme, rest) = uri.split_once("://").ok_or(Refusal::NotUri("no ://"))?;
        let (scheme, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (Scheme::Http, 80),
            "https" => (Scheme::Https, 443),
            other => return Err(Refusal::Scheme(other.chars().take(32).collect())),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(Refusal::NotUri("a user name before the host"));
        }
        let (host, port) = split_port(authority)?;
        let port = match port {
            None | Some("") => default_port,
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port
                .parse()
                .map_err(|_| Refusal::NotUri("a port above 65535"))?,
            Some(_) => return Err(Refusal::NotUri("a port that is not a number")),
        };
        if port == 0 {
            return Err(Refusal::PortZero);
        }
        let address = match literal(host)? {
            IpAddr::V4(ip) => SocketAddr::from((ip, port)),
            IpAddr::V6(ip) => {
                let zone = if ip.is_unicast_link_local() { zone } else { 0 };
                SocketAddrV6::new(ip, port, 0, zone).into()
            }
        };
        let path = path.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            scheme,
            address,
            path: format!("{slash}{path}"),
            proof: Proof::default(),
        })
    }

    /// The host name in an https address, which a certificate can prove; `None` for every other address.
    #[must_use]
    pub fn provable_name(uri: &str) -> Option<&str> {
        let (scheme, rest) = uri.trim().split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        let name = authority
            .split_once(':')
            .map_or(authority, |(name, _)| name);
        let is_name = |name: &str| {
            let mut labels = name.split('.');
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            name.len() <= NAME_BYTES_MAX
                && labels.all(|label| !label.is_empty() && label.bytes().all(valid))
        };
        let is_provable = scheme.eq_ignore_ascii_case("https")
            && name.parse::<IpAddr>().is_err()
            && is_name(name);
        is_provable.then_some(name)
    }
}

/// The host and port as URIs write them, IPv6 in brackets and without zone.
impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let port = self.address.port();
        if let Some(name) = &self.proof.name {
            return write!(f, "{scheme}://{name}:{port}{}", self.path);
        }
        match self.address.ip() {
            IpAddr::V4(ip) => write!(f, "{scheme}://{ip}:{port}{}", self.path),
            IpAddr::V6(ip) => write!(f, "{scheme}://[{ip}]:{port}{}", self.path),
        }
    }
}

/// Splits `host:port`, without the brackets of IPv6.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), Refusal> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or(Refusal::NotUri("a missing ] after the host"))?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(Refusal::NotUri("text after ]")),
        };
    }
    Ok(match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    })
}

/// A literal IP address; the zone that some senders append means nothing here and is cut off.
fn literal(host: &str) -> Result<IpAddr, Refusal> {
    let host = host.split('%').next().unwrap_or_default();
    match host.parse::<IpAddr>() {
        Ok(ip) => Ok(ip.to_canonical()),
        Err(_) => Err(Refusal::NotLiteral(host.chars().take(64).collect())),
    }
}
