//! Rows of a table or view of an SQLite database, by a column that only rises.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_stream::{DescriptorError, Timestamp};
use rusqlite::types::{Value as Cell, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tokio::task::JoinHandle;

use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    BATCH_BYTES_MAX, Batch, Condition, Delivery, Lost, MARK_BYTES_MAX, Mark, Step, Wrapper,
    WrapperError, WrapperFile, WrapperKind, WrapperOpening,
};

/// The version of a mark.
const FORMAT: u8 = 1;
/// Rows of one batch.
const ROWS_MAX: usize = 1_000;
/// Time to wait for a writer.
const BUSY_TIME: Duration = Duration::from_secs(5);
/// Longest time of a look at the table; reason: a view of the database may compute without end.
const LOOK_TIME: Duration = Duration::from_secs(300);
/// Instructions of SQLite between two looks at the time.
const INSTRUCTIONS: i32 = 10_000;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "sqlite",
    about: "new rows of a table of an SQLite database",
    delivery: Delivery {
        acknowledges: "never: the database is not changed",
        resumes: "the cursor column of the last stored row",
        may_double: "no",
        may_miss: "rows that get no higher cursor than one already read, or are deleted before",
        back_pressure: "the table is read no faster than it is stored",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: Some(crate::kinds::browse::sqlite),
};

/// The keys of a wrapper of kind `sqlite`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The database, which is opened for reading only. Relative to this file.
    path: PathBuf,
    /// The table or view. A row is decoded as a JSON object of its columns (docs/reference/formats.md).
    table: String,
    /// The column, whose values are unique and only increase, for example `id`.
    cursor: String,
    /// Time between two queries of the table. Default: 1000.
    #[serde(default = "poll_default")]
    #[schemars(range(min = 10, max = 3_600_000), extend("x-unit" = "milliseconds"))]
    poll_ms: u64,
}

fn poll_default() -> u64 {
    1_000
}

fn settings(file: &WrapperFile) -> Result<(Settings, Decoder), DescriptorError> {
    let settings: Settings = file.settings()?;
    if !(10..=3_600_000).contains(&settings.poll_ms) {
        let message = "it is not within 10 to 3600000".to_owned();
        return Err(file.fault("poll_ms", message, None));
    }
    Ok((settings, Decoder::json(file)?))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let (settings, decoder) =
        settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let cursor = opening.mark.as_ref().map(read_mark).transpose()?;
    let poll = Duration::from_millis(settings.poll_ms);
    let has_ended = Arc::<AtomicBool>::default();
    let reader = Reader {
        path: file.path(&settings.path),
        statement: statement(&settings, cursor.is_some()),
        settings,
        decoder,
        cursor,
        connection: None,
        has_ended: has_ended.clone(),
        until: Arc::default(),
    };
    Ok(Box::new(SqliteWrapper {
        stage: Stage::Idle(Some(Box::new(reader))),
        has_ended,
        poll,
        look_at: None,
        condition: opening.condition,
    }))
}

/// The SELECT of the rows after the cursor, or of all; the first column is the cursor.
fn statement(settings: &Settings, after: bool) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    // Alone, a quoted name that no column has is a text.
    let cursor = format!("peer.{}", quoted(&settings.cursor));
    let table = quoted(&settings.table);
    let condition = if after { "> ?1" } else { "IS NOT NULL" };
    format!(
        "SELECT {cursor}, * FROM {table} AS peer WHERE {cursor} {condition} ORDER BY {cursor} LIMIT {ROWS_MAX}"
    )
}

/// The value of the cursor column. Its variants are the format of the mark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Cursor {
    Integer(i64),
    Real(f64),
    Text(String),
}

impl Cursor {
    /// The cursor of a row; `None` if a mark cannot have it.
    fn of(cell: ValueRef<'_>) -> Option<Self> {
        match cell {
            ValueRef::Integer(number) => Some(Self::Integer(number)),
            ValueRef::Real(number) => Some(Self::Real(number)),
            ValueRef::Text(text) if text.len() <= MARK_BYTES_MAX - 16 => {
                let text = std::str::from_utf8(text).ok()?;
                Some(Self::Text(text.to_owned()))
            }
            _ => None,
        }
    }

