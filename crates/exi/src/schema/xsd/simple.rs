//! Simple types: mapping facets to representations (7).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::documents::Component;
use super::{Compiler, XsdError, pattern};
use crate::schema::builder::Expanded;
use crate::schema::{Representation, WhiteSpace, XSD_NAMESPACE};

/// Integers with at most this many values are n-bit integers (7.1.5).
const BOUNDED_MAX: i128 = 4096;

/// The variety of a simple type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variety {
    Atomic,
    List,
    Union,
}

/// The properties of a simple type that matter to EXI.
#[derive(Clone, Debug)]
pub(super) struct Simple {
    pub(super) datatype: u32,
    /// The datatype without its enumeration.
    unenumerated: u32,
    variety: Variety,
    /// The built-in type it derives from.
    root: String,
    least: Option<i128>,
    most: Option<i128>,
    /// The restricted character set of its patterns.
    character_set: Option<u32>,
    /// The type is a boolean with a pattern facet.
    has_pattern: bool,
}

impl Simple {
    pub(super) fn is_union(&self) -> bool {
        self.variety == Variety::Union
    }

    fn derives(&self, kinds: &[&str]) -> bool {
        self.variety == Variety::Atomic && kinds.contains(&self.root.as_str())
    }

    fn is_integer(&self) -> bool {
        self.derives(INTEGERS)
    }

    fn is_string(&self) -> bool {
        self.derives(STRINGS)
    }

    /// Returns true if enumerated values are encoded by their number (7.2).
    fn is_enumerable(&self) -> bool {
        self.variety == Variety::Atomic && !self.derives(&["QName", "NOTATION", "anySimpleType"])
    }
}

const INTEGERS: &[&str] = &[
    "integer",
    "long",
    "int",
    "short",
    "byte",
    "nonNegativeInteger",
    "positiveInteger",
    "unsignedLong",
    "unsignedInt",
    "unsignedShort",
    "unsignedByte",
    "nonPositiveInteger",
    "negativeInteger",
];

const STRINGS: &[&str] = &[
    "string",
    "normalizedString",
    "token",
    "language",
    "Name",
    "NCName",
    "ID",
    "IDREF",
    "ENTITY",
    "NMTOKEN",
];

/// The range of a built-in integer type.
fn bounds(name: &str) -> (Option<i128>, Option<i128>) {
    let signed = |bits: u32| {
        (
            Some(-(1i128 << (bits - 1))),
            Some((1i128 << (bits - 1)) - 1),
        )
    };
    let unsigned = |bits: u32| (Some(0), Some((1i128 << bits) - 1));
    match name {
        "long" => signed(64),
        "int" => signed(32),
        "short" => signed(16),
        "byte" => signed(8),
        "unsignedLong" => unsigned(64),
        "unsignedInt" => unsigned(32),
        "unsignedShort" => unsigned(16),
        "unsignedByte" => unsigned(8),
        "nonNegativeInteger" => (Some(0), None),
        "positiveInteger" => (Some(1), None),
        "nonPositiveInteger" => (None, Some(0)),
        "negativeInteger" => (None, Some(-1)),
        _ => (None, None),
    }
}

impl Compiler {
    fn built_in_simple(&self, name: &str) -> Option<Simple> {
        let datatype = self.builder.built_in_datatype(name)?;
        let (least, most) = bounds(name);
        let list = matches!(name, "NMTOKENS" | "IDREFS" | "ENTITIES");
        Some(Simple {
            datatype,
            unenumerated: datatype,
            variety: if list { Variety::List } else { Variety::Atomic },
            root: name.to_owned(),
            least,
            most,
            character_set: None,
            has_pattern: false,
        })
    }

    /// Looks up a named simple type.
    pub(super) fn simple_named(
        &mut self,
        at: &Component,
        name: &Expanded,
    ) -> Result<Simple, XsdError> {
        if let Some(known) = self.simple.get(name) {
            return Ok(known.clone());
        }
        let unknown = || at.fail(format!("simple type {} is not declared", name.1));
        let Some(component) = self.documents.types.get(name).cloned() else {
            let built_in = (name.0 == XSD_NAMESPACE).then(|| self.built_in_simple(&name.1));
            return built_in.flatten().ok_or_else(unknown);
        };
        if !component.tree.is("simpleType") {
            return Err(at.fail(format!("type {} is not simple", name.1)));
        }
        let simple = self.follow_derivation(at, name, |compiler| {
            compiler.simple_type(&component, Some(name))
        })?;
        self.simple.insert(name.clone(), simple.clone());
        Ok(simple)
    }

    /// Compiles the definition of a simple type.
    pub(super) fn simple_type(
        &mut self,
        component: &Component,
        name: Option<&Expanded>,
    ) -> Result<Simple, XsdError> {
        let name = name.filter(|name| self.documents.is_public(name));
        let parts = ["restriction", "list", "union"];
        let Some(tree) = component.tree.part(&parts) else {
            return Err(component.fail("the simple type has no restriction, list or union"));
        };
        let derived = component.child(tree);
        match tree.local.as_str() {
            "restriction" => self.restriction(&derived, name, None),
            "list" => self.list(&derived, name),
            _ => {
                let any = self.any_simple();
                let datatype =
                    self.builder
                        .add_datatype(Representation::String, name.cloned(), any);
                Ok(Simple {
                    datatype,
                    unenumerated: datatype,
                    variety: Variety::Union,
                    root: "anySimpleType".to_owned(),
                    least: None,
                    most: None,
                    character_set: None,
                    has_pattern: false,
                })
            }
        }
    }

    fn any_simple(&self) -> u32 {
        self.builder.built_in_datatype("anySimpleType").unwrap_or(0)
    }

