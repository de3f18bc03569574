//! Searches whose pace the searcher controls.
//!
//! A search has a credit in bytes. Each request states the maximum length of its answer, and that many
//! bytes are deducted from the credit when it is sent; bytes that the answer did not use are refunded.
//! The search asks one node at a time for records, page by page, and discards an answer longer than
//! granted. If the credit does not suffice for the next request, the search waits.
//!
//! It asks nodes of all parts of the region in turn until enough of them had records. It concludes that
//! there are no records when enough members deny them. The more members there are above the number
//! expected from the size of the network, the more must deny.

use std::collections::BTreeMap;

use super::context::{Context, on_gather_answer};
use crate::config::{FIND_CONTACTS, REGION_CONTACTS};
use crate::cryptography::Cryptography;
use crate::gather::{Gather, Next};
use crate::message::PACKET_BYTES_MAX;
use crate::node::question::{Answer, Purpose, Question, TaskId};
use crate::record::Notary;
use crate::size::Size;
use crate::store::{Page, digest_of};
use crate::types::{Event, SearchReport};
use crate::{Contact, Key, Record, Salt, SearchId};

/// Times that a place is visited again when nothing is found.
const REVISITS_MAX: u8 = 3;
/// Bits by which the last visit is nearer to the key.
const NEARER_BITS: u32 = 2;
/// Maximum number of records that a search remembers. Reason: 100,000 devices under one key, each once.
const FOUND_MAX: usize = 131_072;
/// Maximum number of places that a search has yet to visit. Reason: all children of two levels.
const SALTS_MAX: usize = 512;
/// A region with this many times the expected members is crowded. Reason: the estimate is wrong by as
/// much, or chance makes it so, in one of some tens of cases.
const CROWD: f64 = 1.5;

/// A visit to one of the places of the key.
#[derive(Debug)]
struct Visit {
    salt: Salt,
    /// Number of leading bits shared by the nodes asked.
    bits: u32,
    /// Number of earlier visits here that found nothing.
    revisit: u8,
    gather: Gather,
    /// The member that was asked for records, and the identity after which its page starts.
    asking: Option<(Contact, u128)>,
    /// The member to ask for the next page once there is credit, and where that page starts.
    next_page: Option<(Contact, u128)>,
    /// Number of records received from the member asked.
    received: usize,
    /// The digest of the records found at this place.
    digest: u64,
    asks: u32,
    replicas: u32,
    denials: u32,
    splits: u32,
}

/// A search under way.
#[derive(Debug)]
pub(super) struct Search {
    id: SearchId,
    key: Key,
    credit: u64,
    /// Bytes granted to answers that have not arrived.
    in_flight: u64,
    is_paused: bool,
    salts: Vec<Salt>,
    /// Earlier visits to the next place.
    revisit: u8,
    visit: Option<Visit>,
    /// The identity and the sequence number of each record found.
    found: BTreeMap<Key, u64>,
    report: SearchReport,
}

/// The next step of a search.
#[expect(
    clippy::large_enum_variant,
    reason = "a step is used at once and never stored"
)]
pub(super) enum SearchStep {
    Ask(Contact, Question, Purpose),
    /// Reads this node's own store at a place; costs no credit.
    ReadStore(Key),
    /// The credit is spent; the search waits for more.
    Paused,
    Wait,
    Ended,
}

impl Search {
    pub(super) fn new(id: SearchId, key: Key, credit: u64) -> Self {
        Self {
            id,
            key,
            credit,
            in_flight: 0,
            is_paused: false,
            salts: vec![Salt::default()],
            revisit: 0,
            visit: None,
            found: BTreeMap::new(),
            report: SearchReport::default(),
        }
    }

    pub(super) fn id(&self) -> SearchId {
        self.id
    }

    /// The event when the search ends.
    pub(super) fn ended(&self) -> Event {
        let mut report = self.report;
        report.found = u32::try_from(self.found.len()).unwrap_or(u32::MAX);
        let search = self.id;
        Event::SearchEnded { search, report }
    }

    // -- credit --

    pub(super) fn add_credit(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(bytes);
        self.is_paused = false;
    }

    /// Deducts the maximum length of a request's answer from the credit.
    pub(super) fn grant(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.credit = self.credit.saturating_sub(bytes);
        self.in_flight += bytes;
        self.report.granted += bytes;
        self.report.on_the_way_max = self.report.on_the_way_max.max(self.in_flight);
    }

