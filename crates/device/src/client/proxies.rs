//! Discovery proxies as a client uses them (WS-Discovery 1.1, section 2.2.2).
//!
//! Proxies of the options are trusted: [`chappe_dpws::discovery::Managed`] checks them, and while one answers, the
//! client asks it instead of the multicast groups. A proxy that only announced itself is asked as well, and nothing
//! else: it silences no multicast, names no addresses beyond the policy, and changes nothing about a known device. One
//! whose certificate has the usages of proxies ([`Mutual::proxy_usages`](chappe_transport::tls::Mutual::proxy_usages))
//! counts like a configured one once it has answered.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_dpws::discovery::managed::{
    Check, Checked, Command as Add, Event, Managed, PROXIES_MAX, TIME_LIMIT,
};
use chappe_dpws::discovery::{Content, MatchRule, Target};
use chappe_identity::{Contact, Host, Scheme};
use chappe_machine::{Input, Output};
use chappe_soap::EndpointReference;
use chappe_transport::Hop;
use chappe_transport::http::Client;
use chappe_transport::udp::Order;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::Command;

use super::{Found, Search, Seen, Shared, Way, directed, learning};
use crate::Error;
use crate::driver::{InputOf, OutputHandler, drive};

/// Inputs that wait for the machine: a result of each proxy.
const INPUTS_MAX: usize = 2 * PROXIES_MAX;
/// Proxies that only announced themselves. Reason: a network has one or two; each costs requests.
const HEARD_MAX: usize = 4;
/// The same, of one host, so that a forging host leaves room for others.
const HEARD_OF_HOST_MAX: usize = HEARD_MAX / 2;
/// The time limit for the first answer of a proxy that announced itself. Reason: five times that of a check, as it is
/// asked for all its devices. It keeps its room meanwhile.
const HEARD_DEADLINE: Duration = Duration::from_secs(10);

/// A discovery proxy that a client uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyUse {
    /// Its address.
    pub contact: Contact,
    /// Whether it is configured, or proven by its certificate.
    pub is_trusted: bool,
    /// Whether it is not configured, and its certificate has the usages of proxies.
    pub is_certified: bool,
    /// Whether it answers. While a trusted one does, multicast is silent.
    pub answers: bool,
}

/// A discovery proxy, and the client's use of it.
struct Known {
    proxy: ProxyUse,
    /// Whether it is asked for the first time. It is not displaced meanwhile, which bounds the number of requests.
    is_asked: bool,
    /// The devices of the table that it named in its last complete answer.
    named: HashSet<String>,
}

impl Known {
    fn new(contact: &Contact, is_trusted: bool) -> Self {
        Self {
            proxy: ProxyUse {
                contact: contact.clone(),
                is_trusted,
                is_certified: false,
                answers: false,
            },
            is_asked: !is_trusted,
            named: HashSet::new(),
        }
    }

    fn host(&self) -> Host {
        Host::from_address(self.proxy.contact.address.ip())
    }
}

/// The proxies of a client.
pub(super) struct Proxies {
    known: Mutex<Vec<Known>>,
    inputs: mpsc::Sender<Option<InputOf<Managed>>>,
    /// Whether multicast is silent; `None` until every configured proxy was checked.
    is_managed: watch::Sender<Option<bool>>,
}

/// The result of [`Proxies::hear`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    New,
    Known,
    /// As many answer already, or are being asked.
    TooMany,
}

/// The inputs of the machine that [`run`] drives.
pub(super) type Inputs = mpsc::Receiver<Option<InputOf<Managed>>>;

impl Proxies {
    pub(super) fn new(configured: &[Contact]) -> (Self, Inputs) {
        let (inputs, receive_inputs) = mpsc::channel(INPUTS_MAX);
        let configured = configured.iter().take(PROXIES_MAX);
        let known: Vec<_> = configured
            .map(|contact| Known::new(contact, true))
            .collect();
        let is_managed = watch::Sender::new(known.is_empty().then_some(false));
        let proxies = Self {
            known: Mutex::new(known),
            inputs,
            is_managed,
        };
        (proxies, receive_inputs)
    }

