//! Goal: rights that an operator states for entities of the node last when a device comes back and when the node
//! restarts, are enforced, and can be given and taken.
//! Method: a device of this process on the loopback that leaves and returns, and a node that is started again.

use serde_json::{Value, json};

use crate::common::devices::{looking, until};
use crate::common::linked;
use crate::common::medical::{Hosting, Monitor};
use crate::common::{Operated, block, get, own_address, send, write_sensor};

async fn status(node: &Operated, token: &str, path: &str) -> u16 {
    let credential = format!("Bearer {token}");
    let fields = [("Authorization", credential.as_str())];
    send(&node.node, "GET", path, &fields, b"").await.status
}

fn entity(key: &str) -> String {
    format!(
        "/api/v1/entities/{}",
        key.replace(':', "%3A").replace('/', "%2F")
    )
}

#[test]
fn rights_to_a_device_and_its_stream_last_when_it_comes_back_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = looking(directory.path());
    block(async {
        let node = Operated::start(&config, None).await;
        let (ada, eve) = (
            node.account("ada", &["read"]).await,
            node.account("eve", &["read"]).await,
        );
        let address = own_address().to_string();
        let first = Monitor::start(&address, Hosting::Together);
        let (endpoint, name) = (first.host.endpoint().to_owned(), first.name.clone());
        let (path, stream) = (first.path(), first.stream("steady"));
        let device = until(&node.node, &path, |device| device["state"] == "usable").await;
        let device = entity(device["key"].as_str().unwrap());
        let stream = entity(&format!("urn:chappe:stream:{stream}"));
        let stated = json!({"read": ["account:ada"], "annotate": []});
        for of in [&device, &stream] {
            until(&node.node, of, |_| true).await;
            let set = node.change("PUT", &format!("{of}/rights"), &stated).await;
            assert_eq!(set.status, 200, "{set:?}");
        }
        let check = async |node: &Operated| {
            for of in [&device, &stream] {
                let is_shown = || async { status(node, &ada, of).await == 200 };
                linked::until("ada sees it", is_shown).await;
                assert_eq!(get(&node.node, of).await.status, 404);
                assert_eq!(status(node, &eve, of).await, 404);
                let rights = node
                    .change("GET", &format!("{of}/rights"), &Value::Null)
                    .await;
                assert_eq!(rights.json()["read"], json!(["account:ada"]));
                assert_eq!(rights.json()["annotate"], json!([]));
            }
        };
        check(&node).await;

        // It leaves, and its entities with it; they come back with their rights.
        first.host.stop().await;
        until(&node.node, &path, |device| device["state"] == "gone").await;
        for of in [&device, &stream] {
            let is_gone = || async { status(&node, &ada, of).await == 404 };
            linked::until("it is gone", is_gone).await;
        }
        let monitor = Monitor::start_as(&endpoint, &name, &address, Hosting::Together);
        until(&node.node, &path, |device| device["state"] == "usable").await;
        check(&node).await;
        let token = node.token.clone();
        node.node.shutdown().await.unwrap();

        let node = Operated::start(&config, Some(token.clone())).await;
        until(&node.node, &path, |device| device["state"] == "usable").await;
        check(&node).await;
        // Taken back, they are those of an entity for which nothing is stated.
        let everybody = json!({"read": ["everybody"]});
        for of in [&device, &stream] {
            let set = node
                .change("PUT", &format!("{of}/rights"), &everybody)
                .await;
            assert_eq!(set.status, 200, "{set:?}");
            assert_eq!(get(&node.node, of).await.status, 200);
        }
        node.node.shutdown().await.unwrap();
        let kept = std::fs::read_to_string(config.data_directory.join("rights.json")).unwrap();
        assert!(!kept.contains("urn:chappe"), "{kept}");
        let node = Operated::start(&config, Some(token)).await;
        until(&node.node, &device, |_| true).await;
        node.node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

#[test]
fn an_administrator_of_a_sensor_may_change_its_rights_until_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let config = crate::common::config(directory.path());
    let sensor = "name = \"one\"\n[[source]]\nalias = \"a\"\nstream = \"in\"\nwindow = 1\n[output]\n\
        sql = \"select 1 as v from a\"\n[[output.field]]\nname = \"v\"\ntype = \"integer\"\n";
    write_sensor(directory.path(), "one", sensor);
    block(async {
        let node = Operated::start(&config, None).await;
        let ada = node.account("ada", &["write"]).await;
        let key = entity("urn:chappe:virtual-sensor:one");
        until(&node.node, &key, |_| true).await;
        let rights = format!("{key}/rights");
        let as_ada = async |body: Value| {
            let credential = format!("Bearer {ada}");
            let fields = [("Authorization", credential.as_str())];
            let body = body.to_string();
            send(&node.node, "PUT", &rights, &fields, body.as_bytes())
                .await
                .status
        };
        let hidden = json!({"read": ["account:ada"]});
        assert_eq!(as_ada(hidden.clone()).await, 403);
        let given = json!({"read": ["everybody"], "administer": ["account:ada"]});
        assert_eq!(node.change("PUT", &rights, &given).await.status, 200);
        assert_eq!(as_ada(hidden).await, 200);
        assert_eq!(get(&node.node, &key).await.status, 404);
        // It gave up its right to administer with that.
        assert_eq!(as_ada(given).await, 403);

        let path = "/api/v1/virtual-sensors/one";
        assert_eq!(node.change("DELETE", path, &Value::Null).await.status, 204);
        let put = node.change_bytes("PUT", path, sensor.as_bytes()).await;
        assert!(put.status < 300, "{put:?}");
        until(&node.node, &key, |_| true).await;
        node.node.shutdown().await.unwrap();
    });
}
