//! Goal: the compiled path gives the same results as SQLite: the same rows to the bit, the same
//! errors.
//! Method: statements, schemas and elements from seeds, half of them near the limits of their
//! types; both paths follow the same window. A failing seed is printed with its statement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::sqlite::SqliteQuery;
use chappe_stream::*;

/// Number of statements. Takes a few seconds; 60,000 from seed 100,000 were run once.
const CASES: u64 = 1_500;

/// Values that are rounded, for each number of digits.
const ROUNDED: usize = 500;

/// SplitMix64.
struct Seed(u64);

impl Seed {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

const TYPES: [FieldType; 6] = [
    FieldType::Boolean,
    FieldType::Integer,
    FieldType::Double,
    FieldType::Text,
    FieldType::Bytes,
    FieldType::Samples,
];

const INTEGERS: [i64; 16] = [
    0,
    1,
    -1,
    2,
    3,
    7,
    10,
    -100,
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
    i64::MIN + 1,
    1 << 53,
    (1 << 53) + 1,
    4_503_599_627_370_496,
    3_037_000_500,
];

const REALS: [f64; 24] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.1,
    0.125,
    2.675,
    1.005,
    -0.001,
    1e15,
    4_503_599_627_370_495.5,
    9_223_372_036_854_775_808.0,
    -9_223_372_036_854_775_808.0,
    9_007_199_254_740_993.0,
    1e300,
    -1e300,
    5e-324,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f64::MAX,
];

const TEXTS: [&str; 18] = [
    "",
    "a",
    "A",
    "abc",
    "aBC",
    "1",
    "1.5",
    "-0",
    " 2",
    "x%y",
    "x_y",
    "Ä",
    "ä",
    "good",
    "a\0b",
    "\u{ffff}",
    "\u{10ffff}z",
    "12abc",
];

fn real(seed: &mut Seed) -> f64 {
    match seed.below(4) {
        0 => *seed.one(&REALS),
        1 => f64::from_bits(seed.next()),
        2 => {
            (seed.below(20_001) as f64 - 10_000.0) / [1.0, 8.0, 10.0, 100.0, 1000.0][seed.below(5)]
        }
        _ => (seed.next() as f64 / u64::MAX as f64 - 0.5) * 1000.0,
    }
}

fn value(seed: &mut Seed, field_type: FieldType) -> Value {
    if seed.chance(15) {
        return Value::Null;
    }
    match field_type {
        FieldType::Boolean => Value::Boolean(seed.chance(50)),
        FieldType::Integer => Value::Integer(match seed.below(3) {
            0 => *seed.one(&INTEGERS),
            1 => seed.next() as i64,
            _ => seed.below(21) as i64 - 10,
        }),
        FieldType::Double => Value::Double(real(seed)),
        FieldType::Text => Value::Text((*seed.one(&TEXTS)).to_owned()),
        FieldType::Bytes => Value::Bytes(seed.one(&TEXTS).bytes().collect()),
        FieldType::Samples => Value::Samples(Samples {
            start: Timestamp(3),
            period_ns: 2,
            values: (0..seed.below(3)).map(|n| n as f64 / 2.0).collect(),
        }),
    }
}

fn field(name: String, field_type: FieldType) -> Field {
    Field {
        name,
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    }
}

fn schema(seed: &mut Seed) -> StreamSchema {
    const NAMES: [&str; 8] = ["a", "b", "value", "true", "key", "quality", "x1", "rowid"];
    let mut fields: Vec<Field> = Vec::new();
    for _ in 0..1 + seed.below(5) {
        let name = seed.one(&NAMES).to_string();
        if fields.iter().all(|f| f.name != name) {
            fields.push(field(name, *seed.one(&TYPES)));
        }
    }
    StreamSchema { fields, key: None }
}

/// Statements of the subset and a little beyond.
struct Writer<'s> {
    seed: &'s mut Seed,
    columns: Vec<(String, char)>,
    /// Whether an aggregate is allowed here.
    aggregates: bool,
}

