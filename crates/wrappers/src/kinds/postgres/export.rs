//! The exporter: rows by COPY, and how far it is in the same transaction.
//!
//! The table `chappe_cursor` has the last element of each stream that is in the database. A transaction first moves its
//! row on from the element before, and so fails if another one did that meanwhile: a transaction that was still in the
//! server after its connection was cut cannot store rows a second time.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_postgres::Target;
use chappe_stream::{DescriptorError, Epoch, Position};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::timeout;
use tokio_postgres::Transaction;

use super::copy::Copy;
use super::table::{self, Plan};
use super::{Database, STATEMENT_TIME, Session, failed};
use crate::kinds::pipeline::{Batches, Pipeline, Reports};
use crate::{
    Batch, Delivered, Exporter, ExporterFile, ExporterKind, ExporterOpening, NodeParts, Part,
    Refused, Step, WrapperError, Written,
};

/// Batches of one transaction: all that wait, and the first. Reason: each commit waits for the server's disk.
const TRANSACTION_BATCHES: usize = 9;
/// Longest name of a table; PostgreSQL cuts a longer one.
const NAME_BYTES_MAX: usize = 63;
/// The placeholder in `table`.
const STREAM: &str = "{stream}";

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "postgres",
    about: "copies elements into tables of PostgreSQL",
    written: "its transaction is committed to the server's disk",
    may_double: "no",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The keys of an exporter of kind `postgres`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The database.
    #[serde(flatten)]
    database: Database,
    /// The table. `{stream}` is the name of the stream with `_` for dots and hyphens; several streams need it.
    /// Default: `{stream}`.
    #[serde(default = "table_default")]
    table: String,
    /// Whether to create a missing table. Default: false.
    #[serde(default)]
    create: bool,
}

fn table_default() -> String {
    STREAM.to_owned()
}

fn settings(file: &ExporterFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    settings.database.check(file)?;
    let is_one = matches!(&*file.keys.streams, [one] if !one.ends_with('*'));
    if settings.table.is_empty() || (!is_one && !settings.table.contains(STREAM)) {
        let text = "each stream needs a table of its own".to_owned();
        let hint = format!("write table = \"{STREAM}\"");
        return Err(file.fault("table", text, Some(hint)));
    }
    Ok(settings)
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    Ok(Box::new(PostgresExporter {
        target: settings.database.target(file)?,
        settings,
        name: file.name.clone(),
        node: String::new(),
        pipeline: None,
    }))
}

struct PostgresExporter {
    target: Target,
    settings: Settings,
    name: String,
    /// What distinguishes this node from others that write to the same database.
    node: String,
    pipeline: Option<Pipeline>,
}

impl Exporter for PostgresExporter {
    fn attach(
        &mut self,
        node: &NodeParts,
        _: &BTreeMap<String, Position>,
    ) -> Result<(), WrapperError> {
        self.node = node.id.to_string();
        Ok(())
    }

