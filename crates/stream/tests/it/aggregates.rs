//! Goal: aggregates that are evaluated in one pass over the log give SQLite's results to the bit, and
//! functions over times give those that they are defined to give.
//! Method: random elements with nulls, NaN, booleans, large integers and infinite doubles, under random
//! conditions and buckets; each statement is evaluated in one pass and, written so that it is not
//! aggregated there, by SQLite.

use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::sqlite::{Answer, HistoryLimits, Scope, query_streams};
use chappe_stream::*;
use proptest::prelude::*;

fn store() -> StreamStore {
    let disk = Box::new(SimDisk::new(1));
    let (store, _) = Store::open(disk, Options::default(), 7).expect("opens");
    StreamStore::new(store)
}

fn stream(store: &StreamStore) -> StreamLog {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = [
        ("i", FieldType::Integer),
        ("d", FieldType::Double),
        ("b", FieldType::Boolean),
        ("t", FieldType::Text),
    ];
    let schema = StreamSchema {
        fields: fields.map(field).to_vec(),
        key: None,
    };
    let made = store.stream("s", Level::Process, &schema, None);
    made.expect("made")
}

fn element(time: i64, key: Option<String>, values: Vec<Value>) -> StreamElement {
    StreamElement {
        position: Position::default(),
        source_time: Timestamp(time),
        receive_time: Timestamp(time.wrapping_add(5)),
        key,
        values,
        quality: match time.rem_euclid(3) {
            0 => Quality::Good,
            1 => Quality::Questionable,
            _ => Quality::Bad,
        },
        origin: None,
    }
}

fn ask(log: &StreamLog, sql: &str) -> Result<Answer, QueryError> {
    query_streams(sql, &[log], HistoryLimits::default(), &Scope::default())
}

/// Rows with doubles as bits.
fn exact(answer: &Answer) -> Vec<Vec<String>> {
    let text = |value: &Value| match value {
        Value::Double(number) => format!("real {:016x} {number}", number.to_bits()),
        other => format!("{other:?}"),
    };
    let rows = answer.rows.iter();
    rows.map(|row| row.iter().map(text).collect()).collect()
}

fn integers() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Null),
        9 => (-1_000_i64..1_000).prop_map(Value::Integer),
        1 => any::<i64>().prop_map(Value::Integer),
    ]
}

fn doubles() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Null),
        9 => (-1e3..1e3_f64).prop_map(Value::Double),
        2 => prop_oneof![Just(0.1), Just(1e300), Just(-0.0), Just(0.0)].prop_map(Value::Double),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), any::<f64>()].prop_map(Value::Double),
    ]
}

fn elements() -> impl Strategy<Value = Vec<StreamElement>> {
    let time = prop_oneof![
        9 => -500..5_000_i64,
        1 => prop_oneof![Just(i64::MAX), Just(i64::MIN + 40_000), any::<i64>()],
    ];
    let booleans = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::Boolean)];
    let texts = prop_oneof![Just(Value::Null), "[a-z]{0,3}".prop_map(Value::Text)];
    let key = prop_oneof![Just(None), "[ab]".prop_map(Some)];
    let one = (time, key, integers(), doubles(), booleans, texts);
    let one = one.prop_map(|(time, key, i, d, b, t)| element(time, key, vec![i, d, b, t]));
    proptest::collection::vec(one, 0..60)
}

const AGGREGATES: [&str; 18] = [
    "count(*)",
    "count(i)",
    "count(d)",
    "count(t)",
    "min(i)",
    "max(i)",
    "sum(i)",
    "avg(i)",
    "total(i)",
    "min(d)",
    "max(d)",
    "sum(d)",
    "avg(d)",
    "total(d)",
    "sum(b)",
    "max(source_time)",
    "min(receive_time)",
    "max(sequence)",
];

const CONDITIONS: [&str; 10] = [
    "",
    "where source_time >= 100",
    "where source_time between 100 and 3000 - 500",
    "where 200.5 < source_time and source_time <= 4e3",
    "where sequence > 5 and sequence < 40",
    "where key = 'a'",
    "where quality = 'good' and source_time < 2000",
    "where source_time = 2000.5",
    "where source_time < unixepoch('1970-01-02')",
    "where source_time > 9223372036854775806",
];

