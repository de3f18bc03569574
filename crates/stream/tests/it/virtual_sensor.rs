//! Goal: a virtual sensor runs while all its sources are bound, follows rebinding, evaluates once
//! more for a source that fell silent, and survives misfits.
//! Method: the machine in the harness on virtual time, with its invariants checked after every
//! input; seeded sequences of bindings, elements, pauses and misfits.

use std::sync::Arc;
use std::time::Duration;

use chappe_machine::{Harness, Input, Invariant, Output};
use chappe_stream::*;
use proptest::prelude::*;

const MEAN: &str = r#"
name = "mean"
[[source]]
alias = "t"
query = { observed_property = "urn:temperature" }
bind = "all"
window = "10s"
slide = "2s"
[output]
sql = "select avg(value) as mean, count(distinct stream) as streams from t having count(*) > 0"
[[output.field]]
name = "mean"
type = "double"
[[output.field]]
name = "streams"
type = "integer"
"#;

struct Sensor(VirtualSensor);

impl Invariant for Sensor {
    fn check(&self) -> Result<(), String> {
        let counters = self.0.counters();
        if counters.failures > counters.evaluations {
            return Err(format!("{counters:?}"));
        }
        if matches!(self.0.state(), SensorState::Waiting(aliases) if aliases.is_empty()) {
            return Err("waits for nothing".into());
        }
        Ok(())
    }
}

impl chappe_machine::Machine for Sensor {
    type Receive = SensorInput;
    type Command = SensorCommand;
    type Transmit = std::convert::Infallible;
    type Event = SensorEvent;
    fn handle_input(
        &mut self,
        now: chappe_machine::Instant,
        input: Input<SensorInput, SensorCommand>,
    ) {
        self.0.handle_input(now, input);
    }
    fn poll_output(&mut self) -> Option<Output<Self::Transmit, SensorEvent>> {
        self.0.poll_output()
    }
    fn deadline(&self) -> Option<chappe_machine::Instant> {
        self.0.deadline()
    }
}

fn harness(text: &str) -> Harness<Sensor> {
    let descriptor = Descriptor::parse("test.toml", text).expect("descriptor");
    let sensor = VirtualSensor::new(descriptor, SensorLimits::default());
    Harness::new(Sensor(sensor), 0)
}

fn schema(name: &str) -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: name.into(),
            field_type: FieldType::Double,
            unit: None,
            observed_property: Some("urn:temperature".into()),
            description: None,
        }],
        key: None,
    }
}

fn bind(alias: &str, stream: &str, schema: StreamSchema) -> Input<SensorInput, SensorCommand> {
    Input::Command(SensorCommand::Bind {
        alias: alias.into(),
        stream: stream.into(),
        schema,
    })
}

fn unbind(alias: &str, stream: &str) -> Input<SensorInput, SensorCommand> {
    Input::Command(SensorCommand::Unbind {
        alias: alias.into(),
        stream: stream.into(),
    })
}

fn end_slides(alias: &str) -> Input<SensorInput, SensorCommand> {
    let alias = alias.into();
    Input::Command(SensorCommand::EndSlides { alias })
}

fn receive(stream: &str, time_ms: i64, values: Vec<Value>) -> Input<SensorInput, SensorCommand> {
    Input::Receive(SensorInput {
        stream: stream.into(),
        element: Arc::new(StreamElement {
            position: Position::default(),
            source_time: Timestamp(time_ms * 1_000_000),
            receive_time: Timestamp(time_ms * 1_000_000 + 1),
            key: None,
            values,
            quality: match is_odd(time_ms) {
                true => Quality::Questionable,
                false => Quality::Good,
            },
            origin: None,
        }),
    })
}

fn is_odd(time_ms: i64) -> bool {
    time_ms % 2 == 1
}

fn events(
    harness: &mut Harness<Sensor>,
    input: Input<SensorInput, SensorCommand>,
) -> Vec<SensorEvent> {
    let outputs = harness.input(input).expect("invariants hold");
    told(outputs)
}

fn told(outputs: Vec<Output<std::convert::Infallible, SensorEvent>>) -> Vec<SensorEvent> {
    let event = |output| match output {
        Output::Event(event) => event,
        Output::Transmit(never) => match never {},
    };
    outputs.into_iter().map(event).collect()
}

/// The mean and the number of streams in the only output.
fn output(events: &[SensorEvent]) -> (f64, i64) {
    let [SensorEvent::Output(element)] = events else {
        panic!("{events:?}");
    };
    match element.values[..] {
        [Value::Double(mean), Value::Integer(streams)] => (mean, streams),
        _ => panic!("{element:?}"),
    }
}

