//! Prints a wrapper's file for an OPC UA server: the variables below its objects, with types, units and values.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use chappe_stream::{FieldType, name_part};
use opcua_core::ResponseMessage;
use opcua_crypto::SecurityPolicy;
use opcua_types::{
    BrowseDescription, BrowseDirection, BrowseNextRequest, BrowseRequest, BrowseResult,
    BrowseResultMask, ByteString, EndpointDescription, MessageSecurityMode, NodeClass,
    NodeClassMask, NodeId, Range, ReferenceDescription, ReferenceTypeId, Variant,
    VariantScalarTypeId, VariantTypeId,
};
use tracing::Dispatch;
use tracing::instrument::WithSubscriber as _;

use super::connection::{
    ANSWER_TIME, Connection, Fault, counted, endpoint_name, endpoints, value_of,
};
use super::security::{Security, fingerprint};
use super::settings::{FIELDS_MAX, Target, User, place};
use super::subscription::{properties, read_values, units};
use super::value::{Unit, describe};
use crate::WrapperError;
use crate::kinds::browse::{field_name, quoted, run};

/// Longest time of all requests.
const TIME: Duration = Duration::from_secs(20);
/// Most steps from the objects folder.
const DEPTH_MAX: usize = 8;
/// Most nodes that are looked at; reason: an address space has no end that a client could rely on.
const NODES_MAX: usize = 2_000;
/// Most references of one node that a server returns at once.
const REFERENCES: u32 = 500;
/// The folder of objects, and the server's own object in it.
const OBJECTS: u32 = 85;
const SERVER: u32 = 2_253;

/// A variable.
#[derive(Debug, Clone, PartialEq)]
struct Variable {
    id: NodeId,
    /// Names from the objects folder.
    names: Vec<String>,
    value: Option<Variant>,
    unit: Option<Unit>,
    range: Option<(f64, f64)>,
}

/// The file for `opc.tcp://HOST:PORT`.
pub(super) fn browse(address: &str) -> Result<String, WrapperError> {
    let place = place(address).map_err(|text| {
        WrapperError::settings(text).with_hint("chappe wrapper browse opc.tcp://10.0.0.5:4840")
    })?;
    let target = Target {
        url: address.to_owned(),
        place,
        policy: SecurityPolicy::None,
        mode: MessageSecurityMode::None,
        server: None,
        own: None,
        directory: std::env::temp_dir().join("chappe-opcua-browse-without-certificates"),
        user: User::Anonymous,
        session_timeout: TIME,
        name: "browse".to_owned(),
    };
    let asked = async {
        let fault = |fault: Fault| fault.error(address);
        let security = Security::of(&target)?;
        let found = endpoints(address, &target.place, &security)
            .await
            .map_err(fault)?;
        let is_open = found
            .iter()
            .any(|it| it.security_mode == MessageSecurityMode::None);
        if !is_open {
            return Ok::<_, WrapperError>((found, Vec::new()));
        }
        let (connection, ..) = Connection::open(&target, None).await?;
        let listed = variables(&connection).await;
        connection.close().await;
        Ok((found, listed.map_err(fault)?))
    };
    let (found, listed) = run(asked.with_subscriber(Dispatch::none()))?;
    Ok(print(address, &found, &listed))
}

/// The variables below the folder of objects, breadth first.
async fn variables(connection: &Connection) -> Result<Vec<Variable>, Fault> {
    let end = Instant::now() + TIME;
    let mut seen = HashSet::from([NodeId::new(0, SERVER)]);
    let mut waiting = VecDeque::from([(NodeId::new(0, OBJECTS), Vec::new())]);
    let mut found: Vec<(NodeId, Vec<String>)> = Vec::new();
    while let Some((node, names)) = waiting.pop_front() {
        if Instant::now() > end || seen.len() > NODES_MAX || found.len() == FIELDS_MAX {
            break;
        }
        for reference in references(connection, &node).await? {
            let id = reference.node_id;
            let is_here = id.server_index == 0 && id.namespace_uri.is_empty();
            if !is_here || !seen.insert(id.node_id.clone()) || seen.len() > NODES_MAX {
                continue;
            }
            let mut names: Vec<String> = names.clone();
            names.push(
                reference
                    .browse_name
                    .name
                    .as_ref()
                    .chars()
                    .take(64)
                    .collect(),
            );
            let is_variable = reference.node_class == NodeClass::Variable;
            if is_variable && found.len() < FIELDS_MAX {
                found.push((id.node_id.clone(), names.clone()));
            }
            if names.len() < DEPTH_MAX {
                waiting.push_back((id.node_id, names));
            }
        }
    }
    let ids: Vec<NodeId> = found.iter().map(|(id, _)| id.clone()).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let values = read_values(connection, ids.iter().map(value_of).collect()).await?;
    let units = units(connection, &ids).await?;
    let ranges = properties(connection, &ids, "EURange").await?;
    let all = found
        .into_iter()
        .zip(values)
        .zip(units.into_iter().zip(ranges));
    let variable = |(((id, names), value), (unit, range))| Variable {
        id,
        names,
        value,
        unit,
        range: range_of(range),
    };
    Ok(all.map(variable).collect())
}

