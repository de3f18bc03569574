//! The rights to an entity, and its history.

use serde_json::{Value, json};

use super::super::node_client::NodeClient;
use super::super::query::percent;
use super::{entity_path, object, text};
use crate::cli::{RegistryHistory, RegistryRights};
use crate::output::{self, Failure, Outcome, Table};

/// The rights, the least first.
const RIGHTS: [&str; 4] = ["read", "annotate", "write", "administer"];
/// Changes of one request.
const PAGE: usize = 100;
/// Attempts to change rights that others change meanwhile.
const ATTEMPTS: usize = 3;

pub(super) async fn rights(flags: RegistryRights, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let path = format!("{}/rights", entity_path(&flags.key));
    let [grants, revocations] = [&flags.grants, &flags.revocations].map(|texts| {
        let parts = texts.iter().map(|text| part(text));
        parts.collect::<Result<Vec<_>, Failure>>()
    });
    let (grants, revocations) = (grants?, revocations?);
    let mut known = node.get(&path).await?;
    if !(grants.is_empty() && revocations.is_empty()) {
        for attempt in 1.. {
            let wanted = changed(&known, &grants, &revocations);
            // The lists replace those before: what others have changed meanwhile stays.
            let now = node.get(&path).await?;
            if now == known {
                known = node.put(&path, wanted).await?;
                break;
            }
            if attempt == ATTEMPTS {
                let failure =
                    Failure::new("others change the rights at the same time").coded("conflict");
                return Err(failure.hint("try again"));
            }
            known = now;
        }
    }
    if json {
        output::json(&known);
        return Ok(());
    }
    let mut table = Table::new(["RIGHT", "WHO"]);
    table.row(["owner".to_owned(), text(&known["owner"])]);
    for right in RIGHTS {
        let who = match &known[right] {
            Value::Null => "role:write, if everybody may read it (nothing is stated)".to_owned(),
            who => holders(who).join(", "),
        };
        table.row([right.to_owned(), who]);
    }
    output::line(table);
    Ok(())
}

/// The right and the holder of `RIGHT=WHO`.
fn part(text: &str) -> Result<(&str, &str), Failure> {
    let parts = text.split_once('=');
    parts.filter(|(right, _)| RIGHTS.contains(right)).ok_or_else(|| {
        Failure::new(format!("{text:?} is not a right and its holder")).coded("argument_invalid")
            .hint("write read, annotate, write or administer, then = and everybody, accounts, account:NAME, \
                group:NAME or role:ROLE")
    })
}

fn holders(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

/// The rights with these given and those taken. `annotate` stays unstated unless it is among them; then it starts
/// with those who have it without a statement.
fn changed(known: &Value, grants: &[(&str, &str)], revocations: &[(&str, &str)]) -> Value {
    let is_public = holders(&known["read"]).iter().any(|one| one == "everybody");
    let mut wanted = json!({});
    for right in RIGHTS {
        let mut list = match &known[right] {
            Value::Null if is_public => vec!["role:write".to_owned()],
            stated => holders(stated),
        };
        let given = |(of, _): &&(&str, &str)| *of == right;
        for (_, who) in grants.iter().filter(given) {
            if !list.iter().any(|one| one == who) {
                list.push((*who).to_owned());
            }
        }
        for (_, who) in revocations.iter().filter(given) {
            list.retain(|one| one != who);
        }
        let is_touched = grants.iter().chain(revocations).any(|(of, _)| *of == right);
        if is_touched || !known[right].is_null() {
            wanted[right] = list.into();
        }
    }
    wanted
}

pub(super) async fn history(flags: RegistryHistory, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let (mut found, mut cursor, mut about) = (Vec::new(), Some(String::new()), Value::Null);
    while found.len() < flags.limit
        && let Some(next) = cursor.take()
    {
        let count = PAGE.min(flags.limit - found.len());
        let path = format!("{}/history?limit={count}{next}", entity_path(&flags.key));
        let mut answer = node.get(&path).await?;
        if let Value::Array(part) = answer["changes"].take() {
            found.extend(part);
        }
        let next = answer["next"].as_str();
        cursor = next.map(|next| format!("&cursor={}", percent(next)));
        about = answer;
    }
    let is_truncated = cursor.is_some();
    let (begins_at, is_cut) = (&about["begins_at"], about["is_cut"] == true);
    if json {
        output::json(&json!({ "changes": found, "truncated": is_truncated,
            "begins_at": begins_at, "begins_time": about["begins_time"], "is_cut": is_cut }));
    } else {
        for change in &found {
            print(change);
        }
    }
    if is_truncated {
        let count = found.len();
        output::note(format_args!(
            "more than these {count} are known: raise --limit"
        ));
    } else if is_cut {
        let since = about["begins_time"].as_str();
        let since = since.map_or_else(|| format!("position {begins_at}"), str::to_owned);
        output::note(format_args!(
            "the history begins at {since}; older changes are no longer known"
        ));
    }
    if found.is_empty() {
        return Err(Failure::negative());
    }
    Ok(())
}

fn print(change: &Value) {
    let time = change["time"].as_str();
    let time = time.map_or_else(|| format!("position {}", change["position"]), str::to_owned);
    let (word, name) = (text(&change["change"]), text(&change["name"]));
    output::line(format_args!("{time}  {word:<11}  {name}"));
    let differences = &change["differences"];
    for field in differences["fields"].as_array().into_iter().flatten() {
        output::line(format_args!("    {} changed", text(field)));
    }
    for (sign, list, count) in [
        ("-", "removed", "removed_count"),
        ("+", "added", "added_count"),
    ] {
        let shown = differences[list].as_array().map_or(&[][..], Vec::as_slice);
        for triple in shown {
            let subject = triple["subject"].as_str().unwrap_or("<>");
            let predicate = text(&triple["predicate"]);
            output::line(format_args!(
                "    {sign} {subject} <{predicate}> {}",
                object(triple)
            ));
        }
        let more = differences[count].as_u64().unwrap_or(0);
        let more = more.saturating_sub(shown.len() as u64);
        if more > 0 {
            output::line(format_args!("    {sign} {more} more"));
        }
    }
}