#[test]
fn it_waits_runs_follows_rebinding_and_stops() {
    let mut harness = harness(MEAN);
    let waiting = SensorState::Waiting(vec!["t".into()]);
    assert_eq!(harness.machine().0.state(), &waiting);
    let running = events(&mut harness, bind("t", "a", schema("temp")));
    assert_eq!(running, [SensorEvent::Running]);
    let first = events(&mut harness, receive("a", 0, vec![Value::Double(20.0)]));
    assert_eq!(output(&first), (20.0, 1));
    // Another device calls the same another name.
    events(&mut harness, bind("t", "b", schema("value")));
    let both = events(&mut harness, receive("b", 2_000, vec![Value::Double(30.0)]));
    assert_eq!(output(&both), (25.0, 2));
    // What it gave leaves with it.
    assert_eq!(events(&mut harness, unbind("t", "a")), []);
    let one = events(&mut harness, receive("b", 4_000, vec![Value::Double(40.0)]));
    assert_eq!(output(&one), (35.0, 1));
    let aliases = vec!["t".to_owned()];
    let waiting = events(&mut harness, unbind("t", "b"));
    assert_eq!(waiting, [SensorEvent::Waiting { aliases }]);
    assert_eq!(
        events(&mut harness, receive("b", 6_000, vec![Value::Double(1.0)])),
        []
    );
    assert_eq!(harness.machine().0.counters().strangers, 1);
    events(&mut harness, bind("t", "c", schema("x")));
    let replaced = events(&mut harness, receive("c", 100, vec![Value::Double(7.0)]));
    assert_eq!(
        output(&replaced),
        (7.0, 1),
        "the replacement's clock may be behind"
    );
    let stop = Input::Command(SensorCommand::Stop);
    assert_eq!(events(&mut harness, stop), [SensorEvent::Stopped]);
    assert_eq!(events(&mut harness, bind("t", "c", schema("x"))), []);
}

#[test]
fn a_source_that_falls_silent_within_a_slide_is_looked_at_once_more() {
    let mut harness = harness(MEAN);
    events(&mut harness, bind("t", "a", schema("x")));
    events(&mut harness, receive("a", 0, vec![Value::Double(1.0)]));
    assert_eq!(harness.deadline(), None);
    assert_eq!(
        events(&mut harness, receive("a", 500, vec![Value::Double(3.0)])),
        []
    );
    let early = told(
        harness
            .advance(Duration::from_millis(3_900))
            .expect("holds"),
    );
    assert_eq!(early, []);
    let late = told(harness.advance(Duration::from_millis(200)).expect("holds"));
    assert_eq!(output(&late), (2.0, 1));
    let silent = told(harness.advance(Duration::from_secs(60)).expect("holds"));
    assert_eq!(silent, []);
}

#[test]
fn the_last_slide_is_evaluated_before_a_source_loses_its_stream() {
    // With `wait`, the slide is evaluated as a whole, without it also at its first element.
    for (wait, before) in [("", 1), ("wait = \"1s\"", 0)] {
        let text = MEAN.replace("slide = \"2s\"", &format!("slide = \"2s\"\n{wait}"));
        let mut harness = harness(&text);
        events(&mut harness, bind("t", "a", schema("x")));
        let mut evaluated = events(&mut harness, receive("a", 0, vec![Value::Double(1.0)]));
        evaluated.extend(events(
            &mut harness,
            receive("a", 500, vec![Value::Double(3.0)]),
        ));
        assert_eq!(evaluated.len(), before, "{wait}");
        assert_eq!(
            output(&events(&mut harness, end_slides("t"))),
            (2.0, 1),
            "{wait}"
        );
        // Nothing waits any more, neither now nor later.
        assert_eq!(events(&mut harness, end_slides("t")), [], "{wait}");
        assert_eq!(harness.deadline(), None, "{wait}");
        let left = events(&mut harness, unbind("t", "a"));
        assert!(
            matches!(left[..], [SensorEvent::Waiting { .. }]),
            "{left:?}"
        );
    }
}