    fn cell(&self) -> Cell {
        match self {
            Self::Integer(number) => Cell::Integer(*number),
            Self::Real(number) => Cell::Real(*number),
            Self::Text(text) => Cell::Text(text.clone()),
        }
    }

    fn mark(&self) -> Mark {
        let mut bytes = vec![FORMAT];
        // A number or a short text always encodes.
        bytes.extend(postcard::to_allocvec(self).unwrap_or_default());
        Mark::new(bytes).unwrap_or_default()
    }
}

fn read_mark(mark: &Mark) -> Result<Cursor, WrapperError> {
    let cursor = match mark.bytes().split_first() {
        Some((&FORMAT, bytes)) => postcard::from_bytes(bytes).ok(),
        _ => None,
    };
    cursor.ok_or_else(|| WrapperError::unreadable_mark(mark, FORMAT, "a table"))
}

struct SqliteWrapper {
    stage: Stage,
    /// Ends a query that runs.
    has_ended: Arc<AtomicBool>,
    poll: Duration,
    /// When to look at the table again.
    look_at: Option<Instant>,
    condition: Condition,
}

/// What one look at the table gives.
#[derive(Default)]
struct Look {
    batch: Batch,
    /// Whether there were rows.
    has_rows: bool,
    /// Whether there is a row whose cursor a mark cannot have.
    is_blocked: bool,
}

/// The thread that has the reader.
enum Stage {
    /// This one; `None` after a read that failed.
    Idle(Option<Box<Reader>>),
    /// One that may block on the disk.
    Reading(JoinHandle<(Box<Reader>, Result<Look, WrapperError>)>),
}

impl Drop for SqliteWrapper {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

impl Wrapper for SqliteWrapper {
    fn repeats(&self) -> bool {
        true
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            loop {
                if let Some(look_at) = self.look_at {
                    tokio::time::sleep_until(look_at.into()).await;
                    self.look_at = None;
                }
                let look = self.read().await?;
                if !look.has_rows {
                    self.condition.waits(match look.is_blocked {
                        true => "the next row has a cursor that is bytes, no UTF-8, or too long",
                        false => "the table has no new rows",
                    });
                    self.look_at = Some(Instant::now() + self.poll);
                } else {
                    self.condition.runs();
                }
                if look.has_rows || !look.batch.lost.is_empty() {
                    return Ok(look.batch);
                }
            }
        })
    }
}

impl SqliteWrapper {
    async fn read(&mut self) -> Result<Look, WrapperError> {
        let failed = || WrapperError::peer("reading the database was interrupted");
        if let Stage::Idle(reader) = &mut self.stage {
            let mut reader = reader.take().ok_or_else(failed)?;
            self.stage = Stage::Reading(tokio::task::spawn_blocking(move || {
                let read = reader.read(now());
                (reader, read)
            }));
        }
        let Stage::Reading(reading) = &mut self.stage else {
            return Err(failed());
        };
        let (reader, look) = reading.await.map_err(|_| failed())?;
        self.stage = Stage::Idle(Some(reader));
        look
    }
}

/// Reads rows. Blocks on the disk.
struct Reader {
    path: PathBuf,
    statement: String,
    settings: Settings,
    decoder: Decoder,
    cursor: Option<Cursor>,
    /// The open database, and the file that it is.
    connection: Option<(Connection, FileId)>,
    has_ended: Arc<AtomicBool>,
    /// When the query is interrupted.
    until: Arc<Mutex<Option<Instant>>>,
}

/// Only a file is opened: a pipe would wait for a writer.
fn check_kind(path: &Path) -> Result<(), WrapperError> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            let text = format!("{} is not a regular file", path.display());
            Err(WrapperError::peer(text))
        }
        // SQLite names the other faults.
        _ => Ok(()),
    }
}

fn is_past(until: &Mutex<Option<Instant>>) -> bool {
    let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
    until.is_some_and(|until| Instant::now() >= until)
}

/// Device and number of a file.
type FileId = (u64, u64);

