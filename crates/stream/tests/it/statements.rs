//! Goal: a sensor of several statements stores the results of each, a source's own statement is applied
//! before the joining one, and rates, counts, sampling, nulls and repeated times drop what they should,
//! counted.
//! Method: the machine, fed with numbered elements; descriptors written as TOML and read again.

use std::sync::Arc;

use chappe_machine::{Input, Instant, Machine as _, Output};
use chappe_stream::descriptor::FieldInput;
use chappe_stream::*;
use proptest::prelude::*;

const TWO: &str = r#"
name = "two"
protected = true

[metadata]
latitude = 46.5
"a b" = "c\nd"
count = 3
"urn:x" = true

[[command]]
name = "set"
[[command.field]]
name = "file"
type = "binary"
required = true
max_bytes = 2097152
[[command.field]]
name = "mode"
type = "radio"
choices = ["a", "b"]
description = "which"

[[statement]]
name = "cold"
sql = "select * from t"
rate = "2s"
[[statement.source]]
alias = "t"
stream = "room"
sql = "select a + 0.0 as a, 'cold' as kind from wrapper where a < 10"

[[statement]]
name = "both"
sql = "select t.a as a, 'sum' as kind from t, other"
count = 2
[[statement.source]]
alias = "t"
stream = "room"
window = 3
sql = "with c as (select avg(a) as a from wrapper) select a from c;"
[[statement.source]]
alias = "other"
stream = "hall"
sampling = 0.5

[output]
unique_times = true
nulls = "drop"
rate = "500ms"
[[output.field]]
name = "a"
type = "double"
[[output.field]]
name = "kind"
type = "text"
"#;

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "a".into(),
            field_type: FieldType::Double,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

fn element(sequence: u64, time_ms: i64, value: Option<f64>) -> StreamElement {
    let time = Timestamp(time_ms * 1_000_000);
    StreamElement {
        position: Position {
            epoch: Epoch(1),
            sequence,
        },
        source_time: time,
        receive_time: time,
        key: None,
        values: vec![value.map_or(Value::Null, Value::Double)],
        quality: Quality::Good,
        origin: None,
    }
}

struct Sensor {
    machine: VirtualSensor,
    events: Vec<SensorEvent>,
    sequence: u64,
}

impl Sensor {
    fn new(text: &str) -> Self {
        let descriptor = Descriptor::parse("x.toml", text).unwrap_or_else(|e| panic!("{e}"));
        Self {
            machine: VirtualSensor::new(descriptor, SensorLimits::default()),
            events: Vec::new(),
            sequence: 0,
        }
    }

    fn input(&mut self, input: Input<SensorInput, SensorCommand>) {
        self.machine.handle_input(Instant::ZERO, input);
        while let Some(Output::Event(event)) = self.machine.poll_output() {
            self.events.push(event);
        }
    }

    fn bind(&mut self, alias: &str, stream: &str) {
        self.input(Input::Command(SensorCommand::Bind {
            alias: alias.into(),
            stream: stream.into(),
            schema: schema(),
        }));
    }

    fn receive(&mut self, stream: &str, time_ms: i64, value: Option<f64>) {
        self.sequence += 1;
        self.input(Input::Receive(SensorInput {
            stream: stream.into(),
            element: Arc::new(element(self.sequence, time_ms, value)),
        }));
    }

    /// Time and values of each output since the last call.
    fn outputs(&mut self) -> Vec<(i64, Vec<Value>)> {
        let events = std::mem::take(&mut self.events).into_iter();
        let outputs = events.filter_map(|event| match event {
            SensorEvent::Output(element) => {
                Some((element.source_time.0 / 1_000_000, element.values))
            }
            SensorEvent::EvaluationFailed { reason } => panic!("{reason}"),
            _ => None,
        });
        outputs.collect()
    }
}

