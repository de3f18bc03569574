//! A rack with 20 channels, each a service of its own, and two port types in one service. Channel 20 is
//! unplugged and plugged in again while clients are connected: MetadataVersion rises, and Hello is said.
//!
//! Run: `twenty_services [ADDRESS]`, on the loopback with an address such as 127.0.1.11.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use chappe_device::{Device, Event, Key, Message, Service};

/// The namespace of all channels, which are of one type and differ by name.
const NAMESPACE: &str = "https://chappe.example/rack";
const CHANNELS: u32 = 20;
/// The time between two measurements of a channel.
const PERIOD: Duration = Duration::from_secs(1);
/// Measurements between two changes of the last channel.
const CHANGE_AFTER: usize = 10;

/// A measurement of one channel.
#[derive(Message)]
struct Sample {
    at: SystemTime,
    #[unit("V")]
    volts: f64,
}

#[derive(Message)]
struct Alarm {
    text: String,
}

#[derive(Message)]
struct Calibration {
    #[unit("V")]
    offset: Option<f64>,
    /// When it was done last.
    age: Duration,
}

/// A channel with its event.
fn channel(number: u32) -> (Service, Event<Sample>) {
    let mut service = Service::new(
        &format!("{NAMESPACE}/{number}"),
        &format!("Channel{number}"),
    );
    let sample = service.event("Sample");
    service.operation("Calibrate", async move |asked: Calibration| {
        Ok::<_, Infallible>(asked)
    });
    let mut alarms = service.port_type("Alarms");
    let _: Event<Alarm> = alarms.event("Raised");
    alarms.one_way("Confirm", async move |_: Alarm| {});
    (service, sample)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses: Vec<IpAddr> = std::env::args()
        .skip(1)
        .map(|it| it.parse())
        .collect::<Result<_, _>>()?;
    let key = Key::load(std::env::temp_dir().join("rack.key"))?;
    let mut device = Device::new(key)
        .model("Chappe", "rack")
        .name("rack")
        .addresses(addresses);
    let mut samples = Vec::new();
    for number in 1..=CHANNELS {
        let (service, sample) = channel(number);
        device = device.service(service);
        samples.push(sample);
    }
    let device = device.start().await?;
    println!(
        "{} is ready at {:?}",
        device.host().endpoint(),
        device.host().addresses()
    );
    for round in 1_usize.. {
        for sample in &samples {
            let at = SystemTime::now();
            sample.send(Sample { at, volts: 1.5 }).await?;
        }
        if round.is_multiple_of(CHANGE_AFTER) && !device.remove_service("Channel20").await? {
            let (service, sample) = channel(CHANNELS);
            samples[CHANNELS as usize - 1] = sample;
            device.add_service(service).await?;
        }
        tokio::time::sleep(PERIOD).await;
    }
    Ok(())
}
