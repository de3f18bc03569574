//! The metadata of the device and its services, and their WSDL.

use chappe_dpws::Dialect;
use chappe_dpws::dialect::METADATA_EXCHANGE;
use chappe_dpws::metadata::{
    Deviation, GET_ACTION, GET_METADATA_ACTION, GET_METADATA_RESPONSE_ACTION, GET_RESPONSE_ACTION,
    GetMetadata, Hosted, Metadata, WSDL_DIALECT, WsdlSection,
};
use chappe_soap::EndpointReference;
use chappe_soap::wsdl::{Protocol, SOAP12, Wsdl};
use chappe_xml::{Element, Limits, Name};

use super::clause::{
    Clause, FIELD_LENGTH, FRIENDLY_NAME, GET_ACTION as ANSWER_ACTION, HOSTED_HTTP, HOSTED_TYPES,
    LONG_URI, MANUFACTURER, MODEL_NAME, NO_PARAMETERS, ONE_METADATA, RELATIONSHIP, SAME_ENDPOINT,
    SECTION_DIALECT, SERVICE_ID, THIS_DEVICE, THIS_MODEL, URN, WSDL_BINDING, WSDL_LITERAL,
    WSDL_OFFERED, WSDL_READABLE, WSDL_TYPES,
};
use super::wire::Wire;
use super::{Check, Exchange, read, so};
use crate::Error;

/// Services that are checked. Reason: devices have up to twenty, and each costs two questions and its documents.
const SERVICES_MAX: usize = 32;
/// WSDL documents read for one service, imports included.
const DOCUMENTS_MAX: usize = 16;

/// A hosted service with its WSDL.
pub(super) struct Service {
    pub(super) endpoint: EndpointReference,
    pub(super) wsdl: Option<Wsdl>,
}

