//! Goal: a device described in TOML is found, its recording arrives as events whose schema has unit and
//! meaning, its values can be read and set, and a wrong description is refused.
//!
//! Method: the file is written next to a short recording and served over the loopback.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::*;
use chappe_device::client::{ClientTree, Delivery};
use chappe_device::file::File;
use chappe_device::host::HostTree;
use chappe_device::{ClientOptions, HostOptions};
use chappe_identity::Key;
use chappe_transport::Drops;
use chappe_xml::{Element, Name};

const HEART: &str = "https://example.org/heart";

fn file(directory: &tempfile::TempDir) -> File {
    let endpoint = endpoint();
    let uuid = endpoint.strip_prefix("urn:uuid:").unwrap();
    let text = format!(
        r#"name = "heart"
manufacturer = "Example"
model = "E1"
uuid = "{uuid}"
namespace = "{HEART}"
types = ["Electrocardiograph"]

[[event]]
name = "Wave"
period_ms = 8
deadline_ms = 0.001
recording = "wave.csv"

[[event.field]]
name = "time"
type = "dateTime"

[[event.field]]
name = "ecg"
type = "int"
unit = "uV"
property = "urn:example:ecg"
sample_period_ms = 2

[[value]]
name = "Gain"
type = "int"
initial = "3"
settable = true
"#
    );
    let path: PathBuf = directory.path().join("heart.toml");
    std::fs::write(
        directory.path().join("wave.csv"),
        "ecg\n1\n2\n3\n4\n5\n6\n7\n8\n",
    )
    .unwrap();
    std::fs::write(&path, text).unwrap();
    File::read(&path).unwrap()
}

fn element(local: &str) -> Element {
    Element::new(Name::owned(HEART, local.to_owned()))
}

#[tokio::test]
async fn it_behaves_as_described() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(&directory);
    assert!(file.version > 1);
    let endpoint = file.endpoint();
    let mut options = host_options("127.0.3.1");
    // No event is left out, however long this process pauses.
    options.eventing.queue_max = 100_000;
    let device = file.start(options, Drops::default()).unwrap();
    let client = client(client_options());
    let description = described(&client, &endpoint).await;
    assert!(description.notes.is_empty(), "{:?}", description.notes);
    let service = &description.services[0];
    let flat = service.schemas.flat(&Name::new(HEART, "Wave")).unwrap();
    assert_eq!(flat.fields[1].sample_period, Some(Duration::from_millis(2)));
    assert_eq!(flat.fields[1].model_reference, ["urn:example:ecg"]);

    let mut subscription = subscribed(&client, service).await;
    let mut stretches = Vec::new();
    while stretches.len() < 3 {
        let delivery = in_time("event", subscription.next()).await.unwrap();
        let Delivery::Notification(event) = delivery else {
            panic!("{delivery:?}")
        };
        let ecg = event.body.child(&Name::new(HEART, "ecg")).unwrap();
        stretches.push(ecg.text().into_owned());
    }
    // From any starting point: periods alternate.
    let (one, other) = ("1 2 3 4".to_owned(), "5 6 7 8".to_owned());
    assert!(stretches == [&*one, &*other, &*one] || stretches == [&*other, &*one, &*other]);

    let gain = Name::new(HEART, "value");
    let action = |name: &str| format!("{HEART}/ElectrocardiographService/{name}Request");
    let call = |name: &'static str, value: Option<&'static str>| {
        let given = value.map(|value| Element::new(gain.clone()).with_text(value));
        let body = element(name).with_children(given);
        let action = action(name);
        let client = &client;
        async move { client.call(service, &action, body).await }
    };
    let got = call("GetGain", None).await.unwrap().unwrap();
    assert_eq!(got.child(&gain).unwrap().text(), "3");
    call("SetGain", Some("7")).await.unwrap();
    let got = call("GetGain", None).await.unwrap().unwrap();
    assert_eq!(got.child(&gain).unwrap().text(), "7");
    let refused = call("SetGain", Some("much")).await.unwrap_err();
    assert_eq!(refused.reason(), "fault");
    client.close().await;
    device.stop().await;
}

#[tokio::test]
async fn a_changed_description_has_a_higher_version_also_within_a_second_and_with_an_older_file() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = file(&directory).endpoint();
    let path = directory.path().join("heart.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = text.replace("\"uV\"", "\"mV\"");
    assert_ne!(changed, text);
    let mut versions = Vec::new();
    // Seconds since 1970 of each file's modification.
    for (text, modified) in [
        (&text, 1_000),
        (&changed, 1_000),
        (&changed, 1_000),
        (&text, 500),
        (&changed, 2_000),
    ] {
        std::fs::write(&path, text).unwrap();
        let modified = std::time::UNIX_EPOCH + Duration::from_secs(modified);
        let opened = std::fs::File::options().write(true).open(&path).unwrap();
        opened.set_modified(modified).unwrap();
        let started = File::read(&path)
            .unwrap()
            .start(host_options("127.0.3.4"), Drops::default());
        let device = started.unwrap();
        assert_eq!(device.host().endpoint(), endpoint);
        versions.push(device.host().announcement().metadata_version);
        device.stop().await;
    }
    assert_eq!(versions, [1_000, 1_001, 1_001, 1_002, 2_000]);
}

#[tokio::test]
async fn an_event_is_late_after_its_own_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(&directory);
    assert_eq!(file.events[0].deadline, Some(Duration::from_micros(1)));
    let endpoint = file.endpoint();
    let key = || Key::from_seed(chappe_transport::seed().unwrap());
    let options = HostOptions {
        tree: Some(HostTree {
            // The deadline of all other events.
            deadline: Some(Duration::from_secs(3_600)),
            ..HostTree::new(key())
        }),
        ..host_options("127.0.3.2")
    };
    let device = file.start(options, Drops::default()).unwrap();
    let client = client(ClientOptions {
        tree: Some(ClientTree::new(key())),
        ..client_options()
    });
    let description = described(&client, &endpoint).await;
    let mut subscription = subscribed(&client, &description.services[0]).await;
    // The latency to the first sink is unknown, and counts as zero.
    let late = async {
        while client.tree_counts().late == 0 {
            subscription.next().await.unwrap();
        }
    };
    in_time("a late event", late).await;
    device.stop().await;
}
