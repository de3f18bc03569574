//! All documents of a schema and the components that they declare.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::tree::Tree;
use super::{Resolve, XsdError, XsdSource};
use crate::schema::XSI_NAMESPACE;
use crate::schema::builder::Expanded;

/// Most documents of one schema.
const DOCUMENTS_MAX: usize = 1_000;

/// What holds for all of a document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) file: String,
    pub(super) target: String,
    /// It has taken over the target namespace of the including one.
    pub(super) chameleon: bool,
    pub(super) qualified_elements: bool,
    pub(super) qualified_attributes: bool,
    /// In a redefinition: what names of its own mean in it.
    pub(super) originals: BTreeMap<(String, Expanded), Expanded>,
}

/// A declaration or definition where it stands.
#[derive(Clone, Debug)]
pub(super) struct Component {
    pub(super) document: Rc<Document>,
    pub(super) tree: Rc<Tree>,
}

type Space = BTreeMap<Expanded, Component>;

/// Components by their symbol space and name.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) elements: Space,
    pub(super) attributes: Space,
    pub(super) types: Space,
    pub(super) groups: Space,
    pub(super) attribute_groups: Space,
    targets: BTreeSet<String>,
    /// Documents that were read, with the target namespace that they took.
    read: BTreeSet<(String, String)>,
}

/// A document to be read.
struct Waiting {
    source: XsdSource,
    /// The target namespace of who includes it.
    including: Option<String>,
}

impl Documents {
    pub(super) fn load(
        sources: Vec<XsdSource>,
        resolve: &mut Resolve<'_>,
    ) -> Result<Documents, XsdError> {
        let mut documents = Documents::default();
        for source in sources {
            let including = None;
            documents.read(Waiting { source, including }, resolve)?;
        }
        Ok(documents)
    }

    pub(super) fn targets(&self) -> Vec<String> {
        self.targets.iter().cloned().collect()
    }

    /// Whether a name is one of the schema's, not of something redefined.
    pub(super) fn is_public(&self, name: &Expanded) -> bool {
        !name.1.starts_with('\0')
    }

    fn space(&mut self, local: &str) -> Option<(&'static str, &mut Space)> {
        Some(match local {
            "element" => ("element", &mut self.elements),
            "attribute" => ("attribute", &mut self.attributes),
            "simpleType" | "complexType" => ("type", &mut self.types),
            "group" => ("group", &mut self.groups),
            "attributeGroup" => ("attributeGroup", &mut self.attribute_groups),
            _ => return None,
        })
    }

    fn read(&mut self, first: Waiting, resolve: &mut Resolve<'_>) -> Result<(), XsdError> {
        // Redefinitions come behind what they redefine.
        let mut waiting = alloc::vec![first];
        while let Some(next) = waiting.pop() {
            self.read_one(next, &mut waiting, resolve)?;
        }
        Ok(())
    }

    fn read_one(
        &mut self,
        one: Waiting,
        waiting: &mut Vec<Waiting>,
        resolve: &mut Resolve<'_>,
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
            return Err(here(&tree).fail("the namespace of xsi:type cannot be declared"));
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
                    let source = self.fetch(&component, resolve)?;
                    let source = source.ok_or_else(|| {
                        let location = child.attribute("schemaLocation").unwrap_or_default();
                        component.fail(format!("{location:?} cannot be read"))
                    })?;
                    let including = Some(target.clone());
                    let one = Waiting { source, including };
                    if child.is("redefine") {
                        self.read(one, resolve)?;
                        redefinitions.push(component);
                    } else {
                        waiting.push(one);
                    }
                }
                "import" => {
                    if let Some(source) = self.fetch(&component, resolve)? {
                        let including = None;
                        waiting.push(Waiting { source, including });
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

    fn fetch(
        &self,
        component: &Component,
        resolve: &mut Resolve<'_>,
    ) -> Result<Option<XsdSource>, XsdError> {
        let Some(location) = component.tree.attribute("schemaLocation") else {
            return Ok(None);
        };
        Ok(resolve(&component.document.file, location))
    }

    /// Puts components in the place of those of the same name, which they may refer to.
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
                return Err(component.fail(format!("{} is redefined and not defined", name.1)));
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
    let name = name.ok_or_else(|| component.fail("a global component without a name"))?;
    Ok((component.document.target.clone(), name.to_owned()))
}