fn file_id(path: &Path) -> io::Result<FileId> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Reader {
    /// Lets queries run for this time.
    fn bound(&self, time: Duration) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = Some(Instant::now() + time);
    }

    /// The database as its path names it now.
    fn connect(&mut self, lost: &mut Vec<Lost>) -> Result<(Connection, FileId), WrapperError> {
        let path = self.path.display();
        let failed = |error: &dyn std::fmt::Display| {
            WrapperError::peer(format!("cannot read {path}: {error}"))
        };
        let named = file_id(&self.path).map_err(|error| failed(&error))?;
        match self.connection.take() {
            Some((connection, open)) if open == named => return Ok((connection, open)),
            // Rows that were written to the former file alone are not in this one, or others have their cursors.
            Some(_) => lost.push(Lost {
                stream: self.decoder.only_stream().map(str::to_owned),
                reason: "database_replaced",
                messages: 0,
            }),
            None => {}
        }
        check_kind(&self.path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_with_flags(&self.path, flags).map_err(|error| failed(&error))?;
        connection
            .busy_timeout(BUSY_TIME)
            .map_err(|error| failed(&error))?;
        let (has_ended, until) = (self.has_ended.clone(), self.until.clone());
        let is_over = move || has_ended.load(Ordering::Relaxed) || is_past(&until);
        connection
            .progress_handler(INSTRUCTIONS, Some(is_over))
            .map_err(|error| failed(&error))?;
        // A file that was replaced since is noticed at the next look.
        Ok((connection, named))
    }

    fn read(&mut self, now: Timestamp) -> Result<Look, WrapperError> {
        self.bound(LOOK_TIME);
        let mut look = Look::default();
        let (connection, file) = self.connect(&mut look.batch.lost)?;
        let path = self.path.display().to_string();
        let failed = |error: rusqlite::Error| {
            WrapperError::peer(match error.sqlite_error_code() {
                Some(ErrorCode::OperationInterrupted) => {
                    format!("cannot read {path}: the query took more than {LOOK_TIME:?}")
                }
                _ => format!("cannot read {path}: {error}"),
            })
        };
        let mut prepared = connection.prepare_cached(&self.statement).map_err(failed)?;
        let cursor = self.cursor.as_ref().map(Cursor::cell);
        let mut rows = match &cursor {
            Some(cursor) => prepared.query([cursor]),
            None => prepared.query([]),
        }
        .map_err(failed)?;
        let (mut bytes, mut last) = (0, None);
        let mut names: Vec<String> = Vec::new();
        while bytes < BATCH_BYTES_MAX / 4
            && let Some(row) = rows.next().map_err(failed)?
        {
            let Some(cursor) = Cursor::of(row.get_ref(0).map_err(failed)?) else {
                look.is_blocked = true;
                break;
            };
            if names.is_empty() {
                // The first step prepares the statement again if the columns have changed.
                names = row.as_ref().column_names().map(str::to_owned).collect();
            }
            let mut object = Map::new();
            for (index, name) in names.iter().enumerate().skip(1) {
                object.insert(name.clone(), json(row.get_ref(index).map_err(failed)?));
            }
            let message = Json::Object(object).to_string();
            bytes += message.len();
            self.decoder
                .message(message.as_bytes(), now, &mut look.batch);
            last = Some(cursor);
        }
        drop(rows);
        drop(prepared);
        self.connection = Some((connection, file));
        look.has_rows = last.is_some();
        if let Some(last) = last {
            if self.cursor.is_none() {
                self.statement = statement(&self.settings, true);
            }
            self.cursor = Some(last);
        }
        look.batch.mark = self.cursor.as_ref().map(Cursor::mark).unwrap_or_default();
        Ok(look)
    }
}

