//! Goal: a dead letter of a wrapper is sent again whole, once and with the time of its receipt, or it stays.
//! Method: a node in this process with webhooks that take messages which they cannot decode or store.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{self, Answer, Operated, block};

/// The file of a webhook: its format, its limits, and a stream with one integer that `path` finds.
fn hook(format: &str, limits: &str, stream: &str, path: &str) -> String {
    format!(
        "kind = \"webhook\"\nformat = {format}\nlimits = {{ {limits} }}\n[[stream]]\n{stream}\n\
         fields = [{{ name = \"n\", path = \"{path}\", type = \"integer\" }}]\n"
    )
}

fn write(directory: &Path, name: &str, text: &str) {
    let folder = directory.join("wrappers");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

/// A node with webhooks.
struct Hooks<'d> {
    operated: Operated,
    directory: &'d Path,
}

impl<'d> Hooks<'d> {
    async fn start(directory: &'d Path) -> Self {
        std::fs::create_dir_all(directory.join("wrappers")).unwrap();
        let mut config = common::config(directory);
        config.http.max_body_bytes = 4 << 20;
        let operated = Operated::start(&config, None).await;
        Self {
            operated,
            directory,
        }
    }

    /// Writes the file of a webhook, and waits until it takes messages.
    async fn define(&self, name: &str, text: &str) {
        write(self.directory, name, text);
        let path = format!("/api/v1/wrappers/{name}");
        let runs = |row: &Value| {
            row["toml"] == text && row["state"] == "waiting" && row["reason"].is_string()
        };
        common::devices::until(&self.operated.node, &path, runs).await;
    }

