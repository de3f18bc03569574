//! Goal: a descriptor's commands are read, checked and written again, and a statement reads the calls of a command
//! like the elements of any stream.
//! Method: descriptors as TOML, right and wrong; the machine, fed with a measurement and calls.

use std::sync::Arc;

use chappe_machine::{Input, Instant, Machine as _, Output};
use chappe_stream::descriptor::FieldInput;
use chappe_stream::*;

const LIMIT: &str = r#"
name = "warm"

[[command]]
name = "Set limit"
pass_to = { wrapper = "boiler", command = "limit" }
[[command.field]]
name = "Top"
type = "double"
required = true
description = "in degrees"
[[command.field]]
name = "days"
type = "checkbox"
choices = ["mon", "tue"]

[[command]]
name = "ping"
pass_to = { wrapper = "boiler" }

[[source]]
alias = "t"
stream = "room"

[[source]]
alias = "calls"
command = "Set limit"

[output]
sql = "select t.a > coalesce(calls.top, 30) as warm from t left join calls"
[[output.field]]
name = "warm"
type = "boolean"
"#;

#[test]
fn commands_are_read_and_written() {
    let descriptor = Descriptor::parse("warm.toml", LIMIT).unwrap();
    let [set, ping] = &descriptor.commands[..] else {
        panic!("two commands");
    };
    assert_eq!(descriptor.command_stream(set), "warm.command.set-limit");
    assert_eq!(set.fields[0].input, FieldInput::Double);
    assert_eq!(set.schema().fields[0].name, "top");
    assert_eq!(set.pass_to.as_ref().unwrap().command, "limit");
    assert_eq!(ping.pass_to.as_ref().unwrap().command, "ping");
    let selection = &descriptor.sources[1].selection;
    assert_eq!(*selection, Selection::Command("Set limit".into()));
    assert_eq!(
        descriptor.stream_of(selection).as_deref(),
        Some("warm.command.set-limit")
    );
    let written = descriptor.to_toml();
    assert_eq!(
        Descriptor::parse("warm.toml", &written),
        Ok(descriptor),
        "{written}"
    );
}

#[test]
fn faults_of_commands_have_their_place() {
    for (from, to, line, key, message) in [
        ("\"ping\"", "\"set LIMIT\"", 17, "command[1]", "same name"),
        ("\"days\"", "\"top\"", 4, "command[0].field", "twice"),
        ("\"tue\"", "\"t|e\"", 4, "command[0].field[1]", "\"|\""),
        (
            "command = \"Set limit\"",
            "command = \"Set limt\"",
            27,
            "source[1].command",
            "no command",
        ),
        (
            "command = \"Set limit\"",
            "command = \"ping\"\nstream = \"x\"",
            27,
            "source[1].command",
            "cannot be combined",
        ),
    ] {
        let wrong = LIMIT.replacen(from, to, 1);
        assert_ne!(wrong, LIMIT, "{from}");
        let error = Descriptor::parse("warm.toml", &wrong).unwrap_err();
        assert_eq!((error.line, &*error.key), (line, key), "{error}");
        assert!(error.message.contains(message), "{error}");
    }
    let wrong = LIMIT.replace("command = \"Set limit\"", "command = \"Set limt\"");
    let error = Descriptor::parse("warm.toml", &wrong).unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("did you mean \"Set limit\"?"));
}

#[test]
fn a_statement_reads_the_calls() {
    let descriptor = Descriptor::parse("warm.toml", LIMIT).unwrap();
    let calls: Arc<str> = descriptor.command_stream(&descriptor.commands[0]).into();
    let schema_of_calls = descriptor.commands[0].schema();
    let command = descriptor.commands[0].clone();
    let mut sensor = VirtualSensor::new(descriptor, SensorLimits::default());
    let room: Arc<str> = "room".into();
    let mut give = |input| {
        sensor.handle_input(Instant::ZERO, input);
        let mut values = Vec::new();
        while let Some(Output::Event(event)) = sensor.poll_output() {
            match event {
                SensorEvent::Output(element) => values.extend(element.values),
                SensorEvent::Failed { reason } | SensorEvent::EvaluationFailed { reason } => {
                    panic!("{reason}")
                }
                _ => {}
            }
        }
        values
    };
    let schema = StreamSchema {
        fields: vec![Field {
            name: "a".into(),
            field_type: FieldType::Double,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    };
    for (alias, stream, schema) in [("t", &room, schema), ("calls", &calls, schema_of_calls)] {
        give(Input::Command(SensorCommand::Bind {
            alias: alias.into(),
            stream: stream.clone(),
            schema,
        }));
    }
    let element = |stream: &Arc<str>, sequence, values| {
        let time = Timestamp(i64::try_from(sequence).unwrap() * 1_000_000_000);
        let element = StreamElement {
            position: Position {
                epoch: Epoch(1),
                sequence,
            },
            source_time: time,
            receive_time: time,
            key: None,
            values,
            quality: Quality::Good,
            origin: None,
        };
        Input::Receive(SensorInput {
            stream: stream.clone(),
            element: Arc::new(element),
        })
    };
    let warm = |value| vec![Value::Boolean(value)];
    let measured = give(element(&room, 1, vec![Value::Double(25.0)]));
    assert_eq!(measured, warm(false));
    let arguments = serde_json::json!({ "Top": 20, "days": ["mon"] });
    let call = command.values(arguments.as_object().unwrap()).unwrap();
    assert_eq!(give(element(&calls, 1, call)), warm(true));
    let measured = give(element(&room, 2, vec![Value::Double(19.0)]));
    assert_eq!(measured, warm(false));
}
