//! Goal: a device of Rust types is described, called and heard like any other; what its types cannot take
//! is a fault that names the field; each change of its description raises MetadataVersion, also over
//! restarts, and says Hello.
//!
//! Method: on the bench, without sockets; and over the loopback, the device on its own address.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use chappe_device::client::{CallError, Delivery, Received, Seen};
use chappe_device::{Device, Event, Fault, Key, Message, RunningDevice, Service};
use chappe_dpws::eventing::{EndReason, EndStatus};
use chappe_soap::message::Faults;
use chappe_xml::Element;

const SET_PERIOD: &str = "https://example.org/thermometer/Thermometer/SetPeriodRequest";
const TEMPERATURE: &str = "https://example.org/thermometer/Thermometer/Temperature";

#[derive(Message, Debug, Clone, PartialEq)]
struct Period {
    #[unit("s")]
    seconds: f64,
}

#[derive(Message, Debug, PartialEq)]
struct Temperature {
    #[unit("Cel")]
    celsius: f64,
}

#[derive(Fault, Debug, PartialEq)]
enum Refused {
    OutOfRange,
    /// the limits are inside
    OutOfLimits(Period),
    /// the sensor is warming up
    Warming {
        #[unit("Cel")]
        celsius: f64,
        ready_in: Duration,
    },
}

fn warming() -> Refused {
    Refused::Warming {
        celsius: 12.5,
        ready_in: Duration::from_secs(90),
    }
}

/// Averages over a period.
#[derive(Clone, Default)]
struct Mean(Arc<Mutex<Option<Period>>>);

impl Mean {
    fn over(&self, period: Period) -> Period {
        *self.0.lock().unwrap() = Some(period.clone());
        period
    }
}

fn thermometer() -> (Service, Event<Temperature>, Mean) {
    let mean = Mean::default();
    let shared = mean.clone();
    let mut service = Service::new(NAMESPACE, "Thermometer");
    let temperature = service.event::<Temperature>("Temperature");
    service.operation("SetPeriod", async move |asked: Period| {
        match asked.seconds {
            0.1..=60.0 => Ok(shared.over(asked)),
            1_000.0.. => Err(warming()),
            60.0.. => Err(Refused::OutOfLimits(Period { seconds: 60.0 })),
            _ => Err(Refused::OutOfRange),
        }
    });
    (service, temperature, mean)
}

fn device(key: Key, address: &str, service: Service) -> Device {
    Device::new(key)
        .model("Example", "T1")
        .name("window side")
        .scopes(["https://example.org/ward/3"])
        .service(service)
        .options(host_options(address))
}

fn key() -> Key {
    let seed = chappe_transport::seed().unwrap();
    chappe_identity::Key::from_seed(seed).into()
}

#[tokio::test]
async fn on_the_bench_calls_events_and_leases_need_no_network() {
    let (service, temperature, mean) = thermometer();
    let early = temperature.send(Temperature { celsius: 0.0 }).await;
    assert!(early.unwrap_err().to_string().contains("before its device"));
    let mut bench = device(key(), "127.0.0.1", service).bench().unwrap();

    let asked = Period { seconds: 2.0 };
    let answered: Result<Period, Fault> = bench.call("Thermometer", "SetPeriod", &asked).await;
    assert_eq!(answered.unwrap(), asked);
    assert_eq!(*mean.0.lock().unwrap(), Some(asked));
    let namespace = NAMESPACE.into();
    for (seconds, refused) in [
        (0.0, Refused::OutOfRange),
        (61.0, Refused::OutOfLimits(Period { seconds: 60.0 })),
        (1_000.0, warming()),
    ] {
        let asked = Period { seconds };
        let answered: Result<Period, Fault> = bench.call("Thermometer", "SetPeriod", &asked).await;
        let fault = answered.unwrap_err();
        assert_eq!(Refused::from_fault(&fault, &namespace), Some(refused));
    }
    let wrong = Element::new(name("SetPeriod")).with_child(Element::new(name("second")));
    let refused = bench.call_element("Thermometer", "SetPeriod", wrong).await;
    let fault = refused.unwrap_err();
    assert_eq!(fault.subcode, Some(name("InvalidMessage")));
    assert!(fault.reason.contains("}second"), "{fault}");

    let lease = Duration::from_secs(600);
    bench.subscribe("Thermometer", lease).unwrap();
    for celsius in [1.0, 2.0] {
        temperature.send(Temperature { celsius }).await.unwrap();
    }
    let received: Vec<Temperature> = bench.received("Temperature").unwrap();
    assert_eq!(received, [1.0, 2.0].map(|celsius| Temperature { celsius }));
    bench.advance(lease);
    temperature
        .send(Temperature { celsius: 3.0 })
        .await
        .unwrap();
    assert_eq!(bench.received::<Temperature>("Temperature").unwrap(), []);
}

