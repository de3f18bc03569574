//! The search for devices of `find`, `describe`, `call` and `watch`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_device::client::{ClientOptions, ClientTree, Description, Found, Search, Seen, Way};
use chappe_device::{DeviceClient, Error, Selection};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::MatchRule;
use chappe_soap::udp::DISCOVERY_PORT;
use chappe_transport::http::Security;
use chappe_transport::kad::{entrance, entrance_type};
use chappe_transport::tls::Files;
use chappe_transport::{Drops, codes};
use chappe_xml::Name;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::overlay;
use super::published::Published;
use crate::cli::{DeviceTls, Host, Network};
use crate::output::Failure;

/// Pause before a silent device is asked again for its metadata.
const PAUSE: Duration = Duration::from_secs(1);

/// Time after a search within which all descriptions are there; reason: what a stranger's device may add to a command.
const DESCRIBING_MAX: Duration = Duration::from_secs(30);

/// A client for as long as a command runs.
pub(crate) struct Session {
    pub client: Arc<DeviceClient>,
    network: Network,
    /// Entrances to the distributed hash table.
    entrances: Vec<SocketAddr>,
}

/// A device of a search, with its description or the reason why it has none.
pub(crate) struct Answer {
    pub found: Found,
    pub description: Result<Box<Description>, Error>,
}

impl Session {
    /// Listens on the interfaces that the flags name.
    pub(crate) fn start(network: &Network) -> Result<Self, Failure> {
        Self::open(network, None, None)
    }

    /// As [`start`](Self::start), for a command that runs long: it searches each minute, since Hellos get lost, and takes
    /// part in notification trees if `tree` is given.
    pub(crate) fn start_watching(
        network: &Network,
        tree: Option<ClientTree>,
    ) -> Result<Self, Failure> {
        Self::open(network, tree, ClientOptions::default().probe_period)
    }

    fn open(
        network: &Network,
        tree: Option<ClientTree>,
        probe_period: Option<Duration>,
    ) -> Result<Self, Failure> {
        if !network.interfaces.is_empty() {
            super::network::interfaces(&network.interfaces)?;
        }
        let selection = match network.interfaces.as_slice() {
            [] => Selection::All,
            names => Selection::Named(names.to_vec()),
        };
        let (tls, plain) = security(&network.tls)?;
        let options = ClientOptions {
            tls: Some(tls),
            plain,
            selection,
            proxies: network.proxies.clone(),
            probe_period,
            liveness_period: None,
            tree,
            ..ClientOptions::default()
        };
        let entrances = overlay::entrances(&network.entrances, network.config.as_deref())?;
        let client = DeviceClient::start(options, Drops::default()).map_err(failure)?;
        Ok(Self {
            client: Arc::new(client),
            network: network.clone(),
            entrances,
        })
    }

