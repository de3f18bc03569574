//! The address of the client that sent a request, directly or through proxies.
//!
//! Source: RFC 7239 (`Forwarded`), and the older `X-Forwarded-For`. Both are lists to which each
//! proxy appends the address of its own client. Anybody can send such a header, so the list is read
//! from its end, and only the entries that proxies of `http.trusted_proxies` wrote are believed: the
//! first address outside `http.trusted_proxies` is the client. Every decision by client address uses
//! this one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::http::HeaderMap;
use chappe_identity::Prefix;

/// The address of a client that its proxy does not name; no contact point is allowed for it.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The two headers name different clients, so the client itself must have sent one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contradiction;

/// The client of a request that came over a connection from `peer`.
pub(super) fn client(
    peer: SocketAddr,
    headers: &HeaderMap,
    trusted: &[Prefix],
) -> Result<SocketAddr, Contradiction> {
    if !is_trusted(peer.ip(), trusted) {
        return Ok(peer);
    }
    let forwarded = list(headers, "forwarded").map(|list| {
        let hops: Option<Vec<Hop>> = list
            .as_deref()
            .map(|list| split(list, ',').map(hop).collect());
        walk(peer, hops.as_deref(), trusted)
    });
    let older = list(headers, "x-forwarded-for").map(|list| {
        let hops: Option<Vec<Hop>> = list.map(|list| list.split(',').map(node).collect());
        walk(peer, hops.as_deref(), trusted)
    });
    match (forwarded, older) {
        (Some(one), Some(other)) if one.ip() != other.ip() => Err(Contradiction),
        (Some(client), _) | (None, Some(client)) => Ok(client),
        (None, None) => Ok(peer),
    }
}

/// An entry of a list: the address of a proxy's client, if the proxy names it.
type Hop = Option<SocketAddr>;

/// Walks back from the connection's peer to the first address that is not a trusted proxy. A list
/// that cannot be parsed leaves the client unknown.
fn walk(peer: SocketAddr, hops: Option<&[Hop]>, trusted: &[Prefix]) -> SocketAddr {
    let unknown = SocketAddr::new(UNKNOWN, 0);
    let Some(hops) = hops else { return unknown };
    let mut client = peer;
    for hop in hops.iter().rev() {
        if !is_trusted(client.ip(), trusted) {
            break;
        }
        client = hop.unwrap_or(unknown);
    }
    client
}

fn is_trusted(address: IpAddr, trusted: &[Prefix]) -> bool {
    trusted.iter().any(|prefix| prefix.contains(address))
}

/// All fields of a name, joined to one list (RFC 9110, 5.3); the inner `None`: not text.
fn list(headers: &HeaderMap, name: &str) -> Option<Option<String>> {
    let mut fields = headers.get_all(name).iter().peekable();
    fields.peek()?;
    let fields: Option<Vec<&str>> = fields.map(|field| field.to_str().ok()).collect();
    Some(fields.map(|fields| fields.join(",")))
}

/// Splits at separators outside quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return c == separator && !quoted,
        }
        false
    })
}

/// The `for` of an element of `Forwarded`; a repeated one is invalid (RFC 7239, 4).
fn hop(element: &str) -> Hop {
    let mut found = split(element, ';').filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("for")
            .then(|| value.trim())
    });
    let value = found.next().filter(|_| found.next().is_none())?;
    let quoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    node(quoted.unwrap_or(value))
}