    pub(super) fn all(&self) -> Vec<ProxyUse> {
        self.known().iter().map(|one| one.proxy.clone()).collect()
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A trusted proxy by its number in the machine, which counts trusted ones alone.
    fn trusted(&self, number: usize) -> Option<ProxyUse> {
        let known = self.known();
        let mut trusted = known.iter().filter(|one| one.proxy.is_trusted);
        trusted.nth(number).map(|one| one.proxy.clone())
    }

    /// Changes a proxy that is still known.
    fn update<T>(&self, contact: &Contact, change: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let mut known = self.known();
        let one = known.iter_mut().find(|one| one.proxy.contact == *contact);
        one.map(change)
    }

    /// Trusts a certified proxy that was heard. It becomes the last one, as in the machine. Returns whether there is room.
    fn trust(&self, contact: &Contact) -> bool {
        let mut known = self.known();
        let trusted = known.iter().filter(|one| one.proxy.is_trusted).count();
        let position = known.iter().position(|one| one.proxy.contact == *contact);
        let Some(position) = position.filter(|_| trusted < PROXIES_MAX) else {
            return false;
        };
        let mut one = known.remove(position);
        one.proxy.is_trusted = true;
        one.proxy.is_certified = true;
        known.push(one);
        true
    }

    /// Waits until it is known whether the groups are to be asked.
    pub(super) async fn settled(&self) {
        let mut is_managed = self.is_managed.subscribe();
        let settled = is_managed.wait_for(Option::is_some);
        let _ = timeout(TIME_LIMIT, settled).await;
    }

    /// Adds a proxy that announced itself, if need be in the place of one that did not answer. It counts as being asked
    /// until [`Self::asked`].
    fn hear(&self, contact: &Contact) -> Heard {
        let mut known = self.known();
        if known.iter().any(|one| one.proxy.contact == *contact) {
            return Heard::Known;
        }
        let new = Known::new(contact, false);
        let is_of_host = |one: &Known| !one.proxy.is_trusted && one.host() == new.host();
        let of_host = known.iter().filter(|one| is_of_host(one)).count();
        let heard = known.iter().filter(|one| !one.proxy.is_trusted).count();
        let is_host_full = of_host >= HEARD_OF_HOST_MAX;
        if is_host_full || heard >= HEARD_MAX {
            let is_silent = |one: &Known| {
                let proxy = &one.proxy;
                !(proxy.is_trusted || proxy.answers || one.is_asked)
                    && (!is_host_full || is_of_host(one))
            };
            match known.iter().position(is_silent) {
                Some(silent) => drop(known.remove(silent)),
                None => return Heard::TooMany,
            }
        }
        known.push(new);
        Heard::New
    }

    /// Records that a proxy that was heard has been asked, and whether it answered.
    fn asked(&self, contact: &Contact, answered: bool) {
        self.update(contact, |one| {
            one.is_asked = false;
            one.proxy.answers |= answered;
        });
    }
}

/// Checks the trusted proxies until the client ends.
pub(super) async fn run(shared: Arc<Shared>, inputs: Inputs) {
    let configured = shared.proxies.all().len();
    for _ in 0..configured {
        // The queue has room for them.
        let _ = shared
            .proxies
            .inputs
            .try_send(Some(Input::Command(Add::Add)));
    }
    let mut outputs = Outputs {
        shared,
        tasks: JoinSet::new(),
    };
    drive(Managed::default(), inputs, &mut outputs).await;
}

struct Outputs {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl OutputHandler<Managed> for Outputs {
    fn handle(&mut self, output: Output<Check, Event>) {
        while self.tasks.try_join_next().is_some() {}
        let shared = Arc::clone(&self.shared);
        match output {
            Output::Transmit(Check { proxy }) => {
                self.tasks.spawn(async move { check(&shared, proxy).await });
            }
            Output::Event(Event::Up { proxy }) => {
                let Some(proxy) = self.shared.proxies.trusted(proxy) else {
                    return;
                };
                tracing::info!(proxy = %proxy.contact, "a discovery proxy answers");
                shared
                    .proxies
                    .update(&proxy.contact, |one| one.proxy.answers = true);
                self.tasks.spawn(async move {
                    ask(&shared, &proxy, &Search::default()).await;
                });
            }
            Output::Event(Event::Down { proxy }) => {
                if let Some(proxy) = shared.proxies.trusted(proxy) {
                    tracing::warn!(proxy = %proxy.contact, "a discovery proxy no longer answers");
                    shared
                        .proxies
                        .update(&proxy.contact, |one| one.proxy.answers = false);
                }
            }
            Output::Event(Event::Mode { is_managed }) => {
                self.tasks.spawn(async move {
                    let is_set = shared
                        .command(Command::SetManaged(is_managed))
                        .await
                        .is_ok();
                    if is_set && !is_managed {
                        // Meanwhile devices came and left unheard.
                        let _ = shared.probe_everything().await;
                    }
                });
            }
            Output::Event(_) => {}
        }
    }

