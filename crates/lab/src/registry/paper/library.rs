//! The registry as a library: requests as values, without SOAP.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chappe_log::{Level, Options, Store};
use chappe_registry::uddi::message::{Answer, Port, Request, receive};
use chappe_registry::uddi::{Publisher, Taxonomies};
use chappe_registry::{Access, LogJournal, Principal, Registry};
use chappe_transport::FileDisk;
use chappe_xml::Limits;

use super::service::{Requests, Step};
use super::soap::envelope;
use super::under_test::{Keys, UnderTest};
use crate::Error;

/// The publisher.
const PUBLISHER: &str = "ada";

/// A registry in this process.
pub(super) struct Library {
    pub(super) registry: Registry,
    requests: Arc<Requests>,
    taxonomies: Taxonomies,
    random: fastrand::Rng,
    /// The store below the journal, which ends with it.
    _store: Option<Store>,
}

impl Library {
    pub(super) fn new(registry: Registry) -> Result<Self, Error> {
        Ok(Self {
            registry,
            requests: Arc::new(Requests::new()?),
            taxonomies: Taxonomies::default(),
            random: fastrand::Rng::with_seed(1),
            _store: None,
        })
    }

    /// A registry whose journal is a log in this folder, with the tModels that every node has.
    pub(super) fn on_log(folder: &Path, level: Level) -> Result<Self, Error> {
        fn failed<E: std::fmt::Display>() -> impl FnOnce(E) -> Error {
            Error::failed("opening a registry on a log")
        }
        std::fs::create_dir_all(folder).map_err(Error::io("making a folder"))?;
        let disk = FileDisk::open(folder).map_err(Error::io("opening a folder"))?;
        let (store, _) = Store::open(Box::new(disk), Options::default(), 1).map_err(failed())?;
        let stream = store.stream("registry", level, &[]).map_err(failed())?;
        let now = || i64::try_from(since_1970().as_nanos()).unwrap_or(0);
        let registry = Registry::open(LogJournal::new(stream, now)).map_err(failed())?;
        let mut library = Self::new(registry)?;
        library.add_canonical()?;
        library._store = Some(store);
        Ok(library)
    }

    /// Publishes the tModels that every node has.
    pub(super) fn add_canonical(&mut self) -> Result<(), Error> {
        const WHAT: &str = "publishing the canonical tModels";
        let published = self.registry.publish_canonical_tmodels("node", 0);
        if let Some(publication) = published.map_err(Error::failed(WHAT))? {
            publication.wait().map_err(Error::failed(WHAT))?;
        }
        Ok(())
    }

    /// Publishes a service with this text in place of its number.
    pub(super) fn publish_as(&mut self, requests: &Requests, name: &str) -> Result<Keys, Error> {
        let mut keys = Keys::default();
        for step in Step::ALL {
            let request = request(&requests.save(step, name, &keys, ""), Port::Publication)?;
            self.run(step, &request, &mut keys)?;
        }
        Ok(keys)
    }

    /// Runs a request of publication, until its change is durable at the level of the journal.
    pub(super) fn run(
        &mut self,
        step: Step,
        request: &Request,
        keys: &mut Keys,
    ) -> Result<(), Error> {
        let random = &mut self.random;
        let mut bits = || random.u128(..);
        let now = i64::try_from(since_1970().as_millis()).unwrap_or(0);
        let registry = &self.registry;
        let mut publisher = Publisher::new(registry, PUBLISHER, Access::Public, now, &mut bits);
        let saved = publisher.answer(request);
        let answer = saved.and_then(chappe_registry::uddi::Saved::wait);
        let answer = answer.map_err(Error::failed("publishing through the library"))?;
        let key = match &answer {
            Answer::BusinessDetail(all) => all.first().and_then(|it| it.value.key).map(text_of),
            Answer::TModelDetail(all) => all.first().and_then(|it| it.value.key).map(text_of),
            Answer::ServiceDetail(all) => all.first().and_then(|it| it.key).map(text_of),
            _ => None,
        };
        let missing = || Error::Failed("a save gave no key".to_owned());
        keys.set(step, key.ok_or_else(missing)?);
        Ok(())
    }
}

fn text_of(key: impl ToString) -> String {
    key.to_string()
}

pub(super) fn since_1970() -> std::time::Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// A request as a value.
pub(super) fn request(text: &str, port: Port) -> Result<Request, Error> {
    let received = receive(envelope(text).as_bytes(), Limits::default(), port, "bench");
    let message = received.map_err(|fault| Error::Failed(format!("{fault:?} for {text}")))?;
    Ok(message.request)
}

impl UnderTest for Library {
    fn save(&mut self, step: Step, name: &str, keys: &mut Keys) -> Result<Duration, Error> {
        let requests = Arc::clone(&self.requests);
        let request = request(&requests.save(step, name, keys, ""), Port::Publication)?;
        let start = Instant::now();
        self.run(step, &request, keys)?;
        Ok(start.elapsed())
    }

    fn inquire(&mut self, name: &str) -> Result<Duration, Error> {
        let failed = || Error::failed("asking the library");
        let find = request(&Requests::find(name), Port::Inquiry)?;
        let start = Instant::now();
        let inquiry = self.registry.uddi(&Principal::Anonymous);
        let answer = inquiry.answer(find, &self.taxonomies).map_err(failed())?;
        let Answer::ServiceList(found) = answer else {
            return Err(Error::Failed("find_service gave no list".to_owned()));
        };
        let [service] = found.items.as_slice() else {
            let what = format!("{} services are named {name}", found.items.len());
            return Err(Error::Failed(what));
        };
        let request = Request::ServiceDetail(vec![service.service_key]);
        let answer = inquiry.answer(request, &self.taxonomies);
        let time = start.elapsed();
        match answer.map_err(failed())? {
            Answer::ServiceDetail(found) if found.len() == 1 => Ok(time),
            _ => Err(Error::Failed(
                "get_serviceDetail gave no service".to_owned(),
            )),
        }
    }
}
