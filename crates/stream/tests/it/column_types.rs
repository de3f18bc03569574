//! Goal: a column has the type of its field, so that SQLite converts the other side of a comparison, in windows and
//! over stored elements alike; doubles and the number of an element have none.
//! Method: conditions that compare a text with a number or the reverse, over one element.

use std::time::Duration;

use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::sqlite::{HistoryLimits, Scope, query_streams};
use chappe_stream::*;

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

/// Conditions and whether they are true of the element.
const CONDITIONS: [(&str, bool); 21] = [
    ("key = 7", true),
    ("key = '7'", true),
    ("key = 7.0", false),
    ("key in (1, 7)", true),
    ("i = '42'", true),
    ("i = ' 42 '", true),
    ("i = 'x'", false),
    ("i > '5'", true),
    ("i between '40' and '50'", true),
    ("d = 1.5", true),
    ("d = '1.5'", false),
    ("b = '1'", true),
    ("t = 9", true),
    ("t is 9", true),
    ("t <> 9", false),
    ("case t when 9 then 1 else 0 end", true),
    ("source_time = '1000'", true),
    ("receive_time < '2000'", true),
    ("quality = 0", false),
    ("sequence = 1", true),
    ("sequence = '1'", false),
];

#[test]
fn comparisons_convert_by_the_type_of_the_column() {
    let schema = schema(&[
        ("i", FieldType::Integer),
        ("d", FieldType::Double),
        ("b", FieldType::Boolean),
        ("t", FieldType::Text),
    ]);
    let element = StreamElement {
        position: Position::default(),
        source_time: Timestamp(1_000),
        receive_time: Timestamp(1_005),
        key: Some("7".into()),
        values: vec![
            Value::Integer(42),
            Value::Double(1.5),
            Value::Boolean(true),
            Value::Text("9".into()),
        ],
        quality: Quality::Good,
        origin: None,
    };
    let disk = Box::new(SimDisk::new(1));
    let (store, _) = Store::open(disk, Options::default(), 7).unwrap();
    let store = StreamStore::new(store);
    let log = store.stream("s", Level::Process, &schema, None).unwrap();
    log.append(std::slice::from_ref(&element))
        .unwrap()
        .wait()
        .unwrap();
    let output = self::schema(&[("n", FieldType::Integer)]);
    let sources = [QuerySource {
        alias: "s".into(),
        schema: schema.clone(),
        value: None,
    }];
    for (condition, holds) in CONDITIONS {
        let sql = format!("select count(*) as n from s where {condition}");
        let expected = Value::Integer(i64::from(holds));
        let limits = HistoryLimits::default();
        let answer = query_streams(&sql, &[&log], limits, &Scope::default()).unwrap();
        assert_eq!(answer.rows, [[expected.clone()]], "stored: {condition}");
        let limits = QueryLimits::default();
        let mut planned = PlannedQuery::new(&sources, &sql, &output, limits).unwrap();
        let extent = Extent::Time(Duration::from_secs(1));
        let mut window = Window::new(extent, LatePolicy::Insert, WindowLimits::default());
        let mut numbered = element.clone();
        numbered.position.sequence = 1;
        window.push("s".into(), numbered.into()).unwrap();
        let rows = planned.evaluate(&[window.take_change()]).unwrap();
        assert_eq!(rows[0].values, [expected], "window: {condition}");
    }
}
