//! The only policy on addresses that arrive in messages: XAddrs, NotifyTo, EndTo.
//!
//! The sender of such an address decides where this host connects. The policy allows only the
//! sender itself and the prefixes that the operator configured. The owner of a host name decides at the
//! moment of use which address it means: a name is resolved only where a certificate has to prove it, and the
//! address that it means is judged like every other one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

/// Cloud metadata services, which give credentials to any local program: never contacted.
const METADATA_SERVICES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];
/// Maximum length of a host name (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
/// Maximum length of an address: `MAX_URI_SIZE` of DPWS 1.1, appendix B.
const URI_BYTES_MAX: usize = 2_048;

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

/// A range of addresses, written `192.0.2.0/24` or `2001:db8::/32`; a bare address is itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    network: IpAddr,
    bits: u8,
}

/// A text that is not a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address prefix (hint: write for example 192.0.2.0/24 or 2001:db8::/32)")]
pub struct PrefixError(String);

impl Prefix {
    /// The range of all addresses with the same first `bits` bits as `network`.
    ///
    /// `bits` above the width of the address count as that width.
    #[must_use]
    pub fn new(network: IpAddr, bits: u8) -> Self {
        let bits = bits.min(if network.is_ipv4() { 32 } else { 128 });
        Self { network, bits }
    }

    /// Whether the address lies in the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let different = network.to_bits() ^ address.to_bits();
                different.checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let different = network.to_bits() ^ address.to_bits();
                different.checked_shr(128 - bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let error = || PrefixError(text.chars().take(64).collect());
        let (network, bits) = match text.split_once('/') {
            Some((network, bits)) => (network, Some(bits)),
            None => (text, None),
        };
        let network: IpAddr = network.parse().map_err(|_| error())?;
        let width = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| error())?;
        if bits > width {
            return Err(error());
        }
        Ok(Self { network, bits })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why the policy refuses an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not the form of an http address.
    #[error("the address is not usable: {0}")]
    NotUri(&'static str),
    /// Neither http nor https.
    #[error("the scheme {0:?} is neither http nor https")]
    Scheme(String),
    /// A name instead of an IP address.
    #[error("the host {0:?} is not a literal IP address")]
    NotLiteral(String),
    /// A name that no resolver knows.
    #[error("the host {0:?} cannot be resolved")]
    Unresolved(String),
    /// An http address where TLS is demanded.
    #[error("the address is plain http, and TLS is demanded")]
    Plain,
    /// Port zero.
    #[error("port 0 cannot be contacted")]
    PortZero,
    /// Not the address of a single host: unspecified, multicast, broadcast.
    #[error("{0} is not the address of one host")]
    NotUnicast(IpAddr),
    /// The credential service of a cloud.
    #[error("{0} is a cloud's metadata service")]
    MetadataService(IpAddr),
    /// This host, which no allowed prefix covers.
    #[error("{0} is this host itself, which no allowed prefix covers")]
    LoopbackUnnamed(IpAddr),
    /// This host, announced by another host.
    #[error("{host} is this host itself, but the message came from {source_address}")]
    Loopback {
        /// The host of the address.
        host: IpAddr,
        /// The source of the message.
        source_address: IpAddr,
    },
    /// Announced by another host, and not confirmed by a host at that address.
    #[error("{0} was announced by another host, and its announcer does not answer there")]
    Unconfirmed(IpAddr),
    /// A host other than the sender.
    #[error("{host} is not the sender ({source_address}) and not in an allowed prefix")]
    Elsewhere {
        /// The host of the address.
        host: IpAddr,
        /// The source of the message.
        source_address: IpAddr,
    },
}

impl Refusal {
    /// A hint for the operator, if there is a remedy.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Elsewhere { host, .. } => Some(format!(
                "if {host} is trusted, add its prefix to the allowed ones: discovery.contact of a node"
            )),
            // Loopback is never allowed by a prefix.
            Self::Unconfirmed(host) if host.is_loopback() => {
                Some(format!("ask that host directly: chappe find --host {host}"))
            }
            Self::Unconfirmed(host) => Some(format!(
                "ask it itself: chappe find --host {host}; if it is trusted, a node contacts it with \
                 its prefix in discovery.contact"
            )),
            Self::NotLiteral(_) => {
                Some(
                    "a name is resolved only for https, and if a certificate is trusted: let the device \
                     announce its IP address"
                        .to_owned(),
                )
            }
            Self::Unresolved(name) => Some(format!("ask the resolver: getent ahosts {name}")),
            Self::Plain => Some("let the device offer an https address".to_owned()),
            Self::LoopbackUnnamed(host) => Some(format!(
                "if a program on this host may be called there, name it: contact = [\"{host}\"] under \
                 [exchange]; if clients come through a proxy on this host, name that in \
                 http.trusted_proxies first"
            )),
            Self::Loopback { .. } => Some(
                "the device announces its own loopback address: bind it to its network address"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// The addresses of a stranger's message that this host may contact.
///
/// The default allows only the sender itself.
///
/// ```
/// use chappe_identity::{AddressPolicy, Refusal};
/// let policy = AddressPolicy::default();
/// let sender = "192.0.2.7:3702".parse().unwrap();
/// let contact = policy.check("http://192.0.2.7:8080/device", sender)?;
/// assert_eq!(contact.address, "192.0.2.7:8080".parse().unwrap());
/// assert!(policy.check("http://192.0.2.8:8080/device", sender).is_err());
/// assert!(policy.check("http://127.0.0.1:8080/device", sender).is_err());
/// # Ok::<(), Refusal>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressPolicy {
    allowed: Vec<Prefix>,
    subnets: Vec<Prefix>,
    loopback_by_prefix: bool,
}

