//! XML Schema documents to compiled grammars.
//!
//! Source: XML Schema Part 1 and 2, second edition. Read is what decides on names, content models and
//! datatypes; schemas are not validated, and identity constraints, defaults and notations say nothing
//! to EXI. Files are the caller's: a schema asks for what it includes.

mod complex;
mod documents;
mod pattern;
mod simple;
mod tree;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::builder::{Builder, Declared, Expanded};
use super::model::Term;
use super::{Schema, XSD_NAMESPACE};
use crate::limits::Limits;
use complex::Complex;
use documents::{Component, Document, Documents};
use simple::Simple;
use tree::Tree;

/// A schema document that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub struct XsdError {
    /// The name under which the document was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// A schema document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XsdSource {
    /// Its name: a path or a URL.
    pub name: String,
    /// Its text.
    pub document: Vec<u8>,
}

/// Finds what a schema includes: given the name of the including document and the location that it
/// names. None: it is not to be had; an import is passed over then, an include is an error.
pub type Resolve<'r> = dyn FnMut(&str, &str) -> Option<XsdSource> + 'r;

impl Schema {
    /// Compiles schema documents, which belong together, with what they include.
    ///
    /// # Errors
    /// The first thing that cannot be used, with its file and line.
    ///
    /// ```
    /// use chappe_exi::{Schema, XsdSource};
    /// let document = br#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
    ///   <xs:element name="temperature" type="xs:double"/>
    /// </xs:schema>"#;
    /// let source = XsdSource { name: "plant.xsd".into(), document: document.to_vec() };
    /// let schema = Schema::from_xsd(vec![source], &mut |_, _| None)?.with_id("plant");
    /// assert_eq!(schema.id(), "plant");
    /// # Ok::<(), chappe_exi::XsdError>(())
    /// ```
    pub fn from_xsd(
        sources: Vec<XsdSource>,
        resolve: &mut Resolve<'_>,
    ) -> Result<Schema, XsdError> {
        Self::from_xsd_within(sources, resolve, &Limits::default())
    }

    /// As [`Schema::from_xsd`], within other limits.
    ///
    /// # Errors
    /// As [`Schema::from_xsd`].
    pub fn from_xsd_within(
        sources: Vec<XsdSource>,
        resolve: &mut Resolve<'_>,
        limits: &Limits,
    ) -> Result<Schema, XsdError> {
        let documents = Documents::load(sources, resolve)?;
        let mut builder = Builder::new(true);
        builder.states_max = limits.grammar_states;
        let mut compiler = Compiler {
            builder,
            documents,
            waiting: Vec::new(),
            types: BTreeMap::new(),
            anonymous: BTreeMap::new(),
            simple: BTreeMap::new(),
            complex: BTreeMap::new(),
            open: Vec::new(),
            global: BTreeMap::new(),
            substitutes: BTreeMap::new(),
        };
        compiler.compile()?;
        Ok(compiler.builder.finish(""))
    }
}

/// Where a type's grammars come from.
#[derive(Clone)]
enum Definition {
    Named(Expanded),
    Anonymous(Component),
}

/// What a type is.
#[derive(Clone)]
enum Kind {
    Simple(Simple),
    Complex(Rc<Complex>),
}

struct Compiler {
    builder: Builder,
    documents: Documents,
    /// Types that have a number and no grammars yet.
    waiting: Vec<(u32, Definition)>,
    types: BTreeMap<Expanded, u32>,
    /// Anonymous types by the place of their definition.
    anonymous: BTreeMap<*const Tree, u32>,
    simple: BTreeMap<Expanded, Simple>,
    complex: BTreeMap<Expanded, Rc<Complex>>,
    /// Types whose derivation is being followed.
    open: Vec<Expanded>,
    /// Global element declarations.
    global: BTreeMap<Expanded, u32>,
    /// Direct members of substitution groups, by their head.
    substitutes: BTreeMap<Expanded, Vec<Expanded>>,
}

