//! Goal: what the registry holds is found, shown, published and removed by the command line; an error has code 2 and
//! names the remedy, and a negative result code 1.
//! Method: a real node in this process and the built program.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use chappe_node::Node;
use chappe_node::config::Config;
use serde_json::{Value as Json, json};

struct Bench {
    node: Node,
    token: String,
}

impl Bench {
    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
        command.arg("registry").args(arguments);
        command.args(["--node", &self.node.url()]);
        command.env("CHAPPE_TOKEN", &self.token);
        let running = tokio::task::spawn_blocking(move || command.output());
        running.await.expect("it runs").expect("the program starts")
    }

    async fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    async fn json(&self, arguments: &[&str]) -> Json {
        let text = self.text(&[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&text).expect("JSON")
    }

    /// The lines of a program that runs on, up to the one with this event.
    async fn lines_until(&self, arguments: &[&str], event: &'static str) -> Vec<Json> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
        command.arg("registry").args(arguments);
        command.args(["--node", &self.node.url()]);
        command.env("CHAPPE_TOKEN", &self.token);
        let mut running = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let output = running.stdout.take().expect("its output");
        let reading = tokio::task::spawn_blocking(move || {
            let lines = BufReader::new(output).lines();
            let lines = lines.map(|line| serde_json::from_str::<Json>(&line.expect("text")));
            let mut found = Vec::new();
            for line in lines {
                found.push(line.expect("JSON"));
                if found[found.len() - 1]["event"] == event {
                    break;
                }
            }
            running.kill().expect("it is killed");
            running.wait().expect("it ends");
            found
        });
        reading.await.expect("it is read")
    }

    /// The exit code, and what standard error says.
    async fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments).await;
        let told = String::from_utf8(output.stderr).expect("text");
        (output.status.code().expect("a code"), told)
    }
}

impl Bench {
    async fn start(folder: &std::path::Path) -> Self {
        let mut config = Config {
            name: "test".into(),
            data_directory: folder.join("data"),
            sensors_directory: folder.join("sensors"),
            ..Config::default()
        };
        config.http.listen = "127.0.0.1:0".parse().expect("an address");
        config.discovery.enabled = false;
        // Subscribers by WS-Eventing are on the loopback.
        config.discovery.contact = vec!["127.0.0.1/32".into()];
        config.log.min_free_bytes = 0;
        let node = Node::start(config).await.expect("it starts");
        let token = node.new_token().expect("a new token").to_owned();
        Self { node, token }
    }
}

fn on_bench(work: impl AsyncFnOnce(&Bench, &std::path::Path)) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let runtime = chappe_node::runtime().expect("a runtime");
    runtime.block_on(async {
        let bench = Bench::start(folder.path()).await;
        work(&bench, folder.path()).await;
        bench.node.shutdown().await.expect("it ends");
    });
}

#[test]
fn entities_are_published_found_shown_and_removed() {
    on_bench(async |bench, folder| {
        let key = "http://example.com/pump-7";
        let turtle = folder.join("pump.ttl");
        let document =
            "<> <http://example.com/flow> 2.5 ; <http://example.com/note> \"Pumpe\"@de .";
        std::fs::write(&turtle, document).expect("written");
        let turtle = turtle.to_str().expect("text");
        let publish = [
            "publish", key, "Pump 7", "--kind", "device", "--turtle", turtle,
        ];
        let told = bench.text(&publish).await;
        assert_eq!(told.trim(), format!("published {key} with 2 properties"));
        let found = bench.json(&["find", "pump", "--kind", "device"]).await;
        assert_eq!(found["truncated"], false);
        assert_eq!(found["entities"][0]["key"], key);
        let shown = bench.json(&["show", key]).await;
        let note = &shown["triples"][1];
        assert_eq!(
            (&note["object"], &note["language"]),
            (&json!("Pumpe"), &json!("de"))
        );
        let shown = bench.text(&["show", key]).await;
        assert!(
            shown.contains("<http://www.w3.org/2001/XMLSchema#decimal>"),
            "{shown}"
        );
        assert!(shown.contains("\"Pumpe\"@de"), "{shown}");
        let asked = "SELECT ?s WHERE { ?s <http://example.com/flow> 2.5 }";
        let rows = bench.text(&["query", asked, "--format", "csv"]).await;
        assert_eq!(rows.lines().nth(1), Some(key));
        bench.text(&["remove", key]).await;
        let (code, told) = bench.refused(&["find", "pump"]).await;
        assert_eq!(code, 1, "{told}");
        assert!(told.contains("no entity matches"), "{told}");
    });
}

