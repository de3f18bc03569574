//! The schema of messages.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_xml::{Element, Name, Namespace};

use super::{AttributeField, Choice, Field, Message, Quantity, Sampled, Text};
use crate::schema::{ANNOTATIONS, NAMESPACE, XsdType, format_duration};

/// Milliseconds to nanoseconds.
const NS_PER_MS: f64 = 1e6;

/// The types and elements of the messages in one namespace, as they are declared.
///
/// ```
/// use chappe_soap::message::{Message, Types};
/// use chappe_soap::schema::Schemas;
/// #[derive(Message)]
/// struct Temperature { #[unit("Cel")] celsius: f64 }
/// let mut types = Types::new("urn:x".into());
/// let name = types.element::<Temperature>("Report", "");
/// let mut schemas = Schemas::default();
/// schemas.add("report.xsd", &types.to_schema()?)?;
/// assert_eq!(schemas.flat(&name)?.fields[0].unit.as_deref(), Some("Cel"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Types {
    namespace: Namespace,
    /// The types by name, with the Rust type that each was made from; `None` while it is being made.
    types: BTreeMap<&'static str, (&'static str, Option<Element>)>,
    /// The global elements by name, with their types.
    elements: BTreeMap<String, (Name, Element)>,
    conflict: Option<TypesError>,
}

/// Messages that cannot be in one schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypesError {
    /// Two Rust types have one name.
    #[error("the types {first} and {second} have one name in the schema")]
    Type {
        /// The first.
        first: &'static str,
        /// The second.
        second: &'static str,
    },
    /// Two messages of different types have one name.
    #[error("the messages {name} have different types: {first} and {second}")]
    Element {
        /// The name.
        name: String,
        /// The first type.
        first: String,
        /// The second.
        second: String,
    },
    /// The elements of a type are in another namespace than the service.
    #[error("the elements of type {name} are in another namespace than the service")]
    Namespace {
        /// The type.
        name: &'static str,
    },
}

impl TypesError {
    /// A remedy.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Type { .. } => "rename one of them",
            Self::Element { .. } => "rename the operation, event or fault",
            Self::Namespace { .. } => "remove its `#[message(namespace = …)]`",
        }
    }
}

/// What a field's declaration says beside its type.
#[derive(Debug, Clone, Copy, Default)]
pub struct Notes {
    /// Documentation for people; empty if there is none.
    pub doc: &'static str,
    /// The unit, a UCUM code; empty if there is none.
    pub unit: &'static str,
    /// The period of samples in milliseconds.
    pub sample_period_ms: Option<f64>,
}

fn xs(local: &'static str) -> Element {
    Element::new(Name::new(NAMESPACE, local))
}

fn with(element: Element, name: &'static str, value: impl Into<String>) -> Element {
    element.with_attribute(Name::local(name), value.into())
}

fn documented(element: Element, doc: &str) -> Element {
    if doc.is_empty() {
        return element;
    }
    let documentation = xs("documentation").with_text(doc.to_owned());
    element.with_child(xs("annotation").with_child(documentation))
}

/// The text of a type's name, with the prefixes of [`Types::to_schema`].
fn qualified(name: &Name) -> String {
    let prefix = if name.namespace == NAMESPACE {
        "xs"
    } else {
        "m"
    };
    format!("{prefix}:{}", name.local)
}

impl Types {
    /// No types yet, in this namespace.
    #[must_use]
    pub fn new(namespace: Namespace) -> Self {
        Self {
            namespace,
            types: BTreeMap::new(),
            elements: BTreeMap::new(),
            conflict: None,
        }
    }

    /// Declares an element whose content is `T`, and returns its name.
    pub fn element<T: Message>(&mut self, name: &str, doc: &str) -> Name {
        let data_type = T::declare(self);
        let element = with(xs("element"), "name", name);
        let element = documented(with(element, "type", qualified(&data_type)), doc);
        match self.elements.get(name) {
            Some((known, _)) if *known != data_type => {
                let name = name.to_owned();
                let (first, second) = (known.to_string(), data_type.to_string());
                let conflict = TypesError::Element {
                    name,
                    first,
                    second,
                };
                self.conflict.get_or_insert(conflict);
            }
            Some(_) => {}
            None => {
                self.elements.insert(name.to_owned(), (data_type, element));
            }
        }
        Name::inside(&self.namespace, name)
    }

