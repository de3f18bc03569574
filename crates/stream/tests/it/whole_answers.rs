//! Goal: an answer over stored streams is over all elements that were asked for, however many there are,
//! or an error that names the limit, or says that it is partial; a table's name is one stream or refused.
//! Method: streams on the simulated disk that are larger than what is held in tables, asked for
//! everything, for an older time, and under limits of steps; answers are compared with those computed
//! here.

use std::ops::Range;

use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::sqlite::{Answer, HistoryLimits, HistoryQuery, Loaded, Scope, query_streams};
use chappe_stream::*;

const LIMITS: fn() -> HistoryLimits = || HistoryLimits {
    elements: 2_000,
    bytes: 1 << 20,
    ..HistoryLimits::default()
};

const PARTIAL: Scope = Scope {
    times: None,
    allows_partial: true,
};

fn store() -> StreamStore {
    let disk = Box::new(SimDisk::new(1));
    let (store, _) = Store::open(disk, Options::default(), 7).expect("opens");
    StreamStore::new(store)
}

fn schema(fields: &[(&str, FieldType)]) -> StreamSchema {
    let field = |(name, field_type): &(&str, FieldType)| Field {
        name: (*name).into(),
        field_type: *field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    StreamSchema {
        fields: fields.iter().map(field).collect(),
        key: None,
    }
}

fn stream(store: &StreamStore, name: &str, fields: &[(&str, FieldType)]) -> StreamLog {
    let stream = store.stream(name, Level::Process, &schema(fields), None);
    stream.expect("made")
}

fn element(n: i64, values: Vec<Value>) -> StreamElement {
    StreamElement {
        position: Position::default(),
        source_time: Timestamp(n * 10),
        receive_time: Timestamp(n * 10),
        key: None,
        values,
        quality: Quality::Good,
        origin: None,
    }
}

fn fill(log: &StreamLog, numbers: Range<i64>, values: impl Fn(i64) -> Vec<Value>) {
    let elements: Vec<_> = numbers.map(|n| element(n, values(n))).collect();
    for batch in elements.chunks(100) {
        let appended = log.append(batch).expect("queued");
        appended.wait().expect("stored");
    }
}

fn within(times: Range<i64>, allows_partial: bool) -> Scope {
    Scope {
        times: Some(Timestamp(times.start)..Timestamp(times.end)),
        allows_partial,
    }
}

fn first_row(answer: &Answer) -> Vec<i64> {
    let number = |value: &Value| match value {
        Value::Integer(number) => *number,
        other => panic!("{other:?} is not an integer"),
    };
    answer.rows[0].iter().map(number).collect()
}

const COUNT: &str = "select count(*), min(v), sum(v) from a";

/// The same as [`COUNT`], in ways that SQLite evaluates: from the log, and from the log within a loop.
const COUNTS_OF_SQLITE: [&str; 2] = [
    "select count(*), min(v + 0), sum(v) from a",
    "select count(*), min(a.v), sum(a.v) from a, (select 1 as one, max(v) as top from a) where one = 1",
];

fn under_steps(steps: u64) -> HistoryLimits {
    let limits = LIMITS();
    HistoryLimits {
        query: QueryLimits {
            steps,
            ..limits.query
        },
        ..limits
    }
}

#[test]
fn a_stream_with_more_elements_than_tables_hold_is_answered_whole() {
    let store = store();
    let a = stream(&store, "a", &[("v", FieldType::Integer)]);
    fill(&a, 0..2_000, |n| vec![Value::Integer(n)]);
    let answer = query_streams(COUNT, &[&a], LIMITS(), &Scope::default()).expect("all fits");
    assert_eq!(first_row(&answer), [2_000, 0, 1_999_000]);
    assert!(!answer.is_partial());

    fill(&a, 2_000..3_000, |n| vec![Value::Integer(n)]);
    for sql in [COUNT].iter().chain(&COUNTS_OF_SQLITE) {
        for scope in [Scope::default(), PARTIAL] {
            let answer = query_streams(sql, &[&a], LIMITS(), &scope).expect(sql);
            assert_eq!(first_row(&answer), [3_000, 0, 4_498_500], "{sql}");
            assert!(!answer.is_partial(), "{sql}");
            let loaded = Loaded {
                stream: "a".into(),
                former_name: None,
                elements: 3_000,
                kept: 3_000,
                complete: true,
                damaged: 0,
            };
            assert_eq!(answer.loaded, [loaded], "{sql}");
        }
        let old = query_streams(sql, &[&a], LIMITS(), &within(500..1_500, false)).expect(sql);
        assert_eq!(first_row(&old), [100, 50, 9_950], "{sql}");
        assert!(!old.is_partial());
        let long = query_streams(sql, &[&a], LIMITS(), &within(0..29_000, false)).expect(sql);
        assert_eq!(first_row(&long), [2_900, 0, 4_203_550], "{sql}");
        let none = query_streams(sql, &[&a], LIMITS(), &within(5..6, false)).expect(sql);
        assert_eq!(
            none.rows,
            [[Value::Integer(0), Value::Null, Value::Null]],
            "{sql}"
        );
    }
}

#[test]
fn a_query_that_reaches_a_limit_is_an_error_or_marked() {
    let store = store();
    let a = stream(&store, "a", &[("v", FieldType::Integer)]);
    fill(&a, 0..30_000, |n| vec![Value::Integer(n)]);
    let sql = COUNTS_OF_SQLITE[0];
    let limits = under_steps(100_000);
    let wanted = QueryError::Limit {
        limit: "steps",
        bound: 100_000,
    };
    let refused = query_streams(sql, &[&a], limits, &Scope::default());
    assert_eq!(refused, Err(wanted.clone()));

    let answer = query_streams(sql, &[&a], limits, &PARTIAL).expect("allowed");
    assert_eq!(first_row(&answer), [2_000, 28_000, 57_999_000]);
    assert!(answer.is_partial());
    let loaded = Loaded {
        stream: "a".into(),
        former_name: None,
        elements: 2_000,
        kept: 30_000,
        complete: false,
        damaged: 0,
    };
    assert_eq!(answer.loaded, [loaded]);

    let long = query_streams(sql, &[&a], limits, &within(0..290_000, false));
    assert_eq!(long, Err(wanted));
    let cut = query_streams(sql, &[&a], limits, &within(0..290_000, true)).expect("allowed");
    assert_eq!(first_row(&cut)[..2], [2_000, 27_000]);
    assert!(cut.is_partial());
    // A count in one pass takes no steps.
    let counted = query_streams(COUNT, &[&a], limits, &Scope::default()).expect("counted");
    assert_eq!(first_row(&counted), [30_000, 0, 449_985_000]);
}

#[test]
fn large_values_are_read_whole_and_a_partial_answer_has_the_newest_that_fit() {
    let store = store();
    let a = stream(
        &store,
        "a",
        &[("v", FieldType::Integer), ("t", FieldType::Text)],
    );
    let text = |n: i64| Value::Text(format!("{n:06}{}", "x".repeat(10_000)));
    // The newest are smaller than the rest, so that what fits is estimated too high.
    fill(&a, 0..900, |n| vec![Value::Integer(n), text(n)]);
    fill(&a, 900..1_000, |n| {
        vec![Value::Integer(n), Value::Text("y".repeat(2_000))]
    });
    let answer = query_streams(COUNT, &[&a], LIMITS(), &Scope::default()).expect("numbers");
    assert_eq!(first_row(&answer), [1_000, 0, 499_500]);

    let texts = "select count(*), min(v), max(v), sum(length(t) > 0) from a";
    let answer = query_streams(texts, &[&a], LIMITS(), &Scope::default()).expect("texts");
    assert_eq!(first_row(&answer), [1_000, 0, 999, 1_000]);
    assert!(!answer.is_partial());
    let few = under_steps(5_000);
    let answer = query_streams(texts, &[&a], few, &PARTIAL).expect("allowed");
    let row = first_row(&answer);
    assert!(
        (150..=200).contains(&row[0]),
        "a megabyte of the newest: {row:?}"
    );
    assert_eq!(row[1..], [1_000 - row[0], 999, row[0]]);
    assert!(answer.is_partial());

    let b = stream(
        &store,
        "b",
        &[("v", FieldType::Integer), ("t", FieldType::Text)],
    );
    fill(&b, 0..300, |n| vec![Value::Integer(n), text(n)]);
    let both = "select (select count(t) from a), (select count(t) from b)";
    let answer = query_streams(both, &[&a, &b], LIMITS(), &Scope::default()).expect("both");
    assert_eq!(first_row(&answer), [1_000, 300]);
    // In a partial answer two streams share the bytes.
    let answer = query_streams(both, &[&a, &b], under_steps(5_000), &PARTIAL).expect("allowed");
    assert!(answer.is_partial());
    assert!(
        first_row(&answer).iter().all(|count| *count > 40),
        "{answer:?}"
    );
}

#[test]
fn a_stranger_has_no_part_of_the_views() {
    let store = store();
    let a = stream(&store, "a", &[("v", FieldType::Integer)]);
    fill(&a, 0..10, |n| vec![Value::Integer(n)]);
    for sql in [
        "select value from generate_series(1, 3)",
        "select value from a, generate_series(1, 3)",
        "with b as (select value from generate_series(1, 3)) select * from b, a",
        "select chappe_column_0(1, 0) from a",
        "select chappe_end_0(1) from a",
        "select v from a where chappe_is_0(sequence)",
        "explain query plan select v from a",
    ] {
        let refused = query_streams(sql, &[&a], LIMITS(), &Scope::default());
        assert!(
            matches!(refused, Err(QueryError::Refused(_))),
            "{sql}: {refused:?}"
        );
    }
}

#[test]
fn samples_are_rows() {
    let store = store();
    let fields = [
        ("n", FieldType::Integer),
        ("w", FieldType::Samples),
        ("x", FieldType::Samples),
    ];
    let a = stream(&store, "ecg", &fields);
    let samples = |start: i64, count: usize| {
        Value::Samples(Samples {
            start: Timestamp(start),
            period_ns: 2,
            values: (0..count).map(|n| n as f64).collect(),
        })
    };
    let stretch = |n| vec![Value::Integer(n), samples(n * 1_000, 100), samples(n, 3)];
    fill(&a, 0..200, stretch);
    let sql = "select count(*), sum(value = 1.0), sum(field = 'x'), max(time), \
               sum(stream = 'ecg'), count(key) from ecg_samples";
    let answer = query_streams(sql, &[&a], LIMITS(), &Scope::default()).expect("answers");
    assert_eq!(first_row(&answer), [20_600, 400, 600, 199_198, 20_600, 0]);
    assert!(!answer.is_partial());
    let sql = "select sequence, time, value from ecg_samples where sequence = 7 and field = 'x'";
    let answer = query_streams(sql, &[&a], LIMITS(), &Scope::default()).expect("answers");
    let row = |time, value| {
        vec![
            Value::Integer(7),
            Value::Integer(time),
            Value::Double(value),
        ]
    };
    assert_eq!(answer.rows, [row(6, 0.0), row(8, 1.0), row(10, 2.0)]);
}

#[test]
fn an_order_with_a_limit_reads_what_it_needs() {
    let store = store();
    let a = stream(&store, "a", &[("v", FieldType::Integer)]);
    // Times are out of order within each hundred.
    let elements: Vec<_> = (0..20_000_i64)
        .map(|n| element(n / 100 * 100 + 99 - n % 100, vec![Value::Integer(n)]))
        .collect();
    for batch in elements.chunks(100) {
        a.append(batch).expect("queued").wait().expect("stored");
    }
    let ask = |sql: &str| query_streams(sql, &[&a], LIMITS(), &Scope::default()).expect(sql);
    for (sql, rows, most) in [
        (
            "select v from a order by sequence desc limit 3",
            [19_999, 19_998, 19_997],
            1_100,
        ),
        (
            "select v from a order by sequence limit 3",
            [0, 1, 2],
            1_100,
        ),
        (
            "select v from a order by source_time desc limit 3",
            [19_900, 19_901, 19_902],
            1_100,
        ),
        (
            "select v from a order by source_time limit 3",
            [99, 98, 97],
            1_100,
        ),
        (
            "select v from a where source_time >= 100000 and source_time < 100030 order by v",
            [10_097, 10_098, 10_099],
            1_100,
        ),
        (
            "select v from a where sequence between 500 and 502",
            [499, 500, 501],
            3,
        ),
        ("select v from a where v between 5 and 7", [5, 6, 7], 20_000),
    ] {
        let answer = ask(sql);
        let found: Vec<_> = answer.rows.iter().map(|row| row[0].clone()).collect();
        assert_eq!(found, rows.map(Value::Integer), "{sql}");
        let read = answer.loaded[0].elements;
        assert!(read <= most, "{sql}: {read} elements read");
    }
}

#[test]
fn exact_names_win_and_ambiguous_ones_are_refused() {
    let store = store();
    let number = [("v", FieldType::Integer)];
    let samples = [("v", FieldType::Integer), ("w", FieldType::Samples)];
    let streams = [
        stream(&store, "a.b", &number),
        stream(&store, "a_b", &number),
        stream(&store, "c.d", &number),
        stream(&store, "c-d", &number),
        stream(&store, "ecg", &samples),
        stream(&store, "ecg_samples", &number),
        stream(&store, "ward.ecg", &samples),
        stream(&store, "ward.ecg-samples", &number),
    ];
    let stretch = Samples {
        start: Timestamp(0),
        period_ns: 1,
        values: vec![0.0; 7],
    };
    for (n, log) in streams.iter().enumerate() {
        let mut values = vec![Value::Integer(n as i64)];
        if log.schema().fields.len() == 2 {
            values.push(Value::Samples(stretch.clone()));
        }
        fill(log, 0..1, |_| values.clone());
    }
    let all: Vec<&StreamLog> = streams.iter().collect();
    let ask = |sql: &str| query_streams(sql, &all, LIMITS(), &Scope::default());
    for (table, n) in [
        ("\"a.b\"", 0),
        ("a_b", 1),
        ("A_B", 1),
        ("main.a_b", 1),
        ("\"c.d\"", 2),
        ("\"c-d\"", 3),
        ("ecg", 4),
        ("ecg_samples", 5),
        ("ward_ecg", 6),
        ("\"ward.ecg-samples\"", 7),
    ] {
        let answer = ask(&format!("select v from {table}")).expect(table);
        assert_eq!(first_row(&answer), [n], "{table}");
    }
    let answer = ask("select count(*) from \"ward.ecg_samples\"").expect("samples");
    assert_eq!(first_row(&answer), [7]);
    for (table, wanted) in [
        ("c_d", ["\"c.d\"", "\"c-d\""]),
        (
            "ward_ecg_samples",
            ["\"ward.ecg-samples\"", "\"ward.ecg_samples\""],
        ),
    ] {
        let Err(QueryError::Ambiguous { candidates, .. }) = ask(&format!("select 1 from {table}"))
        else {
            panic!("{table} is one of several");
        };
        assert_eq!(candidates, wanted);
    }
    // A name that the statement itself defines is not a stream.
    let own = ask("with c_d as (select 9 as v) select v from c_d").expect("its own");
    assert_eq!(first_row(&own), [9]);
    for missing in ["c", "other.a_b", "\"main.a.b\".x", "c_d_samples"] {
        let error = ask(&format!("select 1 from {missing}")).expect_err(missing);
        assert!(
            error.to_string().contains("no such table"),
            "{missing}: {error}"
        );
    }
}

#[test]
fn the_rows_and_the_samples_of_a_stream_are_of_the_same_elements() {
    let store = store();
    let log = stream(&store, "ward.ecg", &[("w", FieldType::Samples)]);
    let stretch = |n| {
        vec![Value::Samples(Samples {
            start: Timestamp(n),
            period_ns: 1,
            values: vec![0.0; 3],
        })]
    };
    fill(&log, 0..10, stretch);
    let joined = "select count(*) from ward_ecg join \"ward.ecg_samples\" using (sequence)";
    let answer = query_streams(joined, &[&log], LIMITS(), &Scope::default()).expect("answers");
    assert_eq!(first_row(&answer), [30]);
    assert_eq!(answer.loaded.len(), 1);
}

#[test]
fn columns_that_only_join_are_filled() {
    let store = store();
    let fields = [("v", FieldType::Integer), ("w", FieldType::Integer)];
    let (a, b) = (stream(&store, "a", &fields), stream(&store, "b", &fields));
    fill(&a, 0..10, |n| vec![Value::Integer(n), Value::Integer(n)]);
    fill(&b, 5..15, |n| vec![Value::Integer(n), Value::Integer(n)]);
    for sql in [
        "select count(*) from a join b using (v)",
        "select count(*) from a join b Using (source_time, v)",
        "select count(*) from (select v, w from a) natural join (select v, w from b)",
        "select count(*) from a, b where a.v = b.v",
    ] {
        let answer = query_streams(sql, &[&a, &b], LIMITS(), &Scope::default()).expect(sql);
        assert_eq!(first_row(&answer), [5], "{sql}");
    }
}

#[test]
fn a_query_that_is_stopped_before_it_runs_ends() {
    let store = store();
    let a = stream(&store, "a", &[("v", FieldType::Integer)]);
    fill(&a, 0..10, |n| vec![Value::Integer(n)]);
    for sql in [COUNT, "select 1"] {
        let query = HistoryQuery::new(sql, &[&a], LIMITS()).expect("prepared");
        query.stop_handle().stop();
        let ended = query.run(&Scope::default());
        assert_eq!(ended, Err(QueryError::Interrupted), "{sql}");
    }
}

#[test]
fn a_schema_that_changes_while_a_stream_is_read_is_an_error() {
    let store = store();
    let a = stream(&store, "a", &[("v", FieldType::Integer)]);
    fill(&a, 0..10, |n| vec![Value::Integer(n)]);
    let query = HistoryQuery::new(COUNT, &[&a], LIMITS()).expect("prepared");
    a.set_schema(&schema(&[("w", FieldType::Integer)]))
        .expect("changes");
    fill(&a, 10..20, |n| vec![Value::Integer(n)]);
    // Its column `v` would have the values of `w`.
    let error = query.run(&Scope::default()).expect_err("another schema");
    assert!(
        error.to_string().contains("changed while it was read"),
        "{error}"
    );
}

#[test]
fn a_statement_is_limited_without_the_blanks_around_it() {
    let store = store();
    let log = stream(&store, "a", &[("n", FieldType::Integer)]);
    let run = |statement: &str| query_streams(statement, &[&log], LIMITS(), &Scope::default());
    let blanks = "\n".repeat(50_000);
    let answer = run(&format!("select 1 as one -- {blanks}")).expect("is short");
    assert_eq!(answer.rows.len(), 1);
    let long = run(&format!("select '{blanks}' as one"));
    assert!(matches!(long, Err(QueryError::Limit { .. })), "{long:?}");
}
