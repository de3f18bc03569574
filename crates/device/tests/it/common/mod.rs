//! A small device and a client over the loopback, for the tests of this folder.
#![allow(dead_code, unreachable_pub)] // Not every test uses all of it.

use std::time::Duration;

use chappe_device::client::{Delivery, Description, Found, HostedService, Seen, Subscription};
use chappe_device::host::Builder;
use chappe_device::{ClientOptions, DeviceClient, DeviceHost, HostOptions, Selection};
use chappe_dpws::hosting;
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_soap::schema::{FlatField, FlatType, XsdType, to_schema};
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_transport::Drops;
use chappe_xml::{Element, Name};

/// The time limit of every step, on the slowest machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);
/// The namespace of the small device.
pub(crate) const NAMESPACE: &str = "https://example.org/thermometer";
/// The action of its event.
pub(crate) const REPORT: &str = "https://example.org/thermometer/Thermometer/Report";
/// The action of its operation.
pub(crate) const LIMIT: &str = "https://example.org/thermometer/Thermometer/LimitRequest";

pub(crate) fn name(local: &'static str) -> Name {
    Name::new(NAMESPACE, local)
}

/// An endpoint that no other test uses.
pub(crate) fn endpoint() -> String {
    let seed = chappe_transport::seed().unwrap();
    chappe_device::host::endpoint_of(&chappe_identity::Key::from_seed(seed))
}

/// An event with this number.
pub(crate) fn report(number: i64) -> Element {
    let child = Element::new(name("celsius")).with_text(number.to_string());
    Element::new(name("Report")).with_child(child)
}

pub(crate) fn service() -> Service {
    let celsius = FlatField::new(name("celsius"), XsdType::Double).with_unit("Cel");
    let element = |local| FlatType {
        name: name(local),
        fields: vec![celsius.clone()],
        doc: None,
    };
    let types = [
        element("Report"),
        element("Limit"),
        element("LimitResponse"),
    ];
    Service {
        target_namespace: NAMESPACE.into(),
        name: "Thermometer".into(),
        operations: vec![
            ServiceOperation::event("Report", name("Report")),
            ServiceOperation::request("Limit", name("Limit"), name("LimitResponse")),
        ],
        schemas: vec![to_schema(NAMESPACE, &types)],
        address: None,
    }
}

pub(crate) fn host_options(address: &str) -> HostOptions {
    HostOptions {
        selection: Selection::Addresses(vec![address.parse().unwrap()]),
        app_max_delay: Duration::ZERO,
        ..HostOptions::default()
    }
}

/// A thermometer at this address; its operation echoes its argument.
pub(crate) fn thermometer(endpoint: &str, options: HostOptions) -> Builder {
    DeviceHost::builder(endpoint)
        .model(ThisModel {
            manufacturer: vec!["Example".into()],
            model_name: vec!["T1".into()],
            ..ThisModel::default()
        })
        .device(ThisDevice {
            friendly_name: vec!["window side".into()],
            ..ThisDevice::default()
        })
        .types([name("Sensor")])
        .scopes(["https://example.org/ward/3".to_owned()])
        .service(hosting::HostedService::new(
            "https://example.org/thermometer/1",
            "/thermometer",
            service().to_wsdl(),
        ))
        .operation(LIMIT, |invocation| async move {
            let given = invocation.element().unwrap_or_default();
            let answer = Element::new(name("LimitResponse"));
            Ok(Some(answer.with_children(given.elements().cloned())))
        })
        .options(options)
}

pub(crate) fn client_options() -> ClientOptions {
    ClientOptions {
        selection: Selection::Addresses(vec!["127.0.0.1".parse().unwrap()]),
        liveness_period: Some(Duration::from_millis(100)),
        ..ClientOptions::default()
    }
}

pub(crate) fn client(options: ClientOptions) -> DeviceClient {
    DeviceClient::start(options, Drops::default()).unwrap()
}

pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not in time"),
    }
}

/// Waits for a device to be found; ignores other devices on the loopback.
pub(crate) async fn found(client: &DeviceClient, endpoint: &str) -> Found {
    let mut discovery = client.discover().await.unwrap();
    let find = async {
        loop {
            match discovery.next().await.expect("the client runs") {
                Seen::Found(found) if found.endpoint == endpoint => return found,
                _ => {}
            }
        }
    };
    in_time("found", find).await
}

pub(crate) async fn described(client: &DeviceClient, endpoint: &str) -> Description {
    let found = found(client, endpoint).await;
    in_time("described", client.describe(&found)).await.unwrap()
}

/// Subscribes and waits until it is granted.
pub(crate) async fn subscribed(client: &DeviceClient, service: &HostedService) -> Subscription {
    let mut subscription = client.subscribe(service, &[]).await.unwrap();
    let delivery = in_time("subscribed", subscription.next()).await.unwrap();
    assert!(
        matches!(delivery, Delivery::Subscribed { .. }),
        "{delivery:?}"
    );
    subscription
}

/// The number of an event.
pub(crate) fn number(delivery: &Delivery) -> i64 {
    let Delivery::Notification(notification) = delivery else {
        panic!("{delivery:?} is not an event")
    };
    assert_eq!(notification.action, REPORT);
    let child = notification.body.child(&name("celsius")).unwrap();
    child.text().parse().unwrap()
}