#[test]
fn errors_name_the_remedy() {
    on_bench(async |bench, folder| {
        let (code, told) = bench.refused(&["show", "urn:x:none"]).await;
        assert_eq!(code, 2);
        assert!(told.contains("there is no entity \"urn:x:none\""), "{told}");
        let (code, told) = bench.refused(&["find", "--kind", "stram"]).await;
        assert_eq!(code, 2);
        assert!(told.contains("did you mean \"stream\"?"), "{told}");
        let turtle = folder.join("wrong.ttl");
        std::fs::write(&turtle, "<> <http://example.com/flow> .").expect("written");
        let turtle = turtle.to_str().expect("text");
        let (code, told) = bench
            .refused(&["publish", "urn:x:1", "One", "--turtle", turtle])
            .await;
        assert_eq!(code, 2);
        assert!(told.contains("cannot be parsed"), "{told}");
        let (code, told) = bench.refused(&["publish", "pump", "One"]).await;
        assert_eq!(code, 2);
        assert!(told.contains("not an absolute IRI"), "{told}");
    });
}

#[test]
fn leases_are_given_and_renewed() {
    on_bench(async |bench, _| {
        let key = "http://example.com/pump-7";
        bench
            .text(&["publish", key, "Pump 7", "--lease", "10m"])
            .await;
        assert_eq!(bench.json(&["show", key]).await["lease_s"], 600);
        let shown = bench.text(&["show", key]).await;
        assert!(shown.contains("600 s"), "{shown}");
        let told = bench.text(&["renew", key]).await;
        assert_eq!(told.trim(), format!("renewed {key} for 600 s"));
        let annotate = ["annotate", key, "urn:trust", "high", "--lease", "90m"];
        let piece = bench.json(&annotate).await;
        assert_eq!(piece["lease_s"], 5_400);
        let renewed = bench
            .json(&["renew", piece["key"].as_str().expect("a key")])
            .await;
        assert_eq!(renewed["lease_s"], 5_400);
        bench.text(&["publish", key, "Pump 7"]).await;
        let (code, told) = bench.refused(&["renew", key]).await;
        assert_eq!(code, 2);
        assert!(told.contains("has no lease"), "{told}");
        assert!(told.contains("lease_s"), "{told}");
        let mail = ["subscribe", "--mail", "ops@example.org", "--lease", "30d"];
        let (code, told) = bench.refused(&mail).await;
        assert_eq!(code, 2);
        assert!(told.contains("mail.server"), "{told}");
        let (code, told) = bench.refused(&["unsubscribe", "0"]).await;
        assert_eq!(code, 2);
        assert!(told.contains("there is no subscription"), "{told}");
    });
}

#[test]
fn a_list_that_was_cut_says_so() {
    on_bench(async |bench, _| {
        for number in 0..3 {
            let key = format!("urn:x:{number}");
            bench
                .text(&["publish", &key, &format!("cut {number}")])
                .await;
        }
        let output = bench.run(&["find", "cut", "--limit", "2"]).await;
        let told = String::from_utf8(output.stderr).expect("text");
        assert!(told.contains("more than these 2 exist"), "{told}");
        let all = bench.json(&["find", "cut"]).await;
        assert_eq!(all["entities"].as_array().map(Vec::len), Some(3));
        for value in ["1", "2"] {
            bench
                .text(&["annotate", "urn:x:0", "urn:y:note", value])
                .await;
        }
        let output = bench.run(&["annotations", "urn:x:0", "--limit", "1"]).await;
        let told = String::from_utf8(output.stderr).expect("text");
        assert!(told.contains("more than these 1 exist"), "{told}");
        let all = bench
            .json(&["annotations", "urn:x:0", "--limit", "2"])
            .await;
        assert_eq!(all["truncated"], false);
    });
}