impl<W: Wire> Check<'_, W> {
    /// Reads and judges the description; returns the services.
    pub(super) async fn description(&mut self) -> Result<Vec<Service>, Error> {
        let seen = self.first_get().await?;
        self.expect_connection(&seen);
        self.expect_answer(&ANSWER_ACTION, &seen, GET_RESPONSE_ACTION);
        let Some(envelope) = &seen.envelope else {
            self.note("the metadata are unreadable: services and events are not checked");
            return Ok(Vec::new());
        };
        let bodies: Vec<_> = envelope.body.iter().collect();
        let is_metadata = |body: &&&Element| body.name.is(METADATA_EXCHANGE, "Metadata");
        let count = bodies.iter().filter(is_metadata).count();
        let problem = || format!("the body has {count} of them and {} elements", bodies.len());
        self.judge(
            &ONE_METADATA,
            &seen,
            so(count == 1 && bodies.len() == 1, problem),
        );
        let metadata = bodies.iter().find(is_metadata).copied();
        let read = metadata.and_then(Metadata::from_element);
        let Some((metadata, _, deviations)) = read else {
            self.note("the metadata are unreadable: services and events are not checked");
            return Ok(Vec::new());
        };
        self.judge_sections(&seen, &metadata, &deviations);
        self.judge_host(&seen, &metadata);
        let hosted = metadata.relationship.map(|all| all.hosted);
        let hosted = hosted.unwrap_or_default();
        self.judge_hosted(&seen, &hosted);
        if hosted.len() > SERVICES_MAX {
            self.note(&format!(
                "only {SERVICES_MAX} of {} services are checked",
                hosted.len()
            ));
        }
        let mut services = Vec::new();
        for one in hosted.iter().take(SERVICES_MAX) {
            if let Some(endpoint) = one.endpoints.first() {
                let wsdl = self.service(one, endpoint).await;
                let endpoint = endpoint.clone();
                services.push(Service { endpoint, wsdl });
            }
        }
        Ok(services)
    }

    pub(super) fn note(&mut self, text: &str) {
        self.report.notes.push(text.to_owned());
    }

    /// A Get in the chosen dialect, or in the first that is answered.
    async fn first_get(&mut self) -> Result<Exchange, Error> {
        let dialects = match self.options.dialect {
            Some(one) => vec![one],
            None => Dialect::ALL.to_vec(),
        };
        let mut first = None;
        for dialect in &dialects {
            self.dialect = *dialect;
            let device = self.device();
            let envelope = self.request(&device, GET_ACTION);
            let id = envelope.addressing.message_id.as_deref().map(str::to_owned);
            let url = self.url.clone();
            self.report.questions += 1;
            let post = super::Post {
                url,
                content_type: super::SOAP,
                body: envelope.to_text(),
                chunked: false,
            };
            let got = self.wire.post(&post).await;
            let seen = read("a Get", post.body, got);
            if seen.answer(GET_RESPONSE_ACTION).is_some() {
                self.judge_answer(&seen, id.as_deref());
                return Ok(seen);
            }
            first.get_or_insert((seen, id, *dialect));
        }
        // Judged in the dialect that was tried first.
        let (seen, id, dialect) = first.ok_or(Error::NoAddress)?;
        self.dialect = dialect;
        if seen.status == 0 {
            let what = seen.came;
            let operation = "Get";
            return Err(Error::Answer { operation, what });
        }
        self.judge_answer(&seen, id.as_deref());
        Ok(seen)
    }

    fn judge_sections(&mut self, seen: &Exchange, metadata: &Metadata, deviations: &[Deviation]) {
        let repeated = |name| deviations.contains(&Deviation::Repeated(name));
        let once = |there: bool, name| {
            let problem = || {
                format!(
                    "there is {} section",
                    if there { "more than one" } else { "no" }
                )
            };
            so(there && !repeated(name), problem)
        };
        let model = metadata.this_model.as_ref();
        let device = metadata.this_device.as_ref();
        let host = metadata
            .relationship
            .as_ref()
            .and_then(|all| all.host.as_ref());
        self.judge(&THIS_MODEL, seen, once(model.is_some(), "ThisModel"));
        self.judge(&THIS_DEVICE, seen, once(device.is_some(), "ThisDevice"));
        let problem = || "there is no section with a host".to_owned();
        self.judge(&RELATIONSHIP, seen, so(host.is_some(), problem));
        let all = metadata.deviations();
        let all: Vec<_> = all.iter().chain(deviations).collect();
        let fields = [
            (&MANUFACTURER, "Manufacturer", model.is_some()),
            (&MODEL_NAME, "ModelName", model.is_some()),
            (&FRIENDLY_NAME, "FriendlyName", device.is_some()),
        ];
        for (clause, field, is_due) in fields {
            let missing = all.contains(&&Deviation::Missing(field));
            if is_due {
                self.judge(clause, seen, so(!missing, || format!("{field} is missing")));
            }
        }
        let first = |wanted: fn(&Deviation) -> bool| all.iter().find(|one| wanted(one));
        let too_long = first(|one| matches!(one, Deviation::FieldTooLong { .. }));
        self.judge_none(&FIELD_LENGTH, seen, too_long.map(ToString::to_string));
        let too_long = first(|one| matches!(one, Deviation::UriTooLong { .. }));
        self.judge_none(&LONG_URI, seen, too_long.map(ToString::to_string));
    }

    fn judge_none(&mut self, clause: &'static Clause, seen: &Exchange, problem: Option<String>) {
        self.judge(clause, seen, problem.map_or(Ok(()), Err));
    }

    fn judge_host(&mut self, seen: &Exchange, metadata: &Metadata) {
        let relationship = metadata.relationship.as_ref();
        let Some(host) = relationship.and_then(|all| all.host.as_ref()) else {
            return;
        };
        let address = &host.endpoint.address;
        let problem = || format!("it is {address}");
        self.judge(&URN, seen, so(address.starts_with("urn:uuid:"), problem));
        let parameters = host.endpoint.reference_parameters.len();
        let problem = || format!("it has {parameters} of them");
        self.judge(&NO_PARAMETERS, seen, so(parameters == 0, problem));
        if let Some(found) = &self.options.endpoint {
            let problem = || format!("discovery names {found}, the metadata {address}");
            let verdict = so(found == address, problem);
            self.judge(&SAME_ENDPOINT, seen, verdict);
        }
        self.endpoint = Some(host.endpoint.clone());
    }

    fn judge_hosted(&mut self, seen: &Exchange, hosted: &[Hosted]) {
        for (index, one) in hosted.iter().enumerate() {
            let id = &one.service_id;
            let is_repeated = hosted[..index].iter().any(|other| other.service_id == *id);
            let problem = || format!("service {index} has {id:?}");
            self.judge(
                &SERVICE_ID,
                seen,
                so(!id.is_empty() && !is_repeated, problem),
            );
            let problem = || format!("service {id:?} lists none");
            self.judge(&HOSTED_TYPES, seen, so(!one.types.is_empty(), problem));
            let is_http = |endpoint: &EndpointReference| {
                let address = endpoint.address.to_ascii_lowercase();
                address.starts_with("http://") || address.starts_with("https://")
            };
            let kept = !one.endpoints.is_empty() && one.endpoints.iter().all(is_http);
            let problem = || format!("service {id:?} has another one, or none");
            self.judge(&HOSTED_HTTP, seen, so(kept, problem));
        }
    }

    /// The metadata and the WSDL of one service.
    async fn service(&mut self, hosted: &Hosted, endpoint: &EndpointReference) -> Option<Wsdl> {
        let seen = self.get_metadata(endpoint, None).await;
        let metadata = sections(&seen);
        let offered = metadata.as_ref().is_some_and(|all| !all.wsdl.is_empty());
        let problem = || format!("the metadata of {:?} have no WSDL", hosted.service_id);
        self.judge(&WSDL_OFFERED, &seen, so(offered, problem));
        let sections_seen = self.get_metadata(endpoint, Some(WSDL_DIALECT)).await;
        if sections_seen.answer(GET_METADATA_RESPONSE_ACTION).is_some() {
            let read = sections(&sections_seen);
            let only = read.is_some_and(|all| {
                let none = all.this_model.is_none() && all.this_device.is_none();
                none && all.relationship.is_none() && all.other.is_empty()
            });
            let problem = || "it has sections of other dialects".to_owned();
            self.judge(&SECTION_DIALECT, &sections_seen, so(only, problem));
        }
        let section = metadata?.wsdl.into_iter().next()?;
        let (seen, wsdl) = self.wsdl(seen, section).await;
        match wsdl {
            Ok(wsdl) => {
                self.judge(&WSDL_READABLE, &seen, Ok(()));
                self.judge_wsdl(&seen, hosted, &wsdl);
                Some(wsdl)
            }
            Err(problem) => {
                self.judge(&WSDL_READABLE, &seen, Err(problem));
                None
            }
        }
    }

    async fn get_metadata(&mut self, to: &EndpointReference, dialect: Option<&str>) -> Exchange {
        let asked = GetMetadata {
            dialect: dialect.map(str::to_owned),
            identifier: None,
        };
        let envelope = self.request(to, GET_METADATA_ACTION);
        let envelope = envelope.with_body(asked.to_element());
        let sent = match dialect {
            Some(_) => "GetMetadata for the WSDL",
            None => "GetMetadata",
        };
        let url = to.address.to_string();
        self.ask(sent, &url, &envelope).await
    }

    /// The WSDL of a section with what it imports.
    async fn wsdl(
        &mut self,
        seen: Exchange,
        section: WsdlSection,
    ) -> (Exchange, Result<Wsdl, String>) {
        let location = match section {
            WsdlSection::Inline(root) => {
                let wsdl = Wsdl::from_element(&root).map_err(|error| error.to_string());
                return (seen, wsdl);
            }
            WsdlSection::Reference(to) => {
                let seen = self.get_metadata(&to, Some(WSDL_DIALECT)).await;
                let found = sections(&seen).and_then(|all| all.wsdl.into_iter().next());
                match found {
                    Some(WsdlSection::Inline(root)) => {
                        let wsdl = Wsdl::from_element(&root).map_err(|error| error.to_string());
                        return (seen, wsdl);
                    }
                    Some(WsdlSection::Location(location)) => location,
                    _ => return (seen, Err("the reference leads to no WSDL".to_owned())),
                }
            }
            WsdlSection::Location(location) => location,
        };
        let (seen, mut wsdl) = self.document(&location).await;
        let Ok(whole) = &mut wsdl else {
            return (seen, wsdl);
        };
        let mut taken = vec![location.clone()];
        let mut open: Vec<_> = imports(whole, &location);
        while let Some(next) = open.pop() {
            if taken.contains(&next) || taken.len() == DOCUMENTS_MAX {
                continue;
            }
            taken.push(next.clone());
            let (seen, part) = self.document(&next).await;
            let merged = part.and_then(|part| {
                open.extend(imports(&part, &next));
                whole.merge(part).map_err(|error| error.to_string())
            });
            if let Err(problem) = merged {
                return (seen, Err(problem));
            }
        }
        (seen, wsdl)
    }

    async fn document(&mut self, location: &str) -> (Exchange, Result<Wsdl, String>) {
        self.report.questions += 1;
        let got = self.wire.get(location).await;
        let seen = read("HTTP GET of a WSDL", location.to_owned(), got);
        let wsdl = match seen.status {
            200 => Element::parse_within(seen.response.as_bytes(), Limits::default())
                .map_err(|error| error.to_string())
                .and_then(|root| {
                    self.judge_literal(&seen, &root);
                    Wsdl::from_element(&root).map_err(|error| error.to_string())
                }),
            _ => Err("there is no document".to_owned()),
        };
        (seen, wsdl)
    }

    /// Bindings that are not document-literal.
    fn judge_literal(&mut self, seen: &Exchange, root: &Element) {
        let mut open = vec![root];
        let mut problem = None;
        let mut is_bound = false;
        while let Some(element) = open.pop() {
            if &*element.name.namespace == SOAP12 {
                is_bound = true;
                for (attribute, due) in [("style", "document"), ("use", "literal")] {
                    let value = element.attribute(&Name::local(attribute));
                    if let Some(value) = value.filter(|value| *value != due) {
                        problem = Some(format!("{} has {attribute}={value:?}", element.name.local));
                    }
                }
            }
            open.extend(element.elements());
        }
        if is_bound {
            self.judge_none(&WSDL_LITERAL, seen, problem);
        }
    }

    fn judge_wsdl(&mut self, seen: &Exchange, hosted: &Hosted, wsdl: &Wsdl) {
        for port_type in &wsdl.port_types {
            let bound = wsdl.bindings.iter().any(|binding| {
                binding.port_type == port_type.name && binding.protocol == Protocol::Soap12
            });
            let problem = || format!("{} has none", port_type.name);
            self.judge(&WSDL_BINDING, seen, so(bound, problem));
        }
        for name in &hosted.types {
            let is_there = wsdl.port_types.iter().any(|one| one.name == *name);
            let problem = || format!("it has no port type {name}");
            self.judge(&WSDL_TYPES, seen, so(is_there, problem));
        }
    }
}

