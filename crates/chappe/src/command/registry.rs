//! `chappe registry`: finds, shows, publishes, removes and follows what a node's registry holds.

mod entity;
mod eventing;
mod pieces;

use std::io::Read;
use std::time::Duration;

use chappe_registry::Format;
use chappe_terminal::counted;
use serde_json::{Value, json};

use super::network;
use super::node_client::{Events, NodeClient};
use super::query::{self, percent};
use crate::cli::{
    Query, RegistryExport, RegistryFind, RegistryImport, RegistryPublish, RegistryQuery,
    RegistryRemove, RegistryRenew, RegistryShow, RegistrySubscribe, RegistryUnsubscribe,
    RegistryVerb,
};
use crate::output::{self, Failure, NewFile, Outcome, Table};

/// Maximum length of a document in bytes; a request to a node has at most as many by default.
const DOCUMENT_BYTES_MAX: u64 = 8 << 20;
/// Entities of one request.
const PAGE: usize = 1000;
/// Subscriptions by e-mail.
const SUBSCRIPTIONS: &str = "/api/v1/registry/subscriptions";
/// The pause before another attempt to reach a node that is away.
const RECONNECT: Duration = Duration::from_secs(1);

/// Runs a verb of `registry`.
pub(crate) fn run(verb: RegistryVerb, json: bool) -> Outcome {
    if let RegistryVerb::Query(flags) = verb {
        return query::run(sparql(flags), json);
    }
    if let RegistryVerb::Subscribe(flags) = &verb
        && flags.eventing
    {
        // An interrupt ends the subscription before the command.
        return network::block_on(eventing::subscribe(flags, json));
    }
    network::block_on(async move {
        tokio::select! {
            result = async {
                match verb {
                    RegistryVerb::Find(flags) => find(flags, json).await,
                    RegistryVerb::Show(flags) => show(flags, json).await,
                    RegistryVerb::Rights(flags) => entity::rights(flags, json).await,
                    RegistryVerb::History(flags) => entity::history(flags, json).await,
                    RegistryVerb::Publish(flags) => publish(flags, json).await,
                    RegistryVerb::Renew(flags) => renew(flags, json).await,
                    RegistryVerb::Remove(flags) => remove(flags, json).await,
                    RegistryVerb::Subscribe(flags) => subscribe(flags, json).await,
                    RegistryVerb::Unsubscribe(flags) => unsubscribe(flags, json).await,
                    RegistryVerb::Annotate(flags) => pieces::annotate(flags, json).await,
                    RegistryVerb::Annotations(flags) => pieces::list(flags, json).await,
                    RegistryVerb::Withdraw(flags) => pieces::withdraw(flags, json).await,
                    RegistryVerb::Export(flags) => export(flags, json).await,
                    RegistryVerb::Import(flags) => import(flags, json).await,
                    RegistryVerb::Query(_) => Ok(()),
                }
            } => result,
            result = network::interrupted() => result,
        }
    })
}

fn sparql(flags: RegistryQuery) -> Query {
    Query {
        query: flags.query,
        sparql: true,
        inferred: flags.inferred,
        limit: flags.limit,
        format: flags.format,
        from: None,
        to: None,
        partial: false,
        node: flags.node,
    }
}

