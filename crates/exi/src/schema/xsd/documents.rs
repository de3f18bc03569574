//! The documents of a schema and their components.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::tree::Tree;
use super::{SchemaResolver, XsdError, XsdSource};
use crate::schema::XSI_NAMESPACE;
use crate::schema::builder::Expanded;

/// Maximum number of documents of one schema.
const DOCUMENTS_MAX: usize = 1_000;

/// Properties of a document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) file: String,
    pub(super) target: String,
    /// The document has adopted the target namespace of the including one.
    pub(super) chameleon: bool,
    pub(super) qualified_elements: bool,
    pub(super) qualified_attributes: bool,
    /// In a redefinition, the hidden names of the redefined components.
    pub(super) originals: BTreeMap<(String, Expanded), Expanded>,
}

/// A declaration or definition and its document.
#[derive(Clone, Debug)]
pub(super) struct Component {
    pub(super) document: Rc<Document>,
    pub(super) tree: Rc<Tree>,
}

type SymbolSpace = BTreeMap<Expanded, Component>;

/// Components by their symbol space and name.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) elements: SymbolSpace,
    pub(super) attributes: SymbolSpace,
    pub(super) types: SymbolSpace,
    pub(super) groups: SymbolSpace,
    pub(super) attribute_groups: SymbolSpace,
    targets: BTreeSet<String>,
    /// Documents that were read, each with its target namespace.
    read: BTreeSet<(String, String)>,
}

/// A document to read.
struct PendingDocument {
    source: XsdSource,
    /// The target namespace of the including document.
    including: Option<String>,
}

impl Documents {
    pub(super) fn load(
        sources: Vec<XsdSource>,
        resolve: &mut SchemaResolver<'_>,
    ) -> Result<Documents, XsdError> {
        let mut documents = Documents::default();
        for source in sources {
            let including = None;
            documents.read(PendingDocument { source, including }, resolve)?;
        }
        Ok(documents)
    }

    pub(super) fn targets(&self) -> Vec<String> {
        self.targets.iter().cloned().collect()
    }

    /// Returns false for the hidden names of redefined components.
    pub(super) fn is_public(&self, name: &Expanded) -> bool {
        !name.1.starts_with('\0')
    }

    fn space(&mut self, local: &str) -> Option<(&'static str, &mut SymbolSpace)> {
        Some(match local {
            "element" => ("element", &mut self.elements),
            "attribute" => ("attribute", &mut self.attributes),
            "simpleType" | "complexType" => ("type", &mut self.types),
            "group" => ("group", &mut self.groups),
            "attributeGroup" => ("attributeGroup", &mut self.attribute_groups),
            _ => return None,
        })
    }

    fn read(
        &mut self,
        first: PendingDocument,
        resolve: &mut SchemaResolver<'_>,
    ) -> Result<(), XsdError> {
        // Redefined documents are read before their redefinitions apply.
        let mut waiting = alloc::vec![first];
        while let Some(next) = waiting.pop() {
            self.read_document(next, &mut waiting, resolve)?;
        }
        Ok(())
    }

    fn read_document(
        &mut self,
        one: PendingDocument,
        waiting: &mut Vec<PendingDocument>,
        resolve: &mut SchemaResolver<'_>,
    ) -> Result<(), XsdError> {
        let tree = Tree::read(&one.source.name, &one.source.document)?;
        let own = tree.attribute("targetNamespace");
        let target = own.or(one.including.as_deref()).unwrap_or("").to_owned();
        if !self.read.insert((one.source.name.clone(), target.clone())) {
            return Ok(());
        }
        let document = Rc::new(Document {
            file: one.source.name.clone(),
            chameleon: own.is_none() && !target.is_empty(),
            target: target.clone(),
            qualified_elements: tree.attribute("elementFormDefault") == Some("qualified"),
            qualified_attributes: tree.attribute("attributeFormDefault") == Some("qualified"),
            originals: BTreeMap::new(),
        });
        let here = |tree: &Rc<Tree>| Component {
            document: document.clone(),
            tree: tree.clone(),
        };
        if target == XSI_NAMESPACE {
            return Err(here(&tree).fail("the xsi namespace cannot be a target namespace"));
        }
        if self.read.len() > DOCUMENTS_MAX {
            let reason = format!("limit documents of {DOCUMENTS_MAX} is exceeded");
            return Err(here(&tree).fail(reason));
        }
        self.targets.insert(target.clone());
        let mut redefinitions = Vec::new();
        for child in tree.parts() {
            let component = here(child);
            match child.local.as_str() {
                "include" | "redefine" => {
                    let source = self.resolve_location(&component, resolve)?;
                    let source = source.ok_or_else(|| {
                        let location = child.attribute("schemaLocation").unwrap_or_default();
                        component.fail(format!("included document {location:?} cannot be read"))
                    })?;
                    let including = Some(target.clone());
                    let one = PendingDocument { source, including };
                    if child.is("redefine") {
                        self.read(one, resolve)?;
                        redefinitions.push(component);
                    } else {
                        waiting.push(one);
                    }
                }
                "import" => {
                    if let Some(source) = self.resolve_location(&component, resolve)? {
                        let including = None;
                        waiting.push(PendingDocument { source, including });
                    }
                }
                local => {
                    if let Some((_, space)) = self.space(local) {
                        let name = name_of(&component)?;
                        space.entry(name).or_insert(component);
                    }
                }
            }
        }
        for redefinition in redefinitions {
            self.redefine(&redefinition)?;
        }
        Ok(())
    }

    fn resolve_location(
        &self,
        component: &Component,
        resolve: &mut SchemaResolver<'_>,
    ) -> Result<Option<XsdSource>, XsdError> {
        let Some(location) = component.tree.attribute("schemaLocation") else {
            return Ok(None);
        };
        Ok(resolve(&component.document.file, location))
    }

    /// Replaces components of the same name, to which the new ones may refer.
    fn redefine(&mut self, redefinition: &Component) -> Result<(), XsdError> {
        let number = self.read.len();
        for child in redefinition.tree.parts() {
            let component = redefinition.child(child);
            let name = name_of(&component)?;
            let hidden = (name.0.clone(), format!("\0{number}:{}", name.1));
            let Some((kind, space)) = self.space(&child.local) else {
                continue;
            };
            let Some(original) = space.remove(&name) else {
                return Err(component.fail(format!("{} is redefined but not defined", name.1)));
            };
            space.insert(hidden.clone(), original);
            let whole = &component.document;
            let mut originals = whole.originals.clone();
            originals.insert((kind.to_string(), name.clone()), hidden);
            let document = Rc::new(Document {
                file: whole.file.clone(),
                target: whole.target.clone(),
                chameleon: whole.chameleon,
                qualified_elements: whole.qualified_elements,
                qualified_attributes: whole.qualified_attributes,
                originals,
            });
            let tree = component.tree;
            space.insert(name, Component { document, tree });
        }
        Ok(())
    }
}

fn name_of(component: &Component) -> Result<Expanded, XsdError> {
    let name = component.tree.attribute("name");
    let name = name.ok_or_else(|| component.fail("the global component is without a name"))?;
    Ok((component.document.target.clone(), name.to_owned()))
}