#[tokio::test]
async fn the_listing_over_the_network() {
    let (service, temperature, _) = thermometer();
    let running = device(key(), "127.0.2.70", service).start().await.unwrap();
    let endpoint = running.host().endpoint().to_owned();
    let client = client(client_options());
    let description = described(&client, &endpoint).await;
    assert_eq!(description.name(), "window side");
    assert!(description.notes.is_empty(), "{:?}", description.notes);
    let service = description.service_of(SET_PERIOD).unwrap();
    assert_eq!(service.events(), [TEMPERATURE]);
    let flat = service.schemas.flat(&name("Temperature")).unwrap();
    assert_eq!(flat.fields[0].unit.as_deref(), Some("Cel"));

    let asked = Period { seconds: 2.0 };
    let answered = client.invoke::<_, Period, Refused>(service, "SetPeriod", &asked);
    assert_eq!(answered.await.unwrap(), asked);
    for (seconds, expected) in [
        (0.0, Refused::OutOfRange),
        (61.0, Refused::OutOfLimits(Period { seconds: 60.0 })),
        (1_000.0, warming()),
    ] {
        let asked = Period { seconds };
        let refused = client.invoke::<_, Period, Refused>(service, "SetPeriod", &asked);
        let CallError::Refused(refused) = refused.await.unwrap_err() else {
            panic!("the fault of {seconds} s has a type")
        };
        assert_eq!(refused, expected);
    }
    let wrong =
        client.invoke::<_, Period, Refused>(service, "SetPeriod", &Temperature { celsius: 0.0 });
    let CallError::Failed(error) = wrong.await.unwrap_err() else {
        panic!("the device knows no such fault")
    };
    assert!(error.to_string().contains("celsius"), "{error}");
    let unknown = client
        .invoke::<_, Period, Refused>(service, "Period", &asked)
        .await;
    assert!(unknown.unwrap_err().to_string().contains("SetPeriod"));

    let mut events = client
        .events::<Temperature>(service, "Temperature")
        .await
        .unwrap();
    let granted = in_time("subscribed", events.next()).await.unwrap();
    assert!(
        matches!(granted, Received::Subscribed { .. }),
        "{granted:?}"
    );
    temperature
        .send(Temperature { celsius: 21.5 })
        .await
        .unwrap();
    let event = in_time("event", events.next()).await.unwrap();
    let Received::Event(read, _) = event else {
        panic!("{event:?}")
    };
    assert_eq!(read.celsius, 21.5);
    client.close().await;
    running.stop().await;
    let late = temperature.send(Temperature { celsius: 0.0 }).await;
    assert!(matches!(late, Err(chappe_device::Error::Closed)));
}

/// Waits until the device is seen with this version.
async fn seen_with(client: &chappe_device::DeviceClient, endpoint: &str, version: u32) {
    let mut discovery = client.discover().await.unwrap();
    let find = async {
        loop {
            match discovery.next().await.expect("the client runs") {
                Seen::Found(found) | Seen::Changed(found)
                    if found.endpoint == endpoint && found.metadata_version == version =>
                {
                    return;
                }
                _ => {}
            }
        }
    };
    in_time("seen with its version", find).await;
}

#[tokio::test]
async fn changes_raise_the_version_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device.key");
    let start = async || -> RunningDevice {
        let (service, _, _) = thermometer();
        let key = Key::load(&path).unwrap();
        device(key, "127.0.2.71", service).start().await.unwrap()
    };
    let running = start().await;
    let endpoint = running.host().endpoint().to_owned();
    let client = client(client_options());
    let version = |running: &RunningDevice| running.host().announcement().metadata_version;
    assert_eq!(version(&running), 1);
    let description = described(&client, &endpoint).await;
    let service = description.service_of(TEMPERATURE).unwrap();
    let mut subscription = subscribed(&client, service).await;

    running.set_name("door side").await.unwrap();
    assert_eq!(version(&running), 2);
    seen_with(&client, &endpoint, 2).await;
    assert_eq!(described(&client, &endpoint).await.name(), "door side");
    // The same again is no change.
    running.set_name("door side").await.unwrap();
    assert_eq!(version(&running), 2);
    running
        .set_scopes(["https://example.org/ward/4"])
        .await
        .unwrap();
    running.set_types([name("Sensor")]).await.unwrap();
    assert_eq!(version(&running), 4);
    let description = described(&client, &endpoint).await;
    assert!(description.types.contains(&name("Sensor")));

    let (again, _, _) = thermometer();
    let twice = running.add_service(again).await.unwrap_err();
    assert!(twice.to_string().contains("rename"), "{twice}");
    let mut second = Service::new("https://example.org/clock", "Clock");
    let tick = second.event::<Temperature>("Tick");
    running.add_service(second).await.unwrap();
    tick.send(Temperature { celsius: 0.0 }).await.unwrap();
    assert_eq!(described(&client, &endpoint).await.services.len(), 2);
    assert!(running.remove_service("Thermometer").await.unwrap());
    assert!(!running.remove_service("Thermometer").await.unwrap());
    assert_eq!(described(&client, &endpoint).await.services.len(), 1);
    let ended = in_time("end", subscription.next()).await.unwrap();
    let Delivery::Ended(EndReason::Source { status, .. }) = &ended else {
        panic!("{ended:?}")
    };
    assert_eq!(*status, EndStatus::SourceCancelling);
    assert_eq!(version(&running), 6);
    running.stop().await;

    // It starts with the first description, which differs from the last one.
    let running = start().await;
    assert_eq!(version(&running), 7);
    running.stop().await;
    let running = start().await;
    assert_eq!(version(&running), 7);
    running.stop().await;
    client.close().await;
}