    /// Declares a struct and its fields. Its elements are in `namespace`, else in that of the messages.
    pub fn structure<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        namespace: Option<&'static str>,
        declare: impl FnOnce(&mut Fields<'_>),
    ) -> Name {
        self.complex::<T>(name, doc, "sequence", namespace, declare)
    }

    /// Declares a choice of elements, like [`Types::structure`].
    pub fn choice<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        namespace: Option<&'static str>,
        declare: impl FnOnce(&mut Fields<'_>),
    ) -> Name {
        self.complex::<T>(name, doc, "choice", namespace, declare)
    }

    fn complex<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        group: &'static str,
        namespace: Option<&'static str>,
        declare: impl FnOnce(&mut Fields<'_>),
    ) -> Name {
        if namespace.is_some_and(|other| !other.is_empty() && self.namespace != other) {
            let name = std::any::type_name::<T>();
            self.conflict.get_or_insert(TypesError::Namespace { name });
        }
        self.define::<T>(name, |types| {
            let mut fields = Fields {
                types,
                group: xs(group),
                attributes: Vec::new(),
                text: None,
                is_qualified: namespace != Some(""),
            };
            declare(&mut fields);
            let Fields {
                group,
                attributes,
                text,
                ..
            } = fields;
            let content = documented(xs("complexType"), doc);
            let Some((base, doc)) = text else {
                return content.with_child(group).with_children(attributes);
            };
            let extension = with(xs("extension"), "base", base).with_children(attributes);
            content.with_child(documented(xs("simpleContent"), doc).with_child(extension))
        })
    }

    /// Declares an enumeration of texts, each with its documentation.
    pub fn enumeration<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        variants: &[(&str, &str)],
    ) -> Name {
        self.define::<T>(name, |_| {
            let facets = variants
                .iter()
                .map(|(value, doc)| documented(with(xs("enumeration"), "value", *value), doc));
            let restriction = with(xs("restriction"), "base", "xs:string").with_children(facets);
            documented(xs("simpleType"), doc).with_child(restriction)
        })
    }

    /// The list of values of a built-in type.
    pub(super) fn list(&mut self, item: XsdType) -> Name {
        let name = match item {
            XsdType::Float => "floatSamples",
            XsdType::Double => "doubleSamples",
            XsdType::Byte => "byteSamples",
            XsdType::Short => "shortSamples",
            XsdType::Int => "intSamples",
            XsdType::Long => "longSamples",
            XsdType::UnsignedShort => "unsignedShortSamples",
            XsdType::UnsignedInt => "unsignedIntSamples",
            XsdType::UnsignedLong => "unsignedLongSamples",
            _ => "samples",
        };
        self.define::<Vec<()>>(name, |_| {
            let list = with(xs("list"), "itemType", format!("xs:{}", item.local()));
            xs("simpleType").with_child(list)
        })
    }

    /// The type without content.
    pub(super) fn empty(&mut self) -> Name {
        self.define::<()>("empty", |_| xs("complexType").with_child(xs("sequence")))
    }

    /// Defines a type unless it is, or is being defined because it contains itself.
    fn define<T>(&mut self, name: &'static str, make: impl FnOnce(&mut Self) -> Element) -> Name {
        let made_from = std::any::type_name::<T>();
        match self.types.get(name) {
            Some((known, _)) if *known != made_from => {
                let (first, second) = (*known, made_from);
                self.conflict
                    .get_or_insert(TypesError::Type { first, second });
            }
            Some(_) => {}
            None => {
                self.types.insert(name, (made_from, None));
                let definition = with(make(self), "name", name);
                self.types.insert(name, (made_from, Some(definition)));
            }
        }
        Name::inside(&self.namespace, name)
    }

    /// The schema of all types and elements.
    ///
    /// # Errors
    /// Two types or two messages have one name.
    pub fn to_schema(&self) -> Result<Element, TypesError> {
        if let Some(conflict) = &self.conflict {
            return Err(conflict.clone());
        }
        let root = xs("schema")
            .with_namespace("xs", NAMESPACE)
            .with_namespace("m", self.namespace.clone())
            .with_namespace("c", ANNOTATIONS);
        let root = with(root, "targetNamespace", &*self.namespace);
        let root = with(root, "elementFormDefault", "qualified");
        let types = self
            .types
            .values()
            .filter_map(|(_, element)| element.as_ref());
        let elements = self.elements.values().map(|(_, element)| element);
        Ok(root.with_children(types.chain(elements).cloned()))
    }
}

