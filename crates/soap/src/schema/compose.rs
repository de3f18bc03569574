//! Messages from arguments by name, converted and checked by the schema.

use std::fmt;

use chappe_xml::{Element, Name};

use super::{
    ComplexType, ElementModel, Model, NotFlatReason, Occurs, Part, SimpleType, TypeContent,
};

/// Nesting of arguments. Default 32, that of schemas.
const DEPTH_MAX: usize = 32;
/// Names in an error. Reason: more do not fit on a screen.
const SHOWN_MAX: usize = 32;
/// The name of an element's text among its attributes.
const TEXT: &str = "text";

/// An argument: what a person or program says about an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// A value as text.
    Value(String),
    /// Several elements of one name.
    List(Vec<Argument>),
    /// Elements and attributes by their local names; `@name` is an attribute whose name is also an
    /// element's, and `text` the text of an element with attributes.
    Fields(Vec<(String, Argument)>),
}

impl Argument {
    /// No fields.
    #[must_use]
    pub const fn none() -> Self {
        Self::Fields(Vec::new())
    }

    /// Adds a value at a path such as `limits.low`. A path that is there already becomes a list, and its
    /// last element is the one that further paths enter.
    ///
    /// # Errors
    /// The path enters a value, is empty or too deep.
    pub fn add(&mut self, path: &str, value: Self) -> Result<(), ComposeError> {
        let refuse = || ComposeError {
            path: path.to_owned(),
            reason: ComposeReason::Path,
        };
        let names: Vec<&str> = path.split('.').collect();
        if names.len() > DEPTH_MAX || names.contains(&"") {
            return Err(refuse());
        }
        self.add_at(&names, value).ok_or_else(refuse)
    }

    fn add_at(&mut self, path: &[&str], value: Self) -> Option<()> {
        let (name, rest) = path.split_first()?;
        let Self::Fields(fields) = self else {
            return None;
        };
        let known = fields.iter_mut().find(|(known, _)| known == name);
        let Some((_, known)) = known else {
            let mut inner = value;
            for name in rest.iter().rev() {
                inner = Self::Fields(vec![((*name).to_owned(), inner)]);
            }
            fields.push(((*name).to_owned(), inner));
            return Some(());
        };
        match (known, rest.is_empty()) {
            (Self::List(items), true) => items.push(value),
            (known, true) => {
                let first = std::mem::replace(known, Self::List(Vec::new()));
                *known = Self::List(vec![first, value]);
            }
            (Self::List(items), false) => items.last_mut()?.add_at(rest, value)?,
            (known, false) => known.add_at(rest, value)?,
        }
        Some(())
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            other => std::slice::from_ref(other),
        }
    }
}

/// Arguments do not fit a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposeError {
    /// The argument's path.
    pub path: String,
    /// The reason.
    pub reason: ComposeReason,
}

/// The reason of a [`ComposeError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComposeReason {
    /// A required argument is missing.
    #[error("is missing: it is {0}")]
    Missing(String),
    /// There are too few or too many elements.
    #[error("is given {count} times, but {}", occurrences(occurs))]
    Count {
        /// The given number.
        count: usize,
        /// The permitted numbers.
        occurs: Occurs,
    },
    /// The message has no such argument.
    #[error("is not an argument: {}", known(names))]
    Unknown {
        /// The known ones.
        names: Vec<String>,
    },
    /// The value is outside its type.
    #[error("cannot be {text:?}: it is {allowed}")]
    Value {
        /// The text, shortened.
        text: String,
        /// The permitted values.
        allowed: String,
    },
    /// A value where elements or attributes are expected.
    #[error("has parts, {0}, and no value of its own")]
    NotValue(String),
    /// Parts where a value is expected.
    #[error("has no parts: it is {0}")]
    NotFields(String),
    /// None or several of alternatives are given.
    #[error("needs one of {0}")]
    Choice(String),
    /// The schema allows what arguments cannot say.
    #[error("cannot be given by arguments: {0}")]
    Unsupported(NotFlatReason),
    /// The path is not one.
    #[error("is not a path of names such as `limits.low`, or enters a value")]
    Path,
}