fn range_of(value: Option<Variant>) -> Option<(f64, f64)> {
    let Variant::ExtensionObject(object) = value? else {
        return None;
    };
    object
        .inner_as::<Range>()
        .map(|range| (range.low, range.high))
}

/// What a node refers to: objects and variables that are parts of it. Properties are left out.
async fn references(
    connection: &Connection,
    node: &NodeId,
) -> Result<Vec<ReferenceDescription>, Fault> {
    let mut found = Vec::new();
    for reference in [ReferenceTypeId::Organizes, ReferenceTypeId::HasComponent] {
        let description = BrowseDescription {
            node_id: node.clone(),
            browse_direction: BrowseDirection::Forward,
            reference_type_id: reference.into(),
            include_subtypes: true,
            node_class_mask: (NodeClassMask::OBJECT | NodeClassMask::VARIABLE).bits(),
            result_mask: BrowseResultMask::All as u32,
        };
        let build = |request_header| BrowseRequest {
            request_header,
            view: Default::default(),
            requested_max_references_per_node: REFERENCES,
            nodes_to_browse: Some(vec![description]),
        };
        let results = connection.request(ANSWER_TIME, build, |answer| match answer {
            ResponseMessage::Browse(it) => Ok((it.response_header, it.results)),
            other => Err(other),
        });
        let mut page = one(results.await?)?;
        loop {
            found.extend(page.references.unwrap_or_default());
            if page.continuation_point.is_null_or_empty() || found.len() > NODES_MAX {
                break;
            }
            page = next_page(connection, page.continuation_point).await?;
        }
    }
    Ok(found)
}

async fn next_page(connection: &Connection, point: ByteString) -> Result<BrowseResult, Fault> {
    let build = |request_header| BrowseNextRequest {
        request_header,
        release_continuation_points: false,
        continuation_points: Some(vec![point]),
    };
    let results = connection.request(ANSWER_TIME, build, |answer| match answer {
        ResponseMessage::BrowseNext(it) => Ok((it.response_header, it.results)),
        other => Err(other),
    });
    one(results.await?)
}

fn one(results: Option<Vec<BrowseResult>>) -> Result<BrowseResult, Fault> {
    let first = counted(results, 1)?.into_iter().next();
    Ok(first.unwrap_or_default())
}

/// The type of the field that a value becomes.
fn field_type(value: &Variant) -> Option<(FieldType, &'static str)> {
    use VariantScalarTypeId as Id;
    let id = match value.type_id() {
        VariantTypeId::Scalar(id) => id,
        VariantTypeId::Array(Id::Byte, None) => return Some((FieldType::Bytes, "bytes")),
        VariantTypeId::Array(id, None) if is_number(id) => {
            return Some((FieldType::Samples, "samples"));
        }
        _ => return None,
    };
    Some(match id {
        Id::Boolean => (FieldType::Boolean, "boolean"),
        Id::Float | Id::Double => (FieldType::Double, "double"),
        id if is_number(id) => (FieldType::Integer, "integer"),
        Id::ByteString => (FieldType::Bytes, "bytes"),
        Id::String
        | Id::LocalizedText
        | Id::DateTime
        | Id::Guid
        | Id::QualifiedName
        | Id::NodeId => (FieldType::Text, "text"),
        _ => return None,
    })
}

fn is_number(id: VariantScalarTypeId) -> bool {
    use VariantScalarTypeId as Id;
    matches!(
        id,
        Id::SByte
            | Id::Byte
            | Id::Int16
            | Id::UInt16
            | Id::Int32
            | Id::UInt32
            | Id::Int64
            | Id::UInt64
            | Id::Float
            | Id::Double
    )
}