#[tokio::test]
async fn misuse_is_told_with_its_remedy() {
    let refused = |device: Device| device.bench().unwrap_err().to_string();
    let service = |iri: &str, name: &str| Service::new(iri, name);
    let complete = || Device::new(key()).model("Example", "T1").name("t");
    assert!(refused(Device::new(key()).name("t")).contains(".model("));
    assert!(refused(Device::new(key()).model("a", "b")).contains(".name("));
    let twice = complete()
        .service(service("urn:a", "A"))
        .service(service("urn:b", "A"));
    assert!(refused(twice).contains("rename"));
    assert!(refused(complete().service(service("a", "A"))).contains("absolute IRI"));
    assert!(refused(complete().service(service("urn:a", "A b"))).contains("letters"));
    let mut repeated = service("urn:a", "A");
    let _: Event<f64> = repeated.event("E");
    let _: Event<f64> = repeated.port_type("P").event("E");
    assert!(refused(complete().service(repeated)).contains("rename"));
    let mut conflict = service("urn:a", "A");
    let _: Event<f64> = conflict.event("OResponse");
    conflict.operation("O", async |(): ()| Ok::<_, Refused>(String::new()));
    let error = complete().service(conflict).bench().unwrap_err();
    assert!(error.to_string().contains("OResponse"), "{error}");
    assert!(error.hint().unwrap().contains("rename"));
}

#[derive(Message)]
struct Newer {
    seconds: f64,
    jitter: Period,
}

#[tokio::test]
async fn a_newer_devices_answer_is_understood() {
    let mut service = Service::new(NAMESPACE, "Thermometer");
    service.operation("SetPeriod", async |asked: Period| {
        let seconds = asked.seconds;
        Ok::<_, Refused>(Newer {
            seconds,
            jitter: asked,
        })
    });
    let running = device(key(), "127.0.2.72", service).start().await.unwrap();
    let client = client(client_options());
    let description = described(&client, running.host().endpoint()).await;
    let service = description.service_of(SET_PERIOD).unwrap();
    let asked = Period { seconds: 2.0 };
    let answered = client.invoke::<_, Period, Refused>(service, "SetPeriod", &asked);
    assert_eq!(answered.await.unwrap(), asked);
    client.close().await;
    running.stop().await;
}

#[tokio::test]
async fn an_operation_beyond_its_time_limit_is_cancelled() {
    struct Cancelled(tokio::sync::mpsc::Sender<()>);
    impl Drop for Cancelled {
        fn drop(&mut self) {
            let _ = self.0.try_send(());
        }
    }
    let (send, mut cancelled) = tokio::sync::mpsc::channel(4);
    let mut service = Service::new(NAMESPACE, "Thermometer");
    let answering = send.clone();
    service.operation("SetPeriod", async move |_: Period| {
        let _cancelled = Cancelled(answering.clone());
        std::future::pending::<Result<Period, Refused>>().await
    });
    service.one_way("Reset", async move |_: Period| {
        let _cancelled = Cancelled(send.clone());
        std::future::pending::<()>().await;
    });
    let mut options = host_options("127.0.2.73");
    options.server.answer_deadline = Duration::from_secs(2);
    let device = device(key(), "127.0.2.73", service).options(options);
    let running = device.start().await.unwrap();
    let client = client(client_options());
    let description = described(&client, running.host().endpoint()).await;
    let service = description.service_of(SET_PERIOD).unwrap();
    let asked = Period { seconds: 2.0 };
    let late = client.invoke::<_, Period, Refused>(service, "SetPeriod", &asked);
    late.await.unwrap_err();
    in_time("cancelled", cancelled.recv()).await.unwrap();
    client.send(service, "Reset", &asked).await.unwrap();
    in_time("cancelled", cancelled.recv()).await.unwrap();
    client.close().await;
    running.stop().await;
}