    /// Settles the grant of a request: `arrived` is 0 if it timed out.
    pub(super) fn settle(&mut self, granted: usize, arrived: usize) {
        let granted = granted as u64;
        // An answer longer than granted is discarded and counted as overlong.
        let arrived = granted.min(arrived as u64);
        self.in_flight = self.in_flight.saturating_sub(granted);
        self.report.inflow += arrived;
        if arrived > 0 {
            // A late answer may still arrive, so the grant of a timed-out request counts as spent.
            self.credit += granted - arrived;
        }
    }

    // -- steps --

    pub(super) fn step(
        &mut self,
        id: TaskId,
        size: &Size,
        context: &mut Context<'_>,
    ) -> SearchStep {
        loop {
            let Some(visit) = &self.visit else {
                let Some(salt) = self.salts.pop() else {
                    return SearchStep::Ended;
                };
                return SearchStep::ReadStore(self.start_visit(salt, size, context));
            };
            if visit.asking.is_some() {
                return SearchStep::Wait;
            }
            if self.credit < PACKET_BYTES_MAX as u64 {
                // Outstanding answers may refund some credit.
                if self.is_paused || self.in_flight > 0 {
                    return SearchStep::Wait;
                }
                self.is_paused = true;
                return SearchStep::Paused;
            }
            if let Some(step) = self.visit_step(id, context) {
                return step;
            }
        }
    }

    fn start_visit(&mut self, salt: Salt, size: &Size, context: &mut Context<'_>) -> Key {
        let place = self.key.salted(salt);
        let members_max = context.config.search_asks as usize;
        let paths = context.config.paths;
        let revisit = self.revisit;
        let (bits, paths) = match (revisit, search_bits(size, context)) {
            (0, bits) => (bits, paths),
            (1, bits) => (bits, 3 * paths),
            (2, bits) => (bits.saturating_sub(1), 4 * paths),
            (_, bits) => (bits + NEARER_BITS, 2 * paths),
        };
        let gather = context.gather((place, bits), paths, revisit > 0, members_max, size);
        self.visit = Some(Visit {
            salt,
            bits,
            revisit,
            gather,
            asking: None,
            next_page: None,
            received: 0,
            digest: 0,
            asks: 0,
            replicas: 0,
            denials: 0,
            splits: 0,
        });
        place
    }

    /// One step of a visit; `None`: continue with the next visit.
    fn visit_step(&mut self, id: TaskId, context: &mut Context<'_>) -> Option<SearchStep> {
        let visit = self.visit.as_mut()?;
        if let Some((member, after)) = visit.next_page.take() {
            return self.ask_member(id, member, after);
        }
        let config = context.config;
        if visit.replicas >= config.search_replicas || visit.asks >= config.search_asks {
            self.leave_visit();
            return None;
        }
        // The number of members determines how many must deny, so all are gathered then.
        let is_denied = visit.denials >= config.search_denials;
        let members_wanted = if is_denied { usize::MAX } else { 1 };
        let (contact, target, count, purpose) = match visit
            .gather
            .next(members_wanted, context.random)
        {
            Next::Walk(contact, point) => (contact, point, FIND_CONTACTS, Purpose::Walk(id)),
            Next::Probe(contact, point) => (contact, point, REGION_CONTACTS, Purpose::Probe(id)),
            Next::Wait => return Some(SearchStep::Wait),
            Next::Done => {
                // In a crowded region all members are asked.
                let member = match is_denied && visit.gather.crowd() <= CROWD {
                    true => None,
                    false => visit.gather.take(context.random),
                };
                let Some(member) = member else {
                    self.leave_visit();
                    return None;
                };
                return self.ask_member(id, member, 0);
            }
        };
        self.report.finds += 1;
        let question = Question::Find { target, count };
        Some(SearchStep::Ask(contact, question, purpose))
    }

    fn ask_member(&mut self, id: TaskId, member: Contact, after: u128) -> Option<SearchStep> {
        let visit = self.visit.as_mut()?;
        if self.report.asks == 0 {
            self.report.hops = visit.gather.walk().hops(visit.gather.place, 1);
        }
        visit.asks += 1;
        self.report.asks += 1;
        visit.asking = Some((member, after));
        let question = Question::Ask {
            place: visit.gather.place,
            after,
            digest: visit.digest,
        };
        Some(SearchStep::Ask(member, question, Purpose::Ask(id)))
    }

    /// Ends the visit of the current place. If the place is split, its parts are visited next.
    fn leave_visit(&mut self) {
        let Some(visit) = self.visit.take() else {
            return;
        };
        self.report.replicas += visit.replicas;
        self.report.denials += visit.denials;
        // Nothing was found. All paths may have ended among an attacker's nodes: try many paths from
        // afar. Few nodes of the inner half may hold it: try the whole region. The publisher may estimate
        // the network as larger, hence the region as smaller: try nearer. If all nodes of the network
        // have denied it, no further visit helps.
        let all_denied = visit.bits == 0 && visit.denials as usize >= visit.gather.len();
        self.revisit = match visit.replicas {
            0 if !all_denied && visit.revisit < REVISITS_MAX => visit.revisit + 1,
            _ => 0,
        };
        if self.revisit > 0 {
            self.salts.push(visit.salt);
        }
        // One of three may lie.
        if visit.splits * 3 > visit.replicas && self.salts.len() + 16 <= SALTS_MAX {
            self.salts.extend(visit.salt.children());
        }
    }