async fn find(flags: RegistryFind, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let criteria = [
        ("prefix", &flags.name),
        ("kind", &flags.kind),
        ("type", &flags.entity_type),
        ("scope", &flags.scope),
        ("owner", &flags.owner),
        ("about", &flags.about),
    ];
    let inferred = if flags.inferred { "&inferred=true" } else { "" };
    let criteria = format!("{}{inferred}", parameters(&criteria));
    let (mut found, mut cursor, mut is_truncated) = (Vec::new(), String::new(), false);
    while found.len() < flags.limit {
        let count = PAGE.min(flags.limit - found.len());
        let path = format!("/api/v1/entities?limit={count}{criteria}{cursor}");
        let mut answer = node.get(&path).await?;
        if let Value::Array(part) = answer["entities"].take() {
            found.extend(part);
        }
        is_truncated = answer["truncated"] == true;
        match answer["next"].as_str() {
            Some(next) => cursor = format!("&cursor={}", percent(next)),
            None => break,
        }
    }
    if json {
        output::json(&json!({ "entities": found, "truncated": is_truncated }));
    } else if !found.is_empty() {
        let mut table = Table::new(["NAME", "KIND", "OWNER", "KEY"]);
        for entity in &found {
            table.row(["name", "kind", "owner", "key"].map(|column| text(&entity[column])));
        }
        output::line(table);
    }
    if is_truncated {
        output::note(format_args!(
            "more than these {} exist: raise --limit",
            found.len()
        ));
    }
    if found.is_empty() {
        output::note("no entity matches");
        return Err(Failure::negative());
    }
    Ok(())
}

/// Those that are given, as parameters of a path.
fn parameters(criteria: &[(&str, &Option<String>)]) -> String {
    let given = criteria.iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(format!("&{name}={}", percent(value)))
    });
    given.collect()
}

async fn show(flags: RegistryShow, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let entity = node.get(&entity_path(&flags.key)).await?;
    if json {
        output::json(&entity);
    } else {
        print(&entity);
    }
    Ok(())
}

fn print(entity: &Value) {
    for field in ["key", "kind", "name", "owner"] {
        output::line(format_args!("{field:<8}{}", text(&entity[field])));
    }
    for (title, list) in [("type", "types"), ("scope", "scopes")] {
        for one in entity[list].as_array().into_iter().flatten() {
            output::line(format_args!("{title:<8}{}", text(one)));
        }
    }
    if let Some(lease_s) = entity["lease_s"].as_u64() {
        output::line(format_args!("{:<8}{lease_s} s", "lease"));
    }
    let triples = entity["triples"].as_array().into_iter().flatten();
    let mut table = Table::new(["SUBJECT", "PROPERTY", "VALUE"]);
    let mut is_empty = true;
    for triple in triples {
        is_empty = false;
        let subject = triple["subject"].as_str().unwrap_or("<>").to_owned();
        table.row([subject, text(&triple["predicate"]), object(triple)]);
    }
    if !is_empty {
        output::line("");
        output::line(table);
    }
}

/// An object in the notation of Turtle, but for escapes.
fn object(triple: &Value) -> String {
    let object = text(&triple["object"]);
    match triple["object_kind"].as_str() {
        Some("iri") => format!("<{object}>"),
        Some("blank") => object,
        _ => match (&triple["language"], &triple["datatype"]) {
            (Value::String(language), _) => format!("{object:?}@{language}"),
            (_, Value::String(datatype)) => format!("{object:?}^^<{datatype}>"),
            _ => format!("{object:?}"),
        },
    }
}

async fn publish(flags: RegistryPublish, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let turtle = flags.turtle.as_deref().map(document).transpose()?;
    let entity = json!({
        "key": flags.key, "kind": flags.kind, "name": flags.name,
        "types": flags.types, "scopes": flags.scopes, "turtle": turtle,
        "lease_s": flags.lease.map(seconds),
    });
    let entity = node.post("/api/v1/entities", entity).await?;
    if json {
        output::json(&entity);
    } else {
        let count = entity["triples"].as_array().map_or(0, Vec::len);
        let (key, properties) = (text(&entity["key"]), counted(count, "property"));
        output::line(format_args!("published {key} with {properties}"));
    }
    Ok(())
}

/// A lease in seconds, not shorter than asked.
fn seconds(lease: Duration) -> u64 {
    lease.as_secs() + u64::from(lease.subsec_nanos() > 0)
}

