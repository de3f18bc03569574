//! Selects the nodes of a query (RFC 9535, 2.3 to 2.5).

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Number, Value as Json};

use super::{
    Comparison, Function, Logical, Operand, OutOfWork, Pattern, Query, Segment, Selector, Work,
    compile,
};

/// Steps of compiling a pattern of the document; measured: below 100 µs for the largest allowed.
const COMPILE_STEPS: u64 = 5_000;

type Nodes<'d> = Vec<&'d Json>;

pub(super) fn select<'d>(
    segments: &[Segment],
    root: &'d Json,
    current: &'d Json,
    work: &mut Work,
) -> Result<Nodes<'d>, OutOfWork> {
    let mut nodes = vec![current];
    for segment in segments {
        let mut found = Vec::new();
        for node in nodes {
            match segment.is_descendant {
                true => descend(segment, root, node, &mut found, work)?,
                false => children(segment, root, node, &mut found, work)?,
            }
        }
        nodes = found;
    }
    Ok(nodes)
}

/// The node of a query of names and indexes.
pub(super) fn singular<'d>(
    segments: &[Segment],
    current: &'d Json,
    work: &mut Work,
) -> Result<Option<&'d Json>, OutOfWork> {
    let mut node = current;
    for segment in segments {
        work.spend(1)?;
        let next = match (&segment.selectors[..], node) {
            ([Selector::Name(name)], Json::Object(members)) => members.get(name),
            ([Selector::Index(index)], Json::Array(items)) => item(items, *index),
            _ => None,
        };
        match next {
            Some(next) => node = next,
            None => return Ok(None),
        }
    }
    Ok(Some(node))
}

/// The children of a node and of all its descendants. The depth is that of the document, which its
/// parser bounds.
fn descend<'d>(
    segment: &Segment,
    root: &'d Json,
    node: &'d Json,
    found: &mut Nodes<'d>,
    work: &mut Work,
) -> Result<(), OutOfWork> {
    children(segment, root, node, found, work)?;
    match node {
        Json::Array(items) => items
            .iter()
            .try_for_each(|item| descend(segment, root, item, found, work)),
        Json::Object(members) => members
            .values()
            .try_for_each(|member| descend(segment, root, member, found, work)),
        _ => Ok(()),
    }
}

