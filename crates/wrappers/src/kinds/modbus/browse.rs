//! Prints a wrapper's file for a Modbus device: the registers that answer.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::bus::{Bus, Failure};
use super::map::Line;
use super::plan::{Span, Table};
use crate::WrapperError;
use crate::kinds::browse::run;

/// Entries of each table that are asked for, from address 0; reason: most maps begin there, and each may cost one request.
const ENTRIES: u16 = 200;
/// Entries that are asked for at once; a device that refuses them is asked for half as many.
const BLOCK: u16 = 50;
/// Longest time of all requests.
const TIME: Duration = Duration::from_secs(20);
/// Time to wait for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Most fields of the printed file, as of one stream.
const FIELDS_MAX: usize = 256;

/// The file for `modbus://HOST:PORT/UNIT`.
pub(super) fn browse(address: &str) -> Result<String, WrapperError> {
    let (line, unit_id) = parse(address).map_err(|text| {
        WrapperError::settings(text).with_hint("chappe wrapper browse modbus://10.0.0.5:502/1")
    })?;
    let found = run(find(line.clone(), unit_id))?;
    if found.is_empty() {
        let text = format!(
            "unit {unit_id} of {} has none of the first {ENTRIES} entries of any table",
            line.name()
        );
        return Err(WrapperError::peer(text).with_hint("another unit: modbus://HOST:PORT/UNIT"));
    }
    Ok(print(&line, unit_id, &found))
}

/// The line of an address, and the unit after it.
fn parse(address: &str) -> Result<(Line, u8), String> {
    let start = address.find("://").map_or(0, |at| at + 3);
    let (place, unit_id) = match address[start..].split_once('/') {
        Some((_, "")) | None => (address.trim_end_matches('/'), 1),
        Some((place, unit_id)) => {
            let number = unit_id.parse::<u8>();
            let number = number.map_err(|_| format!("{unit_id:?} is not a unit from 0 to 255"))?;
            (&address[..start + place.len()], number)
        }
    };
    Ok((Line::parse(place)?, unit_id))
}

/// The entries that answer.
async fn find(line: Line, unit_id: u8) -> Result<Vec<Span>, WrapperError> {
    let mut bus = Bus::new(line, ANSWER_TIME);
    let (mut found, end) = (Vec::new(), Instant::now() + TIME);
    for table in [Table::Holding, Table::Input, Table::Coils, Table::Discrete] {
        let blocks = (0..ENTRIES)
            .step_by(usize::from(BLOCK))
            .map(|address| Span {
                table,
                address,
                count: BLOCK,
            });
        let mut waiting: Vec<Span> = blocks.collect();
        waiting.reverse();
        while let Some(span) = waiting.pop() {
            if Instant::now() > end {
                return Ok(found);
            }
            match bus.read(unit_id, span).await {
                Ok(_) => join(&mut found, span),
                // The device does not have the table at all.
                Err(Failure::Exception(1)) => break,
                Err(Failure::Exception(_)) if span.count > 1 => {
                    let half = span.count / 2;
                    let second = Span {
                        address: span.address + half,
                        count: span.count - half,
                        ..span
                    };
                    waiting.extend([
                        second,
                        Span {
                            count: half,
                            ..span
                        },
                    ]);
                }
                Err(Failure::Exception(_)) => {}
                Err(failure) => {
                    let text = format!("unit {unit_id}, {span}: {failure}");
                    return Err(WrapperError::peer(text).with_hint(
                        "check host, port and unit; many devices answer only as unit 1, 0 or 255",
                    ));
                }
            }
        }
    }
    Ok(found)
}

/// Adds a span, to the last one if it continues that.
fn join(found: &mut Vec<Span>, span: Span) {
    match found.last_mut() {
        Some(last) if last.table == span.table && last.end() == u32::from(span.address) => {
            last.count += span.count;
        }
        _ => found.push(span),
    }
}

fn print(line: &Line, unit_id: u8, found: &[Span]) -> String {
    let mut toml = String::new();
    let address = toml::Value::String(line.name());
    let _ = writeln!(
        toml,
        "kind = \"modbus\"\naddress = {address}\nunit_id = {unit_id}"
    );
    for span in found {
        let _ = writeln!(toml, "# answers: {span}");
    }
    let _ = writeln!(
        toml,
        "\n# The manual of the device says what they hold: give them names, types, scales and units."
    );
    let _ = writeln!(toml, "[[poll]]\nregisters = [");
    let each = |span: &Span| {
        let table = span.table;
        (span.address..=span.address + (span.count - 1)).map(move |address| (table, address))
    };
    for (table, address) in found.iter().flat_map(each).take(FIELDS_MAX) {
        let (name, type_key) = (table.name(), if table.has_bits() { "bool" } else { "u16" });
        let _ = writeln!(
            toml,
            "    {{ name = \"{name}_{address}\", table = \"{name}\", address = {address}, type = \"{type_key}\" }},"
        );
    }
    toml.push_str("]\n");
    toml
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;

    #[test]
    fn an_address_has_a_unit() {
        let tcp = |unit_id| Ok((Line::Tcp("10.0.0.5:502".to_owned()), unit_id));
        assert_eq!(parse("modbus://10.0.0.5:502/7"), tcp(7));
        assert_eq!(parse("modbus://10.0.0.5"), tcp(1));
        assert_eq!(parse("modbus://10.0.0.5/"), tcp(1));
        for wrong in [
            "modbus://a/256",
            "modbus://a/1/2",
            "http://a/1",
            "/dev/ttyUSB0",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_printed_file_is_valid() {
        let mut found = Vec::new();
        for (table, address, count) in [
            (Table::Holding, 0, 50),
            (Table::Holding, 50, 2),
            (Table::Coils, 9, 1),
        ] {
            join(
                &mut found,
                Span {
                    table,
                    address,
                    count,
                },
            );
        }
        assert_eq!(found.len(), 2);
        let toml = print(&Line::Tcp("a:502".to_owned()), 7, &found);
        let file = wrapper_file(&toml);
        file.kind().unwrap();
        let map = super::super::map::Map::of(&file).unwrap();
        assert_eq!((map.unit_id, map.polls[0].reads.len()), (7, 2));
    }
}