async fn renew(flags: RegistryRenew, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    for key in &flags.keys {
        let path = format!("{}/renew", entity_path(key));
        let renewed = node.post(&path, Value::Null).await?;
        if json {
            output::json(&renewed);
        } else {
            let lease_s = &renewed["lease_s"];
            output::line(format_args!("renewed {key} for {lease_s} s"));
        }
    }
    Ok(())
}

async fn remove(flags: RegistryRemove, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    node.delete(&entity_path(&flags.key)).await?;
    if json {
        output::json(&json!({ "removed": flags.key }));
    } else {
        output::line(format_args!("removed {}", flags.key));
    }
    Ok(())
}

/// Has the node send changes by e-mail.
async fn subscribe_by_mail(flags: &RegistrySubscribe, mail: &str, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let subscription = json!({
        "mail": mail, "lease_s": flags.lease.map(seconds),
        "key": flags.key, "query": flags.query, "prefix": flags.name, "kind": flags.kind,
        "type": flags.entity_type, "scope": flags.scope, "owner": flags.owner,
    });
    let made = node.post(SUBSCRIPTIONS, subscription).await?;
    match json {
        true => output::json(&made),
        false => output::line(text(&made["id"])),
    }
    Ok(())
}

async fn unsubscribe(flags: RegistryUnsubscribe, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    node.delete(&format!("{SUBSCRIPTIONS}/{}", percent(&flags.id)))
        .await?;
    match json {
        true => output::json(&json!({ "removed": flags.id })),
        false => output::line(format_args!("ended {}", flags.id)),
    }
    Ok(())
}

/// What a subscription is about, as parameters of a path.
fn subject(flags: &RegistrySubscribe) -> String {
    parameters(&[
        ("key", &flags.key),
        ("query", &flags.query),
        ("prefix", &flags.name),
        ("kind", &flags.kind),
        ("type", &flags.entity_type),
        ("scope", &flags.scope),
        ("owner", &flags.owner),
    ])
}

/// Whether an event is a change, of those that `--count` counts.
fn is_change(event: &str) -> bool {
    matches!(event, "added" | "changed" | "removed" | "answer")
}

async fn subscribe(flags: RegistrySubscribe, json: bool) -> Outcome {
    if let Some(mail) = &flags.mail {
        return subscribe_by_mail(&flags, mail, json).await;
    }
    let node = NodeClient::new(&flags.node)?;
    let inferred = if flags.inferred { "&inferred=true" } else { "" };
    let subject = subject(&flags) + inferred;
    let mut left = flags.count.unwrap_or(u64::MAX);
    let mut after = flags.after;
    // The first connection tells what is wrong with the flags; later ones are tried again.
    let mut events = connect(&node, &subject, flags.present, after.as_deref()).await?;
    loop {
        match events.next().await {
            Ok(Some(event)) => {
                let data: Value = serde_json::from_str(&event.data)?;
                show_event(&event.name, &data, events.last_id(), json);
                if event.name == "end" {
                    return Err(
                        Failure::new("the subscription has ended").coded("subscription_ended")
                    );
                }
                if is_change(&event.name) {
                    left -= 1;
                    if left == 0 {
                        return Ok(());
                    }
                }
            }
            Ok(None) | Err(_) => {
                output::note("the node has closed the connection; connecting again");
                after = events.last_id().map(str::to_owned).or(after);
                events = loop {
                    tokio::time::sleep(RECONNECT).await;
                    match connect(&node, &subject, flags.present, after.as_deref()).await {
                        Ok(events) => break events,
                        Err(failure) => output::note(failure.message),
                    }
                };
            }
        }
    }
}

async fn connect(
    node: &NodeClient,
    subject: &str,
    present: bool,
    after: Option<&str>,
) -> Result<Events, Failure> {
    let after = after.map(|id| format!("&after={}", percent(id)));
    let after = after.unwrap_or_default();
    let path = format!("/api/v1/registry/changes?present={present}{subject}{after}");
    node.events(&path).await
}

