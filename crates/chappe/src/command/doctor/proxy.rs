//! Checks of discovery proxies.

use std::time::Instant;

use chappe_device::client::{ClientOptions, Search};
use chappe_device::{DeviceClient, Selection};
use chappe_dpws::Dialect;
use chappe_identity::Contact;
use chappe_transport::Drops;

use super::{Check, State};
use crate::command::session::failure;
use crate::output::Failure;

/// Asks a proxy for itself.
pub(super) async fn proxy(contact: &Contact) -> Result<Check, Failure> {
    let name = format!("discovery proxy {contact}");
    let options = ClientOptions {
        selection: Selection::Nowhere,
        probe_period: None,
        liveness_period: None,
        ..ClientOptions::default()
    };
    let client = DeviceClient::start(options, Drops::default()).map_err(failure)?;
    let search = Search {
        types: vec![Dialect::V2009.proxy_type()],
        ..Search::default()
    };
    let began = Instant::now();
    let asked = client.search_by_http(contact, &search).await;
    let took_ms = began.elapsed().as_millis();
    let check = match asked {
        Ok(found) if !found.is_empty() => {
            Check::new(name, State::Ok, format!("answers, after {took_ms} ms"))
        }
        Ok(_) => Check::new(
            name,
            State::Warning,
            "answers, but says of no proxy that it is one",
        )
        .hint("use the address that the proxy announces: chappe trace"),
        Err(error) => {
            let hint = error.hint().unwrap_or_else(|| {
                "set discovery.proxy.listen on the node there, and let firewalls pass its port"
                    .to_owned()
            });
            Check::new(name, State::Failed, error.to_string()).hint(hint)
        }
    };
    client.close().await;
    Ok(check)
}
