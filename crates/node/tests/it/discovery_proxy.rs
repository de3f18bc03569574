//! Goal: a node that is a discovery proxy follows devices that register with it, and names them to another node that
//! asks it instead of multicast; its own server answers messages to the proxy as well; the status shows both.
//! Method: two nodes in this process without multicast, a device on the loopback that registers by HTTP.

use std::net::SocketAddr;

use crate::common::devices::{described, host_options, unique, until};
use crate::common::{block, config, get, send};
use chappe_device::HostOptions;
use chappe_device::host::ProxyAddress;
use chappe_identity::Contact;
use chappe_node::Node;
use chappe_transport::Drops;

const PROBE: &str = r#"<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"
 xmlns:a="http://www.w3.org/2005/08/addressing" xmlns:d="http://docs.oasis-open.org/ws-dd/ns/discovery/2009/01">
<s:Header><a:Action>http://docs.oasis-open.org/ws-dd/ns/discovery/2009/01/Probe</a:Action>
<a:MessageID>urn:m:1</a:MessageID><a:To>urn:docs-oasis-open-org:ws-dd:ns:discovery:2009:01</a:To></s:Header>
<s:Body><d:Probe/></s:Body></s:Envelope>"#;

/// A node that multicast does not reach.
fn far(directory: &std::path::Path) -> chappe_node::config::Config {
    let mut config = config(directory);
    config.discovery.enabled = true;
    config.discovery.multicast = false;
    config
}

#[test]
fn a_device_that_registers_is_named_to_another_node() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut at = far(&directory.path().join("proxy"));
        at.discovery.proxy.listen = "127.0.0.1:0".into();
        let proxy = Node::start(at).await.unwrap();
        let status = get(&proxy, "/api/v1/discovery-proxies").await.json();
        let listening: SocketAddr = status["listening"].as_str().unwrap().parse().unwrap();
        let url = format!("http://{listening}/");
        let contact = Contact::parse(&url, 0).unwrap();
        let name = format!("registered-{}", unique());
        let file = described(directory.path(), &name, "urn:example:temperature", 20);
        let options = HostOptions {
            proxies: vec![ProxyAddress::Http(contact)],
            ..host_options("127.0.9.1")
        };
        let device = file.start(options, Drops::default()).unwrap();
        let path = format!(
            "/api/v1/devices/{}",
            device.host().endpoint().replace(':', "%3A")
        );
        until(&proxy, &path, |device| device["state"] == "usable").await;
        let mut at = far(&directory.path().join("client"));
        at.discovery.proxies = vec![url.clone()];
        let client = Node::start(at).await.unwrap();
        let shown = until(&client, &path, |device| device["state"] == "usable").await;
        assert_eq!(shown["found_by"], serde_json::json!(["proxy"]), "{shown}");
        let status = until(&client, "/api/v1/discovery-proxies", |status| {
            status["asked"][0]["answers"] == true
        })
        .await;
        assert_eq!(status["asked"][0]["address"], url.as_str(), "{status}");
        // The node's own server, which may speak TLS, passes messages to the proxy.
        let soap = [("Content-Type", "application/soap+xml")];
        let answer = send(&proxy, "POST", "/discovery", &soap, PROBE.as_bytes()).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body.contains(device.host().endpoint()));
        let plain = [("Content-Type", "text/plain")];
        let refused = send(&proxy, "POST", "/discovery", &plain, PROBE.as_bytes()).await;
        assert_eq!(refused.status, 415);
        let none = send(&client, "POST", "/discovery", &soap, PROBE.as_bytes()).await;
        assert_eq!(none.status, 404, "it is not a proxy");
        device.stop().await;
        until(&proxy, "/api/v1/discovery-proxies", |status| {
            status["offered"] == 0
        })
        .await;
        client.shutdown().await.unwrap();
        proxy.shutdown().await.unwrap();
    });
}
