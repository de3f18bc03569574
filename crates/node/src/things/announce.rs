//! The directory of things in DNS-SD (WoT Discovery, section 6.3): where clients that know nothing but the network find it.

use std::net::IpAddr;

use chappe_device::Selection;
use chappe_transport::mdns::{Responder, Service, run};

use crate::shared::{App, Shared};
use crate::tasks::shutdown;

/// Longest part of the node's name in the name of its instance, in bytes; reason: a label has 63, and a part of the key
/// follows.
const NAME_BYTES_MAX: usize = 50;
/// Digits of the key there.
const KEY_DIGITS: usize = 8;

/// Announces the directory until the node shuts down.
pub(crate) async fn announce(app: App) {
    let Ok(seed) = chappe_transport::seed_number() else {
        return;
    };
    let responder = Responder::new(service(&app), seed);
    let mut drain = app.drain.clone();
    let end = shutdown(&mut drain);
    let drops = app.observability.drops.clone();
    run(responder, || addresses(&app), end, drops).await;
}

fn service(app: &Shared) -> Service {
    let identity = &app.identity;
    let mut name = identity.name.clone();
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    let scheme = match identity.tls {
        Some(_) => "https",
        None => "http",
    };
    Service {
        instance: format!("{name} {}", &identity.public_key[..KEY_DIGITS]),
        kind: "_wot".to_owned(),
        subtype: Some("_directory".to_owned()),
        host: identity.local_host(),
        port: identity.address.port(),
        texts: vec![
            "td=/.well-known/wot".to_owned(),
            "type=Directory".to_owned(),
            format!("scheme={scheme}"),
        ],
    }
}

/// The interfaces of discovery, each with those of its addresses at which the node listens.
fn addresses(app: &Shared) -> Vec<(u32, Vec<IpAddr>)> {
    let discovery = &app.config.discovery;
    let selection = match discovery.interfaces.as_slice() {
        [] => Selection::All,
        names => Selection::Named(names.to_vec()),
    };
    let listen = app.identity.address.ip();
    // Those that are down may come up.
    let interfaces = selection.resolve().unwrap_or_default();
    let listening = interfaces.into_iter().map(|interface| {
        let mut addresses = interface.addresses;
        addresses.retain(|address| match listen.is_unspecified() {
            // That of IPv6 takes IPv4, too.
            true => listen.is_ipv6() || address.is_ipv4(),
            false => *address == listen,
        });
        (interface.index, addresses)
    });
    let found = listening.filter(|(_, addresses)| !addresses.is_empty());
    found.collect()
}