fn occurrences(occurs: &Occurs) -> String {
    match (occurs.min, occurs.max) {
        (min, None) => format!("at least {min} are needed"),
        (min, Some(max)) if min == max => format!("{max} is the number"),
        (min, Some(max)) => format!("{min} to {max} are permitted"),
    }
}

fn known(names: &[String]) -> String {
    match names {
        [] => "there are none".to_owned(),
        names => format!("there are {}", names.join(", ")),
    }
}

impl fmt::Display for ComposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.reason)
    }
}

impl std::error::Error for ComposeError {}

type Composed<T> = Result<T, ComposeError>;

/// The path of the argument that is being converted.
#[derive(Clone, Copy)]
struct Place<'p> {
    outer: Option<&'p Place<'p>>,
    name: &'p str,
    depth: usize,
}

impl Place<'_> {
    fn refuse(&self, reason: ComposeReason) -> ComposeError {
        let mut names = vec![self.name];
        let mut outer = self.outer;
        while let Some(place) = outer {
            names.push(place.name);
            outer = place.outer;
        }
        // The root is the message, which no argument names.
        if names.len() > 1 {
            names.pop();
        }
        names.reverse();
        ComposeError {
            path: names.join("."),
            reason,
        }
    }

    fn inside<'i>(&'i self, name: &'i str) -> Place<'i> {
        Place {
            outer: Some(self),
            name,
            depth: self.depth + 1,
        }
    }
}

