//! The wrapper: polls a table or query, and looks at once when a channel is notified.

use std::sync::Arc;
use std::time::Duration;

use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::rows::{Look, Reader, read_mark};
use super::{Database, quoted};
use crate::decode::Decoder;
use crate::{
    Batch, Condition, Delivery, Step, Wrapper, WrapperError, WrapperFile, WrapperKind,
    WrapperOpening,
};

/// Longest pause while transactions that write are waited for; reason: they mostly take some milliseconds.
const WRITERS_PAUSE: Duration = Duration::from_millis(50);

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "postgres",
    about: "new rows of a table or query of PostgreSQL",
    delivery: Delivery {
        acknowledges: "never: the database is not changed",
        resumes: "the cursor column of the last stored row",
        may_double: "no",
        may_miss: "rows that get a lower cursor than one that was committed before their transaction wrote anything, or are deleted before",
        back_pressure: "the table is read no faster than it is stored",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: Some(super::browse::browse),
};

/// The keys of a wrapper of kind `postgres`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// The database.
    #[serde(flatten)]
    pub(super) database: Database,
    /// The table or view. A row is decoded as a JSON object of its columns (docs/reference/formats.md).
    table: Option<String>,
    /// A SELECT instead of a table, without ORDER BY and LIMIT.
    query: Option<String>,
    /// The column, whose values are unique and only increase, for example `id`.
    pub(super) cursor: String,
    /// Time between two queries of the table. Default: 1000.
    #[serde(default = "poll_default")]
    #[schemars(range(min = 10, max = 3_600_000), extend("x-unit" = "milliseconds"))]
    poll_ms: u64,
    /// A NOTIFY channel: each notification also triggers a query.
    pub(super) channel: Option<String>,
    /// Whether to read a row only after all transactions have ended that had written to the database when the row was
    /// committed, because they may commit rows with lower cursors. Default: true.
    #[serde(default = "wait_default")]
    pub(super) wait_for_writers: bool,
}

fn poll_default() -> u64 {
    1_000
}

fn wait_default() -> bool {
    true
}

impl Settings {
    /// What the rows are selected from.
    pub(super) fn source(&self) -> String {
        match (&self.table, &self.query) {
            (Some(table), _) => quoted(table),
            // A comment at its end must not hide what follows.
            (None, Some(query)) => format!("({}\n)", query.trim().trim_end_matches(';')),
            (None, None) => String::new(),
        }
    }
}

fn settings(file: &WrapperFile) -> Result<(Settings, Decoder), DescriptorError> {
    let settings: Settings = file.settings()?;
    settings.database.check(file)?;
    if settings.table.is_some() == settings.query.is_some() {
        let (key, text) = match settings.query {
            Some(_) => ("query", "a file has a table or a query, not both"),
            None => ("table", "a file has a table or a query"),
        };
        let hint = "write table = \"NAME\"".to_owned();
        return Err(file.fault(key, text.to_owned(), Some(hint)));
    }
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
    let target = settings.database.target(file)?;
    let reader = Reader::new(settings, target, decoder, cursor);
    Ok(Box::new(PostgresWrapper {
        stage: Stage::Idle(Some(Box::new(reader))),
        poll,
        look_at: None,
        heard: None,
        condition: opening.condition,
    }))
}

struct PostgresWrapper {
    stage: Stage,
    poll: Duration,
    /// When to look at the table again.
    look_at: Option<Instant>,
    /// Signalled by notifications.
    heard: Option<Arc<Notify>>,
    condition: Condition,
}

/// The task that has the reader: a look goes on when its future is dropped.
enum Stage {
    /// This one; `None` after a look that failed.
    Idle(Option<Box<Reader>>),
    Reading(JoinHandle<(Box<Reader>, Result<Look, WrapperError>)>),
}

impl Drop for PostgresWrapper {
    fn drop(&mut self) {
        if let Stage::Reading(reading) = &self.stage {
            reading.abort();
        }
    }
}

