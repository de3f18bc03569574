//! Goal: a stream continues when its service moves to another address or its description changes otherwise.
//! Method: a real device of this process on loopback, whose description is edited between its applications.

use super::*;

use chappe_device::client::Seen;
use chappe_device::file::{File, FileDevice};
use chappe_device::{ClientOptions, HostOptions, Selection};
use chappe_transport::Drops;

/// A device with one event, a client, and its description.
async fn described(
    directory: &tempfile::TempDir,
    address: &str,
) -> (FileDevice, DeviceClient, Description) {
    let path = directory.path().join("moving.toml");
    let text = r#"name = "moving"
manufacturer = "Example"
model = "M1"
namespace = "https://example.org/moving"
types = ["Moving"]

[[event]]
name = "Moved"
period_ms = 50
recording = "one.csv"

[[event.field]]
name = "percent"
type = "double"
"#;
    std::fs::write(directory.path().join("one.csv"), "percent\n1\n2\n").unwrap();
    // A device of another test, on the same network, must not be taken for this one.
    let last = address.rsplit('.').next().unwrap();
    let uuid = format!("uuid = \"00000000-0000-4000-8000-{last:0>12}\"\n");
    std::fs::write(&path, uuid + text).unwrap();
    let options = HostOptions {
        selection: Selection::Addresses(vec![address.parse().unwrap()]),
        app_max_delay: Duration::ZERO,
        ..HostOptions::default()
    };
    let file = File::read(&path).unwrap();
    let device = file.start(options, Drops::default()).unwrap();
    let options = ClientOptions {
        selection: Selection::Addresses(vec!["127.0.0.1".parse().unwrap()]),
        liveness_period: None,
        ..ClientOptions::default()
    };
    let client = DeviceClient::start(options, Drops::default()).unwrap();
    let mut seen = client.discover().await.unwrap();
    let found = loop {
        match seen.next().await.expect("the client runs") {
            Seen::Found(found) if found.endpoint == device.host().endpoint() => break found,
            _ => {}
        }
    };
    let description = client.describe(&found).await.unwrap();
    (device, client, description)
}

/// Runs a test that fails instead of waiting for ever.
fn block<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), future).await };
    runtime.block_on(limited).expect("it takes far too long")
}

fn streams(attachment: &Attachment) -> Vec<(usize, String)> {
    let offers = attachment.offers().iter();
    offers
        .map(|(number, offer)| (number, offer.name.clone()))
        .collect()
}

/// Waits for an element of the stream with this number.
async fn element_of(attachment: &mut Attachment, number: usize) {
    let is_of = |one: &AttachmentEvent| matches!(one, AttachmentEvent::Element(stream, _) if *stream == number);
    while !attachment.next().await.unwrap().iter().any(is_of) {}
}

#[test]
fn a_stream_continues_at_other_addresses() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let (device, client, mut description) = described(&directory, "127.0.9.71").await;
        let rules = Rules::default();
        let home = description.services[0].contact.clone();
        let mut attachment = Attachment::new(&client, &description, &rules).await;
        let first = streams(&attachment);
        let [(number, name)] = first.as_slice() else {
            panic!("{first:?}")
        };
        let number = *number;
        assert!(!name.contains('_'), "{name}");
        element_of(&mut attachment, number).await;
        for port in 1..4 {
            // Nothing answers there; events of the old subscription still arrive.
            description.services[0].contact.address.set_port(port);
            attachment.describe(&client, &description, &rules).await;
            assert_eq!(streams(&attachment), first);
            if port == 1 {
                element_of(&mut attachment, number).await;
            }
        }
        description.services[0].contact = home;
        attachment.describe(&client, &description, &rules).await;
        assert_eq!(streams(&attachment), first);
        while !attachment.is_subscribed() {
            attachment.next().await.unwrap();
        }
        element_of(&mut attachment, number).await;
        device.stop().await;
    });
}

#[test]
fn services_with_streams_of_one_name_keep_their_suffixes() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let (device, client, mut description) = described(&directory, "127.0.9.72").await;
        let rules = Rules::default();
        let mut second = description.services[0].clone();
        second.id = "urn:example:second".to_owned();
        second.contact.address.set_port(9);
        description.services.push(second);
        let mut attachment = Attachment::new(&client, &description, &rules).await;
        let first = streams(&attachment);
        assert_eq!(first.len(), 2);
        assert_eq!(first[1].1, format!("{}_2", first[0].1));
        for port in 1..4 {
            // Both move, to the address of the other at times, and are listed in another order.
            for (index, service) in (0..).zip(&mut description.services) {
                service.contact.address.set_port(port + index);
            }
            description.services.reverse();
            attachment.describe(&client, &description, &rules).await;
            assert_eq!(streams(&attachment), first);
            let active = attachment.subscriptions.iter().filter(|one| {
                let is_active = one.stage == Stage::Asked;
                let is_second = one.service.id == "urn:example:second";
                let number = first[usize::from(is_second)].0;
                is_active && matches!(&one.feed, Feed::Own(_, numbers) if *numbers == [number])
            });
            assert_eq!(active.count(), 2);
        }
        device.stop().await;
    });
}

#[test]
fn the_name_of_a_stream_is_free_for_its_successor() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let (device, client, mut description) = described(&directory, "127.0.9.73").await;
        let rules = Rules::default();
        let mut attachment = Attachment::new(&client, &description, &rules).await;
        let first = streams(&attachment);
        // A metadata version that keeps the service.
        attachment.describe(&client, &description, &rules).await;
        assert_eq!(streams(&attachment), first);
        assert_eq!(attachment.subscriptions.len(), 1);
        // Another service takes its place.
        description.services[0].id = "urn:example:another".to_owned();
        description.services[0].contact.address.set_port(9);
        attachment.describe(&client, &description, &rules).await;
        let [(number, name)] = streams(&attachment).try_into().unwrap();
        assert_eq!(name, first[0].1);
        assert_ne!(number, first[0].0);
        // An event under way still finds its stream.
        assert!(attachment.offers().get(first[0].0).is_some());
        device.stop().await;
    });
}

#[test]
fn a_device_that_returns_at_its_address_may_have_another_description() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let (device, client, description) = described(&directory, "127.0.9.74").await;
        let rules = Rules::default();
        let mut attachment = Attachment::new(&client, &description, &rules).await;
        let number = streams(&attachment)[0].0;
        element_of(&mut attachment, number).await;
        device.stop().await;
        let path = directory.path().join("moving.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text + "unit = \"K\"\n").unwrap();
        let address = description.services[0].contact.address;
        let options = HostOptions {
            selection: Selection::Addresses(vec![address.ip()]),
            port: address.port(),
            ..HostOptions::default()
        };
        let file = File::read(&path).unwrap();
        let device = file.start(options, Drops::default()).unwrap();
        while !attachment
            .next()
            .await
            .unwrap()
            .contains(&AttachmentEvent::Resubscribed)
        {}
        let description = client.describe(&description.found).await.unwrap();
        attachment.describe(&client, &description, &rules).await;
        let [(number, _)] = streams(&attachment).try_into().unwrap();
        let offer = attachment.offers().get(number).unwrap();
        assert_eq!(offer.schema.fields[0].unit.as_deref(), Some("K"));
        element_of(&mut attachment, number).await;
        device.stop().await;
    });
}
