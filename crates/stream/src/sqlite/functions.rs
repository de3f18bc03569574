//! Functions that SQLite lacks in this build, and those of which its own take too long.
//!
//! SQLite's `instr`, `replace` and `trim` with a set take time in the product of their arguments'
//! lengths, within one step that nothing can interrupt: here they are linear, or bound the set.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};

/// Most characters of the set that `trim` strips; reason: its cost is set times text.
const TRIM_SET_MAX: usize = 64;

type Unary = fn(f64) -> f64;
type Binary = fn(f64, f64) -> f64;

/// Functions of one number.
pub(crate) const MATHEMATICS: [(&str, Unary); 14] = [
    ("sqrt", f64::sqrt),
    ("exp", f64::exp),
    ("ln", f64::ln),
    ("log10", f64::log10),
    ("floor", f64::floor),
    ("ceil", f64::ceil),
    ("sin", f64::sin),
    ("cos", f64::cos),
    ("tan", f64::tan),
    ("asin", f64::asin),
    ("acos", f64::acos),
    ("atan", f64::atan),
    ("degrees", f64::to_degrees),
    ("radians", f64::to_radians),
];

/// Functions of two numbers.
pub(crate) const MATHEMATICS_OF_TWO: [(&str, Binary); 3] = [
    ("pow", f64::powf),
    ("power", f64::powf),
    ("atan2", f64::atan2),
];

/// Without effect, and with the same result for the same arguments.
pub(super) const FLAGS: FunctionFlags = FunctionFlags::SQLITE_UTF8
    .union(FunctionFlags::SQLITE_DETERMINISTIC)
    .union(FunctionFlags::SQLITE_INNOCUOUS);

/// Registers them; `length` bounds what they return.
pub(super) fn register(connection: &Connection, length: i32) -> Result<()> {
    let flags = FLAGS;
    for (name, function) in MATHEMATICS {
        connection.create_scalar_function(name, 1, flags, move |context| {
            Ok(number(context, 0).map(function))
        })?;
    }
    for (name, function) in MATHEMATICS_OF_TWO {
        connection.create_scalar_function(name, 2, flags, move |context| {
            let arguments = number(context, 0).zip(number(context, 1));
            Ok(arguments.map(|(first, second)| function(first, second)))
        })?;
    }
    connection.create_scalar_function("pi", 0, flags, |_| Ok(std::f64::consts::PI))?;
    super::in_unit::register(connection, flags)?;
    super::sums::register(connection)?;
    super::time::register(connection, flags)?;
    super::dialects::register(connection, flags)?;
    connection.create_scalar_function("instr", 2, flags, instr)?;
    let most = usize::try_from(length).unwrap_or(0);
    connection
        .create_scalar_function("replace", 3, flags, move |context| replace(context, most))?;
    for (name, start, end) in [
        ("trim", true, true),
        ("ltrim", true, false),
        ("rtrim", false, true),
    ] {
        for arguments in [1, 2] {
            connection.create_scalar_function(name, arguments, flags, move |context| {
                trim(context, start, end)
            })?;
        }
    }
    Ok(())
}

/// The argument as a number; null for what is none.
pub(super) fn number(context: &Context<'_>, index: usize) -> Option<f64> {
    match context.get_raw(index) {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number),
        _ => None,
    }
}

/// The argument as text; null for null.
pub(super) fn text(context: &Context<'_>, index: usize) -> Option<String> {
    match context.get_raw(index) {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(format!("{number:?}")),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

fn instr(context: &Context<'_>) -> Result<Option<i64>> {
    let Some((hay, needle)) = text(context, 0).zip(text(context, 1)) else {
        return Ok(None);
    };
    let found = hay.find(&needle).map(|at| hay[..at].chars().count() + 1);
    Ok(Some(found.map_or(0, |at| i64::try_from(at).unwrap_or(0))))
}

fn replace(context: &Context<'_>, most: usize) -> Result<Option<String>> {
    let (Some(whole), Some(old), Some(new)) =
        (text(context, 0), text(context, 1), text(context, 2))
    else {
        return Ok(None);
    };
    if old.is_empty() {
        return Ok(Some(whole));
    }
    let found = whole.matches(&old).count();
    let bytes = whole.len() - found * old.len() + found.saturating_mul(new.len());
    if bytes > most {
        return Err(Error::UserFunctionError(
            format!("replace() would give {bytes} bytes, more than {most}").into(),
        ));
    }
    Ok(Some(whole.replace(&old, &new)))
}

fn trim(context: &Context<'_>, start: bool, end: bool) -> Result<Option<String>> {
    let set = if context.len() == 2 {
        text(context, 1)
    } else {
        Some(" ".into())
    };
    let Some((whole, set)) = text(context, 0).zip(set) else {
        return Ok(None);
    };
    let set: Vec<char> = set.chars().take(TRIM_SET_MAX + 1).collect();
    if set.len() > TRIM_SET_MAX {
        return Err(Error::UserFunctionError(
            format!("trim() takes at most {TRIM_SET_MAX} characters to strip").into(),
        ));
    }
    let mut rest = whole.as_str();
    if start {
        rest = rest.trim_start_matches(&set[..]);
    }
    if end {
        rest = rest.trim_end_matches(&set[..]);
    }
    Ok(Some(rest.to_owned()))
}