    /// Searches once and describes each match. `take` returns false to end the search.
    ///
    /// Returns the endpoints that answered without a transport address.
    pub(crate) async fn search(
        &self,
        types: Vec<Name>,
        (scopes, match_by): (Vec<String>, MatchRule),
        wanted: impl Fn(&Found) -> bool,
        mut take: impl FnMut(Answer) -> bool,
    ) -> Result<Vec<String>, Failure> {
        let mut seen = self.client.listen();
        let search = Search {
            types,
            scopes,
            match_by,
            timeout: self.network.timeout,
        };
        let mut matched = self.search_by_http(&search).await;
        let mut open = vec![self.client.search(&search).await.map_err(failure)?];
        if search.types.is_empty() {
            // Some devices ignore a Probe for everything and answer a Probe for type Device.
            let types = vec![Dialect::V2009.device_type()];
            let devices = Search {
                types,
                ..search.clone()
            };
            open.push(self.client.search(&devices).await.map_err(failure)?);
        }
        for host in &self.network.hosts {
            let Host::Address(host) = host else { continue };
            let to = SocketAddr::new(*host, DISCOVERY_PORT);
            open.push(self.client.search_at(to, &search).await.map_err(failure)?);
        }
        let until = Instant::now() + self.network.timeout;
        let mut describing = JoinSet::new();
        let mut published = Published::new(&self.client, &search);
        for entrance in &self.entrances {
            published.enter(*entrance).await?;
        }
        // Matches come before the address is known where it has to be asked for.
        let mut taken: Vec<String> = Vec::new();
        while !open.is_empty() || !describing.is_empty() || published.is_open() {
            tokio::select! {
                event = seen.next() => {
                    match event {
                        Some(Seen::SearchEnded { id, .. }) => open.retain(|other| *other != id),
                        Some(Seen::Match { id, endpoint }) if open.contains(&id) => {
                            matched.push(endpoint);
                        }
                        Some(Seen::Found(found)) if found.types.contains(&entrance_type()) => {
                            if let Some(at) = entrance(&found.xaddrs, found.from.ip()) {
                                published.enter(at).await?;
                            }
                            continue;
                        }
                        Some(Seen::Found(_) | Seen::Changed(_)) => {}
                        Some(_) => continue,
                        None => return Err(Failure::new("the discovery client ended").coded("discovery_ended")),
                    }
                }
                endpoint = published.next(), if published.is_open() => {
                    matched.extend(endpoint.filter(|endpoint| !matched.contains(endpoint)));
                }
                Some(answer) = describing.join_next() => {
                    if !take(answer?) {
                        return Ok(Vec::new());
                    }
                }
            }
            for found in self.client.known() {
                let new = matched.contains(&found.endpoint)
                    && !taken.contains(&found.endpoint)
                    && !found.types.contains(&entrance_type());
                if !new || !wanted(&found) {
                    continue;
                }
                taken.push(found.endpoint.clone());
                let client = Arc::clone(&self.client);
                describing.spawn(async move {
                    let end = until + DESCRIBING_MAX;
                    let unread = found.clone();
                    let described = describe(&client, found, until);
                    let described = tokio::time::timeout_at(end, described).await;
                    described.unwrap_or_else(|_| Answer {
                        found: unread,
                        description: Err(Error::Slow(DESCRIBING_MAX)),
                    })
                });
            }
        }
        let known = self.client.known();
        matched.retain(|endpoint| known.iter().all(|found| found.endpoint != *endpoint));
        matched.dedup();
        Ok(matched)
    }

    /// The devices that match at the hosts given by URL. A host without an answer is recorded as a drop.
    async fn search_by_http(&self, search: &Search) -> Vec<String> {
        let mut matched = Vec::new();
        for host in &self.network.hosts {
            if let Host::Url(contact) = host
                && let Ok(found) = self.client.search_by_http(contact, search).await
            {
                matched.extend(found.into_iter().map(|found| found.endpoint));
            }
        }
        matched
    }

    /// The device with this endpoint, transport address or name.
    pub(crate) async fn device(&self, name: &str) -> Result<Box<Description>, Failure> {
        if name.starts_with("http://") || name.starts_with("https://") {
            let found = at(name)?;
            return self
                .client
                .describe(&found)
                .await
                .map(Box::new)
                .map_err(failure);
        }
        let by_endpoint = name.contains(':') && !name.contains(' ');
        let mut chosen = None;
        let mut others = Vec::new();
        let mut unread = None;
        let wanted = |found: &Found| !by_endpoint || found.endpoint == name;
        self.search(Vec::new(), Default::default(), wanted, |answer| {
            match answer.description {
                Ok(description)
                    if answer.found.endpoint == name || has_name(&description, name) =>
                {
                    chosen = Some(Ok(description));
                }
                Ok(description) => others.push(description.name().to_owned()),
                Err(error) if by_endpoint => chosen = Some(Err(error)),
                Err(error) => unread = Some(error),
            }
            chosen.is_none()
        })
        .await?;
        match chosen {
            Some(Ok(description)) => Ok(description),
            Some(Err(error)) => Err(failure(error)),
            None => {
                let failure = not_found(name, &others);
                Err(match unread.filter(|_| others.is_empty()) {
                    Some(error) => failure.hint(format!("a device cannot be described: {error}")),
                    None => failure,
                })
            }
        }
    }