impl Writer<'_> {
    fn column(&mut self, kind: char) -> Option<String> {
        let fitting: Vec<_> = self
            .columns
            .iter()
            .filter(|(_, k)| *k == kind || kind == '*')
            .collect();
        if fitting.is_empty() {
            return None;
        }
        let name = &self.seed.one(&fitting).0;
        let quote = self.seed.chance(30) || name == "true";
        let name = match quote {
            true => format!("\"{name}\""),
            false if self.seed.chance(20) => name.to_ascii_uppercase(),
            false => name.clone(),
        };
        Some(match self.seed.chance(20) {
            true => format!("s.{name}"),
            false => name,
        })
    }

    fn number(&mut self, depth: usize) -> String {
        if self.aggregates && self.seed.chance(40) {
            return self.aggregate(depth);
        }
        if depth == 0 || self.seed.chance(15) {
            let column = match self.aggregates {
                true => None,
                false => {
                    let kind = if self.seed.chance(50) { 'r' } else { 'i' };
                    self.column(kind)
                }
            };
            return column.filter(|_| self.seed.chance(75)).unwrap_or_else(|| {
                const LITERALS: [&str; 22] = [
                    "0",
                    "1",
                    "2",
                    "-1",
                    "- 3",
                    "0.5",
                    "1.5",
                    ".5",
                    "2.",
                    "1e3",
                    "1E-2",
                    "1e400",
                    "-0.0",
                    "9223372036854775807",
                    "9223372036854775808",
                    "-9223372036854775808",
                    "4.35",
                    "123456789012345678901234567890.5",
                    "null",
                    "true",
                    "FALSE",
                    "+7",
                ];
                (*self.seed.one(&LITERALS)).to_owned()
            });
        }
        let depth = depth - 1;
        match self.seed.below(18) {
            0..=4 => {
                let (left, right) = (self.number(depth), self.number(depth));
                let operator = *self.seed.one(&["+", "-", "*", "/", "%"]);
                match self.seed.chance(50) {
                    true => format!("{left} {operator} {right}"),
                    false => format!("({left}) {operator} ({right})"),
                }
            }
            5 => format!("-({})", self.number(depth)),
            6 => format!("- {}", self.number(depth)),
            7 => format!("abs({})", self.number(depth)),
            8 => format!("round({})", self.number(depth)),
            9 => format!("round({}, {})", self.number(depth), self.seed.below(5)),
            10 => format!(
                "cast({} as {})",
                self.number(depth),
                self.seed.one(&["integer", "REAL", "int", "double"])
            ),
            11 => {
                let name = *self
                    .seed
                    .one(&["min", "max", "coalesce", "nullif", "ifnull"]);
                format!("{name}({}, {})", self.number(depth), self.number(depth))
            }
            12 => format!(
                "case when {} then {} else {} end",
                self.truth(depth),
                self.number(depth),
                self.number(depth)
            ),
            13 => format!(
                "case {} when {} then {} end",
                self.number(depth),
                self.number(depth),
                self.number(depth)
            ),
            14 => format!(
                "iif({}, {}, {})",
                self.truth(depth),
                self.number(depth),
                self.number(depth)
            ),
            15 => format!("length({})", self.text(depth)),
            16 => {
                let name = *self.seed.one(&[
                    "sqrt", "floor", "ceil", "exp", "ln", "sign", "sin", "radians",
                ]);
                format!("{name}({})", self.number(depth))
            }
            _ => format!("({})", self.truth(depth)),
        }
    }

    fn text(&mut self, depth: usize) -> String {
        if depth == 0 || self.aggregates || self.seed.chance(30) {
            let column = if self.aggregates {
                None
            } else {
                self.column('t')
            };
            return column.filter(|_| self.seed.chance(70)).unwrap_or_else(|| {
                const LITERALS: [&str; 7] =
                    ["'abc'", "''", "'it''s'", "'good'", "'Ä1'", "null", "'10'"];
                (*self.seed.one(&LITERALS)).to_owned()
            });
        }
        let depth = depth - 1;
        match self.seed.below(6) {
            0 => format!("upper({})", self.text(depth)),
            1 => format!("lower({})", self.text(depth)),
            2 => format!("{} || {}", self.text(depth), self.text(depth)),
            3 => format!("coalesce({}, {})", self.text(depth), self.text(depth)),
            4 => format!(
                "cast({} as text)",
                self.column('i').unwrap_or_else(|| "12".into())
            ),
            _ => format!(
                "iif({}, {}, {})",
                self.truth(depth),
                self.text(depth),
                self.text(depth)
            ),
        }
    }

    fn any(&mut self, depth: usize) -> String {
        match self.seed.below(4) {
            0 => self.text(depth),
            1 if !self.aggregates => self.column('*').unwrap_or_else(|| "1".into()),
            _ => self.number(depth),
        }
    }

    fn truth(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.number(0);
        }
        let depth = depth - 1;
        match self.seed.below(14) {
            0..=3 => {
                let operator = *self
                    .seed
                    .one(&["=", "==", "<>", "!=", "<", "<=", ">", ">=", "is", "is not"]);
                match self.seed.chance(80) {
                    true => format!("{} {operator} {}", self.number(depth), self.number(depth)),
                    false => format!("{} {operator} {}", self.any(depth), self.any(depth)),
                }
            }
            4 => format!(
                "{} {} {}",
                self.text(depth),
                self.seed.one(&["=", "<", ">="]),
                self.text(depth)
            ),
            5 => format!("{} and {}", self.truth(depth), self.truth(depth)),
            6 => format!("({}) or {}", self.truth(depth), self.truth(depth)),
            7 => format!("not {}", self.truth(depth)),
            8 => format!(
                "{} {}",
                self.any(depth),
                self.seed
                    .one(&["is null", "is not null", "isnull", "notnull", "not null"])
            ),
            9 => format!(
                "{} {}between {} and {}",
                self.number(depth),
                self.seed.one(&["", "not "]),
                self.number(depth),
                self.number(depth)
            ),
            10 => {
                let list: Vec<String> = (0..self.seed.below(4)).map(|_| self.any(depth)).collect();
                format!(
                    "{} {}in ({})",
                    self.any(depth),
                    self.seed.one(&["", "not "]),
                    list.join(", ")
                )
            }
            11 => {
                let pattern = *self
                    .seed
                    .one(&["a%", "%", "_", "%b%", "A_c", "%ä", "x%y_", "", "good", "1%"]);
                format!(
                    "{} {}like '{pattern}'",
                    self.text(depth),
                    self.seed.one(&["", "not "])
                )
            }
            12 => format!(
                "{} is {}{}",
                self.number(depth),
                self.seed.one(&["", "not "]),
                self.seed.one(&["true", "false"])
            ),
            _ => self.number(depth),
        }
    }

    fn aggregate(&mut self, depth: usize) -> String {
        self.aggregates = false;
        let name = *self.seed.one(&AGGREGATES);
        let depth = depth.min(2);
        let written = match name {
            "count(*)" => name.to_owned(),
            "min" | "max" | "count" => format!("{name}({})", self.any(depth)),
            _ => format!("{name}({})", self.number(depth)),
        };
        self.aggregates = true;
        written
    }
}

