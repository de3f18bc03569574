//! Looks at the table: which rows can be read, and the rows as JSON.
//!
//! A row is numbered before it is committed, so that a transaction may commit lower cursors than others before it.
//! Therefore a look first notes the highest cursor and the transactions that have written to the database and
//! still run. Once these have ended, all rows up to that cursor are visible that ever will be.

use std::sync::Arc;

use chappe_postgres::Target;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::read::Settings;
use super::{Session, failed, quoted};
use crate::clock::now;
use crate::decode::Decoder;
use crate::{BATCH_BYTES_MAX, Batch, MARK_BYTES_MAX, Mark, WrapperError};

/// The version of a mark.
const FORMAT: u8 = 1;
/// Rows of one look.
const ROWS_MAX: i64 = 1_000;
/// Bytes of JSON after which a look has no further row.
const LOOK_BYTES: usize = BATCH_BYTES_MAX / 4;
/// Longest row as JSON; reason: a longer message is not decoded.
const ROW_BYTES_MAX: usize = 1 << 20;
/// Characters that are kept of a longer one.
const BEGINNING: usize = 16 << 10;
/// Longest cursor in bytes; reason: a mark has it.
const CURSOR_BYTES_MAX: usize = MARK_BYTES_MAX - 16;

/// One look at the table.
#[derive(Default)]
pub(super) struct Look {
    pub(super) batch: Batch,
    has_rows: bool,
    /// Why there are no rows, if it is not that none is new.
    pub(super) waits: Option<String>,
    /// Whether that takes only as long as transactions that run.
    pub(super) is_short: bool,
}

impl Look {
    pub(super) fn is_empty(&self) -> bool {
        !self.has_rows
    }
}

/// The value of the cursor column as the server writes it. Its field is the format of the mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor(String);

impl Cursor {
    fn mark(&self) -> Mark {
        let mut bytes = vec![FORMAT];
        // A text always encodes.
        bytes.extend(postcard::to_allocvec(self).unwrap_or_default());
        Mark::new(bytes).unwrap_or_default()
    }
}

/// The cursor of a mark.
pub(super) fn read_mark(mark: &Mark) -> Result<Cursor, WrapperError> {
    let cursor = match mark.bytes().split_first() {
        Some((&FORMAT, bytes)) => postcard::from_bytes(bytes).ok(),
        _ => None,
    };
    cursor.ok_or_else(|| WrapperError::unreadable_mark(mark, FORMAT, "a table"))
}

/// The rows up to a cursor are complete once these transactions have ended.
struct Horizon {
    cursor: String,
    writers: Vec<String>,
}

/// Reads rows.
pub(super) struct Reader {
    settings: Settings,
    target: Target,
    decoder: Decoder,
    cursor: Option<Cursor>,
    session: Option<Session>,
    /// The one that is waited for.
    pending: Option<Horizon>,
    /// The last cursor up to which rows are complete.
    complete: Option<String>,
}

impl Reader {
    pub(super) fn new(
        settings: Settings,
        target: Target,
        decoder: Decoder,
        cursor: Option<Cursor>,
    ) -> Self {
        Self {
            settings,
            target,
            decoder,
            cursor,
            session: None,
            pending: None,
            complete: None,
        }
    }

    /// Signalled by notifications.
    pub(super) fn heard(&self) -> Option<Arc<Notify>> {
        self.session.as_ref().map(|session| session.heard.clone())
    }

