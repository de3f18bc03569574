//! Schemas from files or built in, and `chappe exi schema compile`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chappe_exi::{MessageSchema, Schema, SchemaId, XsdSource};
use serde_json::json;

use super::flags::{Coding, Compile};
use crate::output::{self, Failure, Outcome};

/// The schema of a stream, and its name in the header.
pub(super) struct Chosen {
    pub(super) schema: Arc<Schema>,
    pub(super) id: SchemaId,
}

/// The schema of `--schema` and `--schemaId`, if one is named.
pub(super) fn chosen(coding: &Coding) -> Result<Option<Chosen>, Failure> {
    let Some(first) = coding.schema.first() else {
        return Ok(None);
    };
    let name = first.to_str().filter(|_| coding.schema.len() == 1);
    let mut schema = match name {
        Some("types") => Schema::built_in_types(),
        Some(name) if MessageSchema::from_schema_id(name).is_some() => built_in(name)?,
        _ if first.extension().is_some_and(|ending| ending == "xsd") => {
            compiled(&coding.schema, None)?
        }
        _ if coding.schema.len() > 1 => {
            let what = "--schema accepts several files only if they are XSD files";
            return Err(Failure::new(what)
                .coded("argument_invalid")
                .hint("compile them together: chappe exi schema compile"));
        }
        _ => loaded(first)?,
    };
    if let Some(id) = &coding.schema_id {
        schema = schema.with_id(id);
    }
    let id = match schema.id() {
        "" => SchemaId::BuiltInTypes,
        id => SchemaId::Named(id.to_owned()),
    };
    Ok(Some(Chosen {
        schema: Arc::new(schema),
        id,
    }))
}

/// A built-in schema, by its schemaId.
pub(super) fn built_in(id: &str) -> Result<Schema, Failure> {
    match MessageSchema::from_schema_id(id) {
        Some(messages) => Ok(Schema::for_messages(messages)),
        None => Err(Failure::new(format!("no built-in schema {id:?}")).coded("argument_invalid")),
    }
}

fn loaded(file: &Path) -> Result<Schema, Failure> {
    let bytes = super::read(file)?;
    Schema::from_bytes(&bytes).map_err(|error| {
        let text = format!("{}: {error}", file.display());
        Failure::new(text)
            .coded("file_unreadable")
            .hint("recompile it: chappe exi schema compile FILE.xsd -o FILE.exig")
    })
}

/// Compiles files with their includes and imports.
fn compiled(files: &[PathBuf], id: Option<&str>) -> Result<Schema, Failure> {
    let sources: Result<Vec<_>, Failure> = files
        .iter()
        .map(|file| {
            Ok(XsdSource {
                name: file.to_string_lossy().into_owned(),
                document: super::read(file)?,
            })
        })
        .collect();
    let mut include = |from: &str, location: &str| {
        let file = Path::new(from).parent()?.join(location);
        let document = std::fs::read(&file).ok()?;
        let name = file.to_string_lossy().into_owned();
        Some(XsdSource { name, document })
    };
    let stem = files.first().and_then(|file| file.file_stem());
    let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
    let id = id.map_or_else(|| stem.unwrap_or_default(), ToOwned::to_owned);
    Ok(Schema::from_xsd(sources?, &mut include)?.with_id(&id))
}

/// `chappe exi schema compile`.
pub(super) fn compile(flags: &Compile, json: bool) -> Outcome {
    let schema = compiled(&flags.files, flags.schema_id.as_deref())?;
    let bytes = schema.to_bytes();
    super::write(&flags.output, &bytes)?;
    let begin = std::time::Instant::now();
    Schema::from_bytes(&bytes)?;
    let load_us = begin.elapsed().as_secs_f64() * 1e6;
    if json {
        let id = schema.id();
        output::json(&json!({ "schemaId": id, "bytes": bytes.len(), "load_us": load_us }));
    } else {
        output::note(format_args!(
            "schemaId {:?}, {} bytes, loads in {load_us:.0} µs",
            schema.id(),
            bytes.len(),
        ));
    }
    Ok(())
}
