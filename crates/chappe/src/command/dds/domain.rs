//! `chappe dds topics` and `chappe dds echo`: a domain as it is, through a participant of this program's own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_dds::types::{Datum, Structure, Type, dds_topic, shown_topic, shown_type};
use chappe_dds::{
    AnnouncedDurability, AnnouncedType, Durability, Participant, ParticipantConfig, Qos,
    Reliability, RemoteEnd, Topic,
};
use serde_json::{Map, Value, json};

use crate::cli::{DdsDomain, DdsEcho, DdsTopics};
use crate::output::{self, Failure, Outcome, Table};

/// The longest wait in one step; reason: an announced type is looked for again.
const STEP: Duration = Duration::from_millis(50);
/// Topics by which participants of Chappe find each other, which nobody looks for.
const INTERNAL: [&str; 2] = ["chappe/alive/", "chappe/name/"];
/// The library's own topics: what it has discovered.
const BUILT_IN: &str = "org::eclipse::cyclonedds::builtin::";

fn open(at: &DdsDomain) -> Result<Box<dyn Participant>, Failure> {
    let config = ParticipantConfig {
        domain: at.domain,
        interfaces: at.addresses.clone(),
        ..ParticipantConfig::default()
    };
    chappe_dds::open(&config).map_err(|error| failure(&error))
}

fn failure(error: &chappe_dds::DdsError) -> Failure {
    Failure::new(error.to_string())
        .coded("dds_failed")
        .hint_if(error.hint())
}

fn step(participant: &mut dyn Participant, most: Duration) -> Result<(), Failure> {
    participant
        .wait(most.min(STEP))
        .map_err(|error| failure(&error))?;
    while participant.event().is_some() {}
    Ok(())
}

fn patience(at: &DdsDomain) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(at.seconds).map_err(|error| {
        Failure::new(format!("--seconds {}: {error}", at.seconds)).coded("argument_invalid")
    })
}

/// What is known about the type of an end.
enum Found {
    NotAnnounced,
    Requested,
    Known(Arc<Structure>),
    Unreadable(String),
}

fn type_of(participant: &dyn Participant, end: &RemoteEnd) -> Found {
    let hash = match &end.of {
        AnnouncedType::Name => return Found::NotAnnounced,
        AnnouncedType::Known(of) => return Found::Known(of.clone()),
        AnnouncedType::Hash(hash) => hash,
    };
    match participant.type_of(hash) {
        Ok(Some(of)) => Found::Known(of),
        Ok(None) => Found::Requested,
        Err(error) => Found::Unreadable(error.to_string()),
    }
}

/// Lists the topics.
pub(super) fn topics(flags: &DdsTopics, json: bool) -> Outcome {
    let mut participant = open(&flags.at)?;
    let until = Instant::now() + patience(&flags.at)?;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        step(&mut *participant, left)?;
        // Requests the types.
        for end in participant.remote_ends() {
            type_of(&*participant, &end);
        }
    }
    let mut topics: BTreeMap<(String, String), Vec<RemoteEnd>> = BTreeMap::new();
    for end in participant.remote_ends() {
        let Topic { name, type_name } = end.topic.clone();
        let is_internal = INTERNAL.iter().any(|prefix| name.starts_with(prefix));
        if !is_internal && !type_name.starts_with(BUILT_IN) {
            topics.entry((name, type_name)).or_default().push(end);
        }
    }
    if topics.is_empty() && !json {
        output::note(format_args!(
            "no topics in domain {} at {:?}",
            flags.at.domain, flags.at.addresses
        ));
        return Err(Failure::negative());
    }
    match json {
        true => output::json(&list(&*participant, &topics)),
        false => table(&*participant, &topics, flags.types),
    }
    match topics.is_empty() {
        true => Err(Failure::negative()),
        false => Ok(()),
    }
}

type Topics = BTreeMap<(String, String), Vec<RemoteEnd>>;

