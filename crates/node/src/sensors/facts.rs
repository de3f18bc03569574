//! The registry entities of a sensor. The triples of its own entity contain what its descriptor states.
//!
//! A property that is an absolute IRI stays one; `latitude`, `longitude` and `altitude` are those of WGS84
//! positions, in any case of letters; any other name lies in Chappe's namespace of metadata.

use chappe_registry::Entity;
use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, Triple};
use chappe_registry::vocabulary::{self, td};
use chappe_stream::{Descriptor, Value};

use super::candidates::{sensor_entity, sensor_key};
use crate::producer::Producer;

/// The registry entities of a sensor and its stream.
pub(super) fn entities(descriptor: &Descriptor, stream: &str) -> Vec<Entity> {
    let (name, text) = (&descriptor.name, descriptor.description.as_deref());
    let schema = &descriptor.output.schema;
    let mut sensor = sensor_entity(name, stream);
    sensor.triples.extend(triples(descriptor));
    vec![
        sensor,
        Producer::new(&sensor_key(name)).stream(stream, schema, text),
    ]
}

/// The triples of a sensor's metadata and commands.
fn triples(descriptor: &Descriptor) -> Vec<Triple> {
    let sensor = NamedNode::new_unchecked(sensor_key(&descriptor.name));
    // It computes values of properties, and what it can be told to do is an affordance of a thing.
    let mut classes = vec![vocabulary::SENSOR];
    classes.extend((!descriptor.commands.is_empty()).then_some(td::THING));
    let mut triples: Vec<Triple> = classes
        .into_iter()
        .map(|class| {
            let rdf_type = vocabulary::RDF_TYPE.into_owned();
            Triple::new(sensor.clone(), rdf_type, class.into_owned())
        })
        .collect();
    for (property, value) in &descriptor.metadata {
        let value = match value {
            Value::Boolean(value) => Literal::from(*value),
            Value::Integer(value) => Literal::from(*value),
            Value::Double(value) => Literal::from(*value),
            Value::Text(text) => Literal::from(text.as_str()),
            Value::Null | Value::Bytes(_) | Value::Samples(_) => continue,
        };
        triples.push(Triple::new(sensor.clone(), iri(property), value));
    }
    for (index, command) in descriptor.commands.iter().enumerate() {
        let name = Literal::from(command.name.as_str());
        let action = BlankNode::new_unchecked(format!("a{index}"));
        let class = td::ACTION.into_owned();
        let affords = td::HAS_ACTION.into_owned();
        triples.extend([
            Triple::new(
                sensor.clone(),
                vocabulary::COMMAND.into_owned(),
                name.clone(),
            ),
            Triple::new(sensor.clone(), affords, action.clone()),
            Triple::new(action.clone(), vocabulary::RDF_TYPE.into_owned(), class),
            Triple::new(action, td::NAME.into_owned(), name),
        ]);
    }
    triples
}

fn iri(property: &str) -> NamedNode {
    if property.contains(':')
        && let Ok(iri) = NamedNode::new(property)
    {
        return iri;
    }
    let short = match property.to_ascii_lowercase().as_str() {
        "latitude" => "lat",
        "longitude" => "long",
        "altitude" => "alt",
        _ => {
            let mut iri = vocabulary::METADATA.to_owned();
            for byte in property.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
                        iri.push(char::from(byte));
                    }
                    _ => iri.push_str(&format!("%{byte:02X}")),
                }
            }
            return NamedNode::new_unchecked(iri);
        }
    };
    NamedNode::new_unchecked(format!("{}{short}", vocabulary::GEO))
}

#[cfg(test)]
mod tests {
    use super::iri;

    #[test]
    fn a_property_becomes_an_iri() {
        for (property, expected) in [
            ("LATITUDE", "http://www.w3.org/2003/01/geo/wgs84_pos#lat"),
            (
                "http://xmlns.com/foaf/0.1/name",
                "http://xmlns.com/foaf/0.1/name",
            ),
            (
                "geographical",
                "https://chappe.example/ns/metadata#geographical",
            ),
            ("a: b", "https://chappe.example/ns/metadata#a%3A%20b"),
        ] {
            assert_eq!(iri(property).as_str(), expected);
        }
    }
}
