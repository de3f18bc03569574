//! `chappe call`: calls an operation of a device.

use chappe_device::client::{Description, HostedService};
use chappe_soap::schema::{Argument, ComposeReason, Model};
use chappe_soap::wsdl::{Operation, OperationKind, PortType};
use chappe_xml::{Element, Name, Node};
use serde_json::{Value, json};

use super::find::clean;
use super::network;
use super::session::{Session, failure};
use crate::cli::Call;
use crate::output::{self, Failure, Outcome};

/// Finds the device, calls the operation, and prints the answer.
pub(crate) fn run(flags: Call, json: bool) -> Outcome {
    network::block_on(async move {
        let session = Session::start(&flags.network)?;
        let description = session.device(&flags.device).await?;
        let (service, operation) = operation(&description, &flags.operation)?;
        let body = match &flags.body {
            Some(text) => Element::parse(text.as_bytes())
                .map_err(|error| Failure::new(format!("--body is not XML: {error}")))?,
            None => body(service, operation, &flags.arguments)?,
        };
        let action = operation
            .input
            .as_ref()
            .map(|input| input.action.clone())
            .unwrap_or_default();
        let answer = session
            .client
            .call(service, &action, body)
            .await
            .map_err(failure)?;
        match answer {
            None => output::progress("accepted; the operation has no answer"),
            Some(answer) if json => output::json(&as_json(&answer)),
            Some(answer) => print(&answer, 0),
        }
        session.close().await;
        Ok(())
    })
}

/// The callable operation of this name, after the name of its service and `/` if several have it. A
/// service is named by its identifier, the last part of it, or one of its port types.
fn operation<'a>(
    description: &'a Description,
    wanted: &str,
) -> Result<(&'a HostedService, &'a Operation), Failure> {
    let (service_name, name) = match wanted.rsplit_once('/') {
        Some((service, name)) => (Some(service), name),
        None => (None, wanted),
    };
    let all = description.services.iter().flat_map(|service| {
        let operations = service.wsdl.operations();
        operations.map(move |(port_type, operation)| (service, port_type, operation))
    });
    let callable: Vec<_> = all
        .filter(|(_, _, operation)| {
            matches!(
                operation.kind,
                OperationKind::OneWay | OperationKind::RequestResponse
            )
        })
        .collect();
    let is_named = |service: &HostedService, port_type: &PortType| {
        service_name.is_none_or(|wanted| {
            wanted == service.id || wanted == short(&service.id) || wanted == port_type.name.local
        })
    };
    let found: Vec<_> = callable
        .iter()
        .filter(|(service, port_type, operation)| {
            operation.name == name && is_named(service, port_type)
        })
        .collect();
    match found.as_slice() {
        [(service, _, operation)] => Ok((service, operation)),
        [] => {
            let names: Vec<_> = callable
                .iter()
                .map(|(_, _, operation)| operation.name.as_str())
                .collect();
            let hint = match names.as_slice() {
                [] => "it has no callable operation".to_owned(),
                names => format!("it has {}", names.join(", ")),
            };
            let device = description.name();
            Err(Failure::new(format!("{device} has no operation {wanted}")).hint(hint))
        }
        several => {
            let names = several.iter().map(|(service, port_type, _)| {
                let has_one = several
                    .iter()
                    .filter(|(other, _, _)| other.id == service.id)
                    .count()
                    == 1;
                match has_one {
                    true => format!("{}/{name}", short(&service.id)),
                    false => format!("{}/{name}", port_type.name.local),
                }
            });
            let names: Vec<_> = names.collect();
            let device = description.name();
            Err(
                Failure::new(format!("{device} has several operations {name}"))
                    .hint(format!("write one of {}", names.join(", "))),
            )
        }
    }
}

/// The last part of a service's identifier.
fn short(id: &str) -> &str {
    id.rsplit(['/', ':']).next().unwrap_or(id)
}

