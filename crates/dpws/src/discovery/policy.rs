//! Which transport addresses of unauthenticated messages are used.

use std::net::{IpAddr, SocketAddr};

use chappe_xml::Str;

use super::intake::Dropped;
use super::table::approximate_size;
use super::{DropReason, Target};

/// Decides which transport addresses given by an unauthenticated sender may be contacted.
///
/// Implemented by every `Fn(&str, SocketAddr) -> Result<(), String>`.
pub trait XaddrPolicy: Send + Sync {
    /// Checks the transport address `xaddr` given in a message from `source`.
    ///
    /// # Errors
    /// The reason why the address must not be contacted.
    fn check(&self, xaddr: &str, source: SocketAddr) -> Result<(), String>;
}

impl<F> XaddrPolicy for F
where
    F: Fn(&str, SocketAddr) -> Result<(), String> + Send + Sync,
{
    fn check(&self, xaddr: &str, source: SocketAddr) -> Result<(), String> {
        self(xaddr, source)
    }
}

/// A description whose transport addresses may be contacted.
pub(super) struct Permitted {
    pub(super) target: Target,
    /// The first refused address, with the reason.
    pub(super) refused: Option<(Str, String)>,
}

/// Checks the description's size and removes refused transport addresses. Addresses on the sender's own host
/// come first.
pub(super) fn permit(
    policy: &dyn XaddrPolicy,
    bytes_max: usize,
    mut target: Target,
    from: SocketAddr,
) -> Result<Permitted, Dropped> {
    let bytes = approximate_size(&target);
    if bytes > bytes_max {
        let detail = format!("description has {bytes} bytes (limit {bytes_max})");
        return Err(Dropped::new(DropReason::TooLarge, detail));
    }
    let mut refused = None;
    for xaddr in std::mem::take(&mut target.xaddrs) {
        match check(policy, &xaddr, from) {
            Ok(()) => target.xaddrs.push(xaddr),
            Err(reason) => refused = refused.or(Some((xaddr, reason))),
        }
    }
    let host = authority_start(from.ip());
    target.xaddrs.sort_by_key(|xaddr| !is_on_host(xaddr, &host));
    match refused {
        Some((xaddr, reason)) if target.xaddrs.is_empty() => {
            let detail = format!("{xaddr:.256}: {reason}");
            Err(Dropped::new(DropReason::AddressRefused, detail))
        }
        refused => Ok(Permitted { target, refused }),
    }
}

fn check(policy: &dyn XaddrPolicy, xaddr: &str, from: SocketAddr) -> Result<(), String> {
    let scheme = xaddr.split(':').next().unwrap_or_default();
    let scheme_is = |known: &&str| scheme.eq_ignore_ascii_case(known);
    match ["http", "https", "udp"]
        .iter()
        .find(|known| scheme_is(known))
    {
        // Target services other than devices may use UDP; the policy checks the host alike.
        Some(&"udp") => policy.check(&format!("http{}", &xaddr[3..]), from),
        Some(_) => policy.check(xaddr, from),
        None => Err("scheme is not http, https or udp".to_owned()),
    }
}

/// The start of a URI's authority for an IP address.
fn authority_start(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(v4) => format!("://{v4}"),
        IpAddr::V6(v6) => format!("://[{v6}"),
    }
}

/// Whether a transport address is on this host.
fn is_on_host(xaddr: &str, host: &str) -> bool {
    xaddr
        .split_once(host)
        .is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with([':', '/', ']', '%']))
}