/// The fields of a struct that is being declared.
pub struct Fields<'t> {
    types: &'t mut Types,
    /// The elements: a sequence or choice.
    group: Element,
    attributes: Vec<Element>,
    /// The type of the text, and its documentation.
    text: Option<(String, &'static str)>,
    is_qualified: bool,
}

impl Fields<'_> {
    /// Declares a field.
    pub fn field<T: Field>(&mut self, name: &'static str, notes: Notes) {
        let data_type = T::Item::declare(self.types);
        let mut element = with(xs("element"), "name", name);
        element = with(element, "type", qualified(&data_type));
        if !self.is_qualified {
            element = with(element, "form", "unqualified");
        }
        if T::IS_NILLABLE {
            element = with(element, "nillable", "true");
        }
        let element = notes.on(occurring::<T>(element));
        self.add(element);
    }

    /// Declares a field whose elements are a choice.
    pub fn choice<T: Field<Item: Choice>>(&mut self) {
        const {
            assert!(
                !T::IS_NILLABLE,
                "an alternative of a choice is not nil: `Vec<Option<_>>` is `Vec<_>` here"
            );
        };
        let group = std::mem::replace(&mut self.group, occurring::<T>(xs("choice")));
        T::Item::declare_alternatives(self);
        let choice = std::mem::replace(&mut self.group, group);
        self.add(choice);
    }

    /// Declares an attribute.
    pub fn attribute<T: AttributeField>(&mut self, name: &'static str, notes: Notes) {
        let data_type = T::Value::declare(self.types);
        let mut attribute = with(xs("attribute"), "name", name);
        attribute = with(attribute, "type", qualified(&data_type));
        if T::IS_REQUIRED {
            attribute = with(attribute, "use", "required");
        }
        self.attributes.push(notes.on(attribute));
    }

    /// Declares the text of the element.
    pub fn text<T: Text>(&mut self, doc: &'static str) {
        self.text = Some((qualified(&T::declare(self.types)), doc));
    }

    fn add(&mut self, child: Element) {
        let group = std::mem::replace(&mut self.group, xs("sequence"));
        self.group = group.with_child(child);
    }

    /// Asserts that a unit fits the field.
    pub const fn is_quantity<T: Quantity>(&self) {}

    /// Asserts that a sample period fits the field.
    pub const fn is_sampled<T: Sampled>(&self) {}
}

/// How often the elements of a field occur.
fn occurring<T: Field>(mut element: Element) -> Element {
    let (min, max) = T::OCCURS;
    if min == 0 {
        element = with(element, "minOccurs", "0");
    }
    if max.is_none() {
        element = with(element, "maxOccurs", "unbounded");
    }
    element
}

impl Notes {
    /// Adds the notes to a declaration.
    fn on(self, mut element: Element) -> Element {
        if !self.unit.is_empty() {
            element = element.with_attribute(Name::new(ANNOTATIONS, "unit"), self.unit);
        }
        if let Some(period_ms) = self.sample_period_ms {
            let period = Duration::from_nanos((period_ms * NS_PER_MS).round() as u64);
            let nanoseconds = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX);
            let name = Name::new(ANNOTATIONS, "samplePeriod");
            element = element.with_attribute(name, format_duration(nanoseconds));
        }
        documented(element, self.doc)
    }
}