fn list(participant: &dyn Participant, topics: &Topics) -> Value {
    let topics = topics.iter().map(|((name, type_name), ends)| {
        let (writers, readers): (Vec<_>, Vec<_>) = ends.iter().partition(|end| end.writes);
        let end = |end: &&RemoteEnd| {
            json!({
                "guid": end.guid.to_string(),
                "participant": end.peer,
                "reliability": end.announced.reliability,
                "durability": end.announced.durability,
                "deadline_ms": end.announced.deadline_ms,
                "partitions": end.partitions,
            })
        };
        let of = ends.iter().map(|end| type_of(participant, end));
        let of = best(of);
        json!({
            "topic": shown_topic(name),
            "dds_topic": name,
            "type": shown_type(type_name),
            "dds_type": type_name,
            "members": match &of {
                Found::Known(of) => members(of).into_iter()
                    .map(|(path, of)| json!({ "path": path, "type": of })).collect(),
                _ => Value::Null,
            },
            "unreadable": match of {
                Found::Unreadable(why) => Value::String(why),
                _ => Value::Null,
            },
            "writers": writers.iter().map(end).collect::<Vec<_>>(),
            "readers": readers.iter().map(end).collect::<Vec<_>>(),
        })
    });
    topics.collect()
}

/// What is known best of the types of a topic's ends.
fn best(found: impl Iterator<Item = Found>) -> Found {
    let rank = |found: &Found| match found {
        Found::NotAnnounced => 0,
        Found::Requested => 1,
        Found::Unreadable(_) => 2,
        Found::Known(_) => 3,
    };
    found.max_by_key(rank).unwrap_or(Found::NotAnnounced)
}

fn table(participant: &dyn Participant, topics: &Topics, types: bool) {
    let mut table = Table::new(["TOPIC", "TYPE", "WRITERS", "READERS", "QOS", "PARTITIONS"]);
    let mut described = String::new();
    for ((name, type_name), ends) in topics {
        let writers = ends.iter().filter(|end| end.writes).count();
        let mut words: Vec<String> = Vec::new();
        let mut partitions: Vec<&str> = Vec::new();
        for end in ends {
            let text = end.announced.to_string();
            if !words.contains(&text) {
                words.push(text);
            }
            partitions.extend(end.partitions.iter().map(String::as_str));
        }
        partitions.sort_unstable();
        partitions.dedup();
        table.row([
            output::clean(&shown_topic(name)),
            output::clean(&shown_type(type_name)),
            writers.to_string(),
            (ends.len() - writers).to_string(),
            words.join("; "),
            output::clean(&partitions.join(", ")),
        ]);
        if types {
            let _ = writeln!(described, "{}", shown_type(type_name));
            match best(ends.iter().map(|end| type_of(participant, end))) {
                Found::Known(of) => {
                    for (path, of) in members(&of) {
                        let _ = writeln!(described, "  {path}: {of}");
                    }
                }
                Found::NotAnnounced => described.push_str("  not announced\n"),
                Found::Requested => described.push_str("  requested, and not answered yet\n"),
                Found::Unreadable(why) => {
                    let _ = writeln!(described, "  {why}");
                }
            }
        }
    }
    output::line(table);
    for line in described.lines() {
        output::line(output::clean(line));
    }
}

/// The members that hold values, by their paths.
fn members(of: &Structure) -> Vec<(String, String)> {
    fn add(of: &Structure, path: &str, into: &mut Vec<(String, String)>) {
        for member in &of.members {
            let path = match path {
                "" => member.name.clone(),
                path => format!("{path}.{}", member.name),
            };
            match &member.of {
                Type::Structure(inner) => add(inner, &path, into),
                other => {
                    let key = if member.is_key { "@key " } else { "" };
                    let optional = if member.is_optional { "@optional " } else { "" };
                    into.push((path, format!("{key}{optional}{other}")));
                }
            }
        }
    }
    let mut found = Vec::new();
    add(of, "", &mut found);
    found
}