    fn on_drained(&mut self, machine: &Managed) {
        if machine.is_settled() {
            let is_managed = Some(machine.is_managed());
            self.shared.proxies.is_managed.send_replace(is_managed);
        }
    }
}

/// Asks a trusted proxy for itself.
async fn check(shared: &Arc<Shared>, proxy: usize) {
    if let Some(one) = shared.proxies.trusted(proxy) {
        let answered = is_proxy(shared, &one).await;
        let checked = Input::Receive(Checked { proxy, answered });
        let _ = shared.proxies.inputs.send(Some(checked)).await;
    }
}

/// Whether a proxy answers a search for itself.
async fn is_proxy(shared: &Arc<Shared>, one: &ProxyUse) -> bool {
    let dialect = shared.options.dialects.first().copied().unwrap_or_default();
    let search = Search {
        types: vec![dialect.proxy_type()],
        ..Search::default()
    };
    let http = shared.http_of(one, &shared.small);
    let asking = directed::probe(shared, http, &one.contact, &search, dialect);
    match timeout(TIME_LIMIT, asking).await {
        Ok(Ok(_)) => true,
        // A fault is an answer, of a proxy of another dialect.
        Ok(Err(error)) => {
            if one.answers || one.is_certified {
                let peer = one.contact.address.ip().to_string();
                shared.note(Hop::Discovery, &peer, &error);
            }
            matches!(
                error,
                Error::Http(chappe_transport::http::Error::Fault { .. })
            )
        }
        Err(_) => false,
    }
}

impl Shared {
    /// The client for a proxy: one that is trusted by its certificate has to show it on each connection.
    fn http_of<'s>(&'s self, one: &ProxyUse, other: &'s Client) -> &'s Client {
        let certified = self.certified.as_ref().filter(|_| one.is_certified);
        certified.unwrap_or(other)
    }

    /// Asks every proxy that may answer; the matches arrive like those of other searches.
    pub(super) fn ask_proxies(self: &Arc<Self>, search: &Search, id: u64) {
        for one in self.proxies.all() {
            let (shared, search) = (Arc::clone(self), search.clone());
            tokio::spawn(async move {
                let asking = ask(&shared, &one, &search);
                let Ok(matched) = timeout(search.timeout, asking).await else {
                    let detail = format!("{}: no answer within {:?}", one.contact, search.timeout);
                    let (reason, peer) = ("discovery proxy too slow", one.contact.address.ip());
                    return shared
                        .drops
                        .record(Hop::Discovery, reason, peer, detail, None);
                };
                for endpoint in matched.into_iter().flatten() {
                    shared.emit(Seen::Match { id, endpoint });
                }
            });
        }
    }