/// The term of the group, for each of the groupings.
const GROUPS: [&str; 6] = [
    "",
    "time_bucket(250, source_time)",
    "time_bucket('1 us', source_time)",
    "time_bucket(700, source_time, 33)",
    "source_time / 400",
    "source_time / 400 * 400",
];

fn statement(
    selected: &[usize],
    condition: usize,
    group: usize,
    order: usize,
    plain: bool,
) -> String {
    let mut items: Vec<String> = selected
        .iter()
        .map(|at| AGGREGATES[*at].to_owned())
        .collect();
    let condition = CONDITIONS[condition];
    let group = GROUPS[group];
    let mut tail = String::new();
    if !group.is_empty() {
        items.push(format!("{group} as bucket"));
        tail = " group by bucket".into();
        tail += ["", " order by bucket", " order by bucket desc limit 3"][order];
    }
    if !plain {
        // HAVING is evaluated by SQLite alone.
        tail = match group.is_empty() {
            true => " having 1".into(),
            false => tail.replacen(" group by bucket", " group by bucket having 1", 1),
        };
    }
    format!("select {} from s {condition}{tail}", items.join(", "))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn one_pass_is_like_sqlite(
        elements in elements(),
        asked in proptest::collection::vec(
            (proptest::collection::vec(0..AGGREGATES.len(), 1..6), 0..CONDITIONS.len(), 0..GROUPS.len(), 0..3_usize),
            6,
        ),
    ) {
        let store = store();
        let log = stream(&store);
        for batch in elements.chunks(7) {
            log.append(batch).expect("queued").wait().expect("stored");
        }
        for (selected, condition, group, order) in asked {
            let fast = statement(&selected, condition, group, order, true);
            let slow = statement(&selected, condition, group, order, false);
            match (ask(&log, &fast), ask(&log, &slow)) {
                (Ok(one), Ok(other)) => prop_assert_eq!(exact(&one), exact(&other), "{}", fast),
                (Err(one), Err(other)) => prop_assert_eq!(one, other, "{}", fast),
                (one, other) => prop_assert!(false, "{}: {:?}, {:?}", fast, one, other),
            }
        }
    }
}

#[test]
fn a_schema_that_changed_reads_older_elements_by_name() {
    let store = store();
    let log = stream(&store);
    let one = |time| {
        let values = vec![
            Value::Integer(time),
            Value::Double(0.5),
            Value::Null,
            Value::Null,
        ];
        element(time, None, values)
    };
    let elements: Vec<_> = (0..10).map(one).collect();
    log.append(&elements)
        .expect("queued")
        .wait()
        .expect("stored");
    let mut schema = log.schema();
    schema.fields.reverse();
    schema.fields.remove(0);
    log.set_schema(&schema).expect("changed");
    let other = element(
        100,
        None,
        vec![Value::Boolean(true), Value::Double(2.0), Value::Integer(7)],
    );
    log.append(&[other])
        .expect("queued")
        .wait()
        .expect("stored");
    for sql in [
        "select count(*), sum(i), sum(d), sum(b), max(i) from s",
        "select count(*), sum(i), sum(d), sum(b), max(i + 0) from s",
    ] {
        let answer = ask(&log, sql).expect(sql);
        let wanted = [11, 52, 0, 1, 9].map(Value::Integer);
        let mut wanted = wanted.to_vec();
        wanted[2] = Value::Double(7.0);
        assert_eq!(answer.rows, [wanted], "{sql}");
    }
}

