//! Rows that a person wrote, as the elements of a stream: the types of the fields are those of the values.

use chappe_stream::descriptor::Source;
use chappe_stream::trial::TrialStream;
use chappe_stream::{
    Descriptor, Epoch, Field, FieldType, Position, Quality, Selection, StreamElement, StreamSchema,
    Timestamp, Value,
};

use crate::output::Failure;

/// When rows without a time begin: 2000-01-01T00:00:00Z, in nanoseconds; reason: it is easily recognized.
pub(super) const START: Timestamp = Timestamp(946_684_800_000_000_000);
/// The time between two rows without a time.
const STEP_NS: i64 = 1_000_000_000;

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// What errors call it, such as `line 7`.
    pub place: String,
    /// When it happened; `None`: a second after the row before.
    pub time: Option<Timestamp>,
    /// When it was received; `None`: at once.
    pub received: Option<Timestamp>,
    pub key: Option<String>,
    pub quality: Quality,
    /// The values by the names of their fields.
    pub values: Vec<(String, Value)>,
}

/// The stream of the source `alias` with these rows.
pub(super) fn stream(
    descriptor: &Descriptor,
    alias: &str,
    name: &str,
    rows: Vec<Row>,
    declared: &[Field],
) -> Result<TrialStream, Failure> {
    let mut fields = declared_first(&rows, declared);
    for row in &rows {
        widen(&mut fields, declared, row)?;
    }
    let mut fields: Vec<Field> = fields
        .into_iter()
        .map(|(mut field, seen)| {
            field.field_type = seen.unwrap_or(field.field_type);
            field
        })
        .collect();
    let mut sources = descriptor.sources.iter();
    if let Some(source) = sources.find(|source| source.alias == alias) {
        observe(&mut fields, source);
    }
    let schema = StreamSchema {
        fields,
        key: rows
            .iter()
            .any(|row| row.key.is_some())
            .then(|| "key".to_owned()),
    };
    if let Err(error) = schema.check_names() {
        return Err(Failure::from(error).hint("rename the column"));
    }
    let mut elements: Vec<StreamElement> = Vec::with_capacity(rows.len());
    for row in rows {
        let last = elements.last().map(|element| element.source_time.0);
        let next = last.map_or(START.0, |last| last.saturating_add(STEP_NS));
        let source_time = row.time.unwrap_or(Timestamp(next));
        let sequence = elements.len() as u64 + 1;
        let value = |field: &Field| {
            let mut values = row.values.iter();
            let found = values.find(|(name, _)| *name == field.name);
            let value = found.map_or(Value::Null, |(_, value)| value.clone());
            match (field.field_type, value) {
                (FieldType::Double, Value::Integer(number)) => Value::Double(number as f64),
                (_, other) => other,
            }
        };
        elements.push(StreamElement {
            position: Position {
                epoch: Epoch(1),
                sequence,
            },
            source_time,
            receive_time: row.received.unwrap_or(source_time),
            key: row.key.clone(),
            values: schema.fields.iter().map(value).collect(),
            quality: row.quality,
            origin: None,
        });
    }
    Ok(TrialStream {
        alias: alias.to_owned(),
        stream: name.into(),
        schema,
        elements,
    })
}

/// The fields of the rows in the order of their appearance, those that are declared first, and no type seen yet.
fn declared_first(rows: &[Row], declared: &[Field]) -> Vec<(Field, Option<FieldType>)> {
    let mut fields: Vec<(Field, Option<FieldType>)> =
        declared.iter().map(|field| (field.clone(), None)).collect();
    for (name, _) in rows.iter().flat_map(|row| &row.values) {
        if fields.iter().all(|(field, _)| field.name != *name) {
            // A field without any value is a number, as most are.
            let field = Field {
                name: name.clone(),
                field_type: FieldType::Double,
                unit: None,
                observed_property: None,
                description: None,
            };
            fields.push((field, None));
        }
    }
    fields
}