    fn resume(&mut self) -> Step<'_, Result<Vec<(String, Position)>, WrapperError>> {
        Box::pin(async {
            let schema = self.settings.database.schema.as_deref();
            let session = Session::open(&self.target, schema, false).await?;
            let mut writer = Writer {
                session,
                settings: self.settings.clone(),
                name: self.name.clone(),
                node: self.node.clone(),
                positions: BTreeMap::new(),
                plans: BTreeMap::new(),
            };
            writer.resume().await?;
            let positions = writer.positions.clone();
            let write = |batches, reports| writer.run(batches, reports);
            self.pipeline = Some(Pipeline::start(write));
            Ok(positions.into_iter().collect())
        })
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        let passed = match &self.pipeline {
            Some(pipeline) => pipeline.pass(batch),
            None => Err(WrapperError::peer("the database is not open")),
        };
        Box::pin(std::future::ready(passed.map(|()| Written::default())))
    }

    fn is_pipelined(&self) -> bool {
        true
    }

    fn has_room(&self) -> bool {
        self.pipeline.as_ref().is_none_or(Pipeline::has_room)
    }

    fn delivered(&mut self) -> Step<'_, Result<Delivered, WrapperError>> {
        match &mut self.pipeline {
            Some(pipeline) => Box::pin(pipeline.delivered()),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// The owner of the connection.
struct Writer {
    session: Session,
    settings: Settings,
    name: String,
    node: String,
    /// How far each stream is in the database.
    positions: BTreeMap<String, Position>,
    /// How each stream is written, by its newest definition.
    plans: BTreeMap<String, (std::sync::Arc<crate::StreamDefinition>, Plan)>,
}

const CURSOR_EXISTS: &str = "SELECT to_regclass('chappe_cursor') IS NOT NULL";
const CURSOR_CREATE: &str = "CREATE TABLE IF NOT EXISTS chappe_cursor (node text, exporter text, stream text, \
    epoch text NOT NULL, sequence bigint NOT NULL, PRIMARY KEY (node, exporter, stream))";
const CURSOR_READ: &str =
    "SELECT stream, epoch, sequence FROM chappe_cursor WHERE node = $1 AND exporter = $2";
const CURSOR_NEW: &str = "INSERT INTO chappe_cursor (node, exporter, stream, epoch, sequence) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT DO NOTHING";
const CURSOR_MOVE: &str = "UPDATE chappe_cursor SET epoch = $4, sequence = $5 \
    WHERE node = $1 AND exporter = $2 AND stream = $3 AND epoch = $6 AND sequence = $7";
/// A server may acknowledge before its disk has a transaction; its other settings are kept.
const SYNCHRONOUS: &str = "SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

impl Writer {
    /// Reads how far each stream is; makes the table for it if necessary.
    async fn resume(&mut self) -> Result<(), WrapperError> {
        let client = &self.session.client;
        client.query(SYNCHRONOUS, &[]).await.map_err(failed)?;
        let exists = client.query_one(CURSOR_EXISTS, &[]).await.map_err(failed)?;
        if !exists.try_get::<_, bool>(0).map_err(failed)? {
            client.batch_execute(CURSOR_CREATE).await.map_err(|error| {
                failed(error).with_hint(format!("let an administrator run: {CURSOR_CREATE}"))
            })?;
        }
        let rows = client.query(CURSOR_READ, &[&self.node, &self.name]).await;
        for row in rows.map_err(failed)? {
            let epoch: &str = row.try_get(1).map_err(failed)?;
            let sequence: i64 = row.try_get(2).map_err(failed)?;
            let epoch = u64::from_str_radix(epoch, 16).ok();
            let position = epoch.zip(u64::try_from(sequence).ok());
            let Some((epoch, sequence)) = position else {
                let text = "chappe_cursor has a row that is not a position";
                return Err(WrapperError::peer(text));
            };
            let epoch = Epoch(epoch);
            let stream = row.try_get(0).map_err(failed)?;
            self.positions.insert(stream, Position { epoch, sequence });
        }
        Ok(())
    }

    async fn run(mut self, mut batches: Batches, reports: Reports) -> Result<(), WrapperError> {
        // A statement that takes longer ends in the server before.
        let time = STATEMENT_TIME + Duration::from_secs(10);
        while let Some(mut batch) = batches.recv().await {
            for _ in 1..TRANSACTION_BATCHES {
                match batches.try_recv() {
                    Ok(next) => batch.append(next),
                    Err(_) => break,
                }
            }
            let late = |_| WrapperError::peer("PostgreSQL does not answer");
            let stored = timeout(time, self.store(&batch, &reports)).await;
            if !reports.send(stored.map_err(late)??) {
                break;
            }
        }
        Ok(())
    }

    /// Stores a batch in one transaction. Rows that are refused are dead letters before it is committed, because a
    /// later start continues after them.
    async fn store(&mut self, batch: &Batch, reports: &Reports) -> Result<Delivered, WrapperError> {
        for part in &batch.parts {
            self.learn(part).await?;
        }
        let mut last = BTreeMap::new();
        for part in &batch.parts {
            if let Some(element) = part.elements.last() {
                last.insert(part.stream.to_string(), element.position);
            }
        }
        let transaction = self.session.client.transaction().await.map_err(failed)?;
        for (stream, to) in &last {
            let from = self.positions.get(stream);
            move_cursor(&transaction, (&self.node, &self.name, stream), from, *to).await?;
        }
        let mut refused = Vec::new();
        for part in &batch.parts {
            let Some((_, plan)) = self.plans.get(&*part.stream) else {
                return Err(WrapperError::peer("a stream has no table"));
            };
            copy(&transaction, plan, part, &mut refused).await?;
        }
        reports.put_aside(refused).await?;
        transaction.commit().await.map_err(failed)?;
        let positions = last.clone().into_iter().collect();
        self.positions.extend(last);
        Ok(Delivered {
            positions,
            ..Delivered::default()
        })
    }

    /// Finds out how the elements of a part are written, unless that is known.
    async fn learn(&mut self, part: &Part) -> Result<(), WrapperError> {
        let known = self.plans.get(&*part.stream);
        if known.is_some_and(|(definition, _)| *definition == part.definition) {
            return Ok(());
        }
        let name = table_name(&self.settings.table, &part.stream)?;
        let others = self
            .plans
            .iter()
            .filter(|(stream, _)| **stream != *part.stream);
        for (stream, _) in others {
            if table_name(&self.settings.table, stream)? == name {
                let (one, other) = (&part.stream, stream);
                let text = format!("streams {one} and {other} would have the same table {name:?}");
                return Err(WrapperError::settings(text)
                    .with_hint("export them by files of their own, with other tables"));
            }
        }
        let client = &self.session.client;
        let schema = &part.definition.schema;
        if self.settings.create {
            let statement = table::create(&name, schema);
            client.batch_execute(&statement).await.map_err(failed)?;
        }
        let columns = table::columns(client, &name).await.map_err(|error| {
            error.with_hint(format!(
                "set create = true, or run: {}",
                table::create(&name, schema)
            ))
        })?;
        let plan = table::plan(&name, &columns, schema)?;
        let stream = part.stream.to_string();
        self.plans.insert(stream, (part.definition.clone(), plan));
        Ok(())
    }
}

/// The table of a stream.
fn table_name(pattern: &str, stream: &str) -> Result<String, WrapperError> {
    let stream = stream.replace(['.', '-'], "_");
    let name = pattern.replace(STREAM, &stream);
    match name.len() <= NAME_BYTES_MAX {
        true => Ok(name),
        false => {
            let text =
                format!("{name:?} is longer than a name of PostgreSQL, {NAME_BYTES_MAX} bytes");
            let hint = "name the table in an exporter's file of its own";
            Err(WrapperError::settings(text).with_hint(hint))
        }
    }
}

/// Moves the cursor of a stream on, if it is where it was.
async fn move_cursor(
    transaction: &Transaction<'_>,
    (node, exporter, stream): (&String, &String, &String),
    from: Option<&Position>,
    to: Position,
) -> Result<(), WrapperError> {
    let sequence = |at: &Position| i64::try_from(at.sequence).unwrap_or(i64::MAX);
    let (to_epoch, to_sequence) = (to.epoch.to_string(), sequence(&to));
    let moved = match from {
        None => {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [node, exporter, stream, &to_epoch, &to_sequence];
            transaction.execute(CURSOR_NEW, &values).await
        }
        Some(from) => {
            let (epoch, sequence) = (from.epoch.to_string(), sequence(from));
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
                node,
                exporter,
                stream,
                &to_epoch,
                &to_sequence,
                &epoch,
                &sequence,
            ];
            transaction.execute(CURSOR_MOVE, &values).await
        }
    };
    match moved.map_err(failed)? {
        1 => Ok(()),
        _ => {
            let text = format!("chappe_cursor was moved for stream {stream} by another connection");
            Err(WrapperError::peer(text))
        }
    }
}

