//! Records of comma-separated values (RFC 4180) as elements.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::LineError;
use super::shape::{Draft, Shape, Slot, integral};
use crate::{FieldType, StreamElement, Timestamp, Value};

/// The columns of a body.
#[derive(Debug)]
pub(super) struct Header {
    columns: Vec<Slot>,
}

/// A cell, and whether it is in quotes.
type Cell<'t> = (Cow<'t, str>, bool);

impl Header {
    pub(super) fn read(text: &str, shape: &Shape) -> Result<Self, LineError> {
        let mut columns = Vec::new();
        let mut rest = Some(text);
        while let Some((name, _)) = next_cell(&mut rest)? {
            let slot = shape.slot(name.trim())?;
            if columns.contains(&slot) {
                return Err(LineError::Twice(name.into_owned()));
            }
            let samples = |index| shape.field(index).field_type == FieldType::Samples;
            if matches!(slot, Slot::Field(index) if samples(index)) {
                let text = format!("field {name:?} is of type samples, which only JSON has");
                return Err(LineError::Syntax(text));
            }
            columns.push(slot);
        }
        Ok(Self { columns })
    }

    pub(super) fn element(
        &self,
        text: &str,
        shape: &Shape,
        now: Timestamp,
    ) -> Result<StreamElement, LineError> {
        let mut draft = shape.draft();
        let mut rest = Some(text);
        let mut found = 0;
        while let Some(cell) = next_cell(&mut rest)? {
            if let Some(slot) = self.columns.get(found) {
                set(&mut draft, *slot, cell, shape)?;
            }
            found += 1;
        }
        let wanted = self.columns.len();
        if found != wanted {
            return Err(LineError::Cells { found, wanted });
        }
        shape.finish(draft, now)
    }
}

fn set(
    draft: &mut Draft,
    slot: Slot,
    (cell, quoted): Cell<'_>,
    shape: &Shape,
) -> Result<(), LineError> {
    if cell.is_empty() && !quoted {
        return Ok(());
    }
    match slot {
        Slot::SourceTime => draft.set_time(cell.trim()),
        Slot::Quality => draft.set_quality(cell.trim()),
        Slot::Key => {
            draft.set_key(cell.into_owned());
            Ok(())
        }
        Slot::Field(index) => {
            draft.set(index, field(index, cell, shape)?);
            Ok(())
        }
    }
}

fn field(index: usize, cell: Cow<'_, str>, shape: &Shape) -> Result<Value, LineError> {
    let wrong = || shape.wrong_type(index, &cell);
    match shape.field(index).field_type {
        FieldType::Boolean => match cell.trim() {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            _ => Err(wrong()),
        },
        FieldType::Integer => {
            let number = cell.trim().parse().ok();
            let number = number.or_else(|| integral(cell.trim()));
            number.map(Value::Integer).ok_or_else(wrong)
        }
        FieldType::Double => match cell.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Double(number)),
            Ok(_) => Err(LineError::NotFinite(shape.field(index).name.clone())),
            Err(_) => Err(wrong()),
        },
        FieldType::Text => Ok(Value::Text(cell.into_owned())),
        FieldType::Bytes => match STANDARD.decode(cell.trim()) {
            Ok(bytes) => Ok(Value::Bytes(bytes)),
            Err(_) => Err(shape.wrong_type(index, "a text that is not base64")),
        },
        FieldType::Samples => Err(wrong()),
    }
}

/// Takes the next cell of a record off `rest`, which is `None` after the last one.
fn next_cell<'t>(rest: &mut Option<&'t str>) -> Result<Option<Cell<'t>>, LineError> {
    let Some(text) = *rest else {
        return Ok(None);
    };
    let Some(inner) = text.strip_prefix('"') else {
        let (cell, after) = match text.split_once(',') {
            Some((cell, after)) => (cell, Some(after)),
            None => (text, None),
        };
        if cell.contains('"') {
            let text = "a quote is inside a cell that does not start with one";
            return Err(LineError::Syntax(text.to_owned()));
        }
        *rest = after;
        return Ok(Some((Cow::Borrowed(cell), false)));
    };
    // Quotes within the cell are doubled.
    let mut end = 0;
    let mut has_quotes = false;
    loop {
        let Some(quote) = inner[end..].find('"') else {
            let text = "a cell in quotes has no closing quote";
            return Err(LineError::Syntax(text.to_owned()));
        };
        end += quote;
        if !inner[end + 1..].starts_with('"') {
            break;
        }
        has_quotes = true;
        end += 2;
    }
    let cell = match has_quotes {
        true => Cow::Owned(inner[..end].replace("\"\"", "\"")),
        false => Cow::Borrowed(&inner[..end]),
    };
    let after = &inner[end + 1..];
    *rest = match after.strip_prefix(',') {
        Some(after) => Some(after),
        None if after.is_empty() => None,
        None => {
            let text = "a comma is missing after a cell in quotes";
            return Err(LineError::Syntax(text.to_owned()));
        }
    };
    Ok(Some((cell, true)))
}
