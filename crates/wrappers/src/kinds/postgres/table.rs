//! The table of a stream: its columns, their types, and whether they fit the fields.

use chappe_stream::{FieldType, StreamSchema};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::{failed, quoted};
use crate::WrapperError;
use crate::table_file::column_of;

/// Most fields; reason: a table of PostgreSQL has at most 1,600 columns, fewer with some types.
const FIELDS_MAX: usize = 1_000;

/// A column that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Column {
    Epoch,
    Sequence,
    SourceTime,
    ReceiveTime,
    Key,
    Quality,
    Field {
        name: String,
        /// The place of the field in the schema.
        index: usize,
        is_jsonb: bool,
    },
}

/// The columns of every element, which a table may lack.
const OWN: [(Column, &str, &[Type], &str); 6] = [
    (
        Column::Epoch,
        "epoch",
        &[Type::TEXT, Type::VARCHAR],
        "text NOT NULL",
    ),
    (
        Column::Sequence,
        "sequence",
        &[Type::INT8],
        "bigint NOT NULL",
    ),
    (
        Column::SourceTime,
        "source_time",
        &[Type::TIMESTAMPTZ],
        "timestamptz NOT NULL",
    ),
    (
        Column::ReceiveTime,
        "receive_time",
        &[Type::TIMESTAMPTZ],
        "timestamptz NOT NULL",
    ),
    (Column::Key, "key", &[Type::TEXT, Type::VARCHAR], "text"),
    (
        Column::Quality,
        "quality",
        &[Type::TEXT, Type::VARCHAR],
        "text NOT NULL",
    ),
];

/// How the elements of a stream are written.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    /// The COPY.
    pub(super) statement: String,
    pub(super) columns: Vec<Column>,
}

/// The types of PostgreSQL that take the values of a field; the first is that of a new table.
fn types(field_type: FieldType) -> (&'static [Type], &'static str) {
    match field_type {
        FieldType::Boolean => (&[Type::BOOL], "boolean"),
        FieldType::Integer => (&[Type::INT8], "bigint"),
        FieldType::Double => (&[Type::FLOAT8], "double precision"),
        FieldType::Text => (&[Type::TEXT, Type::VARCHAR], "text"),
        FieldType::Bytes => (&[Type::BYTEA], "bytea"),
        FieldType::Samples => (&[Type::JSONB, Type::JSON], "jsonb"),
    }
}

/// The statement that makes the table of a stream.
pub(super) fn create(table: &str, schema: &StreamSchema) -> String {
    let own = OWN
        .iter()
        .map(|(_, name, _, kind)| format!("{} {kind}", quoted(name)));
    let fields = schema.fields.iter().map(|field| {
        let (_, kind) = types(field.field_type);
        format!("{} {kind}", quoted(&column_of(&field.name)))
    });
    let columns: Vec<String> = own.chain(fields).collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY (epoch, sequence))",
        quoted(table),
        columns.join(", ")
    )
}

/// Compares the columns of a table with the fields of a stream.
///
/// # Errors
/// A column is missing, or has another type.
pub(super) fn plan(
    table: &str,
    found: &[(String, Type)],
    schema: &StreamSchema,
) -> Result<Plan, WrapperError> {
    if schema.fields.len() > FIELDS_MAX {
        let text = format!("the stream has more than {FIELDS_MAX} fields");
        return Err(WrapperError::settings(text));
    }
    let kind_of = |name: &str| found.iter().find(|(column, _)| column == name);
    let mut columns = Vec::new();
    let mut names = Vec::new();
    for (column, name, kinds, wanted) in &OWN {
        if let Some((_, kind)) = kind_of(name) {
            let wanted = wanted.trim_end_matches(" NOT NULL");
            check(table, name, kind, kinds, wanted)?;
            columns.push(column.clone());
            names.push(quoted(name));
        }
    }
    for (index, field) in schema.fields.iter().enumerate() {
        let name = column_of(&field.name);
        let (kinds, wanted) = types(field.field_type);
        if names.contains(&quoted(&name)) {
            let text = format!("two fields of the stream would have the column {name:?}");
            return Err(WrapperError::settings(text));
        }
        let Some((_, kind)) = kind_of(&name) else {
            let text =
                format!("table {table:?} has no column {name:?} for the field of the stream");
            let (table, name) = (quoted(table), quoted(&name));
            let hint = format!("ALTER TABLE {table} ADD COLUMN {name} {wanted}");
            return Err(WrapperError::settings(text).with_hint(hint));
        };
        check(table, &name, kind, kinds, wanted)?;
        names.push(quoted(&name));
        let is_jsonb = *kind == Type::JSONB;
        columns.push(Column::Field {
            name,
            index,
            is_jsonb,
        });
    }
    let names = names.join(", ");
    let statement = format!(
        "COPY {} ({names}) FROM STDIN (FORMAT binary)",
        quoted(table)
    );
    Ok(Plan { statement, columns })
}

