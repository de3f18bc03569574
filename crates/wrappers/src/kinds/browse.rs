//! Prints a wrapper's file for a file or database that is there: its columns as fields, with the types
//! that their values have.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use chappe_stream::{Timestamp, name_part};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::WrapperError;

/// Bytes of a file that are looked at.
const LOOK_BYTES: u64 = 256 << 10;
/// Most fields of a printed stream.
pub(super) const FIELDS_MAX: usize = 256;

/// Endings of databases.
const DATABASES: [&str; 3] = [".db", ".sqlite", ".sqlite3"];

/// The kind of wrapper that reads the peer at an address: by its scheme, else by the ending of a file's name.
#[must_use]
pub fn kind_of_address(address: &str) -> &str {
    let Some((scheme, _)) = address.split_once("://") else {
        let is_database = DATABASES.iter().any(|ending| address.ends_with(ending));
        return if is_database { "sqlite" } else { "file" };
    };
    // `modbus+rtu` is a form of `modbus`, `mqtts` is `mqtt` over TLS.
    let form = scheme.split_once('+').map_or(scheme, |(kind, _)| kind);
    match form {
        "mqtts" => "mqtt",
        "opc.tcp" => "opcua",
        "postgresql" => "postgres",
        _ => form,
    }
}

/// The type that all values of a column have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Boolean,
    Integer,
    Double,
    /// A time in the form of RFC 3339.
    Time,
    Text,
    #[cfg(feature = "postgres")]
    Bytes,
}

impl Found {
    fn of_text(text: &str) -> Self {
        match text {
            "" => Self::Nothing,
            "true" | "false" => Self::Boolean,
            _ if text.parse::<i64>().is_ok() => Self::Integer,
            _ if text.parse::<f64>().is_ok_and(f64::is_finite) => Self::Double,
            _ if Timestamp::parse(text).is_some() => Self::Time,
            _ => Self::Text,
        }
    }

    fn of_json(value: &Value) -> Self {
        match value {
            Value::Null => Self::Nothing,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.is_i64() => Self::Integer,
            Value::Number(_) => Self::Double,
            Value::String(text) if Timestamp::parse(text).is_some() => Self::Time,
            _ => Self::Text,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, one) | (one, Self::Nothing) => one,
            (one, same) if one == same => one,
            (Self::Integer | Self::Double, Self::Integer | Self::Double) => Self::Double,
            _ => Self::Text,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Nothing | Self::Time | Self::Text => "text",
            #[cfg(feature = "postgres")]
            Self::Bytes => "bytes",
        }
    }
}

/// Columns with their types, in order.
pub(super) type Columns = Vec<(String, Found)>;

fn note(columns: &mut Columns, name: &str, found: Found) {
    if let Some((_, known)) = columns.iter_mut().find(|(known, _)| known == name) {
        *known = known.and(found);
    } else if columns.len() < FIELDS_MAX {
        columns.push((name.to_owned(), found));
    }
}

/// Runs a future to its end on a thread of its own: the caller may be a task of a runtime, which must not start another.
#[cfg(any(feature = "coap", feature = "modbus", feature = "opcua"))]
pub(super) fn run<T: Send>(
    future: impl Future<Output = Result<T, WrapperError>> + Send,
) -> Result<T, WrapperError> {
    let run = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build();
        let runtime = runtime.map_err(|error| WrapperError::peer(error.to_string()))?;
        runtime.block_on(future)
    };
    std::thread::scope(|scope| {
        let ended = scope.spawn(run).join();
        ended.unwrap_or_else(|_| Err(WrapperError::peer("the requests have ended")))
    })
}

/// The file of a wrapper of kind `file`.
pub(super) fn file(path: &str) -> Result<String, WrapperError> {
    let failed = |error: std::io::Error| WrapperError::peer(format!("cannot read {path}: {error}"));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LOOK_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let is_json = text.trim_start().starts_with('{');
    let (mut columns, mut options) = match is_json {
        true => (json_columns(&text), Vec::new()),
        false => csv_columns(&text),
    };
    if columns.is_empty() {
        return Err(WrapperError::peer(format!("{path} has no complete line")));
    }
    let name = Path::new(path)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let format = if is_json { "json" } else { "csv" };
    let named = columns.iter().position(|(name, _)| name == "source_time");
    let time = named.or_else(|| columns.iter().position(|(_, found)| *found == Found::Time));
    match time.map(|at| columns.remove(at).0) {
        None => {}
        Some(name) if is_json => {
            let path = format!("$[{}]", json_quoted(&name));
            options.push(format!("time = {}", quoted(&path)));
        }
        Some(name) => options.push(format!("time = {}", quoted(&name))),
    }
    let options = match options.is_empty() {
        true => String::new(),
        false => format!(" {} ", options.join(", ")),
    };
    let mut toml = String::new();
    let path = quoted(path);
    let _ = writeln!(toml, "kind = \"file\"\npath = {path}");
    let _ = writeln!(toml, "format = {{ {format} = {{{options}}} }}");
    stream(&mut toml, &name_part(&name), None, &columns, is_json);
    Ok(toml)
}

