//! Goal: an administrator adds, lists, renews and revokes accounts by the command line; a token is printed once, or
//! written to a file that only its owner reads, and opens what its roles say.
//! Method: a real node in this process and the built program.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use chappe_node::Node;
use chappe_node::config::{Config, Read};
use serde_json::{Value as Json, json};

/// Runs the program against a node.
async fn chappe(node: &Node, token: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
    command.args(arguments).args(["--node", &node.url()]);
    command.env("CHAPPE_TOKEN", token);
    let running = tokio::task::spawn_blocking(move || command.output());
    running.await.expect("it runs").expect("the program starts")
}

fn json_of(output: &Output) -> Json {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn accounts_are_managed_by_the_command_line() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut config = Config {
        name: "test".into(),
        data_directory: folder.path().join("data"),
        sensors_directory: folder.path().join("sensors"),
        ..Config::default()
    };
    config.http.listen = "127.0.0.1:0".parse().expect("an address");
    config.discovery.enabled = false;
    config.log.min_free_bytes = 0;
    config.access.read = Read::Token;
    let runtime = chappe_node::runtime().expect("a runtime");
    runtime.block_on(async {
        let node = Node::start(config).await.expect("it starts");
        let root = node.new_token().expect("a new token").to_owned();
        let add = [
            "account",
            "add",
            "ada",
            "--role",
            "read=ward.*",
            "--role",
            "operate",
        ];
        let added = chappe(&node, &root, &add).await;
        let ada = String::from_utf8(added.stdout.clone()).expect("text");
        assert_eq!(ada.trim().len(), 43, "{added:?}");
        let file = folder.path().join("logger.token");
        let path = file.to_str().expect("text");
        let add = [
            "account",
            "add",
            "logger",
            "--role",
            "write=lab.*",
            "--token-file",
            path,
        ];
        let added = chappe(&node, &root, &[&add[..], &["--json"]].concat()).await;
        let answer = json_of(&added);
        assert_eq!(
            (&answer["token"], &answer["token_file"]),
            (&Json::Null, &json!(path))
        );
        let mode = std::fs::metadata(&file)
            .expect("the file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = chappe(&node, &root, &add).await;
        assert_eq!(
            again.status.code(),
            Some(2),
            "an existing file is not replaced"
        );

        let list = chappe(&node, &root, &["account", "list", "--json"]).await;
        let list = json_of(&list);
        let accounts: Vec<[&Json; 3]> = list["accounts"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| [&one["name"], &one["state"], &one["roles"]])
            .collect();
        let active = json!("active");
        let expected = [
            ("operator", json!(["administer"])),
            ("ada", json!(["read=ward.*", "operate"])),
            ("logger", json!(["write=lab.*"])),
        ];
        let expected = expected.map(|(name, roles)| (json!(name), roles));
        let expected: Vec<[&Json; 3]> = expected
            .iter()
            .map(|(name, roles)| [name, &active, roles])
            .collect();
        assert_eq!(accounts, expected);

        let share = ["account", "share", "logger", "bytes=40,requests=10"];
        let changed = chappe(&node, &root, &[&share[..], &["--json"]].concat()).await;
        let expected = json!({"bytes_percent": 40, "streams_percent": 25, "requests_percent": 10});
        assert_eq!(json_of(&changed)["share"], expected);
        let shown = chappe(&node, &root, &["account", "show", "logger"]).await;
        let text = String::from_utf8(shown.stdout).expect("text");
        assert!(
            text.contains("bytes 40%, streams 25%, requests 10%"),
            "{text}"
        );
        let reset = ["account", "share", "logger", "default", "--json"];
        let reset = json_of(&chappe(&node, &root, &reset).await);
        assert_eq!(reset["share"]["bytes_percent"], 25);
        let wrong = chappe(&node, &root, &["account", "share", "logger", "bytes=0"]).await;
        assert_eq!(wrong.status.code(), Some(2));
        let fixed = chappe(&node, &root, &["account", "share", "operator", "bytes=9"]).await;
        assert_eq!(fixed.status.code(), Some(2), "{fixed:?}");

        let ada = ada.trim();
        let links = chappe(&node, ada, &["link", "list", "--json"]).await;
        assert!(links.status.success(), "{links:?}");
        let refused = chappe(&node, ada, &["account", "list"]).await;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("does not have the role administer"), "{text}");
        let renewed = chappe(&node, &root, &["account", "renew", "ada"]).await;
        let renewed = String::from_utf8(renewed.stdout).expect("text");
        let old = chappe(&node, ada, &["link", "list"]).await;
        assert_eq!(old.status.code(), Some(2));
        let new = chappe(&node, renewed.trim(), &["link", "list"]).await;
        assert!(new.status.success(), "{new:?}");

        let revoked = chappe(&node, &root, &["account", "revoke", "ada"]).await;
        assert_eq!(revoked.stdout, b"revoked ada\n");
        let ended = chappe(&node, renewed.trim(), &["link", "list"]).await;
        assert_eq!(ended.status.code(), Some(2));
        let add = ["account", "add", "ada", "--role", "read"];
        let taken = chappe(&node, &root, &add).await;
        let text = String::from_utf8_lossy(&taken.stderr).into_owned();
        assert!(
            text.contains("was revoked") && text.contains("--forget"),
            "{text}"
        );
        let sql = "select account, operation, status from \"chappe.audit\"";
        let audit = chappe(&node, &root, &["query", "--format", "json", sql]).await;
        let rows = json_of(&audit)["rows"].clone();
        let last = json!(["operator", "add_account", 409]);
        assert_eq!(rows.as_array().expect("rows").last(), Some(&last), "{rows}");
        node.shutdown().await.expect("it ends");
    });
}
