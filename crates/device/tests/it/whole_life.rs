//! Goal: a device is found, described, called and subscribed to; its events arrive complete and in order; it
//! says Bye, and both sides notice.
//!
//! Method: host and client in one process over the loopback, the device on its own address.

use crate::common::*;
use std::time::Duration;

use chappe_device::client::{Delivery, Search, Seen};
use chappe_device::host::endpoint_of;
use chappe_device::{ClientOptions, DeviceHost, HostOptions, Selection};
use chappe_dpws::Dialect;
use chappe_dpws::eventing::{EndReason, EndStatus, SourceConfig};
use chappe_identity::Contact;
use chappe_soap::Fault;
use chappe_transport::Drops;
use chappe_transport::http::Error as HttpError;
use chappe_xml::Element;

#[tokio::test]
async fn found_described_called() {
    let endpoint = endpoint();
    let options = host_options("127.0.2.1");
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let client = client(client_options());
    let description = described(&client, &endpoint).await;
    assert_eq!(description.name(), "window side");
    assert_eq!(description.model.model_name[0].text, "T1");
    assert!(description.found.is_dpws());
    assert!(description.types.contains(&name("Sensor")));
    assert_eq!(description.contact.address, host.addresses()[0]);
    assert!(description.notes.is_empty(), "{:?}", description.notes);
    let service = description.service_of(LIMIT).unwrap();
    assert_eq!(service.events(), [REPORT]);
    let flat = service.schemas.flat(&name("Report")).unwrap();
    assert_eq!(flat.fields[0].unit.as_deref(), Some("Cel"));

    let question =
        Element::new(name("Limit")).with_child(Element::new(name("celsius")).with_text("38.5"));
    let answer = client
        .call(service, LIMIT, question)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.name, name("LimitResponse"));
    assert_eq!(answer.child(&name("celsius")).unwrap().text(), "38.5");
    let unknown = client
        .call(service, "urn:none", Element::new(name("Limit")))
        .await;
    assert_eq!(unknown.unwrap_err().reason(), "fault");
    client.close().await;
    host.stop().await;
}

#[tokio::test]
async fn a_device_that_datagrams_do_not_reach_is_asked_by_http() {
    let endpoint = endpoint();
    let host = thermometer(&endpoint, host_options("127.0.2.31"))
        .start(Drops::default())
        .unwrap();
    for dialect in Dialect::ALL {
        // Without interfaces, it sends no datagrams.
        let client = client(ClientOptions {
            selection: Selection::Nowhere,
            dialects: vec![dialect],
            ..client_options()
        });
        let device = format!("http://{}/device", host.addresses()[0]);
        let contact = Contact::parse(&device, 0).unwrap();
        let search = |local| Search {
            types: vec![Dialect::V2009.device_type(), name(local)],
            scopes: vec!["https://example.org/ward".to_owned()],
            ..Search::default()
        };
        let sensors = search("Sensor");
        let asking = client.search_by_http(&contact, &sensors);
        let found = in_time("asked", asking).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].endpoint, endpoint);
        assert_eq!(found[0].dialect, dialect);
        assert_eq!(found[0].xaddrs, std::slice::from_ref(&device));
        assert_eq!(client.known(), found);
        let description = in_time("described", client.describe(&found[0]))
            .await
            .unwrap();
        assert_eq!(description.name(), "window side");
        let others = search("Other");
        let asking = client.search_by_http(&contact, &others);
        assert!(in_time("asked", asking).await.unwrap().is_empty());
        // The service is no device.
        let service = format!("http://{}/thermometer", host.addresses()[0]);
        let contact = Contact::parse(&service, 0).unwrap();
        let sensors = search("Sensor");
        let asking = client.search_by_http(&contact, &sensors);
        assert_eq!(
            in_time("asked", asking).await.unwrap_err().reason(),
            "fault"
        );
        client.close().await;
    }
    host.stop().await;
}

#[tokio::test]
async fn a_device_of_the_older_dialect_is_found_and_used() {
    let endpoint = endpoint();
    let options = HostOptions {
        dialects: vec![Dialect::V2005],
        ..host_options("127.0.2.32")
    };
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let client = client(client_options());
    let description = described(&client, &endpoint).await;
    assert_eq!(description.found.dialect, Dialect::V2005);
    let service = description.service_of(LIMIT).unwrap();
    let mut subscription = subscribed(&client, service).await;
    host.notify(REPORT, report(21)).await.unwrap();
    let event = in_time("event", subscription.next()).await.unwrap();
    assert_eq!(number(&event), 21);
    client.close().await;
    host.stop().await;
}

