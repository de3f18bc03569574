//! A thermometer as a small device: its event is a temperature, its operation sets the period of the
//! events. Run: `thermometer [ADDRESS]`, on the loopback with an address such as 127.0.1.9. Build it
//! small: `cargo build --profile small --no-default-features -p chappe-device --example thermometer`.

use std::time::Duration;

use chappe_device::{Device, Fault, HostOptions, Key, Message, Selection, Service};
use chappe_xml::Name;

const NAMESPACE: &str = "https://chappe.example/thermometer";

#[derive(Message, Clone)]
struct Period {
    #[unit("s")]
    seconds: f64,
}
#[derive(Message)]
struct Temperature {
    #[unit("Cel")]
    celsius: f64,
}
#[derive(Fault)]
enum Refused {
    OutOfRange,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args()
        .nth(1)
        .map(|address| address.parse())
        .transpose()?;
    let selection = address.map_or(Selection::Network, |address| {
        Selection::Addresses(vec![address])
    });
    let options = HostOptions {
        selection,
        app_max_delay: Duration::from_millis(50),
        ..HostOptions::default()
    };
    let (period, periods) = tokio::sync::watch::channel(Period { seconds: 1.0 });

    let mut service = Service::new(NAMESPACE, "Thermometer");
    let temperature = service.event::<Temperature>("Temperature");
    service.operation("SetPeriod", async move |asked: Period| {
        match asked.seconds {
            0.1..=60.0 => Ok(period.send_replace(asked.clone())).map(|_| asked),
            _ => Err(Refused::OutOfRange),
        }
    });
    let key = Key::load(std::env::temp_dir().join("thermometer.key"))?;
    let device = Device::new(key)
        .model("Chappe", "small thermometer")
        .name("Small thermometer")
        .types([Name::new(NAMESPACE, "Thermometer")])
        .service(service)
        .options(options)
        .start()
        .await?;
    println!(
        "{} is ready at {:?}",
        device.host().endpoint(),
        device.host().addresses()
    );
    for tenths in (0..30).cycle() {
        let seconds = periods.borrow().seconds;
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        temperature
            .send(Temperature {
                celsius: 20.0 + f64::from(tenths) / 10.0,
            })
            .await?;
    }
    Ok(())
}
