//! Streams that clients define.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_identity::Role;
use chappe_log::Level;
use chappe_registry::oxrdf::NamedNode;
use chappe_stream::ucum::Unit;
use chappe_stream::{Field, FieldType, RESERVED_COLUMNS, StoreError, StreamSchema, check_name};
use chappe_transport::Hop;
use serde::Deserialize;
use utoipa::ToSchema;

use super::guard::{Subject, outside_problem};
use super::params;
use super::problem::{Problem, code};
use super::shapes;
use super::streams::Stream;
use super::write::busy;
use crate::accounts::{Caller, Shares, Unchanged, View};
use crate::catalogue::{CatalogueError, Entry, is_own_name, same_table};

use crate::shared::App;
use crate::streams::StreamSpec;
use crate::written::{self, Definition};

/// Fields of one stream; reason: an element is a row that people read.
const FIELDS_MAX: usize = 256;
/// Bytes of a title or a description.
const TEXT_BYTES_MAX: usize = 1_024;
/// Bytes of all texts of one definition; reason: each segment of the log begins with every definition, and 256
/// fields with some words each fit.
const DEFINITION_BYTES_MAX: usize = 64 << 10;

/// A stream to define.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewStream {
    /// Its name: 1 to 16 parts of a-z, 0-9, `_` and `-`, joined by dots.
    #[schema(
        pattern = r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*){0,15}$",
        max_length = 128
    )]
    name: String,
    /// Its title, for people.
    #[serde(default)]
    title: Option<String>,
    /// Its durability level. Default: `log.level` of the node.
    #[serde(default)]
    #[schema(value_type = Option<shapes::Level>)]
    level: Option<Level>,
    /// What an element's key identifies (a bed, a machine), for a stream whose elements have keys.
    #[serde(default)]
    key: Option<String>,
    /// The fields of its elements.
    #[schema(min_items = 1, max_items = 256)]
    fields: Vec<NewField>,
}

/// A field to define.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewField {
    /// A column name: a-z, 0-9 and `_`, not starting with a digit.
    #[schema(pattern = "^[a-z_][a-z0-9_]*$", max_length = 64)]
    name: String,
    /// Its type.
    #[serde(rename = "type")]
    #[schema(value_type = shapes::FieldType)]
    field_type: FieldType,
    /// A UCUM code, for numbers.
    #[serde(default)]
    unit: Option<String>,
    /// What is observed, an IRI.
    #[serde(default)]
    observed_property: Option<String>,
    /// For people.
    #[serde(default)]
    description: Option<String>,
}

impl NewStream {
    fn definition(self) -> Result<(String, Definition), Problem> {
        check_name(&self.name).map_err(|error| invalid(error.to_string()))?;
        if is_own_name(&self.name) {
            let detail = format!(
                "{:?}: names of chappe are for the node's own streams",
                self.name
            );
            return Err(invalid(detail));
        }
        if self.fields.is_empty() || self.fields.len() > FIELDS_MAX {
            let detail = format!(
                "a stream has 1 to {FIELDS_MAX} fields, not {}",
                self.fields.len()
            );
            return Err(invalid(detail));
        }
        let fields = self.fields.into_iter().map(NewField::field);
        let schema = StreamSchema {
            fields: fields.collect::<Result<_, _>>()?,
            key: self.key,
        };
        schema
            .check_names()
            .map_err(|error| invalid(error.to_string()))?;
        for text in [&self.title, &schema.key].into_iter().flatten() {
            check_text(text)?;
        }
        let definition = Definition {
            schema,
            title: self.title,
            level: self.level,
        };
        Ok((self.name, definition))
    }
}

impl NewField {
    fn field(self) -> Result<Field, Problem> {
        let name = &self.name;
        if RESERVED_COLUMNS.contains(&name.as_str()) {
            let reserved = RESERVED_COLUMNS.join(", ");
            let detail = format!("field {name:?}: every stream has the columns {reserved}");
            return Err(invalid(detail).hint("choose another name"));
        }
        if let Some(property) = &self.observed_property
            && NamedNode::new(property.as_str()).is_err()
        {
            let detail = format!("field {name:?}: observed_property is not an absolute IRI");
            return Err(invalid(detail));
        }
        if let Some(unit) = &self.unit {
            use FieldType::{Double, Integer, Samples};
            if !matches!(self.field_type, Double | Integer | Samples) {
                return Err(invalid(format!("field {name:?}: only numbers have a unit")));
            }
            let checked = Unit::parse(unit);
            checked.map_err(|error| {
                invalid(format!("field {name:?}: {error}"))
                    .hint("units are UCUM codes: Cel, kPa, mmol/L, {beat}/min, %")
            })?;
        }
        for text in [&self.unit, &self.observed_property, &self.description] {
            text.as_deref().map_or(Ok(()), check_text)?;
        }
        Ok(Field {
            name: self.name,
            field_type: self.field_type,
            unit: self.unit,
            observed_property: self.observed_property,
            description: self.description,
        })
    }
}

