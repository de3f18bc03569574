//! The peer SQLite: the same services in memory, their names and two of their statements in indexed
//! tables. That favours SQLite over the registry, which stores every statement and returns entire
//! entities.

use chappe_registry::Entity;
use chappe_registry::vocabulary::{MANUFACTURER, SERIAL_NUMBER};
use rusqlite::{Connection, params};

use crate::Error;

/// A database in memory.
pub(super) struct Sqlite(Connection);

/// A statement of SPARQL or of a table: predicate and object.
pub(super) type Pattern = (String, String);

fn failed() -> impl FnOnce(rusqlite::Error) -> Error {
    Error::failed("asking SQLite")
}

impl Sqlite {
    /// A database of these services.
    pub(super) fn fill(services: impl Iterator<Item = Entity>) -> Result<Self, Error> {
        let mut database = Connection::open_in_memory().map_err(failed())?;
        let tables = "create table entity (key text primary key, name text not null);
                      create table statement (subject text, predicate text, object text);";
        database.execute_batch(tables).map_err(failed())?;
        let transaction = database.transaction().map_err(failed())?;
        {
            let entity = "insert into entity values (?1, ?2)";
            let mut entity = transaction.prepare(entity).map_err(failed())?;
            let statement = "insert into statement values (?1, ?2, ?3)";
            let mut statement = transaction.prepare(statement).map_err(failed())?;
            for service in services {
                let row = params![service.key, service.name];
                entity.execute(row).map_err(failed())?;
                for triple in &service.triples {
                    let predicate = triple.predicate.as_ref();
                    if predicate == MANUFACTURER || predicate == SERIAL_NUMBER {
                        let object = triple.object.to_string();
                        let row = params![service.key, predicate.to_string(), object];
                        statement.execute(row).map_err(failed())?;
                    }
                }
            }
        }
        transaction.commit().map_err(failed())?;
        let indexes = "create index entity_name on entity (name);
                       create index by_object on statement (predicate, object, subject);
                       create index by_subject on statement (subject, predicate, object);
                       analyze;";
        database.execute_batch(indexes).map_err(failed())?;
        Ok(Self(database))
    }

    /// The names with a prefix.
    pub(super) fn search(&self, prefix: &str, wanted: usize) -> Result<(), Error> {
        let select = "select key, name from entity where name >= ?1 and name < ?2";
        let after = format!("{prefix}\u{10ffff}");
        self.count(select, &[prefix, &after], wanted)
    }

    /// The subjects that match two patterns; starts with the first.
    pub(super) fn rows(&self, [first, second]: [&Pattern; 2]) -> Result<(), Error> {
        let select = "select a.subject from statement a join statement b on a.subject = b.subject
                      where a.predicate = ?1 and a.object = ?2 and b.predicate = ?3 and b.object = ?4";
        self.count(select, &[&first.0, &first.1, &second.0, &second.1], 1)
    }

    /// Prepares and runs a query: a text query is parsed each time too.
    fn count(&self, select: &str, values: &[&str], wanted: usize) -> Result<(), Error> {
        let mut select = self.0.prepare(select).map_err(failed())?;
        let mut rows = select
            .query(rusqlite::params_from_iter(values))
            .map_err(failed())?;
        let mut found = 0;
        while let Some(row) = rows.next().map_err(failed())? {
            let subject: String = row.get(0).map_err(failed())?;
            found += usize::from(!subject.is_empty());
        }
        match found == wanted {
            true => Ok(()),
            false => Err(Error::Failed(format!(
                "SQLite found {found} of {wanted} for {values:?}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{maker, serial_number, service};
    use super::*;

    #[test]
    fn the_peer_gives_what_the_registry_gives() {
        let sqlite = Sqlite::fill((0..1_000).map(service)).expect("a database");
        sqlite.search("Service 00012", 10).expect("ten names");
        let (serial, maker) = (serial_number(123), maker(23));
        sqlite.rows([&serial, &maker]).expect("one row");
        let other = super::super::maker(24);
        assert!(sqlite.rows([&serial, &other]).is_err());
    }
}