/// Parses a node identifier with an address: `192.0.2.7`, `192.0.2.7:80`, `[2001:db8::7]:80`; `None`
/// for `unknown` and obfuscated names. `X-Forwarded-For` also has IPv6 without brackets.
fn node(text: &str) -> Hop {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address: IpAddr = bare.unwrap_or(text).parse().ok()?;
    Some(SocketAddr::new(address.to_canonical(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_of(peer: &str, headers: &[(&'static str, &str)]) -> Result<String, Contradiction> {
        let trusted = ["127.0.0.0/8", "10.1.0.0/16", "2001:db8:1::/48"];
        let trusted = trusted.map(|prefix| prefix.parse().unwrap());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let peer = SocketAddr::new(peer.parse().unwrap(), 9);
        client(peer, &map, &trusted).map(|client| client.ip().to_string())
    }

    #[test]
    fn the_client_is_the_last_address_outside_the_trusted_proxies() {
        // The connection's peer, the headers, the client.
        type Case = (
            &'static str,
            &'static [(&'static str, &'static str)],
            &'static str,
        );
        let table: [Case; 17] = [
            // No trusted proxy: the client itself sent the headers.
            ("192.0.2.7", &[], "192.0.2.7"),
            ("192.0.2.7", &[("forwarded", "for=127.0.0.1")], "192.0.2.7"),
            (
                "192.0.2.7",
                &[("x-forwarded-for", "127.0.0.1")],
                "192.0.2.7",
            ),
            // A trusted proxy without a header is the client.
            ("127.0.0.1", &[], "127.0.0.1"),
            ("127.0.0.1", &[("forwarded", "for=192.0.2.7")], "192.0.2.7"),
            (
                "127.0.0.1",
                &[("x-forwarded-for", "192.0.2.7")],
                "192.0.2.7",
            ),
            // Entries that the client sent are to the left, and not believed.
            (
                "127.0.0.1",
                &[("forwarded", "for=127.0.0.1, for=192.0.2.7")],
                "192.0.2.7",
            ),
            (
                "127.0.0.1",
                &[("x-forwarded-for", "127.0.0.1,192.0.2.7")],
                "192.0.2.7",
            ),
            (
                "127.0.0.1",
                &[
                    ("forwarded", "for=127.0.0.1"),
                    ("forwarded", "for=192.0.2.7"),
                ],
                "192.0.2.7",
            ),
            // A chain of trusted proxies.
            (
                "127.0.0.1",
                &[("forwarded", "for=192.0.2.7, for=10.1.2.3;proto=https")],
                "192.0.2.7",
            ),
            (
                "2001:db8:1::1",
                &[("forwarded", "by=x;For=\"[2001:db8:2::7]:4711\"")],
                "2001:db8:2::7",
            ),
            (
                "127.0.0.1",
                &[("x-forwarded-for", "2001:db8:2::7")],
                "2001:db8:2::7",
            ),
            (
                "::ffff:127.0.0.1",
                &[("x-forwarded-for", "::ffff:192.0.2.7")],
                "192.0.2.7",
            ),
            // Separators within quotes are ignored.
            (
                "127.0.0.1",
                &[("forwarded", "for=192.0.2.7;by=\"a,for=127.0.0.1\"")],
                "192.0.2.7",
            ),
            // A proxy that hides its client, and lists that cannot be parsed.
            (
                "127.0.0.1",
                &[("forwarded", "for=127.0.0.1, for=unknown")],
                "0.0.0.0",
            ),
            (
                "127.0.0.1",
                &[("forwarded", "for=192.0.2.7;for=127.0.0.1")],
                "0.0.0.0",
            ),
            (
                "127.0.0.1",
                &[("x-forwarded-for", "127.0.0.1 192.0.2.7")],
                "0.0.0.0",
            ),
        ];
        for (peer, headers, client) in table {
            let found = client_of(peer, headers).unwrap();
            assert_eq!(found, client, "{peer} {headers:?}");
        }
    }

    #[test]
    fn both_headers_must_name_the_same_client() {
        let both = |forwarded, older| {
            client_of(
                "127.0.0.1",
                &[("forwarded", forwarded), ("x-forwarded-for", older)],
            )
        };
        assert_eq!(both("for=192.0.2.7", "192.0.2.7").unwrap(), "192.0.2.7");
        assert_eq!(both("for=127.0.0.1", "192.0.2.7"), Err(Contradiction));
    }
}