fn check_text(text: &str) -> Result<(), Problem> {
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        let detail = format!("a text has 1 to {TEXT_BYTES_MAX} bytes, not {}", text.len());
        return Err(invalid(detail).hint("omit the member instead of leaving it empty"));
    }
    Ok(())
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// Defines a stream that clients write. Repeating a definition changes nothing; another definition
/// under the same name is refused with the differences.
#[utoipa::path(post, path = "/api/v1/streams", tag = "streams", request_body = NewStream,
    responses((status = 200, body = Stream, description = "the stream exists with this definition"),
        (status = 201, body = Stream), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 409, body = Problem, description = "the stream differs, or has another source"),
        (status = 422, body = Problem, description = "the definition is invalid"),
        (status = 429, body = Problem), (status = 507, body = Problem, description = "the node has reached \
            `log.max_streams`, the account has reached its share of the streams or of the room for definitions, \
            or the disk is full")))]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    let new: NewStream = params::json(&app, body).await?;
    let (name, definition) = new.definition()?;
    if !View::new(&app, &caller, Role::Write).has_stream(&name) {
        return Err(outside_problem(
            &caller,
            Role::Write,
            &format!("not for the stream {name:?}"),
        ));
    }
    // A definition that has begun runs to its end, even if the client disconnects.
    let defining = tokio::spawn(async move { define(&app, &name, definition, &caller).await });
    defining
        .await
        .unwrap_or_else(|_| Err(Problem::internal("defining the stream failed")))
}

async fn define(
    app: &App,
    name: &str,
    definition: Definition,
    caller: &Caller,
) -> Result<Response, Problem> {
    let (entry, is_new) = define_stream(app, name, definition, caller).await?;
    let shown = Json(Stream::of(&entry));
    if !is_new {
        let mut response = shown.into_response();
        response.extensions_mut().insert(Unchanged);
        return Ok(response);
    }
    let path = format!("/api/v1/streams/{name}");
    let location = [(header::LOCATION, path)];
    let subject = Extension(Subject(name.to_owned()));
    Ok((StatusCode::CREATED, subject, location, shown).into_response())
}

/// Defines a stream that clients write, if it does not exist; returns it, and whether it is new.
pub(super) async fn define_stream(
    app: &App,
    name: &str,
    definition: Definition,
    caller: &Caller,
) -> Result<(Arc<Entry>, bool), Problem> {
    let _turn = app.defining.lock().await;
    if let Some(entry) = app.catalogue.get(name) {
        let source = entry.source();
        if source != written::SOURCE {
            return Err(conflict(format!("the stream {name:?} belongs to {source}")));
        }
        let differences = definition.differences(app, &entry);
        if !differences.is_empty() {
            let detail = format!("the stream {name:?} exists: {}", differences.join("; "));
            return Err(
                conflict(detail).hint("remove the stream first, or define one under another name")
            );
        }
        return Ok((entry, false));
    }
    if let Some(other) = same_table(app.catalogue.entries().iter(), name) {
        let other = match View::of_reader(app, caller).has(other) {
            true => format!("the stream {:?}", other.current_name()),
            false => "another stream".to_owned(),
        };
        let detail = format!("{name:?} and {other} have the same name in SQL");
        return Err(conflict(detail).hint("choose a name that differs in more than . _ and -"));
    }
    let bytes = text_bytes(&definition);
    if bytes > DEFINITION_BYTES_MAX {
        let detail = format!(
            "the texts of a definition have at most {DEFINITION_BYTES_MAX} bytes, not {bytes}"
        );
        return Err(invalid(detail).hint("shorten the descriptions, or define several streams"));
    }
    check_share(app, caller, bytes)?;
    let spec = StreamSpec {
        name: name.to_owned(),
        schema: definition.schema.clone(),
        source: written::SOURCE.to_owned(),
        level: definition.level,
    };
    let title = definition.title.as_deref();
    let entity = written::entity(name, &definition.schema, title, caller.name());
    let entry = spec.define(app).await.map_err(catalogue_problem)?;
    let (sharing, defined, payer) = (app.clone(), entry.clone(), Shares::payer(caller));
    let charged = tokio::task::spawn_blocking(move || sharing.shares.define(&defined, &payer));
    charged
        .await
        .map_err(|_| Problem::internal("counting the stream failed"))?;
    app.registrar.publish(vec![entity]).await;
    Ok((entry, true))
}

