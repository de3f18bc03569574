//! Streams and columns that grow, and what a later run finds of them.

use chappe_stream::{FieldType, Timestamp};

use super::*;
use crate::StreamNow;

fn tables(streams_max: usize) -> Tables {
    let options = Options {
        prefix: "plant".to_owned(),
        label: "tag",
        ..Options::default()
    };
    Tables::new(options, None, streams_max)
}

fn element(values: Vec<Value>) -> StreamElement {
    StreamElement {
        values,
        source_time: Timestamp(1),
        ..crate::tests::element(0.0)
    }
}

/// Tables of a later run, of a node with the stream `plant.cpu`.
fn restarted(schema: &StreamSchema, metadata_bytes: usize) -> Tables {
    let (schema, mut again) = (schema.clone(), tables(2));
    again.attach(&NodeParts {
        stream: Arc::new(move |name| {
            (name == "plant.cpu").then(|| StreamNow {
                name: name.to_owned(),
                schema: schema.clone(),
                level: Level::Power,
                last: 1,
                source: "urn:chappe:wrapper:influx".to_owned(),
                metadata_bytes,
            })
        }),
        ..NodeParts::default()
    });
    again
}

fn add_column(tables: &mut Tables, measurement: &str, name: &str) -> Result<usize, Refusal> {
    tables.attempt(|tables| {
        let series = tables.series(measurement, std::iter::empty(), None)?;
        let (field, float) = (Column::Field, FieldKind::Float);
        tables.column(series.table, field, name, float, None)
    })
}

#[test]
fn names_that_differ_in_case_stay_apart_after_a_restart() {
    let mut before = tables(2);
    for (measurement, is_taken) in [("CPU", true), ("cpu", false)] {
        let added = add_column(&mut before, measurement, "Idle");
        assert_eq!(added.is_ok(), is_taken, "{measurement}: {added:?}");
    }
    assert_eq!(add_column(&mut before, "CPU", "idle"), Ok(1));
    let schema = before.tables[0].definition.schema.clone();
    // The other one comes first now.
    let mut after = restarted(&schema, 100);
    let refusal = add_column(&mut after, "cpu", "idle").unwrap_err();
    assert!(refusal.contains("\"CPU\""), "{refusal}");
    assert_eq!(add_column(&mut after, "CPU", "idle"), Ok(1));
    assert_eq!(add_column(&mut after, "CPU", "Idle"), Ok(0));
    // The same with a measurement that the name of the stream tells.
    let mut before = tables(2);
    add_column(&mut before, "cpu", "idle").unwrap();
    let schema = before.tables[0].definition.schema.clone();
    let mut after = restarted(&schema, 100);
    assert!(add_column(&mut after, "CPU", "idle").is_err());
    assert_eq!(add_column(&mut after, "cpu", "idle"), Ok(0));
}

#[test]
fn a_field_keeps_the_unit_of_its_elements() {
    let mut plain = tables(2);
    let options = Options {
        units: [("cpu".to_owned(), "s".to_owned())].into(),
        ..plain.options.clone()
    };
    let told = |tables: &mut Tables, unit| {
        let series = tables.series("cpu", std::iter::empty(), None)?;
        let (field, float) = (Column::Field, FieldKind::Float);
        tables.column(series.table, field, "idle", float, unit)
    };
    assert_eq!(told(&mut plain, Some("s")), Ok(0));
    assert_eq!(told(&mut plain, None), Ok(0));
    let refusal = told(&mut plain, Some("ms")).unwrap_err();
    assert!(
        refusal.contains("\"ms\"") && refusal.contains("\"s\""),
        "{refusal}"
    );
    let mut decided = Tables::new(options, None, 2);
    assert_eq!(told(&mut decided, Some("s")), Ok(0));
    assert_eq!(told(&mut decided, Some("ms")), Ok(0), "the file decides");
}

#[test]
fn new_names_do_not_take_the_places_of_streams_that_are_there() {
    let mut before = tables(2);
    add_column(&mut before, "cpu", "idle").unwrap();
    let schema = before.tables[0].definition.schema.clone();
    let mut after = restarted(&schema, 100);
    for name in ["one", "two"] {
        assert!(add_column(&mut after, name, "v").is_ok());
    }
    assert!(add_column(&mut after, "three", "v").is_err());
    assert_eq!(add_column(&mut after, "cpu", "idle"), Ok(0));
}

#[test]
fn a_wide_stream_gets_columns_after_a_restart_while_there_is_room() {
    let mut before = tables(2);
    for number in 0..200 {
        let name = format!("a_column_of_a_wide_stream_{number}");
        assert_eq!(add_column(&mut before, "cpu", &name), Ok(number));
    }
    let schema = before.tables[0].definition.schema.clone();
    let mut after = restarted(&schema, 30 << 10);
    assert_eq!(add_column(&mut after, "cpu", "new"), Ok(200));
    let mut full = restarted(&schema, VERSIONS_BYTES_MAX);
    let refusal = add_column(&mut full, "cpu", "new").unwrap_err();
    assert!(refusal.contains("version of its schema"), "{refusal}");
    assert!(add_column(&mut full, "cpu", "a_column_of_a_wide_stream_0").is_ok());
}