fn check(
    table: &str,
    name: &str,
    kind: &Type,
    kinds: &[Type],
    wanted: &str,
) -> Result<(), WrapperError> {
    if kinds.contains(kind) {
        return Ok(());
    }
    let text = format!("column {name:?} of table {table:?} has type {kind}, not {wanted}");
    let hint = format!(
        "ALTER TABLE {} ALTER COLUMN {} TYPE {wanted}",
        quoted(table),
        quoted(name)
    );
    Err(WrapperError::settings(text).with_hint(hint))
}

/// The columns of a table.
pub(super) async fn columns(
    client: &Client,
    table: &str,
) -> Result<Vec<(String, Type)>, WrapperError> {
    let statement = format!("SELECT * FROM {} LIMIT 0", quoted(table));
    let prepared = client.prepare(&statement).await.map_err(failed)?;
    let columns = prepared.columns().iter();
    let columns = columns.map(|column| (column.name().to_owned(), column.type_().clone()));
    Ok(columns.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_stream::Field;

    fn schema() -> StreamSchema {
        let field = |name: &str, field_type| Field {
            name: name.to_owned(),
            field_type,
            unit: None,
            observed_property: None,
            description: None,
        };
        StreamSchema {
            fields: vec![
                field("celsius", FieldType::Double),
                field("key", FieldType::Text),
                field("epoch", FieldType::Integer),
            ],
            key: None,
        }
    }

    #[test]
    fn a_table_that_is_made_fits() {
        let text = create("a b", &schema());
        assert!(
            text.starts_with("CREATE TABLE IF NOT EXISTS \"a b\" (\"epoch\" text NOT NULL, "),
            "{text}"
        );
        let own = [
            ("epoch", Type::TEXT),
            ("sequence", Type::INT8),
            ("source_time", Type::TIMESTAMPTZ),
            ("receive_time", Type::TIMESTAMPTZ),
            ("key", Type::TEXT),
            ("quality", Type::TEXT),
            ("celsius", Type::FLOAT8),
            ("key_", Type::TEXT),
            ("epoch_", Type::INT8),
        ];
        let found: Vec<_> = own
            .into_iter()
            .map(|(name, kind)| (name.to_owned(), kind))
            .collect();
        for (name, _) in &found {
            assert!(text.contains(&quoted(name)), "{name} in {text}");
        }
        let plan = plan("a b", &found, &schema()).unwrap();
        assert_eq!(plan.columns.len(), 9);
        assert!(
            plan.statement
                .starts_with("COPY \"a b\" (\"epoch\", \"sequence\""),
            "{}",
            plan.statement
        );
    }

    #[test]
    fn a_column_that_is_missing_or_of_another_type_is_named_with_the_repair() {
        let mut found = vec![
            ("celsius".to_owned(), Type::FLOAT4),
            ("key_".to_owned(), Type::TEXT),
            ("epoch_".to_owned(), Type::INT8),
        ];
        let error = plan("t", &found, &schema()).unwrap_err();
        assert!(error.to_string().contains("float4"), "{error}");
        assert!(error.hint().unwrap().contains("TYPE double precision"));
        found.remove(0);
        let error = plan("t", &found, &schema()).unwrap_err();
        assert!(
            error
                .hint()
                .unwrap()
                .contains("ADD COLUMN \"celsius\" double precision")
        );
    }
}
