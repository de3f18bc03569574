//! Goal: windows, slides, late elements and columns give the elements that GSN gives.
//! Method: the elements that a GSN 2.0.1 server stored of the same input. `check/gsn/descriptors.py` compares with a
//! running server.

use std::sync::Arc;

use chappe_gsn::descriptor::import;
use chappe_machine::{Input, Instant, Machine as _, Output};
use chappe_stream::{
    Epoch, Position, Quality, SensorCommand, SensorEvent, SensorInput, SensorLimits, StreamElement,
    Timestamp, Value, VirtualSensor,
};

use crate::input_schema;

/// Times in seconds; `x` is half the number of the element. The last but one is late, the one before has the time of
/// another.
const TIMES_S: [i64; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20, 20, 15, 30];

/// The times of the outputs in seconds with the values of `n` and `x`.
fn stored(window: &str, query: &str) -> Vec<(i64, Value, Value)> {
    let xml = format!(
        "<virtual-sensor name='x'><processing-class><class-name>BridgeVirtualSensor</class-name>\
         <output-structure><field name='N' type='bigint'/><field name='X' type='double'/></output-structure>\
         </processing-class><streams><stream><source alias='A' sampling-rate='1' {window}><address wrapper='local'>\
         <predicate key='name'>s</predicate></address><query>select * from wrapper</query></source>\
         <query>{query}</query></stream></streams></virtual-sensor>"
    );
    let imported = import("x.xml", &xml).unwrap_or_else(|error| panic!("{window}: {error}"));
    let mut sensor = VirtualSensor::new(imported.descriptor, SensorLimits::default());
    let schema = input_schema();
    let stream: Arc<str> = "s".into();
    let bind = Input::Command(SensorCommand::Bind {
        alias: "a".into(),
        stream: stream.clone(),
        schema,
    });
    sensor.handle_input(Instant::ZERO, bind);
    let mut outputs = Vec::new();
    for (number, time_s) in (0_u64..).zip(TIMES_S) {
        let element = StreamElement {
            position: Position {
                epoch: Epoch(1),
                sequence: number + 1,
            },
            source_time: Timestamp(time_s * 1_000_000_000),
            receive_time: Timestamp(100_000_000_000),
            key: None,
            values: vec![
                Value::Integer(number.cast_signed()),
                Value::Double(number as f64 / 2.0),
                Value::Text("t".into()),
            ],
            quality: Quality::Good,
            origin: None,
        };
        let input = Input::Receive(SensorInput {
            stream: stream.clone(),
            element: Arc::new(element),
        });
        sensor.handle_input(Instant::ZERO, input);
        while let Some(Output::Event(event)) = sensor.poll_output() {
            match event {
                SensorEvent::Output(element) => {
                    let time_s = element.source_time.0 / 1_000_000_000;
                    let [n, x] = &element.values[..] else {
                        panic!("two fields");
                    };
                    outputs.push((time_s, n.clone(), x.clone()));
                }
                SensorEvent::Failed { reason } | SensorEvent::EvaluationFailed { reason } => {
                    panic!("{window}: {reason}")
                }
                _ => {}
            }
        }
    }
    outputs
}

#[test]
fn a_window_of_elements_is_evaluated_once_it_is_full_and_then_after_each_slide() {
    let query = "select count(*) as n, avg(x) as x, max(timed) as timed from a";
    for (size, slide, means) in [
        (
            1,
            3,
            &[(0, 0.0), (3, 1.5), (6, 3.0), (9, 4.5), (20, 6.0)][..],
        ),
        (
            2,
            3,
            &[(1, 0.25), (4, 1.75), (7, 3.25), (10, 4.75), (30, 6.75)],
        ),
        (5, 2, &[(4, 1.0), (6, 2.0), (8, 3.0), (10, 4.0), (20, 5.0)]),
        (3, 3, &[(2, 0.5), (5, 2.0), (8, 3.5), (11, 5.0)]),
        (3, 5, &[(2, 0.5), (7, 3.0), (20, 5.5)]),
    ] {
        let window = format!("storage-size='{size}' slide='{slide}'");
        let expected = means
            .iter()
            .map(|(time_s, mean)| (*time_s, Value::Integer(size), Value::Double(*mean)));
        assert_eq!(
            stored(&window, query),
            expected.collect::<Vec<_>>(),
            "{window}"
        );
    }
}

#[test]
fn a_window_of_time_is_evaluated_after_each_slide_of_elements() {
    let query = "select count(*) as n, max(x) as x, max(timed) as timed from a";
    let times = |window: &str| -> Vec<i64> {
        let outputs = stored(window, query).into_iter();
        outputs.map(|(time_s, ..)| time_s).collect()
    };
    assert_eq!(
        times("storage-size='2s' slide='2'"),
        [1, 3, 5, 7, 9, 11, 30]
    );
    assert_eq!(times("storage-size='2s' slide='3'"), [2, 5, 8, 11]);
}

#[test]
fn late_elements_and_equal_times_are_dropped() {
    let outputs = stored("storage-size='1'", "select n, x, timed from a");
    let times: Vec<i64> = outputs.iter().map(|(time_s, ..)| *time_s).collect();
    assert_eq!(times, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20, 30]);
    assert_eq!(outputs[12].1, Value::Integer(12));
    let last = (
        30,
        Value::Integer(3),
        Value::Double((15.0 + 12.0 + 11.0) / 6.0),
    );
    let mean = "select count(*) as n, avg(x) as x, max(timed) as timed from a";
    assert_eq!(stored("storage-size='3'", mean).last(), Some(&last));
}

#[test]
fn columns_without_a_field_are_passed_over_and_fields_without_a_column_are_null() {
    let more = stored("", "select * from a");
    assert_eq!(more[1], (1, Value::Integer(1), Value::Double(0.5)));
    let less = stored("", "select n, timed from a");
    assert_eq!(less[1], (1, Value::Integer(1), Value::Null));
}
