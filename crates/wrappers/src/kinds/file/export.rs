//! The exporter to a file: JSON lines, or CSV for one stream.
//!
//! Each line carries the position of its element. A new start cuts off a line that a crash left
//! incomplete, and reads from the last lines how far each stream was written, so no element is in the
//! file twice.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use chappe_stream::view::{ElementView, ValueView};
use chappe_stream::{DescriptorError, Position, StreamElement, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Batch, Exporter, ExporterFile, ExporterKind, ExporterOpening, Part, Step, WrapperError, Written,
};

/// Bytes at the end of the file in which the newest element of each stream is sought; reason: at most
/// one batch is beyond the host's cursor, and its text is a few times longer than its elements.
const TAIL_BYTES: u64 = 16 << 20;
/// The columns of a CSV before those of the fields.
const COLUMNS: [&str; 5] = ["position", "source_time", "receive_time", "key", "quality"];

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "file",
    about: "appends elements to a file",
    written: "the file is synced to its disk",
    may_double: "no",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The keys of an exporter of kind `file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The file, which is created if necessary. Relative to this file.
    path: PathBuf,
    /// JSON lines as `GET /api/v1/streams/NAME/elements` returns elements, or CSV for a single stream.
    /// Default: json.
    #[serde(default)]
    format: Form,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Form {
    #[default]
    Json,
    Csv,
}

fn settings(file: &ExporterFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    if settings.path.file_name().is_none() {
        return Err(file.fault("path", "the path names no file".to_owned(), None));
    }
    let is_one = matches!(&*file.keys.streams, [one] if !one.ends_with('*'));
    if settings.format == Form::Csv && !is_one {
        let message = "a CSV has the elements of one stream".to_owned();
        let hint = "name one stream, or use format = \"json\"".to_owned();
        return Err(file.fault("format", message, Some(hint)));
    }
    Ok(settings)
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    Ok(Box::new(FileExporter {
        path: file.path(&settings.path),
        form: settings.format,
        stream: file.keys.streams[0].clone(),
        output: None,
    }))
}

struct FileExporter {
    path: PathBuf,
    form: Form,
    /// The stream of a CSV.
    stream: String,
    /// Open once it was asked how far the file goes; `None` after a failed write, which may have left
    /// an incomplete line.
    output: Option<Output>,
}

/// The open file.
struct Output {
    file: File,
    /// The columns of a CSV, once there is a header.
    columns: Option<Vec<String>>,
}

impl Exporter for FileExporter {
    fn resume(&mut self) -> Step<'_, Result<Vec<(String, Position)>, WrapperError>> {
        Box::pin(async {
            let (path, form, stream) = (self.path.clone(), self.form, self.stream.clone());
            let opened = blocking(move || Output::open(&path, form, &stream)).await;
            let (output, newest) = opened.map_err(|error| self.failed(&error))?;
            self.output = Some(output);
            Ok(newest.into_iter().collect())
        })
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async move {
            let Some(output) = self.output.take() else {
                let text = "the file was left after an incomplete line";
                return Err(WrapperError::peer(text));
            };
            let (path, form, stream) = (self.path.clone(), self.form, self.stream.clone());
            let output = blocking(move || match output.is_at(&path) {
                true => Ok(output),
                // The file was moved or deleted: the next one begins here.
                false => Output::open(&path, form, &stream).map(|(output, _)| output),
            });
            let mut output = output.await.map_err(|error| self.failed(&error))?;
            let mut text = Vec::new();
            for part in &batch.parts {
                let written = match self.form {
                    Form::Json => json_lines(part, &mut text),
                    Form::Csv => csv_lines(part, &mut output.columns, &mut text),
                };
                written.map_err(|error| self.failed(&error))?;
            }
            let written = blocking(move || {
                output.file.write_all(&text)?;
                output.file.sync_data()?;
                Ok(output)
            });
            let output = written.await.map_err(|error| self.failed(&error))?;
            self.output = Some(output);
            Ok(Written::default())
        })
    }
}

impl FileExporter {
    fn failed(&self, error: &io::Error) -> WrapperError {
        let path = self.path.display();
        WrapperError::peer(format!("cannot write {path}: {error}"))
    }
}

/// Runs something that blocks on the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other("interrupted")))
}

impl Output {
    /// Whether the path still names the open file.
    fn is_at(&self, path: &Path) -> bool {
        let (open, named) = (self.file.metadata(), fs::metadata(path));
        let same = |open: fs::Metadata, named: fs::Metadata| {
            (open.dev(), open.ino()) == (named.dev(), named.ino())
        };
        open.is_ok_and(|open| named.is_ok_and(|named| same(open, named)))
    }

    /// Opens the file at its last complete line; returns the newest element of each stream in it.
    fn open(
        path: &Path,
        form: Form,
        stream: &str,
    ) -> io::Result<(Self, BTreeMap<String, Position>)> {
        let directories = directories(path);
        if let Some(directory) = directories.first() {
            fs::create_dir_all(directory)?;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).read(true).open(path)?;
        // A synced file without its name is lost in a power cut. An earlier run may have ended before this.
        for directory in directories {
            File::open(directory)?.sync_all()?;
        }
        let length = file.metadata()?.len();
        let from = length.saturating_sub(TAIL_BYTES);
        let mut tail = vec![0; usize::try_from(length - from).unwrap_or(0)];
        file.read_exact_at(&mut tail, from)?;
        let complete = match form {
            Form::Json => tail
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1),
            Form::Csv => csv_end(&tail, from > 0),
        };
        if complete == 0 && from > 0 {
            let text = format!("the last {TAIL_BYTES} bytes have no line end");
            return Err(io::Error::other(text));
        }
        if complete < tail.len() {
            file.set_len(from + complete as u64)?;
        }
        let mut newest = BTreeMap::new();
        let text = String::from_utf8_lossy(&tail[..complete]);
        for line in text.lines() {
            let position = match form {
                Form::Json => json_position(line),
                Form::Csv => csv_position(line).map(|at| (stream.to_owned(), at)),
            };
            newest.extend(position);
        }
        let columns = match form {
            Form::Csv => header(&file)?,
            Form::Json => None,
        };
        Ok((Self { file, columns }, newest))
    }
}

/// The directories that get an entry when this file is created: its own, and those above the ones that are missing.
fn directories(path: &Path) -> Vec<PathBuf> {
    let own = |path: &Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(PathBuf::from(".")),
        parent => parent.map(Path::to_owned),
    };
    let mut directories: Vec<PathBuf> = own(path).into_iter().collect();
    while let Some(last) = directories.last()
        && !last.exists()
        && let Some(above) = own(last)
    {
        directories.push(above);
    }
    directories
}

/// The end of the last complete record of a CSV, whose cells may contain line ends. With `is_cut` the
/// bytes begin somewhere in a record.
fn csv_end(bytes: &[u8], is_cut: bool) -> usize {
    let (mut end, mut at, mut is_quoted, mut is_within) = (0, 0, false, is_cut);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if is_within {
            // Lines of elements begin with a position.
            is_within = csv_position(&String::from_utf8_lossy(line)).is_none();
        }
        let quotes = line.iter().filter(|byte| **byte == b'"').count();
        is_quoted ^= !is_within && quotes % 2 == 1;
        at += line.len();
        if !is_quoted && line.ends_with(b"\n") {
            end = at;
        }
    }
    end
}

/// The columns that the first line of a CSV names.
fn header(file: &File) -> io::Result<Option<Vec<String>>> {
    let mut first = vec![0; 64 << 10];
    let count = file.read_at(&mut first, 0)?;
    let line = first[..count]
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    let columns = text
        .split(',')
        .map(|name| name.trim_matches('"').to_owned());
    Ok((count > 0).then(|| columns.collect()))
}

fn json_lines(part: &Part, text: &mut Vec<u8>) -> io::Result<()> {
    for element in &part.elements {
        let view = ElementView {
            stream: Some(&part.stream),
            element,
            schema: &part.definition.schema,
        };
        serde_json::to_writer(&mut *text, &view)?;
        text.push(b'\n');
    }
    Ok(())
}

/// Stream and position of a line.
fn json_position(line: &str) -> Option<(String, Position)> {
    #[derive(Deserialize)]
    struct Line {
        stream: String,
        epoch: String,
        number: u64,
    }
    let line: Line = serde_json::from_str(line).ok()?;
    let at = format!("{}:{}", line.epoch, line.number).parse().ok()?;
    Some((line.stream, at))
}

fn csv_lines(part: &Part, columns: &mut Option<Vec<String>>, text: &mut Vec<u8>) -> io::Result<()> {
    let fields = &part.definition.schema.fields;
    let columns = columns.get_or_insert_with(|| {
        let fields = fields.iter().map(|field| field.name.as_str());
        let columns: Vec<String> = COLUMNS
            .into_iter()
            .chain(fields)
            .map(str::to_owned)
            .collect();
        text.extend_from_slice(columns.join(",").as_bytes());
        text.push(b'\n');
        columns
    });
    let is_new = |name: &&str| !columns.iter().any(|column| column == name);
    let mut names = fields.iter().map(|field| field.name.as_str());
    if let Some(new) = names.find(is_new) {
        let text = format!(
            "its header has no column {new:?}, which the stream has now; move the file away"
        );
        return Err(io::Error::other(text));
    }
    for element in &part.elements {
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            let at = fields.iter().position(|field| field.name == *column);
            let cell = match at.filter(|_| index >= COLUMNS.len()) {
                Some(at) => element.values.get(at).map_or_else(String::new, cell),
                None => own_cell(column, element),
            };
            quote(&cell, text);
        }
        text.push(b'\n');
    }
    Ok(())
}

/// A cell that every element has.
fn own_cell(column: &str, element: &StreamElement) -> String {
    match column {
        "position" => element.position.to_string(),
        "source_time" => element.source_time.to_string(),
        "receive_time" => element.receive_time.to_string(),
        "key" => element.key.clone().unwrap_or_default(),
        "quality" => format!("{:?}", element.quality).to_lowercase(),
        _ => String::new(),
    }
}

/// A value as a cell: as in JSON, a text without quotes, and nothing for null.
fn cell(value: &Value) -> String {
    match serde_json::to_value(ValueView(value)).unwrap_or_default() {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    }
}

fn quote(cell: &str, text: &mut Vec<u8>) {
    if !cell.contains([',', '"', '\n', '\r']) {
        return text.extend_from_slice(cell.as_bytes());
    }
    text.push(b'"');
    text.extend_from_slice(cell.replace('"', "\"\"").as_bytes());
    text.push(b'"');
}

/// The position of a line; `None` for the header, and for the rest of a cell with a line end.
fn csv_position(line: &str) -> Option<Position> {
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_stream::{Epoch, Field, FieldType, StreamSchema};
    use std::sync::Arc;

    fn batch(stream: &str, numbers: std::ops::RangeInclusive<u64>) -> Batch {
        let field = |name: &str, field_type| Field {
            name: name.to_owned(),
            field_type,
            unit: None,
            observed_property: None,
            description: None,
        };
        let definition = Arc::new(crate::StreamDefinition {
            schema: StreamSchema {
                fields: vec![
                    field("value", FieldType::Double),
                    field("note", FieldType::Text),
                ],
                key: None,
            },
            ..Default::default()
        });
        let mut batch = Batch::default();
        for number in numbers {
            let mut element = crate::tests::element(number as f64);
            element.values.push(Value::Text("a, \"b\"\nc".to_owned()));
            element.position = Position {
                epoch: Epoch(7),
                sequence: number,
            };
            batch.push(&stream.into(), &definition, element);
        }
        batch
    }

    fn exporter(path: &Path, form: Form) -> FileExporter {
        FileExporter {
            path: path.to_owned(),
            form,
            stream: "a".to_owned(),
            output: None,
        }
    }

    #[tokio::test]
    async fn a_file_is_continued_after_its_last_complete_line() {
        for form in [Form::Json, Form::Csv] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("new/out");
            let mut first = exporter(&path, form);
            assert!(
                first.write(&batch("a", 1..=1)).await.is_err(),
                "it is not open"
            );
            assert_eq!(first.resume().await.unwrap(), []);
            first.write(&batch("a", 1..=3)).await.unwrap();
            let whole = fs::read(&path).unwrap();
            // A crash leaves any part of the next batch.
            for cut in 0..whole.len() {
                fs::write(&path, &whole[..cut]).unwrap();
                let mut next = exporter(&path, form);
                let newest = next.resume().await.unwrap();
                let read = newest.first().map_or(0, |(_, at)| at.sequence);
                if read < 3 {
                    next.write(&batch("a", read + 1..=3)).await.unwrap();
                }
                let text = fs::read_to_string(&path).unwrap();
                assert_eq!(
                    text,
                    String::from_utf8_lossy(&whole),
                    "{form:?}, cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn each_directory_that_gets_an_entry_is_synced() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let new = [path("a/b"), path("a"), path("")];
        let found = directories(&path("a/b/out"));
        assert!(found.iter().eq(new.iter()), "{found:?}");
        assert_eq!(directories(&path("out")), [path("")]);
        assert_eq!(directories(Path::new("out")), [PathBuf::from(".")]);
    }

    #[tokio::test]
    async fn a_file_that_is_moved_or_deleted_is_followed_by_another() {
        for form in [Form::Json, Form::Csv] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("out");
            let moved = directory.path().join("out.1");
            let mut exporter = exporter(&path, form);
            exporter.resume().await.unwrap();
            exporter.write(&batch("a", 1..=1)).await.unwrap();
            let first = fs::read_to_string(&path).unwrap();
            fs::rename(&path, &moved).unwrap();
            exporter.write(&batch("a", 2..=2)).await.unwrap();
            assert_eq!(fs::read_to_string(&moved).unwrap(), first, "{form:?}");
            fs::remove_file(&path).unwrap();
            exporter.write(&batch("a", 3..=3)).await.unwrap();
            let third = fs::read_to_string(&path).unwrap();
            assert!(
                third.contains(":3") || third.contains("\"number\":3"),
                "{third}"
            );
            assert!(!third.contains("\"number\":2"), "{third}");
        }
    }

    #[tokio::test]
    async fn a_csv_keeps_its_columns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.csv");
        fs::write(
            &path,
            "position,source_time,receive_time,key,quality,note,other\n",
        )
        .unwrap();
        let mut exporter = exporter(&path, Form::Csv);
        exporter.resume().await.unwrap();
        let error = exporter.write(&batch("a", 1..=1)).await.unwrap_err();
        assert!(error.to_string().contains("\"value\""), "{error}");
    }
}
