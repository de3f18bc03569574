//! Goal: a statement that accumulates without end is stopped at the bound of SQLite's heap with an
//! error that names it, and the next evaluation has the memory again.
//! Method: a statement that holds many separate large texts, alone in its process, because the
//! bound is per process.

use std::sync::Arc;

use chappe_stream::sqlite::{HEAP_BYTES_MAX, SqliteQuery};
use chappe_stream::*;

fn schema(name: &str, field_type: FieldType) -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: name.into(),
            field_type,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

fn change(count: u64) -> WindowChange {
    let arrival = |number: u64| Arrival {
        number,
        stream: "s".into(),
        element: Arc::new(StreamElement {
            position: Position::default(),
            source_time: Timestamp(number as i64),
            receive_time: Timestamp(0),
            key: None,
            values: vec![Value::Text(format!("{number}/{}", "x".repeat(1_000)))],
            quality: Quality::Good,
            origin: None,
        }),
    };
    WindowChange {
        added: (0..count).map(arrival).collect(),
        removed: (0..if count == 0 { 399 } else { 0 }).collect(),
    }
}

#[test]
fn a_statement_that_gathers_is_stopped_and_others_go_on() {
    let long = "y".repeat(900);
    let sql =
        format!("select count(*) as n from (select distinct replace(t, 'x', '{long}') from a)");
    let source = QuerySource {
        alias: "a".into(),
        schema: schema("t", FieldType::Text),
        value: None,
    };
    let output = schema("n", FieldType::Integer);
    let mut query = SqliteQuery::new(&[source], &sql, &output, QueryLimits::default()).unwrap();
    let wanted = QueryError::Limit {
        limit: "heap_bytes",
        bound: HEAP_BYTES_MAX,
    };
    // 400 texts of 0.9 MB.
    assert_eq!(query.evaluate(&[change(400)]), Err(wanted));
    let rows = query.evaluate(&[change(0)]).unwrap();
    assert_eq!(rows[0].values, [Value::Integer(1)]);
}