#[tokio::test]
async fn an_operations_fault_reaches_the_caller() {
    let endpoint = endpoint();
    let host = thermometer(&endpoint, host_options("127.0.2.2"))
        .operation(LIMIT, |_| async {
            Err(Fault::sender(name("TooHot"), "too hot"))
        })
        .start(Drops::default())
        .unwrap();
    let client = client(client_options());
    let description = described(&client, &endpoint).await;
    let service = description.service_of(LIMIT).unwrap();
    let answer = client
        .call(service, LIMIT, Element::new(name("Limit")))
        .await;
    let error = answer.unwrap_err();
    let chappe_device::Error::Http(HttpError::Fault { fault, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(fault.subcode, Some(name("TooHot")));
    host.stop().await;
}

#[tokio::test]
async fn a_thousand_events_in_order_and_a_bye() {
    let endpoint = endpoint();
    let mut options = host_options("127.0.2.3");
    options.eventing = SourceConfig {
        queue_max: 2_000,
        ..SourceConfig::default()
    };
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let mut client_options = client_options();
    // Small, so that the device has to wait for the reader.
    client_options.notifications_max = 16;
    let client = client(client_options);
    let description = described(&client, &endpoint).await;
    let mut discovery = client.listen();
    let service = description.service_of(REPORT).unwrap();
    let mut subscription = subscribed(&client, service).await;
    for event in 0..1_000 {
        host.notify(REPORT, report(event)).await.unwrap();
    }
    for event in 0..1_000 {
        let delivery = in_time("event", subscription.next()).await.unwrap();
        assert_eq!(number(&delivery), event);
    }
    let mut state = host.state();
    let all = state.wait_for(|state| state.delivered == 1_000);
    in_time("delivered", all).await.unwrap();

    let stopping = tokio::spawn(host.stop());
    let ended = in_time("end", subscription.next()).await.unwrap();
    let Delivery::Ended(EndReason::Source { status, .. }) = &ended else {
        panic!("{ended:?}")
    };
    assert_eq!(*status, EndStatus::SourceShuttingDown);
    let gone = async {
        loop {
            match discovery.next().await.unwrap() {
                Seen::Gone {
                    endpoint: gone,
                    reason,
                } if gone == endpoint => return reason,
                _ => {}
            }
        }
    };
    in_time("gone", gone).await;
    stopping.await.unwrap();
    assert!(
        client
            .known()
            .iter()
            .all(|found| found.endpoint != endpoint)
    );
}

#[tokio::test]
async fn a_device_that_ends_without_a_bye_is_missed() {
    let endpoint = endpoint();
    let options = host_options("127.0.2.4");
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let client = client(client_options());
    described(&client, &endpoint).await;
    let mut discovery = client.listen();
    drop(host);
    let gone = async {
        loop {
            match discovery.next().await.unwrap() {
                Seen::Gone {
                    endpoint: gone,
                    reason,
                } if gone == endpoint => return reason,
                _ => {}
            }
        }
    };
    assert_eq!(in_time("gone", gone).await, "it no longer listens");
}

/// A restart that is too quick to be noticed loses the subscription; the Hello restores it.
#[tokio::test]
async fn a_restarted_device_is_subscribed_again() {
    restarted("127.0.2.7", 1, false).await;
}

#[tokio::test]
async fn a_device_restarted_with_another_description_is_subscribed_again() {
    restarted("127.0.2.75", 2, false).await;
}

#[tokio::test]
async fn a_device_that_was_gone_is_subscribed_again() {
    restarted("127.0.2.76", 1, true).await;
}

/// Restarts a device with this version of its description, at once or after it was seen gone, and receives its
/// events again.
async fn restarted(address: &str, metadata_version: u32, seen_gone: bool) {
    let endpoint = endpoint();
    let options = host_options(address);
    let start = |options| thermometer(&endpoint, options).start(Drops::default());
    let host = start(options.clone()).unwrap();
    let mut client_options = client_options();
    client_options.liveness_period = seen_gone.then_some(Duration::from_millis(50));
    let client = client(client_options);
    let description = described(&client, &endpoint).await;
    let mut subscription = subscribed(&client, &description.services[0]).await;
    let port = host.addresses()[0].port();
    let mut discovery = client.listen();
    drop(host);
    let gone = async {
        while !matches!(discovery.next().await.unwrap(), Seen::Gone { endpoint: one, .. } if one == endpoint)
        {
        }
    };
    if seen_gone {
        in_time("gone", gone).await;
    }
    // The same address, like a device with a fixed port; it is free once the old device has ended.
    let restart = async {
        loop {
            let options = chappe_device::HostOptions {
                port,
                metadata_version,
                ..options.clone()
            };
            match start(options) {
                Ok(host) => return host,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let host = in_time("restarted", restart).await;
    let again = async {
        loop {
            match subscription.next().await.unwrap() {
                Delivery::Subscribed { .. } => return,
                other => assert!(!matches!(other, Delivery::Notification(_))),
            }
        }
    };
    in_time("subscribed again", again).await;
    host.notify(REPORT, report(1)).await.unwrap();
    let event = in_time("event", subscription.next()).await.unwrap();
    assert_eq!(number(&event), 1);
    host.stop().await;
}

#[tokio::test]
async fn a_device_that_starts_later_is_found_by_its_hello() {
    let client = client(client_options());
    let endpoint = endpoint();
    let mut discovery = client.listen();
    let options = host_options("127.0.2.5");
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let find = async {
        loop {
            match discovery.next().await.unwrap() {
                Seen::Found(found) if found.endpoint == endpoint => return found,
                _ => {}
            }
        }
    };
    let found = in_time("found", find).await;
    assert_eq!(found.scopes, ["https://example.org/ward/3"]);
    client.close().await;
    while in_time("the end of discovery", discovery.next())
        .await
        .is_some()
    {}
    host.stop().await;
}

#[tokio::test]
async fn operations_without_a_service_are_refused_at_the_start() {
    let key = chappe_identity::Key::from_seed([4; 32]);
    let endpoint = endpoint_of(&key);
    assert_eq!(endpoint, endpoint_of(&key));
    let started = DeviceHost::builder(endpoint)
        .operation("urn:none", |_| async { Ok(None) })
        .options(host_options("127.0.2.6"))
        .start(Drops::default());
    assert_eq!(started.unwrap_err().reason(), "misuse");
}
