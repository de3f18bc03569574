//! One connection to PostgreSQL.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_postgres::{Incident, Target, describe};
use tokio::sync::Notify;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::error::OpenError;
use crate::schema;

/// Time for an answer. A statement ends in the server before.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(45);

/// The reason why a statement has no result.
pub(crate) enum Failure {
    /// The connection is lost; a change may have been made or not.
    Lost(String),
    /// PostgreSQL refused the statement; nothing was changed.
    Refused(String),
}

/// A connection with its prepared statements.
pub(crate) struct Session {
    client: Client,
    append: Statement,
    records: Statement,
    head: Statement,
    /// Signalled by notifications of other nodes, and when the connection ends.
    pub(crate) arrived: Arc<Notify>,
    /// The reason for its end.
    ended: Arc<Mutex<Option<String>>>,
}

impl Session {
    /// Connects, and makes the tables if there are none.
    pub(crate) async fn open(target: &Target) -> Result<Self, OpenError> {
        let failed = |error: tokio_postgres::Error| OpenError::Statement(describe(&error));
        let arrived = Arc::<Notify>::default();
        let ended = Arc::<Mutex<Option<String>>>::default();
        let (of_arrived, of_ended) = (Arc::clone(&arrived), Arc::clone(&ended));
        let connected = target.connect(move |incident| match incident {
            Incident::Notified(channel) if channel == schema::CHANNEL => of_arrived.notify_one(),
            Incident::Notified(_) => {}
            Incident::Ended(reason) => {
                *of_ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
                of_arrived.notify_one();
            }
        });
        let client = connected.await?;
        client
            .batch_execute(schema::SESSION)
            .await
            .map_err(failed)?;
        let exists = client
            .query_one(schema::EXISTS, &[])
            .await
            .map_err(failed)?;
        if !exists.try_get::<_, bool>(0).map_err(failed)? {
            client.batch_execute(schema::CREATE).await.map_err(failed)?;
        }
        let version = client.query_one(schema::READ_VERSION, &[]).await;
        let found: i32 = version.map_err(failed)?.try_get(0).map_err(failed)?;
        if found != schema::VERSION {
            let known = schema::VERSION;
            return Err(OpenError::Version { found, known });
        }
        Ok(Self {
            append: client.prepare(schema::APPEND).await.map_err(failed)?,
            records: client.prepare(schema::RECORDS).await.map_err(failed)?,
            head: client.prepare(schema::HEAD).await.map_err(failed)?,
            client,
            arrived,
            ended,
        })
    }

    /// The reason why the connection has ended, if it has.
    pub(crate) fn ended(&self) -> Option<String> {
        let ended = self.ended.lock();
        ended.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn answer<T>(
        &self,
        question: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(ANSWER_TIMEOUT, question).await {
            Ok(Ok(answer)) => Ok(answer),
            // A server that shuts down ends sessions with an error of class 57.
            Ok(Err(error)) => match error.as_db_error() {
                Some(db) if !db.code().code().starts_with("57P") => {
                    Err(Failure::Refused(db.message().to_owned()))
                }
                _ => Err(Failure::Lost(describe(&error))),
            },
            Err(_) => Err(Failure::Lost("PostgreSQL does not answer".to_owned())),
        }
    }

    fn row(row: Result<Row, Failure>) -> Result<i64, Failure> {
        let value = row?.try_get::<_, i64>(0);
        value.map_err(|error| Failure::Refused(describe(&error)))
    }

    /// Appends after `expected`: the last position, or `None` if another writer was first.
    pub(crate) async fn append(
        &self,
        writer: &str,
        fence: i64,
        number: i64,
        expected: u64,
        records: &[&[u8]],
    ) -> Result<Option<u64>, Failure> {
        let expected = i64::try_from(expected).unwrap_or(i64::MAX);
        let values: [&(dyn ToSql + Sync); 5] = [&writer, &fence, &number, &expected, &records];
        let row = self
            .answer(self.client.query_one(&self.append, &values))
            .await;
        let last = Self::row(row)?;
        Ok(u64::try_from(last).ok())
    }

    /// The last position, and the start of the newest snapshot.
    pub(crate) async fn head(&self) -> Result<(u64, u64), Failure> {
        let row = self.answer(self.client.query_one(&self.head, &[])).await?;
        let number = |at| {
            let value = row.try_get::<_, i64>(at);
            value.map(|value| u64::try_from(value).unwrap_or(0))
        };
        let head = number(0).and_then(|last| Ok((last, number(1)?)));
        head.map_err(|error| Failure::Refused(describe(&error)))
    }

    /// Some records from a position on.
    pub(crate) async fn records(&self, from: u64) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let rows = self
            .answer(self.client.query(&self.records, &[&from]))
            .await?;
        let records = rows.iter().map(|row| {
            let position: i64 = row.try_get(0)?;
            Ok((u64::try_from(position).unwrap_or(0), row.try_get(1)?))
        });
        let records: Result<_, tokio_postgres::Error> = records.collect();
        records.map_err(|error| Failure::Refused(describe(&error)))
    }

    /// Makes the writer known, and fences what it sent before: the fence, and the number of
    /// its last transaction.
    pub(crate) async fn enter(&self, writer: &str) -> Result<(i64, i64), Failure> {
        self.answer(self.client.execute(schema::ENTER, &[&writer]))
            .await?;
        let row = self
            .answer(self.client.query_one(schema::FENCE, &[&writer]))
            .await?;
        let entered = row
            .try_get(0)
            .and_then(|fence| Ok((fence, row.try_get(1)?)));
        entered.map_err(|error| Failure::Refused(describe(&error)))
    }

    /// Whether this session now writes a snapshot.
    pub(crate) async fn lock(&self) -> Result<bool, Failure> {
        let lock = "SELECT pg_try_advisory_lock($1)";
        let row = self
            .answer(self.client.query_one(lock, &[&schema::SNAPSHOT_LOCK]))
            .await?;
        let locked = row.try_get(0);
        locked.map_err(|error| Failure::Refused(describe(&error)))
    }

    pub(crate) async fn unlock(&self) -> Result<(), Failure> {
        let unlock = "SELECT pg_advisory_unlock($1)";
        self.answer(self.client.query_one(unlock, &[&schema::SNAPSHOT_LOCK]))
            .await
            .map(|_| ())
    }

    pub(crate) async fn set_snapshot(&self, position: u64) -> Result<(), Failure> {
        let position = i64::try_from(position).unwrap_or(i64::MAX);
        self.answer(self.client.execute(schema::SNAPSHOT, &[&position]))
            .await
            .map(|_| ())
    }

    /// Removes some old records; whether there may be more.
    pub(crate) async fn trim(&self) -> Result<bool, Failure> {
        let removed = self.answer(self.client.execute(schema::TRIM, &[])).await?;
        Ok(removed > 0)
    }
}