impl Model<'_> {
    /// A message from its arguments. Elements are in the order of the schema.
    ///
    /// # Errors
    /// [`ComposeError`] with the argument, and what is permitted for it.
    pub fn compose(&self, element: &ElementModel, argument: &Argument) -> Composed<Element> {
        let place = Place {
            outer: None,
            name: &element.name.local,
            depth: 0,
        };
        self.element_of(element, argument, place)
    }

    fn element_of(
        &self,
        element: &ElementModel,
        argument: &Argument,
        place: Place<'_>,
    ) -> Composed<Element> {
        let made = Element::new(element.name.clone());
        match &self.type_of(element.data_type).content {
            TypeContent::Simple(simple) => Ok(made.with_text(value(simple, argument, place)?)),
            TypeContent::Complex(complex) => self.content(complex, argument, place, made),
            // Any content may be empty.
            TypeContent::Unsupported(NotFlatReason::Anything) if argument.is_empty() => Ok(made),
            TypeContent::Unsupported(reason) => {
                Err(place.refuse(ComposeReason::Unsupported(reason.clone())))
            }
        }
    }

    fn content(
        &self,
        complex: &ComplexType,
        argument: &Argument,
        place: Place<'_>,
        mut made: Element,
    ) -> Composed<Element> {
        if place.depth > DEPTH_MAX {
            return Err(place.refuse(ComposeReason::Path));
        }
        let names = names(complex);
        let fields = match argument {
            Argument::Fields(fields) => fields.clone(),
            Argument::Value(_) if complex.text.is_some() => {
                vec![(TEXT.to_owned(), argument.clone())]
            }
            Argument::Value(_) | Argument::List(_) => {
                return Err(place.refuse(ComposeReason::NotValue(known(&names))));
            }
        };
        if let Some((unknown, _)) = fields.iter().find(|(name, _)| !names.contains(name)) {
            let names = names.into_iter().take(SHOWN_MAX).collect();
            let place = place.inside(unknown);
            return Err(place.refuse(ComposeReason::Unknown { names }));
        }
        let given = |name: &str| {
            let found = fields.iter().find(|(known, _)| known == name);
            found.map(|(_, argument)| argument)
        };
        for attribute in &complex.attributes {
            let name = attribute_name(complex, &attribute.name);
            let place = place.inside(&name);
            match given(&name) {
                Some(argument) => {
                    let text = value(&attribute.data_type, argument, place)?;
                    made = made.with_attribute(attribute.name.clone(), text);
                }
                None if attribute.is_required => {
                    let missing = ComposeReason::Missing(attribute.data_type.to_string());
                    return Err(place.refuse(missing));
                }
                None => {}
            }
        }
        if let Some(text) = &complex.text {
            let place = place.inside(TEXT);
            let missing = || place.refuse(ComposeReason::Missing(text.to_string()));
            let argument = given(TEXT).ok_or_else(missing)?;
            return Ok(made.with_text(value(text, argument, place)?));
        }
        let mut children = Vec::new();
        for part in &complex.parts {
            self.add_part(part, &given, place, &mut children)?;
        }
        Ok(made.with_children(children))
    }

    fn add_part<'g>(
        &self,
        part: &Part,
        given: &dyn Fn(&str) -> Option<&'g Argument>,
        place: Place<'_>,
        children: &mut Vec<Element>,
    ) -> Composed<()> {
        match part {
            Part::Element(element) => self.occurrences(element, given, place, children),
            Part::Sequence(occurs, parts) => {
                let is_given = parts.iter().any(|part| part.is_given(given));
                match is_given || !occurs.is_optional() {
                    true => parts
                        .iter()
                        .try_for_each(|part| self.add_part(part, given, place, children)),
                    false => Ok(()),
                }
            }
            Part::Choice(occurs, parts) => {
                let mut alternatives = parts.iter().filter(|part| part.is_given(given));
                let first = alternatives.next();
                let several = alternatives.next().is_some();
                match first {
                    // An alternative without elements, such as a wildcard, needs no argument.
                    None if occurs.is_optional() || parts.iter().any(Part::may_be_empty) => Ok(()),
                    Some(_) if several && occurs.is_repeated() => parts
                        .iter()
                        .filter(|part| part.is_given(given))
                        .try_for_each(|part| self.add_part(part, given, place, children)),
                    Some(only) if !several => self.add_part(only, given, place, children),
                    _ => {
                        let mut names = Vec::new();
                        parts.iter().for_each(|part| part.names(&mut names));
                        names.truncate(SHOWN_MAX);
                        Err(place.refuse(ComposeReason::Choice(names.join(", "))))
                    }
                }
            }
            Part::Any(_) => Ok(()),
            Part::Unsupported(reason) => {
                Err(place.refuse(ComposeReason::Unsupported(reason.clone())))
            }
        }
    }

    fn occurrences<'g>(
        &self,
        element: &ElementModel,
        given: &dyn Fn(&str) -> Option<&'g Argument>,
        place: Place<'_>,
        children: &mut Vec<Element>,
    ) -> Composed<()> {
        let occurs = element.occurs;
        let place = place.inside(&element.name.local);
        let Some(argument) = given(&element.name.local) else {
            if occurs.is_optional() {
                return Ok(());
            }
            // An element that needs no arguments is there without one.
            let made = self.element_of(element, &Argument::none(), place);
            let is_single = occurs.min == 1 && self.is_without_value(element);
            return match (made, is_single) {
                (Ok(made), true) => {
                    children.push(made);
                    Ok(())
                }
                (Err(inner), true) => Err(inner),
                _ => Err(place.refuse(ComposeReason::Missing(self.in_words(element)))),
            };
        };
        let items = argument.items();
        let count = items.len();
        let is_few = count < occurs.min as usize;
        if is_few || occurs.max.is_some_and(|max| count > max as usize) {
            return Err(place.refuse(ComposeReason::Count { count, occurs }));
        }
        for item in items {
            children.push(self.element_of(element, item, place)?);
        }
        Ok(())
    }

    fn is_without_value(&self, element: &ElementModel) -> bool {
        let content = &self.type_of(element.data_type).content;
        match content {
            TypeContent::Complex(complex) => complex.text.is_none(),
            TypeContent::Unsupported(reason) => *reason == NotFlatReason::Anything,
            TypeContent::Simple(_) => false,
        }
    }

    /// What an element needs.
    #[must_use]
    pub fn in_words(&self, element: &ElementModel) -> String {
        match &self.type_of(element.data_type).content {
            TypeContent::Simple(simple) => simple.to_string(),
            TypeContent::Complex(complex) => match names(complex).as_slice() {
                [] => "an element without content".to_owned(),
                names => {
                    let shown = &names[..names.len().min(SHOWN_MAX)];
                    format!("an element with {}", shown.join(", "))
                }
            },
            TypeContent::Unsupported(reason) => format!("not described: {reason}"),
        }
    }
}

