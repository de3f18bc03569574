//! The address of the client that a request comes from, also through proxies.
//!
//! Source: RFC 7239 (`Forwarded`), and the older `X-Forwarded-For`. Both are lists to which each
//! proxy adds, at the end, the address that it was called from. Anybody can send such a header, so
//! the list is read from its end and only as far as proxies of `http.trusted_proxies` wrote it: the
//! first address that is none of theirs is the client. Everything that judges by the client's
//! address judges by this one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::http::HeaderMap;
use chappe_identity::Prefix;

/// The address of a client that its proxy does not name; it vouches for no contact point.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The two headers name different clients: one of them was sent by the client itself.
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

/// An entry of a list: the address that a proxy was called from, if it tells one.
type Hop = Option<SocketAddr>;

/// From the connection's peer back to the first address that is no trusted proxy's. A list that is
/// not readable names nobody.
fn walk(peer: SocketAddr, hops: Option<&[Hop]>, trusted: &[Prefix]) -> SocketAddr {
    let nobody = SocketAddr::new(NOBODY, 0);
    let Some(hops) = hops else { return nobody };
    let mut client = peer;
    for hop in hops.iter().rev() {
        if !is_trusted(client.ip(), trusted) {
            break;
        }
        client = hop.unwrap_or(nobody);
    }
    client
}

fn is_trusted(address: IpAddr, trusted: &[Prefix]) -> bool {
    trusted.iter().any(|prefix| prefix.contains(address))
}

/// All fields of a name as one list, as RFC 9110, 5.3 joins them; inside, none when it is no text.
fn list(headers: &HeaderMap, name: &str) -> Option<Option<String>> {
    let mut fields = headers.get_all(name).iter().peekable();
    fields.peek()?;
    let fields: Option<Vec<&str>> = fields.map(|field| field.to_str().ok()).collect();
    Some(fields.map(|fields| fields.join(",")))
}

/// The parts between separators that do not stand in quotes.
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

/// The `for` of an element of `Forwarded`; one that occurs twice names nobody (RFC 7239, 4).
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

/// A node identifier with an address: `192.0.2.7`, `192.0.2.7:80`, `[2001:db8::7]:80`; `unknown`
/// and made-up names are none. `X-Forwarded-For` writes IPv6 without brackets too.
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

    fn seen(peer: &str, headers: &[(&'static str, &str)]) -> Result<String, Contradiction> {
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
    fn the_client_is_the_last_that_no_trusted_proxy_is() {
        // The connection's peer, the headers, the client.
        type Case = (
            &'static str,
            &'static [(&'static str, &'static str)],
            &'static str,
        );
        let table: [Case; 17] = [
            // No proxy, or none that is trusted: the headers are the client's own words.
            ("192.0.2.7", &[], "192.0.2.7"),
            ("192.0.2.7", &[("forwarded", "for=127.0.0.1")], "192.0.2.7"),
            (
                "192.0.2.7",
                &[("x-forwarded-for", "127.0.0.1")],
                "192.0.2.7",
            ),
            // A trusted proxy that says nothing asks for itself.
            ("127.0.0.1", &[], "127.0.0.1"),
            ("127.0.0.1", &[("forwarded", "for=192.0.2.7")], "192.0.2.7"),
            (
                "127.0.0.1",
                &[("x-forwarded-for", "192.0.2.7")],
                "192.0.2.7",
            ),
            // What the client sent before it is to the left, and not believed.
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
            // Separators in quotes are none.
            (
                "127.0.0.1",
                &[("forwarded", "for=192.0.2.7;by=\"a,for=127.0.0.1\"")],
                "192.0.2.7",
            ),
            // A proxy that hides its client, and lists that cannot be read.
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
            assert_eq!(seen(peer, headers).unwrap(), client, "{peer} {headers:?}");
        }
    }

    #[test]
    fn two_headers_have_to_name_one_client() {
        let both = |forwarded, older| {
            seen(
                "127.0.0.1",
                &[("forwarded", forwarded), ("x-forwarded-for", older)],
            )
        };
        assert_eq!(both("for=192.0.2.7", "192.0.2.7").unwrap(), "192.0.2.7");
        assert_eq!(both("for=127.0.0.1", "192.0.2.7"), Err(Contradiction));
    }
}
