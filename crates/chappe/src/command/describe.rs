//! `chappe describe`: the metadata of a device.

use std::path::Path;

use chappe_device::client::{Description, Document, HostedService};
use chappe_soap::rust::Modules;
use serde_json::{Value, json};

use super::find::clean;
use super::network;
use super::session::Session;
use crate::cli::Describe;
use crate::output::{self, Failure, Outcome};

/// Finds the device and prints its description.
pub(crate) fn run(flags: Describe, json: bool) -> Outcome {
    if flags.rust && flags.device.ends_with(".wsdl") {
        return rust_of_file(Path::new(&flags.device));
    }
    network::block_on(async move {
        let session = Session::start(&flags.network)?;
        let description = session.device(&flags.device).await?;
        if flags.rust {
            let services = description.services.iter();
            rust(description.name(), services)?;
        } else if json {
            output::json(&as_json(&description, flags.wsdl));
        } else {
            print(&description, flags.wsdl);
        }
        session.close().await;
        Ok(())
    })
}

/// Prints the Rust types of the messages of services.
fn rust<'s>(about: &str, services: impl Iterator<Item = &'s HostedService>) -> Result<(), Failure> {
    let mut modules = Modules::new("chappe_device");
    for service in services {
        let mut port_types = service.wsdl.port_types.iter();
        let name = match port_types.next() {
            Some(port_type) => port_type.name.local.clone().into_owned(),
            None => service.id.clone(),
        };
        modules
            .add(&name, &service.wsdl, &service.schemas)
            .map_err(|error| {
                Failure::new(format!("{}: {error}", service.id)).coded("description_unusable")
            })?;
    }
    let about = format!("Types for the messages of {about}, written by `chappe describe --rust`.");
    output::line(modules.finish(&about).trim_end());
    Ok(())
}

/// The same from a WSDL file, and the files that it imports by relative locations.
fn rust_of_file(path: &Path) -> Outcome {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path);
        text.map_err(|error| {
            Failure::new(format!("{} cannot be read: {error}", path.display()))
                .coded("file_unreadable")
        })
    };
    let document = |path: &Path| -> Result<Document, Failure> {
        let location = path.display().to_string();
        let text = read(path)?;
        Ok(Document { location, text })
    };
    let mut documents = vec![document(path)?];
    let folder = path.parent().unwrap_or(Path::new(""));
    let service = loop {
        // The address is not used.
        let service = HostedService::from_documents("http://127.0.0.1/", documents.clone());
        let service = service.map_err(super::session::failure)?;
        let missing = service.missing_documents().into_iter().find(|location| {
            let known = folder.join(location).display().to_string();
            documents.iter().all(|document| document.location != known)
        });
        match missing {
            Some(location) if location.contains("://") => {
                return Err(
                    Failure::new(format!("{location} is imported, but is not a file"))
                        .coded("file_unreadable")
                        .hint("save it next to the WSDL, and give its file name as location"),
                );
            }
            Some(location) => documents.push(document(&folder.join(location))?),
            None => break service,
        }
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    rust(&name, std::iter::once(&service))
}

fn print(description: &Description, wsdl: bool) {
    let line = |key: &str, value: &str| {
        if !value.is_empty() {
            output::line(format_args!("{key:<14} {}", clean(value)));
        }
    };
    let first = |texts: &[chappe_dpws::metadata::LocalizedString]| {
        texts
            .first()
            .map(|text| text.text.to_string())
            .unwrap_or_default()
    };
    let found = &description.found;
    line("name", description.name());
    line("endpoint", description.endpoint());
    line("address", &description.contact.to_string());
    line("dialect", network::dialect(description.dialect));
    line("manufacturer", &first(&description.model.manufacturer));
    line("model", &first(&description.model.model_name));
    line(
        "firmware",
        description
            .device
            .firmware_version
            .as_deref()
            .unwrap_or_default(),
    );
    line(
        "serial number",
        description
            .device
            .serial_number
            .as_deref()
            .unwrap_or_default(),
    );
    line("scopes", &found.scopes.join(" "));
    for name in &description.types {
        line("type", &name.to_string());
    }
    for service in &description.services {
        line("service", &service.id);
        for (kind, name, action) in operations(service) {
            output::line(format_args!(
                "  {kind:<10} {:<24} {}",
                clean(&name),
                clean(&action)
            ));
        }
    }
    for note in &description.notes {
        line("note", &format!("{} {}", note.reason, note.detail));
        if let Some(hint) = &note.hint {
            line("hint", hint);
        }
    }
    if wsdl {
        for document in description
            .services
            .iter()
            .flat_map(|service| &service.documents)
        {
            output::line(format_args!(
                "\n{}\n{}",
                clean(&document.location),
                document.text
            ));
        }
    }
}

/// Kind, name and action of each operation.
fn operations(service: &HostedService) -> Vec<(&'static str, String, String)> {
    use chappe_soap::wsdl::OperationKind as Kind;
    let operations = service.wsdl.operations().map(|(_, operation)| {
        let (kind, message) = match operation.kind {
            Kind::Notification | Kind::SolicitResponse => ("event", &operation.output),
            Kind::OneWay => ("one-way", &operation.input),
            Kind::RequestResponse => ("operation", &operation.input),
        };
        let action = message
            .as_ref()
            .map(|message| message.action.clone())
            .unwrap_or_default();
        (kind, operation.name.clone(), action)
    });
    operations.collect()
}

fn as_json(description: &Description, wsdl: bool) -> Value {
    let found = &description.found;
    let names =
        |names: &[chappe_xml::Name]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let texts = |texts: &[chappe_dpws::metadata::LocalizedString]| {
        texts
            .iter()
            .map(|text| json!({ "lang": text.language, "text": text.text }))
            .collect::<Vec<_>>()
    };
    let service = |service: &HostedService| {
        let operations: Vec<_> = operations(service)
            .into_iter()
            .map(|(kind, name, action)| json!({ "kind": kind, "name": name, "action": action }))
            .collect();
        let documents: Vec<_> = service
            .documents
            .iter()
            .filter(|_| wsdl)
            .map(|document| json!({ "location": document.location, "text": document.text }))
            .collect();
        json!({
            "id": service.id, "types": names(&service.types), "address": service.contact.to_string(),
            "operations": operations, "documents": documents,
        })
    };
    json!({
        "name": description.name(),
        "endpoint": description.endpoint(),
        "address": description.contact.to_string(),
        "dialect": network::dialect(description.dialect),
        "types": names(&description.types),
        "scopes": found.scopes,
        "metadata_version": found.metadata_version,
        "manufacturer": texts(&description.model.manufacturer),
        "model": texts(&description.model.model_name),
        "firmware": description.device.firmware_version,
        "serial_number": description.device.serial_number,
        "services": description.services.iter().map(service).collect::<Vec<_>>(),
        "notes": description.notes.iter().map(|note| json!({
            "reason": note.reason, "detail": note.detail, "hint": note.hint,
        })).collect::<Vec<_>>(),
    })
}
