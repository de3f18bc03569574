//! `chappe account`: accounts of people and programs on a node.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use chappe_identity::Role;
use chappe_stream::descriptor::nearest;
use serde_json::{Map, Value, json};

use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{
    Account, AccountAdd, AccountGroups, AccountList, AccountRenew, AccountRevoke, AccountShare,
    AccountShow,
};
use crate::output::{self, Failure, Outcome, Table};

/// Runs a verb of `account`.
pub(crate) fn run(verb: Account, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = async {
                match verb {
                    Account::Add(flags) => add(flags, json).await,
                    Account::List(flags) => list(flags, json).await,
                    Account::Show(flags) => show_one(flags, json).await,
                    Account::Share(flags) => share(flags, json).await,
                    Account::Groups(flags) => groups(flags, json).await,
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

/// Refuses a role that does not exist.
fn check_role(written: &str) -> Outcome {
    let role = written.split('=').next().unwrap_or_default();
    let known = Role::ALL.map(Role::as_str);
    if known.contains(&role) {
        return Ok(());
    }
    let near = nearest(&role.to_lowercase(), &known);
    let roles = known.join(", ");
    let hint = match near {
        Some(near) => format!("did you mean {near}? The roles are {roles}"),
        None => format!("the roles are {roles}"),
    };
    let failure = Failure::new(format!("{role:?} is not a role")).coded("argument_invalid");
    Err(failure.hint(hint))
}

async fn add(flags: AccountAdd, json: bool) -> Outcome {
    flags.roles.iter().try_for_each(|role| check_role(role))?;
    let node = NodeClient::new(&flags.node)?;
    let mut body = Map::new();
    body.insert("name".to_owned(), json!(flags.name));
    body.insert("roles".to_owned(), json!(flags.roles));
    if let Some(certificate) = &flags.certificate {
        body.insert("certificate".to_owned(), json!(certificate));
    }
    if !flags.groups.is_empty() {
        body.insert("groups".to_owned(), json!(flags.groups));
    }
    if let Some(key) = &flags.key {
        body.insert("key".to_owned(), json!(key));
    }
    if flags.certificate.is_some() || flags.key.is_some() {
        body.insert("token".to_owned(), json!(flags.with_token));
    }
    if let Some(time) = &flags.expires {
        body.insert("expires_at".to_owned(), json!(time));
    }
    if let Some(share) = &flags.share {
        body.insert("share".to_owned(), json!(share.0));
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
    file.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::new(format!("{} already exists", path.display()))
            .coded("file_exists")
            .hint("name another file, or move this one away"),
        _ => output::refused("create", path, &error),
    })
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
                .coded("file_unwritable")
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
        "IN THE LOG",
        "STREAMS",
    ]);
    for account in answer["accounts"].as_array().into_iter().flatten() {
        let token = account["has_token"]
            .as_bool()
            .filter(|has| *has)
            .map(|_| "token");
        let key = account["key"].as_str().map(|_| "key");
        let credentials = [token, account["certificate"].as_str(), key];
        let credentials: Vec<&str> = credentials.into_iter().flatten().collect();
        table.row([
            text(account, "name"),
            text(account, "state"),
            roles(account),
            credentials.join(", "),
            text(account, "expires_at"),
            text(account, "created_by"),
            used_of(account, "bytes", size),
            used_of(account, "streams", |number| number.to_string()),
        ]);
    }
    output::line(table);
    Ok(())
}

/// What an account uses, and its share if it has one.
fn used_of(account: &Value, member: &str, text: impl Fn(u64) -> String) -> String {
    let number = |name: &str| account["use"][name].as_u64();
    let used = text(number(member).unwrap_or_default());
    match number(&format!("{member}_max")) {
        Some(most) => format!("{used} of {}", text(most)),
        None => used,
    }
}

/// A size in binary units.
fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

async fn show_one(flags: AccountShow, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let account = node.get(&path(&flags.name, "")).await?;
    print_one(&account, json)
}

async fn share(flags: AccountShare, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let path = path(&flags.name, "/share");
    let changed = node.put(&path, json!(flags.share.0)).await?;
    print_one(&changed, json)
}

async fn groups(flags: AccountGroups, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let groups: Vec<&str> = match flags.groups.as_str() {
        "none" => Vec::new(),
        names => names.split(',').collect(),
    };
    let path = path(&flags.name, "/groups");
    let changed = node.put(&path, json!({ "groups": groups })).await?;
    print_one(&changed, json)
}

fn print_one(account: &Value, json: bool) -> Outcome {
    if json {
        output::json(account);
        return Ok(());
    }
    let text = |key: &str| account[key].as_str().unwrap_or("-").to_owned();
    let name = text("name");
    let mut table = Table::new(["ACCOUNT", &name]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("state", text("state"));
    row("roles", roles(account));
    let groups = account["groups"].as_array().into_iter().flatten();
    let groups: Vec<&str> = groups.filter_map(Value::as_str).collect();
    row("groups", groups.join(" "));
    row("certificate", text("certificate"));
    row("expires", text("expires_at"));
    row("in the log", used_of(account, "bytes", size));
    row(
        "streams",
        used_of(account, "streams", |number| number.to_string()),
    );
    let requests = account["use"]["requests"].as_object().into_iter().flatten();
    let requests: Vec<String> = requests
        .map(|(kind, held)| format!("{kind} {held}"))
        .collect();
    row("requests now", requests.join(", "));
    let percent = |name: &str| account["share"][format!("{name}_percent")].as_u64();
    let shares = ["bytes", "streams", "requests"].map(|name| (name, percent(name)));
    let shares = shares
        .iter()
        .filter_map(|(name, part)| Some(format!("{name} {}%", (*part)?)));
    let shares: Vec<String> = shares.collect();
    row(
        "shares",
        match shares.is_empty() {
            true => "none: it administers the node".to_owned(),
            false => shares.join(", "),
        },
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_role_is_refused_with_the_nearest() {
        assert!(check_role("read=ward.*").is_ok());
        for (written, hint) in [
            (
                "Operat",
                "did you mean operate? The roles are read, write, operate, administer",
            ),
            (
                "visitor=a",
                "the roles are read, write, operate, administer",
            ),
        ] {
            let failure = check_role(written).unwrap_err();
            assert_eq!(failure.hint.as_deref(), Some(hint), "{}", failure.message);
        }
    }
}