#[test]
fn changes_are_followed_and_resumed() {
    on_bench(async |bench, _| {
        bench.text(&["publish", "urn:x:1", "One"]).await;
        let follow = ["subscribe", "--owner", "operator", "--present", "--json"];
        let lines = bench.lines_until(&follow, "synced").await;
        let [.., added, synced] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!(
            (&added["event"], &added["key"]),
            (&json!("added"), &json!("urn:x:1"))
        );
        let id = synced["id"].as_str().expect("an id");
        bench.text(&["publish", "urn:x:2", "Two"]).await;
        bench.text(&["remove", "urn:x:1"]).await;
        let resumed = [
            "subscribe",
            "--owner",
            "operator",
            "--after",
            id,
            "--count",
            "2",
        ];
        let seen = bench.text(&resumed).await;
        let changes: Vec<_> = seen
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(changes[0], ["added", "other", "urn:x:2", "Two"], "{seen}");
        assert_eq!(changes[1][..3], ["removed", "other", "urn:x:1"], "{seen}");
        let (code, told) = bench.refused(&["subscribe", "--query", "SELECT"]).await;
        assert_eq!(code, 2, "{told}");
    });
}

#[test]
fn metadata_is_attached_listed_updated_and_withdrawn() {
    on_bench(async |bench, _| {
        let (subject, state) = ("http://example.com/pump-7", "http://example.com/calibrated");
        bench.text(&["publish", subject, "Pump 7"]).await;
        let key = bench
            .text(&["annotate", subject, state, "2026-11-20"])
            .await;
        let key = key.trim();
        bench
            .text(&["annotate", subject, state, "2026-11-26", "--piece", key])
            .await;
        let manual = [
            "annotate",
            subject,
            "http://example.com/manual",
            "--uri",
            "http://example.com/pump.pdf",
        ];
        bench.text(&manual).await;
        let listed = bench.json(&["annotations", subject, "--type", state]).await;
        let piece = &listed["pieces"][0];
        assert_eq!(
            (&piece["value"], &piece["author"]),
            (&json!("2026-11-26"), &json!("operator"))
        );
        let shown = bench.text(&["annotations", subject]).await;
        assert!(shown.contains("<http://example.com/pump.pdf>"), "{shown}");
        bench.text(&["withdraw", key]).await;
        let (code, told) = bench
            .refused(&["annotations", subject, "--type", state])
            .await;
        assert_eq!(code, 1, "{told}");
        let (code, told) = bench.refused(&["annotate", "urn:x:none", state, "1"]).await;
        assert_eq!(code, 2, "{told}");
    });
}

#[test]
fn a_registry_moves_to_another_node_in_a_file() {
    on_bench(async |bench, folder| {
        let subject = "http://example.com/pump-7";
        bench
            .text(&["publish", subject, "Pump 7", "--kind", "device"])
            .await;
        bench
            .text(&[
                "annotate",
                subject,
                "http://example.com/calibrated",
                "2026-11-20",
            ])
            .await;
        let file = folder.join("registry.nq");
        let file = file.to_str().expect("text").to_owned();
        bench.text(&["export", "--to", &file]).await;
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let other = Bench::start(scratch.path()).await;
        let told = other.text(&["import", &file]).await;
        assert!(told.starts_with("imported "), "{told}");
        let shown = other.json(&["show", subject]).await;
        assert_eq!(shown, bench.json(&["show", subject]).await);
        let pieces = other.json(&["annotations", subject]).await;
        assert_eq!(pieces["pieces"][0]["value"], "2026-11-20");
        let (code, told) = other.refused(&["import", "registry.txt"]).await;
        assert_eq!(code, 2);
        assert!(told.contains("--format"), "{told}");
        let wrong = format!("{file}.nq");
        std::fs::write(&wrong, "<urn:x:1> nonsense .").expect("written");
        let (code, told) = other.refused(&["import", &wrong]).await;
        assert_eq!(code, 2);
        assert!(told.contains("line 1"), "{told}");
        other.node.shutdown().await.expect("it ends");
    });
}