fn show_event(name: &str, data: &Value, id: Option<&str>, json: bool) {
    if json {
        let mut data = data.clone();
        data["event"] = name.into();
        data["id"] = id.into();
        output::json(&data);
        return;
    }
    match name {
        "synced" => output::note("the present state is complete"),
        "resync" | "end" => output::note(format_args!("{name}: {}", text(&data["reason"]))),
        change if data["row"].is_object() => {
            let row = data["row"].as_object().into_iter().flatten();
            let row = row.map(|(name, term)| format!("{name}={}", text(&term["value"])));
            let row = row.collect::<Vec<_>>().join("  ");
            output::line(format_args!("{change:<8}{row}"));
        }
        "answer" => output::line(&data["answer"]),
        change => {
            let [kind, key, name] = ["kind", "key", "name"].map(|field| text(&data[field]));
            output::line(format_args!("{change:<8}{kind:<15} {key}  {name}"));
        }
    }
}

async fn export(flags: RegistryExport, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let path = format!("/api/v1/registry/export?format={}", percent(&flags.format));
    let Some(file) = flags.to else {
        node.download(&path, &mut std::io::stdout().lock()).await?;
        return Ok(());
    };
    let mut new = NewFile::begin(&file)?;
    node.download(&path, &mut new).await?;
    let bytes = new.replace()?;
    if output::is_standard_output(&file) {
        output::progress(format_args!("wrote {bytes} bytes"));
    } else if json {
        output::json(&json!({ "file": file, "bytes": bytes }));
    } else {
        output::line(format_args!("wrote {bytes} bytes to {}", file.display()));
    }
    Ok(())
}

async fn import(flags: RegistryImport, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let format = match &flags.format {
        Some(word) => Format::from_word(word),
        None => Format::ALL.into_iter().find(|format| {
            let ending = match format {
                Format::NQuads => ".nq",
                Format::TriG => ".trig",
                Format::UddiXml => ".xml",
            };
            flags.file.ends_with(ending)
        }),
    };
    let format = format.ok_or_else(|| {
        Failure::new(format!("the format of {} is not known", flags.file))
            .coded("argument_invalid")
            .hint("add --format nquads, trig or uddi")
    })?;
    let (path, kind) = ("/api/v1/registry/import", format.media_type());
    let imported = match flags.file.as_str() {
        "-" => node.upload(path, kind, std::io::stdin()).await?,
        file => {
            let file = std::fs::File::open(file).map_err(|error| {
                Failure::new(format!("cannot read {file}: {error}")).coded("file_unreadable")
            })?;
            node.upload(path, kind, file).await?
        }
    };
    if json {
        output::json(&imported);
        return Ok(());
    }
    let count = |key: &str| imported[key].as_u64().unwrap_or(0);
    let entities = counted(count("entities"), "entity");
    output::line(format_args!("imported {entities}"));
    if count("left_out") > 0 {
        output::note(format_args!(
            "left out: {}, which nodes publish",
            counted(count("left_out"), "entity")
        ));
    }
    Ok(())
}

fn entity_path(key: &str) -> String {
    format!("/api/v1/entities/{}", percent(key))
}

/// The text of a file, or of standard input.
fn document(file: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let mut read = |source: &mut dyn Read| {
        source
            .take(DOCUMENT_BYTES_MAX + 1)
            .read_to_string(&mut text)
    };
    let result = match file {
        "-" => read(&mut std::io::stdin()),
        file => std::fs::File::open(file).and_then(|mut file| read(&mut file)),
    };
    result.map_err(|error| {
        Failure::new(format!("cannot read {file}: {error}")).coded("file_unreadable")
    })?;
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        let limit = DOCUMENT_BYTES_MAX >> 20;
        return Err(
            Failure::new(format!("{file} has more than {limit} MiB")).coded("file_too_large")
        );
    }
    Ok(text)
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
