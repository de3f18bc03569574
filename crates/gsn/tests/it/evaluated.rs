//! Goal: statements of GSN give the values that H2 gives.
//! Method: sensors made of XML, fed with elements; the expected values are computed by hand from H2's
//! documentation.

use std::sync::Arc;

use chappe_gsn::descriptor::import;
use chappe_machine::{Input, Instant, Machine as _, Output};
use chappe_stream::{
    Epoch, Position, Quality, SensorCommand, SensorEvent, SensorInput, SensorLimits, StreamElement,
    Timestamp, Value, VirtualSensor,
};

use crate::input_schema;

/// 2025-12-31T23:59:59.5Z.
const TIME_MS: i64 = 1_767_225_599_500;

/// The output of a sensor whose only source has one element: the number 17, the number 2.5, a text.
fn evaluated(result: &str, field_type: &str) -> (Value, StreamElement) {
    let xml = format!(
        "<virtual-sensor name='x'><processing-class><class-name>BridgeVirtualSensor</class-name>\
         <output-structure><field name='R' type='{field_type}'/></output-structure>\
         </processing-class><streams><stream><source alias='A'><address wrapper='local'>\
         <predicate key='name'>s</predicate></address><query>SELECT * FROM WRAPPER</query></source>\
         <query>SELECT {result} FROM A</query></stream></streams></virtual-sensor>"
    );
    let imported = import("x.xml", &xml).unwrap_or_else(|error| panic!("{result}: {error}"));
    let mut sensor = VirtualSensor::new(imported.descriptor, SensorLimits::default());
    let schema = input_schema();
    let element = StreamElement {
        position: Position {
            epoch: Epoch(1),
            sequence: 9,
        },
        source_time: Timestamp(TIME_MS * 1_000_000),
        receive_time: Timestamp(TIME_MS * 1_000_000),
        key: None,
        values: vec![
            Value::Integer(17),
            Value::Double(2.5),
            Value::Text("Ünder the Roof".into()),
        ],
        quality: Quality::Good,
        origin: None,
    };
    let stream: Arc<str> = "s".into();
    for input in [
        Input::Command(SensorCommand::Bind {
            alias: "a".into(),
            stream: stream.clone(),
            schema,
        }),
        Input::Receive(SensorInput {
            stream,
            element: Arc::new(element),
        }),
    ] {
        sensor.handle_input(Instant::ZERO, input);
    }
    while let Some(Output::Event(event)) = sensor.poll_output() {
        match event {
            SensorEvent::Output(mut element) => return (element.values.remove(0), element),
            SensorEvent::Failed { reason } | SensorEvent::EvaluationFailed { reason } => {
                panic!("{result}: {reason}")
            }
            _ => {}
        }
    }
    panic!("{result}: no output")
}

#[test]
fn functions_of_h2_give_its_values() {
    for (result, value) in [
        ("CASEWHEN(N > 16, 1, 0) AS R", 1),
        ("IF(N > 17, 1, 0) AS R", 0),
        ("N >> 2 AS R", 4),
        ("LOCATE('the', T) AS R", 7),
        ("LOCATE('o', T, 13) AS R", 13),
        ("LOCATE('x', T) AS R", 0),
        ("TIMED AS R", TIME_MS),
        ("TIMED / 1000 AS R", TIME_MS / 1_000),
        ("DATEDIFF('YEAR', TIMED, '2026-01-01') AS R", 1),
        ("DATEDIFF(SECOND, '2025-12-31 23:59:00', TIMED) AS R", 59),
        ("TIMESTAMPDIFF('MINUTE', TIMED, TIMED + 500) AS R", 1),
        ("DATEDIFF('2026-01-02', TIMED) AS R", 2),
        ("UNIX_TIMESTAMP(TIMED) AS R", TIME_MS / 1_000),
        (
            "CASEWHEN(NOW() > TIMED, 1, 2) + CASEWHEN(UNIX_TIMESTAMP() > 1, 1, 2) AS R",
            2,
        ),
        ("MOD(N, 5) AS R", 2),
        ("MOD(-N, 5) AS R", -2),
        ("CHAR_LENGTH(T) AS R", 14),
        ("NVL(NULL, PK) AS R", 9),
        ("(SELECT MAX(N) FROM A WHERE TIMED > 5) AS R", 17),
    ] {
        assert_eq!(
            evaluated(result, "bigint").0,
            Value::Integer(value),
            "{result}"
        );
    }
    for (result, value) in [
        ("POWER(X, 2) AS R", 6.25),
        ("FORMAT(X / 3, 2) AS R", 0.83),
        ("MOD(X, 2) AS R", 0.5),
        ("CEILING(X) AS R", 3.0),
        ("LOG(1) AS R", 0.0),
    ] {
        assert_eq!(
            evaluated(result, "double").0,
            Value::Double(value),
            "{result}"
        );
    }
    for (result, value) in [
        ("CONCAT(T, CHAR(33), N) AS R", "Ünder the Roof!17"),
        ("UCASE(LEFT('Abc', 2)) AS R", "AB"),
        ("RIGHT(T, 4) AS R", "Roof"),
        ("'It''s ' || 'TIMED' AS R", "It's TIMED"),
    ] {
        assert_eq!(
            evaluated(result, "string").0,
            Value::Text(value.into()),
            "{result}"
        );
    }
}

#[test]
fn a_column_timed_is_the_time_of_the_element() {
    for (result, time_ms) in [
        ("N AS R, TIMED", TIME_MS),
        ("N AS R, A.TIMED AS TIMED", TIME_MS),
        ("N AS R, TIMED - 1000 AS TIMED", TIME_MS - 1_000),
        ("N AS R, MAX(TIMED) AS timed", TIME_MS),
        ("N AS R", TIME_MS),
    ] {
        let (_, element) = evaluated(result, "integer");
        assert_eq!(element.source_time.0, time_ms * 1_000_000, "{result}");
    }
}