pub(super) fn json_columns(text: &str) -> Columns {
    let mut columns = Columns::new();
    for line in text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        if let Ok(Value::Object(members)) = serde_json::from_str(line) {
            for (name, value) in &members {
                note(&mut columns, name, Found::of_json(value));
            }
        }
    }
    columns
}

/// The columns of a CSV, and the options of its format that are not the default: the delimiter, by the first line, and
/// a decimal comma, which a file with semicolons often has.
fn csv_columns(text: &str) -> (Columns, Vec<String>) {
    let lines = || {
        let lines = text.split_inclusive('\n');
        lines.filter(|line| line.ends_with('\n'))
    };
    let head = lines().next().unwrap_or_default();
    let delimiter = match head.contains(',') {
        true => ',',
        false => [';', '\t']
            .into_iter()
            .find(|one| head.contains(*one))
            .unwrap_or(','),
    };
    let mut options = Vec::new();
    if delimiter != ',' {
        options.push(format!("delimiter = {}", quoted(&delimiter.to_string())));
    }
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_end_matches(['\r', '\n']).split(delimiter);
        cells
            .map(|cell| cell.trim().trim_matches('"').to_owned())
            .collect()
    };
    let has_decimal_comma = |cell: &String| {
        let parts = cell.split_once(',');
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        parts.is_some_and(|(whole, rest)| {
            is_digits(whole.trim_start_matches('-')) && is_digits(rest)
        })
    };
    let is_comma = delimiter != ','
        && lines()
            .skip(1)
            .flat_map(cells)
            .any(|cell| has_decimal_comma(&cell));
    if is_comma {
        options.push("decimal = \",\"".to_owned());
    }
    let mut lines = lines();
    let names = lines.next().map(cells).unwrap_or_default();
    let mut columns = Columns::new();
    for name in &names {
        note(
            &mut columns,
            name.trim_start_matches('\u{feff}'),
            Found::Nothing,
        );
    }
    for line in lines {
        for (name, cell) in names.iter().zip(cells(line)) {
            let cell = match is_comma && has_decimal_comma(&cell) {
                true => cell.replace(',', "."),
                false => cell,
            };
            note(&mut columns, name, Found::of_text(&cell));
        }
    }
    (columns, options)
}

/// The file of a wrapper of kind `sqlite`: its first table, and the others in comments.
pub(super) fn sqlite(path: &str) -> Result<String, WrapperError> {
    let failed =
        |error: rusqlite::Error| WrapperError::peer(format!("cannot read {path}: {error}"));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).map_err(failed)?;
    let mut listing = database
        .prepare("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'")
        .map_err(failed)?;
    let names = listing.query_map([], |row| row.get(0)).map_err(failed)?;
    let tables: Vec<String> = names.collect::<Result<_, _>>().map_err(failed)?;
    let (first, others) = tables
        .split_first()
        .ok_or_else(|| WrapperError::peer(format!("{path} has no table")))?;
    let mut listing = database
        .prepare("SELECT name, type, pk FROM pragma_table_info(?1)")
        .map_err(failed)?;
    let rows = listing.query_map([first], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let rows: Vec<(String, String, i64)> = rows.and_then(Iterator::collect).map_err(failed)?;
    let cursor = rows.iter().find(|(.., key)| *key == 1);
    let cursor = cursor.map_or("rowid", |(name, ..)| name);
    let columns = rows.iter().filter(|(name, ..)| name != cursor);
    let columns: Columns = columns
        .take(FIELDS_MAX)
        .map(|(name, declared, _)| (name.clone(), declared_type(declared)))
        .collect();
    let mut toml = String::new();
    let _ = write!(
        toml,
        "kind = \"sqlite\"\npath = {}\ntable = {}\ncursor = {}\n",
        quoted(path),
        quoted(first),
        quoted(cursor)
    );
    for other in others {
        let _ = writeln!(toml, "# another table: {}", quoted(other));
    }
    let comment = "# format = { json = { time = \"$.COLUMN\" } }";
    stream(&mut toml, &name_part(first), Some(comment), &columns, true);
    Ok(toml)
}

/// The type of a column by the affinity of its declaration (SQLite, datatype3, section 3.1).
fn declared_type(declared: &str) -> Found {
    let declared = declared.to_ascii_uppercase();
    let has = |part: &str| declared.contains(part);
    match () {
        () if has("BOOL") => Found::Boolean,
        () if has("INT") => Found::Integer,
        () if has("REAL") || has("FLOA") || has("DOUB") || has("NUM") || has("DEC") => {
            Found::Double
        }
        () => Found::Text,
    }
}