#[test]
fn a_field_whose_unit_changed_has_one_unit_for_every_reader() {
    let store = store();
    let schema = |unit: &str| StreamSchema {
        fields: ["i", "d"].map(|name| (name, unit)).map(in_unit).to_vec(),
        key: None,
    };
    let made = store.stream("s", Level::Process, &schema("km"), None);
    let log = made.expect("made");
    let values = |whole| vec![Value::Integer(whole), Value::Double(whole as f64)];
    for (unit, number) in [("km", 3), ("m", 500)] {
        log.set_schema(&schema(unit)).expect("changed");
        let appended = log.append(&[element(number, None, values(number))]);
        appended.expect("queued").wait().expect("stored");
    }
    for sql in [
        "select sum(i), sum(d), max(d), min(i) from s",
        "select sum(i), sum(d), max(d + 0), min(i + 0) from s",
    ] {
        let answer = ask(&log, sql).expect(sql);
        let (least, most) = (Value::Integer(500), Value::Double(3_000.0));
        let wanted = [Value::Integer(3_500), Value::Double(3_500.0), most, least];
        assert_eq!(answer.rows, [wanted.to_vec()], "{sql}");
    }
    let answer = ask(&log, "select d from s where d > 600").expect("answered");
    assert_eq!(answer.rows, [[Value::Double(3_000.0)]]);
    let read: Vec<_> = log.read(1, 9).expect("reads").into_iter().collect();
    assert_eq!(
        read[0].values,
        [Value::Integer(3_000), Value::Double(3_000.0)]
    );
    let range = log.range_buckets(None..None, 1, &|| false);
    let range = range.expect("reads").expect("whole");
    let sums: Vec<_> = range
        .fields
        .iter()
        .map(|it| it.buckets[0].unwrap().max)
        .collect();
    assert_eq!(sums, [3_000.0, 3_000.0]);
    // Not convertible: no number at all, rather than a wrong one.
    log.set_schema(&schema("Cel")).expect("changed");
    let answer = ask(&log, "select count(*), count(i), sum(d) from s").expect("answered");
    assert_eq!(
        answer.rows,
        [[Value::Integer(2), Value::Integer(0), Value::Null]]
    );
}

fn in_unit((name, unit): (&str, &str)) -> Field {
    Field {
        name: name.into(),
        field_type: match name {
            "i" => FieldType::Integer,
            _ => FieldType::Double,
        },
        unit: Some(unit.into()),
        observed_property: None,
        description: None,
    }
}

#[test]
fn a_range_is_divided_into_buckets_of_equal_width() {
    let store = store();
    let log = stream(&store);
    let elements: Vec<_> = (0..1_000_i64)
        .map(|n| {
            let double = if n == 500 { f64::NAN } else { n as f64 };
            let boolean = Value::Boolean(n % 2 == 0);
            element(
                n * 10,
                None,
                vec![
                    Value::Integer(n),
                    Value::Double(double),
                    boolean,
                    Value::Null,
                ],
            )
        })
        .collect();
    log.append(&elements)
        .expect("queued")
        .wait()
        .expect("stored");
    let range = |from: Option<i64>, to: Option<i64>, buckets| {
        let times = from.map(Timestamp)..to.map(Timestamp);
        let found = log.range_buckets(times, buckets, &|| false);
        found.expect("read").expect("not stopped")
    };
    let whole = range(None, None, 10);
    assert_eq!(
        (whole.from, whole.width_ns, whole.elements),
        (Timestamp(0), 1_000, 1_000)
    );
    assert_eq!(whole.counts, [100; 10]);
    let names: Vec<_> = whole
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["i", "d", "b"]);
    let bucket = |field: usize, at: usize| whole.fields[field].buckets[at].expect("has values");
    let wanted = BucketValues {
        count: 100,
        min: 500.0,
        max: 599.0,
        mean: 549.5,
    };
    assert_eq!(bucket(0, 5), wanted);
    assert_eq!((bucket(1, 5).count, bucket(1, 5).min), (99, 501.0));
    assert_eq!(bucket(2, 0).mean, 0.5);

    let part = range(Some(-100), Some(15), 100);
    assert_eq!(
        (part.width_ns, part.counts.len(), part.elements),
        (2, 58, 2)
    );
    assert_eq!((part.counts[50], part.counts[55]), (1, 1));
    assert_eq!(part.fields[0].buckets.iter().flatten().count(), 2);
    assert_eq!(range(Some(5), Some(5), 10).counts, [0_u64; 0]);
    assert_eq!(
        log.range_buckets(None..None, 10, &|| true).expect("read"),
        None
    );
}

