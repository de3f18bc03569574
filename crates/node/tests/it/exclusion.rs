//! Goal: a device that is left out is neither read nor registered, keeps its streams, and continues them when it is
//! taken back, also across restarts of the node.
//! Method: a real device of this process on loopback, and a node that is given exclusions over REST and by its
//! configuration.

use crate::common::devices::until;
use crate::common::identity::*;
use crate::common::{block, config, get, send};
use chappe_node::Node;
use chappe_node::config::DevicePattern;
use serde_json::{Value as Json, json};

const PLAIN: u32 = 262_656;
const EXCLUSIONS: &str = "/api/v1/devices/exclusions";

async fn change(node: &Node, token: &str, method: &str, path: &str, body: &Json) -> (u16, Json) {
    let bearer = format!("Bearer {token}");
    let body = body.to_string();
    let fields = [("Authorization", bearer.as_str())];
    let answer = send(node, method, path, &fields, body.as_bytes()).await;
    (answer.status, answer.json())
}

#[test]
fn an_excluded_device_is_left_alone_until_it_is_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    block(async {
        let node = start(&directory).await;
        let token = node.new_token().unwrap().to_owned();
        let device = device(&product, anywhere());
        device.put_silently("steady", PLAIN, 1);
        usable(&node, &device).await;
        device.set("steady", 1).await;
        values(&node, &stream, 1).await;

        let pattern = json!({ "name": product.name });
        let (status, added) = change(&node, &token, "POST", EXCLUSIONS, &pattern).await;
        assert_eq!(status, 201, "{added}");
        let is_excluded = |device: &Json| device["state"] == "excluded";
        let shown = until(&node, &device.path(), is_excluded).await;
        let id = added["id"].as_u64().unwrap();
        assert_eq!(shown["hint"], format!("chappe device include {id}"));
        assert_eq!(shown["streams"], json!([]));
        let key = format!("urn:chappe:stream:{stream}").replace(':', "%3A");
        let entity = get(&node, &format!("/api/v1/entities/{key}")).await;
        assert_eq!(entity.status, 404, "{}", entity.body);
        device.set("steady", 2).await;
        assert_eq!(values(&node, &stream, 1).await, [1]);

        let path = format!("{EXCLUSIONS}/{id}");
        assert_eq!(
            change(&node, &token, "DELETE", &path, &Json::Null).await.0,
            200
        );
        usable(&node, &device).await;
        // Its present state is read again; so it was not read while it was left out.
        assert_eq!(values(&node, &stream, 2).await, [1, 2]);
        device.set("steady", 3).await;
        assert_eq!(values(&node, &stream, 3).await, [1, 2, 3]);
        assert_eq!(
            change(&node, &token, "DELETE", &path, &Json::Null).await.0,
            404
        );

        let pattern = json!({ "endpoint": device.host.endpoint() });
        assert_eq!(
            change(&node, &token, "POST", EXCLUSIONS, &pattern).await.0,
            201
        );
        until(&node, &device.path(), is_excluded).await;
        node.shutdown().await.unwrap();
        let node = start(&directory).await;
        until(&node, &device.path(), is_excluded).await;
        assert_eq!(values(&node, &stream, 3).await, [1, 2, 3]);
        node.shutdown().await.unwrap();
        device.host.stop().await;
    });
}

#[test]
fn a_configured_exclusion_holds_from_the_start_and_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let product = product();
        let device = device(&product, anywhere());
        device.put_silently("steady", PLAIN, 1);
        let mut config = config(directory.path());
        config.discovery.enabled = true;
        config.discovery.interfaces = vec!["lo".into()];
        let endpoint = Some(device.host.endpoint().to_owned());
        config.devices.exclude = vec![DevicePattern {
            endpoint,
            ..DevicePattern::default()
        }];
        let node = Node::start(config).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        let shown = until(&node, &device.path(), |device| {
            device["state"] == "excluded"
        })
        .await;
        assert!(shown["hint"].as_str().unwrap().contains("devices.exclude"));
        assert_eq!(shown["manufacturer"], Json::Null, "it was not asked");
        assert_eq!(streams(&node, &product).await, [""; 0]);
        let all = get(&node, EXCLUSIONS).await.json();
        assert_eq!(all["exclusions"][0]["id"], Json::Null);
        let post = async |body: Json| change(&node, &token, "POST", EXCLUSIONS, &body).await.0;
        assert_eq!(post(json!({})).await, 422);
        assert_eq!(post(json!({ "nmae": "a" })).await, 400);
        let (status, _) = change(&node, "wrong", "POST", EXCLUSIONS, &json!({ "name": "a" })).await;
        assert_eq!(status, 401);
        node.shutdown().await.unwrap();
        device.host.stop().await;
    });
}

#[test]
fn a_replacing_device_goes_on_in_the_streams_of_the_former_one() {
    let directory = tempfile::tempdir().unwrap();
    let (former, new) = (product(), product());
    let stream = format!("{}.steady", former.name);
    block(async {
        let node = start(&directory).await;
        let token = node.new_token().unwrap().to_owned();
        let old = device(&former, anywhere());
        old.put_silently("steady", PLAIN, 1);
        usable(&node, &old).await;
        old.set("steady", 1).await;
        assert_eq!(values(&node, &stream, 1).await, [1]);
        let newer = device(&new, anywhere());
        newer.put_silently("steady", PLAIN, 1);
        usable(&node, &newer).await;
        newer.set("steady", 2).await;
        assert_eq!(values(&node, &format!("{}.steady", new.name), 1).await, [2]);

        let path = format!("{}/replace", newer.path());
        let body = json!({ "former": old.host.endpoint() });
        let (status, problem) = change(&node, &token, "POST", &path, &body).await;
        assert_eq!(status, 409, "{problem}");
        let (old_path, endpoint) = (old.path(), old.host.endpoint().to_owned());
        old.host.stop().await;
        until(&node, &old_path, |device| device["state"] == "gone").await;
        let (status, place) = change(&node, &token, "POST", &path, &body).await;
        assert_eq!(
            (status, &place["place"]),
            (200, &json!(former.name)),
            "{place}"
        );
        let has_stream = |device: &Json| device["streams"] == json!([stream]);
        until(&node, &newer.path(), has_stream).await;
        newer.set("steady", 3).await;
        assert_eq!(values(&node, &stream, 2).await, [1, 3]);
        assert!(has_notice(&node, &["replaces", &endpoint]).await);
        node.shutdown().await.unwrap();

        let node = start(&directory).await;
        let shown = usable(&node, &newer).await;
        assert_eq!(shown["streams"], json!([stream]));
        newer.set("steady", 4).await;
        assert_eq!(values(&node, &stream, 3).await, [1, 3, 4]);
        let places = get(&node, "/api/v1/devices/places").await.json();
        assert!(
            places["places"][0]["former"][0]["device"]
                .as_str()
                .unwrap()
                .contains(&endpoint)
        );
        node.shutdown().await.unwrap();
        newer.host.stop().await;
    });
}
