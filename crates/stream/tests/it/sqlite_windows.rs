//! Goal: a query that follows its window's changes gives the same result as a new one over the
//! entire window.
//! Method: seeded sequences through windows of every kind, every evaluation compared with a new
//! one; and single cases for types, columns and union.

use std::sync::Arc;
use std::time::Duration;

use chappe_stream::sqlite::SqliteQuery;
use chappe_stream::*;
use proptest::prelude::*;

fn field(name: &str, field_type: FieldType) -> Field {
    Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    }
}

fn schema(fields: &[(&str, FieldType)]) -> StreamSchema {
    StreamSchema {
        fields: fields.iter().map(|(name, t)| field(name, *t)).collect(),
        key: None,
    }
}

fn element(number: u64, time: i64, values: Vec<Value>) -> Arc<StreamElement> {
    Arc::new(StreamElement {
        position: Position {
            epoch: Epoch(1),
            sequence: number,
        },
        source_time: Timestamp(time),
        receive_time: Timestamp(time + 1),
        key: Some(format!("k{}", number % 3)),
        values,
        quality: Quality::Good,
        origin: None,
    })
}

fn query(source: &StreamSchema, sql: &str, output: &[(&str, FieldType)]) -> SqliteQuery {
    let source = QuerySource {
        alias: "s".into(),
        schema: source.clone(),
        value: None,
    };
    let output = schema(output);
    SqliteQuery::new(&[source], sql, &output, QueryLimits::default()).expect("prepares")
}

/// Rows of one statement over one element with these values.
fn once(
    fields: &[(&str, FieldType)],
    values: Vec<Value>,
    sql: &str,
    output: &[(&str, FieldType)],
) -> Result<Vec<Row>, QueryError> {
    let change = WindowChange {
        added: vec![Arrival {
            number: 0,
            stream: "ward.s".into(),
            element: element(9, 5, values),
        }],
        removed: vec![],
    };
    query(&schema(fields), sql, output).evaluate(&[change])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn following_a_window_is_as_good_as_building_it_anew(
        extent in prop_oneof![
            (1_usize..6).prop_map(Extent::Count),
            (1_u64..30).prop_map(|ns| Extent::Time(Duration::from_nanos(ns))),
        ],
        steps in prop::collection::vec((0_i64..40, -5.0..5.0_f64, 0_usize..4, any::<bool>()), 1..30),
    ) {
        let fields = schema(&[("v", FieldType::Double), ("w", FieldType::Samples)]);
        let sql = "select count(*) as n, coalesce(sum(v), 0.0) as total,
            (select count(*) from s_samples) as samples,
            (select max(time) from s_samples) as last from s";
        let output = [
            ("n", FieldType::Integer),
            ("total", FieldType::Double),
            ("samples", FieldType::Integer),
            ("last", FieldType::Integer),
        ];
        let mut window = Window::new(extent, LatePolicy::Insert, WindowLimits::default());
        let mut following = query(&fields, sql, &output);
        for (number, (jitter, value, samples, look)) in steps.into_iter().enumerate() {
            let time = number as i64 * 4 + jitter;
            let samples = Samples {
                start: Timestamp(time),
                period_ns: 2,
                values: vec![value; samples],
            };
            let values = vec![Value::Double(value), Value::Samples(samples)];
            let _ = window.push("ward.s".into(), element(number as u64 + 1, time, values));
            if !look {
                continue;
            }
            let rows = following.evaluate(&[window.take_change()]).expect("follows");
            let mut whole = window.clone();
            whole.report_all();
            let anew = query(&fields, sql, &output).evaluate(&[whole.take_change()]);
            let anew = anew.expect("built anew");
            prop_assert_eq!(&rows[0].values[0], &anew[0].values[0]);
            prop_assert_eq!(&rows[0].values[2..], &anew[0].values[2..]);
            prop_assert_eq!(&rows[0].values[0], &Value::Integer(window.len() as i64));
            let (Value::Double(one), Value::Double(other)) =
                (&rows[0].values[1], &anew[0].values[1]) else { panic!("{rows:?}") };
            prop_assert!((one - other).abs() < 1e-9);
        }
    }
}