/// The aggregates that are compiled.
const AGGREGATES: [&str; 13] = [
    "count",
    "sum",
    "total",
    "avg",
    "min",
    "max",
    "count(*)",
    "stddev",
    "stddev_samp",
    "stddev_pop",
    "variance",
    "var_samp",
    "var_pop",
];

fn statement(seed: &mut Seed, source: &StreamSchema) -> (String, usize) {
    let mut columns: Vec<(String, char)> = [
        ("source_time", 'i'),
        ("receive_time", 'i'),
        ("key", 't'),
        ("stream", 't'),
        ("sequence", 'i'),
        ("quality", 't'),
    ]
    .map(|(name, kind)| (name.to_owned(), kind))
    .to_vec();
    for field in &source.fields {
        let kind = match field.field_type {
            FieldType::Boolean | FieldType::Integer => 'i',
            FieldType::Double => 'r',
            FieldType::Text => 't',
            FieldType::Bytes => 'b',
            FieldType::Samples => 's',
        };
        columns.push((column_name(&field.name), kind));
    }
    let aggregates = seed.chance(35);
    let mut writer = Writer {
        seed,
        columns,
        aggregates,
    };
    let width = 1 + writer.seed.below(3);
    let mut items = Vec::new();
    for index in 0..width {
        let depth = writer.seed.below(4);
        let item = match writer.seed.below(3) {
            0 => writer.any(depth),
            1 => writer.number(depth),
            _ => writer.truth(depth),
        };
        items.push(format!("{item} as c{index}"));
    }
    writer.aggregates = false;
    let condition = match writer.seed.chance(50) {
        true => format!(" where {}", writer.truth(3)),
        false => String::new(),
    };
    (
        format!("select {} from s{condition}", items.join(", ")),
        width,
    )
}