    /// The next rows.
    pub(super) async fn look(&mut self) -> Result<Look, WrapperError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.connect().await?,
        };
        let look = self.look_with(&session).await;
        self.session = Some(session);
        look
    }

    async fn connect(&self) -> Result<Session, WrapperError> {
        let schema = self.settings.database.schema.as_deref();
        let session = Session::open(&self.target, schema, true).await?;
        if let Some(channel) = &self.settings.channel {
            let listen = format!("LISTEN {}", quoted(channel));
            session
                .client
                .batch_execute(&listen)
                .await
                .map_err(failed)?;
        }
        Ok(session)
    }

    async fn look_with(&mut self, session: &Session) -> Result<Look, WrapperError> {
        // Each look, because columns may have been added.
        let source = self.settings.source();
        let described = format!("SELECT * FROM {source} AS peer LIMIT 0");
        let described = session.client.prepare(&described).await.map_err(failed)?;
        let columns: Vec<(String, Type)> = described
            .columns()
            .iter()
            .map(|column| (column.name().to_owned(), column.type_().clone()))
            .collect();
        let name = &self.settings.cursor.clone();
        let of_cursor = columns.iter().find(|(column, _)| column == name);
        let Some((_, cursor_type)) = of_cursor else {
            let text = format!("the rows have no column {name:?}");
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            let hint = format!("set `cursor` to one of {}", names.join(", "));
            return Err(WrapperError::settings(text).with_hint(hint));
        };
        let limit = match self.settings.wait_for_writers {
            false => None,
            true => {
                self.advance_horizon(session, &source).await?;
                match self.complete.clone() {
                    Some(complete) => Some(complete),
                    None => return Ok(self.nothing()),
                }
            }
        };
        let statement = Statement {
            source: &source,
            cursor: name,
            cursor_type,
            columns: &columns,
            is_after: self.cursor.is_some(),
            is_limited: limit.is_some(),
        };
        let after = self.cursor.as_ref().map(|cursor| cursor.0.as_str());
        let bounds: Vec<&str> = after.into_iter().chain(limit.as_deref()).collect();
        let bounds = bounds
            .iter()
            .map(|bound| bound as &(dyn tokio_postgres::types::ToSql + Sync));
        let bounds: Vec<_> = bounds.collect();
        let rows = session.client.query(&statement.text(), &bounds).await;
        let rows = rows.map_err(failed)?;
        let mut look = Look::default();
        for row in &rows {
            let cursor: &str = row.try_get(0).map_err(failed)?;
            if let Some(reason) = unusable(cursor) {
                look.waits = Some(reason.to_owned());
                break;
            }
            self.add(row, &mut look.batch)?;
            look.has_rows = true;
            self.cursor = Some(Cursor(cursor.to_owned()));
        }
        if !look.has_rows && look.waits.is_none() {
            return Ok(self.nothing());
        }
        look.batch.mark = self.cursor.as_ref().map(Cursor::mark).unwrap_or_default();
        Ok(look)
    }

    /// A look without rows, with the reason.
    fn nothing(&self) -> Look {
        let waits = self.pending.as_ref().map(|pending| {
            let count = pending.writers.len();
            format!(
                "{count} transactions that write are waited for: they may commit rows with lower cursors"
            )
        });
        Look {
            is_short: waits.is_some(),
            waits,
            ..Look::default()
        }
    }

    fn add(&mut self, row: &tokio_postgres::Row, batch: &mut Batch) -> Result<(), WrapperError> {
        let text: &str = row.try_get(1).map_err(failed)?;
        let bytes: i64 = row.try_get(2).map_err(failed)?;
        if usize::try_from(bytes).is_ok_and(|bytes| bytes <= ROW_BYTES_MAX) {
            self.decoder.message(text.as_bytes(), now(), batch);
        } else {
            let reason = format!("the row has {bytes} bytes as JSON; {ROW_BYTES_MAX} can be read");
            self.decoder.refuse(text.as_bytes(), b"", &reason, batch);
        }
        Ok(())
    }

    /// Finds out up to which cursor no row will come any more.
    async fn advance_horizon(
        &mut self,
        session: &Session,
        source: &str,
    ) -> Result<(), WrapperError> {
        let cursor = quoted(&self.settings.cursor);
        // The locks are read after the snapshot was taken: a transaction that is not among them has ended, and what it
        // wrote is visible to the next statement. Own locks are those of reading.
        let statement = format!(
            "SELECT (SELECT peer.{cursor}::text FROM {source} AS peer WHERE peer.{cursor} IS NOT NULL \
                     ORDER BY peer.{cursor} DESC LIMIT 1), \
                    ARRAY(SELECT DISTINCT locks.virtualtransaction FROM pg_catalog.pg_locks AS locks \
                     WHERE locks.locktype = 'relation' AND locks.granted AND locks.relation >= 16384 \
                       AND locks.database = (SELECT oid FROM pg_catalog.pg_database \
                                             WHERE datname = pg_catalog.current_database()) \
                       AND locks.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', \
                                          'ExclusiveLock', 'AccessExclusiveLock'))"
        );
        let row = session.client.query_one(&statement, &[]).await;
        let row = row.map_err(failed)?;
        let highest: Option<String> = row.try_get(0).map_err(failed)?;
        let running: Vec<String> = row.try_get(1).map_err(failed)?;
        if let Some(pending) = &mut self.pending {
            pending.writers.retain(|one| running.contains(one));
            if !pending.writers.is_empty() {
                return Ok(());
            }
        }
        if let Some(reached) = self.pending.take() {
            self.complete = Some(reached.cursor);
        }
        let Some(cursor) = highest else {
            return Ok(());
        };
        match running.is_empty() {
            true => self.complete = Some(cursor),
            false => {
                self.pending = Some(Horizon {
                    cursor,
                    writers: running,
                });
            }
        }
        Ok(())
    }
}

