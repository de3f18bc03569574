//! Goal: a device that was found otherwise than by WS-Discovery is in the same list, used like every
//! other, not believed to be elsewhere while it listens, and let go when it ends.
//! Method: a client without any multicast; what it is told stands for what others publish.

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

fn told(host: &DeviceHost, from: &str) -> Found {
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

/// What is seen next but for the ends of searches.
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
async fn a_learnt_device_is_described_and_goes_when_it_ends() {
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
    // Nobody vouches for the address: it is shown, and not contacted.
    client.learn(told(&host, "0.0.0.0:0")).await;
    let Seen::Found(found) = next(&mut seen).await else {
        panic!("it is found");
    };
    assert_eq!(found.way, Way::Kad);
    client.describe(&found).await.unwrap_err();
    // Its publisher answered there.
    client.learn(told(&host, "127.0.6.1:4000")).await;
    let Seen::Changed(found) = next(&mut seen).await else {
        panic!("it can be reached now");
    };
    in_time("described", client.describe(&found)).await.unwrap();
    // Told again nothing happens; told elsewhere neither, while it listens.
    client.learn(told(&host, "127.0.6.1:4000")).await;
    let elsewhere = Found {
        xaddrs: vec!["http://127.0.6.2:1/device".to_owned()],
        from: "127.0.6.2:4000".parse().unwrap(),
        ..told(&host, "127.0.6.1:4000")
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
async fn who_is_told_of_no_more_and_was_never_reached_goes() {
    let client = client(nowhere());
    let name = endpoint();
    let host = thermometer(&name, host_options("127.0.6.3"));
    let host = host.start(Drops::default()).unwrap();
    client.learn(told(&host, "0.0.0.0:0")).await;
    assert_eq!(client.known().len(), 1);
    client.unlearn(&name).await;
    assert!(client.known().is_empty());
    host.stop().await;
}

#[tokio::test]
async fn who_does_not_read_for_long_is_told_what_has_gone_meanwhile() {
    let client = client(nowhere());
    let mut seen = client.discover().await.unwrap();
    let of = |number: u32| Found {
        endpoint: format!("urn:example:{number}"),
        dialect: Dialect::V2009,
        types: Vec::new(),
        scopes: Vec::new(),
        xaddrs: Vec::new(),
        metadata_version: 1,
        // A host each: one host may not be so many devices.
        from: (Ipv4Addr::from(0x0a00_0000 + number), 0).into(),
        way: Way::Kad,
    };
    client.learn(of(0)).await;
    assert!(
        matches!(next(&mut seen).await, Seen::Found(found) if found.endpoint == of(0).endpoint)
    );
    // It goes, and so much happens behind it that this is not kept.
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