/// The metadata in an answer to GetMetadata.
fn sections(seen: &Exchange) -> Option<Metadata> {
    let body = seen.answer(GET_METADATA_RESPONSE_ACTION)?.body()?;
    Some(Metadata::from_element(body)?.0)
}

/// Where the imports of a document are.
fn imports(wsdl: &Wsdl, base: &str) -> Vec<String> {
    let locations = wsdl
        .imports
        .iter()
        .filter_map(|one| one.location.as_deref());
    locations.map(|location| join(base, location)).collect()
}

/// A location relative to a document (RFC 3986, section 5, as far as documents of devices use it).
fn join(base: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let authority = base.find("://").map_or(0, |at| at + 3);
    let root = base[authority..]
        .find('/')
        .map_or(base.len(), |at| authority + at);
    match location.starts_with('/') {
        true => format!("{}{location}", &base[..root]),
        false => {
            let folder = base[root..].rfind('/').map_or(root, |at| root + at);
            format!("{}/{location}", &base[..folder])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn imports_are_relative_to_their_document() {
        let base = "http://192.0.2.1:80/a/b.wsdl";
        assert_eq!(join(base, "c.wsdl"), "http://192.0.2.1:80/a/c.wsdl");
        assert_eq!(join(base, "/c.wsdl"), "http://192.0.2.1:80/c.wsdl");
        assert_eq!(join(base, "http://192.0.2.1/d"), "http://192.0.2.1/d");
        assert_eq!(join("http://192.0.2.1", "c"), "http://192.0.2.1/c");
    }
}