/// Widens the types of the fields to those of the values of a row: of whole numbers and others, to numbers.
fn widen(
    fields: &mut [(Field, Option<FieldType>)],
    declared: &[Field],
    row: &Row,
) -> Result<(), Failure> {
    for (name, value) in &row.values {
        let Some(found) = value.field_type() else {
            continue;
        };
        let Some((field, seen)) = fields.iter_mut().find(|(field, _)| field.name == *name) else {
            continue;
        };
        let is_declared = declared.iter().any(|field| field.name == *name);
        let known = match is_declared {
            true => Some(field.field_type),
            false => *seen,
        };
        *seen = Some(match (known, found) {
            (None, found) => found,
            (Some(known), found) if known == found => known,
            (Some(FieldType::Double), FieldType::Integer) => FieldType::Double,
            (Some(FieldType::Integer), FieldType::Double) if !is_declared => FieldType::Double,
            (Some(known), found) => {
                let message = format!("{}: {name} is {found:?}, not {known:?}", row.place);
                return Err(Failure::new(message).coded("input_invalid").hint(format!(
                    "write values of one type, or declare the field: {name}:TYPE"
                )));
            }
        });
    }
    Ok(())
}

/// Says of the field that a source's query reads what it observes, unless a field does so: `value`, or the only field.
fn observe(fields: &mut [Field], source: &Source) {
    let Selection::Query(query) = &source.selection else {
        return;
    };
    let Some(property) = &query.observed_property else {
        return;
    };
    if fields
        .iter()
        .any(|field| field.observed_property.as_ref() == Some(property))
    {
        return;
    }
    let index = match fields {
        [_] => Some(0),
        _ => fields.iter().position(|field| field.name == "value"),
    };
    if let Some(field) = index.and_then(|index| fields.get_mut(index)) {
        field.observed_property = Some(property.clone());
        field.unit = field.unit.take().or_else(|| query.unit.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn row(values: &[(&str, Value)]) -> Row {
        Row {
            place: "row 1".to_owned(),
            time: None,
            received: None,
            key: None,
            quality: Quality::Good,
            values: values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        }
    }

    fn descriptor(source: &str) -> Descriptor {
        let text = format!(
            "name = \"a\"\n[[source]]\nalias = \"x\"\n{source}\n[output]\nsql = \"select 1 as y from x\"\n\
             [[output.field]]\nname = \"y\"\ntype = \"integer\"\n"
        );
        Descriptor::parse("a.toml", &text).unwrap()
    }

    #[test]
    fn types_are_those_of_the_values_and_times_a_second_apart() {
        let rows = vec![
            row(&[("n", Value::Integer(1)), ("t", Value::Text("a".into()))]),
            row(&[("n", Value::Double(1.5)), ("t", Value::Null)]),
        ];
        let made = stream(&descriptor("stream = \"s\""), "x", "s", rows, &[]).unwrap();
        let types: Vec<_> = made.schema.fields.iter().map(|it| it.field_type).collect();
        assert_eq!(types, [FieldType::Double, FieldType::Text]);
        assert_eq!(made.elements[0].values[0], Value::Double(1.0));
        assert_eq!(made.elements[1].source_time.0 - START.0, STEP_NS);
        assert!(made.elements.iter().all(|it| made.schema.check(it).is_ok()));
    }

    #[test]
    fn values_of_two_types_are_refused_with_their_row() {
        let rows = vec![
            row(&[("n", Value::Integer(1))]),
            row(&[("n", Value::Text("a".into()))]),
        ];
        let error = stream(&descriptor("stream = \"s\""), "x", "s", rows, &[]).unwrap_err();
        assert!(
            error.message.contains("row 1: n is Text"),
            "{}",
            error.message
        );
    }

    #[test]
    fn the_only_field_observes_what_the_query_asks_for() {
        let query = "query = { observed_property = \"urn:p\", unit = \"Cel\" }";
        let rows = vec![row(&[("warmth", Value::Double(1.0))])];
        let made = stream(&descriptor(query), "x", "s", rows, &[]).unwrap();
        let field = &made.schema.fields[0];
        assert_eq!(field.observed_property.as_deref(), Some("urn:p"));
        assert_eq!(field.unit.as_deref(), Some("Cel"));
    }
}
