//! `chappe call`: calls an operation of a device.

use std::collections::HashSet;
use std::fmt;

use chappe_device::client::HostedService;
use chappe_soap::schema::{Argument, ComposeReason, Model};
use chappe_soap::wsdl::{Operation, OperationKind, PortType};
use chappe_xml::{Element, Name, Node};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
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
        let (service, operation) =
            operation(&description.services, description.name(), &flags.operation)?;
        let body = match &flags.body {
            Some(text) => Element::parse(text.as_bytes()).map_err(|error| {
                Failure::new(format!("--body is not XML: {error}")).coded("argument_invalid")
            })?,
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

/// An operation with its service and port type.
type Callable<'d> = (&'d HostedService, &'d PortType, &'d Operation);

/// The callable operation of this name, after the name of its service and `/` if several have it. A
/// service is named by its identifier, the last part of it, or one of its port types.
fn operation<'a>(
    services: &'a [HostedService],
    device: &str,
    wanted: &str,
) -> Result<(&'a HostedService, &'a Operation), Failure> {
    let (service_name, name) = match wanted.rsplit_once('/') {
        Some((service, name)) => (Some(service), name),
        None => (None, wanted),
    };
    let all = services.iter().flat_map(|service| {
        let operations = service.wsdl.operations();
        operations.map(move |(port_type, operation)| (service, port_type, operation))
    });
    let callable: Vec<Callable<'_>> = all
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
            let of_name = callable.iter().filter(|(.., it)| it.name == name);
            let of_name: Vec<_> = of_name.collect();
            let mut seen = HashSet::new();
            let names = callable.iter().map(|(.., it)| it.name.as_str());
            let names: Vec<_> = names.filter(|name| seen.insert(*name)).collect();
            let hint = match (of_name.as_slice(), names.as_slice()) {
                ([], []) => "it has no callable operation".to_owned(),
                ([], names) => format!("it has {}", names.join(", ")),
                // Only the service has another name.
                (several, _) => format!("write one of {}", qualified(several)),
            };
            Err(Failure::new(format!("{device} has no operation {wanted}"))
                .coded("operation_unknown")
                .hint(hint))
        }
        several => Err(
            Failure::new(format!("{device} has several operations {name}"))
                .coded("operation_unknown")
                .hint(format!("write one of {}", qualified(several))),
        ),
    }
}

/// Operations with the names of their services, or of their port types where a service has several.
fn qualified(operations: &[&Callable<'_>]) -> String {
    let names = operations.iter().map(|(service, port_type, operation)| {
        let of_service = operations
            .iter()
            .filter(|(other, ..)| other.id == service.id);
        let place = match of_service.count() {
            1 => short(&service.id),
            _ => &*port_type.name.local,
        };
        format!("{place}/{}", operation.name)
    });
    names.collect::<Vec<_>>().join(", ")
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
        return Err(Failure::new("the operation takes no arguments").coded("argument_invalid"));
    };
    let mut model = Model::new(&service.schemas);
    let described = match model.element(element) {
        Ok(described) => described,
        // Without a schema nothing is known of the arguments.
        Err(_) if arguments.is_empty() => return Ok(Element::new(element.clone())),
        Err(reason) => {
            return Err(Failure::new(format!("{element}: {reason}"))
                .coded("argument_invalid")
                .hint("give the whole body with --body '<…/>'"));
        }
    };
    let given = arguments_of(arguments)?;
    model.compose(&described, &given).map_err(|error| {
        let hint = match error.reason {
            ComposeReason::Unsupported(_) => "give the whole body with --body '<…/>'".to_owned(),
            _ => format!("{} takes {}", operation.name, model.in_words(&described)),
        };
        Failure::new(format!("argument {error}"))
            .coded("argument_invalid")
            .hint(hint)
    })
}

