//! The schemas of a host's services, for EXI.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_dpws::exi::{ServiceSchema, ServiceSchemas};
use chappe_dpws::hosting::HostedService;
use chappe_xml::Str;

/// Those by which requests are understood, and those of events.
pub(super) struct Schemas {
    all: ServiceSchemas,
    of_events: Mutex<HashMap<Str, ServiceSchema>>,
}

impl Schemas {
    pub(super) fn new(services: &[HostedService]) -> Self {
        let schemas = Self {
            all: ServiceSchemas::default(),
            of_events: Mutex::default(),
        };
        schemas.set(services);
        schemas
    }

    /// Those of these services from now on.
    pub(super) fn set(&self, services: &[HostedService]) {
        let schemas = services.iter().map(HostedService::exi_schema);
        self.all.set(schemas.cloned());
        let of_service = |service: &HostedService| {
            let schema = service.exi_schema().clone();
            let events = service.events().into_iter();
            events.map(move |action| (action, schema.clone()))
        };
        *self.of_events() = services.iter().flat_map(of_service).collect();
    }

    pub(super) fn all(&self) -> &ServiceSchemas {
        &self.all
    }

    /// The schema of the service with this event.
    pub(super) fn of_event(&self, action: &str) -> Option<ServiceSchema> {
        self.of_events().get(action).cloned()
    }

    fn of_events(&self) -> MutexGuard<'_, HashMap<Str, ServiceSchema>> {
        self.of_events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