    // -- answers --

    /// Adds the records of this node's own store; returns those that are new.
    pub(super) fn on_own_page<C: Cryptography>(
        &mut self,
        page: Page,
        notary: &Notary<'_, C>,
    ) -> Vec<Record> {
        let mut new = Vec::new();
        if page.held > 0 {
            for record in page.records {
                self.accept(record, notary, &mut new);
            }
            if let Some(visit) = &mut self.visit {
                visit.replicas += 1;
                visit.splits += u32::from(page.split);
            }
        }
        new
    }

    /// Handles the answer to a request of this search; returns the records that are new.
    pub(super) fn on_answer<C: Cryptography>(
        &mut self,
        purpose: Purpose,
        place: Key,
        answer: Answer,
        notary: &Notary<'_, C>,
    ) -> Vec<Record> {
        if matches!(purpose, Purpose::Ask(_)) {
            return self.on_records(answer, notary);
        }
        if let Some(visit) = &mut self.visit {
            on_gather_answer(&mut visit.gather, purpose, place, &answer);
        }
        Vec::new()
    }

    fn on_records<C: Cryptography>(
        &mut self,
        answer: Answer,
        notary: &Notary<'_, C>,
    ) -> Vec<Record> {
        let mut new = Vec::new();
        let Some(visit) = &mut self.visit else {
            return new;
        };
        let Some((member, after)) = visit.asking.take() else {
            return new;
        };
        let Answer::Records {
            held,
            is_split,
            records,
        } = answer
        else {
            visit.received = 0;
            return new;
        };
        let held = usize::from(held);
        let mut last = after;
        let mut good = 0;
        for record in records {
            let identity = record.identity().number();
            if identity <= last && last != 0 || !self.accept(record, notary, &mut new) {
                // Out of order, or not requested: the rest of the page is ignored.
                break;
            }
            last = identity;
            good += 1;
        }
        let Some(visit) = &mut self.visit else {
            return new;
        };
        visit.received += good;
        if good > 0 && visit.received < held {
            visit.next_page = Some((member, last));
            return new;
        }
        // A member whose records are all known sends none of them.
        let has_records = visit.received > 0 || held > 0 && visit.digest != 0;
        visit.received = 0;
        match has_records {
            true => {
                visit.replicas += 1;
                visit.splits += u32::from(is_split);
            }
            false => visit.denials += 1,
        }
        new
    }

    /// Whether a record was requested and has a valid signature. If it is new, it is added to `new`.
    fn accept<C: Cryptography>(
        &mut self,
        record: Record,
        notary: &Notary<'_, C>,
        new: &mut Vec<Record>,
    ) -> bool {
        let Some(visit) = &mut self.visit else {
            return false;
        };
        let identity = record.identity();
        let known = self.found.get(&identity).copied();
        if record.key != self.key
            || Salt::of_record(identity, visit.salt.level()) != visit.salt
            || !notary.is_in_time(&record)
        {
            return false;
        }
        if known.is_some_and(|known| known >= record.sequence) {
            return true;
        }
        if !notary.is_signed(&record) {
            return false;
        }
        if known.is_none() && self.found.len() >= FOUND_MAX {
            return true;
        }
        self.found.insert(identity, record.sequence);
        if let Some(known) = known {
            let old = Record {
                sequence: known,
                value: Vec::new(),
                ..record.clone()
            };
            visit.digest ^= digest_of(&old);
        }
        visit.digest ^= digest_of(&record);
        new.push(record);
        true
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.report.inflow > self.report.granted {
            return Err(format!(
                "{} bytes arrived of {} granted",
                self.report.inflow, self.report.granted
            ));
        }
        match &self.visit {
            Some(visit) => visit.gather.walk().check(),
            None => Ok(()),
        }
    }
}

/// Number of leading bits of the inner half of the region: the publisher may have estimated the region as
/// half as large.
fn search_bits(size: &Size, context: &Context<'_>) -> u32 {
    let nodes = size.nodes().unwrap_or(1.0);
    match size.region_bits(context.config.region_nodes) {
        // All nodes are the region, for every node.
        0 if nodes < f64::from(context.config.region_nodes) => 0,
        bits => bits + 1,
    }
}
