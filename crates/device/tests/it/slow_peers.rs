//! Goal: a peer that is slow or says nothing holds up nobody else.
//!
//! Method: half-open connections to a device while a client uses it; a device that accepts and
//! never answers while another one is described; a subscriber whose sink never answers while
//! another one receives.

use std::time::Duration;

use crate::common::*;
use chappe_device::client::{Found, Way};
use chappe_dpws::Dialect;
use chappe_transport::Drops;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn half_open_connections_do_not_hold_up_a_device() {
    let endpoint = endpoint();
    let options = host_options("127.0.5.1");
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let mut held = Vec::new();
    for begin in [
        &b""[..],
        b"POST /device HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n<",
    ] {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(host.addresses()[0]).await.unwrap();
            stream.write_all(begin).await.unwrap();
            held.push(stream);
        }
    }
    let client = client(client_options());
    let description = described(&client, &endpoint).await;
    let mut subscription = subscribed(&client, &description.services[0]).await;
    host.notify(REPORT, report(7)).await.unwrap();
    let event = in_time("event", subscription.next()).await.unwrap();
    assert_eq!(number(&event), 7);
    drop(held);
    host.stop().await;
}

#[tokio::test]
async fn a_device_that_never_answers_holds_up_no_other() {
    let silent = TcpListener::bind("127.0.5.2:0").await.unwrap();
    let mut options = client_options();
    // The honest one answers sooner on the slowest machine.
    options.http.header_deadline = Duration::from_secs(5);
    let client = client(options);
    let found = Found {
        endpoint: endpoint(),
        dialect: Dialect::V2009,
        types: Vec::new(),
        scopes: Vec::new(),
        xaddrs: vec![format!("http://{}/", silent.local_addr().unwrap())],
        metadata_version: 1,
        from: "127.0.5.2:3702".parse().unwrap(),
        way: Way::Discovery,
    };
    let endpoint = endpoint();
    let options = host_options("127.0.5.3");
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let slow = client.describe(&found);
    let quick = described(&client, &endpoint);
    let (slow, quick) = (in_time("given up", slow), quick);
    let (slow, quick) = tokio::join!(slow, quick);
    assert_eq!(slow.unwrap_err().reason(), "too slow");
    assert_eq!(quick.name(), "window side");
    host.stop().await;
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_holds_up_no_other() {
    let endpoint = endpoint();
    let options = host_options("127.0.5.4");
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let mut small = client_options();
    small.notifications_max = 1;
    let (idle, busy) = (client(small), client(client_options()));
    let of_idle = described(&idle, &endpoint).await;
    let of_busy = described(&busy, &endpoint).await;
    // Held, never read: after one event its client answers no more.
    let _unread = subscribed(&idle, &of_idle.services[0]).await;
    let mut read = subscribed(&busy, &of_busy.services[0]).await;
    for event in 0..50 {
        host.notify(REPORT, report(event)).await.unwrap();
        let delivery = in_time("event", read.next()).await.unwrap();
        assert_eq!(number(&delivery), event);
    }
    host.stop().await;
}