impl AddressPolicy {
    /// Also allows addresses in this prefix, whatever host announces them.
    #[must_use]
    pub fn allow(mut self, prefix: Prefix) -> Self {
        self.allowed.push(prefix);
        self
    }

    /// Also allows a sender on this directly connected subnet to name its neighbours there.
    #[must_use]
    pub fn allow_within(mut self, subnet: Prefix) -> Self {
        self.subnets.push(subnet);
        self
    }

    /// Allows loopback only in allowed prefixes, even for a sender on this host: if senders may
    /// come through a proxy, being on this host proves nothing.
    #[must_use]
    pub fn loopback_by_prefix(mut self) -> Self {
        self.loopback_by_prefix = true;
        self
    }

    /// Checks an address announced by `source`; the unspecified address vouches for none.
    ///
    /// # Errors
    /// The reason why it must not be contacted.
    pub fn check(&self, uri: &str, source: SocketAddr) -> Result<Contact, Refusal> {
        let zone = match source {
            SocketAddr::V6(source) => source.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let contact = Contact::parse(uri, zone)?;
        self.check_host(contact.address.ip(), source.ip())?;
        Ok(contact)
    }

    /// Like [`Self::check`] for an address with a [provable name](Contact::provable_name), which has been resolved
    /// to `host`. The certificate has to prove the name.
    ///
    /// # Errors
    /// The reason why it must not be contacted.
    pub fn check_resolved(
        &self,
        uri: &str,
        host: IpAddr,
        source: SocketAddr,
    ) -> Result<Contact, Refusal> {
        let refusal = || Refusal::NotUri("no name that a certificate can prove");
        let name = Contact::provable_name(uri).ok_or_else(refusal)?;
        let literal = match host.to_canonical() {
            IpAddr::V4(host) => host.to_string(),
            IpAddr::V6(host) => format!("[{host}]"),
        };
        let (scheme, rest) = uri.split_once("://").ok_or_else(refusal)?;
        let rest = rest.get(name.len()..).unwrap_or_default();
        let mut contact = self.check(&format!("{scheme}://{literal}{rest}"), source)?;
        contact.proof.name = Some(name.to_ascii_lowercase());
        Ok(contact)
    }

    fn check_host(&self, host: IpAddr, source: IpAddr) -> Result<(), Refusal> {
        let source = source.to_canonical();
        let broadcast = host == IpAddr::V4(Ipv4Addr::BROADCAST);
        if host.is_unspecified() || host.is_multicast() || broadcast {
            return Err(Refusal::NotUnicast(host));
        }
        if METADATA_SERVICES.contains(&host) {
            return Err(Refusal::MetadataService(host));
        }
        if host.is_loopback() && source.is_unspecified() {
            return Err(Refusal::Unconfirmed(host));
        }
        if host.is_loopback() && !source.is_loopback() {
            let source_address = source;
            return Err(Refusal::Loopback {
                host,
                source_address,
            });
        }
        let named = self.allowed.iter().any(|prefix| prefix.contains(host));
        if host.is_loopback() && self.loopback_by_prefix && !named {
            return Err(Refusal::LoopbackUnnamed(host));
        }
        let within = |subnet: &Prefix| subnet.contains(host) && subnet.contains(source);
        let allowed = host == source || named || self.subnets.iter().any(within);
        if allowed {
            return Ok(());
        }
        if source.is_unspecified() {
            return Err(Refusal::Unconfirmed(host));
        }
        let source_address = source;
        Err(Refusal::Elsewhere {
            host,
            source_address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_provable_only_by_a_certificate_and_its_address_is_judged() {
        for uri in [
            "http://valve.example/x",
            "https://192.0.2.7/x",
            "https://[2001:db8::1]/x",
            "https://a b/x",
            "https://a..b/x",
            "https://user@valve.example/x",
            "https:///x",
        ] {
            assert_eq!(Contact::provable_name(uri), None, "{uri}");
        }
        let (uri, source) = ("https://Valve.example:4343/https", "192.0.2.7:3702");
        let source = source.parse().unwrap();
        assert_eq!(Contact::provable_name(uri), Some("Valve.example"));
        let policy = AddressPolicy::default();
        let resolved = |host: &str| policy.check_resolved(uri, host.parse().unwrap(), source);
        let contact = resolved("192.0.2.7").unwrap();
        assert_eq!(contact.address, "192.0.2.7:4343".parse().unwrap());
        assert_eq!(contact.to_string(), "https://valve.example:4343/https");
        assert!(matches!(
            resolved("192.0.2.8"),
            Err(Refusal::Elsewhere { .. })
        ));
        assert!(matches!(
            resolved("127.0.0.1"),
            Err(Refusal::Loopback { .. })
        ));
        assert!(matches!(
            resolved("169.254.169.254"),
            Err(Refusal::MetadataService(_))
        ));
    }

    fn check(policy: &AddressPolicy, uri: &str, source: &str) -> Result<Contact, Refusal> {
        policy.check(uri, source.parse().unwrap())
    }

    #[test]
    fn the_sender_itself_is_allowed_in_every_spelling() {
        let policy = AddressPolicy::default();
        for (uri, source, address, path) in [
            ("http://192.0.2.7", "192.0.2.7:1", "192.0.2.7:80", "/"),
            (
                "HTTPS://192.0.2.7/a?b#c",
                "192.0.2.7:1",
                "192.0.2.7:443",
                "/a?b",
            ),
            ("http://192.0.2.7:9?q", "192.0.2.7:1", "192.0.2.7:9", "/?q"),
            (
                "http://[2001:db8::1]:9/x",
                "[2001:db8::1]:1",
                "[2001:db8::1]:9",
                "/x",
            ),
            (
                "http://[fe80::1%25eth0]:9/",
                "[fe80::1%3]:1",
                "[fe80::1%3]:9",
                "/",
            ),
            (
                "http://192.0.2.7:9/",
                "[::ffff:192.0.2.7]:1",
                "192.0.2.7:9",
                "/",
            ),
            ("http://127.0.1.7:9/", "127.0.1.7:3702", "127.0.1.7:9", "/"),
        ] {
            let contact = check(&policy, uri, source).unwrap();
            assert_eq!(contact.address, address.parse().unwrap(), "{uri}");
            assert_eq!(contact.path, path, "{uri}");
        }
    }

    #[test]
    fn loopback_can_need_a_prefix() {
        let strict = AddressPolicy::default().loopback_by_prefix();
        let refused = check(&strict, "http://127.0.0.1:9/", "127.0.0.1:1").unwrap_err();
        assert!(matches!(refused, Refusal::LoopbackUnnamed(_)), "{refused}");
        assert!(
            refused
                .hint()
                .unwrap()
                .contains("contact = [\"127.0.0.1\"]")
        );
        check(&strict, "http://192.0.2.7:9/", "192.0.2.7:1").unwrap();
        let named = strict.allow("127.0.0.0/8".parse().unwrap());
        check(&named, "http://127.0.0.1:9/", "127.0.0.1:1").unwrap();
        // A prefix does not let another host announce it.
        let far = check(&named, "http://127.0.0.1:9/", "192.0.2.7:1").unwrap_err();
        assert!(matches!(far, Refusal::Loopback { .. }), "{far}");
    }

    #[test]
    fn an_address_that_nobody_vouches_for_is_allowed_by_a_prefix_alone() {
        let strict = AddressPolicy::default();
        let lenient = AddressPolicy::default().allow("192.0.2.0/24".parse().unwrap());
        let uri = "http://192.0.2.7:80/";
        assert!(check(&lenient, uri, "0.0.0.0:0").is_ok());
        for source in ["0.0.0.0:0", "[::]:0"] {
            let refusal = check(&strict, uri, source).unwrap_err();
            assert_eq!(refusal, Refusal::Unconfirmed("192.0.2.7".parse().unwrap()));
            assert!(refusal.hint().unwrap().contains("discovery.contact"));
            let refusal = check(&lenient, "http://127.0.1.2:80/", source).unwrap_err();
            assert_eq!(refusal, Refusal::Unconfirmed("127.0.1.2".parse().unwrap()));
            assert!(!refusal.hint().unwrap().contains("discovery.contact"));
        }
    }

    #[test]
    fn strangers_addresses_are_refused_with_their_reason() {
        let policy = AddressPolicy::default().allow("0.0.0.0/0".parse().unwrap());
        let strict = AddressPolicy::default();
        let source = "192.0.2.7:3702";
        for uri in [
            "http://169.254.169.254/latest/",
            "http://[fd00:ec2::254]/",
            "http://[::ffff:169.254.169.254]/",
            "http://127.0.0.1:80/",
            "http://[::1]:80/",
            "http://[::ffff:127.0.0.1]/",
            "http://0.0.0.0:80/",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://192.0.2.7:0/",
            "http://192.0.2.7:65536/",
            "http://192.0.2.7:+80/",
            "http://localhost/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://user@192.0.2.7/",
            "http://192.0.2.7\\@127.0.0.1/",
            "http://192.0.2.7 /\r\nHost: x",
            "http://[::1/",
            "http://[::1]x/",
            "ftp://192.0.2.7/",
            "file:///etc/passwd",
            "soap.udp://192.0.2.7:3702",
            "",
        ] {
            assert!(check(&policy, uri, source).is_err(), "{uri}");
        }
        assert!(matches!(
            check(&strict, "http://192.0.2.8/", source),
            Err(Refusal::Elsewhere { .. })
        ));
        let loopback = check(&strict, "http://127.0.1.8/", "127.0.1.7:1");
        assert!(matches!(loopback, Err(Refusal::Elsewhere { .. })));
    }

    #[test]
    fn configured_prefixes_and_subnets_open_exactly_themselves() {
        let policy = AddressPolicy::default()
            .allow("198.51.100.0/25".parse().unwrap())
            .allow_within("192.0.2.0/24".parse().unwrap());
        let source = "192.0.2.7:3702";
        assert!(check(&policy, "http://198.51.100.127/", source).is_ok());
        assert!(check(&policy, "http://198.51.100.128/", source).is_err());
        assert!(check(&policy, "http://192.0.2.9/", source).is_ok());
        // The neighbour rule holds only for a sender that is a neighbour itself.
        assert!(check(&policy, "http://192.0.2.9/", "203.0.113.5:3702").is_err());
    }

    #[test]
    fn prefixes_are_read_strictly() {
        for text in ["", "1.2.3.4/33", "1.2.3/8", "::/129", "1.2.3.4/-1", "x"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
        let everything: Prefix = "::/0".parse().unwrap();
        assert!(everything.contains("2001:db8::1".parse().unwrap()));
        assert!(!everything.contains("192.0.2.1".parse().unwrap()));
        let one: Prefix = "192.0.2.1".parse().unwrap();
        assert!(!one.contains("192.0.2.2".parse().unwrap()));
    }

    proptest::proptest! {
        /// Whatever a stranger writes: no panic, and nothing but the sender is allowed.
        #[test]
        fn nothing_but_the_sender(uri in "(https?://)?[0-9a-f:.\\[\\]%@/]{0,40}") {
            let source: SocketAddr = "192.0.2.7:3702".parse().unwrap();
            if let Ok(contact) = AddressPolicy::default().check(&uri, source) {
                proptest::prop_assert_eq!(contact.address.ip(), source.ip());
            }
        }
    }
}