fn print(address: &str, endpoints: &[EndpointDescription], variables: &[Variable]) -> String {
    let mut toml = String::new();
    let _ = writeln!(toml, "kind = \"opcua\"\nendpoint = {}", quoted(address));
    for endpoint in endpoints.iter().take(16) {
        let der = endpoint.server_certificate.as_ref();
        let certificate = match der.is_empty() {
            true => String::new(),
            false => format!(", fingerprint {}", fingerprint(der)),
        };
        let name: String = endpoint_name(endpoint)
            .chars()
            .filter(|it| !it.is_control())
            .collect();
        let _ = writeln!(toml, "# the server offers: {name}{certificate}");
    }
    let _ = writeln!(
        toml,
        "# With a policy: compare the fingerprint with the one that the server itself shows, then\n\
         # security_policy = \"Basic256Sha256\"\n# server_fingerprint = \"…\"\n\
         # history = true closes gaps, where the server keeps the history of a node."
    );
    // A stream of its own for each object, so that fields have short names.
    let mut objects: BTreeMap<String, Vec<&Variable>> = BTreeMap::new();
    for variable in variables {
        let parents = variable
            .names
            .split_last()
            .map_or(&[][..], |(_, parents)| parents);
        let parts: Vec<String> = parents.iter().map(|name| name_part(name)).collect();
        let name: String = parts.join(".");
        let name = if chappe_stream::check_name(&name).is_ok() {
            name
        } else {
            "objects".to_owned()
        };
        objects.entry(name).or_default().push(variable);
    }
    if variables.is_empty() {
        let _ = writeln!(
            toml,
            "# No variable can be read without a login; name the nodes that you know."
        );
        objects.insert("opcua".to_owned(), Vec::new());
    }
    for (stream, variables) in objects {
        let mut lines = Vec::new();
        let mut names = HashSet::new();
        for variable in variables {
            let (line, is_used) = line(variable, &mut names);
            lines.push((line, is_used));
        }
        // A table without a field would be a fault.
        let is_empty = !lines.iter().any(|(_, is_used)| *is_used);
        let mark = if is_empty { "# " } else { "" };
        let _ = writeln!(
            toml,
            "\n{mark}[[nodes]]\n{mark}stream_name = {}\n{mark}fields = [",
            quoted(&stream)
        );
        for (line, is_used) in lines {
            let mark = if is_used { "" } else { "# " };
            let _ = writeln!(toml, "    {mark}{line}");
        }
        let _ = writeln!(toml, "{mark}]");
    }
    toml
}

/// The line of a variable, and whether it can be a field.
fn line(variable: &Variable, names: &mut HashSet<String>) -> (String, bool) {
    let mut name = field_name(variable.names.last().map_or("value", |it| it));
    while !names.insert(name.clone()) {
        name.push('_');
    }
    let plain = |text: String| -> String {
        text.chars()
            .filter(|it| !it.is_control())
            .take(80)
            .collect()
    };
    let value = variable.value.as_ref();
    let mut notes = vec![plain(value.map_or("no value".to_owned(), describe))];
    let unit = match &variable.unit {
        Some(Unit::Ucum(code)) => format!(", unit = {}", quoted(code)),
        Some(Unit::Text(text)) => {
            notes.push(plain(format!("unit {text}")));
            String::new()
        }
        None => String::new(),
    };
    if let Some((low, high)) = variable.range {
        notes.push(format!("range {low} to {high}"));
    }
    let found = value.and_then(field_type);
    let word = found.map_or("text", |(_, word)| word);
    let id = variable.id.to_string();
    // An empty id, or one of several lines, has no text form that can be read again.
    let is_readable = id.parse() == Ok(variable.id.clone()) && !id.contains(char::is_control);
    let id = if is_readable {
        quoted(&id)
    } else {
        quoted(&plain(id))
    };
    let name = quoted(&name);
    let is_number = found.is_some_and(|(it, _)| {
        matches!(
            it,
            FieldType::Double | FieldType::Integer | FieldType::Samples
        )
    });
    let unit = if is_number { unit } else { String::new() };
    let line = format!(
        "{{ name = {name}, node = {id}, type = \"{word}\"{unit} }}, # {}",
        notes.join(", ")
    );
    (line, found.is_some() && is_readable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;
    use proptest::prelude::*;

    fn variable(id: &str, names: &[&str], value: Option<Variant>) -> Variable {
        Variable {
            id: NodeId::new(2, id),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            value,
            unit: Some(Unit::Ucum("Cel".to_owned())),
            range: Some((0.0, 100.0)),
        }
    }

    #[test]
    fn the_printed_file_is_valid() {
        let found = [
            variable("a", &["Boiler 1", "Temp °C"], Some(Variant::Double(1.5))),
            variable(
                "b\"\n",
                &["Boiler 1", "Temp °C"],
                Some(Variant::from("x\ny")),
            ),
            variable("c", &["Count"], Some(Variant::Int32(7))),
            variable("d", &["Empty", "Nothing"], None),
        ];
        let toml = print("opc.tcp://10.0.0.5:4840", &[], &found);
        let file = wrapper_file(&toml);
        file.kind()
            .unwrap_or_else(|fault| panic!("{fault}\n{toml}"));
        let plan = super::super::settings::Plan::of(&file).unwrap();
        let streams: Vec<&str> = plan.groups.iter().map(|it| &*it.stream).collect();
        assert_eq!(streams, ["boiler-1", "objects"], "{toml}");
        assert!(
            toml.contains("unit = \"Cel\"") && toml.contains("range 0 to 100"),
            "{toml}"
        );
    }

    proptest! {
        #[test]
        fn any_names_give_a_valid_file(names in proptest::collection::vec("\\PC{0,20}|.{0,5}", 1..6), value in "\\PC{0,20}") {
            let found: Vec<Variable> = names.iter()
                .map(|name| variable(name, &[name, name], Some(Variant::from(value.as_str()))))
                .collect();
            let toml = print("opc.tcp://a:1", &[], &found);
            let file = wrapper_file(&toml);
            // Without any usable variable, a person has to name nodes.
            let is_empty = !toml.contains("\n[[nodes]]");
            prop_assert!(file.kind().is_ok() || is_empty, "{}", toml);
        }
    }
}
