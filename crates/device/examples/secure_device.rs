//! A thermometer with TLS: its certificate is made from its key, and it serves and informs only the clients whose
//! fingerprints are named.
//!
//! Run: `secure_device [ADDRESS [FINGERPRINT...]]`. It prints its own fingerprint, by which clients trust it:
//! `chappe watch 'Secure thermometer' --device-fingerprint … --key client.key`. Without fingerprints anybody may ask, and nobody
//! gets events.

use std::env;
use std::net::IpAddr;
use std::time::Duration;

use chappe_device::tls::Fingerprint;
use chappe_device::{Device, Key, Message, Service};

/// A reading of the thermometer.
#[derive(Message)]
struct Temperature {
    #[unit("Cel")]
    celsius: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = env::args().nth(1).map(|it| it.parse::<IpAddr>());
    let clients: Vec<Fingerprint> = env::args()
        .skip(2)
        .map(|it| it.parse())
        .collect::<Result<_, _>>()?;
    let mut service = Service::new("https://chappe.example/thermometer", "Thermometer");
    let temperature = service.event::<Temperature>("Temperature");

    let key = Key::load(env::temp_dir().join("secure-thermometer.key"))?;
    let tls = key.tls(&[]).trust(clients);
    if let Some(fingerprint) = tls.fingerprint() {
        println!("certificate {fingerprint}");
    }
    let device = Device::new(key)
        .model("Chappe", "secure thermometer")
        .name("Secure thermometer")
        .addresses(address.transpose()?)
        .service(service)
        .tls(&tls)
        .start()
        .await?;
    println!("{} is ready", device.host().endpoint());
    for tenths in (0..30).cycle() {
        let celsius = 20.0 + f64::from(tenths) / 10.0;
        temperature.send(Temperature { celsius }).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
