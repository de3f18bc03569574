//! Invariants of the readers of WSDL and schema documents for any bytes.

use chappe_soap::rust::Modules;
use chappe_soap::schema::{Argument, Model, Schemas, Work};
use chappe_soap::wsdl::Wsdl;
use chappe_xml::{Element, Name};

use crate::bounds::Bound;

/// The flat types and the model may take 16 MiB each, [`Work`]'s limit, twice while they grow, and the
/// Rust source 4 MiB. An element of a
/// document is held as element and as declaration: 100 bytes for each byte, and as many again.
pub(crate) const BOUND: Bound = Bound::memory(80 << 20, 200);

/// No panic; all events and global elements become fields, types and source, or report the reason,
/// within the limit of work.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let Ok(root) = Element::parse(data) else {
        return;
    };
    let mut schemas = Schemas::default();
    let mut work = Work::default();
    match Wsdl::from_element(&root) {
        Ok(wsdl) => {
            for schema in &wsdl.schemas {
                let _ = schemas.add("document", schema);
            }
            for (_, action, element) in wsdl.event_operations() {
                assert!(wsdl.operation_of(action).is_some(), "{action} is unknown");
                let flat = element.map(|element| schemas.flat_within(element, &mut work));
                drop(flat);
            }
            let _ = wsdl.to_element().to_text();
            let _ = Modules::new("chappe_soap").add("any", &wsdl, &schemas);
        }
        Err(_) => drop(schemas.add("document", &root)),
    }
    let _ = schemas.missing();
    let names: Vec<Name> = schemas.elements().cloned().collect();
    let flat: Vec<_> = names
        .iter()
        .map(|name| schemas.flat_within(name, &mut work))
        .collect();
    drop(flat);
    let mut model = Model::new(&schemas);
    for name in &names {
        let Ok(element) = model.element(name) else {
            return;
        };
        let _ = model.compose(&element, &Argument::none());
    }
}