/// To the bit; the debug form distinguishes -0.0 from 0.0, and different floats.
fn same(one: &Result<Vec<Row>, QueryError>, two: &Result<Vec<Row>, QueryError>) -> bool {
    format!("{one:?}") == format!("{two:?}")
}

fn element(seed: &mut Seed, schema: &StreamSchema, number: u64) -> Arc<StreamElement> {
    Arc::new(StreamElement {
        position: Position {
            epoch: Epoch(1),
            sequence: number,
        },
        source_time: Timestamp(number as i64 * 4 + seed.below(9) as i64),
        receive_time: Timestamp(number as i64 * 4),
        key: seed.chance(50).then(|| (*seed.one(&TEXTS)).to_owned()),
        values: schema
            .fields
            .iter()
            .map(|f| value(seed, f.field_type))
            .collect(),
        origin: None,
        quality: *seed.one(&[Quality::Good, Quality::Questionable, Quality::Bad]),
    })
}

/// Evaluates one statement over one window on both paths; returns the kind of result.
fn run(number: u64, reasons: &mut BTreeMap<String, u32>) {
    let mut seed = Seed(number);
    let source = schema(&mut seed);
    let (text, width) = statement(&mut seed, &source);
    let output = StreamSchema {
        fields: (0..width)
            .map(|i| field(format!("c{i}"), *seed.one(&TYPES[1..5])))
            .collect(),
        key: None,
    };
    let sources = [QuerySource {
        alias: "s".into(),
        schema: source.clone(),
        value: None,
    }];
    let limits = QueryLimits::default();
    let planned = PlannedQuery::new(&sources, &text, &output, limits);
    let sqlite = SqliteQuery::new(&sources, &text, &output, limits);
    let (mut planned, mut sqlite) = match (planned, sqlite) {
        (Ok(planned), Ok(sqlite)) => (planned, sqlite),
        (Err(one), Err(two)) => {
            assert_eq!(one, two);
            *reasons.entry(format!("refused: {one}")).or_default() += 1;
            return;
        }
        (one, two) => panic!("seed {number}: {text}: {one:?} but {two:?}"),
    };
    match planned.plan() {
        QueryPlan::Compiled => *reasons.entry("compiled".into()).or_default() += 1,
        QueryPlan::Sqlite { reason } => {
            *reasons.entry(reason.clone()).or_default() += 1;
            return;
        }
    }
    let extent = match seed.below(3) {
        0 => Extent::Count(1),
        1 => Extent::Count(1 + seed.below(5)),
        _ => Extent::Time(Duration::from_nanos(1 + seed.below(30) as u64)),
    };
    let mut window = Window::new(extent, LatePolicy::Insert, WindowLimits::default());
    for step in 0..12 {
        let element = element(&mut seed, &source, step + 1);
        let _ = window.push("ward.s".into(), element);
        if step == 7 && seed.chance(20) {
            window.remove_stream("ward.s");
        }
        if !seed.chance(80) {
            continue;
        }
        let change = [window.take_change()];
        let (one, two) = (planned.evaluate(&change), sqlite.evaluate(&change));
        *reasons.entry("evaluations".into()).or_default() += 1;
        assert!(
            same(&one, &two),
            "seed {number}: {text}\n{source:?}\n{output:?}\nover {:?}\ncompiled {one:?}\nSQLite   {two:?}",
            window.elements().map(|a| &a.element).collect::<Vec<_>>(),
        );
    }
    *reasons.entry("asked SQLite".into()).or_default() += planned.sqlite_evaluations() as u32;
}

#[test]
fn both_paths_agree() {
    let mut reasons = BTreeMap::new();
    for number in 0..CASES {
        run(number, &mut reasons);
    }
    let compiled = reasons.get("compiled").copied().unwrap_or(0);
    let mut common: Vec<_> = reasons.iter().collect();
    common.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (reason, count) in common.iter().take(30) {
        println!("{count} {reason}");
    }
    // Else nothing much was compared.
    assert!(
        u64::from(compiled) * 2 > CASES,
        "{compiled} of {CASES}: {reasons:?}"
    );
}