impl Argument {
    fn is_empty(&self) -> bool {
        match self {
            Self::Value(text) => text.is_empty(),
            Self::List(_) => false,
            Self::Fields(fields) => fields.is_empty(),
        }
    }
}

impl Part {
    fn is_given<'g>(&self, given: &dyn Fn(&str) -> Option<&'g Argument>) -> bool {
        let mut names = Vec::new();
        self.names(&mut names);
        names.iter().any(|name| given(name).is_some())
    }

    /// Whether it may have no element, so that no argument says that it is meant.
    fn may_be_empty(&self) -> bool {
        match self {
            Self::Element(element) => element.occurs.is_optional(),
            Self::Sequence(occurs, parts) => {
                occurs.is_optional() || parts.iter().all(Self::may_be_empty)
            }
            Self::Choice(occurs, parts) => {
                occurs.is_optional() || parts.iter().any(Self::may_be_empty)
            }
            Self::Any(occurs) => occurs.is_optional(),
            Self::Unsupported(_) => false,
        }
    }

    /// The local names of its elements.
    fn names(&self, names: &mut Vec<String>) {
        match self {
            Self::Element(element) => {
                let name = &*element.name.local;
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
            Self::Sequence(_, parts) | Self::Choice(_, parts) => {
                parts.iter().for_each(|part| part.names(names));
            }
            Self::Any(_) | Self::Unsupported(_) => {}
        }
    }
}

/// The arguments of a type.
fn names(complex: &ComplexType) -> Vec<String> {
    let mut names = Vec::new();
    complex.parts.iter().for_each(|part| part.names(&mut names));
    names.extend(complex.text.iter().map(|_| TEXT.to_owned()));
    let attributes = complex.attributes.iter();
    let attributes: Vec<String> = attributes
        .map(|attribute| attribute_name(complex, &attribute.name))
        .collect();
    names.extend(attributes);
    names
}

/// The argument of an attribute, which has `@` before its name where an element has the name.
fn attribute_name(complex: &ComplexType, name: &Name) -> String {
    let mut names = Vec::new();
    complex.parts.iter().for_each(|part| part.names(&mut names));
    let local = &*name.local;
    let is_taken = names.iter().any(|known| known == local);
    match is_taken || (complex.text.is_some() && local == TEXT) {
        true => format!("@{local}"),
        false => local.to_owned(),
    }
}

fn value(simple: &SimpleType, argument: &Argument, place: Place<'_>) -> Composed<String> {
    let text = match argument {
        Argument::Value(text) => text.clone(),
        // A list of values is one text.
        Argument::List(items) if simple.is_list => {
            let items = items.iter().map(|item| match item {
                Argument::Value(text) => Some(text.as_str()),
                _ => None,
            });
            let items: Option<Vec<&str>> = items.collect();
            let wrong = || place.refuse(ComposeReason::NotFields(simple.to_string()));
            items.ok_or_else(wrong)?.join(" ")
        }
        Argument::List(items) => {
            let (count, occurs) = (items.len(), Occurs::ONCE);
            return Err(place.refuse(ComposeReason::Count { count, occurs }));
        }
        Argument::Fields(fields) if fields.is_empty() => {
            return Err(place.refuse(ComposeReason::Missing(simple.to_string())));
        }
        Argument::Fields(_) => {
            return Err(place.refuse(ComposeReason::NotFields(simple.to_string())));
        }
    };
    match simple.permits(&text) {
        true => Ok(text),
        false => Err(place.refuse(ComposeReason::Value {
            text: text.chars().take(64).collect(),
            allowed: simple.to_string(),
        })),
    }
}