#[test]
fn a_stream_has_columns_for_all_tags_and_fields_that_occurred() {
    let mut tables = tables(2);
    let first = [("line", "3"), ("Machine", "press")];
    let series = tables.series("cpu", first.into_iter(), None).unwrap();
    let mut values = tables.values(&series);
    let float = FieldKind::Float;
    let column = tables
        .column(series.table, Column::Field, "line", float, None)
        .unwrap();
    values.resize(column + 1, Value::Null);
    values[column] = Value::Double(1.0);
    tables.push(&series, element(values));
    let conflict = tables.column(0, Column::Field, "line", FieldKind::Integer, None);
    assert!(
        conflict
            .unwrap_err()
            .contains("is type integer, already exists as type float")
    );
    let other = tables
        .series("cpu", [("host", "a")].into_iter(), None)
        .unwrap();
    let values = tables.values(&other);
    tables.push(&other, element(values));
    let mut batch = Batch::default();
    tables.take(&mut batch);
    let part = &batch.parts[0];
    let names: Vec<&str> = part
        .definition
        .schema
        .fields
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(
        (&*part.stream, names),
        ("plant.cpu", vec!["machine", "line", "line_2", "host"])
    );
    let keys: Vec<_> = part.elements.iter().map(|it| it.key.as_deref()).collect();
    assert_eq!(keys, [Some("Machine=press,line=3"), Some("host=a")]);
    assert!(
        part.elements
            .iter()
            .all(|element| element.values.len() == 4)
    );
    // A restart finds the same columns.
    let mut again = restarted(&part.definition.schema, 100);
    let series = again.series("cpu", first.into_iter(), None).unwrap();
    assert_eq!(
        again.column(series.table, Column::Field, "line", float, None),
        Ok(column)
    );
    assert_eq!(again.values(&series)[1], Value::Text("3".to_owned()));
}

#[test]
fn streams_and_columns_have_bounds() {
    let mut tables = tables(1);
    let none = std::iter::empty;
    let series = tables.series("a", none(), None).unwrap();
    assert!(
        tables
            .series("b", none(), None)
            .unwrap_err()
            .contains("limits.streams")
    );
    assert!(
        tables
            .series("A", none(), None)
            .unwrap_err()
            .contains("same stream")
    );
    for number in 0..COLUMNS_MAX {
        let name = format!("f{number}");
        let added = tables.column(series.table, Column::Field, &name, FieldKind::Float, None);
        assert_eq!(added, Ok(number));
    }
    let one_more = tables.column(series.table, Column::Field, "g", FieldKind::Float, None);
    assert!(one_more.unwrap_err().contains("256 columns"));
    let twice = [("a", "1"), ("a", "2")];
    assert!(
        tables
            .series("a", twice.into_iter(), None)
            .unwrap_err()
            .contains("twice")
    );
}

#[test]
fn versions_of_a_schema_have_a_bound() {
    let mut tables = tables(1);
    let series = tables.series("a", std::iter::empty(), None).unwrap();
    let mut add = |number: usize| {
        let name = format!("{number}{}", "x".repeat(200));
        let float = FieldKind::Float;
        let column = tables
            .attempt(|tables| tables.column(series.table, Column::Field, &name, float, None))?;
        tables.push(&series, element(vec![Value::Null; column + 1]));
        let mut batch = Batch::default();
        tables.take(&mut batch);
        Ok(batch.parts.remove(0).definition)
    };
    // As the store counts: the texts of all columns in all versions.
    let mut bytes = 0;
    let refusal: String = (0..COLUMNS_MAX)
        .find_map(|number| match add(number) {
            Err(refusal) => Some(refusal),
            Ok(definition) => {
                let fields = definition.schema.fields.iter();
                let texts = fields
                    .map(|it| it.name.len() + it.description.as_ref().map_or(0, String::len) + 8);
                bytes += texts.sum::<usize>();
                None
            }
        })
        .unwrap();
    assert!(refusal.contains("version of its schema"), "{refusal}");
    assert!((150_000..256 << 10).contains(&bytes), "{bytes}");
    // The columns before it are still taken.
    assert!(add(0).is_ok());
}

#[test]
fn a_long_description_is_cut() {
    let mut tables = tables(1);
    let help = "x".repeat(100_000);
    tables.series("a", std::iter::empty(), Some(&help)).unwrap();
    let description = tables.tables[0].definition.description.as_ref();
    assert_eq!(description.map(String::len), Some(HELP_CHARS_MAX));
}

#[test]
fn long_names_stay_apart() {
    assert_eq!(part("http_requests:rate5m"), "http_requests-rate5m");
    assert_eq!(part("__x"), "x");
    assert_eq!(part("é"), "unnamed");
    let long = "a".repeat(200);
    let (one, other) = (part(&format!("{long}1")), part(&format!("{long}2")));
    assert!(one != other && one.len() <= PART_BYTES_MAX && check_name(&one).is_ok());
}

#[test]
fn units_are_those_of_the_file_or_of_names() {
    let mut tables = tables(1);
    let units = [("m.pressure".to_owned(), "kPa".to_owned())];
    tables.options.units = units.into();
    let series = tables.series("m", std::iter::empty(), None).unwrap();
    for (name, told) in [
        ("pressure", None),
        ("wait_seconds", None),
        ("x", Some("Cel")),
    ] {
        let column = (Column::Field, FieldKind::Float);
        tables
            .column(series.table, column.0, name, column.1, told)
            .unwrap();
    }
    let fields = &tables.tables[0].definition.schema.fields;
    let units: Vec<_> = fields.iter().map(|field| field.unit.as_deref()).collect();
    assert_eq!(units, [Some("kPa"), Some("s"), Some("Cel")]);
    assert_eq!(fields[0].field_type, FieldType::Double);
}