/// Bytes of all texts of a definition.
fn text_bytes(definition: &Definition) -> usize {
    let own = [&definition.title, &definition.schema.key];
    let own = own.into_iter().flatten().map(String::len);
    let fields = definition.schema.fields.iter().map(|field| {
        let texts = [&field.unit, &field.observed_property, &field.description];
        field.name.len() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    });
    own.sum::<usize>() + fields.sum::<usize>()
}

/// Refuses a stream beyond the account's share of streams, or of the room for their definitions.
pub(super) fn check_share(app: &App, caller: &Caller, bytes: usize) -> Result<(), Problem> {
    let Some(most) = app.shares.definitions_max_of(caller) else {
        return Ok(());
    };
    let name = caller.name();
    let used = app.shares.definitions(name, &app.catalogue);
    let (code, detail) = if used.streams >= most.streams {
        let detail = format!(
            "the account {name:?} has {} streams, its share of log.max_streams",
            used.streams
        );
        (code::SHARE_OF_STREAMS, detail)
    } else if used.bytes + bytes > most.bytes {
        let detail = format!(
            "the definitions of the account {name:?} have {} bytes, and its share of the room for \
             definitions is {}",
            used.bytes, most.bytes
        );
        (code::SHARE_OF_DEFINITIONS, detail)
    } else {
        return Ok(());
    };
    Err(beyond_share(app, caller, code, detail))
}

/// A new stream is beyond the share of an account.
pub(super) fn beyond_share(
    app: &App,
    caller: &Caller,
    code: &'static str,
    detail: String,
) -> Problem {
    let drops = &app.observability.drops;
    drops.record(Hop::Http, code, caller.name(), detail.clone(), None);
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail)
        .code(code)
        .hint("remove a stream, or raise the share of streams: chappe account share")
}

fn conflict(detail: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, detail)
}

fn catalogue_problem(error: CatalogueError) -> Problem {
    let text = error.to_string();
    match error {
        CatalogueError::Taken { .. } => conflict(text),
        CatalogueError::TooMany(_) => Problem::new(StatusCode::INSUFFICIENT_STORAGE, text)
            .hint("remove a stream, or raise log.max_streams"),
        // The whole room for definitions: one alone is checked before.
        CatalogueError::Store(StoreError::Log(chappe_log::Error::TooLarge { .. })) => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, text).hint("remove streams")
        }
        CatalogueError::Store(error) => busy::store_problem(&error),
        _ => Problem::internal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::Level;

    #[test]
    fn a_definition_that_cannot_be_written_is_refused_with_the_reason() {
        let table = [
            (r#"{"name": "A", "fields": []}"#, "is not a stream name"),
            (r#"{"name": "a", "fields": []}"#, "1 to 256 fields"),
            (
                r#"{"name": "a", "fields": [{"name": "key", "type": "text"}]}"#,
                "every stream has",
            ),
            (
                r#"{"name": "a", "fields": [{"name": "A", "type": "text"}]}"#,
                "is not a usable field name",
            ),
            (
                r#"{"name": "a", "fields": [{"name": "b", "type": "text", "unit": "m"}]}"#,
                "only numbers have a unit",
            ),
            (
                r#"{"name": "a", "fields": [{"name": "b", "type": "double", "unit": ""}]}"#,
                "is not a UCUM unit: it is empty",
            ),
            (
                r#"{"name": "a", "title": "", "fields": [{"name": "b", "type": "text"}]}"#,
                "1 to 1024 bytes",
            ),
            (
                r#"{"name": "a", "fields":
                    [{"name": "b", "type": "text", "observed_property": "heat"}]}"#,
                "not an absolute IRI",
            ),
        ];
        for (text, reason) in table {
            let new: NewStream = serde_json::from_str(text).unwrap();
            let problem = new.definition().unwrap_err();
            assert!(
                problem.detail.contains(reason),
                "{text}: {}",
                problem.detail
            );
            assert_eq!(problem.status, 422);
        }
    }

    #[test]
    fn levels_are_words_of_the_configuration() {
        let text =
            r#"{"name": "a", "level": "power", "fields": [{"name": "b", "type": "double"}]}"#;
        let new: NewStream = serde_json::from_str(text).unwrap();
        assert_eq!(new.definition().unwrap().1.level, Some(Level::Power));
    }
}