    /// The device with this endpoint or name, as discovery found it. By its endpoint it is found even if it cannot
    /// be described.
    pub(crate) async fn found(&self, name: &str) -> Result<Found, Failure> {
        let by_endpoint = name.contains(':') && !name.contains(' ');
        let mut chosen = None;
        let mut others = Vec::new();
        let wanted = |found: &Found| !by_endpoint || found.endpoint == name;
        self.search(Vec::new(), Default::default(), wanted, |answer| {
            let description = answer.description.as_ref().ok();
            if answer.found.endpoint == name || description.is_some_and(|it| has_name(it, name)) {
                chosen = Some(answer.found);
            } else {
                others.extend(description.map(|it| it.name().to_owned()));
            }
            chosen.is_none()
        })
        .await?;
        chosen.ok_or_else(|| not_found(name, &others))
    }

    /// Ends subscriptions and sockets.
    pub(crate) async fn close(self) {
        if let Ok(client) = Arc::try_unwrap(self.client) {
            let _ = tokio::time::timeout(Duration::from_secs(2), client.close()).await;
        }
    }
}

/// No device has this name; `others` did answer.
fn not_found(name: &str, others: &[String]) -> Failure {
    let mut hint = match others {
        [] => "find out why: chappe doctor".to_owned(),
        others => format!("devices: {}", others.join(", ")),
    };
    // A stream is called by its device and the event.
    if name.contains('.') && !name.contains(':') {
        hint.push_str(&format!(
            "; for a stream of a node: chappe watch --stream {name}"
        ));
    }
    let failure = Failure::new(format!("no device {name:?} found"));
    failure.coded("device_unknown").hint(hint)
}

/// Describes a device. A silent device, or one with a still unconfirmed address, is asked again until
/// the time is over.
async fn describe(client: &DeviceClient, mut found: Found, until: Instant) -> Answer {
    loop {
        let description = client.describe(&found).await.map(Box::new);
        let may_answer = match &description {
            Err(Error::Http(_) | Error::Slow(_)) => true,
            Err(Error::Refused { .. }) => found.from.ip().is_unspecified(),
            _ => false,
        };
        if !may_answer || Instant::now() + PAUSE >= until {
            return Answer { found, description };
        }
        tokio::time::sleep(PAUSE).await;
        let mut known = client.known().into_iter();
        if let Some(newer) = known.find(|known| known.endpoint == found.endpoint) {
            found = newer;
        }
    }
}

/// TLS as the flags say, and whether devices without it are used: only if nobody is trusted. Then the certificate of
/// a device with TLS is shown, for a comparison.
pub(crate) fn security(flags: &DeviceTls) -> Result<(Security, bool), Failure> {
    let files = Files {
        certificate: flags.certificate.clone(),
        key: flags.key.clone(),
        authorities: flags.device_authorities.clone(),
        fingerprints: flags.device_fingerprints.clone(),
        revocation_lists: flags.revocation_lists.clone(),
        usages: flags.usages.clone(),
        proxy_usages: flags.proxy_usages.clone(),
        is_proxy: false,
        any_name: flags.any_name,
    };
    let mutual = files.load("chappe", "urn:chappe:client").map_err(|error| {
        let hint = error.hint();
        Failure::from(error).hint_if(hint)
    })?;
    let security = mutual.security();
    let plain = !security.trusts();
    Ok((security, plain))
}

fn has_name(description: &Description, name: &str) -> bool {
    let names = description.device.friendly_name.iter();
    names
        .map(|text| text.text.to_lowercase())
        .any(|text| text == name.to_lowercase())
}

/// A device known only by its transport address.
pub(crate) fn at(url: &str) -> Result<Found, Failure> {
    let contact = chappe_identity::Contact::parse(url, 0)
        .map_err(|refusal| Failure::new(format!("{url}: {refusal}")).coded("address_refused"))?;
    Ok(Found {
        endpoint: url.to_owned(),
        dialect: Dialect::V2009,
        types: Vec::new(),
        scopes: Vec::new(),
        xaddrs: vec![url.to_owned()],
        metadata_version: 0,
        from: contact.address,
        way: Way::Discovery,
    })
}

/// An error of the client, with its hint.
pub(crate) fn failure(error: Error) -> Failure {
    let (hint, code) = (error.hint(), codes::of(error.reason()));
    Failure::from(error).hint_if(hint).coded(code)
}
