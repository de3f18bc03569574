//! Resource paths (18-088, clause 9.2).

use crate::fault::shown;
use crate::model::{EntityType, Link, has_members};
use crate::{Fault, decode_percent};

/// Steps of a path; reason: each reads entities.
const STEPS_MAX: usize = 8;

/// A resource path.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourcePath {
    /// The steps; none for the service root.
    pub steps: Vec<Step>,
    /// The part of the entity, or of the set, that is wanted.
    pub tail: Tail,
}

/// A step to a set or an entity.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The link; of the first step a set of the service.
    pub link: Link,
    /// The id of the entity in the set.
    pub id: Option<String>,
}

/// The end of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Tail {
    /// The entity or the set.
    Whole,
    /// Links to it.
    Ref,
    /// A property, with the path of a member.
    Property(Vec<String>),
    /// The value of a property.
    Value(Vec<String>),
}

impl Step {
    fn leads_to_set(&self) -> bool {
        self.link.is_many && self.id.is_none()
    }
}

impl ResourcePath {
    /// Parses a path, as it is in the URL, after the service root.
    ///
    /// # Errors
    /// [`Fault::Missing`] for a path that can name nothing.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let text = decode_percent(text, false)?;
        let mut path = Self {
            steps: Vec::new(),
            tail: Tail::Whole,
        };
        let segments = segments(text.trim_matches('/'))?;
        for (at, segment) in segments.iter().enumerate() {
            if path.tail != Tail::Whole {
                return path.in_property(&segments[at..]);
            }
            path.take(segment)?;
        }
        Ok(path)
    }

    /// The type of the entities at its end; `None` for the service root.
    #[must_use]
    pub fn target(&self) -> Option<EntityType> {
        self.steps.last().map(|step| step.link.target)
    }

    /// Whether it ends at a set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.steps.last().is_some_and(Step::leads_to_set)
    }

    fn take(&mut self, segment: &str) -> Result<(), Fault> {
        let (name, id) = name_and_id(segment)?;
        let missing = || Fault::Missing(format!("there is nothing at {:?}", shown(segment)));
        let link = match self.steps.last() {
            None => EntityType::of_set(name).map(|target| Link {
                name: target.set_name(),
                target,
                is_many: true,
            }),
            Some(last) if segment == "$ref" => {
                // A reference to what has an id of its own would repeat the request.
                if !last.link.is_many || last.id.is_none() {
                    self.tail = Tail::Ref;
                    return Ok(());
                }
                None
            }
            Some(last) if last.leads_to_set() => None,
            Some(last) => last.link.target.link(name),
        };
        let Some(link) = link else {
            let kind = self.steps.last().filter(|last| !last.leads_to_set());
            let kind = kind.map(|last| last.link.target).ok_or_else(missing)?;
            if id.is_none() && kind.has_property(name) {
                self.tail = Tail::Property(vec![name.to_owned()]);
                return Ok(());
            }
            let detail = format!("{} have no {:?}", kind.set_name(), shown(segment));
            return Err(Fault::Missing(detail));
        };
        if id.is_some() && !link.is_many {
            return Err(missing());
        }
        if self.steps.len() >= STEPS_MAX {
            let detail = format!("a path has at most {STEPS_MAX} entities");
            return Err(Fault::Invalid(detail));
        }
        self.steps.push(Step { link, id });
        Ok(())
    }

    /// What follows a property.
    fn in_property(mut self, rest: &[String]) -> Result<Self, Fault> {
        let missing = || Fault::missing("there is nothing below this property");
        let Tail::Property(mut path) = self.tail else {
            return Err(missing());
        };
        let (members, is_value) = match rest.split_last() {
            Some((last, members)) if last == "$value" => (members, true),
            _ => (rest, false),
        };
        if !members.is_empty() && !has_members(&path[0]) {
            return Err(missing());
        }
        path.extend(members.iter().cloned());
        self.tail = match is_value {
            true => Tail::Value(path),
            false => Tail::Property(path),
        };
        Ok(self)
    }
}

/// The parts between slashes; a slash in quotes belongs to an id.
fn segments(text: &str) -> Result<Vec<String>, Fault> {
    let (mut segments, mut current, mut is_quoted) = (Vec::new(), String::new(), false);
    if text.is_empty() {
        return Ok(segments);
    }
    for character in text.chars() {
        match character {
            '/' if !is_quoted => segments.push(std::mem::take(&mut current)),
            character => {
                is_quoted ^= character == '\'';
                current.push(character);
            }
        }
    }
    segments.push(current);
    match is_quoted {
        true => Err(Fault::invalid("an id in the path has no closing quote")),
        false => Ok(segments),
    }
}

/// `Things('a')`: the name and the id.
fn name_and_id(segment: &str) -> Result<(&str, Option<String>), Fault> {
    let Some((name, rest)) = segment.split_once('(') else {
        return Ok((segment, None));
    };
    let wrong = || Fault::Invalid(format!("{:?} is not an entity", shown(segment)));
    let id = rest.strip_suffix(')').ok_or_else(wrong)?;
    let quoted = id.strip_prefix('\'').and_then(|id| id.strip_suffix('\''));
    let id = match quoted {
        // A quote of its own is doubled.
        Some(id) if !id.replace("''", "").contains('\'') => id.replace("''", "'"),
        None if !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()) => id.to_owned(),
        _ => {
            return Err(Fault::Invalid(format!(
                "{:?} is not an id: ids are texts in single quotes",
                shown(id)
            )));
        }
    };
    Ok((name, Some(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_through_links_to_entities_sets_and_properties() {
        let path = ResourcePath::parse("Things('a%2Fb')/Datastreams('x:y')/Observations").unwrap();
        assert_eq!(path.steps.len(), 3);
        assert_eq!(path.steps[0].id.as_deref(), Some("a/b"));
        assert!(path.is_set());
        let path = ResourcePath::parse("/Datastreams(%27it%27%27s%27)/Thing/name/$value").unwrap();
        assert_eq!(path.steps[0].id.as_deref(), Some("it's"));
        assert_eq!(path.tail, Tail::Value(vec!["name".to_owned()]));
        let path = ResourcePath::parse("Things('a')/properties/room/floor").unwrap();
        assert!(matches!(path.tail, Tail::Property(parts) if parts.len() == 3));
        assert_eq!(
            ResourcePath::parse("Things('a')/Datastreams/$ref")
                .unwrap()
                .tail,
            Tail::Ref
        );
        assert!(ResourcePath::parse("").unwrap().steps.is_empty());
        assert_eq!(
            ResourcePath::parse("Things(5)").unwrap().steps[0]
                .id
                .as_deref(),
            Some("5")
        );
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in [
            "Nothing",
            "Things('a')/Nothing",
            "Things/name",
            "Things('a')/name/first",
            "Datastreams('a')/Thing('b')",
            "Things('a')/$ref",
            "Things('a)",
            "Things(a)",
            "Things('a'b')",
            "Things('a')/Datastreams/$ref/name",
            "Things//Datastreams",
            "%",
            "%FF",
        ] {
            assert!(ResourcePath::parse(text).is_err(), "{text}");
        }
        let long = "Things('a')".to_owned() + &"/Datastreams('b')/Thing".repeat(5);
        assert!(ResourcePath::parse(&long).is_err());
    }
}
