//! Goal: a virtual sensor computes a heart rate from an electrocardiogram's waveform, whatever the
//! names and the block size of the device, and a windowed mean raises its alarm.
//! Method: synthetic waveforms of a known rate, with T waves, a wandering baseline, noise and
//! ventricular beats, in elements of one second; the rate must be within three percent.

use std::sync::Arc;

use chappe_machine::{Input, Instant, Output, drain};
use chappe_stream::*;

const HEART_RATE: &str = include_str!("../../examples/heart-rate.toml");
const MEAN_TEMPERATURE: &str = include_str!("../../examples/mean-temperature.toml");
const ECG: &str = "urn:oid:1.2.840.10004.1.1.1.0.0.1.131330";
const TEMPERATURE: &str = "urn:oid:1.2.840.10004.1.1.1.0.0.1.150364";
const SECOND: i64 = 1_000_000_000;

fn schema(name: &str, field_type: FieldType, property: &str, unit: &str) -> StreamSchema {
    StreamSchema {
        fields: vec![
            Field {
                name: "status".into(),
                field_type: FieldType::Text,
                unit: None,
                observed_property: None,
                description: None,
            },
            Field {
                name: name.into(),
                field_type,
                unit: Some(unit.into()),
                observed_property: Some(property.into()),
                description: None,
            },
        ],
        key: None,
    }
}

fn element(number: u64, time: i64, value: Value) -> StreamElement {
    StreamElement {
        position: Position {
            epoch: Epoch(1),
            sequence: number,
        },
        source_time: Timestamp(time),
        receive_time: Timestamp(time + 7),
        key: None,
        values: vec![Value::Text("on".into()), value],
        quality: Quality::Good,
        origin: None,
    }
}

fn bell(t: f64, center: f64, width: f64) -> f64 {
    (-((t - center) / width).powi(2) / 2.0).exp()
}

/// 24 s of waveform in millivolt; every fifth beat is broad and tall when `ventricular`.
fn waveform(rate_per_min: f64, samples_per_s: f64, ventricular: bool) -> Vec<f64> {
    let period = 60.0 / rate_per_min;
    let mut noise = 12_345_u32;
    let count = (24.0 * samples_per_s) as usize;
    let mut values = Vec::with_capacity(count);
    for index in 0..count {
        let t = index as f64 / samples_per_s;
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut value = 0.3 * (t * 1.7).sin() + 0.02 * (f64::from(noise >> 16) / 65_536.0 - 0.5);
        let beat = (t / period).floor();
        for beat in [beat - 1.0, beat, beat + 1.0] {
            let at = (beat + 0.5) * period;
            if ventricular && beat.rem_euclid(5.0) == 2.0 {
                value += 1.6 * bell(t, at, 0.03);
            } else {
                value += 1.1 * bell(t, at, 0.010) - 0.2 * bell(t, at + 0.03, 0.01);
            }
            value += 0.25 * bell(t, at + 0.35 * period.min(1.0), 0.05);
        }
        values.push(value);
    }
    values
}

fn bound(text: &str, alias: &str, schema: &StreamSchema) -> VirtualSensor {
    let descriptor = Descriptor::parse("test.toml", text).expect("descriptor");
    let mut sensor = VirtualSensor::new(descriptor, SensorLimits::default());
    let bind = Input::Command(SensorCommand::Bind {
        alias: alias.into(),
        stream: "ward.bed1".into(),
        schema: schema.clone(),
    });
    drain(&mut sensor, Instant::ZERO, bind, |output| {
        assert_eq!(output, Output::Event(SensorEvent::Running));
    });
    sensor
}

fn feed(sensor: &mut VirtualSensor, element: StreamElement) -> Vec<StreamElement> {
    let mut outputs = Vec::new();
    let input = Input::Receive(SensorInput {
        stream: "ward.bed1".into(),
        element: Arc::new(element),
    });
    drain(sensor, Instant::ZERO, input, |output| match output {
        Output::Event(SensorEvent::Output(element)) => outputs.push(element),
        other => panic!("{other:?}"),
    });
    outputs
}

