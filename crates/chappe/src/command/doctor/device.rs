//! Check of one device at its transport address: whether it answers, and whether the certificates of both ends are
//! accepted.

use chappe_device::client::ClientOptions;
use chappe_device::{DeviceClient, Selection};
use chappe_transport::Drops;

use super::{Check, State};
use crate::cli::DeviceTls;
use crate::command::session::{at, failure, security};
use crate::output::Failure;

/// Asks the device for its description.
pub(crate) async fn device(url: &str, tls: &DeviceTls) -> Result<Check, Failure> {
    let (tls, plain) = security(tls)?;
    let options = ClientOptions {
        selection: Selection::Nowhere,
        probe_period: None,
        liveness_period: None,
        tls: Some(tls),
        plain,
        ..ClientOptions::default()
    };
    let client = DeviceClient::start(options, Drops::default()).map_err(failure)?;
    let described = client.describe(&at(url)?).await;
    client.close().await;
    let name = format!("device {url}");
    Ok(match described {
        Ok(description) => {
            let how = match description.contact.scheme {
                chappe_identity::Scheme::Https => "both ends accept the certificates",
                chappe_identity::Scheme::Http => "without TLS",
            };
            Check::new(
                name,
                State::Ok,
                format!("{} answers, {how}", description.name()),
            )
        }
        Err(error) => {
            let check = Check::new(name, State::Failed, error.to_string());
            match error.hint() {
                Some(hint) => check.hint(hint),
                None => check,
            }
        }
    })
}
