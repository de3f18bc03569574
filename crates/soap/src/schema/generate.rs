//! Conversion of flat types to a schema document.

use chappe_xml::{Element, Name};

use super::{ANNOTATIONS, FieldPlace, FlatField, FlatType, NAMESPACE, SAWSDL, format_duration};

fn xs(local: &'static str) -> Element {
    Element::new(Name::new(NAMESPACE, local))
}

fn with(element: Element, name: &'static str, value: impl Into<String>) -> Element {
    element.with_attribute(Name::local(name), value.into())
}

/// The schema that declares these elements, in one namespace, with qualified children.
///
/// [`Schemas::flat`](super::Schemas::flat) returns the same types if they have all elements in
/// `target_namespace`, attributes in no namespace, and text only without child elements.
#[must_use]
pub fn to_schema(target_namespace: &str, types: &[FlatType]) -> Element {
    let root = xs("schema")
        .with_namespace("xs", NAMESPACE)
        .with_namespace("sawsdl", SAWSDL)
        .with_namespace("c", ANNOTATIONS);
    let root = with(root, "targetNamespace", target_namespace);
    let root = with(root, "elementFormDefault", "qualified");
    root.with_children(types.iter().map(global))
}

fn global(flat: &FlatType) -> Element {
    let element = with(xs("element"), "name", flat.name.local.clone());
    let fields_at = |place| flat.fields.iter().filter(move |field| field.place == place);
    let attributes = || fields_at(FieldPlace::Attribute).map(attribute);
    let complex = match fields_at(FieldPlace::Text).next() {
        Some(text) if attributes().next().is_none() => {
            let element = with_annotations(element, text);
            return simple_content(with_documentation(element, flat.doc.as_ref()), text);
        }
        Some(text) => {
            let extension = with(xs("extension"), "base", qualified(text));
            let extension = extension.with_children(attributes());
            xs("complexType").with_child(xs("simpleContent").with_child(extension))
        }
        None => {
            let sequence = xs("sequence").with_children(fields_at(FieldPlace::Element).map(child));
            xs("complexType")
                .with_child(sequence)
                .with_children(attributes())
        }
    };
    with_documentation(element, flat.doc.as_ref()).with_child(complex)
}

fn child(field: &FlatField) -> Element {
    let mut element = with(xs("element"), "name", field.name.local.clone());
    if field.optional {
        element = with(element, "minOccurs", "0");
    }
    if field.repeated {
        element = with(element, "maxOccurs", "unbounded");
    }
    let element = with_documentation(with_annotations(element, field), field.doc.as_ref());
    simple_content(element, field)
}

fn attribute(field: &FlatField) -> Element {
    let mut element = with(xs("attribute"), "name", field.name.local.clone());
    if !field.optional {
        element = with(element, "use", "required");
    }
    let element = with_documentation(with_annotations(element, field), field.doc.as_ref());
    simple_content(element, field)
}

/// Sets the simple type of `field`: by name, or inline for a list or an enumeration.
fn simple_content(element: Element, field: &FlatField) -> Element {
    if !field.list && field.enumeration.is_empty() {
        // The type is an attribute, so the order among children does not matter.
        return with(element, "type", qualified(field));
    }
    let restriction = || {
        let values = field.enumeration.iter();
        let facets = values.map(|value| with(xs("enumeration"), "value", value.clone()));
        let restriction = with(xs("restriction"), "base", qualified(field));
        xs("simpleType").with_child(restriction.with_children(facets))
    };
    let inline = match (field.list, field.enumeration.is_empty()) {
        (true, true) => xs("simpleType").with_child(with(xs("list"), "itemType", qualified(field))),
        (true, false) => xs("simpleType").with_child(xs("list").with_child(restriction())),
        (false, _) => restriction(),
    };
    element.with_child(inline)
}

fn qualified(field: &FlatField) -> String {
    format!("xs:{}", field.data_type.local())
}

fn with_documentation(element: Element, doc: Option<&String>) -> Element {
    let Some(doc) = doc else { return element };
    let documentation = xs("documentation").with_text(doc.clone());
    element.with_child(xs("annotation").with_child(documentation))
}

fn with_annotations(mut element: Element, field: &FlatField) -> Element {
    if !field.model_reference.is_empty() {
        let name = Name::new(SAWSDL, "modelReference");
        element = element.with_attribute(name, field.model_reference.join(" "));
    }
    if let Some(unit) = &field.unit {
        element = element.with_attribute(Name::new(ANNOTATIONS, "unit"), unit.clone());
    }
    if let Some(period) = field.sample_period {
        let nanoseconds = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX);
        let name = Name::new(ANNOTATIONS, "samplePeriod");
        element = element.with_attribute(name, format_duration(nanoseconds));
    }
    element
}
