//! Names the members in which two types differ.

use super::{Structure, Type, joined};

/// The largest number of named differences; reason: a person reads them.
const DIFFERENCES_MAX: usize = 16;

impl Structure {
    /// The differences of an announced type, `self`, from an expected one, member by member and at most 16; empty if samples of
    /// the first are samples of the second. The names of types do not matter, nor how they may be extended
    /// and which members are the key.
    #[must_use]
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let mut found = Vec::new();
        structures("", self, expected, &mut found);
        found.truncate(DIFFERENCES_MAX);
        found
    }
}

fn structures(path: &str, there: &Structure, here: &Structure, found: &mut Vec<String>) {
    for (index, member) in here.members.iter().enumerate() {
        let path = joined(path, &member.name);
        let known = there.members.iter().position(|it| it.name == member.name);
        let Some(at) = known else {
            found.push(format!("{path}: not announced, expected {}", member.of));
            continue;
        };
        let announced = &there.members[at];
        if at != index {
            found.push(format!(
                "{path}: announced as member {at}, expected {index}"
            ));
        }
        if announced.is_optional != member.is_optional {
            let word = |is_optional| if is_optional { "optional" } else { "required" };
            found.push(format!(
                "{path}: announced as {}, expected {}",
                word(announced.is_optional),
                word(member.is_optional)
            ));
        }
        types(&path, &announced.of, &member.of, found);
    }
    for member in &there.members {
        if !here.members.iter().any(|it| it.name == member.name) {
            let path = joined(path, &member.name);
            found.push(format!("{path}: announced as {}, not expected", member.of));
        }
    }
}

fn types(path: &str, there: &Type, here: &Type, found: &mut Vec<String>) {
    match (there, here) {
        (Type::Structure(there), Type::Structure(here)) => structures(path, there, here, found),
        (Type::Sequence(there), Type::Sequence(here)) => types(path, there, here, found),
        (Type::Array(there, count), Type::Array(here, expected)) if count == expected => {
            types(path, there, here, found);
        }
        (Type::Enumeration(there), Type::Enumeration(here))
            if there.bytes == here.bytes && there.literals == here.literals => {}
        (there, here) if there == here => {}
        (Type::Enumeration(_), Type::Enumeration(here)) => {
            found.push(format!(
                "{path}: other names or numbers than {} has",
                here.name
            ));
        }
        (there, here) => found.push(format!("{path}: announced as {there}, expected {here}")),
    }
}