fn children<'d>(
    segment: &Segment,
    root: &'d Json,
    node: &'d Json,
    found: &mut Nodes<'d>,
    work: &mut Work,
) -> Result<(), OutOfWork> {
    for selector in &segment.selectors {
        work.spend(1)?;
        match (selector, node) {
            (Selector::Name(name), Json::Object(members)) => found.extend(members.get(name)),
            (Selector::Index(index), Json::Array(items)) => found.extend(item(items, *index)),
            (Selector::Wildcard, Json::Array(items)) => {
                work.spend(items.len() as u64)?;
                found.extend(items);
            }
            (Selector::Wildcard, Json::Object(members)) => {
                work.spend(members.len() as u64)?;
                found.extend(members.values());
            }
            (Selector::Slice { start, end, step }, Json::Array(items)) => {
                slice(items, (*start, *end, *step), found, work)?;
            }
            (Selector::Filter(filter), Json::Array(items)) => {
                for item in items {
                    if holds(filter, root, item, work)? {
                        found.push(item);
                    }
                }
            }
            (Selector::Filter(filter), Json::Object(members)) => {
                for member in members.values() {
                    if holds(filter, root, member, work)? {
                        found.push(member);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn item(items: &[Json], index: i64) -> Option<&Json> {
    let length = i64::try_from(items.len()).ok()?;
    let index = if index < 0 { length + index } else { index };
    items.get(usize::try_from(index).ok()?)
}

/// The items of a slice (RFC 9535, 2.3.4.2.2).
fn slice<'d>(
    items: &'d [Json],
    (start, end, step): (Option<i64>, Option<i64>, i64),
    found: &mut Nodes<'d>,
    work: &mut Work,
) -> Result<(), OutOfWork> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let absolute = |index: i64| if index < 0 { length + index } else { index };
    if step == 0 {
        return Ok(());
    }
    let (lower, upper) = match step > 0 {
        true => (
            absolute(start.unwrap_or(0)).clamp(0, length),
            absolute(end.unwrap_or(length)).clamp(0, length),
        ),
        false => (
            end.map_or(-1, absolute).clamp(-1, length - 1),
            absolute(start.unwrap_or(length - 1)).clamp(-1, length - 1),
        ),
    };
    let mut index = if step > 0 { lower } else { upper };
    while (step > 0 && index < upper) || (step < 0 && index > lower) {
        work.spend(1)?;
        found.extend(
            usize::try_from(index)
                .ok()
                .and_then(|index| items.get(index)),
        );
        index += step;
    }
    Ok(())
}

fn holds(
    filter: &Logical,
    root: &Json,
    current: &Json,
    work: &mut Work,
) -> Result<bool, OutOfWork> {
    work.spend(1)?;
    match filter {
        Logical::Or(parts) => {
            for part in parts {
                if holds(part, root, current, work)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Logical::And(parts) => {
            for part in parts {
                if !holds(part, root, current, work)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Logical::Not(inner) => Ok(!holds(inner, root, current, work)?),
        Logical::Exists(query) => Ok(!nodes(query, root, current, work)?.is_empty()),
        Logical::Compare(left, comparison, right) => {
            let left = value(left, root, current, work)?;
            let right = value(right, root, current, work)?;
            compare(left.as_deref(), *comparison, right.as_deref(), work)
        }
        Logical::Function(function) => match function {
            Function::Matches {
                text,
                pattern,
                is_whole,
            } => matches(text, pattern, *is_whole, root, current, work),
            _ => Ok(false),
        },
    }
}

fn nodes<'d>(
    query: &Query,
    root: &'d Json,
    current: &'d Json,
    work: &mut Work,
) -> Result<Nodes<'d>, OutOfWork> {
    let from = if query.is_absolute { root } else { current };
    select(&query.segments, root, from, work)
}

fn value<'d>(
    operand: &'d Operand,
    root: &'d Json,
    current: &'d Json,
    work: &mut Work,
) -> Result<Option<Cow<'d, Json>>, OutOfWork> {
    Ok(match operand {
        Operand::Literal(literal) => Some(Cow::Borrowed(literal)),
        Operand::Query(query) => {
            let from = if query.is_absolute { root } else { current };
            singular(&query.segments, from, work)?.map(Cow::Borrowed)
        }
        Operand::Function(function) => match &**function {
            Function::Length(operand) => {
                let value = value(operand, root, current, work)?;
                let length = match value.as_deref() {
                    Some(Json::String(text)) => {
                        work.spend(text.len() as u64 / 64)?;
                        Some(text.chars().count())
                    }
                    Some(Json::Array(items)) => Some(items.len()),
                    Some(Json::Object(members)) => Some(members.len()),
                    _ => None,
                };
                length.map(|length| Cow::Owned(Json::from(length)))
            }
            Function::Count(query) => {
                let count = nodes(query, root, current, work)?.len();
                Some(Cow::Owned(Json::from(count)))
            }
            Function::Value(query) => match nodes(query, root, current, work)?[..] {
                [only] => Some(Cow::Borrowed(only)),
                _ => None,
            },
            Function::Matches { .. } => None,
        },
    })
}

fn matches(
    text: &Operand,
    pattern: &Pattern,
    is_whole: bool,
    root: &Json,
    current: &Json,
    work: &mut Work,
) -> Result<bool, OutOfWork> {
    let text = value(text, root, current, work)?;
    let Some(Json::String(text)) = text.as_deref() else {
        return Ok(false);
    };
    work.spend(1 + text.len() as u64)?;
    match pattern {
        Pattern::Literal(regex) => Ok(regex.as_ref().is_some_and(|regex| regex.is_match(text))),
        Pattern::Dynamic(operand) => {
            let pattern = value(operand, root, current, work)?;
            let Some(Json::String(pattern)) = pattern.as_deref() else {
                return Ok(false);
            };
            work.spend(COMPILE_STEPS)?;
            Ok(compile(pattern, is_whole).is_some_and(|regex| regex.is_match(text)))
        }
    }
}

/// A comparison; `None` is the value of a query that selects nothing.
fn compare(
    left: Option<&Json>,
    comparison: Comparison,
    right: Option<&Json>,
    work: &mut Work,
) -> Result<bool, OutOfWork> {
    let order = match (left, right) {
        (Some(Json::Number(left)), Some(Json::Number(right))) => order(left, right),
        (Some(Json::String(left)), Some(Json::String(right))) => {
            work.spend(left.len().min(right.len()) as u64 / 64)?;
            Some(left.cmp(right))
        }
        (Some(left), Some(right)) => is_equal(left, right, work)?.then_some(Ordering::Equal),
        (None, None) => Some(Ordering::Equal),
        _ => None,
    };
    Ok(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

fn order(left: &Number, right: &Number) -> Option<Ordering> {
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        return Some(left.cmp(&right));
    }
    if let (Some(left), Some(right)) = (left.as_u64(), right.as_u64()) {
        return Some(left.cmp(&right));
    }
    left.as_f64()?.partial_cmp(&right.as_f64()?)
}

fn is_equal(left: &Json, right: &Json, work: &mut Work) -> Result<bool, OutOfWork> {
    work.spend(1)?;
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => {
            Ok(order(left, right) == Some(Ordering::Equal))
        }
        (Json::Array(left), Json::Array(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right) {
                if !is_equal(left, right, work)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Json::Object(left), Json::Object(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (name, left) in left {
                match right.get(name) {
                    Some(right) if is_equal(left, right, work)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        _ => Ok(left == right),
    }
}