impl Wrapper for PostgresWrapper {
    fn repeats(&self) -> bool {
        true
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            loop {
                self.wait().await;
                let look = self.look().await?;
                if !look.is_empty() {
                    self.condition.runs();
                    return Ok(look.batch);
                }
                let reason = look.waits.as_deref();
                self.condition
                    .waits(reason.unwrap_or("the table has no new rows"));
                let pause = match look.is_short {
                    true => self.poll.min(WRITERS_PAUSE),
                    false => self.poll,
                };
                self.look_at = Some(Instant::now() + pause);
            }
        })
    }
}

impl PostgresWrapper {
    /// Waits for the time of the next look, or for a notification.
    async fn wait(&mut self) {
        let Some(look_at) = self.look_at else { return };
        let heard = async {
            match &self.heard {
                Some(heard) => heard.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep_until(look_at) => {}
            () = heard => {}
        }
        self.look_at = None;
    }

    async fn look(&mut self) -> Result<Look, WrapperError> {
        let failed = || WrapperError::peer("reading the table was interrupted");
        if let Stage::Idle(reader) = &mut self.stage {
            let mut reader = reader.take().ok_or_else(failed)?;
            self.stage = Stage::Reading(tokio::spawn(async move {
                let look = reader.look().await;
                (reader, look)
            }));
        }
        let Stage::Reading(reading) = &mut self.stage else {
            return Err(failed());
        };
        let (reader, look) = reading.await.map_err(|_| failed())?;
        self.heard = reader.heard();
        self.stage = Stage::Idle(Some(reader));
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;

    const TEXT: &str = "kind = \"postgres\"\naddress = \"postgres://chappe@localhost/plant\"\n\
        table = \"readings\"\ncursor = \"id\"\n[[stream]]\nname = \"a\"\n\
        fields = [{ name = \"n\", type = \"integer\" }]\n";

    #[test]
    fn faults_have_a_key_and_a_hint() {
        assert!(settings(&wrapper_file(TEXT)).is_ok());
        let encrypted = TEXT.replace("localhost", "db.example");
        let with = encrypted.replace("cursor =", "authorities = \"ca.pem\"\ncursor =");
        assert!(settings(&wrapper_file(&with)).is_ok());
        let cases = [
            ("chappe@", "chappe:secret@", "address"),
            ("postgres://", "mysql://", "address"),
            ("localhost", "db.example", "address"),
            ("table = \"readings\"\n", "", "table"),
            ("table =", "query = \"SELECT 1\"\ntable =", "query"),
            ("cursor =", "poll_ms = 1\ncursor =", "poll_ms"),
            ("cursor = \"id\"\n", "", "cursor"),
        ];
        for (from, to, key) in cases {
            let file = wrapper_file(&TEXT.replace(from, to));
            let error = settings(&file).err().unwrap();
            assert!(
                error.key == key || error.to_string().contains(key),
                "{to}: {error}"
            );
        }
    }

    #[test]
    fn the_files_of_the_documentation_are_valid() {
        let examples = crate::tests::examples("postgres");
        let files: Vec<&str> = examples.iter().map(String::as_str).collect();
        let [wrapper, exporter] = files[..] else {
            panic!("{examples:?}");
        };
        assert!(settings(&wrapper_file(wrapper)).is_ok());
        let exporter = crate::ExporterFile::parse("archive.toml".as_ref(), exporter);
        exporter.unwrap().kind().unwrap();
    }

    #[test]
    fn a_query_with_a_comment_at_its_end_is_whole() {
        let text = TEXT.replace("table = \"readings\"", "query = \"SELECT 1 AS id -- all;\"");
        let (settings, _) = settings(&wrapper_file(&text)).unwrap();
        assert_eq!(settings.source(), "(SELECT 1 AS id -- all\n)");
    }
}
