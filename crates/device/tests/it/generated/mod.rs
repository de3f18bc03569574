//! Goal: a device is called and heard by the types that its description is written as.
//! Method: a thermometer over the loopback; `types.rs` is what `chappe describe --rust` prints for it.

use std::sync::{Arc, Mutex};

use crate::common::*;
use chappe_device::client::{CallError, Document, HostedService, Received};
use chappe_device::{Device, Event, Fault, Key, Message, RunningDevice, Service};
use chappe_soap::rust::Modules;

#[rustfmt::skip]
#[expect(unreachable_pub, reason = "the source is for libraries, too")]
mod types;

use types::thermometer;

/// The messages as the device's author writes them.
#[derive(Message)]
struct Period {
    /// The time between two events.
    #[unit("s")]
    seconds: f64,
    mode: Option<Speed>,
}

#[derive(Message, Clone, Copy)]
enum Speed {
    Slow,
    #[name("very fast")]
    Fast,
}

#[derive(Message)]
struct Range {
    low: f64,
    high: f64,
}

#[derive(Fault)]
enum Refused {
    OutOfRange(Range),
}

#[derive(Message)]
struct Celsius {
    #[attribute]
    sensor: String,
    #[unit("Cel")]
    celsius: f64,
}

/// A thermometer, with the last period that was set.
async fn start(
    key: Key,
    port: u16,
) -> Result<(RunningDevice, Event<Celsius>), chappe_device::Error> {
    let last = Arc::new(Mutex::new(None));
    let mut service = Service::new(NAMESPACE, "Thermometer");
    let temperature = service.event::<Celsius>("Temperature");
    service.operation("SetPeriod", async move |asked: Period| {
        if !(0.1..=60.0).contains(&asked.seconds) {
            return Err(Refused::OutOfRange(Range {
                low: 0.1,
                high: 60.0,
            }));
        }
        let (seconds, mode) = (asked.seconds, asked.mode);
        let before = last.lock().unwrap().replace(seconds);
        Ok(Period {
            seconds: before.unwrap_or(1.0),
            mode,
        })
    });
    let options = chappe_device::HostOptions {
        port,
        ..host_options("127.0.2.74")
    };
    let device = Device::new(key)
        .model("Example", "T1")
        .name("thermometer")
        .service(service);
    let running = device.options(options).start().await?;
    Ok((running, temperature))
}

fn key() -> Key {
    chappe_identity::Key::from_seed([7; 32]).into()
}

/// Asserts that this source is what `chappe describe --rust` writes.
fn is_written(source: &str, name: &str, service: &HostedService, about: &str) {
    let mut modules = Modules::new("chappe_device");
    modules.add(name, &service.wsdl, &service.schemas).unwrap();
    let about = format!("Types for the messages of {about}, written by `chappe describe --rust`.");
    let written = modules.finish(&about);
    if written != source {
        // The new text, to look at or to copy.
        let path = std::env::temp_dir().join(format!("{name}.rs"));
        std::fs::write(&path, &written).unwrap();
        panic!("{name} is not what is written now, see {}", path.display());
    }
}

#[test]
fn the_types_of_the_example_are_those_of_its_wsdl() {
    let text = include_str!("../../../../../check/dpws/gsoap/pump.wsdl").to_owned();
    let document = Document {
        location: "pump.wsdl".into(),
        text,
    };
    let service = HostedService::from_documents("http://127.0.0.1/", vec![document]).unwrap();
    is_written(
        include_str!("../../../examples/pump_client/types.rs"),
        "Pump",
        &service,
        "pump.wsdl",
    );
}

#[tokio::test]
async fn a_device_is_used_by_the_types_that_are_written_for_it() {
    let (running, temperature) = start(key(), 0).await.unwrap();
    let client = client(client_options());
    let description = described(&client, running.host().endpoint()).await;
    let service = &description.services[0];

    let types = include_str!("types.rs");
    is_written(types, "Thermometer", service, "thermometer");

    let asked = thermometer::Period {
        seconds: 2.0,
        mode: Some(thermometer::Speed::VeryFast),
    };
    let invoke = |asked: thermometer::Period| {
        let client = &client;
        async move {
            let operation = thermometer::SET_PERIOD;
            client
                .invoke::<thermometer::Period, thermometer::Period, thermometer::SetPeriodFault>(
                    service, operation, &asked,
                )
                .await
        }
    };
    let answered = invoke(asked).await.unwrap();
    assert_eq!(
        (answered.seconds, answered.mode),
        (1.0, Some(thermometer::Speed::VeryFast))
    );
    let refused = invoke(thermometer::Period {
        seconds: 61.0,
        mode: None,
    })
    .await
    .unwrap_err();
    let CallError::Refused(thermometer::SetPeriodFault::OutOfRange(limits)) = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        limits,
        thermometer::Range {
            low: 0.1,
            high: 60.0
        }
    );

    let mut events = client
        .events::<thermometer::Celsius>(service, thermometer::TEMPERATURE)
        .await
        .unwrap();
    let granted = in_time("subscribed", events.next()).await.unwrap();
    assert!(
        matches!(granted, Received::Subscribed { .. }),
        "{granted:?}"
    );
    let sent = || Celsius {
        sensor: "a".into(),
        celsius: 21.5,
    };
    temperature.send(sent()).await.unwrap();
    let event = in_time("event", events.next()).await.unwrap();
    let Received::Event(event, _) = event else {
        panic!("{event:?}")
    };
    assert_eq!(
        event,
        thermometer::Celsius {
            sensor: "a".into(),
            celsius: 21.5
        }
    );

    // The same service without a device, from its documents alone.
    let documents: Vec<Document> = service.documents.clone();
    let alone = HostedService::from_documents(&service.contact.to_string(), documents).unwrap();
    assert_eq!(alone.missing_documents(), Vec::<String>::new());
    let asked = thermometer::Period {
        seconds: 3.0,
        mode: None,
    };
    let answered = client.invoke::<_, thermometer::Period, thermometer::SetPeriodFault>(
        &alone,
        thermometer::SET_PERIOD,
        &asked,
    );
    assert_eq!(answered.await.unwrap().seconds, 2.0);

    // A restarted device: what it sent in between is missing, and that is told.
    let port = running.host().addresses()[0].port();
    drop((running, temperature));
    let restart = async {
        loop {
            match start(key(), port).await {
                Ok(restarted) => return restarted,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let (running, temperature) = in_time("restarted", restart).await;
    let again = async {
        loop {
            match events.next().await.unwrap() {
                Received::SubscribedAgain { .. } => return,
                other => assert!(!matches!(other, Received::Event(..)), "{other:?}"),
            }
        }
    };
    in_time("subscribed again", again).await;
    temperature.send(sent()).await.unwrap();
    let event = in_time("event", events.next()).await.unwrap();
    assert!(matches!(event, Received::Event(..)), "{event:?}");
    client.close().await;
    running.stop().await;
}
