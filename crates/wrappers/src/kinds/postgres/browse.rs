//! Prints a wrapper's file for a database: its first table, and the others in comments.
//!
//! The password and the authorities come from where PostgreSQL's own programs take them: `PGPASSWORD` and
//! `PGSSLROOTCERT`.

use std::env;
use std::fmt::Write as _;
use std::fs;

use chappe_postgres::Options;
use chappe_stream::name_part;

use super::{Session, failed};
use crate::WrapperError;
use crate::kinds::browse::{Columns, FIELDS_MAX, Found, json_quoted, quoted, stream};

/// Most tables that are listed.
const TABLES_MAX: i64 = 100;

/// Tables and views that may be read, those of the search path first.
const TABLES: &str = "SELECT c.oid, n.nspname::text, c.relname::text, pg_catalog.pg_table_is_visible(c.oid) \
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND NOT c.relispartition AND c.relname <> 'chappe_cursor' \
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%' \
      AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT') \
    ORDER BY 4 DESC, 2, 3 LIMIT $1";
/// Name and type of each column, and whether it is the only one of the primary key.
const COLUMNS: &str = "SELECT a.attname::text, t.typname::text, i.indrelid IS NOT NULL \
    FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid \
    LEFT JOIN pg_catalog.pg_index AS i ON i.indrelid = a.attrelid AND i.indisprimary \
      AND i.indnatts = 1 AND i.indkey[0] = a.attnum \
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// A table with its columns.
struct Table {
    schema: String,
    name: String,
    /// Whether its name alone is enough.
    is_visible: bool,
    columns: Vec<ColumnInfo>,
}

struct ColumnInfo {
    name: String,
    kind: String,
    is_key: bool,
}

/// The file of a wrapper of kind `postgres`.
pub(super) fn browse(address: &str) -> Result<String, WrapperError> {
    let options = Options {
        url: address.to_owned(),
        password: env::var("PGPASSWORD").ok(),
        authorities: match env::var_os("PGSSLROOTCERT") {
            None => None,
            Some(path) => Some(fs::read(&path).map_err(|error| {
                let path = path.display();
                WrapperError::settings(format!("cannot read {path}: {error}"))
            })?),
        },
    };
    let target = options.target().map_err(|error| {
        let hint =
            "name the authorities' certificates in PGSSLROOTCERT, the password in PGPASSWORD";
        WrapperError::settings(error.to_string()).with_hint(hint)
    })?;
    // The caller may run within another runtime.
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| WrapperError::peer(error.to_string()))?;
        runtime.block_on(async {
            let session = Session::open(&target, None, true).await?;
            tables(&session).await
        })
    });
    let tables = thread.join();
    let tables =
        tables.map_err(|_| WrapperError::peer("looking at the database was interrupted"))??;
    match tables.split_first() {
        Some((first, others)) => Ok(print(address, first, others)),
        None => {
            let text = "the database has no table that this user may read";
            let hint = "GRANT SELECT ON TABLE name TO user";
            Err(WrapperError::peer(text).with_hint(hint))
        }
    }
}

async fn tables(session: &Session) -> Result<Vec<Table>, WrapperError> {
    let client = &session.client;
    let mut tables = Vec::new();
    for row in client.query(TABLES, &[&TABLES_MAX]).await.map_err(failed)? {
        let oid: u32 = row.try_get(0).map_err(failed)?;
        let rows = client.query(COLUMNS, &[&oid]).await.map_err(failed)?;
        let columns = rows.iter().map(|row| {
            Ok(ColumnInfo {
                name: row.try_get(0)?,
                kind: row.try_get(1)?,
                is_key: row.try_get(2)?,
            })
        });
        let columns: Result<_, tokio_postgres::Error> = columns.collect();
        tables.push(Table {
            schema: row.try_get(1).map_err(failed)?,
            name: row.try_get(2).map_err(failed)?,
            is_visible: row.try_get(3).map_err(failed)?,
            columns: columns.map_err(failed)?,
        });
    }
    Ok(tables)
}

fn found(kind: &str) -> Found {
    match kind {
        "bool" => Found::Boolean,
        "int2" | "int4" | "int8" => Found::Integer,
        "float4" | "float8" | "numeric" => Found::Double,
        "bytea" => Found::Bytes,
        "timestamptz" => Found::Time,
        _ => Found::Text,
    }
}

