//! `chappe call`: calls an operation of a device.

use chappe_device::client::{Description, HostedService};
use chappe_soap::wsdl::{Operation, OperationKind};
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

/// The callable operation of this name.
fn operation<'a>(
    description: &'a Description,
    name: &str,
) -> Result<(&'a HostedService, &'a Operation), Failure> {
    let all = description.services.iter().flat_map(|service| {
        service
            .wsdl
            .operations()
            .map(move |(_, operation)| (service, operation))
    });
    let callable = all.filter(|(_, operation)| {
        matches!(
            operation.kind,
            OperationKind::OneWay | OperationKind::RequestResponse
        )
    });
    let mut names = Vec::new();
    for (service, operation) in callable {
        if operation.name == name {
            return Ok((service, operation));
        }
        names.push(operation.name.clone());
    }
    let hint = if names.is_empty() {
        "it has no callable operation".to_owned()
    } else {
        format!("it has {}", names.join(", "))
    };
    Err(Failure::new(format!("{} has no operation {name}", description.name())).hint(hint))
}

/// The body from NAME=VALUE arguments, by the flat schema of the input.
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
    let mut body = Element::new(element.clone());
    if arguments.is_empty() {
        return Ok(body);
    }
    let flat = service.schemas.flat(element).map_err(|why| {
        Failure::new(why.to_string()).hint("give the whole body with --body '<…/>'")
    })?;
    for argument in arguments {
        let (name, _) = argument.split_once('=').unwrap_or((argument.as_str(), ""));
        if !argument.contains('=') || !flat.fields.iter().any(|field| field.name.local == name) {
            let names: Vec<_> = flat
                .fields
                .iter()
                .map(|field| field.name.local.to_string())
                .collect();
            return Err(Failure::new(format!(
                "{argument:?} is not an argument of {}",
                operation.name
            ))
            .hint(format!("write NAME=VALUE; names: {}", names.join(", "))));
        }
    }
    // Services may require the schema's order.
    for field in &flat.fields {
        for argument in arguments {
            let Some((name, value)) = argument.split_once('=') else {
                continue;
            };
            if field.name.local == name {
                let child = Element::new(field.name.clone()).with_text(value.to_owned());
                body = body.with_child(child);
            }
        }
    }
    Ok(body)
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
