//! Measures how many records of each format are decoded in a second of processor time, which other programs
//! of the machine do not lengthen: `cargo run --release -p chappe-format --example speed`.

use std::time::Duration;

use chappe_format::{Decoder, Format, Message, Output};
use chappe_stream::Timestamp;

/// Elements of a message; about a MiB of CSV.
const RECORDS: usize = 15_000;

/// Seconds of a measurement.
const SECONDS: f64 = 2.0;

const FIELDS: &str = r#"
fields = [{ name = "a", type = "double" }, { name = "b", type = "double" }, { name = "c", type = "double" }]
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers = |index: usize| {
        let number = index as f64;
        (
            number * 0.37 - 40.0,
            number.sin() * 1_000.0,
            101_325.0 + number / 7.0,
        )
    };
    let lines = |line: &dyn Fn(usize, f64, f64, f64) -> String| {
        let lines = (0..RECORDS).map(|index| {
            let (a, b, c) = numbers(index);
            line(index, a, b, c)
        });
        lines.collect::<String>()
    };
    let time = |index: usize| 1_795_255_200_000 + index;
    let table = [
        (
            "csv",
            "format = \"csv\"\n[[stream]]\nname = \"s\"",
            "a,b,c\n".to_owned() + &lines(&|_, a, b, c| format!("{a:.2},{b:.3},{c:.4}\n")),
        ),
        (
            "csv with time, key and name",
            "format = { csv = { time = \"t\", time_format = \"ms\" } }\n[[stream]]\nname = \"s.{k}\"\nkey = \"{m}\"",
            "t,k,m,a,b,c\n".to_owned()
                + &lines(&|index, a, b, c| {
                    format!(
                        "{},line{},m{},{a:.2},{b:.3},{c:.4}\n",
                        time(index),
                        index % 8,
                        index % 3
                    )
                }),
        ),
        (
            "json lines",
            "format = { json = { lines = true } }\n[[stream]]\nname = \"s\"",
            lines(&|_, a, b, c| format!("{{\"a\":{a:.2},\"b\":{b:.3},\"c\":{c:.4}}}\n")),
        ),
        (
            "json, each",
            "format = { json = { each = \"$[*]\" } }\n[[stream]]\nname = \"s\"",
            {
                let items =
                    lines(&|_, a, b, c| format!("{{\"a\":{a:.2},\"b\":{b:.3},\"c\":{c:.4}}},"));
                format!("[{}]", items.trim_end_matches(','))
            },
        ),
        (
            "key and value",
            "format = \"key_value\"\n[[stream]]\nname = \"s\"",
            lines(&|_, a, b, c| format!("a={a:.2} b={b:.3} c={c:.4}\n")),
        ),
        (
            "regular expression",
            "format = { regex = { pattern = '^(?<a>\\S+) (?<b>\\S+) (?<c>\\S+)$' } }\n[[stream]]\nname = \"s\"",
            lines(&|_, a, b, c| format!("{a:.2} {b:.3} {c:.4}\n")),
        ),
        (
            "line protocol",
            "format = \"line_protocol\"\n[[stream]]\nname = \"{measurement}.{k}\"",
            lines(&|index, a, b, c| {
                let time = time(index) * 1_000_000;
                format!("m,k=k{} a={a:.2},b={b:.3},c={c:.4} {time}\n", index % 8)
            }),
        ),
    ];
    for (name, config, body) in table {
        let format = Format::parse(name, &format!("{config}\n{FIELDS}"))?;
        let mut decoder = Decoder::new(format.into());
        let mut output = Output::default();
        let message = Message::new(body.as_bytes(), Timestamp(1_795_300_000_000_000_000));
        let (start, mut count) = (processor_time()?, 0);
        let elapsed = || processor_time().map(|now| (now - start).as_secs_f64());
        while elapsed()? < SECONDS {
            decoder.decode(&message, &mut output)?;
            if output.elements.len() != RECORDS {
                return Err(format!("{name}: {:?}", output.faults.first()).into());
            }
            count += RECORDS;
        }
        let rate = count as f64 / elapsed()?;
        let megabytes = rate * body.len() as f64 / RECORDS as f64 / 1e6;
        println!("{name:30} {rate:12.0} records/s {megabytes:8.1} MB/s");
    }
    longest_path()
}

/// Prints the time of a query that spends all steps of a message.
fn longest_path() -> Result<(), Box<dyn std::error::Error>> {
    let config = "format = { json = { each = \"$..[?@..[?@..*]]..*\" } }\n[[stream]]\nname = \"s\"";
    let format = Format::parse("path", &format!("{config}\n{FIELDS}"))?;
    let mut decoder = Decoder::new(format.into());
    let body = format!("{}1{}", "[".repeat(100), ",[1,1,1,1,1,1,1,1]]".repeat(100));
    let start = processor_time()?;
    let message = Message::new(body.as_bytes(), Timestamp(0));
    let Err(fault) = decoder.decode(&message, &mut Output::default()) else {
        return Err("the query ended".into());
    };
    println!("{fault}, after {:?}", processor_time()? - start);
    Ok(())
}

/// Time of this thread on a processor.
fn processor_time() -> Result<Duration, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}
