//! The columns that the statements of a descriptor read, checked against fields that are known before any stream is
//! bound.
//!
//! Each statement is prepared as a running sensor prepares it, without elements.

use serde::Deserialize;
use toml::Spanned;

use super::{Descriptor, DescriptorError, DescriptorFault, Place, Source, nearest};
use crate::sensor::{key_column, planned};
use crate::{QueryError, QueryLimits, QuerySource, RESERVED_COLUMNS, StreamSchema, column_name};

/// Most columns that a hint lists; reason: a person reads them.
const LISTED_MAX: usize = 12;

/// The statements of a file with their places. Other keys are passed over: the file is a valid descriptor.
#[derive(Deserialize)]
struct Texts {
    sql: Option<Spanned<String>>,
    per: Option<Spanned<String>>,
    #[serde(default)]
    source: Vec<Texts>,
    #[serde(default)]
    statement: Vec<Texts>,
    output: Option<Box<Texts>>,
}

impl Descriptor {
    /// Prepares each statement over the fields that its sources will have, and once more for each further choice of a
    /// source. `fields` returns those of a choice, by the source and the choice's index; a statement with a source whose
    /// fields are unknown is not checked. `place` is the TOML from which the descriptor was read.
    ///
    /// # Errors
    /// The first column that does not exist, with its line and the nearest one that does; or a statement whose result
    /// does not fit the output.
    pub fn check_columns(
        &self,
        place: Place<'_>,
        fields: impl Fn(&Source, usize) -> Option<StreamSchema>,
    ) -> Result<(), DescriptorError> {
        let texts: Texts = toml::from_str(place.text).map_err(|error| place.toml(&error))?;
        for index in 0..self.statements.len() {
            let one = self.only(index);
            let location = Location::new(place, &texts, index);
            let mut rounds = vec![vec![0; one.sources.len()]];
            for (at, source) in one.sources.iter().enumerate() {
                for choice in 1..=source.fallback.len() {
                    let mut round = rounds[0].clone();
                    round[at] = choice;
                    rounds.push(round);
                }
            }
            for round in rounds {
                let chosen = one.sources.iter().zip(round);
                let known = chosen.map(|(source, choice)| fields(source, choice));
                if let Some(known) = known.collect::<Option<Vec<_>>>() {
                    one.check_over(&location, known)?;
                }
            }
        }
        Ok(())
    }

    /// Prepares the only statement over sources with these fields.
    fn check_over(
        &self,
        location: &Location<'_>,
        fields: Vec<StreamSchema>,
    ) -> Result<(), DescriptorError> {
        for (index, (source, schema)) in self.sources.iter().zip(&fields).enumerate() {
            if let Some(per) = &source.per
                && let Err(why) = key_column(&per.column, schema)
            {
                return Err(location.of_per(index, &per.column, why, schema));
            }
        }
        let (sql, tables) = self.evaluated();
        let tables = tables.into_iter().zip(fields);
        let sources: Vec<QuerySource> = tables
            .map(|(alias, schema)| QuerySource {
                alias,
                schema,
                value: None,
            })
            .collect();
        planned(&self.output, &sources, &sql, QueryLimits::default())
            .map(drop)
            .map_err(|error| location.of(&error, self, &sql, &sources))
    }

    /// What to write instead of a column that the statement cannot read.
    fn remedy(&self, column: &str, sources: &[QuerySource]) -> Option<String> {
        let fields = sources.iter().flat_map(|source| &source.schema.fields);
        let fields: Vec<String> = fields.map(|field| column_name(&field.name)).collect();
        if !fields.iter().any(|field| field == column) {
            let known = fields.iter().map(String::as_str);
            let known: Vec<&str> = known.chain(RESERVED_COLUMNS).collect();
            return hint(column, &known);
        }
        let mut own = self.sources.iter().filter(|source| source.sql.is_some());
        let of = |source: &QuerySource| {
            let mut fields = source.schema.fields.iter();
            fields.any(|field| column_name(&field.name) == column)
        };
        match own.next() {
            Some(source) => Some(format!("the `sql` of {} must select it", source.table())),
            None => {
                let source = sources.iter().find(|source| of(source))?;
                Some(format!("it is a column of {}", source.alias))
            }
        }
    }
}