/// Prints samples.
pub(super) fn echo(flags: &DdsEcho, json: bool) -> Outcome {
    let mut participant = open(&flags.at)?;
    let writers = writers_of(&mut *participant, flags)?;
    let Some(first) = writers.first() else {
        let message = format!("no writer of {} in domain {}", flags.topic, flags.at.domain);
        return Err(Failure::new(message)
            .coded("topic_unknown")
            .hint("list the topics: chappe dds topics"));
    };
    let topic = Topic::of_any_type(&first.topic.name);
    let mut partitions = flags.partitions.clone();
    if partitions.is_empty() {
        partitions = writers
            .iter()
            .flat_map(|it| it.partitions.clone())
            .collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions.truncate(16);
    }
    let all_keep = |it: &RemoteEnd| it.announced.durability >= AnnouncedDurability::TransientLocal;
    let all_repeat = |it: &RemoteEnd| it.announced.reliability == Reliability::Reliable;
    let qos = Qos {
        reliability: match writers.iter().all(all_repeat) {
            true => Reliability::Reliable,
            false => Reliability::BestEffort,
        },
        durability: match writers.iter().all(all_keep) {
            true => Durability::TransientLocal,
            false => Durability::Volatile,
        },
        partitions,
        ..Qos::default()
    };
    let mut reader = participant
        .reader(&topic, &qos)
        .map_err(|error| failure(&error))?;
    let (mut printed, mut samples) = (0, Vec::new());
    while flags.count.is_none_or(|count| printed < count) {
        step(&mut *participant, STEP)?;
        reader
            .take(64, &mut samples)
            .map_err(|error| failure(&error))?;
        for fault in reader.faults() {
            output::note(fault);
        }
        for sample in samples.drain(..) {
            if flags.count.is_some_and(|count| printed >= count) {
                break;
            }
            let Some(of) = &sample.of else {
                output::note("a sample has no type that can be read");
                continue;
            };
            match of.decode(&sample.payload) {
                Ok(value) if json => output::json(&value_json(of, &value)),
                Ok(value) => print(of, &value),
                Err(error) => output::note(format_args!("sample {}: {error}", sample.number)),
            }
            printed += 1;
        }
    }
    Ok(())
}

/// The writers of the topic, once there are any.
fn writers_of(
    participant: &mut dyn Participant,
    flags: &DdsEcho,
) -> Result<Vec<RemoteEnd>, Failure> {
    let until = Instant::now() + patience(&flags.at)?;
    let names = [flags.topic.clone(), dds_topic(&flags.topic)];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        step(participant, left)?;
        let ends = participant.remote_ends().into_iter();
        let found: Vec<RemoteEnd> = ends
            .filter(|end| end.writes && names.contains(&end.topic.name))
            .collect();
        if !found.is_empty() || left.is_zero() {
            return Ok(found);
        }
    }
}

fn print(of: &Structure, value: &Datum) {
    let mut text = String::new();
    lines(of, value, 0, &mut text);
    text.push_str("---");
    for line in text.lines() {
        output::line(output::clean(line));
    }
}

fn lines(of: &Structure, value: &Datum, depth: usize, into: &mut String) {
    let Datum::Structure(values) = value else {
        return;
    };
    for (member, value) in of.members.iter().zip(values) {
        let indent = "  ".repeat(depth);
        let _ = match (value, &member.of) {
            (None, _) => writeln!(into, "{indent}{}: absent", member.name),
            (Some(value), Type::Structure(inner)) => {
                let written = writeln!(into, "{indent}{}:", member.name);
                lines(inner, value, depth + 1, into);
                written
            }
            (Some(value), of) => {
                let value = member_json(of, value).to_string();
                writeln!(into, "{indent}{}: {value}", member.name)
            }
        };
    }
}

fn value_json(of: &Structure, value: &Datum) -> Value {
    let Datum::Structure(values) = value else {
        return Value::Null;
    };
    let members = of.members.iter().zip(values);
    let members = members.map(|(member, value)| {
        let value = value.as_ref().map(|value| member_json(&member.of, value));
        (member.name.clone(), value.unwrap_or_default())
    });
    Value::Object(members.collect::<Map<_, _>>())
}

fn member_json(of: &Type, value: &Datum) -> Value {
    let element = match of {
        Type::Sequence(element) | Type::Array(element, _) => &**element,
        other => other,
    };
    match value {
        Datum::Boolean(value) => json!(value),
        Datum::Integer(value) => json!(value),
        Datum::Unsigned(value) => json!(value),
        Datum::Double(value) => json!(value),
        Datum::Text(value) => json!(value),
        Datum::Bytes(values) => json!(values),
        Datum::Numbers(values) => json!(values),
        Datum::List(values) => values.iter().map(|it| member_json(element, it)).collect(),
        Datum::Structure(_) => match element {
            Type::Structure(inner) => value_json(inner, value),
            _ => Value::Null,
        },
    }
}