fn print(address: &str, table: &Table, others: &[Table]) -> String {
    let rises = |one: &&ColumnInfo| ["int4", "int8", "timestamptz"].contains(&one.kind.as_str());
    let mut columns = table.columns.iter();
    let key = columns.clone().find(|column| column.is_key);
    let cursor = key.or_else(|| columns.find(rises));
    let mut toml = String::new();
    let _ = writeln!(
        toml,
        "kind = \"postgres\"\naddress = {}",
        quoted(&without_password(address))
    );
    if !table.is_visible {
        let _ = writeln!(toml, "schema = {}", quoted(&table.schema));
    }
    let _ = writeln!(toml, "table = {}", quoted(&table.name));
    match cursor {
        Some(column) if column.is_key => {
            let _ = writeln!(toml, "cursor = {}", quoted(&column.name));
        }
        Some(column) => {
            let _ = writeln!(
                toml,
                "cursor = {} # the table has no key of one column: is this one unique, does it only rise?",
                quoted(&column.name)
            );
        }
        None => toml.push_str("cursor = \"\" # a column that is unique and only rises\n"),
    }
    for other in others {
        let columns = other.columns.iter().take(FIELDS_MAX);
        let columns: Vec<String> = columns
            .map(|column| format!("{} {}", column.name, column.kind))
            .collect();
        let columns = quoted(&columns.join(", "));
        let schema = quoted(&other.schema);
        let _ = writeln!(
            toml,
            "# another table: {} of schema {schema}: {columns}",
            quoted(&other.name)
        );
    }
    let cursor = cursor.map(|column| column.name.as_str());
    let time = table
        .columns
        .iter()
        .find(|column| column.kind == "timestamptz");
    let comment = time.map(|column| {
        let path = quoted(&format!("$[{}]", json_quoted(&column.name)));
        format!("format = {{ json = {{ time = {path} }} }}")
    });
    let time = time.map(|column| column.name.as_str());
    let fields = table.columns.iter().filter(|column| {
        let name = Some(column.name.as_str());
        name != cursor && name != time
    });
    let mut columns: Columns = fields
        .take(FIELDS_MAX)
        .map(|column| (column.name.clone(), found(&column.kind)))
        .collect();
    if columns.is_empty() {
        // A stream has a field.
        let all = table.columns.iter().take(1);
        columns = all
            .map(|column| (column.name.clone(), found(&column.kind)))
            .collect();
    }
    stream(
        &mut toml,
        &name_part(&table.name),
        comment.as_deref(),
        &columns,
        true,
    );
    toml
}

/// The address without a password.
fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.to_owned();
    };
    match rest.split_once('@') {
        Some((user, rest)) => {
            let user = user.split_once(':').map_or(user, |(user, _)| user);
            format!("{scheme}://{user}@{rest}")
        }
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WrapperFile;
    use std::path::Path;

    fn table(columns: &[(&str, &str, bool)]) -> Table {
        let columns = columns.iter().map(|(name, kind, is_key)| ColumnInfo {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            is_key: *is_key,
        });
        Table {
            schema: "public".to_owned(),
            name: "read\"ings".to_owned(),
            is_visible: true,
            columns: columns.collect(),
        }
    }

    #[test]
    fn a_printed_file_is_valid_and_has_the_types_of_the_columns() {
        let columns = [
            ("id", "int8", true),
            ("ts", "timestamptz", false),
            ("Celsius", "numeric", false),
            ("raw", "bytea", false),
            ("ok", "bool", false),
            ("note", "varchar", false),
        ];
        let address = "postgres://ada:secret@localhost/plant";
        let toml = print(address, &table(&columns), &[table(&columns[..1])]);
        let file = WrapperFile::parse(Path::new("x.toml"), &toml).unwrap();
        file.kind()
            .unwrap_or_else(|error| panic!("{error}: {toml}"));
        assert!(
            !toml.contains("secret") && toml.contains("# another table"),
            "{toml}"
        );
        let (_, definition) = &file.fixed_streams()[0];
        let fields = definition.schema.fields.iter();
        let fields: Vec<_> = fields
            .map(|it| format!("{} {:?}", it.name, it.field_type))
            .collect();
        assert_eq!(
            fields,
            ["celsius Double", "raw Bytes", "ok Boolean", "note Text"]
        );
    }

    #[test]
    fn a_table_of_a_key_alone_has_a_field() {
        let toml = print(
            "postgres://ada@localhost/plant",
            &table(&[("id", "int8", true)]),
            &[],
        );
        let file = WrapperFile::parse(Path::new("x.toml"), &toml).unwrap();
        assert!(file.kind().is_ok(), "{toml}");
    }
}