#[test]
fn rights_are_shown_given_and_taken() {
    on_bench(async |bench, _| {
        let key = "http://example.com/pump-7";
        bench.text(&["publish", key, "Pump 7"]).await;
        let shown = bench.text(&["rights", key]).await;
        assert!(shown.contains("read        everybody"), "{shown}");
        assert!(shown.contains("role:write, if everybody"), "{shown}");
        let changes = ["--grant", "write=group:ward", "--revoke", "read=everybody"];
        let (code, told) = bench
            .refused(&[&["rights", key][..], &changes].concat())
            .await;
        assert_eq!(code, 2);
        assert!(told.contains("chappe account groups"), "{told}");
        let changes = [
            "--grant",
            "write=role:operate",
            "--grant",
            "annotate=accounts",
        ];
        let changed = bench.json(&[&["rights", key][..], &changes].concat()).await;
        assert_eq!(changed["write"], json!(["role:operate"]));
        assert_eq!(changed["annotate"], json!(["accounts", "role:write"]));
        let changes = [
            "--revoke",
            "read=everybody",
            "--revoke",
            "annotate=accounts",
        ];
        let changed = bench.json(&[&["rights", key][..], &changes].concat()).await;
        assert_eq!(changed["read"], json!([]));
        assert_eq!(changed["annotate"], json!(["role:write"]));
        assert_eq!(bench.json(&["rights", key]).await, changed);
        for wrong in ["write", "own=accounts", "=accounts"] {
            let (code, told) = bench.refused(&["rights", key, "--grant", wrong]).await;
            assert_eq!(code, 2);
            assert!(told.contains("write read, annotate"), "{told}");
        }
        let (code, told) = bench.refused(&["rights", "urn:none"]).await;
        assert_eq!(code, 2, "{told}");
        assert!(told.contains("there is no entity"), "{told}");
    });
}

#[test]
fn the_history_of_an_entity_has_what_changed() {
    on_bench(async |bench, folder| {
        let key = "http://example.com/pump-7";
        let turtle = folder.join("pump.ttl");
        std::fs::write(&turtle, "<> <http://example.com/flow> 2.5 .").expect("written");
        let turtle = turtle.to_str().expect("text");
        bench.text(&["publish", key, "Pump 7"]).await;
        bench
            .text(&["publish", key, "Pump seven", "--turtle", turtle])
            .await;
        bench
            .text(&["rights", key, "--revoke", "read=everybody"])
            .await;
        let shown = bench.text(&["history", key]).await;
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(
            words.contains(&"rights") && words.contains(&"appeared"),
            "{shown}"
        );
        assert!(shown.contains("    name changed"), "{shown}");
        assert!(
            shown.contains("    + <> <http://example.com/flow> \"2.5\"^^"),
            "{shown}"
        );
        let found = bench.json(&["history", key, "--limit", "2"]).await;
        assert_eq!(found["changes"].as_array().expect("a list").len(), 2);
        assert_eq!(
            (&found["truncated"], &found["is_cut"]),
            (&json!(true), &json!(false))
        );
        let (code, _) = bench.refused(&["history", "urn:none"]).await;
        assert_eq!(code, 2);
    });
}

#[test]
fn subclasses_are_found_and_followed_when_asked_for() {
    on_bench(async |bench, folder| {
        let ontology = folder.join("kinds.ttl");
        let document = "<http://e/kinds> a <http://www.w3.org/2002/07/owl#Ontology> . \
            <http://e/Pump> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Device> .";
        std::fs::write(&ontology, document).expect("written");
        let ontology = ontology.to_str().expect("text");
        let types = [
            "--type",
            "{http://www.w3.org/2002/07/owl#}Ontology",
            "--turtle",
            ontology,
        ];
        bench
            .text(&[&["publish", "http://e/kinds", "Kinds"][..], &types].concat())
            .await;
        let pump = [
            "publish",
            "http://e/pump",
            "Pump",
            "--type",
            "{http://e}Pump",
        ];
        bench.text(&pump).await;
        let find = ["find", "--type", "{http://e}Device"];
        let (code, _) = bench.refused(&find).await;
        assert_eq!(code, 1);
        let found = bench.json(&[&find[..], &["--inferred"]].concat()).await;
        assert_eq!(found["entities"][0]["key"], "http://e/pump");
        let subscribe = [
            "subscribe",
            "--type",
            "{http://e}Device",
            "--present",
            "--inferred",
            "--json",
        ];
        let lines = bench.lines_until(&subscribe, "synced").await;
        assert!(
            lines.iter().any(|line| line["key"] == "http://e/pump"),
            "{lines:?}"
        );
        let query = "SELECT ?s { ?s a <http://e/Device> }";
        let subscribe = [
            "subscribe",
            "--query",
            query,
            "--present",
            "--inferred",
            "--json",
        ];
        let lines = bench.lines_until(&subscribe, "synced").await;
        assert!(
            lines
                .iter()
                .any(|line| line.to_string().contains("http://e/pump")),
            "{lines:?}"
        );
    });
}