/// Where a statement and those of its sources are in a file.
struct Location<'t> {
    place: Place<'t>,
    /// The key of its table, which ends in a dot unless it is that of the file.
    key: String,
    sql: Option<&'t Spanned<String>>,
    sources: &'t [Texts],
}

impl<'t> Location<'t> {
    fn new(place: Place<'t>, texts: &'t Texts, index: usize) -> Self {
        let several = texts.statement.get(index);
        let sql = match several {
            Some(one) => one.sql.as_ref(),
            None => texts.output.as_ref().and_then(|output| output.sql.as_ref()),
        };
        Self {
            place,
            key: several.map_or(String::new(), |_| format!("statement[{index}].")),
            sql,
            sources: &several.unwrap_or(texts).source,
        }
    }

    /// The statement, then those of its sources, each with its key.
    fn texts(&self) -> Vec<(String, &'t Spanned<String>)> {
        let own = match self.key.is_empty() {
            true => "output.sql".to_owned(),
            false => format!("{}sql", self.key),
        };
        let of_sources = self.sources.iter().enumerate();
        let of_sources = of_sources.filter_map(|(index, source)| {
            Some((self.source_key(index, "sql"), source.sql.as_ref()?))
        });
        let own = self.sql.map(|sql| (own, sql));
        own.into_iter().chain(of_sources).collect()
    }

    fn source_key(&self, index: usize, name: &str) -> String {
        format!("{}source[{index}].{name}", self.key)
    }

    /// The fault of the column that `per` of a source names.
    fn of_per(
        &self,
        index: usize,
        column: &str,
        why: String,
        schema: &StreamSchema,
    ) -> DescriptorError {
        let per = self.sources.get(index).and_then(|it| it.per.as_ref());
        let at = per.map_or(0, |per| per.span().start);
        let known = schema.fields.iter().map(|field| &*field.name);
        let known: Vec<&str> = known.chain(["key"]).collect();
        let key = self.source_key(index, "per");
        let fault = DescriptorFault::Value;
        self.place.error(fault, at, key, why, hint(column, &known))
    }

    /// The fault that preparing `sql` found.
    fn of(
        &self,
        error: &QueryError,
        one: &Descriptor,
        sql: &str,
        sources: &[QuerySource],
    ) -> DescriptorError {
        let mut texts = self.texts();
        let mut found = None;
        let mut remedy = None;
        if let QueryError::Statement { message, offset } = error
            && let Some(missing) = message.strip_prefix("no such column: ")
        {
            // The statement of a source precedes that of the sensor in the one that is evaluated.
            let own = one.statements.first().map_or(0, |it| it.sql.trim().len());
            if offset.is_some_and(|at| at + own < sql.len()) && texts.len() > 1 {
                texts.rotate_left(1);
            }
            let column = missing.rsplit('.').next().unwrap_or(missing);
            let mut places = texts.iter().enumerate();
            found = places.find_map(|(index, (_, text))| {
                let span = text.span();
                let literal = self.place.text.get(span.clone())?;
                let at = word(literal, missing).or_else(|| word(literal, column))?;
                Some((index, span.start + at))
            });
            remedy = one.remedy(column, sources);
        } else if let QueryError::Undeclared(column) = error {
            let fields = one.output.schema.fields.iter();
            let fields: Vec<&str> = fields.map(|field| &*field.name).collect();
            remedy = hint(column, &fields);
        }
        let start = || texts.first().map_or(0, |(_, text)| text.span().start);
        let (index, at) = found.unwrap_or_else(|| (0, start()));
        let key = texts.get(index).map(|(key, _)| key.clone());
        let fault = DescriptorFault::Sql;
        let key = key.unwrap_or_default();
        self.place.error(fault, at, key, error.to_string(), remedy)
    }
}

/// The nearest of the known columns, or all.
fn hint(column: &str, known: &[&str]) -> Option<String> {
    if let Some(near) = nearest(column, known) {
        return Some(format!("did you mean `{near}`?"));
    }
    let listed = known.iter().take(LISTED_MAX).copied();
    let mut listed = listed.collect::<Vec<_>>().join(", ");
    if known.len() > LISTED_MAX {
        listed.push_str(", …");
    }
    (!known.is_empty()).then(|| format!("the columns are {listed}"))
}