    async fn post(&self, name: &str, body: &str) -> Value {
        let path = format!("/api/v1/wrappers/{name}/messages");
        let credential = format!("Bearer {}", self.operated.token);
        let fields = [("Authorization", credential.as_str())];
        let node = &self.operated.node;
        let answer: Answer = common::send(node, "POST", &path, &fields, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    async fn resend(&self, name: &str) -> Value {
        let path = format!("/api/v1/wrappers/{name}/dead-letters/send-again");
        self.operated.change("POST", &path, &json!({})).await.json()
    }

    async fn letters(&self, name: &str) -> Vec<Value> {
        let path = format!("/api/v1/wrappers/{name}/dead-letters");
        let list = common::get(&self.operated.node, &path).await.json();
        list["dead_letters"].as_array().unwrap().clone()
    }

    fn stored(&self, stream: &str) -> Vec<String> {
        let log = self.operated.node.stream(stream);
        let read = log.map(|log| log.read(0, 50_000).unwrap());
        let values = read.into_iter().flatten();
        values
            .map(|element| format!("{:?}", element.values[0]))
            .collect()
    }
}

#[test]
fn a_long_message_is_sent_again_whole_and_one_that_was_cut_never() {
    let temporary = tempfile::tempdir().unwrap();
    block(async {
        let hooks = Hooks::start(temporary.path()).await;
        let file = |path| hook("\"key_value\"", "", "name = \"x\"", path);
        hooks.define("x", &file("wrong")).await;
        let lines = |count: u64| (1..=count).map(|n| format!("n={n}\n")).collect::<String>();
        let (kept, cut) = (lines(20_000), lines(300_000));
        assert!(kept.len() > 64 << 10 && cut.len() > 2 << 20);
        hooks.post("x", &kept).await;
        hooks.post("x", &cut).await;
        let letters = hooks.letters("x").await;
        assert_eq!(letters[0]["bytes"], kept.len());
        let are_cut = [&letters[0]["is_cut"], &letters[1]["is_cut"]];
        assert_eq!(are_cut, [&json!(false), &json!(true)]);
        hooks.define("x", &file("n")).await;
        let result = hooks.resend("x").await;
        assert_eq!(result["done"], 1, "{result}");
        let why = result["refused"][0]["why"].as_str().unwrap();
        assert!(why.contains("only the beginning"), "{why}");
        assert_eq!(hooks.stored("x").len(), 20_000);
        assert_eq!(hooks.stored("x")[19_999], "Integer(20000)");
        assert_eq!(hooks.letters("x").await.len(), 1);
        hooks.operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_element_for_whose_stream_there_was_no_room_is_sent_again() {
    let temporary = tempfile::tempdir().unwrap();
    block(async {
        let hooks = Hooks::start(temporary.path()).await;
        let regex = "{ regex = { pattern = '^(?<m>[a-z]+) (?<n>[0-9]+)$', unmatched = \"skip\" } }";
        let named = |name: &str, rest: &str| format!("name = \"{name}.{{m}}\"\n{rest}");
        for (name, format, stream, path) in [
            (
                "j",
                "\"json\"",
                named("j", "variables = { m = \"$.m\" }"),
                "$.n",
            ),
            ("r", regex, named("r", ""), "n"),
        ] {
            let message = |m: &str, n: u64| match name {
                "j" => json!({ "m": m, "n": n }).to_string(),
                _ => format!("{m} {n}\n"),
            };
            let file = |limit| hook(format, limit, &stream, path);
            hooks.define(name, &file("streams = 1")).await;
            assert_eq!(hooks.post(name, &message("a", 1)).await["elements"], 1);
            for n in [2, 3] {
                let answer = hooks.post(name, &message("b", n)).await;
                assert_eq!(answer["refused"], 1, "{answer}");
            }
            let letters = hooks.letters(name).await;
            let text = letters[0]["text"].as_str().unwrap();
            assert!(text.contains("\"n\":2"), "{text}");
            let result = hooks.resend(name).await;
            assert_eq!(result["done"], 0, "still no room: {result}");
            hooks.define(name, &file("streams = 10")).await;
            let result = hooks.resend(name).await;
            assert_eq!(result["done"], 2, "{result}");
            let stored = hooks.stored(&format!("{name}.b"));
            assert_eq!(stored, ["Integer(2)", "Integer(3)"]);
            assert_eq!(hooks.letters(name).await.len(), 0);
        }
        // A message that is nothing by the present file stays.
        hooks
            .define("r", &hook("\"json\"", "", "name = \"r.x\"", "$.n"))
            .await;
        hooks.post("r", "no JSON").await;
        hooks
            .define("r", &hook(regex, "", "name = \"r.x\"", "n"))
            .await;
        let result = hooks.resend("r").await;
        assert_eq!(result["done"], 0, "{result}");
        assert_eq!(hooks.letters("r").await.len(), 1);
        hooks.operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_letter_sent_again_has_the_time_of_its_receipt_and_is_missed_no_more() {
    let temporary = tempfile::tempdir().unwrap();
    block(async {
        let hooks = Hooks::start(temporary.path()).await;
        let file = |path| hook("\"json\"", "", "name = \"x\"", path);
        hooks.define("x", &file("$.wrong")).await;
        for n in 1..=3 {
            hooks.post("x", &json!({ "n": n }).to_string()).await;
        }
        let received: Vec<String> = (hooks.letters("x").await.iter())
            .map(|letter| letter["received_at"].as_str().unwrap().to_owned())
            .collect();
        hooks.define("x", &file("$.n")).await;
        let discard = "/api/v1/wrappers/x/dead-letters/discard";
        let number = hooks.letters("x").await[2]["number"].clone();
        let body = json!({ "numbers": [number] });
        hooks.operated.change("POST", discard, &body).await;
        assert_eq!(hooks.resend("x").await["done"], 2);
        let log = hooks.operated.node.stream("x").unwrap();
        let elements = log.read(0, 10).unwrap();
        let times: Vec<String> = elements
            .iter()
            .map(|element| element.source_time.to_string())
            .collect();
        assert_eq!(times, received[..2]);
        // Losses are written within a second.
        let path = "/api/v1/streams/x/completeness";
        let restored = |answer: &Value| answer["refused"]["dead_letter"]["elements"] == 1;
        let node = &hooks.operated.node;
        common::devices::until(node, path, restored).await;
        hooks.operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn letters_are_sent_again_once_though_the_file_changes_meanwhile() {
    const LETTERS: usize = 200;
    let temporary = tempfile::tempdir().unwrap();
    block(async {
        let hooks = Hooks::start(temporary.path()).await;
        let file = |path| hook("\"json\"", "", "name = \"x\"", path);
        hooks.define("x", &file("$.wrong")).await;
        for n in 0..LETTERS {
            hooks.post("x", &json!({ "n": n }).to_string()).await;
        }
        hooks.define("x", &file("$.n")).await;
        let again = async {
            let begun = async {
                while hooks.stored("x").is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            };
            begun.await;
            hooks
                .define("x", &format!("# changed\n{}", file("$.n")))
                .await;
            hooks.resend("x").await
        };
        let (first, second) = tokio::join!(hooks.resend("x"), again);
        let done = |result: &Value| result["done"].as_u64().unwrap();
        assert_eq!(done(&first) + done(&second), LETTERS as u64);
        let mut stored = hooks.stored("x");
        stored.sort();
        stored.dedup();
        assert_eq!(stored.len(), LETTERS);
        assert_eq!(hooks.stored("x").len(), LETTERS);
        assert_eq!(hooks.letters("x").await.len(), 0);
        hooks.operated.node.shutdown().await.unwrap();
    });
}