/// Copies the elements of a part.
async fn copy(
    transaction: &Transaction<'_>,
    plan: &Plan,
    part: &Part,
    refused: &mut Vec<Refused>,
) -> Result<(), WrapperError> {
    let sink = transaction.copy_in(plan.statement.as_str()).await;
    let mut copy = Copy::new(sink.map_err(failed)?);
    let mut count = 0;
    for element in &part.elements {
        match copy.push(plan, element).await? {
            Ok(()) => count += 1,
            Err(reason) => refused.push(Refused {
                stream: part.stream.to_string(),
                position: element.position,
                reason,
            }),
        }
    }
    let taken = copy.finish().await?;
    match taken == count {
        true => Ok(()),
        false => {
            let text =
                format!("PostgreSQL took {taken} rows of {count}: a trigger or rule changes them");
            Err(WrapperError::peer(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn file(more: &str) -> ExporterFile {
        let text = format!(
            "kind = \"postgres\"\naddress = \"postgres://chappe@localhost/plant\"\n{more}\n"
        );
        ExporterFile::parse(Path::new("out.toml"), &text).unwrap()
    }

    #[test]
    fn several_streams_need_several_tables() {
        assert!(settings(&file("streams = [\"a.*\"]")).is_ok());
        assert!(settings(&file("streams = [\"a\"]\ntable = \"all\"")).is_ok());
        let error = settings(&file("streams = [\"a.*\"]\ntable = \"all\""))
            .err()
            .unwrap();
        assert_eq!(error.key, "table");
    }

    #[test]
    fn a_table_has_the_name_of_its_stream() {
        assert_eq!(table_name("{stream}", "a.b-c").unwrap(), "a_b_c");
        assert_eq!(table_name("plant_{stream}", "a").unwrap(), "plant_a");
        assert!(table_name("{stream}", &"a".repeat(64)).is_err());
    }
}