/// The arguments of the command line: `NAME=VALUE`, or one JSON object.
fn arguments_of(arguments: &[String]) -> Result<Argument, Failure> {
    if let [json] = arguments
        && json.trim_start().starts_with('{')
    {
        let raw: &RawValue = serde_json::from_str(json).map_err(not_json)?;
        return Ok(argument_of(raw, "", 0)?.unwrap_or(Argument::none()));
    }
    let mut all = Argument::none();
    for argument in arguments {
        let Some((name, value)) = argument.split_once('=') else {
            return Err(Failure::new(format!("{argument:?} is not an argument"))
                .coded("argument_invalid")
                .hint(
                    "write NAME=VALUE, or all arguments as one JSON object '{\"NAME\": VALUE}'",
                ));
        };
        check_characters(name, value)?;
        all.add(name, Argument::Value(value.to_owned()))
            .map_err(|error| Failure::new(format!("argument {error}")).coded("argument_invalid"))?;
    }
    Ok(all)
}

/// The members of an object in their order, each value as it is written.
struct Members<'j>(Vec<(String, &'j RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Nesting of JSON. Reason: no schema has more levels, and each takes stack.
const JSON_DEPTH_MAX: usize = 32;

fn not_json(error: serde_json::Error) -> Failure {
    Failure::new(format!("the argument is not JSON: {error}")).coded("argument_invalid")
}

/// An argument from JSON at this path; `null` is none. Numbers keep their text: as `f64`, a decimal would lose digits.
fn argument_of(json: &RawValue, path: &str, depth: usize) -> Result<Option<Argument>, Failure> {
    if depth > JSON_DEPTH_MAX {
        let message = format!("argument {path} has more than {JSON_DEPTH_MAX} levels");
        return Err(Failure::new(message).coded("argument_invalid"));
    }
    let text = json.get();
    let argument = match text.as_bytes().first() {
        Some(b'n') => return Ok(None),
        Some(b'"') => {
            let text: String = serde_json::from_str(text).map_err(not_json)?;
            check_characters(path, &text)?;
            Argument::Value(text)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(not_json)?;
            let mut list = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                let path = format!("{path}[{index}]");
                let item = argument_of(item, &path, depth + 1)?;
                list.push(item.ok_or_else(|| {
                    Failure::new(format!("argument {path} cannot be null"))
                        .coded("argument_invalid")
                        .hint("leave it out of the list, or give it a value")
                })?);
            }
            Argument::List(list)
        }
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text).map_err(not_json)?;
            let mut fields: Vec<(String, Argument)> = Vec::with_capacity(members.len());
            for (name, value) in members {
                let path = match path {
                    "" => name.clone(),
                    outer => format!("{outer}.{name}"),
                };
                if fields.iter().any(|(known, _)| *known == name) {
                    let failure = Failure::new(format!("argument {path} is given twice"))
                        .coded("argument_invalid");
                    return Err(failure.hint("write several values as a list: [1, 2]"));
                }
                if let Some(value) = argument_of(value, &path, depth + 1)? {
                    fields.push((name, value));
                }
            }
            Argument::Fields(fields)
        }
        _ => Argument::Value(text.to_owned()),
    };
    Ok(Some(argument))
}

/// Refuses characters that XML cannot have (XML 1.0, production 2), which would arrive as others.
fn check_characters(path: &str, text: &str) -> Result<(), Failure> {
    let is_permitted = |character: &char| match *character {
        '\t' | '\n' | '\r' => true,
        character => character >= ' ' && !matches!(character, '\u{fffe}' | '\u{ffff}'),
    };
    match text.chars().find(|character| !is_permitted(character)) {
        None => Ok(()),
        Some(wrong) => Err(Failure::new(format!(
            "argument {path} has the character U+{:04X}, which XML cannot carry",
            u32::from(wrong)
        ))
        .coded("argument_invalid")),
    }
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

/// Name, attributes and content of an element. The text of a leaf is as it was received; white space next to
/// children is layout.
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
    let text = element.text();
    let text = match children.is_empty() {
        true => &*text,
        false => text.trim(),
    };
    json!({
        "name": name(&element.name), "attributes": attributes, "children": children,
        "text": text,
    })
}