impl Compiler {
    fn compile(&mut self) -> Result<(), XsdError> {
        for target in self.documents.targets() {
            self.builder.namespace(&target);
        }
        // The schema for schemas defines them again, in circles.
        let builder = &self.builder;
        let built_in =
            |name: &Expanded| name.0 == XSD_NAMESPACE && builder.find_type(name).is_some();
        self.documents.types.retain(|name, _| !built_in(name));
        let names: Vec<Expanded> = self.documents.types.keys().cloned().collect();
        for name in names {
            let type_ = self.named_type(&name);
            if self.documents.is_public(&name) {
                self.builder.name_type(name, type_);
            }
        }
        let elements: Vec<(Expanded, Component)> =
            self.documents.elements.clone().into_iter().collect();
        for (name, component) in &elements {
            if let Some(head) = component.tree.attribute("substitutionGroup") {
                let head = component.qname(head)?;
                self.substitutes.entry(head).or_default().push(name.clone());
            }
        }
        for (name, component) in &elements {
            let type_ = self.type_of_element(component, 0)?;
            let declared = Declared {
                name: name.clone(),
                type_,
                nillable: component.tree.is_true("nillable"),
                global: true,
            };
            let element = self.builder.element(declared);
            self.global.insert(name.clone(), element);
        }
        let attributes: Vec<_> = self.documents.attributes.clone().into_iter().collect();
        for (name, component) in attributes {
            let datatype = self.type_of_attribute(&component)?;
            self.builder.global_attribute(name, datatype);
        }
        while let Some((type_, definition)) = self.waiting.pop() {
            self.define(type_, &definition)?;
        }
        Ok(())
    }

    /// The number of a named type; its grammars come later.
    fn named_type(&mut self, name: &Expanded) -> u32 {
        if name.0 == XSD_NAMESPACE
            && let Some(type_) = self.builder.find_type(name)
        {
            return type_;
        }
        if let Some(type_) = self.types.get(name) {
            return *type_;
        }
        let type_ = self.builder.reserve_type();
        self.types.insert(name.clone(), type_);
        self.waiting.push((type_, Definition::Named(name.clone())));
        type_
    }

    /// The number of a type that a component refers to.
    fn referred_type(&mut self, component: &Component, qname: &str) -> Result<u32, XsdError> {
        let name = component.type_name(qname)?;
        let known = self.documents.types.contains_key(&name)
            || (name.0 == XSD_NAMESPACE && self.builder.find_type(&name).is_some());
        match known {
            true => Ok(self.named_type(&name)),
            false => Err(component.fail(format!("type {qname} is not declared"))),
        }
    }

    fn anonymous_type(&mut self, component: Component) -> u32 {
        let place = Rc::as_ptr(&component.tree);
        if let Some(type_) = self.anonymous.get(&place) {
            return *type_;
        }
        let type_ = self.builder.reserve_type();
        self.anonymous.insert(place, type_);
        self.waiting.push((type_, Definition::Anonymous(component)));
        type_
    }

    /// The type of an element declaration; `depth` counts heads of substitution groups.
    fn type_of_element(&mut self, component: &Component, depth: usize) -> Result<u32, XsdError> {
        if let Some(name) = component.tree.attribute("type") {
            return self.referred_type(component, name);
        }
        if let Some(inner) = component.tree.part(&["complexType", "simpleType"]) {
            return Ok(self.anonymous_type(component.child(inner)));
        }
        if let Some(head) = component.tree.attribute("substitutionGroup")
            && depth < 64
        {
            let head = component.qname(head)?;
            if let Some(head) = self.documents.elements.get(&head).cloned() {
                return self.type_of_element(&head, depth + 1);
            }
        }
        Ok(self.named_type(&(XSD_NAMESPACE.to_owned(), "anyType".to_owned())))
    }

    /// The datatype of an attribute declaration.
    fn type_of_attribute(&mut self, component: &Component) -> Result<u32, XsdError> {
        if let Some(name) = component.tree.attribute("type") {
            let name = component.type_name(name)?;
            return Ok(self.simple_named(component, &name)?.datatype);
        }
        if let Some(inner) = component.tree.part(&["simpleType"]) {
            return Ok(self.simple_type(&component.child(inner), None)?.datatype);
        }
        let any = (XSD_NAMESPACE.to_owned(), "anySimpleType".to_owned());
        Ok(self.simple_named(component, &any)?.datatype)
    }

    /// Gives a type its grammars.
    fn define(&mut self, type_: u32, definition: &Definition) -> Result<(), XsdError> {
        let (kind, component) = match definition {
            Definition::Named(name) => {
                let component = self.documents.types[name].clone();
                (self.kind_named(&component, name)?, component)
            }
            Definition::Anonymous(component) => (self.kind(component, None)?, component.clone()),
        };
        match kind {
            Kind::Simple(simple) => {
                self.builder.set_simple_type(type_, simple.datatype);
                if simple.is_union() {
                    self.builder.castable(type_);
                }
            }
            Kind::Complex(complex) => self.set_complex(type_, &component, &complex)?,
        }
        if let Definition::Named(name) = definition
            && self.documents.is_public(name)
        {
            self.mark_ancestors(&component)?;
        }
        Ok(())
    }