/// A cell as JSON; bytes are base64.
fn json(cell: ValueRef<'_>) -> Json {
    match cell {
        ValueRef::Null => Json::Null,
        ValueRef::Integer(number) => number.into(),
        // JSON has no infinite numbers: as a text it is refused, or null if the format says so.
        ValueRef::Real(number) if !number.is_finite() => number.to_string().into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => STANDARD.encode(bytes).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{open_in, wrapper_file_in};
    use chappe_stream::Value;

    #[tokio::test]
    async fn rows_are_read_once_each_in_the_order_of_the_cursor() {
        let directory = tempfile::tempdir().unwrap();
        let database = Connection::open(directory.path().join("plant.db")).unwrap();
        database
            .execute_batch(
                "CREATE TABLE \"a b\" (id INTEGER PRIMARY KEY, ts TEXT, machine TEXT, celsius, note TEXT);
                 INSERT INTO \"a b\" VALUES (2, '2020-11-21T10:00:02Z', 'm1', 20.5, NULL),
                     (1, '2020-11-21T10:00:01Z', 'm1', 20, 'x'),
                     (3, 'yesterday', 'm2', 1.0, NULL), (4, '2020-11-21T10:00:04Z', 'm2', 'hot', NULL),
                     (5, '2020-11-21T10:00:05Z', 'm2', 9e999, 'infinite');",
            )
            .unwrap();
        let text = "kind = \"sqlite\"\npath = \"plant.db\"\ntable = \"a b\"\ncursor = \"id\"\npoll_ms = 10\n\
             format = { json = { time = \"$.ts\" } }\n[[stream]]\nname = \"a\"\nkey = \"{machine}\"\n\
             variables = { machine = \"$.machine\" }\n\
             fields = [{ name = \"celsius\", type = \"double\" }, { name = \"note\", type = \"text\" }]\n";
        let file = wrapper_file_in(directory.path(), text);
        let batch = open_in(&file, None).next().await.unwrap();
        let elements = &batch.parts[0].elements;
        let values: Vec<_> = elements.iter().map(|it| it.values[0].clone()).collect();
        assert_eq!(values, [Value::Double(20.0), Value::Double(20.5)]);
        assert_eq!(elements[0].key.as_deref(), Some("m1"));
        assert_eq!(elements[0].source_time.to_string(), "2020-11-21T10:00:01Z");
        assert_eq!(batch.undecodable.len(), 3, "{:?}", batch.undecodable);
        let infinite = &batch.undecodable[2].reason;
        assert!(infinite.contains("finite"), "{infinite}");
        // A new start continues after the mark.
        let mut again = open_in(&file, Some(batch.mark));
        let waiting = tokio::time::timeout(Duration::from_millis(50), again.next()).await;
        assert!(waiting.is_err(), "there are no new rows");
        database
            .execute("INSERT INTO \"a b\" VALUES (9, NULL, 'm1', 21, NULL)", [])
            .unwrap();
        let batch = again.next().await.unwrap();
        assert_eq!(batch.parts[0].elements[0].values[0], Value::Double(21.0));
        let wrong = wrapper_file_in(directory.path(), &text.replace("\"id\"", "\"no\""));
        assert!(open_in(&wrong, None).next().await.is_err());
        database.execute_batch("DROP TABLE \"a b\"").unwrap();
        assert!(again.next().await.is_err());
    }

    /// A database with a table `t` of the integers `id` and `n`, and a file of a wrapper for it.
    fn table(directory: &Path, rows: &str) -> (Connection, WrapperFile) {
        let database = Connection::open(directory.join("plant.db")).unwrap();
        let made = format!("CREATE TABLE t (id, n INTEGER); INSERT INTO t VALUES {rows}");
        database.execute_batch(&made).unwrap();
        let text = "kind = \"sqlite\"\npath = \"plant.db\"\ntable = \"t\"\ncursor = \"id\"\npoll_ms = 10\n\
                    [[stream]]\nname = \"a\"\nfields = [{ name = \"n\", type = \"integer\" }]\n";
        (database, wrapper_file_in(directory, text))
    }

    fn integers(batch: &Batch) -> Vec<i64> {
        let elements = batch.parts.iter().flat_map(|part| &part.elements);
        let integer = |value: &Value| match value {
            Value::Integer(number) => *number,
            other => panic!("{other:?}"),
        };
        elements
            .map(|element| integer(&element.values[0]))
            .collect()
    }

    #[tokio::test]
    async fn columns_that_change_their_order_keep_their_values() {
        let directory = tempfile::tempdir().unwrap();
        let (database, file) = table(directory.path(), "(1, 100)");
        let mut wrapper = open_in(&file, None);
        assert_eq!(integers(&wrapper.next().await.unwrap()), [100]);
        // The statement after the first row is prepared before the change.
        database
            .execute("INSERT INTO t VALUES (2, 101)", [])
            .unwrap();
        assert_eq!(integers(&wrapper.next().await.unwrap()), [101]);
        database
            .execute_batch(
                "BEGIN; DROP TABLE t; CREATE TABLE t (other INTEGER, n INTEGER, id INTEGER);
                 INSERT INTO t VALUES (-1, 102, 3), (-2, 103, 4); COMMIT;",
            )
            .unwrap();
        assert_eq!(integers(&wrapper.next().await.unwrap()), [102, 103]);
    }

    #[tokio::test]
    async fn a_database_that_is_replaced_is_read_on() {
        let directory = tempfile::tempdir().unwrap();
        let (_database, file) = table(directory.path(), "(1, 1), (2, 2)");
        let mut wrapper = open_in(&file, None);
        assert_eq!(integers(&wrapper.next().await.unwrap()), [1, 2]);
        let other = tempfile::tempdir_in(directory.path()).unwrap();
        drop(table(other.path(), "(1, 1), (2, 2), (3, 3)"));
        fs::rename(
            other.path().join("plant.db"),
            directory.path().join("plant.db"),
        )
        .unwrap();
        let batch = wrapper.next().await.unwrap();
        assert_eq!(integers(&batch), [3]);
        let lost: Vec<_> = batch
            .lost
            .iter()
            .map(|it| (it.reason, it.messages))
            .collect();
        assert_eq!(lost, [("database_replaced", 0)]);
    }

    #[tokio::test]
    async fn a_row_whose_cursor_is_none_delays_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let (database, file) = table(directory.path(), "(NULL, 1), (2, 2), (x'00', 3)");
        let mut wrapper = open_in(&file, None);
        assert_eq!(integers(&wrapper.next().await.unwrap()), [2]);
        database.execute("INSERT INTO t VALUES (4, 4)", []).unwrap();
        assert_eq!(integers(&wrapper.next().await.unwrap()), [4]);
    }

    #[test]
    fn a_query_without_end_ends_with_its_wrapper() {
        let directory = tempfile::tempdir().unwrap();
        let database = Connection::open(directory.path().join("plant.db")).unwrap();
        let view = "CREATE VIEW v AS WITH RECURSIVE r(id) AS
             (SELECT 1 UNION ALL SELECT id + 1 FROM r) SELECT id FROM r WHERE id < 0;";
        database.execute_batch(view).unwrap();
        let text = "kind = \"sqlite\"\npath = \"plant.db\"\ntable = \"v\"\ncursor = \"id\"\n\
             [[stream]]\nname = \"a\"\nfields = [{ name = \"id\", type = \"integer\" }]\n";
        let file = wrapper_file_in(directory.path(), text);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut wrapper = open_in(&file, None);
        let waiting =
            async { tokio::time::timeout(Duration::from_millis(200), wrapper.next()).await };
        assert!(runtime.block_on(waiting).is_err());
        drop(wrapper);
        let start = Instant::now();
        runtime.shutdown_timeout(Duration::from_secs(20));
        assert!(start.elapsed() < Duration::from_secs(15));
    }

    #[tokio::test]
    async fn a_pipe_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("plant.db");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let text = "kind = \"sqlite\"\npath = \"plant.db\"\ntable = \"v\"\ncursor = \"id\"\n\
             [[stream]]\nname = \"a\"\nfields = [{ name = \"id\", type = \"integer\" }]\n";
        let file = wrapper_file_in(directory.path(), text);
        let error = open_in(&file, None).next().await.err().unwrap().to_string();
        assert!(error.ends_with("is not a regular file"), "{error}");
    }

    #[test]
    fn a_mark_is_any_cursor() {
        let long = Cursor::Text("x".repeat(MARK_BYTES_MAX - 16));
        for cursor in [Cursor::Integer(i64::MIN), Cursor::Real(0.5), long] {
            assert_eq!(read_mark(&cursor.mark()).unwrap(), cursor);
        }
        assert!(read_mark(&Mark::new(vec![FORMAT, 9, 9]).unwrap()).is_err());
        let newer = read_mark(&Mark::new(vec![FORMAT + 1]).unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            newer.contains("version 2") && newer.contains("up to 1"),
            "{newer}"
        );
    }
}
