//! A thermometer, also as a small device: `thermometer [ADDRESS]`; the lab builds it by `--profile small`.

use chappe_device::{Device, Fault, Key, Message, Service};
use std::{env, net::IpAddr, time::Duration};

// A line for each type: the whole device stays on one page.
#[rustfmt::skip] #[derive(Message)]
struct Period { #[unit("s")] seconds: f64 }
#[rustfmt::skip] #[derive(Message)]
struct Temperature { #[unit("Cel")] celsius: f64 }
#[rustfmt::skip] #[derive(Fault)]
enum Refused { OutOfRange }

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (period, periods) = tokio::sync::watch::channel(Period { seconds: 1.0 });
    let mut service = Service::new("https://chappe.example/thermometer", "Thermometer");
    let temperature = service.event::<Temperature>("Temperature");
    service.operation("SetPeriod", async move |asked: Period| {
        let is_valid = (0.1..=60.0).contains(&asked.seconds);
        let before = is_valid.then(|| period.send_replace(asked));
        before.ok_or(Refused::OutOfRange)
    });
    let address = env::args().nth(1).map(|it| it.parse::<IpAddr>());
    let device = Device::new(Key::load(env::temp_dir().join("thermometer.key"))?)
        .model("Chappe", "small thermometer")
        .name("Small thermometer")
        .addresses(address.transpose()?)
        .service(service);
    let device = device.start().await?;
    println!("{} is ready", device.host().endpoint());
    for tenths in (0..30).cycle() {
        let celsius = 20.0 + f64::from(tenths) / 10.0;
        temperature.send(Temperature { celsius }).await?;
        let seconds = periods.borrow().seconds;
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }
    Ok(())
}
