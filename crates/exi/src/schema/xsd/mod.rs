//! Compiling XML Schema documents to grammars.
//!
//! Source: XML Schema Part 1 and 2, second edition. The compiler reads names, content models and
//! datatypes. It does not validate schemas; identity constraints, defaults and notations have no
//! effect on EXI. The caller supplies the files that a schema includes.

mod complex;
mod documents;
mod pattern;
mod simple;
mod tree;

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::builder::{Builder, ElementDeclaration, Expanded};
use super::model::Term;
use super::{Schema, XSD_NAMESPACE};
use crate::limits::Limits;
use complex::Complex;
use documents::{Component, Document, Documents};
use simple::Simple;
use tree::Tree;

/// An error in a schema document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub struct XsdError {
    /// The name of the document.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub reason: String,
}

/// A schema document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XsdSource {
    /// The name: a path or a URL.
    pub name: String,
    /// The text.
    pub document: Vec<u8>,
}

/// Finds an included document by the name of the including document and the location that it
/// states. If it returns none, an import is skipped and an include is an error.
pub type SchemaResolver<'r> = dyn FnMut(&str, &str) -> Option<XsdSource> + 'r;

impl Schema {
    /// Compiles a set of schema documents and the documents that they include.
    ///
    /// # Errors
    /// The first problem, with its file and line.
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
        resolve: &mut SchemaResolver<'_>,
    ) -> Result<Schema, XsdError> {
        Self::from_xsd_within(sources, resolve, &Limits::default())
    }

    /// Like [`Schema::from_xsd`], with other limits.
    ///
    /// # Errors
    /// See [`Schema::from_xsd`].
    pub fn from_xsd_within(
        sources: Vec<XsdSource>,
        resolve: &mut SchemaResolver<'_>,
        limits: &Limits,
    ) -> Result<Schema, XsdError> {
        let documents = Documents::load(sources, resolve)?;
        let mut builder = Builder::new(true);
        builder.states_max = limits.grammar_states;
        let mut compiler = Compiler {
            builder,
            documents,
            parts_left: limits.grammar_states.saturating_mul(PARTS_PER_STATE),
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

/// The source of a type's grammars.
#[derive(Clone)]
enum TypeSource {
    Named(Expanded),
    Anonymous(Component),
}

/// A type definition.
#[derive(Clone)]
enum TypeDefinition {
    Simple(Simple),
    Complex(Rc<Complex>),
}

/// Parts of schemas that are read for each permitted grammar state: groups are read again wherever they are referred to,
/// and each can refer to others twice. Reason: a part becomes about one state; a group or type has two more.
const PARTS_PER_STATE: usize = 2;

struct Compiler {
    builder: Builder,
    documents: Documents,
    /// How many more parts may be read.
    parts_left: usize,
    /// Types that have an index and no grammars yet.
    waiting: Vec<(u32, TypeSource)>,
    types: BTreeMap<Expanded, u32>,
    /// Anonymous types by the address of their definition.
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
            self.builder.add_namespace(&target);
        }
        // The schema for schemas redefines the built-in types in circles.
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
            let declared = ElementDeclaration {
                name: name.clone(),
                type_,
                nillable: component.tree.is_true("nillable"),
                global: true,
            };
            let element = self.builder.declare_element(declared);
            self.global.insert(name.clone(), element);
        }
        let attributes: Vec<_> = self.documents.attributes.clone().into_iter().collect();
        for (name, component) in attributes {
            let datatype = self.type_of_attribute(&component)?;
            self.builder.declare_global_attribute(name, datatype);
        }
        while let Some((type_, definition)) = self.waiting.pop() {
            self.define(type_, &definition)?;
        }
        Ok(())
    }

    /// The index of a named type; its grammars are set later.
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
        self.waiting.push((type_, TypeSource::Named(name.clone())));
        type_
    }

    /// The index of a type that a component refers to.
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
        self.waiting.push((type_, TypeSource::Anonymous(component)));
        type_
    }

    /// The type of an element declaration. `depth` counts the heads of substitution groups.
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

    /// Sets the grammars of a type.
    fn define(&mut self, type_: u32, definition: &TypeSource) -> Result<(), XsdError> {
        let (kind, component) = match definition {
            TypeSource::Named(name) => {
                let component = self.documents.types[name].clone();
                (self.named_definition(&component, name)?, component)
            }
            TypeSource::Anonymous(component) => (
                self.anonymous_definition(component, None)?,
                component.clone(),
            ),
        };
        match kind {
            TypeDefinition::Simple(simple) => {
                self.builder.set_simple_type(type_, simple.datatype);
                if simple.is_union() {
                    self.builder.mark_castable(type_);
                }
            }
            TypeDefinition::Complex(complex) => self.set_complex(type_, &component, &complex)?,
        }
        if let TypeSource::Named(name) = definition
            && self.documents.is_public(name)
        {
            self.mark_ancestors(&component)?;
        }
        Ok(())
    }

    /// Marks all ancestors of a named type as types with a named subtype.
    fn mark_ancestors(&mut self, component: &Component) -> Result<(), XsdError> {
        let mut component = component.clone();
        for _ in 0..256 {
            let Some((derivation, base)) = derivation(&component) else {
                return Ok(());
            };
            let name = derivation.type_name(&base)?;
            let type_ = self.referred_type(&derivation, &base)?;
            self.builder.mark_castable(type_);
            match self.documents.types.get(&name) {
                Some(next) => component = next.clone(),
                None => {
                    // Built-in types are already marked.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn named_definition(
        &mut self,
        at: &Component,
        name: &Expanded,
    ) -> Result<TypeDefinition, XsdError> {
        let component = self.documents.types.get(name).cloned();
        match component {
            Some(component) if component.tree.is("complexType") => {
                self.complex_named(at, name).map(TypeDefinition::Complex)
            }
            None if name.0 == XSD_NAMESPACE && name.1 == "anyType" => {
                Ok(TypeDefinition::Complex(Rc::new(Complex::any())))
            }
            _ => self.simple_named(at, name).map(TypeDefinition::Simple),
        }
    }

    fn anonymous_definition(
        &mut self,
        component: &Component,
        name: Option<&Expanded>,
    ) -> Result<TypeDefinition, XsdError> {
        match component.tree.is("complexType") {
            true => Ok(TypeDefinition::Complex(Rc::new(
                self.complex_type(component)?,
            ))),
            false => Ok(TypeDefinition::Simple(self.simple_type(component, name)?)),
        }
    }

    /// Follows a derivation; fails if the type derives from itself.
    fn follow_derivation<T>(
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

    /// Charges parts of content models and attribute groups, which a short document can have in any number.
    fn charge(&mut self, at: &Component, parts: usize) -> Result<(), XsdError> {
        let left = self.parts_left.checked_sub(parts);
        self.parts_left = left.ok_or_else(|| {
            let limit = self.builder.states_max;
            at.fail(format!(
                "limit grammar_states of {limit} is exceeded: groups are referred to too often"
            ))
        })?;
        Ok(())
    }

    /// The term for a reference to a global element, including its substitution group.
    fn element_term(&mut self, at: &Component, name: &Expanded) -> Result<Term, XsdError> {
        if !self.global.contains_key(name) && !self.documents.elements.contains_key(name) {
            return Err(at.fail(format!("element {} is not declared", name.1)));
        }
        let mut members = alloc::vec![name.clone()];
        let mut seen = BTreeSet::from([name.clone()]);
        let mut next = 0;
        while let Some(member) = members.get(next).cloned() {
            next += 1;
            for other in self.substitutes.get(&member).into_iter().flatten() {
                if seen.insert(other.clone()) {
                    members.push(other.clone());
                }
            }
        }
        self.charge(at, members.len())?;
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

/// The restriction or extension that defines a type, and the name of its base.
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
    /// An error at this component.
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

    /// The expanded name of a type; within a redefinition, the redefined type.
    fn type_name(&self, text: &str) -> Result<Expanded, XsdError> {
        let name = self.qname(text)?;
        Ok(self.document.original_name("type", &name))
    }
}

impl Document {
    /// The original component that a redefinition refers to by its own name.
    fn original_name(&self, space: &str, name: &Expanded) -> Expanded {
        let key = (space.to_owned(), name.clone());
        self.originals.get(&key).unwrap_or(name).clone()
    }
}
