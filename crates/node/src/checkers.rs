//! Asks services of others which values references may have (validate_values of UDDI).
//!
//! The operator names a service in the file of its value set, and the address policy has to allow its address: the
//! networks in `discovery.contact` and `exchange.contact`. A service that does not answer in time fails the
//! request, which is counted.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method};
use chappe_identity::{Contact, Scheme};
use chappe_registry::uddi::message::read_validation;
use chappe_registry::uddi::{Error, ErrorCode, TModelKey, Taxonomies, Values};
use chappe_transport::http::{Client, ClientLimits};
use chappe_transport::{Drops, Hop};
use chappe_xml::Limits;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::config::Config;

/// Time for all services that one request has to ask.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of an answer: a report has some hundred.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Requests that ask at the same time; reason: each holds its message, and waits for somebody else.
const REQUESTS_MAX: usize = 16;

/// The services that check values.
pub(crate) struct Checkers {
    contacts: HashMap<TModelKey, Contact>,
    client: Client,
    permits: Semaphore,
    time_max: Duration,
}

impl Checkers {
    /// The services that the value sets name.
    ///
    /// # Errors
    /// The address of one must not be contacted.
    pub(crate) fn new(config: &Config, taxonomies: &Taxonomies) -> Result<Self, String> {
        let policy = config.contact_policy();
        // As if this host itself had named them: loopback has to be allowed like every other network.
        let source = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let mut contacts = HashMap::new();
        for (key, url) in taxonomies.checkers() {
            let fail =
                |reason: String| format!("the checker {url:.200} of tModelKey {key}: {reason}");
            let contact = policy.check(url, source);
            let contact = contact.map_err(|refusal| match refusal.hint() {
                Some(hint) => fail(format!("{refusal} (hint: {hint})")),
                None => fail(refusal.to_string()),
            })?;
            if contact.scheme == Scheme::Https {
                return Err(fail(
                    "https is not spoken with checkers; use http".to_owned(),
                ));
            }
            contacts.insert(key, contact);
        }
        let limits = ClientLimits {
            header_deadline: TIME_MAX,
            body_deadline: TIME_MAX,
            body_bytes: ANSWER_BYTES_MAX,
            ..ClientLimits::default()
        };
        Ok(Self {
            contacts,
            client: Client::new(limits),
            permits: Semaphore::new(REQUESTS_MAX),
            time_max: TIME_MAX,
        })
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.contacts.is_empty()
    }

    /// Asks about all references to value sets that a service checks.
    ///
    /// # Errors
    /// What a service says; `E_requestTimeout` if one does not answer; `E_busy`.
    pub(crate) async fn check(&self, drops: &Drops, values: &Values) -> Result<(), Error> {
        let referred = values.referred();
        let asked = referred
            .iter()
            .filter_map(|key| Some((*key, self.contacts.get(key)?)));
        let deadline = Instant::now() + self.time_max;
        for (key, contact) in asked {
            let _permit = self.permits.try_acquire().map_err(|_| {
                let detail = format!("{REQUESTS_MAX} requests wait for checkers of values");
                Error::new(ErrorCode::Busy, detail)
            })?;
            let answered = timeout_at(deadline, self.ask(contact, values.to_text(key))).await;
            let late = || format!("no answer within {} ms", self.time_max.as_millis());
            let document = match answered.unwrap_or_else(|_| Err(late())) {
                Ok(document) => document,
                Err(reason) => {
                    let detail = format!("the checker of tModelKey {key} is away: {reason}");
                    let error = Error::new(ErrorCode::RequestTimeout, detail);
                    self.count(drops, contact, &error);
                    return Err(error);
                }
            };
            let limits = Limits {
                bytes: ANSWER_BYTES_MAX,
                ..Limits::default()
            };
            let checked = read_validation(&document, limits, key);
            if let Err(error) = &checked
                && error.code == ErrorCode::Unvalidatable
            {
                self.count(drops, contact, error);
            }
            checked?;
        }
        Ok(())
    }

    fn count(&self, drops: &Drops, contact: &Contact, error: &Error) {
        let (peer, detail) = (contact.address.to_string(), error.detail.clone());
        drops.record(Hop::Http, "checker failed", &peer, detail, None);
    }

    /// The answer of a service, whatever its status: a fault has 500.
    async fn ask(&self, contact: &Contact, message: String) -> Result<Bytes, String> {
        let mut headers = HeaderMap::new();
        let media_type = HeaderValue::from_static("text/xml; charset=utf-8");
        headers.insert(CONTENT_TYPE, media_type);
        let action = HeaderName::from_static("soapaction");
        headers.insert(action, HeaderValue::from_static("\"validate_values\""));
        let answer = self
            .client
            .request(contact, Method::POST, headers, Bytes::from(message));
        let answer = answer.await.map_err(|error| error.to_string())?;
        match answer.body.is_empty() {
            true => Err(format!(
                "its answer is empty, with status {}",
                answer.status
            )),
            false => Ok(answer.body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_registry::uddi::{BusinessEntity, KeyedReference};

    const COLOURS: TModelKey = TModelKey::new(7);

    fn checkers(url: &str, contact: &[&str]) -> Result<Checkers, String> {
        let mut taxonomies = Taxonomies::default();
        taxonomies.add(COLOURS, &format!("@checker {url}")).unwrap();
        let mut config = Config::default();
        config.exchange.contact = contact.iter().map(|it| (*it).to_owned()).collect();
        Checkers::new(&config, &taxonomies)
    }

    #[test]
    fn only_allowed_addresses_are_asked() {
        assert!(checkers("http://192.0.2.7/", &["192.0.2.0/24"]).is_ok());
        for (url, contact) in [
            ("http://192.0.2.7/", &["198.51.100.0/24"][..]),
            ("http://127.0.0.1/", &["192.0.2.0/24"]),
            ("http://169.254.169.254/", &["169.254.0.0/16"]),
            ("http://colours.example/", &["0.0.0.0/0"]),
            ("https://192.0.2.7/", &["192.0.2.0/24"]),
            ("file:///etc/passwd", &["0.0.0.0/0"]),
        ] {
            let refused = checkers(url, contact).err().unwrap();
            assert!(refused.contains(url), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_service_that_does_not_answer_fails_the_request() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let mut checkers = checkers(&url, &["127.0.0.0/8"]).unwrap();
        checkers.time_max = Duration::from_millis(50);
        let business = BusinessEntity {
            category_bag: vec![KeyedReference {
                tmodel_key: Some(COLOURS),
                key_name: None,
                key_value: "red".to_owned(),
            }],
            ..BusinessEntity::default()
        };
        let values = Values {
            businesses: vec![business],
            ..Values::default()
        };
        let drops = Drops::default();
        let error = checkers.check(&drops, &values).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::RequestTimeout);
        assert!(error.detail.contains("within 50 ms"), "{}", error.detail);
        // No more wait than there are places.
        let _all = checkers
            .permits
            .try_acquire_many(REQUESTS_MAX as u32)
            .unwrap();
        let error = checkers.check(&drops, &values).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Busy);
    }
}