#[test]
fn each_statement_runs_when_its_own_sources_are_bound() {
    let mut sensor = Sensor::new(TWO);
    let waiting = |aliases: &[&str]| {
        SensorState::Waiting(aliases.iter().map(|it| (*it).to_owned()).collect())
    };
    assert_eq!(
        *sensor.machine.state(),
        waiting(&["cold.t", "both.t", "both.other"])
    );
    sensor.bind("cold.t", "room");
    assert_eq!(*sensor.machine.state(), waiting(&["both.t", "both.other"]));
    sensor.receive("room", 1_000, Some(3.0));
    let text = |text: &str| Value::Text(text.into());
    assert_eq!(
        sensor.outputs(),
        [(1_000, vec![Value::Double(3.0), text("cold")])]
    );
    // Sooner than the statement's rate, warm, and late enough.
    sensor.receive("room", 2_500, Some(4.0));
    sensor.receive("room", 3_500, Some(40.0));
    sensor.receive("room", 4_000, Some(5.0));
    assert_eq!(
        sensor.outputs(),
        [(4_000, vec![Value::Double(5.0), text("cold")])]
    );
    assert_eq!(sensor.machine.counters().too_soon, 1);

    sensor.bind("both.t", "room");
    sensor.bind("both.other", "hall");
    assert_eq!(*sensor.machine.state(), SensorState::Running);
    assert!(!sensor.machine.has_single_stream());
    let (mut taken, before) = (Vec::new(), sensor.machine.counters());
    for second in 10..30 {
        sensor.receive("hall", second * 1_000, Some(1.0));
        sensor.receive("room", second * 1_000 + 600, Some(20.0));
        taken.extend(sensor.outputs());
    }
    assert_eq!(taken.len(), 2, "the count of the second statement");
    let counters = sensor.machine.counters();
    assert!(counters.beyond_count > before.beyond_count);
    assert!((4..=16).contains(&counters.sampled_out), "{counters:?}");
    sensor.receive("cellar", 60_000, None);
    assert_eq!(sensor.machine.counters().strangers, 1);
}

#[test]
fn repeated_times_and_nulls_are_dropped_and_counted() {
    let text = "name = 'x'\n[[source]]\nalias = 't'\nstream = 'room'\n[output]\n\
                sql = 'select a from t'\nunique_times = true\nnulls = 'drop'\n\
                [[output.field]]\nname = 'a'\ntype = 'double'\n";
    let mut sensor = Sensor::new(text);
    sensor.bind("t", "room");
    for (time, value) in [
        (1, Some(1.0)),
        (1, Some(2.0)),
        (2, None),
        (2, Some(3.0)),
        (3, Some(4.0)),
    ] {
        sensor.receive("room", time, value);
    }
    let outputs = sensor.outputs();
    let times: Vec<i64> = outputs.iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [1, 2, 3]);
    let counters = sensor.machine.counters();
    assert_eq!((counters.repeated_times, counters.nulls), (1, 1));
    assert_eq!((counters.outputs, counters.inputs), (3, 5));
}

#[test]
fn a_source_that_only_passes_its_own_statement_on_is_compiled() {
    let text = "name = 'x'\n[[source]]\nalias = 't'\nstream = 'room'\n\
                sql = 'select a * 2 as a from wrapper where a > 1'\n[output]\n\
                sql = 'select * from t'\n[[output.field]]\nname = 'a'\ntype = 'double'\n";
    let mut sensor = Sensor::new(text);
    sensor.bind("t", "room");
    assert_eq!(sensor.machine.plan(), Some(&QueryPlan::Compiled));
    sensor.receive("room", 1, Some(1.0));
    sensor.receive("room", 2, Some(4.0));
    assert_eq!(sensor.outputs(), [(2, vec![Value::Double(8.0)])]);
}

#[test]
fn a_restart_samples_the_same_elements() {
    let text = "name = 'x'\n[[source]]\nalias = 't'\nstream = 'room'\nwindow = 4\n\
                sampling = 0.5\n[output]\nsql = 'select sum(a) as a from t'\n\
                [[output.field]]\nname = 'a'\ntype = 'double'\n";
    let (mut whole, mut restarted) = (Sensor::new(text), Sensor::new(text));
    whole.bind("t", "room");
    restarted.bind("t", "room");
    let elements = (1..=40_i64).map(|number| {
        let element = element(number.unsigned_abs(), 1_000 * number, Some(number as f64));
        SensorInput {
            stream: "room".into(),
            element: Arc::new(element),
        }
    });
    let elements: Vec<SensorInput> = elements.collect();
    let (before, after) = elements.split_at(30);
    for input in before {
        whole.input(Input::Receive(input.clone()));
    }
    whole.outputs();
    restarted.input(Input::Command(SensorCommand::Recall {
        elements: before.to_vec(),
    }));
    for input in after {
        whole.input(Input::Receive(input.clone()));
        restarted.input(Input::Receive(input.clone()));
    }
    let outputs = whole.outputs();
    assert!((2..9).contains(&outputs.len()), "{outputs:?}");
    assert_eq!(restarted.outputs(), outputs);
}

