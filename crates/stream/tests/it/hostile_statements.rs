//! Goal: no statement reads hidden data, writes, accesses a file, or runs or grows without bound.
//! Method: a list of hostile statements, each of which must be refused or stopped with an error,
//! after which the same query must still answer; and a list of honest ones that must pass.

use std::sync::Arc;

use chappe_stream::sqlite::SqliteQuery;
use chappe_stream::*;

fn source() -> QuerySource {
    let field = |name: &str, field_type| Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    QuerySource {
        alias: "a".into(),
        schema: StreamSchema {
            fields: vec![
                field("v", FieldType::Double),
                field("t", FieldType::Text),
                field("w", FieldType::Samples),
            ],
            key: None,
        },
        value: None,
    }
}

fn output(columns: &[(&str, FieldType)]) -> StreamSchema {
    let fields = columns.iter().map(|(name, field_type)| Field {
        name: (*name).into(),
        field_type: *field_type,
        unit: None,
        observed_property: None,
        description: None,
    });
    StreamSchema {
        fields: fields.collect(),
        key: None,
    }
}

fn change() -> WindowChange {
    let arrival = |number: u64| Arrival {
        number,
        stream: "ward.a".into(),
        element: Arc::new(StreamElement {
            position: Position {
                epoch: Epoch(1),
                sequence: number + 1,
            },
            source_time: Timestamp(number as i64 * 1_000),
            receive_time: Timestamp(number as i64 * 1_000 + 5),
            key: None,
            values: vec![
                Value::Double(number as f64),
                Value::Text("x".repeat(1000)),
                Value::Samples(Samples {
                    start: Timestamp(number as i64 * 1_000),
                    period_ns: 100,
                    values: vec![0.5; 10],
                }),
            ],
            quality: Quality::Good,
            origin: None,
        }),
    };
    WindowChange {
        added: (0..100).map(arrival).collect(),
        removed: vec![],
    }
}

/// The error of a statement, or `None` if it returned rows.
fn verdict(statement: &str) -> Option<QueryError> {
    let limits = QueryLimits {
        steps: 2_000_000,
        ..QueryLimits::default()
    };
    let output = output(&[("x", FieldType::Double)]);
    let mut query = match SqliteQuery::new(&[source()], statement, &output, limits) {
        Ok(query) => query,
        // The output is not what is looked at here.
        Err(QueryError::Undeclared(_) | QueryError::Missing(_)) => return None,
        Err(error) => return Some(error),
    };
    let answer = query.evaluate(&[change()]);
    let planned = PlannedQuery::new(&[source()], statement, &output, limits);
    let mut planned = planned.expect("SQLite has prepared it");
    if *planned.plan() == QueryPlan::Compiled {
        assert_eq!(planned.evaluate(&[change()]), answer, "{statement}");
    }
    answer.err()
}

#[test]
fn hostile_statements_are_refused_or_stopped() {
    let statements = include_str!("hostile_statements.sql");
    let mut count = 0;
    for statement in statements.split("\n--\n") {
        let error = verdict(statement);
        assert!(error.is_some(), "was answered: {statement}");
        assert!(
            !matches!(error, Some(QueryError::Engine(_))),
            "{statement}: {error:?}"
        );
        count += 1;
    }
    assert!(count >= 100, "only {count} statements");
}

#[test]
fn loops_and_growth_are_stopped_by_the_limit_that_is_named() {
    let steps = "select count(*) as x from a, a b, a c, a d, a e";
    assert!(matches!(
        verdict(steps),
        Some(QueryError::Limit { limit: "steps", .. })
    ));
    let rows = "select 1.0 as x from a, a b, a c";
    assert!(matches!(
        verdict(rows),
        Some(QueryError::Limit { limit: "rows", .. })
    ));
    let length = "select length(group_concat(a.t)) as x from a, a b";
    let found = verdict(length);
    let named = matches!(
        found,
        Some(QueryError::Limit {
            limit: "length",
            ..
        })
    );
    assert!(named, "{found:?}");
}

#[test]
fn a_stopped_query_answers_again() {
    let sql = "select sum(a.v) as x from a, a b where (select count(*) from a c, a d, a e) > 0";
    let limits = QueryLimits {
        steps: 500_000,
        ..QueryLimits::default()
    };
    let out = output(&[("x", FieldType::Double)]);
    let mut query = SqliteQuery::new(&[source()], sql, &out, limits).expect("prepares");
    assert!(matches!(
        query.evaluate(&[change()]),
        Err(QueryError::Limit { limit: "steps", .. })
    ));
    // With all but two elements gone the same statement is cheap.
    let gone = WindowChange {
        added: vec![],
        removed: (0..98).collect(),
    };
    let rows = query.evaluate(&[gone]).expect("answers");
    assert_eq!(rows[0].values, [Value::Double(2.0 * (98.0 + 99.0))]);
}

#[test]
fn honest_statements_are_answered() {
    for statement in [
        "select avg(v) as x from a",
        "select sqrt(v) as x from a where t like 'x%'",
        "select s.value as x from a_samples s join a using (sequence)",
        "with m as (select max(v) as top from a) select top as x from m",
        "with m as (select 1 as one) select count(*) as x from m",
        "select count(*) as x from (select v from a limit 3)",
        "select x from (select v - lag(v) over (order by source_time) as x from a) where x > 0",
        "select round(stddev(v), 3) as x from a",
        "select case when v > 50 then 1.0 else 0.0 end as x from a order by sequence desc limit 5",
        "values (1.0)",
        "select v as x from a union select 2.0 except select 3.0",
        "select v as x from a where v in (select max(value) from a_samples group by sequence)",
        "select instr(t, 'x') + length(trim(replace(t, 'x', ' '))) as x from a",
        "select cast(strftime('%s', source_time / 1000000000, 'unixepoch') as real) as x from a",
        "select pow(v, 2) + pi() as x from a where coalesce(key, stream) = 'ward.a'",
    ] {
        assert_eq!(verdict(statement), None, "{statement}");
    }
}
