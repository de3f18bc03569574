//! Goal: a preview shows what a descriptor would make of recorded elements and changes nothing; an impossible one says why.
//! Method: a node with elements of a stream, and descriptors over it sent over REST.

use crate::common::{Operated, block, config, get, send};
use serde_json::{Value, json};

const SENSOR: &str = r#"
name = "warm"
[[source]]
alias = "t"
stream = "room"
window = 2
slide = 1
[output]
sql = "select avg(a) as mean from t"
[[output.field]]
name = "mean"
type = "double"
"#;

/// Sends a request with a credential; returns its status and document.
async fn ask(operated: &Operated, path: &str, media_type: &str, body: &str) -> (u16, Value) {
    let credential = format!("Bearer {}", operated.token);
    let fields = [
        ("Authorization", credential.as_str()),
        ("Content-Type", media_type),
    ];
    let answer = send(&operated.node, "POST", path, &fields, body.as_bytes()).await;
    let document = serde_json::from_str(&answer.body).unwrap_or_default();
    (answer.status, document)
}

#[test]
fn a_preview_shows_inputs_with_their_results() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        let operated = Operated::start(&config, None).await;
        let room = json!({ "name": "room", "fields": [{ "name": "a", "type": "double" }] });
        let defined = operated.change("POST", "/api/v1/streams", &room).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        let elements = json!([
            { "source_time": "2026-11-21T09:00:00Z", "a": 1.0 },
            { "source_time": "2026-11-21T10:00:00Z", "a": 2.0 },
            { "source_time": "2026-11-21T08:00:00Z", "a": 8.0 },
            { "source_time": "2026-11-21T10:00:01Z", "a": 4.0 },
        ]);
        let path = "/api/v1/streams/room/elements";
        let (status, written) =
            ask(&operated, path, "application/json", &elements.to_string()).await;
        assert_eq!(status, 200, "{written}");

        let preview = "/api/v1/virtual-sensors/warm/preview";
        let (status, shown) = ask(&operated, preview, "application/toml", SENSOR).await;
        assert_eq!(status, 200, "{shown}");
        assert_eq!(shown["inputs"][0]["stream"], "room");
        assert_eq!(
            (&shown["elements_in"], &shown["left_out"]),
            (&json!(2), &json!(0))
        );
        let means: Vec<&Value> = shown["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| &step["outputs"][0]["values"]["mean"])
            .collect();
        assert_eq!(means, [&json!(2.0), &json!(3.0)]);
        assert_eq!(shown["unused"], json!([]));
        let day = format!("{preview}?last_s=86400");
        let (_, shown) = ask(&operated, &day, "application/toml", SENSOR).await;
        assert_eq!(shown["elements_in"], 4, "{shown}");
        let late = json!({ "source": "t", "reason": "late", "count": 1 });
        assert_eq!(shown["unused"], json!([late]), "{shown}");

        for (text, path, status, words) in [
            (
                SENSOR.replace("avg(a)", "avg(b)"),
                preview,
                422,
                "compare the columns",
            ),
            (
                SENSOR.replace("\"room\"", "\"hall\""),
                preview,
                422,
                "no stream \\\"hall\\\"",
            ),
            (
                SENSOR.replace("window = 2", "window = \"2 sec\""),
                preview,
                422,
                "sensor.toml:6",
            ),
            (
                SENSOR.replace("\"warm\"", "\"cold\""),
                preview,
                422,
                "use the same name",
            ),
            (
                SENSOR.to_owned(),
                "/api/v1/virtual-sensors/warm/preview?last_s=0",
                400,
                "1 to 86400",
            ),
        ] {
            let (found, problem) = ask(&operated, path, "application/toml", &text).await;
            assert_eq!(found, status, "{problem}");
            assert!(problem.to_string().contains(words), "{words}: {problem}");
        }
        let none = get(&operated.node, "/api/v1/virtual-sensors").await.json();
        assert_eq!(
            none["virtual_sensors"],
            json!([]),
            "a preview makes no sensor"
        );
        assert!(operated.node.stream("warm").is_none());
    });
}

#[test]
fn a_preview_ends_within_its_time() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        let operated = Operated::start(&config, None).await;
        let room = json!({ "name": "room", "fields": [{ "name": "a", "type": "double" }] });
        let defined = operated.change("POST", "/api/v1/streams", &room).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        let element = |a: u8| {
            let time = format!("2026-11-21T09:{:02}:{:02}Z", a / 60, a % 60);
            json!({ "source_time": time, "a": f64::from(a) })
        };
        let elements = Value::from_iter((0..100).map(element)).to_string();
        let path = "/api/v1/streams/room/elements";
        let (status, written) = ask(&operated, path, "application/json", &elements).await;
        assert_eq!(status, 200, "{written}");
        // Each of many evaluations takes as many steps as it may, by two statements: the second one is interrupted too.
        let endless = r#"
name = "warm"
[[statement]]
name = "first"
sql = "select count(*) as n from t a join t b join t c join t d join t e"
[[statement.source]]
alias = "t"
stream = "room"
window = 100
slide = 1
[[statement]]
name = "second"
sql = "select count(*) as n from u a join u b join u c join u d join u e"
[[statement.source]]
alias = "u"
stream = "room"
window = 100
slide = 1
[output]
[[output.field]]
name = "n"
type = "integer"
"#;
        let preview = "/api/v1/virtual-sensors/warm/preview";
        let asked = ask(&operated, preview, "application/toml", endless);
        let limit = std::time::Duration::from_secs(60);
        let (status, problem) = tokio::time::timeout(limit, asked).await.unwrap();
        assert_eq!(status, 422, "{problem}");
        assert!(problem.to_string().contains("stopped"), "{problem}");
        operated.node.shutdown().await.unwrap();
    });
}