#[cfg(test)]
mod tests {
    use chappe_device::client::Document;
    use chappe_soap::wsdl::{Service, ServiceOperation};

    use super::*;

    /// A service of a device with many of them.
    fn service(name: &str) -> HostedService {
        let described = Service {
            target_namespace: "urn:x".into(),
            name: "Channel".into(),
            operations: vec![
                ServiceOperation::one_way("Confirm", Name::new("urn:x", "Confirm")),
                ServiceOperation::event("Raised", Name::new("urn:x", "Raised")),
            ],
            schemas: Vec::new(),
            address: None,
        };
        let address = format!("http://192.0.2.7/{name}");
        let document = Document {
            location: format!("{address}?wsdl"),
            text: described.to_wsdl().to_text(),
        };
        HostedService::from_documents(&address, vec![document]).unwrap()
    }

    #[test]
    fn an_operation_that_several_services_have_is_named_with_its_service() {
        let services = [service("one"), service("two")];
        let found = |wanted: &str| operation(&services, "rack", wanted);
        let (service, called) = found("two/Confirm").unwrap();
        assert_eq!(
            (&*service.id, &*called.name),
            ("http://192.0.2.7/two", "Confirm")
        );
        for (wanted, hint) in [
            ("Confirm", "write one of one/Confirm, two/Confirm"),
            ("three/Confirm", "write one of one/Confirm, two/Confirm"),
            // An event is not called.
            ("Raised", "it has Confirm"),
        ] {
            let refused = found(wanted).unwrap_err();
            assert_eq!(refused.hint.as_deref(), Some(hint), "{wanted}");
        }
    }

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
    fn json_keeps_the_text_of_numbers_and_strings() {
        let of = |json: &str| arguments_of(&[json.to_owned()]);
        for number in [
            "1234567890.123456789",
            "0.1000000000000000055511151231257827",
            "1.10",
            "123456789012345678901234567890",
            "18446744073709551616",
            "9007199254740993",
            "-0",
            "true",
        ] {
            let fields = vec![("x".to_owned(), Argument::Value(number.to_owned()))];
            let json = format!("{{ \"x\" : {number} }}");
            assert_eq!(of(&json).unwrap(), Argument::Fields(fields));
        }
        let text = Argument::Value("  \u{a0}a\n\u{1f600} ".to_owned());
        let json = r#"{"x": "  \u00a0a\n\ud83d\ude00 "}"#;
        assert_eq!(
            of(json).unwrap(),
            Argument::Fields(vec![("x".to_owned(), text)])
        );
    }

    #[test]
    fn wrong_json_is_refused_with_its_place() {
        let deep = format!("{{\"a\": {}1{}}}", "[".repeat(99), "]".repeat(99));
        for (json, place) in [
            (
                r#"{"a": {"b": ["x", null]}}"#,
                "argument a.b[1] cannot be null",
            ),
            (
                r#"{"a": ["x", "y\u0000"]}"#,
                "argument a[1] has the character U+0000",
            ),
            (r#"{"a": "\uffff"}"#, "argument a has the character U+FFFF"),
            (r#"{"a": 1, "a": 2}"#, "argument a is given twice"),
            (&deep, "has more than 32 levels"),
        ] {
            let failure = arguments_of(&[json.to_owned()]).unwrap_err();
            let message = format!("{failure:?}");
            assert!(message.contains(place), "{message}");
        }
    }

    #[test]
    fn the_text_of_a_leaf_is_printed_as_it_was_received() {
        let element = Element::parse(b"<a>\n <b>  x\n </b>\n <c> </c>\n</a>").unwrap();
        let json = as_json(&element);
        assert_eq!(json["text"], "");
        assert_eq!(json["children"][0]["text"], "  x\n ");
        assert_eq!(json["children"][1]["text"], " ");
    }

    #[test]
    fn a_service_is_named_by_the_end_of_its_identifier() {
        assert_eq!(short("http://x/services/Plant"), "Plant");
        assert_eq!(short("urn:x:Plant"), "Plant");
        assert_eq!(short("Plant"), "Plant");
    }
}
