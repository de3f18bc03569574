//! Chooses the mapping of each service of a device.

use chappe_soap::schema::{FlatType, Schemas, Work};
use chappe_soap::wsdl::Wsdl;

use crate::mapping::flat::FlatMapping;
use crate::mapping::mapped::{Mapping, Trouble};
use crate::mapping::rules::Rules;
use crate::mapping::sdc;

/// The hint for events that the schema cannot map.
const RULES_HINT: &str = "write path rules for this event and name their file in the configuration";

/// The mapping of one hosted service.
#[derive(Debug)]
pub enum Plan {
    /// Part of an SDC device, whose reports are mapped for the whole device.
    Sdc,
    /// Events mapped by rules or by their schema.
    Events(Vec<Box<dyn Mapping>>),
    /// No event can be mapped.
    Nothing,
}

/// Plans one hosted service by its WSDL and schemas, and lists the problems. `work` is shared by all services
/// of a device: when it is used up, further events are not mapped.
#[must_use]
pub fn plan(
    wsdl: &Wsdl,
    schemas: &Schemas,
    rules: &Rules,
    work: &mut Work,
) -> (Plan, Vec<Trouble>) {
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
    let unruled = wsdl
        .event_operations()
        .filter(|(_, action, _)| !rules.names(action));
    let mut left_out = 0;
    for (operation, action, element) in unruled {
        if work.is_used_up() {
            left_out += 1;
            continue;
        }
        let added = element_fields(schemas, action, element, work)
            .and_then(|fields| flat.add(&operation.name, action, fields));
        if let Err(trouble) = added {
            troubles.push(trouble);
        }
    }
    if left_out > 0 {
        let detail = format!("{left_out} events: the schemas of the device are too large");
        troubles.push(Trouble::new("events_left_out", detail).hint(RULES_HINT));
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

/// The fields of an event's element.
fn element_fields(
    schemas: &Schemas,
    action: &str,
    element: Option<&chappe_xml::Name>,
    work: &mut Work,
) -> Result<FlatType, Trouble> {
    let Some(element) = element else {
        let detail = format!("{action} is described by a type, not by an element");
        return Err(Trouble::new("event_without_element", detail));
    };
    let flat = schemas.flat_within(element, work);
    flat.map_err(|why| Trouble::new("event_not_flat", why.to_string()).hint(RULES_HINT))
}
