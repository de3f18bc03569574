//! Goal: a stranger that claims a device's serial number cannot divert the device to another stream, nor
//! delay it or any other device.
//! Method: real devices of this process on loopback, some with the identity of another; a host that accepts
//! connections and answers none; a node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::devices::{host_options, unique, until};
use crate::common::identity::*;
use crate::common::medical::{Hosting, Monitor, Product};
use crate::common::{block, own_address};
use chappe_node::Node;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Connections of a complete check: three attempts, with two connections each.
const FULL_LOOK: usize = 6;
/// Less time than a check of a silent host takes: three attempts of three seconds each.
const LOOK: Duration = Duration::from_secs(8);

/// A host that accepts connections and answers none.
struct Silent {
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Silent {
    async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let count = connections.clone();
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                open.push(connection);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { connections, task }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Another device that claims the identity of a product.
fn claimant(product: &Product) -> Product {
    Product {
        name: format!("claimant-{}", unique()),
        ..product.clone()
    }
}

#[test]
fn a_device_that_leaves_while_its_predecessor_is_looked_for_delays_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    block(async {
        let node = start(&directory).await;
        let first = device(&product, anywhere());
        usable(&node, &first).await;
        let address = contact(&node, &first).await;
        node.shutdown().await.unwrap();
        first.host.stop().await;
        let silent = Silent::at(address).await;
        let node = start(&directory).await;
        let claimant = device(&claimant(&product), anywhere());
        while silent.connections() == 0 {
            tokio::task::yield_now().await;
        }
        let path = claimant.path();
        claimant.host.stop().await;
        let honest = device(&crate::common::identity::product(), anywhere());
        usable(&node, &honest).await;
        until(&node, &path, |device| device["state"] == "gone").await;
        let connections = silent.connections();
        assert!(
            connections < FULL_LOOK,
            "the look ends with its device: {connections}"
        );
        silent.task.abort();
        node.shutdown().await.unwrap();
        honest.host.stop().await;
    });
}

/// A device was present, and so was a claimant of its identity; both have left, and the address of
/// the claimant is that of a silent host. The node has restarted.
async fn after_a_claim(
    directory: &tempfile::TempDir,
    product: &Product,
    address: &str,
    has_more: bool,
) -> (Node, String, Silent) {
    let node = start(directory).await;
    let first = device(product, host_options(address));
    usable(&node, &first).await;
    let other = device(&claimant(product), anywhere());
    if has_more {
        // A metric that the device does not have.
        other.put_silently("more", 262_656, 2);
    }
    usable(&node, &other).await;
    let claimed = contact(&node, &other).await;
    let endpoint = first.host.endpoint().to_owned();
    node.shutdown().await.unwrap();
    first.host.stop().await;
    other.host.stop().await;
    let silent = Silent::at(claimed).await;
    (start(directory).await, endpoint, silent)
}

#[test]
fn a_device_that_has_its_streams_looks_for_no_predecessor() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    let address = own_address().to_string();
    block(async {
        let (node, endpoint, silent) = after_a_claim(&directory, &product, &address, true).await;
        let options = host_options(&address);
        let started = Instant::now();
        let again = Monitor::start_product(&endpoint, &product, Hosting::Together, options);
        let shown = usable(&node, &again).await;
        assert_eq!(shown["streams"], serde_json::json!([stream]));
        // Connections do not tell: nodes of other tests ask whether the claimant has left.
        assert!(started.elapsed() < LOOK, "nobody is waited for");
        silent.task.abort();
        node.shutdown().await.unwrap();
        again.host.stop().await;
    });
}

#[test]
fn a_claimant_that_comes_after_the_device_in_the_order_of_streams_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    let address = own_address().to_string();
    block(async {
        let (node, _, silent) = after_a_claim(&directory, &product, &address, false).await;
        let returned = device(&product, anywhere());
        let shown = usable(&node, &returned).await;
        assert_eq!(shown["streams"], serde_json::json!([stream]));
        let connections = silent.connections();
        assert!(
            connections < FULL_LOOK,
            "the look ends before: {connections}"
        );
        silent.task.abort();
        node.shutdown().await.unwrap();
        returned.host.stop().await;
    });
}

#[test]
fn a_device_that_returns_continues_the_streams_of_its_name_or_the_first_ones() {
    for is_renamed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let product = product();
        let stream = format!("{}.steady", product.name);
        block(async {
            let node = start(&directory).await;
            let mut all = vec![device(&product, anywhere())];
            usable(&node, &all[0]).await;
            all[0].set("steady", 1).await;
            values(&node, &stream, 1).await;
            // More than are asked, each with newer elements.
            for number in 0..9 {
                let one = device(&claimant(&product), anywhere());
                let shown = usable(&node, &one).await;
                one.set("steady", 100 + number).await;
                let other = shown["streams"][0].as_str().unwrap();
                values(&node, other, 1).await;
                all.push(one);
            }
            for one in all {
                let path = one.path();
                one.host.stop().await;
                until(&node, &path, |device| device["state"] == "gone").await;
            }
            let returning = match is_renamed {
                true => claimant(&product),
                false => product.clone(),
            };
            let returned = device(&returning, anywhere());
            let shown = usable(&node, &returned).await;
            assert_eq!(shown["streams"], serde_json::json!([stream]));
            returned.set("steady", 2).await;
            assert_eq!(values(&node, &stream, 2).await, [1, 2]);
            node.shutdown().await.unwrap();
            returned.host.stop().await;
        });
    }
}

#[test]
fn one_address_that_claimed_an_identity_first_keeps_the_former_device_from_no_look() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    block(async {
        let node = start(&directory).await;
        let address = own_address().to_string();
        let mut claimants = Vec::new();
        for _ in 0..8 {
            let one = device(&claimant(&product), host_options(&address));
            usable(&node, &one).await;
            claimants.push(one);
        }
        let old = device(&product, anywhere());
        usable(&node, &old).await;
        old.set("steady", 1).await;
        values(&node, &stream, 1).await;
        let path = old.path();
        old.host.stop().await;
        until(&node, &path, |device| device["state"] == "gone").await;
        for (number, one) in (0..).zip(&claimants) {
            one.set("steady", 100 + number).await;
        }
        let shown = device(&claimant(&product), anywhere());
        let streams = usable(&node, &shown).await["streams"].clone();
        assert_eq!(streams, serde_json::json!([stream]));
        node.shutdown().await.unwrap();
        for one in claimants.into_iter().chain([shown]) {
            one.host.stop().await;
        }
    });
}
