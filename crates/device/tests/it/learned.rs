//! Goal: a device found by other means than WS-Discovery is in the same list, used like every other, not accepted
//! at another address while it listens, and removed when it ends.
//! Method: a client without multicast; the test plays the publisher.

use std::net::Ipv4Addr;

use crate::common::{client, client_options, endpoint, host_options, in_time, thermometer};
use chappe_device::client::{Discovery, Found, Seen, Way};
use chappe_device::{ClientOptions, DeviceHost, Selection};
use chappe_dpws::Dialect;
use chappe_transport::Drops;

fn nowhere() -> ClientOptions {
    ClientOptions {
        selection: Selection::Nowhere,
        ..client_options()
    }
}

fn published(host: &DeviceHost, from: &str) -> Found {
    let said = host.announcement();
    Found {
        endpoint: said.endpoint,
        dialect: Dialect::V2009,
        types: vec![Dialect::V2009.device_type()],
        scopes: said.scopes,
        xaddrs: said.addresses,
        metadata_version: said.metadata_version,
        from: from.parse().unwrap(),
        way: Way::Kad,
    }
}

/// The next event that is not the end of a search.
async fn next(seen: &mut Discovery) -> Seen {
    loop {
        let next = in_time("seen", seen.next()).await;
        match next.expect("the client runs") {
            Seen::SearchEnded { .. } => {}
            other => return other,
        }
    }
}

#[tokio::test]
async fn a_learned_device_is_described_and_removed_when_it_ends() {
    let name = endpoint();
    let host = thermometer(&name, host_options("127.0.6.1"));
    let host = host.start(Drops::default()).unwrap();
    assert!(
        host.announcement()
            .types
            .iter()
            .any(|of| of.ends_with("}Device"))
    );
    let client = client(nowhere());
    let mut seen = client.discover().await.unwrap();
    // The address is unverified: it is shown but not contacted.
    client.learn(published(&host, "0.0.0.0:0")).await;
    let Seen::Found(found) = next(&mut seen).await else {
        panic!("it is found");
    };
    assert_eq!(found.way, Way::Kad);
    client.describe(&found).await.unwrap_err();
    // Its publisher got an answer there.
    client.learn(published(&host, "127.0.6.1:4000")).await;
    let Seen::Changed(found) = next(&mut seen).await else {
        panic!("it can be reached now");
    };
    in_time("described", client.describe(&found)).await.unwrap();
    // A repeated announcement changes nothing, and neither does another address while it listens.
    client.learn(published(&host, "127.0.6.1:4000")).await;
    let elsewhere = Found {
        xaddrs: vec!["http://127.0.6.2:1/device".to_owned()],
        from: "127.0.6.2:4000".parse().unwrap(),
        ..published(&host, "127.0.6.1:4000")
    };
    client.learn(elsewhere).await;
    client.unlearn(&name).await;
    assert_eq!(client.known().len(), 1);
    host.stop().await;
    match next(&mut seen).await {
        Seen::Gone { endpoint, .. } => assert_eq!(endpoint, name),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_unreached_device_is_removed_when_it_is_no_longer_published() {
    let client = client(nowhere());
    let name = endpoint();
    let host = thermometer(&name, host_options("127.0.6.3"));
    let host = host.start(Drops::default()).unwrap();
    client.learn(published(&host, "0.0.0.0:0")).await;
    assert_eq!(client.known().len(), 1);
    client.unlearn(&name).await;
    assert!(client.known().is_empty());
    host.stop().await;
}

#[tokio::test]
async fn a_slow_reader_is_notified_of_departed_devices() {
    let client = client(nowhere());
    let mut seen = client.discover().await.unwrap();
    let of = |number: u32| Found {
        endpoint: format!("urn:example:{number}"),
        dialect: Dialect::V2009,
        types: Vec::new(),
        scopes: Vec::new(),
        xaddrs: Vec::new(),
        metadata_version: 1,
        // Different hosts, since one host is limited.
        from: (Ipv4Addr::from(0x0a00_0000 + number), 0).into(),
        way: Way::Kad,
    };
    client.learn(of(0)).await;
    assert!(
        matches!(next(&mut seen).await, Seen::Found(found) if found.endpoint == of(0).endpoint)
    );
    // It ends, and so many events follow that its end is not queued any longer.
    client.unlearn(&of(0).endpoint).await;
    for number in 1..3_000 {
        client.learn(of(number)).await;
    }
    let mut found = std::collections::HashSet::new();
    let mut gone = Vec::new();
    while gone.is_empty() || found.len() < 2_999 {
        match next(&mut seen).await {
            Seen::Found(device) => drop(found.insert(device.endpoint)),
            Seen::Gone { endpoint, .. } => gone.push(endpoint),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gone, [of(0).endpoint]);
    assert!(!found.contains(&of(0).endpoint));
}