/// Where a name occurs in a statement as a whole word.
fn word(text: &str, name: &str) -> Option<usize> {
    let is_part = |c: char| c == '_' || c.is_alphanumeric();
    let mut places = text.match_indices(name);
    let found = places.find(|(at, _)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    });
    found.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, FieldType};

    fn schema(names: &[&str]) -> StreamSchema {
        let fields = names.iter().map(|name| Field {
            name: (*name).to_owned(),
            field_type: FieldType::Double,
            unit: None,
            observed_property: None,
            description: None,
        });
        StreamSchema {
            fields: fields.collect(),
            key: None,
        }
    }

    /// Checks a descriptor over a stream `climate`; nothing is known of others.
    fn check(text: &str) -> Result<(), DescriptorError> {
        let file = "s.toml";
        let descriptor = Descriptor::parse(file, text).unwrap();
        descriptor.check_columns(Place { file, text }, |source, choice| {
            let stream = descriptor.stream_of(source.choice(choice))?;
            (stream == "climate").then(|| schema(&["celsius", "humidity"]))
        })
    }

    const ONE: &str = r#"name = "s"
[[source]]
alias = "t"
stream = "climate"
window = "10s"
[output]
sql = """
select avg(celsius) as mean
from t
where humidity > 10
"""
[[output.field]]
name = "mean"
type = "double"
"#;

    #[test]
    fn an_unknown_column_is_named_with_its_line_and_the_nearest_one() {
        assert_eq!(check(ONE), Ok(()));
        for (from, to, line, key, message, hint) in [
            (
                "avg(celsius)",
                "avg(t.celcius)",
                8,
                "output.sql",
                "no such column: t.celcius",
                "did you mean `celsius`?",
            ),
            (
                "where humidity",
                "where humidty",
                10,
                "output.sql",
                "no such column: humidty",
                "did you mean `humidity`?",
            ),
            (
                "where humidity",
                "where pressure",
                10,
                "output.sql",
                "no such column: pressure",
                "the columns are celsius, humidity, source_time, receive_time, key, stream, sequence, quality",
            ),
            (
                "window = \"10s\"",
                "per = \"celsus\"",
                5,
                "source[0].per",
                "it has no field \"celsus\", which `per` names",
                "did you mean `celsius`?",
            ),
            (
                "window = \"10s\"",
                "sql = \"select celsus from wrapper\"",
                5,
                "source[0].sql",
                "no such column: celsus",
                "did you mean `celsius`?",
            ),
            (
                "window = \"10s\"",
                "sql = \"select celsius from wrapper where humidity > 1\"",
                10,
                "output.sql",
                "no such column: humidity",
                "the `sql` of t must select it",
            ),
            (
                "as mean",
                "as men",
                7,
                "output.sql",
                "the query has a column \"men\", which the output does not declare",
                "did you mean `mean`?",
            ),
        ] {
            let error = check(&ONE.replace(from, to)).unwrap_err();
            let found = (error.line, &*error.key, &*error.message);
            assert_eq!(found, (line, key, message), "{to}");
            assert_eq!(error.hint.as_deref(), Some(hint), "{to}");
        }
    }

    #[test]
    fn each_choice_is_checked_and_sources_without_known_fields_are_not() {
        let unknown = ONE
            .replace("\"climate\"", "\"other\"")
            .replace("celsius", "x");
        assert_eq!(check(&unknown), Ok(()));
        let fallback = "\"other\"\nfallback = [{ stream = \"climate\" }]";
        let second = unknown.replace("\"other\"", fallback);
        let error = check(&second).unwrap_err();
        assert_eq!((error.line, &*error.message), (9, "no such column: x"));
        let several = "name = \"s\"\n[[statement]]\nname = \"a\"\nsql = \"select celsius as v from t\"\n\
            source = [{ alias = \"t\", stream = \"climate\" }]\n[[statement]]\nname = \"b\"\n\
            sql = \"select celsus as v from t\"\nsource = [{ alias = \"t\", stream = \"climate\" }]\n\
            [output]\nfield = [{ name = \"v\", type = \"double\" }]\n";
        let error = check(several).unwrap_err();
        assert_eq!((error.line, &*error.key), (8, "statement[1].sql"));
    }
}