#[test]
fn progress_is_that_of_the_slowest_statement() {
    let text = TWO.replace("window = 3", "window = 3\nslide = 3");
    let mut sensor = Sensor::new(&text);
    sensor.bind("cold.t", "room");
    sensor.bind("both.t", "room");
    sensor.bind("both.other", "hall");
    let progress = |sensor: &Sensor| -> Vec<(String, u64)> {
        let progress = sensor.machine.progress();
        progress
            .map(|(stream, at)| (stream.to_string(), at.sequence))
            .collect()
    };
    for time in 1..=5 {
        sensor.receive("room", time * 1_000, Some(2.0));
    }
    // The first statement has evaluated five, the second one the first and the fourth.
    assert_eq!(progress(&sensor), [("room".to_owned(), 4)]);
}

#[test]
fn a_descriptor_survives_being_written() {
    let read = |text: &str| Descriptor::parse("x.toml", text).unwrap_or_else(|e| panic!("{e}"));
    for text in [
        TWO,
        include_str!("../../examples/heart-rate.toml"),
        "name = 'x'\ndescription = \"\"\"a\n\\\"\"\"b\\\\\t\\u0001\"\"\"\n[[source]]\nalias = 't'\n\
         query = { name_prefix = '', unit = 'Cel', observed_property = 'urn:x' }\nbind = 'all'\n\
         window = '90s'\nslide = '250ms'\nclock = 'node'\nwait = '2s'\nlate = 'dead_letter'\nahead = '5m'\n\
         early = 'dead_letter'\nunique_times = true\nper = 'key'\nkeys = 7\n[output]\nstream = 'y'\nlevel = 'memory'\n\
         retention = {}\nkey = 'bed'\nsql = 'select 1 as a from t'\n[[output.field]]\nname = 'a'\n\
         type = 'samples'\nobserved_property = 'urn:y'\n",
    ] {
        let descriptor = read(text);
        let written = descriptor.to_toml();
        assert_eq!(read(&written), descriptor, "{written}");
    }
    let two = read(TWO);
    assert!(two.is_protected);
    assert_eq!(two.metadata["urn:x"], Value::Boolean(true));
    let input = &two.commands[0].fields[0].input;
    assert_eq!(
        *input,
        FieldInput::Binary {
            bytes_max: Some(2 << 20)
        }
    );
    assert_eq!(two.sources[2].table(), "other");
    assert!(two.sql().starts_with("-- cold\nselect"));
}

#[test]
fn faults_of_statements_name_their_key() {
    for (from, to, key, message) in [
        (
            "name = \"both\"",
            "name = \"cold\"",
            "statement[1].name",
            "another statement",
        ),
        ("name = \"both\"\n", "", "statement[1].name", "needs a name"),
        (
            "name = \"both\"",
            "name = \"a.b\"",
            "statement[1].name",
            "not a usable name",
        ),
        (
            "sampling = 0.5",
            "sampling = 0.0",
            "statement[1].source[1].sampling",
            "out of range",
        ),
        (
            "from wrapper where",
            "from t where",
            "statement[0].source[0].sql",
            "no such table: t",
        ),
        (
            "alias = \"other\"",
            "alias = \"wrapper\"",
            "statement[1].source[1].alias",
            "usable",
        ),
        (
            "alias = \"other\"",
            "alias = \"t\"",
            "statement[1].source[1].alias",
            "another source",
        ),
        (
            "[output]",
            "[output]\nsql = 'select 1'",
            "output.sql",
            "its own",
        ),
        (
            "choices = [\"a\", \"b\"]\n",
            "",
            "command[0].field[1]",
            "`choices`",
        ),
        (
            "max_bytes",
            "choices = [\"a\"]\nmax_bytes",
            "command[0].field[0]",
            "`choices`",
        ),
        (
            "latitude = 46.5",
            "latitude = inf",
            "metadata.latitude",
            "not finite",
        ),
    ] {
        assert!(TWO.contains(from), "{from}");
        let error = Descriptor::parse("x.toml", &TWO.replacen(from, to, 1)).expect_err(to);
        assert_eq!(error.key, key, "{error}");
        assert!(error.message.contains(message), "{error}");
    }
}