    /// Asks every proxy for the addresses of an endpoint.
    pub(super) fn resolve_by_proxies(self: &Arc<Self>, endpoint: &str) {
        for one in self.proxies.all() {
            let (shared, endpoint) = (Arc::clone(self), endpoint.to_owned());
            tokio::spawn(async move {
                for dialect in &shared.options.dialects {
                    let asked = EndpointReference::new(endpoint.clone());
                    let content = Content::Resolve(asked);
                    let http = shared.http_of(&one, &shared.small);
                    let asking = directed::exchange(&shared, http, &one.contact, *dialect, content);
                    if let Ok(Content::ResolveMatches(Some(target))) = asking.await
                        && *target.endpoint.address == *endpoint
                    {
                        believe(
                            &shared,
                            &one,
                            Found::new(&target, *dialect, one.contact.address),
                        )
                        .await;
                    }
                }
            });
        }
    }

    /// Uses a proxy that announced itself.
    pub(super) async fn hear_proxy(self: &Arc<Self>, target: &Target, from: SocketAddr) {
        let policy = &self.options.policy;
        let mut contacts = target.xaddrs.iter();
        let may_ask = |contact: &Contact| self.options.plain || contact.scheme == Scheme::Https;
        let contact = contacts.find_map(|xaddr| policy.check(xaddr, from).ok().filter(may_ask));
        // The machine has reported refused addresses.
        let Some(contact) = contact else { return };
        match self.proxies.hear(&contact) {
            Heard::New => {}
            Heard::Known => return,
            Heard::TooMany => {
                let detail = format!(
                    "{contact}: {HEARD_MAX} others that announced themselves, or {HEARD_OF_HOST_MAX} of its \
                     host, answer or are being asked"
                );
                let reason = "discovery proxy not used";
                self.drops
                    .record(Hop::Discovery, reason, from.ip(), detail, None);
                // The next announcement counts as new. If the queue is full, it is used when it has left and returned.
                let endpoint = target.endpoint.address.clone();
                let _ = self
                    .orders
                    .try_send(Order::Command(Command::Forget { endpoint }));
                return;
            }
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move { use_heard(&shared, &contact).await });
    }
}

/// Asks a proxy that announced itself for the first time, and trusts it if its certificate has the usages.
async fn use_heard(shared: &Arc<Shared>, contact: &Contact) {
    let mut one = Known::new(contact, false).proxy;
    let search = Search::default();
    let asking = timeout(HEARD_DEADLINE, ask(shared, &one, &search));
    let answered = asking.await.is_ok_and(|matched| matched.is_some());
    shared.proxies.asked(contact, answered);
    one.is_certified = answered && contact.scheme == Scheme::Https && shared.certified.is_some();
    if one.is_certified && is_proxy(shared, &one).await && shared.proxies.trust(contact) {
        let add = Some(Input::Command(Add::Add));
        let _ = shared.proxies.inputs.send(add).await;
    }
}

/// Asks a proxy in each dialect; returns the endpoints of matches, or `None` if it never answered. Devices
/// that it named before, and no longer does when asked for all, are forgotten unless they were reached.
async fn ask(shared: &Arc<Shared>, one: &ProxyUse, search: &Search) -> Option<HashSet<String>> {
    let mut matched = None;
    let mut is_complete = search.types.is_empty()
        && search.scopes.is_empty()
        && search.match_by == MatchRule::default();
    let dialects = shared.options.dialects.iter().copied();
    // A dialect without the rule is not asked.
    for dialect in dialects.filter(|dialect| search.match_by.attribute(*dialect).is_some()) {
        match ask_in(shared, one, search, dialect).await {
            Some(found) => matched.get_or_insert_with(HashSet::new).extend(found),
            None => is_complete = false,
        }
    }
    // Trusted proxies are checked instead.
    let answers = matched.is_some();
    shared.proxies.update(&one.contact, |one| {
        let proxy = &mut one.proxy;
        proxy.answers = answers || proxy.is_trusted && proxy.answers;
    });
    let matched = matched?;
    if is_complete {
        let named: HashSet<String> = {
            let table = shared.table();
            let is_known = |endpoint: &&String| table.contains_key(*endpoint);
            matched.iter().filter(is_known).cloned().collect()
        };
        let before = shared
            .proxies
            .update(&one.contact, |one| std::mem::replace(&mut one.named, named));
        for endpoint in before.unwrap_or_default().difference(&matched) {
            learning::unlearn(shared, endpoint).await;
        }
    }
    Some(matched)
}

async fn ask_in(
    shared: &Arc<Shared>,
    one: &ProxyUse,
    search: &Search,
    dialect: Dialect,
) -> Option<Vec<String>> {
    let http = shared.http_of(one, &shared.http);
    let asking = directed::probe(shared, http, &one.contact, search, dialect);
    match asking.await {
        Ok(found) => {
            let mut endpoints = Vec::new();
            for device in found {
                endpoints.push(device.endpoint.clone());
                believe(shared, one, device).await;
            }
            Some(endpoints)
        }
        Err(error) => {
            let peer = one.contact.address.ip().to_string();
            shared.note(Hop::Discovery, &peer, &error);
            None
        }
    }
}

/// Adds a device that a proxy named, as far as the proxy is trusted.
async fn believe(shared: &Arc<Shared>, one: &ProxyUse, found: Found) {
    if !one.is_trusted && shared.table().contains_key(&found.endpoint) {
        return;
    }
    let from = match one.is_trusted {
        true => vouched(&one.contact, &found),
        false => one.contact.address,
    };
    let found = Found {
        from,
        way: Way::Proxy,
        ..found
    };
    match one.is_trusted {
        true => learning::learn(shared, found).await,
        false => learning::hear(shared, found).await,
    }
}

/// The address for which a trusted proxy vouches: the device's own. Loopback is this host for every proxy
/// elsewhere.
fn vouched(proxy: &Contact, found: &Found) -> SocketAddr {
    let named = found
        .xaddrs
        .iter()
        .find_map(|xaddr| Contact::parse(xaddr, 0).ok());
    let is_elsewhere = !proxy.address.ip().is_loopback();
    match named {
        Some(named) if !(named.address.ip().is_loopback() && is_elsewhere) => named.address,
        _ => proxy.address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_answers_is_not_displaced_by_others_that_announce_themselves() {
        let at = |number: usize| Contact::parse(&format!("http://192.0.2.{number}/"), 0).unwrap();
        let (proxies, _inputs) = Proxies::new(&[at(200)]);
        for number in 1..=HEARD_MAX {
            assert_eq!(proxies.hear(&at(number)), Heard::New);
        }
        assert_eq!(proxies.hear(&at(1)), Heard::Known);
        assert_eq!(proxies.hear(&at(9)), Heard::TooMany, "all are being asked");
        for number in 1..=HEARD_MAX {
            proxies.asked(&at(number), number > 1);
        }
        assert_eq!(proxies.hear(&at(9)), Heard::New, "the first was silent");
        proxies.asked(&at(9), true);
        assert_eq!(proxies.hear(&at(10)), Heard::TooMany);
        let all = proxies.all();
        assert_eq!(all.len(), 1 + HEARD_MAX);
        assert!(all.iter().all(|one| one.contact != at(1)) && all[0].contact == at(200));
    }

    #[test]
    fn a_host_that_announces_many_proxies_is_asked_for_few_and_leaves_room() {
        let at = |host: usize, port: usize| {
            Contact::parse(&format!("http://192.0.2.{host}:{port}/"), 0).unwrap()
        };
        let (proxies, _inputs) = Proxies::new(&[]);
        let hear = |port: usize| proxies.hear(&at(66, port)) == Heard::New;
        assert_eq!(
            (1..=100).filter(|port| hear(*port)).count(),
            HEARD_OF_HOST_MAX
        );
        assert_eq!(proxies.hear(&at(7, 80)), Heard::New, "of another host");
        let name = |port| {
            let named = HashSet::from(["urn:device".to_owned()]);
            proxies
                .update(&at(66, port), |one| one.named = named)
                .is_some()
        };
        assert!(name(1), "it is known");
        for port in 1..=100 {
            proxies.asked(&at(66, port), false);
            assert_eq!(hear(port + 100), port <= HEARD_OF_HOST_MAX);
        }
        assert!(!name(1), "it was displaced, with all that it named");
        assert_eq!(proxies.all().len(), HEARD_OF_HOST_MAX + 1);
    }
}