/// A lease of a second is renewed before it ends, so that no change is lost; an interrupt ends the subscription.
#[test]
fn changes_come_by_ws_eventing_until_an_interrupt() {
    on_bench(async |bench, folder| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
        command.args(["registry", "subscribe", "pump", "--eventing", "--json"]);
        command.args(["--lease", "1s", "--node", &bench.node.url()]);
        command.env("CHAPPE_TOKEN", &bench.token);
        let mut running = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let output = running.stdout.take().expect("its output");
        let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
        let reading = tokio::task::spawn_blocking(move || {
            for line in BufReader::new(output).lines() {
                let line = serde_json::from_str::<Json>(&line.expect("text")).expect("JSON");
                let _ = sender.send(line);
            }
        });
        // The first that it hears of was published after its subscription was granted.
        let (mut number, mut heard) = (0, 0);
        let mut next = async || {
            for _ in 0..300 {
                number += 1;
                let (key, name) = (format!("urn:x:{number}"), format!("Pump {number}"));
                bench.text(&["publish", &key, &name]).await;
                let waiting = std::time::Duration::from_millis(100);
                if let Ok(Some(line)) = tokio::time::timeout(waiting, lines.recv()).await {
                    assert_eq!(line["event"], "added", "{line}");
                    assert_eq!(line["change"], "added");
                    assert!(line["position"].is_u64(), "{line}");
                    let key = line["key"].as_str().expect("a key").to_owned();
                    return key["urn:x:".len()..].parse::<u32>().expect("a number");
                }
            }
            panic!("no event");
        };
        let begin = std::time::Instant::now();
        // Longer than three leases, and without a gap.
        while begin.elapsed() < std::time::Duration::from_secs(4) || heard == 0 {
            let now = next().await;
            assert!(heard == 0 || now == heard + 1, "{now} after {heard}");
            heard = now;
        }
        let pid = running.id().to_string();
        let killed = Command::new("kill").args(["-INT", &pid]).status();
        assert!(killed.expect("kill runs").success());
        let ended = tokio::task::spawn_blocking(move || running.wait());
        let status = ended.await.expect("it is awaited").expect("it ends");
        assert!(status.success(), "{status}");
        reading.await.expect("it is read");
        // The node stores within a second that there is no subscription.
        let file = folder.join("data/registry-event-subscriptions.json");
        for _ in 0..200 {
            let stored = std::fs::read_to_string(&file).expect("the subscriptions");
            if !stored.contains("Subscribe") {
                return;
            }
            // Nothing tells when the node writes its file; 10 s at most.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("the subscription is still there");
    });
}

#[test]
fn a_subscription_by_ws_eventing_is_refused_with_a_reason() {
    on_bench(async |bench, _| {
        let (code, told) = bench
            .refused(&["subscribe", "--eventing", "--query", "SELECT"])
            .await;
        assert_eq!(code, 2, "{told}");
        assert!(told.contains("query"), "{told}");
        for more in [["--eventing", "--present"], ["--eventing", "--inferred"]] {
            let (code, told) = bench.refused(&[&["subscribe"], &more[..]].concat()).await;
            assert_eq!(code, 2, "{told}");
            assert!(told.contains(more[1]), "{told}");
        }
        let (code, told) = bench.refused(&["subscribe", "--lease", "1m"]).await;
        assert_eq!(code, 2, "{told}");
    });
}
