//! `chappe account`: accounts of people and programs on a node.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{Account, AccountAdd, AccountList, AccountRenew, AccountRevoke};
use crate::output::{self, Failure, Outcome, Table};

/// Runs a verb of `account`.
pub(crate) fn run(verb: Account, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = async {
                match verb {
                    Account::Add(flags) => add(flags, json).await,
                    Account::List(flags) => list(flags, json).await,
                    Account::Renew(flags) => renew(flags, json).await,
                    Account::Revoke(flags) => revoke(flags, json).await,
                }
            } => result,
            result = network::interrupted() => result,
        }
    })
}

fn path(name: &str, rest: &str) -> String {
    format!("/api/v1/accounts/{}{rest}", percent(name))
}

async fn add(flags: AccountAdd, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let mut body = Map::new();
    body.insert("name".to_owned(), json!(flags.name));
    body.insert("roles".to_owned(), json!(flags.roles));
    if let Some(certificate) = &flags.certificate {
        body.insert("certificate".to_owned(), json!(certificate));
        body.insert("token".to_owned(), json!(flags.with_token));
    }
    if let Some(time) = &flags.expires {
        body.insert("expires_at".to_owned(), json!(time));
    }
    let file = flags.token_file.as_deref().map(create).transpose()?;
    let added = node.post("/api/v1/accounts", Value::Object(body)).await;
    show(added, file.zip(flags.token_file.as_deref()), json)
}

async fn renew(flags: AccountRenew, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let file = flags.token_file.as_deref().map(create).transpose()?;
    let renewed = node.post(&path(&flags.name, "/token"), json!({})).await;
    show(renewed, file.zip(flags.token_file.as_deref()), json)
}

/// Creates the file of a token, before there is one that would be lost with it.
fn create(path: &Path) -> Result<std::fs::File, Failure> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| Failure::new(format!("cannot create {}: {error}", path.display())))
}

/// Prints an account with its token, or writes the token to a file.
fn show(
    answer: Result<Value, Failure>,
    file: Option<(std::fs::File, &Path)>,
    json: bool,
) -> Outcome {
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(failure) => {
            if let Some((_, path)) = file {
                // It is empty.
                let _ = std::fs::remove_file(path);
            }
            return Err(failure);
        }
    };
    let token = answer["token"].as_str().unwrap_or_default().to_owned();
    if let Some((mut file, path)) = file {
        let written = writeln!(file, "{token}").and_then(|()| file.sync_all());
        written.map_err(|error| {
            let name = answer["account"]["name"].as_str().unwrap_or_default();
            Failure::new(format!("cannot write {}: {error}", path.display()))
                .hint(format!("get another token: chappe account renew {name}"))
        })?;
        answer["token"] = Value::Null;
        answer["token_file"] = json!(path);
    }
    if json {
        output::json(&answer);
        return Ok(());
    }
    let account = &answer["account"];
    let name = account["name"].as_str().unwrap_or_default();
    output::note(format_args!("account {name}: {}", roles(account)));
    match (answer["token_file"].as_str(), token.is_empty()) {
        (Some(path), _) => output::note(format_args!("its token is in {path}")),
        (None, false) => {
            output::note("its token, which is shown only now:");
            output::line(format_args!("{token}"));
        }
        (None, true) => {}
    }
    Ok(())
}

fn roles(account: &Value) -> String {
    let roles = account["roles"].as_array().into_iter().flatten();
    roles
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}

async fn list(flags: AccountList, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let answer = node.get("/api/v1/accounts").await?;
    if json {
        output::json(&answer);
        return Ok(());
    }
    let text = |account: &Value, key: &str| account[key].as_str().unwrap_or("-").to_owned();
    let mut table = Table::new([
        "NAME",
        "STATE",
        "ROLES",
        "CREDENTIALS",
        "EXPIRES",
        "CREATED BY",
    ]);
    for account in answer["accounts"].as_array().into_iter().flatten() {
        let token = account["has_token"]
            .as_bool()
            .filter(|has| *has)
            .map(|_| "token");
        let credentials = [token, account["certificate"].as_str()];
        let credentials: Vec<&str> = credentials.into_iter().flatten().collect();
        table.row([
            text(account, "name"),
            text(account, "state"),
            roles(account),
            credentials.join(", "),
            text(account, "expires_at"),
            text(account, "created_by"),
        ]);
    }
    output::line(table);
    Ok(())
}

async fn revoke(flags: AccountRevoke, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let rest = if flags.forget { "?forget=true" } else { "" };
    node.delete(&path(&flags.name, rest)).await?;
    if json {
        output::json(&json!({ "revoked": flags.name, "forgotten": flags.forget }));
    } else {
        output::line(format_args!("revoked {}", flags.name));
    }
    Ok(())
}