/// Both paths of one statement over a field of type double, which give doubles.
fn paths(text: &str) -> (PlannedQuery, SqliteQuery) {
    let schema = StreamSchema {
        fields: vec![field("a".into(), FieldType::Double)],
        key: None,
    };
    let sources = [QuerySource {
        alias: "s".into(),
        schema: schema.clone(),
        value: None,
    }];
    let limits = QueryLimits::default();
    let planned = PlannedQuery::new(&sources, text, &schema, limits).expect("prepares");
    let sqlite = SqliteQuery::new(&sources, text, &schema, limits).expect("prepares");
    (planned, sqlite)
}

/// A window that holds these elements and held none before.
fn window_of(values: impl IntoIterator<Item = f64>) -> WindowChange {
    let schema = StreamSchema {
        fields: vec![field("a".into(), FieldType::Double)],
        key: None,
    };
    let mut seed = Seed(0);
    let added = values.into_iter().enumerate().map(|(number, value)| {
        let mut element = StreamElement::clone(&element(&mut seed, &schema, number as u64));
        element.values = vec![Value::Double(value)];
        Arrival {
            number: number as u64,
            stream: "ward.s".into(),
            element: Arc::new(element),
        }
    });
    WindowChange {
        added: added.collect(),
        removed: vec![],
    }
}

#[test]
fn rounding_is_that_of_sqlite() {
    let mut seed = Seed(7);
    for digits in 0..=12 {
        let unit = 10_f64.powi(digits);
        let values: Vec<f64> = (0..ROUNDED)
            .map(|_| match seed.below(4) {
                // Ties and their neighbours, then anything.
                0 => (seed.below(2_000_001) as f64 - 1e6 + 0.5) / unit,
                1 => (seed.below(2_000_001) as f64 - 1e6) / 1024.0,
                2 => f64::from_bits(
                    ((seed.below(2_000_000) as f64 + 0.5) / unit).to_bits() + seed.below(3) as u64
                        - 1,
                ),
                _ => real(&mut seed),
            })
            .collect();
        let (mut planned, mut sqlite) = paths(&format!("select round(a, {digits}) as a from s"));
        assert_eq!(planned.plan(), &QueryPlan::Compiled);
        // One by one, so that a value beyond the compiled path does not take the others along.
        for value in &values {
            let mut change = window_of([*value]);
            change.removed = vec![0];
            let (one, two) = (
                planned.evaluate(std::slice::from_ref(&change)),
                sqlite.evaluate(&[change]),
            );
            assert!(
                same(&one, &two),
                "round({value:?}, {digits}): {one:?}, SQLite {two:?}"
            );
        }
        let asked = planned.sqlite_evaluations();
        assert!(
            asked * 4 < ROUNDED as u64,
            "{digits} digits: SQLite was asked {asked} times"
        );
    }
}

#[test]
fn sums_are_those_of_sqlite() {
    let mut seed = Seed(8);
    let (mut planned, mut sqlite) =
        paths("select sum(a) - avg(a) * count(*) + total(a) as a from s");
    assert_eq!(planned.plan(), &QueryPlan::Compiled);
    for _ in 0..20 {
        let mut change = window_of(
            (0..500)
                .map(|_| real(&mut seed) / 7.0)
                .filter(|v| v.abs() < 1e12),
        );
        change.removed = (0..500).collect();
        let (one, two) = (
            planned.evaluate(std::slice::from_ref(&change)),
            sqlite.evaluate(&[change]),
        );
        assert!(same(&one, &two), "{one:?}, SQLite {two:?}");
    }
    assert_eq!(planned.sqlite_evaluations(), 0);
}

