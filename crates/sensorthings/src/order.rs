//! `$orderby` (18-088, clause 9.3.3.1).

use std::cmp::Ordering;

use crate::answer::size;
use crate::evaluate::Scope;
use crate::fault::shown;
use crate::model::EntityType;
use crate::parser::check_path;
use crate::{Fault, Value};

/// Keys of an order.
const KEYS_MAX: usize = 8;

/// A key of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The path of a property.
    pub path: Vec<String>,
    /// Whether the greatest comes first.
    pub is_descending: bool,
}

/// The values of an entity for the keys of an order. Values of different types, as far as they have no order,
/// are in the order of the types; null comes first.
#[derive(Debug, Clone)]
pub struct Order(Vec<(Value, bool)>);

impl Order {
    /// The values of an entity.
    ///
    /// # Errors
    /// Those of the scope.
    pub fn of(keys: &[Key], scope: &dyn Scope) -> Result<Self, Fault> {
        let values = keys.iter().map(|key| {
            let value = match scope.value(&key.path)? {
                // The least of a set is as good as any other, and stays the same.
                Value::Many(values) => values.into_iter().min_by(compare).unwrap_or(Value::Null),
                value => value,
            };
            Ok((value, key.is_descending))
        });
        values.collect::<Result<_, _>>().map(Self)
    }

    /// Bytes of its values, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let values = self.0.iter().map(|(value, _)| match value {
            Value::Text(text) => text.len(),
            Value::Other(json) => size(json),
            _ => 0,
        });
        values.sum::<usize>() + self.0.len() * size_of::<Value>()
    }
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Order {}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Order {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.0.iter().zip(&other.0);
        let mut orders = pairs.map(|((one, is_descending), (other, _))| {
            let order = compare(one, other);
            if *is_descending {
                order.reverse()
            } else {
                order
            }
        });
        orders
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

/// A total order: numbers by their values, not-a-number last of them; periods by their starts, then ends.
fn compare(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Boolean(_) => 1,
        Value::Integer(_) | Value::Double(_) => 2,
        Value::Text(_) => 3,
        Value::Time(..) => 4,
        Value::Duration(_) => 5,
        Value::Other(_) => 6,
        Value::Many(_) => 7,
    };
    let is_nan = |value: &Value| value.number().is_some_and(f64::is_nan);
    match (one, other) {
        (Value::Time(from, to), Value::Time(other_from, other_to)) => {
            (from, to).cmp(&(other_from, other_to))
        }
        _ if rank(one) != rank(other) => rank(one).cmp(&rank(other)),
        _ => one
            .order(other)
            .unwrap_or_else(|| is_nan(one).cmp(&is_nan(other))),
    }
}

/// Parses `$orderby` for entities of type `kind`.
pub(crate) fn parse_order(text: &str, kind: EntityType) -> Result<Vec<Key>, Fault> {
    let mut keys = Vec::new();
    for part in text.split(',') {
        let mut words = part.split_whitespace();
        let path = words.next().unwrap_or_default();
        let is_descending = match words.next() {
            None => false,
            // Clients write both.
            Some(word) if word.eq_ignore_ascii_case("asc") => false,
            Some(word) if word.eq_ignore_ascii_case("desc") => true,
            Some(word) => {
                let detail = format!("$orderby: {:?} is neither asc nor desc", shown(word));
                return Err(Fault::Invalid(detail));
            }
        };
        if words.next().is_some() {
            let detail = format!("$orderby: {:?} is malformed", shown(part));
            return Err(Fault::Invalid(detail));
        }
        let path: Vec<String> = path.split('/').map(str::to_owned).collect();
        check_path(&path, kind)?;
        keys.push(Key {
            path,
            is_descending,
        });
    }
    match keys.len() > KEYS_MAX {
        true => Err(Fault::Invalid(format!(
            "$orderby has at most {KEYS_MAX} keys"
        ))),
        false => Ok(keys),
    }
}

/// Whether an order is that of time alone, and whether it is descending: the log has it.
#[must_use]
pub(crate) fn is_by_time(keys: &[Key], names: &[&str]) -> Option<bool> {
    match keys {
        [
            Key {
                path,
                is_descending,
            },
        ] if path.len() == 1 && names.contains(&path[0].as_str()) => Some(*is_descending),
        _ => None,
    }
}