/// The heart rates reported, without those of the first eight seconds.
fn rates(values: &[f64], samples_per_s: f64, samples_an_element: usize) -> Vec<f64> {
    let period_ns = (1e9 / samples_per_s) as u64;
    let mut sensor = bound(
        HEART_RATE,
        "ecg",
        &schema("lead_2", FieldType::Samples, ECG, "mV"),
    );
    let mut rates = Vec::new();
    let start = 1_700_000_000 * SECOND;
    for (index, values) in values.chunks(samples_an_element).enumerate() {
        let offset = index as u64 * samples_an_element as u64 * period_ns;
        let samples = Samples {
            start: Timestamp(start + offset as i64),
            period_ns,
            values: values.to_vec(),
        };
        let element = element(index as u64 + 1, samples.start.0, Value::Samples(samples));
        for output in feed(&mut sensor, element) {
            let Value::Double(rate) = output.values[0] else {
                panic!("{output:?}");
            };
            let alarm = Value::Boolean(!(50.0..=120.0).contains(&rate));
            assert_eq!(output.values[1], alarm);
            if output.source_time.0 - start >= 8 * SECOND {
                rates.push(rate);
            }
        }
    }
    assert_eq!(sensor.counters().failures, 0);
    rates
}

#[test]
fn the_rate_is_right_within_three_in_a_hundred() {
    for rate in [40.0, 60.0, 72.0, 100.0, 150.0, 180.0] {
        for ventricular in [false, true] {
            let found = rates(&waveform(rate, 360.0, ventricular), 360.0, 360);
            assert!(found.len() >= 14, "{rate}: {} outputs", found.len());
            for one in found {
                let off = (one / rate - 1.0).abs();
                assert!(off < 0.03, "{one} for {rate}, ventricular {ventricular}");
            }
        }
    }
}

#[test]
fn neither_the_sampling_rate_nor_the_cut_matters() {
    for (samples_per_s, samples_an_element) in [(250.0, 25), (500.0, 100), (128.0, 512)] {
        let values = waveform(72.0, samples_per_s, false);
        for one in rates(&values, samples_per_s, samples_an_element) {
            assert!((one / 72.0 - 1.0).abs() < 0.03, "{one} at {samples_per_s}");
        }
    }
}

#[test]
fn a_recording_with_ventricular_beats_is_read_right() {
    // Record 208 of the MIT-BIH Arrhythmia Database; the beats between the first and the last of
    // each eight seconds were counted by eye.
    let text = include_str!("../../../chappe/demo/recordings/electrocardiogram.csv");
    let values: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let found = rates(&values, 360.0, 360);
    assert!(found.len() >= 50);
    for (second, rate) in [(8, 113.9), (16, 127.2), (52, 108.8)] {
        // Outputs are one a second from the eighth on; the newest element there is second - 1.
        let off = (found[second - 8] / rate - 1.0).abs();
        assert!(off < 0.05, "{} for {rate} at {second} s", found[second - 8]);
    }
    assert!(
        found.iter().all(|rate| (90.0..135.0).contains(rate)),
        "{found:?}"
    );
}

#[test]
fn silence_gives_no_rate() {
    assert_eq!(rates(&vec![0.0; 12 * 360], 360.0, 360), [0.0; 0]);
}

#[test]
fn a_mean_raises_its_alarm() {
    let schema = schema("t_axilla", FieldType::Double, TEMPERATURE, "Cel");
    let mut sensor = bound(MEAN_TEMPERATURE, "body", &schema);
    let mut alarms = Vec::new();
    for second in 0..120 {
        let value = if second < 60 { 37.0 } else { 39.0 };
        let element = element(second + 1, second as i64 * SECOND, Value::Double(value));
        let outputs = feed(&mut sensor, element);
        let [output] = &outputs[..] else {
            panic!("one output an element");
        };
        alarms.push(output.values[2] == Value::Boolean(true));
    }
    // The mean of the last sixty is above 38 when more than half of them are 39.
    let expected: Vec<bool> = (0..120).map(|second| second >= 90).collect();
    assert_eq!(alarms, expected);
}

#[test]
fn another_unit_does_not_bind() {
    let descriptor = Descriptor::parse("test.toml", MEAN_TEMPERATURE).expect("descriptor");
    let mut sensor = VirtualSensor::new(descriptor, SensorLimits::default());
    let bind = Input::Command(SensorCommand::Bind {
        alias: "body".into(),
        stream: "ward.bed1".into(),
        schema: schema("t", FieldType::Double, TEMPERATURE, "[degF]"),
    });
    let mut events = Vec::new();
    drain(&mut sensor, Instant::ZERO, bind, |output| {
        events.push(output)
    });
    let [Output::Event(SensorEvent::Failed { reason })] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(
        reason.contains("[degF]") && reason.contains("Cel"),
        "{reason}"
    );
}
