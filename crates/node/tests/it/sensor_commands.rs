//! Goal: a call of a virtual sensor's command is stored, read by the sensor's statement, and still read after a
//! restart; a call that does not fit, or whose wrapper is not there, changes nothing.
//! Method: a node whose sensor compares a stream with the limit that its command sets, called over REST.

use crate::common::devices::until;
use crate::common::linked::stored;
use crate::common::{Operated, block, config, get, send, write_sensor};
use chappe_stream::Value;
use serde_json::json;

const SENSOR: &str = r#"
name = "warm"
[[command]]
name = "limit"
[[command.field]]
name = "top"
type = "double"
required = true
[[command]]
name = "boost"
pass_to = { wrapper = "boiler" }
[[source]]
alias = "t"
stream = "room"
[[source]]
alias = "calls"
command = "limit"
[output]
sql = "select t.a > coalesce(calls.top, 30) as warm from t left join calls"
[[output.field]]
name = "warm"
type = "boolean"
"#;

/// Writes a temperature of the room.
async fn warm(operated: &Operated, value: f64) {
    let elements = json!([{ "a": value }]).to_string();
    let credential = format!("Bearer {}", operated.token);
    let fields = [
        ("Authorization", credential.as_str()),
        ("Content-Type", "application/json"),
    ];
    let path = "/api/v1/streams/room/elements";
    let written = send(&operated.node, "POST", path, &fields, elements.as_bytes()).await;
    assert_eq!(written.status, 200, "{written:?}");
}

const PATH: &str = "/api/v1/virtual-sensors/warm";

/// The last of `count` results.
async fn result(operated: &Operated, count: usize) -> Value {
    let held = stored(&operated.node, "warm", |held| held.len() >= count).await;
    held[count - 1].values[0].clone()
}

#[test]
fn a_call_is_stored_and_read() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        write_sensor(directory.path(), "warm", SENSOR);
        let operated = Operated::start(&config, None).await;
        let node = &operated.node;
        let room = json!({ "name": "room", "fields": [{ "name": "a", "type": "double" }] });
        let defined = operated.change("POST", "/api/v1/streams", &room).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        let shown = until(node, PATH, |sensor| sensor["state"] == "running").await;
        assert_eq!(shown["commands"][0]["stream"], "warm.command.limit");
        assert_eq!(shown["commands"][0]["fields"][0]["type"], "double");
        assert_eq!(shown["commands"][1]["wrapper"], "boiler");
        warm(&operated, 25.0).await;
        assert_eq!(result(&operated, 1).await, Value::Boolean(false));

        let call = async |command: &str, arguments: serde_json::Value| {
            let path = format!("{PATH}/commands/{command}");
            operated.change("POST", &path, &arguments).await
        };
        for (command, arguments, status, text) in [
            ("limit", json!({}), 422, "top: this argument is missing"),
            ("limit", json!({ "tip": 1 }), 422, "did you mean `top`?"),
            ("limit", json!({ "top": "warm" }), 422, "a finite number"),
            ("limt", json!({}), 404, "did you mean"),
            ("boost", json!({}), 404, "boiler"),
        ] {
            let answer = call(command, arguments).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.body.contains(text), "{answer:?}");
        }
        let path = format!("{PATH}/commands/limit");
        let stranger = send(node, "POST", &path, &[], b"{\"top\": 1}").await;
        assert_eq!(stranger.status, 401);
        let answer = call("limit", json!({ "top": 20 })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        assert_eq!(
            (&answer["stream"], &answer["sequence"]),
            (&json!("warm.command.limit"), &json!(1))
        );
        assert_eq!(result(&operated, 2).await, Value::Boolean(true));
        let calls = get(node, "/api/v1/streams/warm.command.limit/elements").await;
        assert!(calls.body.contains("\"top\":20"), "{calls:?}");
        let Operated { node, token } = operated;
        node.shutdown().await.unwrap();

        let operated = Operated::start(&config, Some(token)).await;
        warm(&operated, 22.0).await;
        let held = stored(&operated.node, "warm", |held| held.len() >= 3).await;
        assert_eq!(held.last().unwrap().values[0], Value::Boolean(true));
        operated.node.shutdown().await.unwrap();
    });
}