#[test]
fn times_and_quality_come_from_the_inputs() {
    let mut harness = harness(MEAN);
    events(&mut harness, bind("t", "a", schema("x")));
    let told = events(&mut harness, receive("a", 1, vec![Value::Double(1.0)]));
    let [SensorEvent::Output(element)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(element.source_time, Timestamp(1_000_000));
    assert_eq!(element.receive_time, Timestamp(1_000_001));
    assert_eq!(element.quality, Quality::Questionable);
    assert_eq!(element.position, Position::default());
}

#[test]
fn what_does_not_fit_is_counted_and_told_once() {
    let mut harness = harness(
        &MEAN
            .replace(
                "avg(value)",
                "abs(-9223372036854775807 - cast(value as integer))",
            )
            .replace("having count(*) > 0", "")
            .replace("\"10s\"", "1")
            .replace("\"2s\"", "1"),
    );
    events(&mut harness, bind("t", "a", schema("x")));
    assert_eq!(
        events(
            &mut harness,
            receive("a", 0, vec![Value::Text("no".into())])
        ),
        []
    );
    assert_eq!(events(&mut harness, receive("a", 0, vec![])), []);
    assert_eq!(harness.machine().0.counters().misfits, 2);
    // -2^63 has no absolute value.
    let failed = events(&mut harness, receive("a", 2, vec![Value::Double(1.0)]));
    assert!(
        matches!(&failed[..], [SensorEvent::EvaluationFailed { .. }]),
        "{failed:?}"
    );
    assert_eq!(
        events(&mut harness, receive("a", 4, vec![Value::Double(1.0)])),
        []
    );
    let good = events(&mut harness, receive("a", 6, vec![Value::Double(-7.0)]));
    assert!(matches!(&good[..], [SensorEvent::Output(_)]), "{good:?}");
    let counters = harness.machine().0.counters();
    assert_eq!((counters.failures, counters.outputs), (2, 1));
}

#[test]
fn fields_that_the_statement_does_not_know_are_a_failure_with_a_reason() {
    let mut harness = harness(&MEAN.replace("avg(value)", "avg(pressure)"));
    let told = events(&mut harness, bind("t", "a", schema("x")));
    let reason = "no such column: pressure".to_owned();
    assert_eq!(told, [SensorEvent::Failed { reason }]);
    let mut other = schema("x");
    other.fields[0].observed_property = Some("urn:other".into());
    let mut harness = self::harness(MEAN);
    let told = events(&mut harness, bind("t", "a", other));
    let reason = "t = a: no field observes urn:temperature".to_owned();
    assert_eq!(told, [SensorEvent::Failed { reason }]);
}

#[test]
fn with_any_columns_each_field_takes_the_column_of_its_name() {
    let named = |name: &str, field_type| Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let schema = StreamSchema {
        fields: vec![
            named("a", FieldType::Integer),
            named("b", FieldType::Double),
            named("row", FieldType::Text),
        ],
        key: None,
    };
    let values = vec![
        Value::Integer(1),
        Value::Double(2.5),
        Value::Text("x".into()),
    ];
    for (sql, time_ms, is_compiled) in [
        ("select * from t", 7_000, true),
        ("SELECT a, b, \"row\" from t where b > 2;", 7_000, false),
        (
            "select a, \"row\", 5 as c, source_time - 1000000000 as source_time from t -- c",
            6_000,
            false,
        ),
    ] {
        let text = format!(
            "name = 'x'\n[[source]]\nalias = 't'\nstream = 's'\n[output]\ncolumns = 'any'\nsql = '''{sql}'''\n\
             [[output.field]]\nname = 'row'\ntype = 'text'\n[[output.field]]\nname = 'lack'\ntype = 'double'\n\
             [[output.field]]\nname = 'a'\ntype = 'integer'\n"
        );
        let mut harness = self::harness(&text);
        let running = events(&mut harness, bind("t", "s", schema.clone()));
        assert_eq!(running, [SensorEvent::Running], "{sql}");
        let told = events(&mut harness, receive("s", 7_000, values.clone()));
        let [SensorEvent::Output(element)] = &told[..] else {
            panic!("{sql}: {told:?}");
        };
        let expected = [Value::Text("x".into()), Value::Null, Value::Integer(1)];
        assert_eq!(element.values, expected, "{sql}");
        assert_eq!(element.source_time, Timestamp(time_ms * 1_000_000), "{sql}");
        assert_eq!(harness.machine().0.is_compiled(), is_compiled, "{sql}");
        let exact = text.replace("columns = 'any'\n", "");
        let told = events(&mut self::harness(&exact), bind("t", "s", schema.clone()));
        assert!(
            matches!(told[..], [SensorEvent::Failed { .. }]),
            "{sql}: {told:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_breaks_it(steps in prop::collection::vec((0_u8..8, 0_u8..3, 0_i64..9_000), 1..60)) {
        let mut harness = harness(MEAN);
        let mut bound = std::collections::BTreeSet::new();
        for (what, stream, number) in steps {
            let name = format!("s{stream}");
            let outputs = match what {
                0 => {
                    bound.insert(stream);
                    let field = if number % 2 == 0 { "x" } else { "value" };
                    harness.input(bind("t", &name, schema(field)))
                }
                1 => {
                    bound.remove(&stream);
                    harness.input(unbind("t", &name))
                }
                2 => harness.advance(Duration::from_millis(number.unsigned_abs())),
                3 => harness.input(receive(&name, number, vec![Value::Integer(1)])),
                4 => harness.input(end_slides("t")),
                _ => harness.input(receive(&name, number, vec![Value::Double(number as f64)])),
            };
            let outputs = outputs.map_err(|violation| {
                TestCaseError::fail(violation.to_string())
            })?;
            for event in told(outputs) {
                if let SensorEvent::Output(element) = event {
                    let Value::Integer(streams) = element.values[1] else { panic!("{element:?}") };
                    prop_assert!(streams as usize <= bound.len(), "a gone stream is counted");
                }
            }
            let running = harness.machine().0.state() == &SensorState::Running;
            prop_assert_eq!(running, !bound.is_empty());
        }
        prop_assert_eq!(harness.machine().0.counters().failures, 0);
    }
}