#[test]
fn every_type_passes_through() {
    let fields = [
        ("b", FieldType::Boolean),
        ("i", FieldType::Integer),
        ("d", FieldType::Double),
        ("t", FieldType::Text),
        ("y", FieldType::Bytes),
        ("w", FieldType::Samples),
        ("z", FieldType::Double),
    ];
    let values = vec![
        Value::Boolean(true),
        Value::Integer(i64::MIN),
        Value::Double(0.1),
        Value::Text("Grüße".into()),
        Value::Bytes(vec![0, 255]),
        Value::Samples(Samples {
            start: Timestamp(-3),
            period_ns: 4,
            values: vec![1.5, -2.0],
        }),
        Value::Null,
    ];
    let rows = once(&fields, values.clone(), "select * from s", &fields).expect("passes");
    assert_eq!(rows[0].values, values);
    assert_eq!(rows[0].source_time, Some(Timestamp(5)));
    assert_eq!(rows[0].key.as_deref(), Some("k0"));
    assert_eq!(rows[0].quality, Some(Quality::Good));
}

#[test]
fn what_does_not_fit_is_told_by_column() {
    let fields = [("v", FieldType::Double)];
    let try_one = |sql: &str, field_type| {
        let output = [("x", field_type)];
        let rows = once(&fields, vec![Value::Double(2.5)], sql, &output)?;
        Ok::<_, QueryError>(rows[0].values[0].clone())
    };
    assert_eq!(
        try_one("select 2.0 as x from s", FieldType::Integer),
        Ok(Value::Integer(2))
    );
    assert_eq!(
        try_one("select 2 as x from s", FieldType::Double),
        Ok(Value::Double(2.0))
    );
    assert_eq!(
        try_one("select v > 2 as x from s", FieldType::Boolean),
        Ok(Value::Boolean(true))
    );
    assert_eq!(
        try_one("select null as x from s", FieldType::Text),
        Ok(Value::Null)
    );
    for (sql, field_type) in [
        ("select v as x from s", FieldType::Integer),
        ("select 1e300 as x from s", FieldType::Integer),
        ("select 2 as x from s", FieldType::Boolean),
        ("select v as x from s", FieldType::Text),
        ("select 'a' as x from s", FieldType::Double),
        ("select x'01' as x from s", FieldType::Samples),
    ] {
        let error = try_one(sql, field_type).expect_err(sql);
        assert!(
            matches!(error, QueryError::Type { ref column, .. } if column == "x"),
            "{error}"
        );
    }
}

#[test]
fn columns_must_be_those_of_the_output() {
    let source = QuerySource {
        alias: "s".into(),
        schema: schema(&[("v", FieldType::Double)]),
        value: None,
    };
    let output = schema(&[("x", FieldType::Double)]);
    let new = |sql: &str| {
        let source = std::slice::from_ref(&source);
        SqliteQuery::new(source, sql, &output, QueryLimits::default()).map(|_| ())
    };
    assert_eq!(new("select v as X from s"), Ok(()));
    assert_eq!(
        new("select v from s"),
        Err(QueryError::Undeclared("v".into()))
    );
    assert_eq!(
        new("select key from s"),
        Err(QueryError::Missing("x".into()))
    );
    let Err(QueryError::Statement { message, offset }) = new("select w as x from s") else {
        panic!("no such column");
    };
    assert_eq!((message.as_str(), offset), ("no such column: w", Some(7)));
}

#[test]
fn taken_names_get_an_underscore() {
    let fields = [("key", FieldType::Text), ("rowid", FieldType::Integer)];
    let values = vec![Value::Text("mine".into()), Value::Integer(4)];
    let sql = "select key_ as x, rowid_ as y, stream as z from s";
    let output = [
        ("x", FieldType::Text),
        ("y", FieldType::Integer),
        ("z", FieldType::Text),
    ];
    let rows = once(&fields, values, sql, &output).expect("answers");
    let expected = [
        Value::Text("mine".into()),
        Value::Integer(4),
        Value::Text("ward.s".into()),
    ];
    assert_eq!(rows[0].values, expected);
}

#[test]
fn a_number_that_is_none_is_null() {
    let sql = "select v is null as x from s";
    let values = vec![Value::Double(f64::NAN)];
    let rows = once(
        &[("v", FieldType::Double)],
        values,
        sql,
        &[("x", FieldType::Boolean)],
    );
    assert_eq!(rows.expect("answers")[0].values, [Value::Boolean(true)]);
}
