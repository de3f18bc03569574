//! The WSDL of a service.

use chappe_dpws::Dialect;
use chappe_dpws::hosting::HostedService;
use chappe_soap::wsdl::{
    Message, Operation, OperationMessage, Part, Port, ServicePorts, Wsdl, default_action,
};
use chappe_xml::Name;

use super::{Entry, Outlet, Service};
use crate::Error;
use crate::host::Operations;

/// What a device needs of a service.
pub(crate) struct Described {
    pub(crate) hosted: HostedService,
    pub(crate) operations: Operations,
    pub(crate) outlet: Outlet,
}

impl Service {
    /// Describes the service, and checks that clients can tell its parts apart.
    pub(crate) fn described(&self) -> Result<Described, Error> {
        self.check()?;
        let schema = self.types.to_schema().map_err(|source| Error::Types {
            service: self.name.clone(),
            source,
        })?;
        let mut wsdl = Wsdl::default();
        let mut operations = Operations::new();
        for (index, (_, entries)) in self.port_types.iter().enumerate() {
            let port = self.port(index);
            for entry in entries {
                if let Some((action, handler)) = port
                    .input_action(&entry.operation)
                    .zip(entry.handler.clone())
                {
                    operations.insert(action, handler);
                }
            }
            let mut part = port.to_wsdl();
            self.add_faults(index, &mut part);
            match index {
                0 => wsdl = part,
                _ => wsdl
                    .merge(part)
                    .map_err(|error| self.misuse(&error.to_string()))?,
            }
        }
        wsdl.schemas = vec![schema];
        // A client looks for the profile of its own dialect (DPWS 1.1, R2037 and R2041).
        wsdl.assertions = [Dialect::V2009, Dialect::V2005]
            .map(|dialect| dialect.dpws_name("Profile"))
            .into();
        let ports = wsdl.bindings.iter().map(|binding| Port {
            name: format!("{}Port", binding.port_type.local),
            binding: binding.name.clone(),
            address: None,
        });
        wsdl.services = vec![ServicePorts {
            name: format!("{}Service", self.name),
            ports: ports.collect(),
        }];
        let id = format!("{}/{}", self.namespace.trim_end_matches('/'), self.name);
        let hosted = HostedService::new(id, format!("/{}", self.name), wsdl);
        Ok(Described {
            hosted,
            operations,
            outlet: self.outlet.clone(),
        })
    }

    /// Adds the faults of the operations to the WSDL of their port type.
    fn add_faults(&self, index: usize, wsdl: &mut Wsdl) {
        let (port_type, entries) = &self.port_types[index];
        let described = wsdl
            .port_types
            .iter_mut()
            .flat_map(|known| &mut known.operations);
        for (operation, entry) in described.zip(entries) {
            operation.faults = entry
                .faults
                .iter()
                .map(|fault| self.fault(port_type, operation, fault))
                .collect();
        }
        let mut faults: Vec<&str> = entries
            .iter()
            .flat_map(|entry| entry.faults.clone())
            .collect();
        faults.sort_unstable();
        faults.dedup();
        let messages = faults.into_iter().map(|fault| Message {
            name: self.fault_message(port_type, fault),
            parts: vec![Part {
                name: "detail".into(),
                element: Some(Name::inside(&self.namespace, fault)),
                type_name: None,
            }],
        });
        wsdl.messages.extend(messages);
    }

    fn fault_message(&self, port_type: &str, fault: &str) -> Name {
        Name::inside(&self.namespace, format!("{port_type}{fault}Fault"))
    }

    fn fault(&self, port_type: &str, operation: &Operation, fault: &str) -> OperationMessage {
        let last = format!("{}/Fault/{fault}", operation.name);
        OperationMessage {
            name: Some(fault.to_owned()),
            message: self.fault_message(port_type, fault),
            action: default_action(&self.namespace, port_type, &last),
            has_explicit_action: true,
        }
    }

    fn misuse(&self, what: &str) -> Error {
        Error::Misuse(format!("service {}: {what}", self.name))
    }

    fn check(&self) -> Result<(), Error> {
        let iri = &*self.namespace;
        if !iri.contains(':') || iri.contains(['#', ' ']) {
            let what = format!(
                "{iri:?} is not an absolute IRI without fragment: write, for example, \
                 https://example.org/thermometer"
            );
            return Err(self.misuse(&what));
        }
        let mut names: Vec<&str> = Vec::new();
        for (port_type, entries) in &self.port_types {
            names.push(port_type);
            names.extend(entries.iter().map(|entry: &Entry| &*entry.operation.name));
        }
        for name in &names {
            if !is_name(name) {
                let what = format!(
                    "{name:?} is not a name: use letters, digits, `_`, `-` and `.`, a letter first"
                );
                return Err(self.misuse(&what));
            }
        }
        let mut operations: Vec<&str> = self
            .port_types
            .iter()
            .flat_map(|(_, entries)| entries.iter().map(|entry| &*entry.operation.name))
            .collect();
        operations.sort_unstable();
        match operations.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(self.misuse(&format!("{} is there twice: rename one", pair[0]))),
            None => Ok(()),
        }
    }
}

/// A name that is valid in XML, paths and URIs without escapes.
fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}