#[test]
fn a_range_without_an_end_has_the_last_time_that_there_is() {
    let store = store();
    let log = stream(&store);
    let values = || vec![Value::Integer(1), Value::Null, Value::Null, Value::Null];
    let elements = [i64::MAX - 9, i64::MAX].map(|time| element(time, None, values()));
    let appended = log.append(&elements).expect("queued");
    appended.wait().expect("stored");
    let range = |end| {
        let found = log.range_buckets(None..end, 2, &|| false);
        found.expect("read").expect("not stopped")
    };
    let whole = range(None);
    assert_eq!((whole.elements, whole.width_ns), (2, 5));
    assert_eq!(whole.counts, [1, 1]);
    assert_eq!(range(Some(Timestamp(i64::MAX))).elements, 1);
}

#[test]
fn functions_over_times_give_what_they_say() {
    let store = store();
    let log = stream(&store);
    // A counter that restarts, sampled each second; the third element arrives late.
    let values = [(0, 10), (1, 20), (3, 5), (2, 30), (4, 9)];
    let elements: Vec<_> = values
        .iter()
        .map(|(second, value)| {
            let values = vec![
                Value::Integer(*value),
                Value::Double(*value as f64 / 2.0),
                Value::Null,
                Value::Null,
            ];
            element(second * 1_000_000_000, None, values)
        })
        .collect();
    log.append(&elements)
        .expect("queued")
        .wait()
        .expect("stored");
    for (expression, wanted) in [
        ("first(i, source_time)", Value::Integer(10)),
        ("last(i, source_time)", Value::Integer(9)),
        ("last(d)", Value::Double(4.5)),
        ("first(t, source_time)", Value::Null),
        ("delta(i, source_time)", Value::Integer(-1)),
        ("delta(d)", Value::Double(-0.5)),
        ("delta(i) filter (where sequence = 1)", Value::Null),
        // 10, then a restart at 5, then 4, in four seconds; the late one is passed over.
        ("rate(i, source_time)", Value::Double(19.0 / 4.0)),
        (
            "rate(i, source_time) filter (where sequence = 1)",
            Value::Null,
        ),
        (
            "interpolate(i, source_time, 500000000)",
            Value::Double(15.0),
        ),
        (
            "interpolate(i, source_time, 2000000000)",
            Value::Double(30.0),
        ),
        (
            "interpolate(i, source_time, 2500000000)",
            Value::Double(17.5),
        ),
        ("interpolate(i, source_time, 5000000000)", Value::Null),
        (
            "lttb(i, source_time, 3)",
            Value::Text("[[0,10.0],[2000000000,30.0],[4000000000,9.0]]".into()),
        ),
        (
            "max(time_bucket('2 s', source_time))",
            Value::Integer(4_000_000_000),
        ),
    ] {
        let answer = ask(&log, &format!("select {expression} from s")).expect(expression);
        assert_eq!(answer.rows, [[wanted]], "{expression}");
    }
    // Integers that no double has, and rows of one time.
    let large = "(select 1700000000000000000 as v, 0 as t union all select 1700000000000000100, 1000000000)";
    let equal = "(select 1 as v, 7 as t union all select 5, 7)";
    for (expression, rows, wanted) in [
        ("rate(v, t)", large, Value::Double(100.0)),
        ("delta(v, t)", large, Value::Integer(100)),
        ("delta(v, t)", equal, Value::Integer(4)),
        ("rate(v, t)", equal, Value::Null),
    ] {
        let statement = format!("select {expression} from {rows}");
        let answer = ask(&log, &statement).expect(expression);
        assert_eq!(answer.rows, [[wanted]], "{statement}");
    }
    for (expression, reason) in [
        ("time_bucket('soon', source_time)", "width such as"),
        ("time_bucket(0, source_time)", "width above 0"),
        ("rate('a', source_time)", "a number"),
        ("first(i, 'noon')", "nanoseconds"),
        ("lttb(i, source_time, 2)", "3 to 10000"),
    ] {
        let error = ask(&log, &format!("select {expression} from s")).expect_err(expression);
        assert!(error.to_string().contains(reason), "{expression}: {error}");
    }
}