/// The output of a sensor with unique times and rates for elements of these times and keys, by one machine, or by
/// two of which the second continues after what the first stored.
fn outputs_of(elements: &[(i64, u8)], restart: Option<usize>) -> Vec<(i64, Option<String>)> {
    let text = "name = 'x'\n[[statement]]\nsql = 'select a, key from t'\n\
                [[statement.source]]\nalias = 't'\nstream = 'room'\n[output]\nunique_times = true\n\
                rate = '2ms'\nkey = 'k'\n[[output.field]]\nname = 'a'\ntype = 'double'\n";
    let descriptor = Descriptor::parse("x.toml", text).unwrap();
    let start = || {
        let mut sensor = VirtualSensor::new(descriptor.clone(), SensorLimits::default());
        let bind = SensorCommand::Bind {
            alias: "t".into(),
            stream: "room".into(),
            schema: StreamSchema {
                key: Some("k".into()),
                ..schema()
            },
        };
        sensor.handle_input(Instant::ZERO, Input::Command(bind));
        sensor
    };
    let mut sensor = start();
    let mut outputs: Vec<StreamElement> = Vec::new();
    let mut inputs: Vec<SensorInput> = Vec::new();
    for (index, (time_ms, key)) in elements.iter().enumerate() {
        if restart == Some(index) {
            sensor = start();
            let elements = inputs.clone();
            let recall = SensorCommand::Recall { elements };
            sensor.handle_input(Instant::ZERO, Input::Command(recall));
            let from = outputs.len().saturating_sub(sensor.outputs_needed());
            sensor.continue_after(&outputs[from..]);
        }
        let time = Timestamp(time_ms * 1_000_000);
        let element = StreamElement {
            position: Position {
                epoch: Epoch(1),
                sequence: index as u64 + 1,
            },
            source_time: time,
            receive_time: time,
            key: Some(key.to_string()),
            values: vec![Value::Double(0.0)],
            quality: Quality::Good,
            origin: None,
        };
        let input = SensorInput {
            stream: "room".into(),
            element: Arc::new(element),
        };
        inputs.push(input.clone());
        sensor.handle_input(Instant::ZERO, Input::Receive(input));
        while let Some(Output::Event(event)) = sensor.poll_output() {
            if let SensorEvent::Output(element) = event {
                outputs.push(element);
            }
        }
    }
    let shown = outputs
        .into_iter()
        .map(|it| (it.source_time.0 / 1_000_000, it.key));
    shown.collect()
}

#[test]
fn a_restart_does_not_repeat_a_time() {
    let elements = [(10, 0), (10, 0), (11, 0), (12, 0)];
    let outputs = outputs_of(&elements, Some(1));
    let times: Vec<i64> = outputs.into_iter().map(|(time, _)| time).collect();
    assert_eq!(times, [10, 12]);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{1,12}", "\\PC{1,8}", "[a\\\\\"'\n\t]{1,8}"]
}

proptest! {
    /// Whenever a sensor is started again, its results are those of one that was not.
    #[test]
    fn a_restart_changes_no_result(
        elements in proptest::collection::vec((0..40_i64, 0..3_u8), 1..40),
        restart in 0..40_usize,
    ) {
        let whole = outputs_of(&elements, None);
        let parts = outputs_of(&elements, Some(restart.min(elements.len() - 1)));
        prop_assert_eq!(parts, whole);
    }

    /// Any text survives in each place for texts.
    #[test]
    fn texts_survive_being_written(description in text(), fact in text(), unit in text(), key in "\\PC{1,9}") {
        let mut descriptor = Descriptor::parse("x.toml", TWO).expect("good");
        descriptor.description = Some(description);
        descriptor.metadata.insert(key, Value::Text(fact));
        descriptor.output.schema.fields[0].unit = Some(unit);
        let written = descriptor.to_toml();
        prop_assert_eq!(Descriptor::parse("x.toml", &written), Ok(descriptor), "{}", written);
    }
}