    fn list(&mut self, derived: &Component, name: Option<&Expanded>) -> Result<Simple, XsdError> {
        let item = match (
            derived.tree.attribute("itemType"),
            derived.tree.part(&["simpleType"]),
        ) {
            (Some(item), _) => {
                let item = derived.type_name(item)?;
                self.simple_named(derived, &item)?
            }
            (None, Some(inner)) => self.simple_type(&derived.child(inner), None)?,
            (None, None) => return Err(derived.fail("the list has no item type")),
        };
        let any = self.any_simple();
        let representation = Representation::List(item.datatype);
        let datatype = self
            .builder
            .add_datatype(representation, name.cloned(), any);
        Ok(Simple {
            datatype,
            unenumerated: datatype,
            variety: Variety::List,
            root: "anySimpleType".to_owned(),
            least: None,
            most: None,
            character_set: None,
            has_pattern: false,
        })
    }

    /// Compiles a restriction; `base` applies if the restriction does not name one.
    pub(super) fn restriction(
        &mut self,
        derived: &Component,
        name: Option<&Expanded>,
        base: Option<Simple>,
    ) -> Result<Simple, XsdError> {
        let base = match (
            base,
            derived.tree.attribute("base"),
            derived.tree.part(&["simpleType"]),
        ) {
            (_, _, Some(inner)) => self.simple_type(&derived.child(inner), None)?,
            (Some(base), _, _) => base,
            (None, Some(base), _) => {
                let base = derived.type_name(base)?;
                self.simple_named(derived, &base)?
            }
            _ => return Err(derived.fail("the restriction has no base")),
        };
        let mut simple = base.clone();
        self.facets(derived, &mut simple)?;
        let representation = self.representation(&base, &simple);
        simple.unenumerated =
            self.builder
                .add_datatype(representation, name.cloned(), base.unenumerated);
        simple.datatype = simple.unenumerated;
        let white_space = derived.tree.parts().find(|facet| facet.is("whiteSpace"));
        let white_space = white_space.and_then(|facet| match facet.attribute("value")? {
            "preserve" => Some(WhiteSpace::Preserve),
            "replace" => Some(WhiteSpace::Replace),
            "collapse" => Some(WhiteSpace::Collapse),
            _ => None,
        });
        if let Some(white_space) = white_space {
            self.builder
                .set_white_space(simple.unenumerated, white_space);
        }
        let values: Vec<String> = derived
            .tree
            .parts()
            .filter(|facet| facet.is("enumeration"))
            .filter_map(|facet| match simple.is_string() {
                true => facet.exact("value").map(str::to_owned),
                false => facet.attribute("value").map(str::to_owned),
            })
            .collect();
        let inherited = self.enumeration_of(base.datatype);
        if !simple.is_enumerable() || (values.is_empty() && inherited.is_none()) {
            return Ok(simple);
        }
        let values = if values.is_empty() {
            inherited.unwrap_or_default()
        } else {
            values
        };
        let representation = Representation::Enumeration {
            values: values.into(),
            base: simple.unenumerated,
        };
        simple.datatype = self
            .builder
            .add_datatype(representation, name.cloned(), base.datatype);
        Ok(simple)
    }

    fn enumeration_of(&self, datatype: u32) -> Option<Vec<String>> {
        match &self.builder.datatypes.get(datatype as usize)?.0 {
            Representation::Enumeration { values, .. } => Some(values.to_vec()),
            _ => None,
        }
    }

    /// Applies the facets of one derivation step that affect the representation.
    fn facets(&mut self, derived: &Component, simple: &mut Simple) -> Result<(), XsdError> {
        let mut patterns: Vec<&str> = Vec::new();
        for facet in derived.tree.parts() {
            let Some(value) = facet.attribute("value") else {
                continue;
            };
            let number = || {
                let plain = value.strip_prefix('+').unwrap_or(value);
                plain.parse::<i128>().ok()
            };
            let integer = simple.is_integer();
            match facet.local.as_str() {
                "minInclusive" if integer => simple.least = number().or(simple.least),
                "minExclusive" if integer => {
                    let next = number().and_then(|number| number.checked_add(1));
                    simple.least = next.or(simple.least);
                }
                "maxInclusive" if integer => simple.most = number().or(simple.most),
                "maxExclusive" if integer => {
                    let last = number().and_then(|number| number.checked_sub(1));
                    simple.most = last.or(simple.most);
                }
                "pattern" => patterns.extend(facet.exact("value")),
                _ => {}
            }
        }
        if patterns.is_empty() {
            return Ok(());
        }
        simple.has_pattern |= simple.derives(&["boolean"]);
        if simple.is_string() {
            let set = pattern::character_set(&patterns);
            simple.character_set = set.map(|set| self.builder.add_character_set(set));
        }
        Ok(())
    }

    fn representation(&self, base: &Simple, simple: &Simple) -> Representation {
        let of_base = self.builder.datatypes[base.unenumerated as usize].0.clone();
        if simple.is_string() {
            return match simple.character_set {
                Some(set) => Representation::Restricted(set),
                None => Representation::String,
            };
        }
        if simple.has_pattern {
            return Representation::PatternBoolean;
        }
        if !simple.is_integer() {
            return of_base;
        }
        if let (Some(least), Some(most)) = (simple.least, simple.most) {
            let count = most
                .checked_sub(least)
                .and_then(|range| range.checked_add(1));
            if let Some(count) = count.filter(|count| (1..=BOUNDED_MAX).contains(count)) {
                let count = count as u32;
                return Representation::Bounded { least, count };
            }
        }
        match simple.least {
            Some(least) if least >= 0 => Representation::Unsigned,
            _ => Representation::Integer,
        }
    }
}