/// Why a row with this cursor, and those after it, cannot be read.
fn unusable(cursor: &str) -> Option<&'static str> {
    match cursor {
        "NaN" | "Infinity" | "infinity" => {
            Some("the next row has a cursor above all others: no row after it would ever be read")
        }
        _ if cursor.len() > CURSOR_BYTES_MAX => Some("the next row has a cursor that is too long"),
        _ => None,
    }
}

/// The SELECT of the next rows: cursor, JSON or its beginning, and the bytes of the JSON.
struct Statement<'a> {
    source: &'a str,
    cursor: &'a str,
    cursor_type: &'a Type,
    columns: &'a [(String, Type)],
    /// Whether the first parameter is the cursor of the last row that was read.
    is_after: bool,
    /// Whether the last parameter is the cursor of the last row to read.
    is_limited: bool,
}

impl Statement<'_> {
    fn text(&self) -> String {
        let cursor = format!("peer.{}", quoted(self.cursor));
        let kind = &self.cursor_type;
        let kind = format!("{}.{}", quoted(kind.schema()), quoted(kind.name()));
        let mut conditions = vec![format!("{cursor} IS NOT NULL")];
        if self.is_after {
            conditions.push(format!("{cursor} > $1::text::{kind}"));
        }
        if self.is_limited {
            let number = if self.is_after { 2 } else { 1 };
            conditions.push(format!("{cursor} <= ${number}::text::{kind}"));
        }
        let columns = self.columns.iter().map(|(name, kind)| selected(name, kind));
        let columns: Vec<String> = columns.collect();
        format!(
            "SELECT c, CASE WHEN n <= {ROW_BYTES_MAX} THEN j ELSE left(j, {BEGINNING}) END, n FROM ( \
               SELECT k, c, j, n, sum(least(n, {ROW_BYTES_MAX})) OVER (ORDER BY k ROWS UNBOUNDED PRECEDING) AS total \
               FROM (SELECT k, c, j, octet_length(j)::bigint AS n FROM ( \
                 SELECT {cursor} AS k, {cursor}::text AS c, \
                   (SELECT row_to_json(picked)::text FROM (SELECT {columns}) AS picked) AS j \
                 FROM {source} AS peer WHERE {conditions} ORDER BY {cursor} LIMIT {ROWS_MAX}) AS found) AS counted \
             ) AS bounded WHERE total - least(n, {ROW_BYTES_MAX}) < {LOOK_BYTES} ORDER BY k",
            columns = columns.join(", "),
            source = self.source,
            conditions = conditions.join(" AND "),
        )
    }
}

/// A column as it goes into the JSON of its row: bytes as base64, and decimal numbers as texts, because a number of
/// JSON is read as a double.
fn selected(name: &str, kind: &Type) -> String {
    let column = format!("peer.{}", quoted(name));
    let name = quoted(name);
    match *kind {
        Type::BYTEA => format!("replace(encode({column}, 'base64'), E'\\n', '') AS {name}"),
        Type::NUMERIC => format!("{column}::text AS {name}"),
        _ => format!("{column} AS {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_any_cursor() {
        for text in [
            "",
            "17",
            "2026-01-01 00:00:00.000001+00",
            &"x".repeat(CURSOR_BYTES_MAX),
        ] {
            let cursor = Cursor(text.to_owned());
            assert_eq!(read_mark(&cursor.mark()).unwrap(), cursor);
        }
        assert!(read_mark(&Mark::new(vec![FORMAT, 9, 9]).unwrap()).is_err());
        assert!(read_mark(&Mark::new(vec![9]).unwrap()).is_err());
    }

    #[test]
    fn names_are_quoted_and_types_are_kept_exact() {
        let columns = [
            ("a\"b".to_owned(), Type::INT8),
            ("n".to_owned(), Type::NUMERIC),
            ("raw".to_owned(), Type::BYTEA),
        ];
        let statement = Statement {
            source: "\"t\"",
            cursor: "a\"b",
            cursor_type: &Type::INT8,
            columns: &columns,
            is_after: true,
            is_limited: true,
        };
        let text = statement.text();
        for part in [
            "peer.\"a\"\"b\" > $1::text::\"pg_catalog\".\"int8\"",
            "peer.\"a\"\"b\" <= $2::text::\"pg_catalog\".\"int8\"",
            "peer.\"n\"::text AS \"n\"",
            "replace(encode(peer.\"raw\", 'base64'), E'\\n', '') AS \"raw\"",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_cursor_above_all_others_is_not_read() {
        assert!(unusable("infinity").is_some() && unusable("NaN").is_some());
        assert!(unusable("-infinity").is_none() && unusable("5").is_none());
    }
}
