//! Which mapping each service of a device gets.

use chappe_soap::schema::Schemas;
use chappe_soap::wsdl::Wsdl;

use crate::flat::FlatMapping;
use crate::mapping::{Mapping, Trouble};
use crate::rules::Rules;
use crate::sdc;

/// What is to be done with one hosted service.
#[derive(Debug)]
pub enum Plan {
    /// Part of an SDC device: its reports are mapped for the whole device.
    Sdc,
    /// Events that are mapped by rules or by their schema.
    Events(Vec<Box<dyn Mapping>>),
    /// Nothing here yields elements.
    Nothing,
}

/// Plans one hosted service by its WSDL and schemas; says what it cannot map.
#[must_use]
pub fn plan(wsdl: &Wsdl, schemas: &Schemas, rules: &Rules) -> (Plan, Vec<Trouble>) {
    if wsdl
        .port_types
        .iter()
        .any(|port_type| port_type.name.namespace == sdc::SERVICES)
    {
        return (Plan::Sdc, Vec::new());
    }
    let mut troubles = Vec::new();
    let mut mappings: Vec<Box<dyn Mapping>> = Vec::new();
    let actions: Vec<String> = wsdl.events().map(|(action, _)| action.to_owned()).collect();
    if let Some(mapping) = rules.mapping(&actions) {
        mappings.push(Box::new(mapping));
    }
    let mut flat = FlatMapping::default();
    for (action, element) in wsdl.events().filter(|(action, _)| !rules.names(action)) {
        if let Err(trouble) = add(&mut flat, wsdl, schemas, action, element) {
            troubles.push(trouble);
        }
    }
    if !flat.offers().is_empty() {
        mappings.push(Box::new(flat));
    }
    let plan = if mappings.is_empty() {
        Plan::Nothing
    } else {
        Plan::Events(mappings)
    };
    (plan, troubles)
}

fn add(
    mapping: &mut FlatMapping,
    wsdl: &Wsdl,
    schemas: &Schemas,
    action: &str,
    element: Option<&chappe_xml::Name>,
) -> Result<(), Trouble> {
    let Some(element) = element else {
        let detail = format!("{action} is described by a type, not by an element");
        return Err(Trouble::new("event_without_element", detail));
    };
    let hint = "write path rules for this event and name their file in the configuration";
    let flat = schemas.flat(element);
    let flat = flat.map_err(|why| Trouble::new("event_not_flat", why.to_string()).hint(hint))?;
    let operation = wsdl
        .operation_of(action)
        .map(|(_, operation)| operation.name.as_str());
    mapping.add(operation.unwrap_or(&element.local), action, flat)
}
