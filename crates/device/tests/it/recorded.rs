//! Goal: a recorded device is replayed in either dialect: the same endpoint, metadata and services, the recorded
//! answers and events.
//!
//! Method: over the loopback; the device is recorded, stopped, replayed from the files at another address.

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use chappe_device::client::Delivery;
use chappe_device::recording::{RecordOptions, Recorded, record};
use chappe_device::{ClientOptions, HostOptions};
use chappe_dpws::Dialect;
use chappe_transport::Drops;
use chappe_xml::Element;

async fn recorded(folder: &Path) -> String {
    let endpoint = endpoint();
    let host = thermometer(&endpoint, host_options("127.0.42.1"))
        .start(Drops::default())
        .unwrap();
    let client = client(client_options());
    let description = described(&client, &endpoint).await;
    let options = RecordOptions {
        events: Duration::from_secs(1),
        calls: vec!["Limit".to_owned()],
        ..RecordOptions::default()
    };
    let notify = async {
        let mut number = 0;
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            let action = REPORT.to_owned();
            host.notify(action, report(number)).await.unwrap();
            number += 1;
        }
    };
    let summary = tokio::select! {
        summary = record(&client, &description, folder, &options) => summary.unwrap(),
        () = notify => unreachable!(),
    };
    assert_eq!(summary.documents, 1, "{summary:?}");
    assert_eq!(summary.answers, 1, "{summary:?}");
    assert!(summary.events > 2, "{summary:?}");
    let again = record(&client, &description, folder, &options).await;
    let problem = again.unwrap_err().to_string();
    assert!(problem.contains("is there already"), "{problem}");
    client.close().await;
    host.stop().await;
    endpoint
}

#[tokio::test]
async fn a_recorded_device_is_replayed_in_either_dialect() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = recorded(folder.path()).await;
    for (dialect, address) in [
        (Dialect::V2009, "127.0.42.2"),
        (Dialect::V2005, "127.0.42.3"),
    ] {
        let replayed = Recorded::read(folder.path()).unwrap();
        assert_eq!(replayed.name(), "window side");
        assert_eq!(replayed.dialect, Dialect::V2009);
        let options = HostOptions {
            dialects: vec![dialect],
            ..host_options(address)
        };
        let device = replayed.start(options, Drops::default()).unwrap();
        let client = client(ClientOptions {
            dialects: vec![dialect],
            ..client_options()
        });
        let description = described(&client, &endpoint).await;
        assert_eq!(description.dialect, dialect);
        assert_eq!(description.name(), "window side");
        assert_eq!(description.found.scopes, ["https://example.org/ward/3"]);
        assert!(description.types.contains(&name("Sensor")));
        let service = &description.services[0];
        assert_eq!(service.id, "https://example.org/thermometer/1");
        assert!(service.schemas.flat(&name("Report")).is_ok());
        let body = Element::new(name("Limit"));
        let answer = client.call(service, LIMIT, body).await.unwrap().unwrap();
        assert!(answer.name.is(NAMESPACE, "LimitResponse"));
        let mut subscription = subscribed(&client, service).await;
        let first = loop {
            let event = in_time("an event", subscription.next()).await.unwrap();
            if matches!(event, Delivery::Notification(_)) {
                break number(&event);
            }
        };
        let second = number(&in_time("an event", subscription.next()).await.unwrap());
        assert_eq!(second, first + 1);
        client.close().await;
        device.stop().await;
    }
}

#[tokio::test]
async fn a_changed_recording_is_refused_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path()).await;
    let service = folder.path().join("1-1");
    let cases = [
        (
            folder.path().join("device.toml"),
            "dialect = 3\n",
            "device.toml",
        ),
        (folder.path().join("metadata.xml"), "<a/>", "metadata"),
        (
            service.join("events.tsv"),
            "1\t../x.xml\turn:x\n",
            "not the name of a file",
        ),
        (
            service.join("events.tsv"),
            "soon\t1.xml\turn:x\n",
            "milliseconds",
        ),
        (service.join("answers.tsv"), "1.xml\n", "cells"),
        (
            service.join("documents.tsv"),
            "gone.wsdl\turn:x\n",
            "gone.wsdl",
        ),
    ];
    for (file, text, expected) in cases {
        let before = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text).unwrap();
        let problem = Recorded::read(folder.path()).unwrap_err().to_string();
        assert!(problem.contains(expected), "{problem}");
        std::fs::write(&file, before).unwrap();
    }
    assert!(Recorded::read(folder.path()).is_ok());
}