/// The body from the arguments, checked by the schema of the input.
fn body(
    service: &HostedService,
    operation: &Operation,
    arguments: &[String],
) -> Result<Element, Failure> {
    let element = operation
        .input
        .as_ref()
        .and_then(|input| service.wsdl.element(input));
    let Some(element) = element else {
        return Err(Failure::new("the operation takes no arguments"));
    };
    let mut model = Model::new(&service.schemas);
    let described = match model.element(element) {
        Ok(described) => described,
        // Without a schema nothing is known of the arguments.
        Err(_) if arguments.is_empty() => return Ok(Element::new(element.clone())),
        Err(reason) => {
            return Err(Failure::new(format!("{element}: {reason}"))
                .hint("give the whole body with --body '<…/>'"));
        }
    };
    let given = arguments_of(arguments)?;
    model.compose(&described, &given).map_err(|error| {
        let hint = match error.reason {
            ComposeReason::Unsupported(_) => "give the whole body with --body '<…/>'".to_owned(),
            _ => format!("{} takes {}", operation.name, model.in_words(&described)),
        };
        Failure::new(format!("argument {error}")).hint(hint)
    })
}

/// The arguments of the command line: `NAME=VALUE`, or one JSON object.
fn arguments_of(arguments: &[String]) -> Result<Argument, Failure> {
    if let [json] = arguments
        && json.trim_start().starts_with('{')
    {
        let parsed: Value = serde_json::from_str(json)
            .map_err(|error| Failure::new(format!("the argument is not JSON: {error}")))?;
        return Ok(argument_of(parsed).unwrap_or(Argument::none()));
    }
    let mut all = Argument::none();
    for argument in arguments {
        let Some((name, value)) = argument.split_once('=') else {
            return Err(Failure::new(format!("{argument:?} is no argument")).hint(
                "write NAME=VALUE, or all arguments as one JSON object '{\"NAME\": VALUE}'",
            ));
        };
        all.add(name, Argument::Value(value.to_owned()))
            .map_err(|error| Failure::new(format!("argument {error}")))?;
    }
    Ok(all)
}

/// An argument from JSON; `null` is none.
fn argument_of(json: Value) -> Option<Argument> {
    Some(match json {
        Value::Null => return None,
        Value::String(text) => Argument::Value(text),
        Value::Bool(_) | Value::Number(_) => Argument::Value(json.to_string()),
        Value::Array(items) => Argument::List(items.into_iter().filter_map(argument_of).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Argument::Fields(
                fields
                    .filter_map(|(name, json)| Some((name, argument_of(json)?)))
                    .collect(),
            )
        }
    })
}

/// One line per element, indented.
fn print(element: &Element, depth: usize) {
    let text = element.text();
    let indent = "  ".repeat(depth);
    let attributes: Vec<_> = element
        .attributes
        .iter()
        .map(|(name, value)| format!(" {}={value}", name.local))
        .collect();
    let line = format!(
        "{indent}{}{}: {}",
        element.name.local,
        attributes.concat(),
        text.trim()
    );
    output::line(clean(line.trim_end().trim_end_matches(':')));
    element.elements().for_each(|child| print(child, depth + 1));
}

/// Name, attributes and content of an element.
pub(crate) fn as_json(element: &Element) -> Value {
    let name = |name: &Name| name.to_string();
    let attributes: serde_json::Map<_, _> = element
        .attributes
        .iter()
        .map(|(key, value)| (name(key), json!(value)))
        .collect();
    let children: Vec<_> = element
        .children
        .iter()
        .filter_map(|node| match node {
            Node::Element(child) => Some(as_json(child)),
            Node::Text(_) => None,
        })
        .collect();
    json!({
        "name": name(&element.name), "attributes": attributes, "children": children,
        "text": element.text().trim(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_paths_or_json() {
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let by_path = arguments_of(&words(&["a.b=1", "c=x", "c=y=z", "d=true"])).unwrap();
        let json = r#"{"a": {"b": 1}, "c": ["x", "y=z"], "d": true, "e": null}"#;
        assert_eq!(arguments_of(&words(&[json])).unwrap(), by_path);
        for wrong in [&["a"][..], &["{a"], &["a.=1"], &["a=1", "a.b=2"]] {
            assert!(arguments_of(&words(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_service_is_named_by_the_end_of_its_identifier() {
        assert_eq!(short("http://x/services/Plant"), "Plant");
        assert_eq!(short("urn:x:Plant"), "Plant");
        assert_eq!(short("Plant"), "Plant");
    }
}