    /// Says of all that a named type derives from that they have a named subtype.
    fn mark_ancestors(&mut self, component: &Component) -> Result<(), XsdError> {
        let mut component = component.clone();
        for _ in 0..256 {
            let Some((derivation, base)) = derivation(&component) else {
                return Ok(());
            };
            let name = derivation.type_name(&base)?;
            let type_ = self.referred_type(&derivation, &base)?;
            self.builder.castable(type_);
            match self.documents.types.get(&name) {
                Some(next) => component = next.clone(),
                None => {
                    // The built-in ones know theirs.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn kind_named(&mut self, at: &Component, name: &Expanded) -> Result<Kind, XsdError> {
        let component = self.documents.types.get(name).cloned();
        match component {
            Some(component) if component.tree.is("complexType") => {
                self.complex_named(at, name).map(Kind::Complex)
            }
            None if name.0 == XSD_NAMESPACE && name.1 == "anyType" => {
                Ok(Kind::Complex(Rc::new(Complex::any())))
            }
            _ => self.simple_named(at, name).map(Kind::Simple),
        }
    }

    fn kind(&mut self, component: &Component, name: Option<&Expanded>) -> Result<Kind, XsdError> {
        match component.tree.is("complexType") {
            true => Ok(Kind::Complex(Rc::new(self.complex_type(component)?))),
            false => Ok(Kind::Simple(self.simple_type(component, name)?)),
        }
    }

    /// Follows a derivation, unless it is being followed.
    fn opened<T>(
        &mut self,
        at: &Component,
        name: &Expanded,
        follow: impl FnOnce(&mut Self) -> Result<T, XsdError>,
    ) -> Result<T, XsdError> {
        if self.open.contains(name) {
            return Err(at.fail(format!("type {} derives from itself", name.1)));
        }
        if self.open.len() >= 128 {
            return Err(at.fail("limit derivations of 128 is exceeded".to_owned()));
        }
        self.open.push(name.clone());
        let followed = follow(self);
        self.open.pop();
        followed
    }

    /// A reference to a global element: with its substitution group.
    fn element_term(&mut self, at: &Component, name: &Expanded) -> Result<Term, XsdError> {
        if !self.global.contains_key(name) && !self.documents.elements.contains_key(name) {
            return Err(at.fail(format!("element {} is not declared", name.1)));
        }
        let mut members = alloc::vec![name.clone()];
        let mut next = 0;
        while let Some(member) = members.get(next).cloned() {
            next += 1;
            for other in self.substitutes.get(&member).into_iter().flatten() {
                if !members.contains(other) {
                    members.push(other.clone());
                }
            }
        }
        members.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
        let global = |member: Expanded| {
            let element = self.global.get(&member).copied();
            element.map(|element| (member, element))
        };
        Ok(Term::Element(
            members.into_iter().filter_map(global).collect(),
        ))
    }
}

/// What a type derives from by restriction or extension: where it says so, and the name.
fn derivation(component: &Component) -> Option<(Component, String)> {
    let tree = &component.tree;
    let derived = match tree.part(&["simpleContent", "complexContent"]) {
        Some(content) => content.part(&["restriction", "extension"])?,
        None => tree.part(&["restriction"])?,
    };
    let base = derived.attribute("base")?.to_owned();
    Some((component.child(derived), base))
}

impl Component {
    /// An error at this place.
    fn fail(&self, reason: impl Into<String>) -> XsdError {
        XsdError {
            file: self.document.file.clone(),
            line: self.tree.line,
            reason: reason.into(),
        }
    }

    fn child(&self, tree: &Rc<Tree>) -> Component {
        Component {
            document: self.document.clone(),
            tree: tree.clone(),
        }
    }

    /// The expanded name of a reference.
    fn qname(&self, text: &str) -> Result<Expanded, XsdError> {
        let (prefix, local) = text.split_once(':').unwrap_or(("", text));
        let namespace = match self.tree.bound(prefix) {
            Some("") | None if prefix.is_empty() => match self.document.chameleon {
                true => self.document.target.as_str(),
                false => "",
            },
            Some(namespace) => namespace,
            None if prefix == "xml" => super::XML_NAMESPACE,
            None => return Err(self.fail(format!("prefix {prefix:?} is not bound"))),
        };
        Ok((namespace.to_owned(), local.to_owned()))
    }

    /// The expanded name of a type; within a redefinition, what it redefines.
    fn type_name(&self, text: &str) -> Result<Expanded, XsdError> {
        let name = self.qname(text)?;
        Ok(self.document.original("type", &name))
    }
}

impl Document {
    /// The component that a redefinition means by its own name.
    fn original(&self, space: &str, name: &Expanded) -> Expanded {
        let key = (space.to_owned(), name.clone());
        self.originals.get(&key).unwrap_or(name).clone()
    }
}