/// Adds a stream with a field for each column.
pub(super) fn stream(
    toml: &mut String,
    name: &str,
    comment: Option<&str>,
    columns: &Columns,
    is_json: bool,
) {
    if let Some(comment) = comment {
        let _ = writeln!(toml, "{comment}");
    }
    let _ = write!(toml, "\n[[stream]]\nname = {}\nfields = [\n", quoted(name));
    let mut names = Vec::new();
    for (column, found) in columns {
        let mut field = field_name(column);
        while names.contains(&field) {
            field.push('_');
        }
        let path = match is_json {
            true => format!("$[{}]", json_quoted(column)),
            false => column.clone(),
        };
        let path = match field == *column {
            true => String::new(),
            false => format!(", path = {}", quoted(&path)),
        };
        let word = found.word();
        let _ = writeln!(
            toml,
            "    {{ name = {}{path}, type = \"{word}\" }},",
            quoted(&field)
        );
        names.push(field);
    }
    toml.push_str("]\n");
}

/// A text in single quotes, as JSONPath writes names.
pub(super) fn json_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The field name nearest to that of a column.
pub(super) fn field_name(column: &str) -> String {
    let mut name = String::new();
    for c in column.chars().take(64) {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => name.push(c),
            _ if !name.ends_with('_') => name.push('_'),
            _ => {}
        }
    }
    let is_reserved = chappe_stream::RESERVED_COLUMNS.contains(&name.as_str());
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() || is_reserved {
        true => format!("f_{name}"),
        false => name,
    }
}

/// A text as TOML writes it.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WrapperFile;
    use proptest::prelude::*;

    #[test]
    fn a_printed_file_is_valid_and_has_the_types_of_the_values() {
        let directory = tempfile::tempdir().unwrap();
        let cases = [
            (
                "a b.csv",
                "source_time,n,x,ok,note\n,1,1,true,\n,2,2.5,false,a\n,half",
            ),
            (
                "c.csv",
                "n,x,ok,note,seen at\n1,1,true,,2026-01-01T00:00:00Z\n2,2.5,false,a,2026-01-01T00:00:01+01:00\n",
            ),
            (
                "d.jsonl",
                "{\"at\":\"2026-01-01T00:00:00Z\",\"n\":1,\"x\":1.5,\"ok\":true,\"note\":\"a\"}\n",
            ),
            (
                "b.jsonl",
                "{\"n\":1,\"x\":1.5,\"ok\":true,\"note\":\"a\"}\n{\"n\":2,\"x\":3}\n",
            ),
        ];
        for (name, text) in cases {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            let toml = file(path.to_str().unwrap()).unwrap();
            let parsed = WrapperFile::parse(Path::new("x.toml"), &toml).unwrap();
            parsed.kind().unwrap();
            assert_eq!(toml.contains(" time = "), name != "b.jsonl", "{toml}");
            let (_, definition) = &parsed.fixed_streams()[0];
            let fields = definition.schema.fields.iter();
            let mut fields: Vec<_> = fields
                .map(|it| format!("{} {:?}", it.name, it.field_type))
                .collect();
            fields.sort();
            assert_eq!(
                fields,
                ["n Integer", "note Text", "ok Boolean", "x Double"],
                "{toml}"
            );
        }
    }

    #[test]
    fn semicolons_and_decimal_commas_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        let described = |text: &str| {
            std::fs::write(&path, text).unwrap();
            file(path.to_str().unwrap()).unwrap()
        };
        let toml = described("n;celsius;note\r\n1;21,5;a\r\n2;-3,25;b,c\r\n");
        assert!(
            toml.contains(r#"{ csv = { delimiter = ";", decimal = "," } }"#),
            "{toml}"
        );
        assert!(
            toml.contains(r#"{ name = "celsius", type = "double" }"#),
            "{toml}"
        );
        assert!(
            toml.contains(r#"{ name = "note", type = "text" }"#),
            "{toml}"
        );
        WrapperFile::parse(Path::new("x.toml"), &toml)
            .unwrap()
            .kind()
            .unwrap();
        let toml = described("n\tcelsius\n1\t21.5\n");
        let table: toml::Table = toml.parse().unwrap();
        assert_eq!(table["format"]["csv"]["delimiter"].as_str(), Some("\t"));
        WrapperFile::parse(Path::new("x.toml"), &toml)
            .unwrap()
            .kind()
            .unwrap();
        assert!(described("n,x\n1,2\n").contains("{ csv = {} }"));
    }

    #[test]
    fn a_database_is_described() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let database = Connection::open(&path).unwrap();
        database
            .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, \"a b\" REAL, note TEXT); CREATE TABLE u (x)")
            .unwrap();
        let toml = sqlite(path.to_str().unwrap()).unwrap();
        let parsed = WrapperFile::parse(Path::new("x.toml"), &toml).unwrap();
        parsed.kind().unwrap();
        assert!(
            toml.contains("cursor = \"id\"") && toml.contains("# another table: \"u\""),
            "{toml}"
        );
    }

    proptest! {
        #[test]
        fn any_file_gives_a_valid_file_or_an_error(text in "(.|\n|,|\"){0,200}") {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("a.csv");
            std::fs::write(&path, &text).unwrap();
            if let Ok(toml) = file(path.to_str().unwrap()) {
                prop_assert!(toml.parse::<toml::Table>().is_ok(), "{}", toml);
            }
        }
    }
}