/// Aggregates that follow a window, against SQLite over the whole window each time.
#[test]
fn aggregates_that_follow_a_window_are_those_over_all_of_it() {
    let schema = StreamSchema {
        fields: vec![
            field("d".into(), FieldType::Double),
            field("i".into(), FieldType::Integer),
        ],
        key: None,
    };
    let sources = [QuerySource {
        alias: "s".into(),
        schema: schema.clone(),
        value: None,
    }];
    let columns = AGGREGATES.iter().filter(|name| **name != "count(*)");
    let columns: Vec<String> = columns
        .flat_map(|name| {
            [
                format!("{name}(d)"),
                format!("{name}(i)"),
                format!("{name}(iif(i > 2, i, d))"),
            ]
        })
        .collect();
    for seed_number in 0..25 {
        let mut seed = Seed(900 + seed_number);
        // At most eight are kept.
        let width = 1 + seed.below(8);
        let chosen: Vec<String> = (0..width)
            .map(|at| format!("{} as c{at}", seed.one(&columns)))
            .collect();
        let text = format!("select {} from s where quality <> 'bad'", chosen.join(", "));
        let output = StreamSchema {
            fields: (0..width)
                .map(|at| field(format!("c{at}"), FieldType::Double))
                .collect(),
            key: None,
        };
        let limits = QueryLimits::default();
        let mut planned = PlannedQuery::new(&sources, &text, &output, limits).expect(&text);
        assert_eq!(planned.plan(), &QueryPlan::Compiled, "{text}");
        let extent = match seed.chance(50) {
            true => Extent::Count(1 + seed.below(40)),
            false => Extent::Time(Duration::from_nanos(1 + seed.below(200) as u64)),
        };
        let mut window = Window::new(extent, LatePolicy::Insert, WindowLimits::default());
        for step in 0..120 {
            let element = element(&mut seed, &schema, step + 1);
            let _ = window.push("ward.s".into(), element);
            if step == 70 && seed.chance(20) {
                window.remove_stream("ward.s");
            }
            if !seed.chance(70) {
                continue;
            }
            let one = planned.evaluate(&[window.take_change()]);
            let mut fresh = SqliteQuery::new(&sources, &text, &output, limits).expect(&text);
            let whole = WindowChange {
                added: window.elements().cloned().collect(),
                removed: vec![],
            };
            let two = fresh.evaluate(&[whole]);
            assert!(
                same(&one, &two),
                "seed {seed_number}: {text}\nover {:?}\ncompiled {one:?}\nSQLite   {two:?}",
                window.elements().map(|a| &a.element).collect::<Vec<_>>(),
            );
        }
    }
}

#[test]
fn what_nests_comparisons_is_left_to_sqlite_before_it_doubles() {
    let mut text = "a".to_owned();
    for _ in 0..30 {
        text = format!("({text} between 0 and 1)");
    }
    let (planned, _) = paths(&format!("select {text} as a from s"));
    assert!(matches!(planned.plan(), QueryPlan::Sqlite { .. }));
}

#[test]
fn the_plan_says_why_sqlite_evaluates() {
    for (text, reason) in [
        ("select a from s order by a", "it uses ORDER"),
        ("select a from s group by a", "it uses GROUP"),
        ("select substr('abc', 2) as a from s", "it calls substr()"),
        (
            "select a + key as a from s",
            "it has + over a value of another type",
        ),
        (
            "select a is (a not in ()) as a from s",
            "it has IN without values",
        ),
        (
            "select t.a from s as t, s",
            "it has , in an unexpected position",
        ),
    ] {
        let (planned, _) = paths(text);
        let reason = reason.to_owned();
        assert_eq!(planned.plan(), &QueryPlan::Sqlite { reason }, "{text}");
    }
}

#[test]
fn where_sqlite_fails_the_compiled_path_fails_with_its_words() {
    let source = StreamSchema {
        fields: vec![field("i".into(), FieldType::Integer)],
        key: None,
    };
    let sources = [QuerySource {
        alias: "s".into(),
        schema: source.clone(),
        value: None,
    }];
    let limits = QueryLimits::default();
    for text in ["select abs(i) as i from s", "select sum(i) as i from s"] {
        let mut planned = PlannedQuery::new(&sources, text, &source, limits).expect("prepares");
        assert_eq!(planned.plan(), &QueryPlan::Compiled);
        let mut change = window_of([0.0, 0.0]);
        for arrival in &mut change.added {
            Arc::make_mut(&mut arrival.element).values = vec![Value::Integer(i64::MIN)];
        }
        let error = planned.evaluate(&[change]).expect_err(text);
        assert_eq!(error.to_string(), "integer overflow");
        assert_eq!(planned.sqlite_evaluations(), 1);
        // And goes on.
        let mut change = window_of([0.0]);
        Arc::make_mut(&mut change.added[0].element).values = vec![Value::Integer(-3)];
        change.removed = vec![0, 1];
        assert_eq!(planned.evaluate(&[change]).expect(text).len(), 1);
    }
}
