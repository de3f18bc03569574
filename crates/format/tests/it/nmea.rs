//! Goal: NMEA 0183: checksums, talkers, positions, speeds and times, as GPS receivers send them.

use chappe_stream::{Quality, Value};

use crate::common::{decode, text};

const POSITION: &str = r#"
format = "nmea"
[[stream]]
name = "gps.{talker}"
when = { sentence = "RMC" }
fields = [
    { name = "lat", type = "double", unit = "deg" },
    { name = "lon", type = "double", unit = "deg" },
    { name = "speed", type = "double", unit = "m/s" },
    { name = "status", path = "2", type = "text" },
]
[[stream]]
name = "gps.altitude"
when = { sentence = "GGA" }
fields = [{ name = "altitude", type = "double" }, { name = "satellites", type = "integer" }]
"#;

fn sentence(body: &str) -> String {
    let sum = body.bytes().fold(0, |sum, byte| sum ^ byte);
    format!("${body}*{sum:02X}\r\n")
}

#[test]
fn positions_speeds_and_times() {
    let body = [
        sentence("GPRMC,095959.25,A,4807.038,N,01131.000,W,10.0,084.4,211126,,"),
        sentence("GNRMC,100000,V,,,,,,,211126,,"),
        sentence("GPGGA,235959,3300.000,S,01131.000,E,1,08,0.9,545.4,M,46.9,M,,"),
        sentence("GPGSV,1,1,00"),
    ];
    let (elements, faults) = decode(POSITION, body.concat().as_bytes());
    assert_eq!(faults, Vec::<String>::new());
    assert_eq!(elements.len(), 3);
    let (stream, first) = &elements[0];
    assert_eq!(stream, "gps.gp");
    assert_eq!(first.source_time.to_string(), "2026-11-21T09:59:59.25Z");
    let [
        Value::Double(lat),
        Value::Double(lon),
        Value::Double(speed),
        _,
    ] = first.values[..]
    else {
        panic!("{first:?}")
    };
    assert!((lat - 48.1173).abs() < 1e-9 && (lon + 11.516_666_666).abs() < 1e-8);
    assert!((speed - 5.144_444_444).abs() < 1e-8);
    assert_eq!(elements[1].1.quality, Quality::Bad);
    assert_eq!(elements[1].1.values[3], text("V"));
    // The day before is nearer to the receipt at 10:00 than the same day.
    assert_eq!(
        elements[2].1.source_time.to_string(),
        "2026-11-20T23:59:59Z"
    );
    assert_eq!(
        elements[2].1.values,
        [Value::Double(545.4), Value::Integer(8)]
    );
}

#[test]
fn wrong_sentences_are_named() {
    let body = [
        "$GPRMC,100000,A,4807.038,N,01131.000,W,10.0,084.4,211126,,*00\n".to_owned(),
        "$GPRMC,100000\n".to_owned(),
        "GPRMC,100000*00\n".to_owned(),
        sentence("GPRMC,100000,A,4867.038,N,01131.000,W,10.0,084.4,211126,,"),
        sentence("GPRMC,990000,A,4807.038,N,01131.000,W,10.0,084.4,211126,,"),
        sentence("GPRMC,100000,A,4807.038,N,01131.000,W,10.0,084.4,310226,,"),
    ];
    let (elements, faults) = decode(POSITION, body.concat().as_bytes());
    assert!(elements.is_empty());
    let words = [
        "the checksum is \"00\"",
        "checksum is missing",
        "does not start",
        "not an angle",
        "not a time",
        "not a time",
    ];
    assert_eq!(faults.len(), words.len(), "{faults:?}");
    for (fault, word) in faults.iter().zip(words) {
        assert!(fault.contains(word), "{fault}");
    }
}
