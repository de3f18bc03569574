//! Goal: what was acknowledged is there after the node has ended and begun again, under the same
//! numbers; and a node that cannot begin says why and what to do.
//! Method: nodes that begin one after another, or one beside another, over the same directory.

use crate::common::{config, get, start};
use chappe_node::{Node, StartError};
use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, Timestamp, Value};

fn block<T>(future: impl Future<Output = T>) -> T {
    chappe_node::runtime().unwrap().block_on(future)
}

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "text".into(),
            field_type: FieldType::Text,
            unit: None,
            observed_property: Some("urn:example:words".into()),
            description: None,
        }],
        key: None,
    }
}

fn element(text: &str) -> StreamElement {
    StreamElement {
        position: Default::default(),
        source_time: Timestamp(1),
        receive_time: Timestamp(2),
        key: Some("bed 1".into()),
        values: vec![Value::Text(text.into())],
        quality: Default::default(),
        origin: None,
    }
}

#[test]
fn elements_numbers_key_and_token_survive() {
    let directory = tempfile::tempdir().unwrap();
    let path = "/api/v1/streams/ward.words";
    let (key, before) = block(async {
        let node = start(directory.path()).await;
        node.store("ward.words", &schema(), &[element("one"), element("two")])
            .await
            .unwrap();
        let found = get(
            &node,
            "/api/v1/entities?observed_property=urn:example:words",
        )
        .await;
        assert_eq!(found.json()["entities"][0]["name"], "ward.words");
        let before = get(&node, path).await.json();
        let key = node.key().to_owned();
        node.shutdown().await.unwrap();
        (key, before)
    });
    block(async {
        let node = start(directory.path()).await;
        assert_eq!(node.key(), key);
        assert!(node.new_token().is_none());
        let after = get(&node, path).await.json();
        for member in [
            "epoch",
            "first",
            "last",
            "fields",
            "level",
            "source",
            "last_time",
        ] {
            assert_eq!(after[member], before[member], "{member}");
        }
        node.store("ward.words", &schema(), &[element("three")])
            .await
            .unwrap();
        let page = get(&node, &format!("{path}/elements?after=0:0"))
            .await
            .json();
        let elements = page["elements"].as_array().unwrap();
        assert_eq!(elements.len(), 3);
        assert_eq!(elements[2]["number"], 3);
        assert_eq!(elements[2]["epoch"], before["epoch"]);
        assert_eq!(elements[0]["key"], "bed 1");
        let own = format!("/api/v1/entities/urn%3Achappe%3Anode%3A{key}");
        assert_eq!(get(&node, &own).await.status, 200);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_node_that_cannot_begin_says_why_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        let error = Node::start(config(directory.path())).await.unwrap_err();
        assert!(matches!(error, StartError::Locked { .. }), "{error}");
        assert!(error.to_string().contains(&std::process::id().to_string()));
        assert!(error.hint().unwrap().contains("data_directory"));

        let other = tempfile::tempdir().unwrap();
        let mut taken = config(other.path());
        taken.http.listen = node.address();
        let error = Node::start(taken).await.unwrap_err();
        assert!(matches!(error, StartError::Listen { .. }), "{error}");
        assert!(error.hint().unwrap().contains("ss -ltnp"), "{error}");

        let mut file = config(other.path());
        file.data_directory = other.path().join("file");
        std::fs::write(&file.data_directory, "").unwrap();
        let error = Node::start(file).await.unwrap_err();
        assert!(matches!(error, StartError::Directory { .. }), "{error}");

        let mut shared = config(other.path());
        shared.data_directory = other.path().join("shared");
        let first = Node::start(shared.clone()).await.unwrap();
        first.shutdown().await.unwrap();
        let key = shared.data_directory.join("key.pem");
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Node::start(shared).await.unwrap_err();
        assert!(matches!(error, StartError::Key(_)), "{error}");
        assert!(error.hint().unwrap().contains("chmod 600"));
        node.shutdown().await.unwrap();
    });
}
